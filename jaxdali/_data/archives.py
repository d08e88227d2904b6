"""The samples of WebDataset archives, found in the archives or in their indices."""

from __future__ import annotations

import codecs
import errno
import io
import os
import tarfile
from collections.abc import Callable, Sequence

import numpy as np

from .. import _cpu
from .._cpu import Missing
from .containers import Extents, chunks
from .files import Files, Path
from .storage import ByteRange, Store
from .urls import is_url, plain

HEADER = 512  # bytes, before those of a member
# Bytes that are fetched before a member's header, for a PAX header in which it may be marked as a sparse file.
_LEAD = 4 * HEADER  # enough for most PAX headers
_MAX_LEAD = 128 * HEADER  # for longer ones
_MAX_TAIL = 1 << 20  # bytes behind the last sample, of zeros, folders and hidden files
_NO_EXTENSION = b"."  # stands in an index for the extension of a file without one

_WIDTHS = {b"v1.1": 3, b"v1.2": 4}  # words for each member in a line of an index, by the index's version


class Members(Extents):
    """Members of archives.

    For a remote archive, the bytes before a member are fetched with it: they may mark it as a sparse file, which an
    index need not do.
    """

    def _lead_size(self, i: int) -> int:
        """The number of bytes before member `i` that are fetched with it."""
        return min(_LEAD, int(self.table[i, 0])) if self.files.remote and self.table[i, 1] else 0

    def range(self, i: int) -> ByteRange:
        start, size = self.table[i].tolist()
        lead = self._lead_size(i)
        return ByteRange(self.path(i), start - lead, size + lead)

    def fetched(self, i: int) -> bytes:
        """See `Extents.fetched`. Raises OSError for a sparse file."""
        lead, data = self._lead_size(i), bytes(super().fetched(i))  # which are bytes already
        if lead and not self.checked[i]:
            start = int(self.table[i, 0])
            # `is_longer`: the PAX header begins before these bytes.
            problem, is_longer = _cpu.tar_sparse(data[:lead])
            if is_longer and start > lead:
                start, size = max(0, start - _MAX_LEAD), min(start, _MAX_LEAD)
                problem, _ = _cpu.tar_sparse(self.store.read(self.path(i), start, size))
            if problem:
                raise OSError(errno.EINVAL, problem, self.path(i))
            self.checked[i] = 1
        return data[lead:]


class ArchiveSamples:
    """For each sample and output, the first member that has one of the output's extensions.

    Attributes:
      bounds: ``i64[archives + 1]``, the first sample of each archive, and the number of samples.
      _selection: the arguments of `_cpu.TarSamples` that select members.
      _widths: for each index, the number of words for each member in its lines, which its version determines.

    Args:
      files: the archives.
      indices: one for each archive; None: the archive is scanned.
      extensions: those of each output.
      fold_case: the extensions are lower-case and match any case.
      missing: what to do with a sample that lacks a member.

    Raises:
      RuntimeError: an archive or an index can't be read, or a sample lacks a member (with `Missing.ERROR`).
    """

    def __init__(
        self,
        files: Files,
        indices: Sequence[Path | None],
        extensions: list[list[str]],
        fold_case: bool,
        missing: Missing,
    ):
        self._files, self._indices = files, indices
        self._selection = extensions, fold_case, missing
        # The names of indices are not kept, see `name`, unless others must be.
        self._keeps_names = None in indices
        self._samples = _cpu.TarSamples(*self._selection, keep_names=self._keeps_names)
        self._widths: list[int] = []
        bounds = [0]
        for k, index in enumerate(indices):
            self._widths.append(0)
            if index is not None:
                self._widths[k], _ = _parse_index(self._samples, index, files.store, self._explained)
            elif error := self._samples.scan(os.fsencode(files.path(k))):
                raise RuntimeError(f"{files.path(k)}{self._explained(error)}")
            bounds.append(len(self._samples))
        self.bounds = np.array(bounds, np.int64)

    def __len__(self) -> int:
        return len(self._samples)

    def table(self, output: int) -> np.ndarray:
        """``i64[samples, 2]``: offset and size of an output's members, including headers of `HEADER` bytes; zeros for
        missing members.
        """
        return self._samples.column(output)

    def other_case(self, output: int) -> int:
        """The number of samples that lack an output's member, and would have it if extensions matched in any case."""
        return self._samples.other_case(output)

    def extensions(self) -> list[str]:
        """The extensions of the members of the first archive, or of the first part of a long index."""
        # A line of an index has a few words for each member of a sample, of which the first is the extension.
        if (index := self._indices[0]) is None:
            lines, _, _ = _cpu.tar_index(os.fsencode(self._files.path(0)), progress=lambda size: None)
            width = _WIDTHS[b"v1.2"]
        else:
            _, _, lines = next(chunks(index, self._files.store)).partition(b"\n")  # without the head
            width = self._widths[0]
        words = {word for line in lines.splitlines() for word in line.split()[::width]}
        return sorted(word.decode("utf-8", "replace") for word in words - {_NO_EXTENSION})

    def _explained(self, error: str) -> str:
        """An error of `_samples`, which numbers members, with the extensions of a missing one, and advice if it exists
        in other letters, upper or lower case.
        """
        sample, missing, number = error.rpartition(" has no member for output ")
        if not missing:
            return error
        extensions, _, _ = self._selection
        text = f"{sample} has no member {';'.join(extensions[int(number)])!r}"
        if self.other_case(int(number)):
            text += " in these letters: case_sensitive_extensions=False matches others, too"
        return text

    def name(self, i: int) -> str:
        """The name of a sample's first member; "" if the index does not have names, has changed, or is gone."""
        if self._keeps_names:
            return self._samples.name(i).decode("utf-8", "surrogateescape")
        # Ten million names are 200 MB, so they are not kept. A few lines of the index are read again instead, from the
        # block with the sample. A block is (its first sample, the offset of that sample's line in the index).
        blocks, archive = self._samples.blocks(), int(np.searchsorted(self.bounds, i, "right")) - 1
        block = int(np.searchsorted(blocks[:, 0], i, "right")) - 1
        first, start = blocks[block].tolist()
        # The last block of an index goes up to its end.
        size = (
            int(blocks[block + 1, 1]) - start
            if block + 1 < len(blocks) and blocks[block + 1, 0] < self.bounds[archive + 1]
            else None
        )
        parsed, index = _cpu.TarSamples(*self._selection, keep_names=True), self._indices[archive]
        assert index is not None
        try:
            parsed.parse(self._files.store.read(plain(index), start, size), self._widths[archive], start)
        except OSError:
            return ""
        extensions, _, _ = self._selection
        # The index still has the sample at this line, with the same members.
        is_unchanged = i - first < len(parsed) and all(
            (parsed.column(output)[i - first] == self.table(output)[i]).all() for output in range(len(extensions))
        )
        return parsed.name(i - first).decode("utf-8", "surrogateescape") if is_unchanged else ""


