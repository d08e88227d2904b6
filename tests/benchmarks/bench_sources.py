"""The cost of a Python source in the training loop: called by `next()`, or with ``parallel=True`` in the background.

    python tests/benchmarks/bench_sources.py [--batches 60]

Batches of 32 images of 224x224; the loop is busy for 40 ms per batch without holding the GIL. One source returns
batches that lie in memory, the other makes samples, each of which waits for 1 ms as a disk or network does.
"""

import argparse
import statistics
import time

import numpy as np

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator

BATCH, STEP = 32, 0.04
images = np.random.default_rng(0).integers(0, 255, (BATCH, 224, 224, 3), np.uint8)


def waiting(info):
    time.sleep(0.001)
    return images[info.idx_in_batch]


def measure(source, batches: int, workers: int, **arguments) -> tuple[float, float]:
    """Seconds: median of next(), and of the loop per batch."""
    define = data_iterator(lambda: fn.external_source(source, layout="HWC", **arguments), ["x"])
    with define(batch_size=BATCH, num_threads=1, py_num_workers=workers) as iterator:
        for _ in range(5):
            next(iterator)
        times, begin = [], time.perf_counter()
        for _ in range(batches):
            start = time.perf_counter()
            next(iterator)
            times.append(time.perf_counter() - start)
            time.sleep(STEP)
        return statistics.median(times), (time.perf_counter() - begin) / batches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=60)
    batches = parser.parse_args().batches
    print("| source | next() | loop, of which 40 ms are its own |\n|---|--:|--:|")
    for name, source, workers, arguments in [
        ("batches in memory", lambda i: images, 1, {}),
        ("the same, `parallel=True`", lambda i: images, 1, {"parallel": True, "batch": True}),
        ("samples that wait 1 ms", waiting, 1, {"batch": False}),
        ("the same, `parallel=True`", waiting, 1, {"batch": False, "parallel": True}),
        ("the same, `py_num_workers=4`", waiting, 4, {"batch": False, "parallel": True}),
    ]:
        in_next, loop = measure(source, batches, workers, **arguments)
        print(f"| {name} | {1e3 * in_next:.2f} ms | {1e3 * loop:.1f} ms |")


if __name__ == "__main__":
    main()
