"""The samples of WebDataset archives, found in the archives or in their indices."""

from __future__ import annotations

import codecs
import errno
import os
from collections.abc import Sequence

import numpy as np

from .. import _cpu
from .._cpu import Missing
from .containers import Extents, chunks
from .files import Files, Path
from .storage import ByteRange, is_url, plain

HEADER = 512  # bytes, before those of a member
_BEFORE = 4 * HEADER  # bytes to fetch before a member's header; most PAX headers are shorter
_MOST_BEFORE = 128 * HEADER  # for longer ones

_WIDTHS = {b"v1.1": 3, b"v1.2": 4}  # words for each member, by version


class Members(Extents):
    """Members of archives.

    For a remote archive, the bytes before a member are fetched with it: they may mark it as a sparse file, which an
    index need not do.
    """

    def _before(self, i: int) -> int:
        """How many bytes before member `i` are fetched with it."""
        return min(_BEFORE, int(self.table[i, 0])) if self.files.remote and self.table[i, 1] else 0

    def range(self, i: int) -> ByteRange:
        start, size = self.table[i].tolist()
        before = self._before(i)
        return ByteRange(self.path(i), start - before, size + before)

    def fetched(self, i: int) -> bytes:
        """See `Extents.fetched`. Raises OSError for a sparse file."""
        before, data = self._before(i), super().fetched(i)
        if before and not self.checked[i]:
            start = int(self.table[i, 0])
            why, more = _cpu.tar_sparse(data[:before])
            if more and start > before:
                start, size = max(0, start - _MOST_BEFORE), min(start, _MOST_BEFORE)
                why, _ = _cpu.tar_sparse(self.store.read(self.path(i), start, size))
            if why:
                raise OSError(errno.EINVAL, why, self.path(i))
            self.checked[i] = 1
        return data[before:]


class ArchiveSamples:
    """For each sample and output, the first member that has one of the output's extensions.

    Attributes:
      bounds: ``i64[archives + 1]``, the first sample of each archive, and the number of samples.

    Args:
      files: the archives.
      indices: one for each archive; None: the archives are scanned.
      extensions: those of each output.
      fold_case: the extensions are lower-case and match any case.
      missing: what to do with a sample that lacks a member.

    Raises:
      RuntimeError: an archive or an index can't be read, or a sample lacks a member (with `Missing.ERROR`).
    """

    def __init__(
        self,
        files: Files,
        indices: Sequence[Path] | None,
        extensions: list[list[str]],
        fold_case: bool,
        missing: Missing,
    ):
        self._files, self._indices = files, indices
        self._selected = extensions, fold_case, missing
        self._found = _cpu.TarSamples(*self._selected, keep_names=indices is None)
        self._widths: list[int] = []
        bounds = [0]
        for k in range(len(files)):
            if indices is not None:
                self._read_index(indices[k])
            elif wrong := self._found.scan(os.fsencode(files.path(k))):
                raise RuntimeError(f"{files.path(k)}{wrong}{self._hint(wrong)}")
            bounds.append(len(self._found))
        self.bounds = np.array(bounds, np.int64)

    def __len__(self) -> int:
        return len(self._found)

    def table(self, output: int) -> np.ndarray:
        """``i64[samples, 2]``: offset and size of an output's members, including headers of `HEADER` bytes; zeros for
        missing members.
        """
        return self._found.column(output)

    def other_case(self, output: int) -> int:
        """The number of samples that lack an output's member, and would have it if extensions matched in any case."""
        return self._found.other_case(output)

    def extensions(self) -> list[str]:
        """The extensions of the members of the first archive."""
        if self._indices is None:
            lines, width = _cpu.tar_index(os.fsencode(self._files.path(0)), lambda size: None)[0], 4
        else:
            _, _, lines = next(chunks(self._indices[0], self._files.store)).partition(b"\n")
            width = self._widths[0]
        return sorted(
            {word.decode("utf-8", "replace") for line in lines.splitlines() for word in line.split()[::width]}
        )

    def _hint(self, wrong: str) -> str:
        """The end of an error about a member that a sample has in upper or lower case only; "" of other errors."""
        _, missing, output = wrong.rpartition(" has no member for output ")
        if not missing or not self.other_case(int(output)):
            return ""
        return " in these letters: case_sensitive_extensions=False matches others, too"

    def name(self, i: int) -> str:
        """The name of a sample's first member; empty if the index does not have it, or is gone."""
        if self._indices is None:
            return self._found.name(i).decode("utf-8", "surrogateescape")
        # Ten million names are 200 MB, so they are not kept. A few lines of the index are read again instead, from the
        # block with the sample.
        blocks, k = self._found.blocks(), int(np.searchsorted(self.bounds, i, "right")) - 1
        b = int(np.searchsorted(blocks[:, 0], i, "right")) - 1
        first, start = blocks[b].tolist()
        size = int(blocks[b + 1, 1]) - start if b + 1 < len(blocks) and blocks[b + 1, 0] < self.bounds[k + 1] else None
        again = _cpu.TarSamples(*self._selected, keep_names=True)
        try:
            again.parse(self._files.store.read(plain(self._indices[k]), start, size), self._widths[k], start)
        except OSError:
            return ""
        outputs = range(len(self._selected[0]))
        same = i - first < len(again) and all((again.column(j)[i - first] == self.table(j)[i]).all() for j in outputs)
        return again.name(i - first).decode("utf-8", "surrogateescape") if same else ""

    def _read_index(self, path: Path):
        at, count, width = 0, -1, 0
        for lines in chunks(path, self._files.store):
            if not at:
                size = len(lines) if is_url(plain(path)) else os.path.getsize(plain(path))
                head, _, lines = lines.partition(b"\n")
                version, _, number = head.removeprefix(codecs.BOM_UTF8).partition(b" ")
                width, at = _WIDTHS.get(version, 0), len(head) + 1
                count = int(number) if number.strip().isdigit() and len(number) < 20 else -1
                if not width or count < 0:
                    break
                self._found.begin_file(min(count, size))
            if wrong := self._found.parse(lines, width, at):
                raise RuntimeError(f"{os.fspath(path)}{wrong}{self._hint(wrong)}")
            at += len(lines)
        if not width or count != self._found.lines:
            text = "it does not begin with v1.2 and the number of its other lines"
            raise RuntimeError(f"{os.fspath(path)} is not an index of a tar archive: {text}")
        self._widths.append(width)
