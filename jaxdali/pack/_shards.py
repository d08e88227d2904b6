"""Writes one shard: reads its records, optionally resizes and encodes images anew, and writes the file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .. import Pipeline, dynamic, encode_jpeg, fn
from .._batch.batch import SourceError
from .._batch.executor import Executor
from .._batch.repair import raise_first_failure
from .._core.errors import ArgumentError, SampleError, printable
from .._core.jax_settings import own_settings
from .._core.values import Value
from .._data.walk import shard_bounds
from .._pipeline.pipeline import internals_of
from .._plan.plan import Ref
from .._plan.run_options import RunOptions
from ._writers import WRITERS, Record, replace_file, write_index_of

_NAMES = {  # of the outputs, for readers whose outputs have no names
    "file": ("image", "label"),
    "caffe": ("image", "label"),
    "caffe2": ("image", "label"),
    "mxnet": ("image", "label"),
    "coco": ("image", "boxes", "label"),
    "zip": ("data", "label"),
    "nemo_asr": ("audio", "text"),
    "array_record": ("record",),
}
_ADVICE = re.compile("; (truncated|on_error)=.*")
_BATCH = 64  # records that are read at a time


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """The options of a run.

    Attributes:
      reader: name of the reader in `fn.readers`.
      arguments: its arguments.
      target: the folder of the files.
      format: of the files, a key of `WRITERS`.
      prefix: of the names of the files.
      shards: number of files.
      names: of the outputs of the reader; None: the usual ones.
      resize_shorter: pixels; larger images are resized to this shorter side and encoded anew; None: files are copied.
      quality: of the JPEG files that are encoded anew.
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
        _, extension = WRITERS[self.format]
        return os.path.join(self.target, f"{self.prefix}-{shard:05}-of-{self.shards:05}.{extension}")

    def report(self, shard: int) -> str:
        """The path of the report of a finished shard. It is written last, so it marks the shard as complete."""
        return os.path.join(self.target, ".pack", f"{self.prefix}-{shard:05}-of-{self.shards:05}.json")


@dataclasses.dataclass(frozen=True)
class Report:
    """A finished shard.

    Attributes:
      file: its path.
      records: number of records.
      size: in bytes.
      images: number of images that were encoded anew.
      bad: (file, reason) of each sample that was left out.
    """

    file: str
    records: int
    size: int
    images: int = 0
    bad: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_finished(cls, packing: Packing, shard: int) -> Report | None:
        """The report of a shard that an earlier run has finished; None: there is no complete one."""
        try:
            with open(packing.report(shard)) as f:
                fields = json.load(f)
            report = cls(**{**fields, "bad": tuple(map(tuple, fields["bad"]))})
            return report if os.path.getsize(packing.file(shard)) == report.size else None
        except (OSError, ValueError, TypeError, KeyError):
            return None


def write_shard(packing: Packing, shard: int) -> Report:
    """Writes a shard under another name, and renames it when it is complete. Then writes its index and its report.

    Raises:
      OSError: it can't be written.
      RuntimeError: there is a bad sample, with ``on_error="raise"``.
    """
    os.makedirs(os.path.dirname(packing.report(shard)), exist_ok=True)
    path = packing.file(shard)
    partial = f"{path}.partial"
    bad: list[tuple[str, str]] = []
    records = images = 0
    writer_class, _ = WRITERS[packing.format]
    writer = writer_class(partial)
    with contextlib.closing(writer):
        for numbers, batch, paths in _records(packing, shard, bad):
            images += _encode(packing, batch, paths, bad)
            for number, record in zip(numbers, batch, strict=True):
                if record is not None:
                    writer.write(number, record)
                    records += 1
    replace_file(partial, path)
    write_index_of(path)
    report = Report(path, records, os.path.getsize(path), images, tuple(bad))
    with open(f"{packing.report(shard)}.partial", "w") as f:
        json.dump(dataclasses.asdict(report), f)
    replace_file(f"{packing.report(shard)}.partial", packing.report(shard))
    return report


def reader_of(name: str) -> Any:
    """Returns a function of `fn.readers`. Raises ArgumentError if there is none of this name, or if it returns no
    records.
    """
    short = name.removeprefix("fn.").removeprefix("readers.")
    if short not in dir(fn.readers):
        raise ArgumentError(f"there is no reader {name!r}; there are readers.{', readers.'.join(dir(fn.readers))}")
    if "video" in short or short == "sequence":
        raise ArgumentError(
            f"readers.{short} gives decoded frames, which can't be packed: pack the files with readers.file"
        )
    return getattr(fn.readers, short)


def open_reader(packing: Packing, shard: int, shards: int) -> tuple[Executor, list[str]]:
    """Returns an executor that reads the records of a shard, batches of `_BATCH`, and the names of its outputs.

    Args:
      shard, shards: the reader's `shard_id` and `num_shards`.
    """
    function = reader_of(packing.reader)
    # Only the graph of this pipeline is used: the executor below runs it on the CPU.
    with Pipeline(batch_size=_BATCH, num_threads=packing.num_threads, device_id=None, seed=0) as pipe:
        outputs = function(
            **packing.arguments, num_shards=shards, shard_id=shard, on_error=packing.on_error, name="reader"
        )
        nodes = (
            list(outputs.values()) if isinstance(outputs, dict) else outputs if isinstance(outputs, list) else [outputs]
        )
        pipe.set_outputs(*nodes)
    names = _names(packing, list(outputs) if isinstance(outputs, dict) else None, len(nodes))
    options = RunOptions(batch_size=_BATCH, num_threads=packing.num_threads, seed=0)
    return Executor.of_values(internals_of(pipe).graph, jax.local_devices(backend="cpu")[0], options), names


