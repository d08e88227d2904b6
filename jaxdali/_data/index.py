"""Makes the indices of containers that come without one."""

from __future__ import annotations

import dataclasses
import os
import tarfile
from collections.abc import Callable

import numpy as np

from .files import Path
from .storage import Store, plain

Progress = Callable[[int], object]  # is told of bytes that were gone through


def tfrecord_extents(path: Path, progress: Progress = lambda n: None) -> np.ndarray:
    """Offset and size of each record of a TFRecord file, ``i64[n, 2]``.

    Raises:
      RuntimeError: it can't be read, or ends within a record.
    """
    found: list[int] = []
    try:
        with open(path, "rb") as f:
            fd, size, at = f.fileno(), os.fstat(f.fileno()).st_size, 0
            while at < size:
                head = os.pread(fd, 8, at)
                whole = int.from_bytes(head, "little") + 16
                if len(head) < 8 or whole > size - at:
                    raise RuntimeError(
                        f"{os.fspath(path)}: record {len(found) // 2} at index {at} would have {whole} bytes, but the file ends "
                        f"{size - at} bytes behind: it is truncated, damaged, or no TFRecord file"
                    )
                found += at, whole
                at += whole
                progress(whole)
    except OSError as e:
        raise RuntimeError(f"can't read {os.fspath(path)}: {e.strerror}") from e
    return np.array(found, np.int64).reshape(-1, 2)


@dataclasses.dataclass(frozen=True)
class Member:
    """A file in a tar archive: what is behind the first dot of its name, where its bytes are, and its name."""

    extension: str
    offset: int
    size: int
    name: str


def tar_samples(path: Path, progress: Progress = lambda n: None) -> list[list[Member]]:
    """The samples of a WebDataset archive: members one after another whose names are equal up to the first dot.

    Hidden files, and what is no regular file, are no members.

    Raises:
      RuntimeError: it can't be read, is no tar archive, or ends within a member.
    """
    samples: list[list[Member]] = []
    try:
        size, before, at = os.path.getsize(path), None, 0
        with tarfile.open(path, "r:") as archive:
            if size % tarfile.BLOCKSIZE:
                raise RuntimeError(f"{os.fspath(path)} has {size} bytes, which is no multiple of {tarfile.BLOCKSIZE}: it is truncated")
            for x in archive:
                folder, _, base = x.name.rpartition("/")
                if not x.isreg() or x.issparse() or base.startswith("."):
                    continue
                if x.offset_data + x.size > size:
                    raise RuntimeError(f"{os.fspath(path)}: {x.name} at index {x.offset_data} has {x.size} bytes, but the file ends before")
                stem, _, extension = base.partition(".")
                if (folder, stem) != before:
                    samples.append([])
                before = folder, stem
                samples[-1] += [Member(extension, x.offset_data, x.size, x.name)] if extension else []
                progress(x.offset_data + x.size - at)
                at = x.offset_data + x.size
                archive.members = []  # else it keeps them all  # pyright: ignore[reportAttributeAccessIssue]
    except OSError as e:
        raise RuntimeError(f"can't read {os.fspath(path)}: {e.strerror}") from e
    except tarfile.TarError as e:
        raise RuntimeError(f"{os.fspath(path)} is no tar archive, or damaged: {e}") from e
    return samples


def write_index(path: Path, index: Path, progress: Progress = lambda n: None) -> int:
    """Writes the index of a TFRecord file, or of a tar archive, as DALI's tfrecord2idx and wds2idx (v1.2) do; the number of records."""
    with open(path, "rb") as f:
        is_tar = f.read(512)[257:262] == b"ustar"
    if is_tar:
        samples = [s for s in tar_samples(path, progress) if s]
        if any(c.isspace() for s in samples for m in s for c in m.name):
            raise RuntimeError(f"{os.fspath(path)}: names with white space can't be written into an index")
        lines = [" ".join(f"{m.extension} {m.offset} {m.size} {m.name}" for m in s) for s in samples]
        lines.insert(0, f"v1.2 {len(samples)}")
    else:
        lines = [f"{offset} {size}" for offset, size in tfrecord_extents(path, progress).tolist()]
    with open(f"{os.fspath(index)}.new", "w") as f:
        f.write("".join(f"{line}\n" for line in lines))
    os.replace(f"{os.fspath(index)}.new", index)
    return len(lines) - is_tar


def read_tar_index(path: Path, store: Store) -> list[list[Member]]:
    """What `write_index` wrote of a tar archive, of DALI's versions 1.1 (without names) and 1.2."""
    try:
        lines = store.read(plain(path)).decode("utf-8", "surrogateescape").splitlines()
    except OSError as e:
        raise RuntimeError(f"can't read the index {os.fspath(path)}: {e.strerror}") from e
    version, _, count = (lines[0] if lines else "").partition(" ")
    width = {"v1.1": 3, "v1.2": 4}.get(version)
    if width is None or not count.strip().isdigit() or int(count) != len(lines) - 1:
        raise RuntimeError(f"{os.fspath(path)} is no index of a tar archive: it does not begin with v1.2 and the number of its other lines")
    samples = []
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        try:
            if len(words) % width:
                raise ValueError
            members = [words[k : k + width] for k in range(0, len(words), width)]
            samples.append([Member(m[0], int(m[1]), int(m[2]), m[3] if width == 4 else "") for m in members])
        except ValueError:
            raise RuntimeError(f"{os.fspath(path)}, line {number}: expected extension, offset, size and name of each member") from None
    return samples
