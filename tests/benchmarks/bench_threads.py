"""Gain of more threads, and loss of a training step to a pipeline on the same cores. Wall times: for a
quiet machine.

    python tests/benchmarks/bench_threads.py [--data DIR] [--rounds 5]

* threads: images/s of a pipeline by one thread and by as many as there are cores, in processes that take turns:
  medians, and the median of the rounds' ratios to so many times one thread's.
* training step: matrix products on all cores, alone and with a batch of ``train`` for each; what it loses, beside the
  pipeline's share of the CPU time that both take.

The pipelines are those of `bench_pipelines.py`.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BATCH = 64


def iterator_of(pipeline: str, data: str, threads: int):
    from bench_pipelines import definition

    from jaxdali.plugin.jax import data_iterator

    return iter(
        data_iterator(definition("jaxdali", pipeline, data), ["images", "labels"])(
            batch_size=BATCH, num_threads=threads, seed=1
        )
    )


def speed(pipeline: str, data: str, threads: int) -> dict:
    import jax

    iterator = iterator_of(pipeline, data, threads)
    for _ in range(12):
        jax.block_until_ready(next(iterator))
    start = time.perf_counter()
    for _ in range(24):
        jax.block_until_ready(next(iterator))
    return {"images_per_s": 24 * BATCH / (time.perf_counter() - start)}


def step_beside(data: str, size: int, threads: int) -> dict:
    import jax
    import jax.numpy as jnp
    import numpy as np

    @jax.jit
    def step(w, images):
        for _ in range(4):
            w = jnp.tanh(w @ w * 1e-3)
        return w + 0 * images.mean()

    iterator = iterator_of("train", data, threads)
    images = next(iterator)["images"]
    w = jnp.asarray(np.random.default_rng(1).random((size, size), np.float32))

    def seconds(n, take):  # of wall and of CPU time
        start, cpu = time.perf_counter(), time.process_time()
        for _ in range(n):
            jax.block_until_ready(take())
        return np.array([time.perf_counter() - start, time.process_time() - cpu]) / n

    step_alone, both, pipeline = [], [], []
    seconds(8, lambda: next(iterator)["images"])
    for _ in range(8):
        time.sleep(0.3)  # the queue is full then, and the pipeline rests
        step_alone.append(seconds(10, lambda: step(w, images)))
        seconds(3, lambda: step(w, next(iterator)["images"]))
        both.append(seconds(10, lambda: step(w, next(iterator)["images"])))
        pipeline.append(seconds(8, lambda: next(iterator)["images"]))
    a, b, p = (np.median(x, 0) for x in (step_alone, both, pipeline))
    return {"alone": a[0], "both": b[0], "loss": 1 - a[0] / b[0], "share": p[1] / (a[1] + p[1])}


def run(*args: object) -> dict:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, __file__, "--worker", *map(str, args)], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders of JPEGs; default: 512 made for the occasion")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        kind, data, threads = args.worker[0], args.worker[1], int(args.worker[2])
        measured = step_beside(data, int(args.worker[3]), threads) if kind == "step" else speed(kind, data, threads)
        print(json.dumps(measured), flush=True)
        os._exit(0)  # what is still being made ahead is of no interest
    with tempfile.TemporaryDirectory() as scratch:
        from photos import make_photos

        data = args.data or str(make_photos(pathlib.Path(scratch)))
        cores = len(os.sched_getaffinity(0))
        print(
            f"{cores} cores, load {os.getloadavg()[0]:.1f}\n\n| pipeline | images/s, 1 thread | {cores} threads | of {cores} times one's |"
        )
        print("|---|--:|--:|--:|")
        for pipeline in ("resize", "train"):
            rounds = [[run(pipeline, data, t, 0)["images_per_s"] for t in (1, cores)] for _ in range(args.rounds)]
            one, all_cores = (statistics.median(r[i] for r in rounds) for i in range(2))
            ratio = statistics.median(r[1] / r[0] / cores for r in rounds)
            print(f"| {pipeline} | {one:.0f} | {all_cores:.0f} | {ratio:.2f} |", flush=True)
        print("\n| training step | alone, ms | with `train`, ms | lost | the pipeline's share |\n|---|--:|--:|--:|--:|")
        for size in (700, 1500):
            result = run("step", data, cores, size)
            times = f"{1e3 * result['alone']:.0f} | {1e3 * result['both']:.0f}"
            print(f"| {size} x {size} | {times} | {result['loss']:.1%} | {result['share']:.1%} |", flush=True)


if __name__ == "__main__":
    main()
