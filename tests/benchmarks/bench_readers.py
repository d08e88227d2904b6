"""How fast readers are: beside reading the same files from end to end, opening a large index, and with a server that
answers after 50 ms.

    python tests/benchmarks/bench_readers.py [--seconds 1] [--only file tfrecord ...]

One thread, files in the page cache, batches of 256 large or 512 small records of random bytes. Of CPU time, which other
work disturbs
least: nothing waits here. "sequential" reads the files in pieces as large as a batch into one buffer, which is what the
operating system can do at all; "fresh" reads each piece into memory that was not used before, as a program does that
keeps what it reads. Records that a reader gives one by one are copied to a batch here, as in a pipeline. A list is read
in its order (after a first epoch, in which checksums are checked), and under ``shuffle="global"``. All ways take turns;
rates and shares are medians.
"""

import argparse
import json
import mmap
import pathlib
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
from jaxdali._core.ragged import pack
from jaxdali._data.index import write_index

LARGE, SMALL = 100_000, 1024
TURNS = 11
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
    features = {
        "image": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
    }
    return {"path": str(path), "index_path": str(folder / "index/x.idx"), "features": features}


def masked(data: bytes) -> bytes:
    crc = _cpu.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def parquet(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = BATCH[len(records[0])]
    pq.write_table(
        pa.table({"data": records}), folder / "x.parquet", row_group_size=rows, compression="none", use_dictionary=False
    )
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


def webdataset(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    members = [(f"{i:06}.{e}", x) for i, record in enumerate(records) for e, x in (("jpg", record), ("cls", b"%d" % i))]
    write_index(containers.write_tar(folder / "x.tar", members), folder / "x.idx")
    return {"paths": str(folder / "x.tar"), "index_paths": str(folder / "x.idx"), "ext": ["jpg", "cls"]}


def mxnet(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    containers.write_recordio(
        folder / "x.rec", [containers.image_record(1.0, x, i) for i, x in enumerate(records)], folder / "x.idx"
    )
    return {"path": str(folder / "x.rec"), "index_path": str(folder / "x.idx")}


def caffe(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    return {
        "path": str(
            containers.write_lmdb(folder / "x", [containers.datum(x, i) for i, x in enumerate(records)], 1 << 30)
        )
    }


def caffe2(folder: pathlib.Path, records: list[bytes]) -> dict[str, Any]:
    image, label = ((lambda x, k=k: containers.tensor(k, [x])) for k in (containers.STRING, containers.INT32))
    values = [containers.tensors(image(x), label(i)) for i, x in enumerate(records)]
    return {"path": str(containers.write_lmdb(folder / "x", values, 1 << 30))}


MAKERS: dict[str, tuple[str, Callable[[pathlib.Path, list[bytes]], dict[str, Any]]]] = {
    "file": ("file", file),
    "numpy": ("numpy", numpy),
    "array_record": ("array_record", array_record),
    "array_record, zstd": ("array_record", array_record_zstd),
    "tfrecord": ("tfrecord", tfrecords),
    "parquet": ("parquet", parquet),
    "arrow": ("parquet", arrow),
    "zip": ("zip", zip),
    "webdataset": ("webdataset", webdataset),
    "mxnet": ("mxnet", mxnet),
    "caffe": ("caffe", caffe),
    "caffe2": ("caffe2", caffe2),
}


def rates(ways: dict[str, Callable[[], int]], count: int, seconds: float) -> dict[str, np.ndarray]:
    """Records a second of CPU time of each way, in turns of a tenth of `seconds` each; what one calls returns how many
    it read.

    Turns, as other work on the machine changes what it can do: only what was measured in one turn is compared.
    """
    for read in ways.values():
        n = read()
        while n < count:  # checksums are checked once for each record
            n += read()
    rates_by_way = {way: np.zeros(TURNS) for way in ways}
    for turn in range(TURNS):
        for way, read in ways.items():
            begin, n = time.process_time(), 0
            while (time_now := time.process_time()) - begin < seconds / TURNS:
                n += read()
            rates_by_way[way][turn] = n / (time_now - begin)
    return rates_by_way


def sequential(folder: pathlib.Path, size: int, fresh: bool = False) -> Callable[[], int]:
    """Reads the files of a folder, a batch at a time, into one buffer or each time into a fresh one."""
    buffer = np.zeros(BATCH[size] * size, np.uint8)
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".idx")
    total = sum(p.stat().st_size for p in paths)

    def read() -> int:
        for path in paths:
            with open(path, "rb", buffering=0) as f:
                while f.readinto(mmap.mmap(-1, buffer.nbytes) if fresh else buffer):
                    pass
        return total // size

    return read


def batches(name: str, arguments: dict[str, Any], pool: int, B: int) -> Callable[[], int]:
    """Reads batch after batch."""
    op = op_of(getattr(fn.readers, name)(**arguments))
    source = op.make_source([op], 1)
    buffers: dict[int, np.ndarray] = {}

    def empty(n: int, dtype: Any, index: int = 0) -> np.ndarray:
        if index not in buffers or buffers[index].shape[1] < n or buffers[index].dtype != dtype:
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
        outputs, cursors, _ = source.read(ctx, cursors)
        for k, x in enumerate(outputs):
            if isinstance(x, list):
                pack(x, 1, lambda n, dtype, k=k: empty(n, dtype, k))
        return B

    return read


def in_page_cache(only: list[str], seconds: float):
    pool = _cpu.pool_create(1)
    print("| reader | record | sequential, records/s | fresh | in order | global shuffle |\n|---|--:|--:|--:|--:|--:|")
    for title, (name, make) in MAKERS.items():
        if only and name not in only:
            continue
        for size, count in ((LARGE, 1500), (SMALL, 20_000)):
            if title in ("file", "numpy") and size == SMALL:
                count = 5000
            records = [rng.bytes(size) for _ in range(count)]
            with tempfile.TemporaryDirectory() as top:
                folder = pathlib.Path(top)
                arguments = make(folder, records)
                ways = {"sequential": sequential(folder, size), "fresh": sequential(folder, size, fresh=True)}
                for way, order in (("in order", {}), ("global shuffle", {"shuffle": "global"})):
                    ways[way] = batches(name, arguments | order, pool, BATCH[size])
                rates_by_way = rates(ways, count, seconds)
            base = rates_by_way.pop("sequential")
            cells = [f"{np.median(x):.0f} ({100 * np.median(x / base):.0f} %)" for x in rates_by_way.values()]
            print(f"| {title} | {size} | {np.median(base):.0f} | {' | '.join(cells)} |", flush=True)


def row_groups():
    """An epoch of a gigabyte of Parquet in row groups of 32 MB, in batches of 64, in order and shuffled; three of each,
    in turn.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    pool, schema = _cpu.pool_create(1), pa.schema([("data", pa.binary())])
    orders = {"in order": {}, "random_shuffle": {"random_shuffle": True}, "global shuffle": {"shuffle": "global"}}
    with tempfile.TemporaryDirectory() as folder:
        with pq.ParquetWriter(f"{folder}/x", schema, compression="none", use_dictionary=False) as writer:
            for _ in range(32):
                writer.write_table(pa.table({"data": [rng.bytes(LARGE) for _ in range(320)]}, schema=schema))
        print("\n| order | ms for a batch of 64 |\n|---|--:|", flush=True)
        for _ in range(3):
            for order, arguments in orders.items():
                begin = time.perf_counter()
                read = batches("parquet", {"path": f"{folder}/x", "columns": "data"} | arguments, pool, 64)
                for _ in range(160):
                    read()
                print(f"| {order} | {(time.perf_counter() - begin) / 160 * 1e3:.1f} |", flush=True)
                del read


def sparse(path: pathlib.Path, size: int) -> str:
    """A file that has a size and no contents."""
    with open(path, "wb") as f:
        f.truncate(size)
    return str(path)


def indexed_tfrecord(folder: pathlib.Path, n: int) -> dict[str, Any]:
    (folder / "x.idx").write_text("".join(f"{i * 1040} 1040\n" for i in range(n)))
    path = sparse(folder / "x", 1040 * n)
    return {
        "path": path,
        "index_path": str(folder / "x.idx"),
        "features": {"x": tfrecord.FixedLenFeature((), tfrecord.string, "")},
    }


def indexed_mxnet(folder: pathlib.Path, n: int) -> dict[str, Any]:
    (folder / "x.idx").write_text("".join(f"{i}\t{i * 1040}\n" for i in range(n)))
    return {"path": sparse(folder / "x", 1040 * n), "index_path": str(folder / "x.idx")}


def indexed_webdataset(folder: pathlib.Path, n: int) -> dict[str, Any]:
    with open(folder / "x.idx", "w") as f:
        f.write(f"v1.2 {n}\n")
        f.writelines(f"jpg {512 + i * 1536} 1000 {i:08}.jpg\n" for i in range(n))
    return {"paths": sparse(folder / "x", 1536 * n), "index_paths": str(folder / "x.idx"), "ext": "jpg"}


def indexed_array_record(folder: pathlib.Path, n: int) -> dict[str, Any]:
    riegeli.array_record(folder / "x", [b""] * n)
    return {"path": str(folder / "x")}


def indexed_coco(folder: pathlib.Path, n: int) -> dict[str, Any]:
    images = [{"id": i, "file_name": f"{i:012}.jpg", "width": 640, "height": 480} for i in range(n // 8)]
    objects = [
        {"image_id": i // 8, "category_id": 1, "bbox": [1.5, 2.5, 30.25, 40.5], "iscrowd": 0, "id": i} for i in range(n)
    ]
    (folder / "x.json").write_text(json.dumps({"images": images, "categories": [{"id": 1}], "annotations": objects}))
    return {"file_root": str(folder), "annotations_file": str(folder / "x.json")}


INDICES = {
    "tfrecord": (indexed_tfrecord, 10_000_000),
    "mxnet": (indexed_mxnet, 10_000_000),
    "webdataset": (indexed_webdataset, 1_000_000),
    "array_record": (indexed_array_record, 3_000_000),
    "coco": (indexed_coco, 800_000),
}


def memory(which: str) -> float:
    """MB of this process: "VmRSS" now, "VmHWM" at most."""
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(which)) / 1024


def op_of(node: Any) -> Any:
    while not hasattr(node, "node"):
        node = next(iter(node.values())) if isinstance(node, dict) else node[0]
    return node.node.op


def index(only: list[str]):
    """Opens the indices of many records."""
    print("| reader | entries of the list | s of CPU time | MB at most |\n|---|--:|--:|--:|", flush=True)
    for name, (make, n) in INDICES.items():
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            op = op_of(getattr(fn.readers, name)(**make(pathlib.Path(folder), n)))
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the most from now on
            memory_before, begin = memory("VmRSS"), time.process_time()
            records = op.open()
            seconds, memory_after = time.process_time() - begin, memory("VmHWM")
            print(f"| {name} | {len(records):,} | {seconds:.2f} | {memory_after - memory_before:.0f} |", flush=True)
            del records
    print(flush=True)


def server(seconds: float):
    """A loop that takes 1000 records a second, if it gets them."""
    files = {f"data/class/{i:06}.jpg": bytes(LARGE) for i in range(500)}
    print("\n| latency | read_ahead | records/s of a loop that takes 1000 |\n|--:|--:|--:|")
    for latency, ahead in ((0.0, 128), (0.05, 128), (0.05, 0)):
        Faulty.start(files, latency=latency)

        @pipeline_def(batch_size=50, num_threads=1, prefetch_queue_depth=2)
        def pipeline(ahead=ahead):
            return fn.readers.file(
                file_root="faulty://data", shuffle="global", storage=jaxdali.Storage(read_ahead=ahead)
            )[0]

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
    index(args.only)
    in_page_cache(args.only, args.seconds)
    if not args.only or "row_groups" in args.only:
        row_groups()
    if not args.only:
        server(args.seconds)


if __name__ == "__main__":
    main()
