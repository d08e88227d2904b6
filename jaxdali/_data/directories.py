"""The files in the sub-directories of a root, and what a user may miss among them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from .._core.redaction import redacted
from .storage import Path, Store, is_url, join, plain

Test = Callable[[bytes], bool]  # of a name

_SYSTEM_FOLDERS = (b"__MACOSX", b"__pycache__", b"@eaDir", b"@Recycle", b"#recycle", b"$RECYCLE.BIN")
_SYSTEM_FILES = (b".DS_Store", b"Thumbs.db", b"desktop.ini")
_APPLE_DOUBLE, _AFTER_APPLE_DOUBLE = b"._", b".`"  # macOS keeps what other file systems can't hold of x.jpg in ._x.jpg
_DEEPER_FOLDERS, _DEEPER_URLS, _DEEPER_ENTRIES = 100, 8, 10_000  # that are looked at; entries: of each folder
_SHOWN = 3  # names in a warning


def is_apple_double(name: bytes) -> bool:
    """Whether a file named ``._x.jpg`` holds what macOS could not store in ``x.jpg``, and no image."""
    return name.startswith(_APPLE_DOUBLE)


@dataclasses.dataclass
class Listing:
    """The files in the sub-directories of a root.

    Attributes:
      root: the directory or URL.
      names: of the files in each sub-directory, relative to the root, in byte order.
      sizes: of all files in bytes, if listing returned them.
      left_out: how many samples are not listed because of their names, by extension.
      folders: number and name of each sub-directory that is hidden, or made by the system.
      system_files: how many files of this kind are listed; "._*" counts those of `is_apple_double`.
      beside: how many samples are in the root, beside the sub-directories, where it is not itself listed.
      deeper: how many samples are one level deeper or more, in folders such as `example`; complete: whether all were
        counted.
    """

    root: str
    names: list[list[bytes]] = dataclasses.field(default_factory=list)
    sizes: list[int] | None = None
    left_out: Counter[str] = dataclasses.field(default_factory=Counter)
    folders: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    system_files: Counter[str] = dataclasses.field(default_factory=Counter)
    beside: int = 0
    deeper: int = 0
    example: str = ""
    complete: bool = True

    def leave_out(self, name: bytes):
        """Counts a sample that is not listed, unless it is hidden."""
        if not name.startswith(b"."):
            self.left_out[os.path.splitext(os.fsdecode(name))[1]] += 1

    @property
    def more(self) -> str:
        """The number of samples in deeper folders."""
        return f"{self.deeper}{'' if self.complete else ' or more'}"

    def doubts(self, remedies: Mapping[str, str], *, labels: bool = True) -> list[str]:
        """One text about what the listing leaves out or has too much, for `Records.doubts`; none if there is nothing.

        Args:
          remedies: what changes each of `left_out`, `folders`, `system_files` and `deeper`, which also changes
            `beside`.
          labels: whether the sub-directories are classes, so that an empty one counts, too.
        """
        folders = [(number, name) for number, name in self.folders if labels or self.names[number]]
        texts = {
            "left_out": f"files in the sub-directories are not listed: {counted(self.left_out)}" * bool(self.left_out),
            "folders": _about_folders(folders, labels) * bool(folders),
            "system_files": f"files that hold no samples are listed: {counted(self.system_files)}"
            * bool(self.system_files),
            "deeper": " and ".join(
                [f"files beside the sub-directories are not listed: {self.beside}"] * bool(self.beside)
                + [f"files in deeper folders, such as {self.example}, are not listed: {self.more}"] * bool(self.deeper)
            ),
        }
        text = "; ".join(f"{text} ({remedies[kind]})" for kind, text in texts.items() if text)
        return [f"file_root {redacted(self.root)}: {text}"] if text else []


def counted(counts: Mapping[str, int]) -> str:
    """Counts by name, the largest first: ``3 .heic, 2 .gif``."""
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])))


def _about_folders(folders: Sequence[tuple[int, str]], labels: bool) -> str:
    shown = ", ".join(f"{name} as class {number}" if labels else name for number, name in folders[:_SHOWN])
    remainder = f" and {len(folders) - _SHOWN} more" if len(folders) > _SHOWN else ""
    return f"hidden or system folders are listed like all others: {shown}{remainder}"


def in_directories(
    root: Path,
    store: Store,
    keep_file: Test,
    keep_dir: Test = lambda name: True,
    own: bool = False,
    is_sample: Test | None = None,
) -> Listing:
    """The files in each sub-directory of `root`, both in byte order. Deeper levels are not listed.

    Args:
      own: whether the files of `root` itself come first, as those of a directory ``.``.
      is_sample: the names that a user would miss. Default: those that `keep_file` accepts.

    Raises:
      RuntimeError: a directory can't be listed.
    """
    listing = Listing(plain(root))
    list_all = _list_urls if is_url(listing.root) else _list_directories
    is_sample = is_sample or keep_file
    folders, deeper = list_all(listing, store, keep_file, keep_dir, own, is_sample)
    listing.folders = [(k, os.fsdecode(name)) for k, name in enumerate(folders) if name != b"." and _is_of_system(name)]
    system_files = {"._*": (_APPLE_DOUBLE, _AFTER_APPLE_DOUBLE)}
    system_files |= {os.fsdecode(name): (name, name + b"\0") for name in _SYSTEM_FILES if keep_file(name)}
    for folder, names in zip(folders, listing.names, strict=True):
        prefix = b"" if folder == b"." and is_url(listing.root) else folder + b"/"
        for name, (first, end) in system_files.items():
            if count := bisect_left(names, prefix + end) - bisect_left(names, prefix + first):
                listing.system_files[name] += count
    _count_deeper(listing, store, deeper, is_sample)
    return listing


def _list_directories(
    listing: Listing, store: Store, keep_file: Test, keep_dir: Test, own: bool, is_sample: Test
) -> tuple[list[bytes], list[bytes]]:
    """Fills in the names of local files, and counts those that are left out. Returns the sub-directories, and the
    directories in them.
    """
    directory, deeper = os.fsencode(listing.root), list[bytes]()
    try:
        with os.scandir(directory) as entries:
            folders, files = list[bytes](), list[bytes]()
            for e in entries:
                if not e.is_dir():
                    files.append(e.name)
                elif keep_dir(e.name):
                    folders.append(e.name)
        folders = [b"."] * own + sorted(folders)
        listing.beside = 0 if own else _visible(files, is_sample)
        for folder in folders:
            names = []
            with os.scandir(os.path.join(directory, folder)) as entries:
                for e in entries:
                    if keep_file(e.name):
                        # A broken link is listed, so that reading it fails with its name. Otherwise the sample would be
                        # missing silently.
                        if e.is_file() or (e.is_symlink() and not e.is_dir()):
                            names.append(folder + b"/" + e.name)
                            continue
                    elif is_sample(e.name) and e.is_file():
                        listing.leave_out(e.name)
                        continue
                    if folder != b"." and len(deeper) <= _DEEPER_FOLDERS and e.is_dir() and not _is_of_system(e.name):
                        deeper.append(folder + b"/" + e.name)
            listing.names.append(sorted(names))
    except OSError as e:
        raise RuntimeError(
            f"can't list file_root {_within(listing.root, os.fsdecode(e.filename or listing.root))}: {e.strerror}"
        ) from None
    return folders, deeper


def _list_urls(
    listing: Listing, store: Store, keep_file: Test, keep_dir: Test, own: bool, is_sample: Test
) -> tuple[list[bytes], list[bytes]]:
    """The same for a URL, with the sizes."""
    root, deeper, sizes = listing.root, list[bytes](), list[int]()
    try:
        (top,) = store.entries([root])
        folders = [e.name for e in top if e.is_dir and keep_dir(os.fsencode(e.name))]
        contents = store.entries([join(root, name) for name in folders])
    except OSError as e:
        raise RuntimeError(f"can't list file_root {_within(root, e.filename)}: {e.strerror}") from e.__cause__
    listing.beside = 0 if own else _visible((os.fsencode(e.name) for e in top if not e.is_dir), is_sample)
    for folder, entries in [(".", top)] * own + list(zip(folders, contents)):
        names = []
        for e in entries:
            name = os.fsencode(e.name)
            if e.is_dir:
                if folder != "." and not _is_of_system(name):
                    deeper.append(os.fsencode(f"{folder}/{e.name}"))
            elif keep_file(name):
                names.append(name if folder == "." else os.fsencode(f"{folder}/{e.name}"))
                sizes.append(e.size)
            elif is_sample(name):
                listing.leave_out(name)
        listing.names.append(names)
    listing.sizes = sizes
    return [b"."] * own + [os.fsencode(name) for name in folders], deeper


def _count_deeper(listing: Listing, store: Store, folders: list[bytes], is_sample: Test):
    """Counts the samples in folders and those below, as far as that is quick."""
    budget = _DEEPER_URLS if is_url(listing.root) else _DEEPER_FOLDERS
    while folders and budget:
        listing.complete &= len(folders) <= budget
        folders, budget = folders[:budget], max(budget - len(folders), 0)
        below = []
        for folder, entries in zip(folders, _look(listing, store, folders)):
            count = _visible((name for name, is_dir in entries if not is_dir), is_sample)
            listing.example = listing.example or os.fsdecode(folder) * bool(count)
            listing.deeper += count
            listing.complete &= len(entries) < _DEEPER_ENTRIES
            below += [folder + b"/" + name for name, is_dir in entries if is_dir and not _is_of_system(name)]
        folders = below
    listing.complete &= not folders


def _look(listing: Listing, store: Store, folders: Sequence[bytes]) -> list[list[tuple[bytes, bool]]]:
    """Names of the first entries of each folder, and whether they are directories. A folder that can't be listed has
    none.
    """
    if is_url(listing.root):
        with contextlib.suppress(OSError):
            contents = store.entries([join(listing.root, os.fsdecode(folder)) for folder in folders])
            return [[(os.fsencode(e.name), e.is_dir) for e in entries] for entries in contents]
        return [[] for _ in folders]
    children: list[list[tuple[bytes, bool]]] = []
    for folder in folders:
        children.append([])
        with contextlib.suppress(OSError), os.scandir(os.path.join(os.fsencode(listing.root), folder)) as entries:
            children[-1] = [(e.name, e.is_dir(follow_symlinks=False)) for e in islice(entries, _DEEPER_ENTRIES)]
    return children


def _visible(names: Iterable[bytes], is_sample: Test) -> int:
    """The number of samples that are not hidden."""
    return sum(not name.startswith(b".") and is_sample(name) for name in names)


def _is_of_system(folder: bytes) -> bool:
    return folder.startswith(b".") or folder in _SYSTEM_FOLDERS


def _within(root: str, path: str) -> str:
    """The root, and which directory in it is meant."""
    return root if path.rstrip("/") == root.rstrip("/") else f"{root}: {path}"
