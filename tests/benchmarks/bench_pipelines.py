"""Images per second and CPU milliseconds per image of whole pipelines, beside other libraries on the same files.

    python tests/benchmarks/bench_pipelines.py [--data DIR] [--dali-python VENV/bin/python] [--peers-python
    VENV/bin/python] [--rounds 5]

Each measurement is a process of its own; the libraries take turns, round by round, so that what else happens on the
machine hits them alike. Reported are medians over the rounds, the least CPU time, and the medians of the per-round
ratios. CPU time, of all threads of the process and of its worker processes, is the figure to trust on a shared machine.
Left out, and named, are DALI, the pools of threads of `peers.py` and the libraries of `loaders.py` that the
interpreters given (or this one) can't import. SPDL needs FFmpeg's shared libraries.

The pipelines: ``decode`` (files -> RGB), ``resize`` (decode, resize to 256x256), ``rotate`` (decode, rotate by
-10 ... 10 degrees onto an enlarged canvas, resize to 256x256), ``train`` (a random window decoded and resized to
224x224, mirrored, normalised to CHW), ``eval`` (shorter side 256, the middle 224x224, normalised), ``large``
(``resize`` on photos of 12 megapixels), ``scaled`` (the same with ``dct_scaling`` of jaxdali; the others decode all of
it, as for ``large``); two threads, or two worker processes (torch), batches of 64. jaxdali is measured with
``fuse=True`` and ``fuse=False``, on what `next` of an iterator gives, where images have one size.
"""

import argparse
import importlib
import json
import os
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np

TICKS = os.sysconf("SC_CLK_TCK")
PIPELINES = ("decode", "resize", "rotate", "train", "eval", "large", "scaled")
LARGE = ("large", "scaled")
# Of DALI's CPU time.
TARGETS = {"decode": 0.55, "resize": 0.23, "rotate": 0.09, "train": 0.28, "eval": 0.28, "large": 0.4, "scaled": 0.25}
OF_OPENCV = {"decode": 0.50, "resize": 0.55, "rotate": 0.50, "train": 0.30, "eval": 0.40, "large": 0.5, "scaled": 0.4}
# Of peers.py, and what they need.
POOLS = {"opencv": "import cv2", "simplejpeg": "import cv2, simplejpeg", "pillow": "import PIL"}
LOADERS = {  # of loaders.py
    "tf.data": "import tensorflow",
    "torch, Pillow": "import torchvision",
    "torch, tensors": "import torchvision",
    "Grain, OpenCV": "import grain, cv2",
    "SPDL": "import spdl.pipeline; from spdl.io import ImageFrames",
}
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def definition(package: str, pipeline: str, data: str):
    """The pipeline's definition as source code, which differs between the libraries in the package's name only."""
    fn = importlib.import_module(f"{package}.fn")

    def define():
        jpegs, labels = fn.readers.file(file_root=data, random_shuffle=True, name="reader")
        if pipeline == "train":
            images = fn.resize(fn.decoders.image_random_crop(jpegs), size=(224, 224))
            return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), mean=MEAN, std=STD), labels
        images = fn.decoders.image(
            jpegs, **({"dct_scaling": True} if pipeline == "scaled" and package == "jaxdali" else {})
        )
        if pipeline == "eval":
            images = fn.resize(images, resize_shorter=256)
            return fn.crop_mirror_normalize(images, crop=(224, 224), mean=MEAN, std=STD), labels
        if pipeline == "rotate":
            images = fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0)
        if pipeline != "decode":
            images = fn.resize(images, resize_x=256, resize_y=256)
        return images, labels

    return define


def taken(args: argparse.Namespace):
    """A function that takes the next batch, finished."""
    if args.package in POOLS:
        from peers import batches

        return batches(args.package, args.pipeline, args.data, args.threads, args.batch)
    if args.package in LOADERS:
        from loaders import LOADERS as loaders

        return loaders[args.package](args.pipeline, args.data, args.threads, args.batch)
    define = definition(args.package, args.pipeline, args.data)
    options = {
        "batch_size": args.batch,
        "num_threads": args.threads,
        "device_id": None,
        "seed": 1,
        "prefetch_queue_depth": 2,
    }
    if args.package == "jaxdali":
        options["fuse"] = not args.alone
        if args.pipeline != "decode":
            jax = importlib.import_module("jax")
            plugin = importlib.import_module("jaxdali.plugin.jax")
            iterator = iter(plugin.data_iterator(define, ["images", "labels"])(**options))
            return lambda: jax.block_until_ready(next(iterator))
    pipe = importlib.import_module(args.package).pipeline_def(**options)(define)()
    pipe.build()
    return pipe.run


def family(process: str = "self") -> Iterator[pathlib.Path]:
    """The folders in /proc of a process and of those below it; of itself first."""
    folder = pathlib.Path("/proc", process)
    yield folder
    for children in folder.glob("task/*/children"):
        for child in children.read_text().split():
            yield from family(child)


