"""Images per second and CPU milliseconds per image of whole pipelines, beside NVIDIA DALI on the same files.

    python tests/benchmarks/bench_pipelines.py [--data DIR] [--dali-python VENV/bin/python] [--rounds 5]

Each measurement is a process of its own; the libraries take turns, round by round, so that what else happens on the
machine hits them alike. Reported are medians over the rounds, and the median of the per-round ratios. CPU time, of all
threads of the process, is the figure to trust on a shared machine. DALI is left out when the interpreter given (or this
one) does not have it.

The pipelines: ``decode`` (files -> RGB), ``resize`` (decode, resize to 256x256), ``rotate`` (decode, rotate by
-10 ... 10 degrees onto an enlarged canvas, resize to 256x256); two threads, batches of 64.
"""

import argparse
import importlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

PIPELINES = ("decode", "resize", "rotate")
TARGETS = {"resize": 0.55, "rotate": 0.3}  # of DALI's CPU time


def build(package: str, pipeline: str, data: str, threads: int, batch: int):
    """The pipeline, in either library: only the package's name differs."""
    fn = importlib.import_module(f"{package}.fn")
    pipeline_def = importlib.import_module(package).pipeline_def

    @pipeline_def(batch_size=batch, num_threads=threads, device_id=None, seed=1, prefetch_queue_depth=2)
    def define():
        jpegs, labels = fn.readers.file(file_root=data, random_shuffle=True, name="reader")
        images = fn.decoders.image(jpegs)
        if pipeline == "rotate":
            images = fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), fill_value=0)
        if pipeline != "decode":
            images = fn.resize(images, resize_x=256, resize_y=256)
        return images, labels

    pipe = define()
    pipe.build()
    return pipe


def measure(args: argparse.Namespace) -> None:
    """Runs one pipeline and prints one JSON line. `Pipeline.run` returns finished batches in both libraries."""
    pipe = build(args.package, args.pipeline, args.data, args.threads, args.batch)
    for _ in range(-(-args.warmup // args.batch)):
        pipe.run()
    batches = -(-args.images // args.batch)
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for _ in range(batches):
        out = pipe.run()
        if hasattr(out[0], "block_until_ready"):
            out[0].block_until_ready()
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    n = batches * args.batch
    print(json.dumps({"images_per_s": n / wall, "cpu_ms": 1e3 * cpu / n}))
    sys.stdout.flush()
    os._exit(0)  # what is still being prefetched is of no interest


def run(python: str, package: str, pipeline: str, args: argparse.Namespace) -> dict | None:
    command = [python, __file__, "--worker", "--package", package, "--pipeline", pipeline, "--data", args.data]
    for name in ("threads", "batch", "images", "warmup"):
        command += [f"--{name}", str(getattr(args, name))]
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{package}, {pipeline}: failed\n{done.stderr}")
    return json.loads(lines[-1])


def has_dali(python: str) -> bool:
    return subprocess.run([python, "-c", "import nvidia.dali"], capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders of JPEGs; default: 512 made for the occasion")
    parser.add_argument("--dali-python", default=sys.executable, help="the interpreter of an environment that has DALI")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=640, help="images measured per round")
    parser.add_argument("--warmup", type=int, default=512, help="images before these; the files are read once, all programs compiled")
    parser.add_argument("--pipelines", default=",".join(PIPELINES))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--package", help=argparse.SUPPRESS)
    parser.add_argument("--pipeline", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args)
    with tempfile.TemporaryDirectory() as scratch:
        from photos import describe, make_photos

        args.data = args.data or str(make_photos(pathlib.Path(scratch)))
        print(f"{describe(pathlib.Path(args.data))}; {args.threads} threads, batches of {args.batch}, {args.rounds} rounds\n")
        libraries = {"jaxdali": (sys.executable, "jaxdali")}
        if has_dali(args.dali_python):
            libraries["DALI"] = (args.dali_python, "nvidia.dali")
        else:
            print(f"{args.dali_python} has no nvidia.dali: measuring jaxdali alone\n")
        print("| pipeline | library | images/s | CPU ms/image | of DALI's CPU | target |")
        print("|---|---|--:|--:|--:|--:|", flush=True)
        for pipeline in args.pipelines.split(","):
            rows: dict[str, list[dict]] = {name: [] for name in libraries}
            for _ in range(args.rounds):
                for name, (python, package) in libraries.items():
                    rows[name].append(run(python, package, pipeline, args))
            for name, got in rows.items():
                ratio = target = ""
                if name == "jaxdali" and "DALI" in rows:
                    ratio = f"{statistics.median(a['cpu_ms'] / b['cpu_ms'] for a, b in zip(got, rows['DALI'], strict=True)):.2f}"
                    target = f"{TARGETS[pipeline]:.2f}" if pipeline in TARGETS else ""
                speed, cpu = (statistics.median(r[k] for r in got) for k in ("images_per_s", "cpu_ms"))
                print(f"| {pipeline} | {name} | {speed:.0f} | {cpu:.2f} | {ratio} | {target} |", flush=True)


if __name__ == "__main__":
    main()
