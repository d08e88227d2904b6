"""Lists of files: in directories, or named in a text file; paths or URLs."""

from __future__ import annotations

import codecs
import contextlib
import errno
import fnmatch
import glob
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _cpu
from .._core.context import HostContext
from .._core.errors import ArgumentError, unreadable
from .._core.ragged import ALIGNMENT, Packed, plan_offsets
from .._core.redaction import redacted
from .._core.system import available_memory
from .._cpu import Status
from .compression import HEAD, SUFFIXES, compression_of, refusal
from .limits import UNCHECKED_BYTES, beyond_limit, beyond_memory
from .named_in_data import check_names, normal
from .storage import Storage, Store, WholeFile
from .urls import Path as Path
from .urls import Paths as Paths
from .urls import is_url, join, plain

_BYTE_ORDER_MARKS = (  # UTF-32's come first, because UTF-32-LE's begins with UTF-16-LE's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


_ADDRESSED = ALIGNMENT * np.iinfo(np.int32).max  # bytes in a ragged batch, see `plan_offsets`


class Files:
    """A list of files: names relative to `root`, absolute, or URLs.

    Args:
      root: the folder or URL that relative names start from.
      names: of the files.
      store: the store to read from; None: a new one.
      sizes: size of each file in bytes, -1 if unknown.

    Attributes:
      compression: the formats by which files are compressed as a whole, by the numbers of the files.
      digest: a digest of the names.
      remote: whether some of them are URLs.
      table: the same list for native code, which reads only local files.
    """

    def __init__(
        self, root: Path, names: Sequence[bytes], store: Store | None = None, sizes: Sequence[int] | None = None
    ):
        self.store = store or Store()
        self.root = self.store.named(root)
        # Most names have no "://", so the slower tests for URLs are left out.
        self.names = names = [os.fsencode(plain(os.fsdecode(n))) if b"://" in n else n for n in names]
        self.sizes = sizes
        self.compression: dict[int, str] = {}
        self.remote = is_url(self.root) or any(is_url(os.fsdecode(name)) for name in names if b"://" in name)
        # All names in one text, and the end of each in it.
        blob = b"".join(names)
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        self.table = _cpu.FileTable(os.fsencode(self.root), blob, ends)
        self.digest = hashlib.sha256(blob + ends.tobytes())

    def __len__(self) -> int:
        return len(self.names)

    def name(self, i: int) -> str:
        return os.fsdecode(self.names[i])

    def path(self, i: int) -> str:
        return join(self.root, self.name(i))

    def read(self, i: int) -> bytes:
        """A whole file. Raises OSError, whose `filename` is the path, also if it is larger than the storage allows."""
        return self.store.read_file(self._range(i))

    def ahead(self, index: np.ndarray, now: int) -> None:
        """Announces the files that are read next, `now` of them immediately; see `Records.ahead`."""
        self.store.ahead(map(self._range, index.tolist()), now)

    def _range(self, i: int) -> WholeFile:
        """The whole of file `i`, with its size if that is known."""
        return WholeFile(self.path(i), 0, None if self.sizes is None or self.sizes[i] < 0 else self.sizes[i])

    @property
    def read_ahead(self) -> int:
        """See `Records.read_ahead`. Local files need none, because the operating system reads ahead."""
        return self.store.settings.read_ahead if self.remote else 0

    @staticmethod
    def read_batch(ctx: HostContext, parts: Sequence[tuple[Files, np.ndarray]]) -> Packed:
        """A batch of whole local files as one packed value ``uint8``. Native threads read each file directly to its
        place.

        Args:
          parts: (files, indices in them), one list after another, as in `Records.read_batch`.
        """
        sizes, error = np.empty(ctx.N, np.int64), np.empty(ctx.N, np.int32)
        slices, open_files, end = [], [], 0
        # Opens all files to get their sizes, which determine the layout of the batch, and then reads them.
        for files, index in parts:
            slices.append(slice(end, end := end + len(index)))
            open_files.append(_cpu.OpenFiles())
            _cpu.file_sizes(files.table, index, sizes[slices[-1]], error[slices[-1]], open_files[-1], ctx.pool)
        refused = refused_files(parts[0][0].store, sizes, lambda: ctx.free_bytes(1))
        for i in refused:
            sizes[i], error[i] = 0, errno.EFBIG
        shapes = sizes[:, None]
        offsets, need = plan_offsets(shapes, ctx.S)
        try:
            packed = Packed(ctx.empty(need, np.uint8, 0), offsets, shapes)
        except MemoryError:
            raise ArgumentError(
                f"the files of the batch have {sizes.sum()} bytes, for which memory has no room: it needs a smaller batch_size, "
                "prefetch_queue_depth or Storage(max_record_bytes=)"
            ) from None
        data = packed.data.reshape(-1)
        starts = packed.starts
        for block, handles, (files, index) in zip(slices, open_files, parts):
            _cpu.read_files(files.table, index, data, starts[block], sizes[block], error[block], handles, ctx.pool)
        if not error.any():
            return packed
        for i in np.flatnonzero((error != 0) & ctx.present).tolist():
            # The number of the part, and of the list of files, that sample i belongs to.
            part = next(k for k, block in enumerate(slices) if i < block.stop)
            files, index = parts[part]
            path = files.path(int(index[i - slices[part].start]))
            number = int(error[i])
            if reason := refused.get(i):
                text = f"{path}: {reason}"
            elif number == _cpu.SIZE_CHANGED:
                text = f"{path}: its size changed while it was read"
            else:
                text = unreadable(path, native_error(number, path))
            ctx.fail(i, Status.READ_ERROR, text)
        return packed

    @staticmethod
    def of(
        paths: Paths, storage: Storage | None, argument: str = "path", compressions: Sequence[str] = (), known: str = ""
    ) -> Files:
        """The files that paths and patterns name, in this order, with their sizes; see `Store.expand`.

        Args:
          argument: name of the argument that has the paths, for messages.
          compressions: formats by which the files may be compressed as a whole.
          known: one of them, by which all files are compressed; "": it is recognized.

        Raises:
          RuntimeError: there is no such file, or it is compressed as a whole by another format.
        """
        store = Store(storage)
        try:
            names = store.expand(paths)
            files = Files("", [os.fsencode(name) for name in names], store, store.sizes(names))
        except OSError as e:
            # Remote files have a cause.
            raise RuntimeError(f"can't open {argument} {unreadable(e.filename, e)}") from e.__cause__
        if known:
            files.compression = dict.fromkeys(range(len(names)), known)
            return files
        for k, (name, size) in enumerate(zip(names, files.sizes or (), strict=True)):
            # The first bytes of a remote file take a request, so only files whose names look compressed are checked.
            if is_url(name) and not name.lower().endswith(SUFFIXES):
                continue
            with contextlib.suppress(OSError):  # a file that can't be read is an error of its records
                compression = compression_of(store.read(name, 0, min(size, HEAD)))
                if compression in compressions:
                    files.compression[k] = compression
                elif compression:
                    store.close()  # otherwise its threads would wait for more requests
                    raise RuntimeError(f"{redacted(name)}: {refusal(compression)}")
        return files


def native_error(number: int, path: str) -> OSError:
    """The error of native reading of a file, by its number."""
    if number == errno.EINVAL and os.path.exists(path) and not os.path.isfile(path):  # a pipe, socket or device
        return OSError(number, "it is no regular file")
    return OSError(number, os.strerror(number))


def refused_files(store: Store, sizes: np.ndarray, free_bytes: Callable[[], int]) -> dict[int, str]:
    """The reasons why local files of a batch are not read, by their numbers: the storage allows less, or, where it has
    no limit, they do not fit into memory. That is looked up for large batches only.

    Args:
      free_bytes: tells the bytes of free buffers that the batch may take, see `HostContext.free_bytes`.

    Raises:
      ArgumentError: the other files do not fit into memory together. None of them is at fault.
    """
    limit, total = store.settings.max_record_bytes, int(sizes.sum())
    if limit is not None:
        return {i: beyond_limit(int(sizes[i]), limit) for i in np.flatnonzero(sizes > limit).tolist()}
    if total <= UNCHECKED_BYTES:
        return {}
    # A batch takes the buffers of an earlier one that nobody uses any more, or new memory.
    room = max(available_memory(), free_bytes())
    store.most_room = max(store.most_room, room)
    # Batches in flight may have taken the room of one file: it is not at fault then.
    largest_size = min(store.most_room, _ADDRESSED)
    large = np.flatnonzero(sizes > largest_size)
    if (total := total - int(sizes[large].sum())) > room:
        raise ArgumentError(
            f"the files of the batch have {total} bytes, and memory has room for {int(room)}: it needs a smaller batch_size or "
            "prefetch_queue_depth, or Storage(max_record_bytes=), which would replace that limit"
        )
    return {
        i: f"{beyond_memory(int(sizes[i]), largest_size)}; Storage(max_record_bytes=) would replace that limit"
        for i in large.tolist()
    }


def as_list(x: Any) -> tuple[Any, ...]:
    """One value or a tuple of values as a tuple."""
    return x if isinstance(x, tuple) else (x,)


def check_file_arguments(file_root: Any, file_list: Any, files: Any):
    """Checks that the arguments name exactly one list of files."""
    if files is not None and file_list is not None:
        raise ArgumentError("files and file_list can't be given together; pass one of them")
    if files is None and file_list is None and file_root is None:
        raise ArgumentError("one of file_root, file_list and files must be given")
    if files == ():
        raise ArgumentError("files is empty")
    first = as_list(files)[0]
    name = os.fsdecode(first) if len(as_list(files)) == 1 and isinstance(first, (str, bytes, os.PathLike)) else ""
    path = join(os.fsdecode(file_root or ""), name)
    if glob.escape(name) != name and not is_url(path) and not os.path.lexists(path):
        raise ArgumentError(
            f"files takes names of files, got the pattern {name!r}: pass files=glob.glob(...), or file_root= with file_filters="
        )


def utf8(content: bytes) -> bytes:
    """Removes the byte-order mark, which programs on Windows write, from a text. UTF-16 and UTF-32 become UTF-8.

    Raises:
      UnicodeDecodeError: it is damaged.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            content = content[len(mark) :]
            return content if encoding == "utf-8" else content.decode(encoding).encode()
    return content


def read_lines(path: Path, store: Store) -> list[tuple[int, bytes]]:
    """The nonempty lines of a file list with their numbers, without trailing white space."""
    try:
        content = utf8(store.read(store.named(path)))
    except OSError as e:
        raise RuntimeError(f"can't read file_list {unreadable(path, e)}") from e.__cause__
    except UnicodeDecodeError as e:
        raise RuntimeError(f"file_list {path} begins like a text in {e.encoding}, and is none: {e.reason}") from None
    if b"\0" in content:
        raise RuntimeError(f"file_list {path} has zero bytes: save it as UTF-8")
    lines = [(number, line.rstrip()) for number, line in enumerate(content.split(b"\n"), 1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        raise RuntimeError(f"file_list {path} names no files")
    return lines


def names_in_list(file_list: Path, names: Sequence[bytes], root: Path, store: Store) -> list[bytes]:
    """Checks the names in a file list: they must be relative to `root`, or absolute if it is local. Raises RuntimeError
    for other names.
    """
    texts = [os.fsdecode(n) for n in names]
    try:
        check_names(texts, plain(root), store.settings, absolute=True)
    except ValueError as e:
        raise RuntimeError(f"file_list {file_list}: {e}") from None
    store.named_by_data(texts)
    return [os.fsencode(normal(t)) if ".." in t else n for t, n in zip(texts, names)]


def root_of(file_list: Path, file_root: Path | None) -> Path:
    """The folder or URL that relative paths in a file list start from: `file_root`, or the folder of the list."""
    if file_root is not None:
        return file_root
    path = plain(file_list)
    return path.rpartition("/")[0] if is_url(path) else os.path.dirname(os.path.abspath(path))


def matcher(patterns: Sequence[str], case_sensitive: bool) -> Callable[[bytes], bool]:
    """A predicate that tells whether a file name matches one of the glob patterns. A "?" is a character, or one byte of
    it, as in the fnmatch of glibc, which DALI calls.

    Args:
      case_sensitive: if False, names match in any case.
    """
    fold: Callable[[Any], Any] = (lambda name: name) if case_sensitive else (lambda name: name.lower())
    texts = [fold(p) for p in patterns]
    # Patterns such as "*.jpg" only, which is the usual case: 10 times as fast as a regular expression.
    if all(p.isascii() and re.fullmatch(r"\*[^*?\[]*", p) for p in texts):
        suffixes = tuple(p[1:].encode() for p in texts)
        return lambda name: fold(name).endswith(suffixes)

    def expression(patterns: Sequence[str]) -> str:
        return "|".join(f"(?:{fnmatch.translate(p)})" for p in patterns)

    of_text = re.compile(expression(texts))
    of_bytes = re.compile(expression([os.fsencode(p).decode("latin-1") for p in texts]).encode("latin-1"))
    return lambda name: (
        of_bytes.match(fold(name)) is not None
        or (not name.isascii() and of_text.match(fold(os.fsdecode(name))) is not None)
    )
