"""The cost of the iterator in the training loop: `next()`, the producing thread, imports, the first batch.

    python tests/benchmarks/bench_iterator.py [--batches 200]

* ``next()``: on a full queue, 2 outputs sharded over 8 CPU devices, dropping the batch before included; median.
* producing thread: its CPU time per batch with tiny images (8x8 pixels), so that decoding and resizing are next to
  nothing, less what it spends in the native file reader.
* imports: `import jaxdali` over `import jax`, each in processes of their own, interleaved; medians.
* first batch: of the tutorial's quick start, in a fresh process: definition, trace, compilation and the batch.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

FIRST_BATCH = """
import sys, time
import jax
from jaxdali import fn
from jaxdali.plugin.jax import data_iterator

start = time.perf_counter()

@data_iterator(output_map=["images", "labels"], reader_name="image_reader")
def iterator_fn():
    jpegs, labels = fn.readers.file(file_root=sys.argv[1], name="image_reader")
    images = fn.decoders.image(jpegs, device="mixed")
    images = fn.resize(images, resize_x=256, resize_y=256)
    return images, labels

iterator = iterator_fn(batch_size=8)
next(iterator)["images"].block_until_ready()
print(time.perf_counter() - start)
"""

IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def in_process(code: str, *args: str) -> float:
    # Modules are compiled once, as users have it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    run = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, env=environment
    )
    return float(run.stdout)


def iterator_of(folder: pathlib.Path, batch_size: int, size: int):
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from jaxdali import fn
    from jaxdali.plugin.jax import data_iterator

    photos = sorted(str(f) for f in folder.glob("*/*.jpg"))
    files = photos * -(-100_000 // len(photos))  # no epoch ends while time is taken
    sharding = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec("batch"))

    @data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=sharding)
    def define(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            files=files, num_shards=num_shards, shard_id=shard_id, random_shuffle=True, name="reader"
        )
        images = fn.decoders.image(jpegs, device="mixed")
        return fn.resize(images, size=(size, size)), labels.gpu()

    return define(batch_size=batch_size, num_threads=2, seed=0)


def time_next(folder: pathlib.Path, batches: int) -> float:
    iterator = iterator_of(folder, 64, 224)
    batch = next(iterator)
    times = []
    for _ in range(batches):
        time.sleep(0.08)  # the queue fills
        start = time.perf_counter()
        batch = next(iterator)  # drops the one before
        times.append(time.perf_counter() - start)
    assert len(batch["images"].sharding.device_set) == 8
    return statistics.median(times)


def time_producer(folder: pathlib.Path, batches: int) -> tuple[float, float]:
    """CPU seconds per batch of the producing thread: without and with the native file reader."""
    from PIL import Image

    from jaxdali import _cpu

    reading = 0.0

    def timed(function):
        def call(*args):
            nonlocal reading
            start = time.thread_time()
            function(*args)
            reading += time.thread_time() - start

        return call

    _cpu.file_sizes, _cpu.read_files = timed(_cpu.file_sizes), timed(_cpu.read_files)

    tiny = folder / "tiny" / "0"
    tiny.mkdir(parents=True)
    for i in range(64):
        Image.new("RGB", (8, 8), (i, 2 * i, 3 * i)).save(tiny / f"{i:02d}.jpg")
    threads = set(threading.enumerate())
    iterator = iterator_of(tiny.parent, 8, 8)
    for _ in range(20):
        next(iterator)
    producer = next(t for t in set(threading.enumerate()) - threads if "produce" in t.name)
    clock = time.pthread_getcpuclockid(producer.ident)
    start, reading = time.clock_gettime(clock), 0.0
    for _ in range(batches):
        next(iterator)
    total = time.clock_gettime(clock) - start
    return (total - reading) / batches, total / batches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "examples" / "images")
    args = parser.parse_args()

    both = [
        (in_process(IMPORT.format("jax")), in_process(IMPORT.format("jax, jaxdali, jaxdali.plugin.jax")))
        for _ in range(7)
    ]
    first = [in_process(FIRST_BATCH, str(args.data)) for _ in range(5)]

    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    with tempfile.TemporaryDirectory() as scratch:
        in_next = time_next(args.data, args.batches)
        producer, with_reading = time_producer(pathlib.Path(scratch), 4 * args.batches)
        rows = [
            ("next() on a full queue, 2 outputs on 8 devices", 1e3 * in_next, "ms", 0.5),
            (f"producing thread, per batch ({1e3 * with_reading:.2f} with file reading)", 1e3 * producer, "ms", 1.0),
            ("import jaxdali over import jax", statistics.median(b - a for a, b in both), "s", 0.3),
            ("first batch of the tutorial", statistics.median(first), "s", 2.0),
        ]
        print("| | median | target |\n|---|--:|--:|")
        for name, value, unit, target in rows:
            print(f"| {name} | {value:.3f} {unit} | {target} {unit} |")


if __name__ == "__main__":
    main()
