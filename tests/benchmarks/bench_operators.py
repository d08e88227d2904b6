"""CPU milliseconds per image of single operators, beside NVIDIA DALI in the same run.

    python tests/benchmarks/bench_operators.py [--dali-python VENV/bin/python] [--rounds 3] [--operators flip,pad]

64 images of 0.27 megapixels, uint8, HWC, all of other sizes, come from memory; the figure is that of the whole pipeline, of all threads.
Each library has a process of its own in each round; reported are medians over the rounds, and the median of the ratios of each round.
`augment` is `auto_aug.trivial_augment.trivial_augment_wide`, `source` the images as they are.
"""

import argparse
import importlib
import json
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
        lambda fn, x: fn.crop_mirror_normalize(x, crop=(224, 224), mirror=1, mean=[120.0] * 3, std=[60.0] * 3, output_layout="CHW"),
        1.0,
    ),
    "flip": (lambda fn, x: fn.flip(x), 1.0),
    "slice": (lambda fn, x: fn.slice(x, start=(20, 30), shape=(300, 400), axes=(0, 1)), 1.0),
    "pad": (lambda fn, x: fn.pad(x, axes=(0, 1), align=64), 1.0),
    "transpose": (lambda fn, x: fn.transpose(x, perm=[2, 0, 1]), 1.0),
    "warp_perspective": (
        lambda fn, x: fn.experimental.warp_perspective(x, matrix=[1.0, 0.1, 5.0, 0.05, 1.1, 3.0, 1e-4, 2e-4, 1.0], pixel_origin="center"),
        1.0,
    ),
    "grid_mask": (lambda fn, x: fn.grid_mask(x, tile=50, ratio=0.4, angle=0.3), 1.0),
    "reductions.mean": (lambda fn, x: fn.reductions.mean(x), 1.0),
    "reductions.max": (lambda fn, x: fn.reductions.max(x, axes=(0, 1)), 1.0),
    "reductions.std_dev": (lambda fn, x: fn.reductions.std_dev(x, fn.reductions.mean(x)), 1.0),
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

    @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, seed=1, enable_conditionals=True)
    def define():
        x = fn.external_source(source=[images], batch=True, cycle=True, layout="HWC")
        return trivial_augment.trivial_augment_wide(x) if operator == "augment" else OPERATORS[operator][0](fn, x)

    pipe = define()
    pipe.build()
    return pipe


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(args: argparse.Namespace) -> None:
    """Prints a JSON line for each operator."""
    images = [photo(k) for k in range(BATCH)]
    for operator in args.operators.split(","):
        pipe = build(args.package, operator, images, args.threads)
        spent = []
        for turn in range(1 + args.turns):
            before = cpu()
            for _ in range(args.batches):
                out = pipe.run()
                if hasattr(out[0], "block_until_ready"):
                    out[0].block_until_ready()
            if turn:  # before that programs are compiled and queues filled
                spent.append(1e3 * (cpu() - before) / (args.batches * BATCH))
        print(json.dumps({operator: statistics.median(spent)}), flush=True)
        del pipe
    os._exit(0)


def run(python: str, package: str, args: argparse.Namespace) -> dict[str, float]:
    command = [python, __file__, "--worker", "--package", package]
    for name in ("operators", "threads", "batches", "turns"):
        command += [f"--{name}", str(getattr(args, name))]
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=3600)
    found = {n: x for line in done.stdout.splitlines() if line.startswith("{") for n, x in json.loads(line).items()}
    if found.keys() != set(args.operators.split(",")):
        raise SystemExit(f"{package}: failed\n{done.stderr}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dali-python", default=sys.executable, help="the interpreter of an environment that has DALI")
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=4, help="batches in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--package", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args)
    rounds = [(run(sys.executable, "jaxdali", args), run(args.dali_python, "nvidia.dali", args)) for _ in range(args.rounds)]
    print("| operator | jaxdali, ms/image | DALI, ms/image | of DALI's CPU | target |\n|---|--:|--:|--:|--:|")
    for operator in args.operators.split(","):
        ours, theirs = ([r[i][operator] for r in rounds] for i in range(2))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        shown = f"{statistics.median(ours):.3f} | {statistics.median(theirs):.3f} | {ratio:.2f} | {OPERATORS[operator][1] or ''}"
        print(f"| {operator} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
