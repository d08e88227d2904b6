"""How much CPU time parsing TensorFlow's examples takes, beside TensorFlow.

    python tests/benchmarks/bench_examples.py --tensorflow PYTHON [--rounds 7] [--batches 60] [--only NAME ...]

A batch has 64 examples, each with an image of about 100 KB (random bytes: nothing decodes them) and a label. PYTHON is
an interpreter that has tensorflow, which may be the one that runs this. Each way to parse runs in a process of its own,
and the ways take turns. Printed is the CPU time of a batch, with all threads of the process, after 10 batches: the median
of the rounds, and the median of its ratio to that of tf.data (or, in memory, of ``tf.io.parse_single_example``, one
example after another) in the same round. Files are in the page cache. Readers check the checksums of a record when it
is first read, tf.data whenever it is. The GZIP file is decompressed in each epoch.
"""

import argparse
import json
import pathlib
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

BATCH, WARM, COUNT = 64, 10, 640  # examples of a batch, batches that are not measured, examples of a file


def write_files(folder: pathlib.Path):
    """The same examples as a TFRecord file with its index, a compressed one, and an ArrayRecord file."""
    import gzip

    import numpy as np

    sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
    import containers
    import riegeli

    from jaxdali import _cpu
    from jaxdali._data.index import write_index

    rng = np.random.default_rng(0)
    examples = [
        containers.example({"image/encoded": [rng.bytes(int(rng.normal(100_000, 20_000)))], "image/class/label": [i]})
        for i in range(COUNT)
    ]

    def masked(data: bytes) -> bytes:
        crc = _cpu.crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    with open(folder / "tfrecord", "wb") as f:
        for x in examples:
            size = struct.pack("<Q", len(x))
            f.write(size + masked(size) + x + masked(x))
    write_index(folder / "tfrecord", folder / "index")
    (folder / "gzip").write_bytes(gzip.compress((folder / "tfrecord").read_bytes(), 1))
    riegeli.array_record(folder / "array_record", examples)


def messages(folder: pathlib.Path) -> list[bytes]:
    """The examples of the TFRecord file."""
    data = (folder / "tfrecord").read_bytes()
    extents = [tuple(map(int, line.split())) for line in (folder / "index").read_text().splitlines()]
    return [data[offset + 12 : offset + size - 4] for offset, size in extents]


def batches_of(x: list[bytes]) -> Iterator[list[bytes]]:
    while True:
        for i in range(0, len(x), BATCH):
            yield x[i : i + BATCH]


# --- jaxdali ----------------------------------------------------------------------------------------------------------


def our_features() -> dict[str, Any]:
    from jaxdali import tfrecord

    return {
        "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string),
        "image/class/label": tfrecord.FixedLenFeature((), tfrecord.int64),
    }


def dynamic(folder: pathlib.Path) -> Callable[[], Any]:
    import jaxdali.dynamic as jd

    features, batches = our_features(), batches_of(messages(folder))
    return lambda: jd.parse_example(next(batches), features=features)


def pipeline(define: Callable[[], dict[str, Any]]) -> Callable[[], Any]:
    from jaxdali import pipeline_def

    @pipeline_def(batch_size=BATCH, num_threads=2)
    def definition():
        return tuple(define().values())

    return definition().run


def tfrecord(folder: pathlib.Path, name: str = "tfrecord") -> Callable[[], Any]:
    from jaxdali import fn

    path, index = str(folder / name), str(folder / "index")
    return pipeline(lambda: fn.readers.tfrecord(path=path, index_path=index, features=our_features()))


def compressed(folder: pathlib.Path) -> Callable[[], Any]:
    """Like a file that does not fit into the cache: each epoch decompresses it."""
    from jaxdali._data import compressed_extents

    compressed_extents._CACHE_BYTES = 16 << 20
    return tfrecord(folder, "gzip")


def array_record(folder: pathlib.Path) -> Callable[[], Any]:
    from jaxdali import fn

    return pipeline(lambda: fn.readers.array_record(path=str(folder / "array_record"), features=our_features()))


