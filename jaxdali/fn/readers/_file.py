"""readers.file: whole files and their labels."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack, cast

import numpy as np

from ... import _cpu
from ..._core.building import add
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator import SourceOperator
from ..._core.operator_function import STACKLEVEL, SeededHints, operator_function
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec
from ..._data.epoch import Walk
from ..._data.source import SampleIds, Saved, Source, check_fingerprints
from ...errors import ArgumentError

_READ_ERROR = 9  # kReadError of ffi/common/status.h
_SIZE_CHANGED = -1  # kSizeChanged of ffi/host/files.h

FILE_FILTERS = tuple(
    f"*.{e}" for e in ("jpg", "jpeg", "png", "bmp", "tif", "tiff", "pnm", "ppm", "pgm", "pbm", "jp2", "webp", "flac", "ogg", "wav")
)


@dataclasses.dataclass(frozen=True)
class _Where:
    """Where the list of files comes from: the arguments that decide it, so that shards share one scan."""

    file_root: str | None
    file_list: str | None
    files: tuple[str, ...] | None
    labels: tuple[int, ...] | None
    file_filters: tuple[str, ...]
    dir_filters: tuple[str, ...] | None
    case_sensitive: bool


class _Files:
    """A list of files: names relative to `root` (or absolute), and a label each."""

    def __init__(self, root: bytes, names: list[bytes], labels: np.ndarray):
        self.root = root
        self.names = names
        self.labels = labels
        blob = b"".join(names)
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        self.table = _cpu.FileTable(root, blob, ends)
        self.digest = hashlib.sha256(blob + ends.tobytes() + labels.tobytes()).hexdigest()[:16]

    def path(self, i: int) -> str:
        return os.path.join(os.fsdecode(self.root), os.fsdecode(self.names[i]))


def list_files(where: _Where) -> _Files:
    """Makes the list. Raises RuntimeError, naming the path, when there is nothing to list."""
    if where.files is not None:
        return _given(where)
    if where.file_list is not None:
        return _listed(where.file_list, where.file_root)
    assert where.file_root is not None
    return _found(where.file_root, where)


def _given(where: _Where) -> _Files:
    assert where.files is not None
    labels = np.arange(len(where.files)) if where.labels is None else np.array(where.labels, np.int64)
    return _Files(os.fsencode(where.file_root or ""), [os.fsencode(f) for f in where.files], _int32(labels, "labels"))


def _listed(path: str, root: str | None) -> _Files:
    names, labels = [], []
    try:
        with open(path, "rb") as f:
            lines = f.read().split(b"\n")
    except OSError as e:
        raise RuntimeError(f"can't read file_list {path}: {e.strerror}") from e
    for number, line in enumerate(lines, 1):
        line = line.rstrip()
        if not line:
            continue
        name, _, label = line.replace(b"\t", b" ").rpartition(b" ")
        if not name.strip() or not re.fullmatch(rb"\d+", label):
            raise RuntimeError(f"{path}, line {number}: expected a file name, white space and a label (an integer >= 0), got {line!r}")
        names.append(line[: len(name)].rstrip())
        labels.append(int(label))
    if not names:
        raise RuntimeError(f"file_list {path} names no files")
    root = os.path.dirname(os.path.abspath(path)) if root is None else root
    return _Files(os.fsencode(root), names, _int32(np.array(labels, object), f"labels in {path}"))


def _found(root: str, where: _Where) -> _Files:
    keep_file = _matcher(where.file_filters, where.case_sensitive)
    keep_dir = _matcher(where.dir_filters, where.case_sensitive) if where.dir_filters is not None else lambda name: True
    directory = os.fsencode(root)
    names: list[bytes] = []
    counts = []
    try:
        with os.scandir(directory) as entries:
            classes = sorted(e.name for e in entries if e.is_dir() and keep_dir(e.name))
        for c in classes:
            prefix = c + b"/"
            with os.scandir(os.path.join(directory, c)) as entries:
                # A broken link is listed: reading it fails and names it, instead of the sample missing silently.
                found = sorted(
                    prefix + e.name for e in entries if keep_file(e.name) and (e.is_file() or (e.is_symlink() and not e.is_dir()))
                )
            names += found
            counts.append(len(found))
    except OSError as e:
        raise RuntimeError(f"can't list file_root {root}: {os.fsdecode(e.filename or root)}: {e.strerror}") from e
    if not classes:
        raise RuntimeError(
            f"file_root {root} has no sub-directories"
            + (f" that match dir_filters {list(where.dir_filters)}" if where.dir_filters is not None else "")
            + ": each class's files must be in a directory of their own"
        )
    if not names:
        raise RuntimeError(f"no files in the sub-directories of file_root {root} match file_filters {list(where.file_filters)}")
    return _Files(directory, names, np.repeat(np.arange(len(counts), dtype=np.int32), counts))


def _int32(labels: np.ndarray, what: str) -> np.ndarray:
    if len(labels) and not (-(2**31) <= min(labels) and max(labels) < 2**31):
        raise RuntimeError(f"{what} must fit 32-bit integers, got {min(labels)} .. {max(labels)}")
    return labels.astype(np.int32)


def _matcher(patterns: Sequence[str], case_sensitive: bool) -> Callable[[bytes], bool]:
    """A test whether a file name matches one of the patterns."""
    encoded = [os.fsencode(p if case_sensitive else p.lower()) for p in patterns]
    fold = (lambda name: name) if case_sensitive else bytes.lower
    suffixes = tuple(p[1:] for p in encoded if p.startswith(b"*") and not re.search(rb"[*?\[]", p[1:]))
    if len(suffixes) == len(encoded):  # the usual case, and 10 times as fast as a regular expression
        return lambda name: fold(name).endswith(suffixes)
    expression = re.compile(b"|".join(b"(?:%s)" % fnmatch.translate(p.decode("latin-1")).encode("latin-1") for p in encoded))
    return lambda name: expression.match(fold(name)) is not None


class _Names(Sequence):
    """The names of a batch's samples, decoded when somebody asks: only messages and source_info do."""

    def __init__(self, lists: list[list[bytes]], index: np.ndarray):
        self._lists = lists
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        i = range(len(self))[i]
        return os.fsdecode(self._lists[i * len(self._lists) // len(self)][self._index[i]])


class _FileSource(Source):
    def __init__(self, files: Sequence[_Files], walks: Sequence[Walk], seed: int):
        """`seed` is the reader's own; negative: it has none."""
        self._files = files
        self.walks = walks
        self._seed = seed
        self.metas = tuple(w.meta() for w in walks)
        self._one_list = all(f is files[0] for f in files)

    def specs(self) -> tuple[Spec, ...]:
        return _SPECS

    def pad_rounds(self) -> None:
        self.walks = [dataclasses.replace(w, pad_last_batch=True) for w in self.walks]
        self.metas = tuple(w.meta() for w in self.walks)

    def fingerprint(self) -> list[dict[str, Any]]:
        own = {"seed": self._seed} if self._seed >= 0 else {}
        return [{"files": f.digest, **w.fingerprint(), **own} for f, w in zip(self._files, self.walks)]

    def initial(self) -> list[Any]:
        return [w.initial() for w in self.walks]

    def reseed(self, seed: int) -> None:
        if self._seed < 0:
            self.walks = [dataclasses.replace(w, seed=seed) for w in self.walks]

    def resume(self, saved: Sequence[Saved], same_shards: bool) -> list[Any]:
        check_fingerprints(self.fingerprint(), saved, but=("num_shards", "shard_id"))
        cursors = []
        for walk in self.walks:
            alike = [s for s in saved if s.fingerprint["num_shards"] == walk.num_shards]
            mine = [s for s in alike if s.fingerprint["shard_id"] == walk.shard_id]
            if mine:
                cursors.append(mine[0].cursor)
            elif alike:
                other = dataclasses.replace(walk, shard_id=alike[0].fingerprint["shard_id"])
                cursors.append(other.beside(alike[0].cursor, walk.shard_id))
            else:
                of = saved[0].fingerprint
                cursors.append(walk.redistributed(saved[0].cursor, of["num_shards"], of["shard_id"]))
        return cursors

    def read(self, ctx: HostContext, cursors: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any], SampleIds]:
        B, N = ctx.B, ctx.N
        index, epoch, position = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
        labels = np.empty((N, 1), np.int32)
        after = []
        for s, (files, walk) in enumerate(zip(self._files, self.walks)):
            part = slice(s * B, (s + 1) * B)
            index[part], epoch[part], position[part], cursor = walk.take(cursors[s], B, B)
            labels[part, 0] = files.labels[index[part]]
            after.append(cursor)
        return (self._contents(ctx, index), labels), after, SampleIds(epoch, position, _Names([f.names for f in self._files], index))

    def _contents(self, ctx: HostContext, index: np.ndarray) -> Packed:
        sizes, error = np.empty(len(index), np.int64), np.empty(len(index), np.int32)
        # One call for all shards that read one list, which is all of them but for lists that depend on the shard.
        parts = [slice(0, len(index))] if self._one_list else [slice(s * ctx.B, (s + 1) * ctx.B) for s in range(ctx.S)]
        tables = [f.table for f in self._files]
        for table, part in zip(tables, parts):
            _cpu.file_sizes(table, index[part], sizes[part], error[part], ctx.pool)
        shapes = sizes[:, None]
        offsets, need = plan_offsets(shapes, ctx.S)
        packed = Packed(ctx.empty(need, np.uint8, 0), offsets, shapes)
        data = packed.data.reshape(-1)
        starts = offsets * np.int64(64) + np.repeat(np.arange(ctx.S, dtype=np.int64), ctx.B) * packed.data.shape[1]
        for table, part in zip(tables, parts):
            _cpu.read_files(table, index[part], data, starts[part], sizes[part], error[part], ctx.pool)
        for i in np.flatnonzero(error).tolist():
            path = self._files[i // ctx.B].path(int(index[i]))
            why = "its size changed while it was read" if error[i] == _SIZE_CHANGED else os.strerror(int(error[i]))
            ctx.fail(i, _READ_ERROR, f"{path}: {why}")
        return packed


_SPECS = (Spec(np.dtype(np.uint8), 1, None), Spec(np.dtype(np.int32), 1, (1,)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadFile(SourceOperator):
    """A file reader. `walk` holds what decides the order; its size is known when the files have been listed."""

    name: ClassVar[str] = "readers.file"

    where: _Where
    walk: tuple[tuple[str, Any], ...]
    seed: int

    @property
    def num_outputs(self) -> int:
        return 2

    def make_source(self, ops: Sequence[ReadFile], seed: int) -> Source:
        """Lists the files, and makes the source of all local shards. `seed` is the pipeline's."""
        scan = functools.cache(list_files)
        files = [scan(op.where) for op in ops]
        walks = [Walk(size=len(f.names), seed=op.seed if op.seed >= 0 else seed, **dict(op.walk)) for f, op in zip(files, ops)]
        return _FileSource(files, walks, ops[0].seed)


class FileHints(SeededHints, total=False):
    """Hints to DALI's readers."""

    dont_use_mmap: bool | None
    lazy_init: bool | None
    prefetch_queue_depth: int | None
    read_ahead: bool | None
    skip_cached_images: bool | None
    tensor_init_bytes: int | None


_Path = str | os.PathLike[str]


@operator_function("readers.file")
def file(
    *,
    file_root: _Path | None = None,
    file_list: _Path | None = None,
    files: _Path | Sequence[_Path] | None = None,
    labels: int | Sequence[int] | None = None,
    file_filters: str | Sequence[str] = FILE_FILTERS,
    dir_filters: str | Sequence[str] | None = None,
    case_sensitive_filter: bool = False,
    random_shuffle: bool = False,
    initial_fill: int = 1024,
    shuffle_after_epoch: bool = False,
    shuffle_after_epoch_seed: int | None = None,
    num_shards: Annotated[int, Range(1)] = 1,
    shard_id: Annotated[int, Range(0)] = 0,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[FileHints],
) -> tuple[DataNode, DataNode]:
    """Reads whole files, each with a label.

    The files are those in the sub-directories of `file_root` (one class per sub-directory), those named in `file_list`, or
    those given as `files`. Like other readers it goes on for ever; the iterator's ``reader_name`` makes epochs of it.

    Args:
      file_root: directory whose sub-directories hold the files. They are numbered from 0 in byte order of their names (an empty
        one, too), the files of each come in byte order; deeper levels are not entered. With `file_list` or `files`:
        where relative paths start.
      file_list: a text file with lines ``path label``; the paths are relative to `file_root` or else to its directory.
      files: paths.
      labels: one integer per entry of `files`; without it they are numbered from 0.
      file_filters: glob patterns, one of which a file's name in a sub-directory must match.
      dir_filters: the same for the names of the sub-directories; only those that match are numbered.
      case_sensitive_filter: whether the filters mind the case.
      random_shuffle: shuffle the list before it is split into shards, and each epoch of a shard in a new order.
      initial_fill: places of the buffer that this order is drawn with: small ones shuffle only locally, 1 not at all. The buffer
        holds numbers, not files: a large one costs nothing.
      shuffle_after_epoch: shuffle the whole list anew in each epoch, alike for all shards, and read the same part of it.
      shuffle_after_epoch_seed: another seed for this than the fixed one.
      num_shards: parts that the list is split into: part i of S begins at entry ``floor(i*N/S)``.
      shard_id: the part to read, ``0 .. num_shards - 1``.
      stick_to_shard: read this part in every epoch, not the next one.
      pad_last_batch: repeat a shard's last sample until all shards are equally long and the last batch is full.
      seed: seed of `random_shuffle`; negative: the pipeline's.
      device: "cpu" or None.
      name: of the reader, for ``reader_name`` and error messages.

    Returns:
      (contents ``uint8[bytes]``, label ``int32[1]``) of each file. Their source_info is the path relative to `file_root`, or as
      given in `file_list` or `files`.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: at build, no files, or a bad line in the list. A file that can't be read fails when its batch runs.

    Unlike in DALI, the shuffled order differs from DALI's own.
    """
    if files is not None and file_list is not None:
        raise ArgumentError("files and file_list can't be given together; pass one of them")
    if files is None and file_list is None and file_root is None:
        raise ArgumentError("one of file_root, file_list and files must be given")
    if labels is not None and files is None:
        raise ArgumentError("labels can only be given together with files")
    if shuffle_after_epoch_seed is not None and not shuffle_after_epoch:
        warnings.warn("readers.file: shuffle_after_epoch_seed has no effect without shuffle_after_epoch=True", stacklevel=STACKLEVEL)
    where = _Where(
        file_root=cast(str, file_root),
        file_list=cast(str, file_list),
        files=_all(files),
        labels=_all(labels),
        file_filters=_all(file_filters) or (),
        dir_filters=_all(dir_filters),
        case_sensitive=case_sensitive_filter,
    )
    if where.files == ():
        raise ArgumentError("files is empty")
    if where.files is not None and where.labels is not None and len(where.files) != len(where.labels):
        raise ArgumentError(f"files and labels must be equally long, got {len(where.files)} and {len(where.labels)}")
    if not where.file_filters or where.dir_filters == ():
        raise ArgumentError(f"{'dir_filters' if where.file_filters else 'file_filters'} is empty: nothing can match")
    walk = {
        "num_shards": num_shards,
        "shard_id": shard_id,
        "stick_to_shard": stick_to_shard,
        "pad_last_batch": pad_last_batch,
        "random_shuffle": random_shuffle,
        "shuffle_after_epoch": shuffle_after_epoch,
        "shuffle_after_epoch_seed": shuffle_after_epoch_seed or 0,
        "initial_fill": initial_fill,
    }
    try:
        Walk(size=num_shards, **walk)  # its checks, before anything is read
    except ValueError as e:
        raise ArgumentError(str(e)) from None
    nodes = add(ReadFile(where=where, walk=tuple(walk.items()), seed=seed), device="cpu", name=name)
    assert isinstance(nodes, tuple)
    return nodes[0], nodes[1]


def _all(x: Any) -> tuple[Any, ...] | None:
    """One or several checked values as a tuple."""
    return x if x is None or isinstance(x, tuple) else (x,)