def check_index(files: Files, k: int, index: str) -> str:
    """Returns the reason why an index can't be that of archive `k`, or "": its last member must be the archive's last.

    Raises:
      RuntimeError: the index is damaged.
      OSError: the archive can't be read.
    """
    # Only its lines are checked, so no member is selected.
    samples = _cpu.TarSamples([], False, Missing.EMPTY, keep_names=False)
    width, last_line = _parse_index(samples, index, files.store, str)
    words = last_line.split()
    ends = [int(offset) + int(size) for offset, size in zip(words[1::width], words[2::width])]
    assert files.sizes is not None
    end, file_size = max(ends, default=0), files.sizes[k]
    begin = -(-end // HEADER) * HEADER  # of what follows the last member
    tail = files.store.read(files.path(k), begin, min(file_size - begin, _MAX_TAIL)) if begin < file_size else b""
    # Archives end with zeros.
    if end > file_size or (any(tail[:HEADER]) and (len(tail) == _MAX_TAIL or _has_member(tail))):
        return f"{index} does not fit its file"
    return ""


def _has_member(tail: bytes) -> bool:
    """Whether the end of an archive has a member of a sample: a file that is not hidden. True if it is damaged."""
    try:
        with tarfile.open(fileobj=io.BytesIO(tail), mode="r:") as archive:
            return any(m.isfile() and not m.name.rpartition("/")[2].startswith(".") for m in archive)
    except (tarfile.TarError, ValueError, EOFError):
        return True


def _parse_index(
    samples: _cpu.TarSamples, path: Path, store: Store, explain: Callable[[str], str]
) -> tuple[int, bytes]:
    """Parses the index of one archive.

    Args:
      samples: gets its samples.
      explain: makes the text of an error of `samples`.

    Returns:
      (the number of words for each member, which the version determines; the last line).

    Raises:
      RuntimeError: it is no index, or lacks a member.
    """
    last_line = b""
    # Bytes parsed so far; the number of lines by the head, -1 if it is damaged; words for each member, 0 if the
    # version is unknown.
    offset, count, width = 0, -1, 0
    for lines in chunks(path, store):
        if not offset:  # the first line: the version and the number of the other lines
            size = len(lines) if is_url(plain(path)) else os.path.getsize(plain(path))
            head, _, lines = lines.partition(b"\n")
            version, _, number = head.removeprefix(codecs.BOM_UTF8).partition(b" ")
            width, offset = _WIDTHS.get(version, 0), len(head) + 1
            # A number of 20 digits or more is damaged: it is too large for an integer of 64 bits.
            count = int(number) if number.strip().isdigit() and len(number) < 20 else -1
            if not width or count < 0:
                break
            samples.begin_file(min(count, size))  # a damaged head may state any number
        if error := samples.parse(lines, width, offset):
            raise RuntimeError(f"{os.fspath(path)}{explain(error)}")
        offset += len(lines)
        last_line = lines.rstrip(b"\n").rpartition(b"\n")[2] or last_line
    if not width or count != samples.lines:
        text = "it does not begin with v1.2 and the number of its other lines"
        raise RuntimeError(f"{os.fspath(path)} is not an index of a tar archive: {text}")
    return width, last_line
