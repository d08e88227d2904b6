"""Lists the files in the sub-directories of a root, and counts the files that a user may miss among them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from .._core.errors import unreadable
from .._core.redaction import redacted
from .storage import Store
from .urls import Path, is_url, join, plain

Test = Callable[[bytes], bool]  # tells whether a name is accepted

_SYSTEM_FOLDERS = (b"__MACOSX", b"__pycache__", b"@eaDir", b"@Recycle", b"#recycle", b"$RECYCLE.BIN")
_SYSTEM_FILES = (b".DS_Store", b"Thumbs.db", b"desktop.ini")
_APPLE_DOUBLE, _AFTER_APPLE_DOUBLE = b"._", b".`"  # prefix of the names of such files, and its successor in byte order
# Limits of the search for samples in deeper folders: local folders, URLs, and entries of each.
_DEEPER_FOLDERS, _DEEPER_URLS, _DEEPER_ENTRIES = 100, 8, 10_000
_SHOWN = 3  # names in a warning


def is_apple_double(name: bytes) -> bool:
    """Whether the name is that of an AppleDouble file: ``._x.jpg`` has the metadata of ``x.jpg`` that macOS could not
    store otherwise, and no image.
    """
    return name.startswith(_APPLE_DOUBLE)


@dataclasses.dataclass
class Listing:
    """The files in the sub-directories of a root.

    Attributes:
      root: the directory or URL.
      names: of the files in each sub-directory, relative to the root, in byte order.
      sizes: of all files in bytes, if listing returned them.
      left_out: the number of samples that are not listed because of their names, by extension.
      folders: number and name of each sub-directory that is hidden, or made by the system.
      system_files: the number of listed files that the operating system made, by name; "._*" stands for those of
        `is_apple_double`.
      in_root: the number of samples in the root itself, if it is not listed.
      deeper: the number of samples in folders of the sub-directories.
      example: one of these folders.
      complete: whether `deeper` counts all such samples.
    """

    root: str
    names: list[list[bytes]] = dataclasses.field(default_factory=list)
    sizes: list[int] | None = None
    left_out: Counter[str] = dataclasses.field(default_factory=Counter)
    folders: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    system_files: Counter[str] = dataclasses.field(default_factory=Counter)
    in_root: int = 0
    deeper: int = 0
    example: str = ""
    complete: bool = True

    def leave_out(self, name: bytes):
        """Counts a sample that is not listed, unless it is hidden."""
        if not name.startswith(b"."):
            self.left_out[os.path.splitext(os.fsdecode(name))[1]] += 1

    @property
    def deeper_text(self) -> str:
        """The number of samples in deeper folders, as text: ``"5 or more"``."""
        return f"{self.deeper}{'' if self.complete else ' or more'}"

    def doubts(self, remedies: Mapping[str, str], *, labels: bool = True) -> list[str]:
        """One text about files that the listing leaves out, or has in addition, for `Records.doubts`; [] if there are
        none.

        Args:
          remedies: the advice for each of `left_out`, `folders`, `system_files` and `deeper`, which is also for
            `in_root`.
          labels: whether the sub-directories are classes, so that an empty one counts, too.
        """
        folders = [(number, name) for number, name in self.folders if labels or self.names[number]]
        # Each text is "" if there is nothing to say.
        texts = {
            "left_out": f"files in the sub-directories are not listed: {counted(self.left_out)}" * bool(self.left_out),
            "folders": _folders_text(folders, labels) * bool(folders),
            "system_files": f"files that hold no samples are listed: {counted(self.system_files)}"
            * bool(self.system_files),
            "deeper": " and ".join(
                [f"files beside the sub-directories are not listed: {self.in_root}"] * bool(self.in_root)
                + [f"files in deeper folders, such as {self.example}, are not listed: {self.deeper_text}"]
                * bool(self.deeper)
            ),
        }
        text = "; ".join(f"{text} ({remedies[kind]})" for kind, text in texts.items() if text)
        return [f"file_root {redacted(self.root)}: {text}"] if text else []


def counted(counts: Mapping[str, int]) -> str:
    """Counts by name, the largest first: ``3 .heic, 2 .gif``."""
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])))


def _folders_text(folders: Sequence[tuple[int, str]], labels: bool) -> str:
    """The text about hidden or system folders, (number, name) each; `labels`: whether the numbers are classes."""
    shown = ", ".join(f"{name} as class {number}" if labels else name for number, name in folders[:_SHOWN])
    remainder = f" and {len(folders) - _SHOWN} more" if len(folders) > _SHOWN else ""
    return f"hidden or system folders are listed like all others: {shown}{remainder}"


def in_directories(
    root: Path,
    store: Store,
    keep_file: Test,
    keep_dir: Test = lambda name: True,
    include_root: bool = False,
    is_sample: Test | None = None,
) -> Listing:
    """The files in each sub-directory of `root`, both in byte order. Deeper levels are not listed.

    Args:
      keep_file: the names of files that are listed.
      keep_dir: the names of sub-directories that are listed.
      include_root: whether the files of `root` itself come first, as those of a directory ``.``.
      is_sample: the names of files that a user would miss. Default: those that `keep_file` accepts.

    Raises:
      RuntimeError: a directory can't be listed.
    """
    listing = Listing(plain(root))
    list_all = _list_urls if is_url(listing.root) else _list_directories
    is_sample = is_sample or keep_file
    folders, deeper = list_all(listing, store, keep_file, keep_dir, include_root, is_sample)
    listing.folders = [
        (k, os.fsdecode(name)) for k, name in enumerate(folders) if name != b"." and _is_system_folder(name)
    ]
    # By name: the first name of this kind in byte order, and the first one after all of them.
    system_files = {"._*": (_APPLE_DOUBLE, _AFTER_APPLE_DOUBLE)}
    system_files |= {os.fsdecode(name): (name, name + b"\0") for name in _SYSTEM_FILES if keep_file(name)}
    for folder, names in zip(folders, listing.names, strict=True):
        prefix = b"" if folder == b"." and is_url(listing.root) else folder + b"/"
        for name, (first, end) in system_files.items():
            # `names` is sorted, so those of this kind are between the two places.
            if count := bisect_left(names, prefix + end) - bisect_left(names, prefix + first):
                listing.system_files[name] += count
    _count_deeper(listing, store, deeper, is_sample)
    return listing


def _list_directories(
    listing: Listing, store: Store, keep_file: Test, keep_dir: Test, include_root: bool, is_sample: Test
) -> tuple[list[bytes], list[bytes]]:
    """Fills in the names of local files, and counts the samples that are left out. Returns the sub-directories, and the
    directories in them.
    """
    directory, deeper = os.fsencode(listing.root), list[bytes]()
    try:
        with os.scandir(directory) as entries:
            folders, files = list[bytes](), list[bytes]()
            for entry in entries:
                if not entry.is_dir():
                    files.append(entry.name)
                elif keep_dir(entry.name):
                    folders.append(entry.name)
        # With `include_root` the root itself is the first directory, ".".
        folders = [b"."] * include_root + sorted(folders)
        listing.in_root = 0 if include_root else _count_visible(files, is_sample)
        for folder in folders:
            names = []
            with os.scandir(os.path.join(directory, folder)) as entries:
                for entry in entries:
                    if keep_file(entry.name):
                        # A broken link is listed, so that reading it fails with its name. Otherwise the sample would be
                        # missing silently.
                        if entry.is_file() or (entry.is_symlink() and not entry.is_dir()):
                            names.append(folder + b"/" + entry.name)
                            continue
                    elif is_sample(entry.name) and entry.is_file():
                        listing.leave_out(entry.name)
                        continue
                    # One more than the limit, so that `_count_deeper` knows that it does not look at all of them.
                    if (
                        folder != b"."
                        and len(deeper) <= _DEEPER_FOLDERS
                        and entry.is_dir()
                        and not _is_system_folder(entry.name)
                    ):
                        deeper.append(folder + b"/" + entry.name)
            listing.names.append(sorted(names))
    except OSError as error:
        path = _described_path(listing.root, os.fsdecode(error.filename or listing.root))
        raise RuntimeError(f"can't list file_root {unreadable(path, error)}") from None
    return folders, deeper


def _list_urls(
    listing: Listing, store: Store, keep_file: Test, keep_dir: Test, include_root: bool, is_sample: Test
) -> tuple[list[bytes], list[bytes]]:
    """Like `_list_directories`, for a URL: fills in names and sizes, and counts the samples that are left out. Returns
    the sub-directories, and the directories in them.
    """
    root, deeper, sizes = listing.root, list[bytes](), list[int]()
    try:
        (top,) = store.entries([root])
        folders = [entry.name for entry in top if entry.is_dir and keep_dir(os.fsencode(entry.name))]
        contents = store.entries([join(root, name) for name in folders])
    except OSError as error:
        raise RuntimeError(
            f"can't list file_root {_described_path(root, error.filename)}: {error.strerror}"
        ) from error.__cause__
    listing.in_root = (
        0 if include_root else _count_visible((os.fsencode(entry.name) for entry in top if not entry.is_dir), is_sample)
    )
    # With `include_root` the root itself is the first directory, ".".
    for folder, entries in [(".", top)] * include_root + list(zip(folders, contents)):
        names = []
        for entry in entries:
            name = os.fsencode(entry.name)
            if entry.is_dir:
                if folder != "." and not _is_system_folder(name):
                    deeper.append(os.fsencode(f"{folder}/{entry.name}"))
            elif keep_file(name):
                names.append(name if folder == "." else os.fsencode(f"{folder}/{entry.name}"))
                sizes.append(entry.size)
            elif is_sample(name):
                listing.leave_out(name)
        listing.names.append(names)
    listing.sizes = sizes
    return [b"."] * include_root + [os.fsencode(name) for name in folders], deeper


def _count_deeper(listing: Listing, store: Store, folders: list[bytes], is_sample: Test):
    """Counts the samples in folders, and in the folders below them, up to the limits `_DEEPER_...`. Fills in `deeper`,
    `example` and `complete` of the listing.
    """
    # Folders that may still be looked at. Each round looks at one level, and then goes to the one below.
    budget = _DEEPER_URLS if is_url(listing.root) else _DEEPER_FOLDERS
    while folders and budget:
        listing.complete &= len(folders) <= budget
        folders, budget = folders[:budget], max(budget - len(folders), 0)
        below = []
        for folder, entries in zip(folders, _first_entries(listing, store, folders)):
            count = _count_visible((name for name, is_dir in entries if not is_dir), is_sample)
            listing.example = listing.example or (os.fsdecode(folder) if count else "")
            listing.deeper += count
            listing.complete &= len(entries) < _DEEPER_ENTRIES
            below += [folder + b"/" + name for name, is_dir in entries if is_dir and not _is_system_folder(name)]
        folders = below
    listing.complete &= not folders


def _first_entries(listing: Listing, store: Store, folders: Sequence[bytes]) -> list[list[tuple[bytes, bool]]]:
    """(name, whether it is a directory) for the first entries of each folder. A folder that can't be listed has
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


def _count_visible(names: Iterable[bytes], is_sample: Test) -> int:
    """The number of samples that are not hidden."""
    return sum(not name.startswith(b".") and is_sample(name) for name in names)


def _is_system_folder(folder: bytes) -> bool:
    """Whether a folder is hidden, or made by the operating system or by Python."""
    return folder.startswith(b".") or folder in _SYSTEM_FOLDERS


def _described_path(root: str, path: str) -> str:
    """The root and a directory in it, for a message."""
    return root if path.rstrip("/") == root.rstrip("/") else f"{root}: {path}"
