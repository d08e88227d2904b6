"""Image input of vision-language models, from a file's bytes to the patches of Qwen2-VL: CPU time an image, beside Pillow
with NumPy and, on request, the processor of `transformers`.

    python tests/benchmarks/bench_vlm.py FOLDER [--tokens 256,1280] [--images 96] [--batch 16] [--rounds 7] [--threads 1]
        [--processor PYTHON]

FOLDER holds photos as `photos.py` makes them. `--tokens` are budgets of an image, in tokens of the language model, each a
square of 28 pixels: larger images shrink to it. Images are resized by Pillow's bicubic filter, normalised, and cut into
patches of 2 x 3 x 14 x 14 floats, of which four are a token.

`Pillow and NumPy` do this image by image; `draft` lets Pillow decode at a fraction of the size, as `dct_scaling` does.
The contenders of jaxdali make batches: a pipeline of `decoders.image`, `resize` and `patchify` (also its first steps
alone, which gives each step's share), one of `decoders.image_patches`, and a function of `jd.jit`. `--processor` names
the interpreter of an environment that has `transformers`, `torch` and `torchvision`; its processor is backed by
torchvision, has one thread, and gets images that Pillow has decoded.

Contenders take turns, round by round. CPU time is that of all threads. Reported are medians over the rounds, and their
ratios to that of Pillow and NumPy.
"""

import argparse
import dataclasses
import io
import math
import pathlib
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

PATCH, MERGE, FRAMES, UNIT = 14, 2, 2, 28
MIN_PIXELS = 56 * 56
PROCESSOR = "transformers' processor"
MEAN = np.float32([0.48145466, 0.4578275, 0.40821073]) * 255
STD = np.float32([0.26862954, 0.26130258, 0.27577711]) * 255


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def smart_size(height: int, width: int, max_pixels: int) -> tuple[int, int]:
    """Qwen2-VL's height and width."""
    size = round(height / UNIT) * UNIT, round(width / UNIT) * UNIT
    if size[0] * size[1] > max_pixels:
        scale, rounded = math.sqrt(height * width / max_pixels), math.floor
    elif size[0] * size[1] < MIN_PIXELS:
        scale, rounded = math.sqrt(height * width / MIN_PIXELS), math.ceil
    else:
        return size
    return max(UNIT, rounded(height / scale / UNIT) * UNIT), max(UNIT, rounded(width / scale / UNIT) * UNIT)