def external(folder: pathlib.Path) -> Callable[[], Any]:
    import numpy as np

    from jaxdali import fn

    batches = batches_of(messages(folder))
    source = lambda: [np.frombuffer(x, np.uint8) for x in next(batches)]
    return pipeline(lambda: fn.parse_example(fn.external_source(source), features=our_features()))


# --- TensorFlow -------------------------------------------------------------------------------------------------------


def import_tensorflow() -> tuple[Any, dict[str, Any]]:
    import os

    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string),
        "image/class/label": tf.io.FixedLenFeature((), tf.int64),
    }
    return tf, features


def tf_data(folder: pathlib.Path, compression: str = "") -> Callable[[], Any]:
    tf, features = import_tensorflow()
    name = compression.lower() or "tfrecord"
    data = tf.data.TFRecordDataset(str(folder / name), compression).repeat().batch(BATCH)
    batches = iter(data.map(lambda x: tf.io.parse_example(x, features)))
    return lambda: next(batches)


def tf_single(folder: pathlib.Path) -> Callable[[], Any]:
    tf, features = import_tensorflow()
    batches = batches_of(messages(folder))
    return lambda: [tf.io.parse_single_example(x, features) for x in next(batches)]


def tf_batch(folder: pathlib.Path) -> Callable[[], Any]:
    tf, features = import_tensorflow()
    batches = batches_of(messages(folder))
    return lambda: tf.io.parse_example(next(batches), features)


# The ways to parse: (title, function, its arguments); those of TensorFlow run in its interpreter.
OURS = {
    "jd": ("`jd.parse_example`, bytes in memory", dynamic, ()),
    "external": ("`fn.parse_example` of external_source", external, ()),
    "tfrecord": ("`readers.tfrecord`", tfrecord, ()),
    "array_record": ("`readers.array_record(features=)`", array_record, ()),
    "gzip": ("`readers.tfrecord`, GZIP", compressed, ()),
}
THEIRS = {
    "tf.data": ("tf.data: `TFRecordDataset.batch(64).map(parse_example)`", tf_data, ()),
    "tf.data-gzip": ("the same, GZIP", tf_data, ("GZIP",)),
    "tf-single": ("eager `tf.io.parse_single_example`, bytes in memory", tf_single, ()),
    "tf-batch": ("eager `tf.io.parse_example`, bytes in memory", tf_batch, ()),
}
BESIDE = {"gzip": "tf.data-gzip"}  # the way to which the first ratio is, if not to tf.data


def measured(way: str, folder: pathlib.Path, batches: int) -> float:
    """CPU milliseconds of a batch."""
    _, function, arguments = (OURS | THEIRS)[way]
    take = function(folder, *arguments)
    for _ in range(WARM):
        take()
    begin = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(batches):
        take()
    end = resource.getrusage(resource.RUSAGE_SELF)
    return 1e3 * (end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime) / batches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensorflow", default=sys.executable, help="an interpreter that has tensorflow")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--only", nargs="+", choices=[*OURS, *THEIRS], help="ways to parse; default: all")
    parser.add_argument("--way", nargs=2, help=argparse.SUPPRESS)  # a way and the folder: measures it in this process
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measured(options.way[0], pathlib.Path(options.way[1]), options.batches)))
        return
    ways = options.only or [*OURS, *THEIRS]
    with tempfile.TemporaryDirectory() as folder:
        write_files(pathlib.Path(folder))
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way in ways:
                python = options.tensorflow if way in THEIRS else sys.executable
                command = [python, __file__, "--way", way, folder, "--batches", str(options.batches)]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                times[way].append(json.loads(output.splitlines()[-1]))
    print("| | CPU ms of a batch | of tf.data's | of eager `parse_single_example`'s |\n|---|--:|--:|--:|")
    for way in ways:
        title = (OURS | THEIRS)[way][0]
        ratios = []
        for baseline in (BESIDE.get(way, "tf.data"), "tf-single"):
            pairs = zip(times[way], times.get(baseline, []))
            ratios.append(
                "" if baseline not in times or baseline == way else f"{statistics.median(a / b for a, b in pairs):.2f}"
            )
        print(f"| {title} | {statistics.median(times[way]):.2f} | {' | '.join(ratios)} |")


if __name__ == "__main__":
    main()
