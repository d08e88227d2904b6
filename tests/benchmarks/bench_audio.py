"""Log-mel spectrograms of 10-second WAV clips: CPU time of a clip, beside DALI and beside librosa's way in NumPy. With
--resampling, clips of 3 seconds that are decoded and resampled, beside DALI.

    python tests/benchmarks/bench_audio.py --dali /path/to/python/with/dali [--flac | --resampling]

Each package runs in a process of its own; batches are taken in turns.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import wave

import numpy as np

BATCH, RATE, MELS = 16, 16000, 80
MEL = "log-mel"
# By name: rate and channels of the clips, arguments of decoders.audio, and the scale of audio_resample, if any.
RESAMPLING = {
    f"{name}, quality {quality}": (rate, channels, decoding, scale, float(quality))
    for quality in (50, 100)
    for name, rate, channels, decoding, scale in (
        ("48 to 16 kHz, mixed down", 48000, 2, {"downmix": True, "sample_rate": 16000.0}, None),
        ("48 to 24 kHz, stereo", 48000, 2, {"sample_rate": 24000.0}, None),
        ("44.1 to 16 kHz, mixed down", 44100, 2, {"downmix": True, "sample_rate": 16000.0}, None),
        ("16 kHz by 0.9", 16000, 1, {"downmix": True}, 0.9),
        ("16 kHz by 1.1", 16000, 1, {"downmix": True}, 1.1),
        ("48 kHz by 0.5, stereo", 48000, 2, {}, 0.5),
    )
}


def clips(rate: int = RATE, channels: int = 1, seconds: int = 10) -> list[np.ndarray]:
    """Noise, 16-bit PCM; or the files of the folder that CLIPS names."""
    if folder := os.environ.get("CLIPS"):
        return [np.fromfile(file, np.uint8) for file in sorted(pathlib.Path(folder).iterdir())]
    rng, encoded = np.random.default_rng(0), []
    for _ in range(BATCH):
        with io.BytesIO() as f:
            with wave.open(f, "wb") as w:
                w.setparams((channels, 2, rate, 0, "NONE", ""))
                w.writeframes(rng.normal(0, 3000, seconds * rate * channels).astype(np.int16).tobytes())
            encoded.append(np.frombuffer(f.getvalue(), np.uint8))
    return encoded


def pipeline(package: str, case: str):
    """A function that makes a batch."""
    fn = importlib.import_module(f"{package}.fn")
    files = clips() if case == MEL else clips(*RESAMPLING[case][:2], seconds=3)

    def resampled(sources):
        _, _, decoding, scale, quality = RESAMPLING[case]
        if scale is None:
            return fn.decoders.audio(sources, quality=quality, **decoding)[0]
        return fn.audio_resample(fn.decoders.audio(sources, **decoding)[0], scale=scale, quality=quality)

    @importlib.import_module(package).pipeline_def(batch_size=BATCH, num_threads=2, device_id=None)
    def define():
        sources = fn.external_source(source=lambda: files, batch=True)
        if case != MEL:
            return resampled(sources)
        audio, _ = fn.decoders.audio(sources, downmix=True)
        power = fn.spectrogram(audio, nfft=512, window_length=400, window_step=160)
        mel = fn.mel_filter_bank(power, sample_rate=float(RATE), nfilter=MELS)
        return fn.to_decibels(mel, multiplier=float(np.log(10)), reference=1.0, cutoff_db=-80.0)

    pipe = define()
    pipe.build()

    def batch():
        (out,) = pipe.run()
        return np.asarray(out[0])

    return batch


def librosa_like():
    """The computation of librosa, in NumPy: frames, window, FFT, product with the filters, logarithm."""
    files = clips()
    window = np.hanning(401)[:400].astype(np.float32)
    points = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), MELS + 2) / 2595) - 1)
    hz = np.linspace(0, RATE / 2, 257)
    up, down = (
        (hz - points[:-2, None]) / np.diff(points)[:-1, None],
        (points[2:, None] - hz) / np.diff(points)[1:, None],
    )
    filters = np.maximum(0, np.minimum(up, down)).astype(np.float32)

    def batch():
        for file in files:
            with wave.open(io.BytesIO(file.tobytes())) as w:
                x = np.frombuffer(w.readframes(w.getnframes()), np.int16).astype(np.float32) / 32768
            frames = np.lib.stride_tricks.sliding_window_view(np.pad(x, 200, "reflect"), 400)[::160]
            power = np.abs(np.fft.rfft(frames * window, 512)) ** 2
            result = np.log(np.maximum(filters @ power.T, 1e-8))
        return result

    return batch


def work(name: str) -> None:
    current, batch = None, lambda: None
    for line in sys.stdin:
        case, batches = json.loads(line)
        if case != current:
            current, batch = case, librosa_like() if name == "numpy" else pipeline(name, case)
            for _ in range(3):
                batch()
        begin = time.process_time()
        for _ in range(batches):
            batch()
        print(json.dumps((time.process_time() - begin) / batches / BATCH * 1e3), flush=True)


class Package:
    """A process that makes batches when it is asked."""

    def __init__(self, python: str, name: str):
        command = [python, __file__, "--work", name]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        )

    def turn(self, case: str, batches: int) -> float:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([case, batches]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--dali", help="a Python interpreter with DALI")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--batches", type=int, default=5, help="of a turn")
    parser.add_argument("--flac", action="store_true", help="compress the clips as FLAC (soundfile); without NumPy")
    parser.add_argument("--resampling", action="store_true", help="resample instead; without NumPy")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        return work(args.work)
    with tempfile.TemporaryDirectory() as folder:
        if args.flac:
            write_flac(pathlib.Path(folder))
            os.environ["CLIPS"] = folder
        compare(args)


def write_flac(folder: pathlib.Path):
    import soundfile

    for i, clip in enumerate(clips()):
        sound, rate = soundfile.read(io.BytesIO(clip.tobytes()))
        soundfile.write(folder / f"{i:02}.flac", sound, rate)


def compare(args: argparse.Namespace):
    packages = {"jaxdali": Package(sys.executable, "jaxdali")}
    if not (args.flac or args.resampling):
        packages["numpy"] = Package(sys.executable, "numpy")
    if args.dali:
        packages["nvidia.dali"] = Package(args.dali, "nvidia.dali")
    for case in RESAMPLING if args.resampling else [MEL]:
        times = {name: [] for name in packages}
        for _ in range(args.turns):
            for name, package in packages.items():
                times[name].append(package.turn(case, args.batches))
        mine = statistics.median(times["jaxdali"])
        print(case)
        for name, ms in times.items():
            median = statistics.median(ms)
            print(
                f"{name:12} {median:6.2f} ms of CPU a clip ({min(ms):.2f} to {max(ms):.2f}), jaxdali takes {mine / median:.2f} of it"
            )


if __name__ == "__main__":
    main()