def patches_by_pillow(file: bytes, max_pixels: int, draft: bool = False) -> np.ndarray:
    """The patches ``f32[patches, 1176]`` of a file."""
    image = Image.open(io.BytesIO(file))
    height, width = smart_size(image.height, image.width, max_pixels)
    if draft:
        image.draft("RGB", (width, height))
    pixels = np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC))
    x = (pixels - MEAN) / STD
    rows, columns = height // UNIT, width // UNIT
    x = x.reshape(rows, MERGE, PATCH, columns, MERGE, PATCH, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    x = x.reshape(rows * columns * MERGE * MERGE, 3, 1, PATCH * PATCH)
    return np.repeat(x, FRAMES, axis=2).reshape(len(x), -1)


class Jaxdali:
    """The contenders of jaxdali. Each is a function that makes the next batch and returns its images' values."""

    def __init__(self, files: Sequence[bytes], batch: int, threads: int, tokens: int):
        import jaxdali.dynamic as jd
        from jaxdali import fn, pipeline_def, vlm

        processor = dataclasses.replace(
            vlm.processors["qwen2-vl"], min_pixels=MIN_PIXELS, max_pixels=tokens * UNIT * UNIT
        )
        encoded = [np.frombuffer(f, np.uint8) for f in files]
        self._batches = [encoded[i : i + batch] for i in range(0, len(encoded), batch)]

        def pipeline(define: Callable[[Any, Any], Any]) -> Callable[[], Any]:
            # No batch is made ahead, in the turn of another contender.
            @pipeline_def(batch_size=batch, num_threads=threads, exec_pipelined=False, exec_async=False)
            def definition():
                files = fn.external_source(source=self._batches, cycle=True)
                outputs = define(files, processor.size(fn.peek_image_shape(files)))
                return tuple(outputs) if isinstance(outputs, list) else outputs

            pipe = definition()
            return lambda: pipe.run()[0]

        def resized(files: Any, size: Any, **decoder: Any) -> Any:
            return fn.resize(fn.decoders.image(files, **decoder), size=size, **processor.resize)

        def image_patches(files: Any, size: Any, **decoder: Any) -> Any:
            return fn.decoders.image_patches(files, size=size, **processor.resize, **processor.patches, **decoder)

        @jd.jit
        def jitted(files: Any) -> Any:
            size = processor.size(jd.peek_image_shape(files))
            return jd.decoders.image_patches(files, size=size, **processor.resize, **processor.patches)

        scaled = {"dct_scaling": True}
        self.contenders = {
            "decode": pipeline(lambda files, size: fn.decoders.image(files)),
            "decode, resize": pipeline(resized),
            "decode, resize, patchify": pipeline(lambda *x: fn.patchify(resized(*x), **processor.patches)),
            "image_patches": pipeline(image_patches),
            "image_patches in jd.jit": self._in_turn(lambda batch: jitted(jd.batch(batch))[0]),
            "decode, resize with dct_scaling": pipeline(lambda *x: resized(*x, **scaled)),
            "image_patches with dct_scaling": pipeline(lambda *x: image_patches(*x, **scaled)),
        }
        self.num_batches = len(self._batches)

    def _in_turn(self, call: Callable[[Any], Any]) -> Callable[[], Any]:
        count = 0

        def step() -> Any:
            nonlocal count
            count += 1
            return call(self._batches[(count - 1) % len(self._batches)])

        return step


def values_of(outputs: Any, i: int) -> np.ndarray:
    return np.asarray(outputs.at(i) if hasattr(outputs, "at") else outputs[i])


def serve(folder: str, images: int, tokens: int):
    """Measures the processor of `transformers`: for each line read, one round, whose CPU time an image is printed."""
    import torch
    from transformers import Qwen2VLImageProcessor

    torch.set_num_threads(1)
    limits = {"shortest_edge": MIN_PIXELS, "longest_edge": tokens * UNIT * UNIT}
    processor = Qwen2VLImageProcessor(size=limits, patch_size=PATCH, merge_size=MERGE, temporal_patch_size=FRAMES)
    files = read(folder, images)
    for _ in sys.stdin:
        start = cpu_seconds()
        for file in files:
            processor(images=Image.open(io.BytesIO(file)).convert("RGB"), return_tensors="pt")
        print((cpu_seconds() - start) / len(files), flush=True)


def read(folder: str, images: int) -> list[bytes]:
    return [path.read_bytes() for path in sorted(pathlib.Path(folder).glob("*/*.jp*g"))[:images]]


def measure(args: argparse.Namespace, tokens: int):
    files = read(args.folder, args.images)
    files = files[: len(files) // args.batch * args.batch]
    max_pixels = tokens * UNIT * UNIT
    ours = Jaxdali(files, args.batch, args.threads, tokens)
    want = patches_by_pillow(files[0], max_pixels)
    for name in ("decode, resize, patchify", "image_patches", "image_patches in jd.jit"):
        np.testing.assert_allclose(values_of(ours.contenders[name](), 0), want, rtol=0, atol=1e-5, err_msg=name)
    for _ in range(ours.num_batches - 1):  # the next batch is the first one again
        for name in ("decode, resize, patchify", "image_patches", "image_patches in jd.jit"):
            ours.contenders[name]()

    def round_of(step: Callable[[], Any], steps: int) -> float:
        start = cpu_seconds()
        for _ in range(steps):
            values_of(step(), 0)  # waits for the batch
        return (cpu_seconds() - start) / len(files)

    def by_pillow(**options: Any) -> Callable[[], float]:
        return lambda: round_of(lambda: [patches_by_pillow(f, max_pixels, **options) for f in files], steps=1)

    contenders: dict[str, Callable[[], float]] = {"Pillow and NumPy": by_pillow()}
    contenders["Pillow with draft, NumPy"] = by_pillow(draft=True)
    for name, step in ours.contenders.items():
        contenders[name] = lambda step=step: round_of(step, ours.num_batches)
    if args.processor:
        command = [
            args.processor,
            __file__,
            args.folder,
            "--serve",
            "--images",
            str(len(files)),
            "--tokens",
            str(tokens),
        ]
        server: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def ask() -> float:
            server.stdin.write("\n")
            server.stdin.flush()
            return float(server.stdout.readline())

        contenders[PROCESSOR] = ask
    for turn in contenders.values():
        turn()
    rounds = [{name: turn() for name, turn in contenders.items()} for _ in range(args.rounds)]
    ms = {name: 1e3 * statistics.median(times[name] for times in rounds) for name in contenders}
    print(f"{tokens} tokens, {len(files)} images:")
    for name, time in ms.items():
        print(f"  {name:34} {time:7.2f} ms, ratio {time / ms['Pillow and NumPy']:.2f}", flush=True)
    decoded, resized, patches = (ms[n] for n in ("decode", "decode, resize", "decode, resize, patchify"))
    print(f"  shares: decode {decoded / patches:.2f}, resize {(resized - decoded) / patches:.2f}, ", end="")
    print(f"patches {(patches - resized) / patches:.2f}; patches add {patches / resized - 1:.0%}", flush=True)
    if args.processor:
        print(f"  image_patches by transformers' processor: {ms['image_patches'] / ms[PROCESSOR]:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tokens", default="256,1280")
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processor")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for tokens in map(int, args.tokens.split(",")):
        serve(args.folder, args.images, tokens) if args.serve else measure(args, tokens)


if __name__ == "__main__":
    main()