def used() -> np.ndarray:
    """Seconds of user and system time, and page faults, of this process and those below it so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = np.sum([(u.ru_utime, u.ru_stime, u.ru_minflt) for u in usages], 0)
    for folder in list(family())[1:]:
        # From field 4 of proc(5)
        fields = [int(x) for x in (folder / "stat").read_text().rpartition(")")[2].split()[1:]]
        faults, user, system = fields[6] + fields[7], fields[10] + fields[12], fields[11] + fields[13]
        total += np.array([user / TICKS, system / TICKS, faults])
    return total


def peak_mb() -> float:
    """The most memory that was resident, of all processes; what several share is counted in each."""
    # Of ru_maxrss the parent's is part.
    peaks = [re.search(r"VmHWM:\s+(\d+)", (folder / "status").read_text()) for folder in family()]
    return sum(int(p[1]) for p in peaks if p) / 1024


def measure(args: argparse.Namespace) -> None:
    """Runs one pipeline and prints one JSON line. `Pipeline.run` returns finished batches in both libraries."""
    take = taken(args)
    for _ in range(-(-args.warmup // args.batch)):
        take()
    batches = -(-args.images // args.batch)
    used_before, start = used(), time.perf_counter()
    for _ in range(batches):
        take()
    wall = time.perf_counter() - start
    user, system, faults = used() - used_before
    n = batches * args.batch
    numbers = {
        "images_per_s": n / wall,
        "cpu_ms": 1e3 * (user + system) / n,
        "system_ms": 1e3 * system / n,
        "faults": faults / batches,
        "peak_mb": peak_mb(),
    }
    print(json.dumps(numbers))
    sys.stdout.flush()
    for folder in list(family())[1:]:
        os.kill(int(folder.name), signal.SIGKILL)
    os._exit(0)  # what is still being prefetched is of no interest


def run(python: str, package: str, alone: bool, pipeline: str, args: argparse.Namespace) -> dict:
    data = args.large if pipeline in LARGE else args.data
    command = [
        python,
        __file__,
        "--worker",
        "--package",
        package,
        "--pipeline",
        pipeline,
        "--data",
        data,
        *["--alone"] * alone,
    ]
    for name in ("threads", "batch", "images", "warmup"):
        few = pipeline in LARGE and name in ("batch", "images", "warmup")
        command += [f"--{name}", str(max(getattr(args, name) // 16, 1) if few else getattr(args, name))]
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{package}, {pipeline}: failed\n{done.stderr}")
    return json.loads(lines[-1])


def has(python: str, imports: str) -> bool:
    return subprocess.run([python, "-c", imports], capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders of JPEGs; default: 512 made for the occasion")
    parser.add_argument("--dali-python", default=sys.executable, help="the interpreter of an environment that has DALI")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="the interpreter of an environment that has the others"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=640, help="images measured per round")
    parser.add_argument(
        "--warmup", type=int, default=512, help="images before these; the files are read once, all programs compiled"
    )
    parser.add_argument("--pipelines", default=",".join(PIPELINES))
    parser.add_argument("--libraries", help="of those that are there, between semicolons; default: all")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--package", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pipeline", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args)
    with tempfile.TemporaryDirectory() as scratch:
        from photos import describe, make_photos

        args.data = args.data or str(make_photos(pathlib.Path(scratch)))
        if any(p in args.pipelines for p in LARGE):
            args.large = str(
                make_photos(pathlib.Path(scratch) / "large", 16, 4, shapes=[((4000, 3000), 1.0)], sigma=(3, 6))
            )
        print(
            f"{describe(pathlib.Path(args.data))}; {args.threads} threads, batches of {args.batch}, {args.rounds} rounds\n"
        )
        libraries = {
            "jaxdali": (sys.executable, "jaxdali", False),
            "jaxdali, fuse=False": (sys.executable, "jaxdali", True),
        }
        peers = {"DALI": (args.dali_python, "nvidia.dali", "import nvidia.dali")}
        peers |= {name: (args.peers_python, name, imports) for name, imports in (POOLS | LOADERS).items()}
        for name, (python, package, imports) in peers.items():
            if args.libraries and name not in args.libraries.split(";"):
                continue
            if has(python, imports):
                libraries[name] = (python, package, False)
            else:
                print(f"{name} is left out: {python} can't {imports}\n")
        if args.libraries:
            libraries = {name: libraries[name] for name in args.libraries.split(";") if name in libraries}
        head = (
            "pipeline",
            "library",
            "images/s",
            "CPU ms/image",
            "least",
            "of that system",
            "faults/batch",
            "peak MB",
            "of DALI",
            "of OpenCV",
        )
        print(f"| {' | '.join(head)} |\n|---|---|{'--:|' * (len(head) - 2)}", flush=True)
        for pipeline in args.pipelines.split(","):
            rows: dict[str, list[dict]] = {name: [] for name in libraries}
            for _ in range(args.rounds):
                for name, library in libraries.items():
                    rows[name].append(run(*library, pipeline, args))
            for name, row in rows.items():
                of_dali, of_opencv = (ratio(row, rows.get(peer)) for peer in ("DALI", "opencv"))
                if name == "jaxdali":
                    of_dali, of_opencv = (
                        f"{of_dali} (target {TARGETS[pipeline]})",
                        f"{of_opencv} (target {OF_OPENCV[pipeline]})",
                    )
                speed, cpu, system, faults, peak = (
                    statistics.median(r[k] for r in row)
                    for k in ("images_per_s", "cpu_ms", "system_ms", "faults", "peak_mb")
                )
                numbers = f"{speed:.0f} | {cpu:.2f} | {min(r['cpu_ms'] for r in row):.2f} | {system:.2f} | {faults:.0f} | {peak:.0f}"
                print(f"| {pipeline} | {name} | {numbers} | {of_dali} | {of_opencv} |", flush=True)


def ratio(got: list[dict], other: list[dict] | None) -> str:
    """The median of the ratios of CPU times, round by round."""
    return (
        f"{statistics.median(a['cpu_ms'] / b['cpu_ms'] for a, b in zip(got, other, strict=True)):.2f}" if other else ""
    )


if __name__ == "__main__":
    main()
