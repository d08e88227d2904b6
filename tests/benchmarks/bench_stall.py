"""Waits for single batches: how long the longest ones take, and how many programs are compiled, in which thread.

    python tests/benchmarks/bench_stall.py FOLDER [--batches 1000] [--batch_size 32] [--threads 2] [--seed 0]

FOLDER holds photos as `photos.py` makes them. Each batch is asked for when the one before it has come, so nothing hides
a stall. The limit is twice the median and 20 ms; the first batch is not counted. If batches are slow while nothing is
compiled, the machine is not quiet.
"""

import argparse
import pathlib
import threading
import time

import jax
import numpy as np

from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax import DALIGenericIterator

COMPILED = "/jax/core/compile/backend_compile_duration"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    compiled: dict[str, list[tuple[float, float]]] = {}

    def note(event: str, duration: float, **_):
        if event == COMPILED:
            end = time.perf_counter()
            compiled.setdefault(threading.current_thread().name, []).append((end - duration, end))

    jax.monitoring.register_event_duration_secs_listener(note)

    @pipeline_def(batch_size=args.batch_size, num_threads=args.threads, seed=args.seed)
    def photos():
        files, labels = fn.readers.file(file_root=args.folder, random_shuffle=True, name="reader")
        images = fn.decoders.image(files)
        images = fn.resize(images, size=(224, 224))
        return fn.crop_mirror_normalize(images, dtype=types.FLOAT, mirror=fn.random.coin_flip()), labels

    times = []
    with DALIGenericIterator(photos(), ["images", "labels"], reader_name="reader") as iterator:
        while len(times) < args.batches:
            start = time.perf_counter()
            batch = next(iterator, None)
            if batch is None:
                iterator.reset()
                continue
            jax.block_until_ready(batch)
            times.append((start, time.perf_counter()))
    took = np.array([1e3 * (end - start) for start, end in times])
    limit = 2 * np.median(took[1:]) + 20
    ahead = compiled.get("jaxdali-compile", [])
    meanwhile = {i for i, (start, end) in enumerate(times) if i and any(a < end and start < b for a, b in ahead)}
    longer = {i for i, t in enumerate(took) if i and t > limit}
    print(
        f"median {np.median(took[1:]):.1f} ms, 99 % {np.percentile(took[1:], 99):.1f} ms, longest {max(took[1:]):.1f} ms"
    )
    print(
        f"more than {limit:.1f} ms: {len(longer)} of {len(took) - 1} batches, {len(longer & meanwhile)} of {len(meanwhile)} while compiling"
    )
    print(
        "programs: "
        + ", ".join(f"{len(x)} in {name} ({1e3 * sum(b - a for a, b in x):.0f} ms)" for name, x in compiled.items())
    )


if __name__ == "__main__":
    main()