def _names(packing: Packing, keys: Sequence[str] | None, outputs: int) -> list[str]:
    """The names of a record's entries. Raises ArgumentError if they are unknown or differ in number from the outputs.

    Args:
      packing: the options; its `names` come first.
      keys: the names that the reader gives its outputs; None: it gives none.
      outputs: number of outputs, of which the last ones may be metadata.
    """
    default_names = keys or _NAMES.get(packing.reader.rpartition(".")[2])
    # Readers of archives and tables have the names in one of these arguments.
    for argument in ("ext", "columns"):
        if default_names is None and argument in packing.arguments:
            argument_value = packing.arguments[argument]
            default_names = [argument_value] if isinstance(argument_value, str) else list(argument_value)
    names = list(packing.names or default_names or [])
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
    """Yields batches: the numbers of records in the data set, the records (None: bad), and the files that they came
    from. Records that can't be read are added to `bad`, as (file, reason).
    """
    executor, names = open_reader(packing, shard, packing.shards)
    try:
        with own_settings():
            executor.build()
            (source,) = executor.sources.values()
            meta = source.metas[0]
            first, end = shard_bounds(meta["epoch_size"], packing.shards, shard)
            state = executor.reader.initial_state
            for start in range(first, end, _BATCH):
                # The batches of an epoch are read one after another; `state` is the place of the next one.
                batch = executor.reader.read(state)
                state = batch.after
                assert batch.ids is not None
                raise_first_failure(batch)
                indices = range(min(_BATCH, end - start))  # the samples behind the shard's end are of the next round
                bad += [(batch.ids.paths[i], reason) for i, reason in batch.ids.unread.items() if i in indices]
                # The values of the outputs: `batch.values` has them by node and output.
                values = [batch.values[Ref(x.node.id, x.index)] for x in executor.graph.outputs]
                is_present = np.ones(_BATCH, bool) if batch.ids.present is None else batch.ids.present
                records: list[Record | None] = [
                    dict(zip(names, (_entry(v, i) for v in values), strict=True)) if is_present[i] else None
                    for i in indices
                ]
                yield [start + i for i in indices], records, [batch.ids.paths[i] for i in indices]
    except SourceError as e:
        assert e.__cause__ is not None
        raise e.__cause__ from None
    finally:
        executor.close()


def _entry(value: Value, i: int) -> Any:
    """Returns an entry of a record: bytes for files and strings, arrays for numbers."""
    x = value.sample(i)
    if value.spec.is_metadata:
        x = np.asarray(x)[()]  # the Python object in an array without axes
        return x.encode() if isinstance(x, str) else x if isinstance(x, bytes) else json.dumps(x).encode()
    # One-dimensional bytes whose lengths differ are files.
    return x.tobytes() if x.ndim == 1 and x.dtype == np.uint8 and value.spec.shape is None else np.array(x)


def _encode(packing: Packing, batch: list[Record | None], paths: list[str], bad: list[tuple[str, str]]) -> int:
    """Resizes and encodes the images of records anew, in place. Returns their number. A record whose image can't be
    decoded becomes None, and is added to `bad`.
    """
    if packing.resize_shorter is None:
        return 0
    shorter = packing.resize_shorter
    images_to_encode = []  # (number in the batch, name of the entry, encoded image)
    for i, record in enumerate(batch):
        if record is None:
            continue
        name = packing.image or next(iter(record))
        data = record.get(name)
        if not isinstance(data, bytes):
            raise ArgumentError(
                f"the output {name!r} has no images, but {'no such name' if data is None else 'numbers'}: choose one with --image"
            )
        images_to_encode.append((i, name, data))
    # The whole batch is decoded at once; a bad image is removed, and the others are tried again.
    count = 0
    while images_to_encode:
        try:
            images = dynamic.decoders.image([data for *_, data in images_to_encode])
            shapes = np.array([x.shape for x in images])
            # Those whose shorter side, of height and width, is larger than wanted.
            large = [k for k, shape in enumerate(shapes) if min(shape[:2]) > shorter]
            if large:
                resized = dynamic.resize(
                    [np.asarray(images[k]) for k in large], resize_shorter=float(shorter), antialias=True
                )
                jpegs = encode_jpeg(
                    [np.asarray(x) for x in resized], quality=packing.quality, num_threads=packing.num_threads
                )
                for k, jpeg in zip(large, jpegs, strict=True):
                    i, name, _ = images_to_encode[k]
                    batch[i] = {**(batch[i] or {}), name: jpeg}
                count += len(large)
            return count
        except SampleError as e:
            i, *_ = images_to_encode.pop(e.index)  # the decoder got the images of this list only
            # The advice is about arguments of the decoder, which the command does not have.
            batch[i], reason = None, _ADVICE.sub("", e.reason.removeprefix(f"{printable(e.source)}: "))
            if packing.on_error == "raise":
                raise RuntimeError(f"{paths[i]}: {reason}") from e
            bad.append((paths[i], reason))
    return count
