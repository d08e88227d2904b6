"""Sources and transforms inside Grain, beside Grain's own source and Python code: CPU and wall time a record, and CPU
time an image.

    python tests/benchmarks/bench_grain.py FOLDER [--images 512] [--rounds 7] [--threads 2] [--workers 2] [--part PART]

FOLDER holds photos as `photos.py` makes them. ``sources`` reads encoded photos in random order in one thread: from
ArrayRecord files (one record a chunk, as Grain wants them; uncompressed, and with Zstandard) by
`grain.sources.ArrayRecordDataSource` and `plugin.grain.source`, the latter also each record for the first time; from
files by a class with `__getitem__`, as one writes it for torch, and by `source`; and decodes them, by Pillow in that
class and by `source` of decoded images.

``threads`` and ``processes`` make batches of 64 random windows of photos, decoded, resized to 224x224 and mirrored: by
Pillow or by OpenCV for each sample in a `random_map`, by `BatchTransform` of one function of `jd.jit`, and by
`iter_dataset` over a pipeline; in threads, and in worker processes behind `mp_prefetch` (but `iter_dataset`, which has
threads only). Of these only Pillow antialiases.

Contenders take turns, round by round; those that make batches are processes that stay. CPU time is that of all threads
and worker processes. Reported are medians over the rounds, and their ratios to that of the first contender.
"""

import argparse
import functools
import multiprocessing
import os
import pathlib
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import grain
import numpy as np
from absl import flags
from peers import PEERS, made

import jaxdali.dynamic as jd
from jaxdali import fn
from jaxdali.plugin.grain import BatchTransform, SampleKey, iter_dataset, source
from jaxdali.plugin.jax import data_iterator

BATCH, SIZE = 64, 224


class PhotoFiles:
    """A source as one writes it in Python."""

    def __init__(self, files: list[str]):
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> bytes:
        return pathlib.Path(self.files[i]).read_bytes()


class PhotosByPillow(PhotoFiles):
    """The same, decoded."""

    def __getitem__(self, i: int) -> Any:
        from PIL import Image

        with Image.open(self.files[i]) as image:
            return np.asarray(image.convert("RGB"))


class Augment(grain.transforms.RandomMap):
    """A random window of a photo by a library for each sample."""

    def __init__(self, library: str):
        self.library, self._peer = library, None

    def random_map(self, element: bytes, rng: np.random.Generator) -> np.ndarray:
        self._peer = self._peer or PEERS[self.library]()
        return np.asarray(made(self._peer, "train", element, random.Random(int(rng.integers(1 << 32)))))

    def __reduce__(self) -> Any:
        return Augment, (self.library,)


@jd.jit
def augment(image: Any, key: Any) -> Any:
    crop_key, flip_key = jd.random.split(key)
    images = jd.resize(jd.decoders.image_random_crop(image, key=crop_key), size=(SIZE, SIZE))
    return jd.flip(images, horizontal=jd.random.coin_flip(key=flip_key))


def cpu_seconds() -> float:
    """Of this process and its living children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    for child in multiprocessing.active_children():
        fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measured(contenders: dict[str, Callable[[], Any]], steps: int, rounds: int):
    """Runs `steps` of each contender in each round, and prints the times of a step."""

    def turn(step: Callable[[], Any]) -> tuple[float, ...]:
        cpu, wall = cpu_seconds(), time.perf_counter()
        for _ in range(steps):
            step()
        return (cpu_seconds() - cpu) / steps, (time.perf_counter() - wall) / steps

    for step in contenders.values():
        turn(step)
    show([{name: turn(step) for name, step in contenders.items()} for _ in range(rounds)])


def show(rounds: list[dict[str, tuple[float, ...]]]):
    """Prints medians. `rounds`: of each round, the CPU time of each contender in seconds, and the wall time if known."""
    first = 0.0
    for name, times in rounds[0].items():
        medians = [1e6 * statistics.median(turns[name][k] for turns in rounds) for k in range(len(times))]
        first = first or medians[0]
        texts = [f"{x:8.0f} us{unit}" for x, unit in zip(medians, (" of CPU", ""), strict=False)]
        print(f"  {name:40} {', '.join(texts)}, ratio {medians[0] / first:.2f}", flush=True)


def in_random_order(elements: Any) -> Callable[[], Any]:
    rng = random.Random(0)
    return lambda: elements[rng.randrange(len(elements))]


def each_once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Reads each record of a new source once, then those of the next one: the first reading checks checksums."""

    def records() -> Iterator[Any]:
        rng = random.Random(0)
        while True:
            elements = make()
            yield from map(elements.__getitem__, rng.sample(range(len(elements)), len(elements)))

    return records().__next__


