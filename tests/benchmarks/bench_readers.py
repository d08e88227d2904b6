"""Throughput of the readers of containers, from a warm page cache on one thread, beside that of reading the same files from end to end.

    python tests/benchmarks/bench_readers.py [FOLDER]

Containers are written to FOLDER (default: a temporary one). For each reader and record size: records and bytes a second of `read_batch`, by
epoch (in the first, checksums are checked, too), and the share of the sequential throughput. Then how long opening an index of 10 million
records takes, and what memory.
"""

import pathlib
import resource
import struct
import sys
import tempfile
import time
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import containers

from jaxdali import _cpu, tfrecord
from jaxdali._core.ragged import BufferPool
from jaxdali._data.containers import read_indices
from jaxdali._data.listed import Records
from jaxdali.fn.readers._tfrecord import ReadTFRecord

TOTAL = 1 << 28  # bytes of a container
FEATURES = (("image", tfrecord.FixedLenFeature((), tfrecord.string, "")), ("label", tfrecord.FixedLenFeature([1], tfrecord.int64, -1)))


def write_tfrecord(folder: pathlib.Path, payloads: list[bytes]) -> Records:
    path = folder / f"{len(payloads)}.tfrecord"
    with open(path, "wb") as f, open(f"{path}.idx", "w") as index:
        for i, data in enumerate(payloads):
            record = containers.example({"image": [data], "label": [i]})
            length = struct.pack("<Q", len(record))
            index.write(f"{f.tell()} {len(record) + 16}\n")
            f.write(length + masked(length) + record + masked(record))
    return ReadTFRecord(path=str(path), index_path=f"{path}.idx", features=FEATURES).open()


def masked(data: bytes) -> bytes:
    crc = _cpu.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


WRITERS: dict[str, Callable[[pathlib.Path, list[bytes]], Records]] = {"tfrecord": write_tfrecord}


def context(B: int, pool: int) -> types.SimpleNamespace:
    buffers = BufferPool()

    def fail(i: int, code: int, reason: str = ""):
        raise RuntimeError(reason)

    empty = lambda elements, dtype, k=0: buffers.empty((1, -(-elements // (1 << 20)) * (1 << 20)), dtype)
    return types.SimpleNamespace(S=1, B=B, N=B, num_threads=1, pool=pool, empty=empty, fail=fail)


def sequential(paths: list[pathlib.Path], chunk: int) -> float:
    """Bytes a second of reading files from end to end, in parts as large as a batch."""
    buffer = memoryview(bytearray(chunk))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for path in paths:
            with open(path, "rb", buffering=0) as f:
                while f.readinto(buffer):
                    pass
        best = min(best, time.perf_counter() - start)
    return sum(p.stat().st_size for p in paths) / best


def main(folder: pathlib.Path):
    pool = _cpu.pool_create(1)
    for name, write in WRITERS.items():
        for size in (1000, 100_000):
            random = np.random.default_rng(0)
            before = set(folder.rglob("*"))
            records = write(folder, [random.bytes(size) for _ in range(TOTAL // size)])
            made = [p for p in set(folder.rglob("*")) - before if p.is_file() and p.suffix not in (".idx", ".lock")]
            B = 256 if size > 10_000 else 4096
            baseline = sequential(made, B * size)
            ctx = context(B, pool)
            for epoch in range(3):
                start, count = time.perf_counter(), 0
                with ThreadPoolExecutor(1) as threads:
                    for first in range(0, len(records) - B + 1, B):
                        records.read_batch(ctx, [(records, np.arange(first, first + B))], threads)
                        count += B
                seconds = time.perf_counter() - start
                share = count * size / seconds / baseline
                rate = f"{count / seconds:,.0f} records/s, {count * size / seconds / 1e9:.2f} GB/s"
                print(f"{name} {size} B, epoch {epoch}: {rate}, {share:.0%} of {baseline / 1e9:.2f} GB/s")
    index = folder / "large.idx"
    with open(index, "w") as f:
        for first in range(0, 10_000_000, 1_000_000):
            f.write("".join(f"{i * 1040} 1040\n" for i in range(first, first + 1_000_000)))
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    table, _ = read_indices([index])
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"index of {len(table):,} records: {seconds:.2f} s, peak memory grew by {(after - before) / 1024:.0f} MB")
    _cpu.pool_destroy(pool)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(pathlib.Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(pathlib.Path(folder))
