"""How fast readers are: beside reading the same files from end to end, opening a large index, and with a server that answers after 50 ms.

    python tests/benchmarks/bench_readers.py [--seconds 1] [--only file tfrecord ...]

One thread, files in the page cache, batches of 256 large or 512 small records of random bytes. Of CPU time, which other work disturbs
least: nothing waits here. "sequential" reads the files in pieces as large as a batch into one buffer, which is what the operating system
can do at all. A list is read in its order (after a first epoch, in which checksums are checked), and under ``shuffle="global"``.
"""

import argparse
import pathlib
import resource
import struct
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import containers
import riegeli
from faulty import Faulty

import jaxdali
from jaxdali import _cpu, fn, pipeline_def, tfrecord
from jaxdali._core.context import HostContext
from jaxdali._data.containers import read_indices
from jaxdali._data.storage import Store

LARGE, SMALL = 100_000, 1024
BATCH = {LARGE: 256, SMALL: 512}
rng = np.random.default_rng(0)


def file(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    (folder / "class").mkdir()
    for i, record in enumerate(records):
        (folder / "class" / f"{i:06}.jpg").write_bytes(record)
    return {"file_root": str(folder)}


def numpy(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    for i, record in enumerate(records):
        np.save(folder / f"{i:06}.npy", np.frombuffer(record, np.uint8))
    return {"file_root": str(folder)}


def array_record(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    riegeli.array_record(folder / "x", records)
    return {"path": str(folder / "x")}


def array_record_zstd(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    riegeli.array_record(folder / "x", records, zstd=True)
    return {"path": str(folder / "x")}


def tfrecords(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    path = folder / "x.tfrecord"
    (folder / "index").mkdir()
    with open(path, "wb") as f, open(folder / "index/x.idx", "w") as index:
        for i, data in enumerate(records):
            record = containers.example({"image": [data], "label": [i]})
            length = struct.pack("<Q", len(record))
            index.write(f"{f.tell()} {len(record) + 16}\n")
            f.write(length + masked(length) + record + masked(record))
    features = {"image": tfrecord.FixedLenFeature((), tfrecord.string, ""), "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1)}
    return {"path": str(path), "index_path": str(folder / "index/x.idx"), "features": features}


def masked(data: bytes) -> bytes:
    crc = _cpu.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def parquet(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = BATCH[len(records[0])]
    pq.write_table(pa.table({"data": records}), folder / "x.parquet", row_group_size=rows, compression="none", use_dictionary=False)
    return {"path": str(folder / "x.parquet"), "columns": "data"}


def arrow(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    import pyarrow as pa

    table = pa.table({"data": records})
    with pa.OSFile(str(folder / "x.arrow"), "wb") as f, pa.ipc.new_stream(f, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    return {"path": str(folder / "x.arrow"), "columns": "data"}


def zip(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        for i, record in enumerate(records):
            archive.writestr(f"{i}.jpg", record)
    return {"path": str(folder / "x.zip")}


MAKERS: dict[str, tuple[str, Callable[[pathlib.Path, list[bytes]], dict[str, Any]]]] = {
    "file": ("file", file),
    "numpy": ("numpy", numpy),
    "array_record": ("array_record", array_record),
    "array_record, zstd": ("array_record", array_record_zstd),
    "tfrecord": ("tfrecord", tfrecords),
    "parquet": ("parquet", parquet),
    "arrow": ("parquet", arrow),
    "zip": ("zip", zip),
}


def rate(f: Callable[[], int], seconds: float) -> float:
    """Records a second of CPU time, of the best of three rounds behind the first records; `f` returns how many it read."""
    n = f()
    while n < 1500:  # checksums are checked once for each record
        n += f()
    best = 0.0
    for _ in range(3):
        begin, n = time.process_time(), 0
        while (now := time.process_time()) - begin < seconds / 3:
            n += f()
        best = max(best, n / (now - begin))
    return best


def sequential(folder: pathlib.Path, size: int) -> Callable[[], int]:
    """Reads the files of a folder, a batch at a time."""
    buffer = memoryview(bytearray(BATCH[size] * size))
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".idx")
    total = sum(p.stat().st_size for p in paths)

    def read() -> int:
        for path in paths:
            with open(path, "rb", buffering=0) as f:
                while f.readinto(buffer):
                    pass
        return total // size

    return read


def batches(name: str, arguments: dict[str, Any], pool: int, B: int) -> Callable[[], int]:
    """Reads batch after batch."""
    node = getattr(fn.readers, name)(**arguments)
    while not hasattr(node, "node"):
        node = next(iter(node.values())) if isinstance(node, dict) else node[0]
    source = node.node.op.make_source([node.node.op], 1)
    buffers: dict[int, np.ndarray] = {}

    def empty(n: int, dtype: Any, index: int = 0) -> np.ndarray:
        if index not in buffers or buffers[index].shape[1] < n:
            buffers[index] = np.empty((1, n), dtype)
        return buffers[index]

    def fail(i: int, code: int, reason: str = ""):
        raise RuntimeError(reason)

    ctx = HostContext(
        S=1, B=B, N=B, shard_ids=(0,), num_shards=1, seed=1, num_threads=1, pool=pool, epoch=np.zeros(B, np.int64),
        position=np.zeros(B, np.int64), present=np.ones(B, bool), specs=source.specs(), random_index=-1, bad={}, empty=empty,
        fail=fail, report_bad=lambda *x: None, source_of=lambda i: "",
    )  # fmt: skip
    cursors = source.initial()

    def read() -> int:
        nonlocal cursors
        _, cursors, _ = source.read(ctx, cursors)
        return B

    return read


def in_page_cache(only: list[str], seconds: float):
    pool = _cpu.pool_create(1)
    print("| reader | record | sequential, records/s | in order | global shuffle |\n|---|--:|--:|--:|--:|")
    for title, (name, make) in MAKERS.items():
        if only and name not in only:
            continue
        for size, count in ((LARGE, 1500), (SMALL, 50_000)):
            if title in ("file", "numpy") and size == SMALL:
                count = 5000
            records = [rng.bytes(size) for _ in range(count)]
            with tempfile.TemporaryDirectory() as top:
                folder = pathlib.Path(top)
                arguments = make(folder, records)
                plain = rate(sequential(folder, size), seconds)
                one, two = (rate(batches(name, arguments | order, pool, BATCH[size]), seconds) for order in ({}, {"shuffle": "global"}))
            rates = " | ".join(f"{x:.0f} ({100 * x / plain:.0f} %)" for x in (one, two))
            print(f"| {title} | {size} | {plain:.0f} | {rates} |", flush=True)


def index():
    """Opens one of 10 million records."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "large.idx"
        with open(path, "w") as f:
            for first in range(0, 10_000_000, 1_000_000):
                f.write("".join(f"{i * 1040} 1040\n" for i in range(first, first + 1_000_000)))
        before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        table, _ = read_indices([str(path)], Store())
        seconds, after = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"\nindex of {len(table):,} records: {seconds:.2f} s of CPU time, peak memory grew by {(after - before) / 1024:.0f} MB", flush=True
    )


def server(seconds: float):
    """A loop that takes 1000 records a second, if it gets them."""
    files = {f"data/class/{i:06}.jpg": bytes(LARGE) for i in range(500)}
    print("\n| latency | read_ahead | records/s of a loop that takes 1000 |\n|--:|--:|--:|")
    for latency, ahead in ((0.0, 128), (0.05, 128), (0.05, 0)):
        Faulty.start(files, latency=latency)

        @pipeline_def(batch_size=50, num_threads=1, prefetch_queue_depth=2)
        def pipeline(ahead=ahead):
            return fn.readers.file(file_root="faulty://data", shuffle="global", storage=jaxdali.Storage(read_ahead=ahead))[0]

        pipe = pipeline()
        pipe.run()
        begin, n = time.perf_counter(), 0
        while time.perf_counter() - begin < 3 * seconds:
            due = time.perf_counter() + 0.05
            pipe.run()
            n += 50
            time.sleep(max(due - time.perf_counter(), 0))
        print(f"| {1e3 * latency:.0f} ms | {ahead} | {n / (time.perf_counter() - begin):.0f} |", flush=True)
        pipe.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    if not args.only:
        index()
    in_page_cache(args.only, args.seconds)
    if not args.only:
        server(args.seconds)


if __name__ == "__main__":
    main()