def bench_sources(files: list[str], images: int, rounds: int):
    from array_record.python.array_record_module import ArrayRecordWriter

    with tempfile.TemporaryDirectory() as folder:
        for compression in ("uncompressed", "zstd:3"):
            path = f"{folder}/{compression[:4]}.array_record"
            writer = ArrayRecordWriter(path, f"group_size:1,{compression}")
            for file in files:
                writer.write(pathlib.Path(file).read_bytes())
            writer.close()
            print(f"ArrayRecord, {compression}")
            ours = functools.partial(source, fn.readers.array_record(path=path))
            contenders = {
                "grain.sources.ArrayRecordDataSource": in_random_order(grain.sources.ArrayRecordDataSource([path])),
                "source(fn.readers.array_record)": in_random_order(ours()),
                "source, first reading of each record": each_once(ours),
            }
            measured(contenders, images, rounds)
    jpegs, _ = fn.readers.file(files=files)
    print("files")
    elements = {"a class in Python": PhotoFiles(files), "source(fn.readers.file)": source(jpegs)}
    measured({k: in_random_order(x) for k, x in elements.items()}, images, rounds)
    print("files, decoded")
    elements = {
        "a class in Python, Pillow": PhotosByPillow(files),
        "source(fn.decoders.image)": source(fn.decoders.image(jpegs)),
    }
    measured({k: in_random_order(x) for k, x in elements.items()}, images // 2, rounds)


def batches(files: list[str], contender: str, threads: int, workers: int) -> Iterator[Any]:
    """Endless batches. `workers`: worker processes; 0: threads."""
    if contender == "iter_dataset":

        @data_iterator(output_map=["image"], reader_name="reader", repeat=True)
        def photos():
            jpegs, _ = fn.readers.file(files=files, random_shuffle=True, name="reader")
            images = fn.resize(fn.decoders.image_random_crop(jpegs), size=(SIZE, SIZE))
            return fn.flip(images, horizontal=fn.random.coin_flip())

        return iter(iter_dataset(photos, batch_size=BATCH, num_threads=threads, seed=1))
    ours = contender == "jaxdali"
    data = source(fn.readers.file(files=files)[0]) if ours else PhotoFiles(files)
    dataset = grain.MapDataset.source(data).seed(1).shuffle().repeat()
    if ours:
        dataset = dataset.random_map(SampleKey()).batch(BATCH, batch_fn=BatchTransform(augment))
        dataset = dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    else:
        options = grain.ReadOptions(num_threads=1 if workers else threads, prefetch_buffer_size=2 * BATCH)
        dataset = dataset.random_map(Augment(contender)).to_iter_dataset(options).batch(BATCH)
    if workers:
        dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=1))
    return iter(dataset)


def serve(pipe: Any, files: list[str], contender: str, threads: int, workers: int):
    """The process of a contender. For each number that it gets it makes that many batches, and sends the CPU time since
    its last answer, in seconds an image.

    Batches that were made ahead wait at the beginning of a turn, and others are made after its end, so this is the time
    of as many batches.
    """
    flags.FLAGS.mark_as_parsed()  # Grain's workers read flags of absl
    jd.set_num_threads(threads)
    iterator, last = batches(files, contender, threads, workers), 0.0
    while steps := pipe.recv():
        for _ in range(steps):
            next(iterator)
        cpu = cpu_seconds()
        pipe.send((cpu - last) / steps / BATCH)
        last = cpu
    iterator.close()  # pyright: ignore[reportAttributeAccessIssue]


def bench_batches(files: list[str], images: int, rounds: int, threads: int, workers: int):
    names = {
        "pillow": "random_map, Pillow",
        "opencv": "random_map, OpenCV",
        "jaxdali": "source, BatchTransform",
        "iter_dataset": "iter_dataset",
    }
    print(f"{workers} worker processes" if workers else f"{threads} threads")
    pipes = {}
    for contender, name in names.items():
        if contender != "iter_dataset" or not workers:
            pipes[name], other = multiprocessing.Pipe()
            arguments = other, files, contender, threads, workers
            multiprocessing.get_context("spawn").Process(target=serve, args=arguments).start()
            other.close()  # so that the end of a process that fails is noticed

    def turn(pipe: Any) -> tuple[float, ...]:
        pipe.send(images // BATCH)
        answer = pipe.recv()
        time.sleep(1)  # until batches are made ahead again
        return (answer,)

    for pipe in pipes.values():
        turn(pipe)
    show([{name: turn(pipe) for name, pipe in pipes.items()} for _ in range(rounds)])
    for pipe in pipes.values():
        pipe.send(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=512, help="records of a contender in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--part", choices=("sources", "threads", "processes"), help="default: all")
    args = parser.parse_args()
    files = sorted(map(str, args.folder.glob("*/*.jpg")))
    parts = [args.part] if args.part else ["sources", "threads", "processes"]
    if "sources" in parts:
        bench_sources(files, args.images, args.rounds)
    for part, workers in (("threads", 0), ("processes", args.workers)):
        if part in parts:
            bench_batches(files, args.images, args.rounds, args.threads, workers)


if __name__ == "__main__":
    main()
