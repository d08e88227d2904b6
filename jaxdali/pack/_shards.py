"""Makes one shard: reads its records, encodes images anew if that is wanted, and writes the file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .. import Pipeline, dynamic, encode_jpeg, fn
from .._batch.batch import SourceError
from .._batch.executor import Executor
from .._batch.repair import sample_error
from .._core.errors import ArgumentError, SampleError
from .._core.jax_settings import own_settings
from .._core.values import Value
from .._data.walk import shard_bounds
from .._pipeline.pipeline import internals_of
from .._plan.options import RunOptions
from .._plan.plan import Ref
from ._writers import WRITERS, Record, index_of, replaced

_NAMES = {  # of the outputs, where they have no names of their own
    "file": ("image", "label"),
    "caffe": ("image", "label"),
    "caffe2": ("image", "label"),
    "mxnet": ("image", "label"),
    "coco": ("image", "boxes", "label"),
    "zip": ("data", "label"),
    "nemo_asr": ("audio", "text"),
    "array_record": ("record",),
}
_BATCH = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """What is written.

    Attributes:
      reader: name of the reader in `fn.readers`; arguments: its arguments.
      names: of its outputs; None: the usual ones.
      target: the folder; format: of the files; prefix: of their names.
      shards: number of files.
      resize_shorter: images whose shorter side is longer get this one, and are encoded anew; None: files are copied.
      quality: of these JPEG files.
      image: name of the output that has the images; None: the first.
      on_error: "skip" leaves bad samples out, "raise" stops.
      num_threads: threads that read, decode and encode in a process.
    """

    reader: str
    arguments: Mapping[str, Any]
    target: str
    format: str = "webdataset"
    prefix: str = "data"
    shards: int = 1
    names: tuple[str, ...] | None = None
    resize_shorter: int | None = None
    quality: int = 90
    image: str | None = None
    on_error: str = "skip"
    num_threads: int = 1

    def file(self, shard: int) -> str:
        """The path of a shard."""
        return os.path.join(self.target, f"{self.prefix}-{shard:05}-of-{self.shards:05}.{WRITERS[self.format][1]}")

    def report(self, shard: int) -> str:
        """The path of what is known about a finished shard. It is written last."""
        return os.path.join(self.target, ".pack", f"{self.prefix}-{shard:05}-of-{self.shards:05}.json")


@dataclasses.dataclass(frozen=True)
class Report:
    """A finished shard.

    Attributes:
      file: its path.
      records, size: how many records and bytes it has.
      images: how many were encoded anew.
      bad: where a sample came from that was left out, and why.
    """

    file: str
    records: int
    size: int
    images: int = 0
    bad: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_finished(cls, packing: Packing, shard: int) -> Report | None:
        """The report of a shard that an earlier run has finished; None: it has not."""
        try:
            with open(packing.report(shard)) as f:
                found = json.load(f)
            report = cls(**{**found, "bad": tuple(map(tuple, found["bad"]))})
            return report if os.path.getsize(packing.file(shard)) == report.size else None
        except (OSError, ValueError, TypeError, KeyError):
            return None


def write_shard(packing: Packing, shard: int) -> Report:
    """Writes a shard under another name, and renames it when it is complete.

    Raises:
      OSError: it can't be written.
      RuntimeError: there is a bad sample, with ``on_error="raise"``.
    """
    os.makedirs(os.path.dirname(packing.report(shard)), exist_ok=True)
    path = packing.file(shard)
    partial = f"{path}.partial"
    bad: list[tuple[str, str]] = []
    records = images = 0
    writer = WRITERS[packing.format][0](partial)
    with contextlib.closing(writer):
        for numbers, batch, paths in _records(packing, shard, bad):
            images += _encode(packing, batch, paths, bad)
            for number, record in zip(numbers, batch, strict=True):
                if record is not None:
                    writer.write(number, record)
                    records += 1
    replaced(partial, path)
    index_of(path)
    report = Report(path, records, os.path.getsize(path), images, tuple(bad))
    with open(f"{packing.report(shard)}.partial", "w") as f:
        json.dump(dataclasses.asdict(report), f)
    replaced(f"{packing.report(shard)}.partial", packing.report(shard))
    return report


def reader_of(name: str) -> Any:
    """A function of `fn.readers`. Raises ArgumentError if there is none of this name, or if it gives no records."""
    short = name.removeprefix("fn.").removeprefix("readers.")
    if short not in dir(fn.readers):
        raise ArgumentError(f"there is no reader {name!r}; there are readers.{', readers.'.join(dir(fn.readers))}")
    if "video" in short or short == "sequence":
        raise ArgumentError(
            f"readers.{short} gives decoded frames, which can't be packed: pack the files with readers.file"
        )
    return getattr(fn.readers, short)


def opened(packing: Packing, shard: int, shards: int) -> tuple[Executor, list[str]]:
    """What reads the records of a shard, and the names of its outputs."""
    function = reader_of(packing.reader)
    with Pipeline(batch_size=_BATCH, num_threads=packing.num_threads, device_id=None, seed=0) as pipe:
        found = function(
            **packing.arguments, num_shards=shards, shard_id=shard, on_error=packing.on_error, name="reader"
        )
        nodes = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else [found]
        pipe.set_outputs(*nodes)
    names = _names(packing, list(found) if isinstance(found, dict) else None, len(nodes))
    options = RunOptions(batch_size=_BATCH, num_threads=packing.num_threads, seed=0)
    return Executor.of_values(internals_of(pipe).graph, jax.local_devices(backend="cpu")[0], options), names


def _names(packing: Packing, keys: Sequence[str] | None, outputs: int) -> list[str]:
    """The names of a record's entries. Raises ArgumentError if they are not known, or do not suit."""
    own = keys or _NAMES.get(packing.reader.rpartition(".")[2])
    for argument in ("ext", "columns"):
        if own is None and argument in packing.arguments:
            given = packing.arguments[argument]
            own = [given] if isinstance(given, str) else list(given)
    names = list(packing.names or own or [])
    metadata = packing.arguments.get("metadata", [])
    metadata = [metadata] if isinstance(metadata, str) else list(metadata)
    if len(names) == outputs - len(metadata):
        names += metadata
    if len(names) != outputs or len(set(names)) != len(names):
        raise ArgumentError(
            f"readers.{packing.reader.rpartition('.')[2]} gives {outputs} outputs: name each of them with --names, got {names}"
        )
    return names


