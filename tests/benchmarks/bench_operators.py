"""CPU milliseconds per image of single operators, beside NVIDIA DALI in the same run.

    python tests/benchmarks/bench_operators.py [--dali-python VENV/bin/python] [--operators flip,pad]

64 images of 0.27 megapixels, uint8, HWC, all of other sizes, come from memory; the figure is that of the whole
pipeline, of all threads. Each library has a process of its own, and they take turns of a few batches, with nothing made
ahead: reported are the least and the median of a turn's CPU time. `augment` is
`auto_aug.trivial_augment.trivial_augment_wide`, `source` the images as they are.
"""

import argparse
import importlib
import os
import resource
import statistics
import subprocess
import sys

import numpy as np

BATCH = 64
# Of each operator: what is made of the images, and the most of DALI's CPU time that it may take.
OPERATORS = {
    "color_twist": (lambda fn, x: fn.color_twist(x, hue=20.0, saturation=1.2, brightness=0.9, contrast=1.1), 0.15),
    "gaussian_blur": (lambda fn, x: fn.gaussian_blur(x, window_size=5), 0.15),
    "warp_affine": (lambda fn, x: fn.warp_affine(x, matrix=[1.0, 0.2, -20.0, -0.1, 0.9, 15.0], fill_value=0), 0.15),
    "crop_mirror_normalize": (
        lambda fn, x: fn.crop_mirror_normalize(
            x, crop=(224, 224), mirror=1, mean=[120.0] * 3, std=[60.0] * 3, output_layout="CHW"
        ),
        1.0,
    ),
    "flip": (lambda fn, x: fn.flip(x), 1.0),
    "slice": (lambda fn, x: fn.slice(x, start=(20, 30), shape=(300, 400), axes=(0, 1)), 1.0),
    "pad": (lambda fn, x: fn.pad(x, axes=(0, 1), align=64), 1.0),
    "transpose": (lambda fn, x: fn.transpose(x, perm=[2, 0, 1]), 1.0),
    "warp_perspective": (
        lambda fn, x: fn.experimental.warp_perspective(
            x, matrix=[1.0, 0.1, 5.0, 0.05, 1.1, 3.0, 1e-4, 2e-4, 1.0], pixel_origin="center"
        ),
        1.0,
    ),
    "grid_mask": (lambda fn, x: fn.grid_mask(x, tile=50, ratio=0.4, angle=0.3), 1.0),
    "reductions.mean": (lambda fn, x: fn.reductions.mean(x), 1.0),
    "reductions.max": (lambda fn, x: fn.reductions.max(x, axes=(0, 1)), 1.0),
    "reductions.std_dev": (lambda fn, x: fn.reductions.std_dev(x, fn.reductions.mean(x)), 1.0),
    "noise.gaussian": (lambda fn, x: fn.noise.gaussian(x, stddev=20.0), 1.2),
    "noise.salt_and_pepper": (lambda fn, x: fn.noise.salt_and_pepper(x, prob=0.1), 1.2),
    "noise.shot": (lambda fn, x: fn.noise.shot(x, factor=10.0), 2.0),
    "noise.shot of few events": (lambda fn, x: fn.noise.shot(x, factor=40.0), 2.0),
    "augment": (None, 0.3),
    "source": (lambda fn, x: x, None),
}


def photo(k: int) -> np.ndarray:
    h, w = 440 + 7 * (k % 9), 580 + 11 * (k % 7)
    y, x = np.mgrid[:h, :w] / max(h, w)
    waves = np.stack([np.sin(x * (5 + 3 * c + k) + y * (9 - 2 * c) + c) for c in range(3)], -1)
    return np.rint((waves * 0.4 + 0.5) * 255).astype(np.uint8)


def build(package: str, operator: str, images: list, threads: int):
    """The pipeline, in either library: only the package's name differs."""
    fn = importlib.import_module(f"{package}.fn")
    pipeline_def = importlib.import_module(package).pipeline_def
    trivial_augment = importlib.import_module(f"{package}.auto_aug.trivial_augment")

    @pipeline_def(
        batch_size=BATCH, num_threads=threads, device_id=None, seed=1, enable_conditionals=True, exec_pipelined=False
    )
    def define():
        x = fn.external_source(source=[images], batch=True, cycle=True, layout="HWC")
        return trivial_augment.trivial_augment_wide(x) if operator == "augment" else OPERATORS[operator][0](fn, x)

    pipe = define()
    pipe.build()
    return pipe


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def work(args: argparse.Namespace) -> None:
    """One library's side: reads an operator's name or nothing, builds it or runs a turn of it, and prints milliseconds
    per image.
    """
    images = [photo(k) for k in range(BATCH)]
    pipe = None
    for line in sys.stdin:
        if operator := line.strip():
            pipe = build(args.worker, operator, images, args.threads)
        assert pipe is not None
        begin = cpu()
        for _ in range(args.batches):
            out = pipe.run()
            if hasattr(out[0], "block_until_ready"):
                out[0].block_until_ready()
        print(1e3 * (cpu() - begin) / (args.batches * BATCH), flush=True)
    os._exit(0)


class Library:
    """A process that runs pipelines of one library, a turn when it is told to."""

    def __init__(self, python: str, package: str, args: argparse.Namespace):
        command = [
            python,
            __file__,
            "--worker",
            package,
            "--threads",
            str(args.threads),
            "--batches",
            str(args.batches),
        ]
        env = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def turn(self, operator: str = "") -> float:
        """Milliseconds of CPU time per image; with a name that pipeline is built, and takes the turns from then on."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(operator, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dali-python", default=sys.executable, help="the interpreter of an environment that has DALI")
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=4, help="batches in a turn")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--worker", metavar="PACKAGE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
    ours, theirs = Library(sys.executable, "jaxdali", args), Library(args.dali_python, "nvidia.dali", args)
    print(
        "| operator | jaxdali, ms/image: least, median | DALI | of DALI's CPU: least, median | target |\n|---|--:|--:|--:|--:|"
    )
    for operator in args.operators.split(","):
        for library in (ours, theirs):  # programs are compiled, queues filled
            library.turn(operator)
        turns = [(ours.turn(), theirs.turn()) for _ in range(args.turns)]
        minimum, median = ([f(column) for column in zip(*turns, strict=True)] for f in (min, statistics.median))
        times = [f"{a:.2f}, {b:.2f}" for a, b in zip(minimum, median, strict=True)]
        ratios = f"{minimum[0] / minimum[1]:.2f}, {median[0] / median[1]:.2f}"
        print(f"| {operator} | {times[0]} | {times[1]} | {ratios} | {OPERATORS[operator][1] or ''} |", flush=True)
    for library in (ours, theirs):
        library.process.communicate()


if __name__ == "__main__":
    main()
