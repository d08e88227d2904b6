"""readers.zip: the members of ZIP archives."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import cut
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._data.directories import is_apple_double
from ..._data.files import Files, Paths, as_list, matcher
from ..._data.ranges import Ranges
from ..._data.records import Records
from ..._data.storage import Store
from ..._data.store_file import StoreFile
from ._reader import ContainerArguments, Reader

# Sizes in bytes, by PKWARE's APPNOTE.TXT.
_LOCAL_HEADER = 30  # without name and extra field, which follow it; their lengths, 16 bits each, are at 26 and 28
_MAX_TRAILER = (1 << 16) + 22 + 20 + 56  # comment, end of central directory, ZIP64's locator and end record


def _open_archive(store: Store, path: str, size: int) -> StoreFile:
    """Opens an archive for `zipfile`. Its end, which tells where the table of contents is, is fetched at once."""
    file, begin = StoreFile(store, path, size), max(size - _MAX_TRAILER, 0)
    file.fetched[begin] = store.read(path, begin, size - begin)
    return file


class _Members(Records):
    """Members of archives, each with the number of its directory.

    `_info` has (bytes in the archive, compression, decompressed bytes, checksum) of each member. `_ranges` are the
    places of members with their headers. `_content` are the places of the data of stored members, as far as they are
    known, see `_has_content_start`.
    """

    specs = (Spec(np.dtype(np.uint8), 1, None), Spec(np.dtype(np.int32), 1, (1,)))

    def __init__(self, op: ReadZip):
        """Reads the tables of the archives, and lists the members that match.

        Attributes of `Records` are set here: `bounds`, the first member of each archive, `stored`, the ranges of the
        members in the archives, `doubts`, warnings, and `digest`, by which checkpoints recognize the list.
        """
        files = Files.of(op.path, op.storage)
        assert files.sizes is not None
        keep = matcher(as_list(op.file_filter), case_sensitive=True)
        self._names: list[str] = []
        self._info: list[tuple[int, int, int, int]] = []
        file, start, size, per_file = [], [], [], []
        for i in range(len(files)):
            path = files.path(i)
            try:
                with zipfile.ZipFile(_open_archive(files.store, path, files.sizes[i])) as archive:  # pyright: ignore[reportArgumentType]
                    members, end = archive.infolist(), archive.start_dir
            except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as e:
                raise RuntimeError(f"{path}: {e}") from e
            if not all(m.filename for m in members):
                raise RuntimeError(f"{path}: a member has no name: the archive's table is damaged")
            # The range of a member reaches to the next header. So it has all data, though only the member's own header
            # tells where they begin.
            boundaries = np.array(sorted({m.header_offset for m in members} | {end}), np.int64)
            selected = [m for m in members if not m.is_dir() and keep(m.filename.rpartition("/")[2].encode())]
            for m in selected:
                # Bit 0: the member is encrypted.
                if m.flag_bits & 1 or m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    problem = "encrypted" if m.flag_bits & 1 else f"compressed by method {m.compress_type}"
                    raise RuntimeError(
                        f"{path}: {cut(m.filename)} is {problem}; only stored or deflated members can be read"
                    )
                if m.header_offset >= end:
                    raise RuntimeError(
                        f"{path}: {cut(m.filename)} would begin at {m.header_offset}, in the archive's table: it is damaged"
                    )
                self._names.append(m.filename)
                self._info.append((m.compress_size, m.compress_type, m.file_size, m.CRC))
                file.append(i)
                start.append(m.header_offset)
                size.append(int(boundaries[np.searchsorted(boundaries, m.header_offset) + 1]) - m.header_offset)
            per_file.append(len(selected))
        if not self._names:
            raise RuntimeError(
                f"no member of {', '.join(map(files.path, range(len(files))))} matches file_filter {list(as_list(op.file_filter))}"
            )
        if count := sum(is_apple_double(name.rpartition("/")[2].encode()) for name in self._names):
            text = f'{count} members named ._* are listed, in which macOS keeps no samples (file_filter="[!.]*" leaves them out)'
            self.doubts = [f"{files.path(0)}{' and others' * (len(files) > 1)}: {text}"]
        folders = [name.rpartition("/")[0] for name in self._names]
        label_of_folder = {folder: k for k, folder in enumerate(sorted({*folders}, key=str.encode))}
        self._labels = np.array([label_of_folder[f] for f in folders], np.int32)
        self.bounds = np.cumsum([0, *per_file])
        self.stored = self._ranges = Ranges(files, np.array(file), np.array(start), np.array(size))
        # The places of the data of stored members, known once their headers were read. From then on the data are read
        # directly into the output.
        self._content = Ranges(files, np.array(file), np.array(start), np.minimum([n for n, *_ in self._info], size))
        self._content.start = np.array(start, np.int64)  # the place of the header, until it has been read
        self._has_content_start = np.zeros(len(self._names), bool)
        digest = files.digest.copy()
        checksums = [checksum for *_, checksum in self._info]
        digest.update("\0".join(self._names).encode() + np.array(checksums, np.int64).tobytes())
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._names)

    def name(self, i: int) -> str:
        return f"{self._ranges.files.path(int(self._ranges.file[i]))}/{self._names[i]}"

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. `stored` has ranges, not whole files, so "filename" is defined here."""
        archive = lambda i: self._ranges.files.path(int(self._ranges.file[i]))
        return super().facts() | {"filename": archive, "member": lambda i: self._names[i]}

    def read(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Records.read`: the content of member `i`, and the label, ``i32[1]``."""
        packed_size, _, size, _ = self._info[i]
        if reason := self._ranges.store.settings.too_large(max(packed_size, size)):
            raise ValueError(f"{self.name(i)}: {reason}")
        try:
            return np.frombuffer(self._extract(i, self._ranges.read(i)), np.uint8), self._labels[i : i + 1]
        except (ValueError, zlib.error) as e:
            raise ValueError(f"{self.name(i)} (at {self._ranges.start[i]}): {e}") from e

    def _extract(self, i: int, data: bytes) -> bytes | memoryview:
        """The content of member `i`, from its range in the archive. Raises ValueError or zlib.error."""
        packed_size, kind, size, checksum = self._info[i]
        if data[:4] != b"PK\3\4":
            raise ValueError("there is no member where the archive's table says it is")
        # The data follow the header, the name and the extra field, whose lengths are at 26 and 28.
        begin = _LOCAL_HEADER + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
        content: bytes | memoryview = memoryview(data)[begin : begin + packed_size]
        if kind == zipfile.ZIP_DEFLATED:
            # A raw stream, without zlib's header. At most one byte too many is made, which shows that it is too long.
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, size + 1)
        if len(content) != size:
            raise ValueError(f"it has {len(content)} bytes, the archive's table says {size}")
        if zlib.crc32(content) != checksum:
            raise ValueError("its checksum is wrong")
        # From now on `read_batch` may read the data directly.
        if kind == zipfile.ZIP_STORED:
            self._content.start[i] = int(self._ranges.start[i]) + begin
            self._has_content_start[i] = True
        return content

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[_Members, np.ndarray]], threads: Any
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. Stored members of local files are read natively once their header was read."""
        if any(
            m._ranges.files.remote or not m._has_content_start[index].all() or m._content.oversized(index)
            for m, index in parts
        ):
            return super().read_batch(ctx, parts, threads)
        packed = Ranges.read_batch(ctx, [(m._content, index) for m, index in parts])
        return packed, np.concatenate([m._labels[index] for m, index in parts])[:, None]


class ReadZip(Reader):
    """`readers.zip`; the fields are its arguments."""

    name: ClassVar[str] = "readers.zip"

    path: Paths
    file_filter: str | tuple[str, ...]

    @property
    def num_arrays(self) -> int:
        return 2

    def open(self) -> _Members:
        return _Members(self)


@operator_function(ReadZip)
def zip(
    *,
    path: Paths,
    file_filter: str | Sequence[str] = "*",
    **order: Unpack[ContainerArguments],
) -> list[DataNode]:
    """Reads the members of ZIP archives, each with a label. Not in DALI.

    Args:
      path: paths of the archives, which are read one after another. Patterns (``*``, ``?``, ``[``, ``{a,b}``,
        ``{000..127}``) stand for files, the matches of wildcards in byte order. A path that exists is literal. Members
        come in the order of their archive's table.
      file_filter: case-sensitive glob patterns; a member's name, without its directory, must match one of them.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path of the archive; "member": the path in it; "index": the
        number in the list; "source_info".

    Returns:
      (contents ``uint8[bytes]``, label ``int32[1]``) of each member. Labels number the directories within the archives,
      in byte order. Their source_info is the path of the archive and of the member in it. A batch of labels is ``[N,
      1]``; ``labels[:, 0]`` is ``[N]``.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, an archive can't be read, or members are encrypted or compressed by
        another method than "deflate". A member that is damaged or has a wrong checksum fails when its batch runs.

    Example:
      >>> jpegs, labels = fn.readers.zip(path="s3://bucket/train.zip", file_filter="*.jpg", shuffle="global")
    """
    ...