def _records(
    packing: Packing, shard: int, bad: list[tuple[str, str]]
) -> Iterator[tuple[list[int], list[Record | None], list[str]]]:
    """Batches of records with their numbers in the data set, and where they came from. Those that can't be read are
    added to `bad`.
    """
    executor, names = opened(packing, shard, packing.shards)
    try:
        with own_settings():
            executor.build()
            (source,) = executor.sources.values()
            meta = source.metas[0]
            first, behind = shard_bounds(meta["epoch_size"], packing.shards, shard)
            state = executor.reader.initial_state
            for at in range(first, behind, _BATCH):
                batch = executor.reader.read(state)
                state = batch.after
                assert batch.ids is not None
                if batch.failures:
                    raise sample_error(batch.failures[0][0], batch, *batch.failures[0][1:])
                here = range(min(_BATCH, behind - at))  # the next samples are those of the next round
                bad += [(batch.ids.paths[i], reason) for i, reason in batch.ids.unread.items() if i in here]
                values = [batch.values[Ref(x.node.id, x.index)] for x in executor.graph.outputs]
                there = np.ones(_BATCH, bool) if batch.ids.present is None else batch.ids.present
                found: list[Record | None] = [
                    dict(zip(names, (_entry(v, i) for v in values), strict=True)) if there[i] else None for i in here
                ]
                yield [at + i for i in here], found, [batch.ids.paths[i] for i in here]
    except SourceError as e:
        assert e.__cause__ is not None
        raise e.__cause__ from None
    finally:
        executor.close()


def _entry(value: Value, i: int) -> Any:
    """An entry of a record: bytes for files and strings, arrays for numbers."""
    x = value.sample(i)
    if value.spec.is_metadata:
        x = np.asarray(x)[()]
        return x.encode() if isinstance(x, str) else x if isinstance(x, bytes) else json.dumps(x).encode()
    return x.tobytes() if x.ndim == 1 and x.dtype == np.uint8 and value.spec.shape is None else np.array(x)


def _encode(packing: Packing, batch: list[Record | None], paths: list[str], bad: list[tuple[str, str]]) -> int:
    """Encodes the images of records anew, in place; returns how many. A record whose image can't be decoded becomes
    None.
    """
    if packing.resize_shorter is None:
        return 0
    shorter = packing.resize_shorter
    chosen = []
    for i, record in enumerate(batch):
        if record is None:
            continue
        name = packing.image or next(iter(record))
        data = record.get(name)
        if not isinstance(data, bytes):
            raise ArgumentError(
                f"the output {name!r} has no images, but {'no such name' if data is None else 'numbers'}: choose one with --image"
            )
        chosen.append((i, name, data))
    count = 0
    while chosen:
        try:
            images = dynamic.decoders.image([data for *_, data in chosen])
            shapes = np.array([x.shape for x in images])
            large = [k for k, shape in enumerate(shapes) if min(shape[:2]) > shorter]
            if large:
                resized = dynamic.resize(
                    [np.asarray(images[k]) for k in large], resize_shorter=float(shorter), antialias=True
                )
                files = encode_jpeg(
                    [np.asarray(x) for x in resized], quality=packing.quality, num_threads=packing.num_threads
                )
                for k, file in zip(large, files, strict=True):
                    i, name, _ = chosen[k]
                    batch[i] = {**(batch[i] or {}), name: file}
                count += len(large)
            return count
        except SampleError as e:
            i, *_ = chosen.pop(e.index)
            batch[i], reason = None, e.reason.removeprefix(f"{e.source}: ")
            if packing.on_error == "raise":
                raise RuntimeError(f"{paths[i]}: {reason}") from e
            bad.append((paths[i], reason))
    return count
