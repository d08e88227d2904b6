"""Random clips of 16 frames from 640x480 H.264 with a key frame every 30 frames, beside PyAV in a thread pool written
by hand.

    python tests/benchmarks/bench_video.py [--resize 224]

With ``--resize`` the clips are resized, beside OpenCV, or Pillow without it. Both ways run in turns, one at a time; the
report is the median of each, in milliseconds for a batch of 8 clips, and the median of the ratios.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import av
import numpy as np
from PIL import Image

from jaxdali import fn, pipeline_def

BATCH, LENGTH, THREADS, RATE, FRAMES = 8, 16, 2, 30, 300
PHOTOS = sorted((pathlib.Path(__file__).parents[2] / "examples" / "images").glob("*/*.jpg"))


def make(path: pathlib.Path, photo: pathlib.Path) -> str:
    """A video that moves over a photo, with some noise."""
    draw = np.random.default_rng(0)
    picture = np.asarray(Image.open(photo).convert("RGB").resize((1000, 800)))
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 640, 480, "yuv420p"
        stream.options = {"x264-params": "keyint=30:scenecut=0"}
        for i in range(FRAMES):
            x, y = int(180 + 170 * np.sin(i / 40)), int(160 + 150 * np.cos(i / 55))
            part = picture[y : y + 480, x : x + 640].astype(np.int16) + draw.integers(-4, 5, (480, 640, 1))
            output.mux(stream.encode(av.VideoFrame.from_ndarray(np.clip(part, 0, 255).astype(np.uint8), "rgb24")))
        output.mux(stream.encode(None))
    return str(path)


def by_hand(files: list[str], size: int) -> Iterator[np.ndarray]:
    """Batches by PyAV: each thread seeks to the key frame, decodes, and converts as PyAV does by default."""
    draw, idle = np.random.default_rng(0), {f: [] for f in files}
    resize = resized(size) if size else lambda frame: frame

    def clip(job: tuple[str, int]) -> np.ndarray:
        path, first = job
        try:
            container = idle[path].pop()
        except IndexError:
            container = av.open(path)
            container.streams.video[0].codec_context.thread_count = 1
        stream = container.streams.video[0]
        container.seek(int(first / RATE / stream.time_base), stream=stream)
        frames = []
        for frame in container.decode(stream):
            if round(float(frame.pts * stream.time_base) * RATE) >= first:
                frames.append(resize(frame.to_ndarray(format="rgb24")))
                if len(frames) == LENGTH:
                    break
        idle[path].append(container)
        return np.stack(frames)

    with ThreadPoolExecutor(THREADS) as threads:
        while True:
            yield np.stack(
                list(
                    threads.map(
                        clip, [(str(draw.choice(files)), int(draw.integers(FRAMES - LENGTH))) for _ in range(BATCH)]
                    )
                )
            )


def resized(size: int) -> Callable[[np.ndarray], np.ndarray]:
    try:
        import cv2
    except ImportError:
        return lambda frame: np.asarray(Image.fromarray(frame).resize((size, size), Image.Resampling.BILINEAR))
    cv2.setNumThreads(1)
    return lambda frame: cv2.resize(frame, (size, size), interpolation=cv2.INTER_LINEAR)


def ours(files: list[str], size: int) -> Iterator[object]:
    @pipeline_def(batch_size=BATCH, num_threads=THREADS)
    def pipeline():
        clips = fn.readers.video(filenames=files, sequence_length=LENGTH, step=1, shuffle="global", seed=1)
        return fn.resize(clips, size=(size, size)) if size else clips

    pipe = pipeline(exec_pipelined=False, exec_async=False)
    try:
        while True:
            yield pipe.run()
    finally:
        pipe.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resize", type=int, default=0)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [make(pathlib.Path(folder) / f"{k}.mp4", photo) for k, photo in enumerate(PHOTOS[:4])]
        ways = {"ours": ours, "by hand": by_hand}
        wall, cpu = {w: [] for w in ways}, {w: [] for w in ways}
        for _ in range(args.rounds):
            for name, way in ways.items():
                batches = way(files, args.resize)
                for _ in range(5):  # until all buffers have been used once
                    next(batches)
                begin = time.perf_counter(), time.process_time()
                for _ in range(args.batches):
                    next(batches)
                wall[name].append(1e3 * (time.perf_counter() - begin[0]) / args.batches)
                cpu[name].append(1e3 * (time.process_time() - begin[1]) / args.batches)
                batches.close()
        for clock, times in (("wall", wall), ("CPU", cpu)):
            medians = {name: statistics.median(x) for name, x in times.items()}
            ratio = statistics.median(a / b for a, b in zip(*times.values()))
            print(f"{clock}: {medians['ours']:.0f} ms beside {medians['by hand']:.0f} ms: {ratio:.2f}")


if __name__ == "__main__":
    main()
