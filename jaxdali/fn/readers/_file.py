"""readers.file: whole files and their labels."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import ArgumentError, quoted
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.redaction import redacted
from ..._core.values import Spec
from ..._data.directories import Listing, counted, in_directories, is_apple_double
from ..._data.files import Files, Path, as_list, check_file_arguments, matcher, names_in_list, read_lines, root_of
from ..._data.records import Records
from ..._data.storage import Store
from .._decode.formats import EXTENSIONS, decodable_extensions
from ._reader import Reader, StoredArguments

FILE_FILTERS = tuple(
    f"*.{e}"
    for e in (
        "jpg",
        "jpeg",
        "png",
        "bmp",
        "tif",
        "tiff",
        "pnm",
        "ppm",
        "pgm",
        "pbm",
        "jp2",
        "webp",
        "flac",
        "ogg",
        "wav",
    )
)
IMAGES = "images"  # a filter that stands for the images that can be decoded here
# Extensions of the images that can be decoded if all optional packages are installed.
_DECODABLE = frozenset(x for extensions in EXTENSIONS.values() for x in extensions)
_SOUND = frozenset((".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".w64", ".wav"))
_OTHER_IMAGES = frozenset(
    ".arw .cr2 .cr3 .dng .exr .hdr .ico .jph .nef .orf .pam .pcx .pfm .psd .qoi .raf .rw2 .svg .tga".split()
)
_IMAGE_EXTENSIONS = frozenset(map(str.encode, _DECODABLE | _OTHER_IMAGES))
_SAMPLE_EXTENSIONS = _IMAGE_EXTENSIONS | frozenset(map(str.encode, _SOUND))


class LabelledFiles(Records):
    """Whole files, each with a label. Native threads read the files of a batch directly into the output.

    Args:
      labels: one integer for each file.
      subject: the source of the labels, for messages.
    """

    specs = (Spec(np.dtype(np.uint8), 1, None), Spec(np.dtype(np.int32), 1, (1,)))

    def __init__(self, files: Files, labels: Any, subject: str):
        """Raises RuntimeError if a label does not fit int32.

        Attributes of `Records` are set here: `stored`, the files, and `digest`, by which checkpoints recognize the list.
        """
        self.files = self.stored = files
        numbers = np.asarray(labels)
        if len(files) and not (-(2**31) <= min(numbers) and max(numbers) < 2**31):
            raise RuntimeError(f"{subject} must fit 32-bit integers, got {min(numbers)} .. {max(numbers)}")
        self.labels = numbers.astype(np.int32)
        digest = self.files.digest.copy()
        digest.update(self.labels.tobytes())
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.files)

    def name(self, i: int) -> str:
        return self.files.name(i)

    def name_of_output(self, i: int, output: int) -> str:
        return "" if output else self.name(i)  # as in DALI

    def read(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return np.frombuffer(self.files.read(i), np.uint8), self.labels[i : i + 1]

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[LabelledFiles, np.ndarray]], threads: Any
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. Local files are read natively, all at once."""
        if any(records.files.remote for records, _ in parts):
            return super().read_batch(ctx, parts, threads)
        packed = Files.read_batch(ctx, [(records.files, index) for records, index in parts])
        return packed, np.concatenate([records.labels[index] for records, index in parts])[:, None]


class FileTuples(Records):
    """Tuples of files that belong together (an image and its mask), each tuple with a label.

    Native threads read the files of a batch.

    Args:
      files: the files of the first tuple, then those of the second, ...
      length: the number of files of a tuple.
      labels: one integer for each tuple.
    """

    def __init__(self, files: Files, length: int, labels: Any):
        """Attributes of `Records` are set here: `specs` of the outputs, which are the files of a tuple and the label,
        `stored`, all files, and `digest`, by which checkpoints recognize the list.
        """
        self.stored = self.files = files
        self._length = length
        self._labels = np.asarray(labels, np.int32)
        self.specs = (Spec(np.dtype(np.uint8), 1, None),) * length + (Spec(np.dtype(np.int32), 1, (1,)),)
        digest = files.digest.copy()
        digest.update(self._labels.tobytes() + str(length).encode())
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._labels)

    def name(self, i: int) -> str:
        return self.files.name(i * self._length)

    def name_of_output(self, i: int, output: int) -> str:
        return self.files.name(i * self._length + output) if output < self._length else ""

    def full_name(self, i: int) -> str:
        return self.files.path(i * self._length)

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. Credentials in URLs are hidden here; `ListSource` hides those of "filename" only."""
        return super().facts() | {
            "filenames": lambda i: [redacted(self.files.path(i * self._length + k)) for k in range(self._length)]
        }

    def ahead(self, index: np.ndarray, now: int) -> None:
        self.files.ahead((index[:, None] * self._length + np.arange(self._length)).reshape(-1), now * self._length)

    def read(self, i: int) -> tuple[np.ndarray, ...]:
        contents = [np.frombuffer(self.files.read(i * self._length + k), np.uint8) for k in range(self._length)]
        return (*contents, self._labels[i : i + 1])

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[FileTuples, np.ndarray]], threads: Any
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. Of local files, the k-th ones of all tuples are read natively at once."""
        if any(records.files.remote for records, _ in parts):
            return super().read_batch(ctx, parts, threads)
        length = parts[0][0]._length
        columns = [
            Files.read_batch(ctx, [(records.files, index * length + k) for records, index in parts])
            for k in range(length)
        ]
        return (*columns, np.concatenate([records._labels[index] for records, index in parts])[:, None])


class ReadFile(Reader):
    """`readers.file`; the fields are its arguments."""

    name: ClassVar[str] = "readers.file"

    file_root: Path | None
    file_list: Path | None
    files: Path | tuple[Path, ...] | tuple[tuple[Path, ...], ...] | None
    labels: int | tuple[int, ...] | None
    file_filters: str | tuple[str, ...]
    dir_filters: str | tuple[str, ...] | None
    case_sensitive_filter: bool

    def __post_init__(self):
        """Raises ArgumentError if arguments contradict each other."""
        super().__post_init__()
        check_file_arguments(self.file_root, self.file_list, self.files)
        if self.labels is not None:
            if self.files is None:
                raise ArgumentError("labels can only be given together with files")
            files, labels = as_list(self.files), as_list(self.labels)
            if len(files) != len(labels):
                raise ArgumentError(f"files and labels must be equally long, got {len(files)} and {len(labels)}")
        for name, filters in (("file_filters", self.file_filters), ("dir_filters", self.dir_filters)):
            if filters == ():
                raise ArgumentError(f"{name} is empty, so nothing can match")

        # A path that is not in a tuple counts as length 0. A tuple of one path is refused.
        lengths = {len(x) if isinstance(x, tuple) else 0 for x in as_list(self.files) or ()}
        if len(lengths) > 1 or lengths == {1}:
            raise ArgumentError(
                "files must be paths, or tuples of two or more paths that belong together, all of the same length"
            )

    @property
    def tuple_length(self) -> int:
        """The number of files in a tuple; 0 if files are no tuples."""
        first = as_list(self.files)[0]
        return len(first) if isinstance(first, tuple) else 0

    @property
    def num_arrays(self) -> int:
        return 2 if not self.tuple_length else self.tuple_length + 1

    def open(self) -> LabelledFiles | FileTuples:
        """See `Reader.open`. Without `labels`, files or tuples are numbered."""
        if self.tuple_length:
            names = [os.fsencode(f) for paths in as_list(self.files) for f in paths]
            labels = range(len(as_list(self.files))) if self.labels is None else as_list(self.labels)
            return FileTuples(Files(self.file_root or "", names, Store(self.storage)), self.tuple_length, labels)
        if self.files is not None:
            names = [os.fsencode(f) for f in as_list(self.files)]
            labels = range(len(names)) if self.labels is None else as_list(self.labels)
            return LabelledFiles(Files(self.file_root or "", names, Store(self.storage)), labels, "labels")
        if self.file_list is not None:
            return _read_list(self.file_list, self.file_root, Store(self.storage))
        assert self.file_root is not None
        return self._read_folders(self.file_root, Store(self.storage))

    def _read_folders(self, root: Path, store: Store) -> LabelledFiles:
        """Lists the files in the sub-directories of `root`, which are the classes."""
        filters = None if self.dir_filters is None else as_list(self.dir_filters)
        keep_dir = (lambda name: True) if filters is None else matcher(filters, self.case_sensitive_filter)
        listing = in_directories(root, store, self._keep_file(), keep_dir, is_sample=self._is_sample())
        classes, sizes = listing.names, listing.sizes
        if not classes:
            raise RuntimeError(
                f"file_root {root} has no sub-directories"
                + ("" if filters is None else f" that match dir_filters {list(filters)}")
                + ": put the files of each class into a separate directory, or pass files without classes as files=[...]"
            )
        names = [name for folder in classes for name in folder]
        if not names:
            text = f"no files in the sub-directories of file_root {root} match file_filters {list(as_list(self.file_filters))}"
            raise RuntimeError(text + self._describe_unlisted(listing))
        labels = np.repeat(np.arange(len(classes)), [len(folder) for folder in classes])
        records = LabelledFiles(Files(root, names, store, sizes), labels, "labels")
        records.doubts = self._doubts(listing)
        return records

    def _keep_file(self) -> Callable[[bytes], bool]:
        """A function that tells whether the name of a file matches `file_filters`."""
        filters = as_list(self.file_filters)
        if IMAGES not in filters:
            return matcher(filters, self.case_sensitive_filter)
        images = matcher([f"*{extension}" for extension in decodable_extensions()], case_sensitive=False)
        # No name has "\0", so this pattern matches none.
        patterns = matcher([x for x in filters if x != IMAGES] or ["\0"], self.case_sensitive_filter)
        return lambda name: (images(name) and not is_apple_double(name)) or patterns(name)

    def _is_sample(self) -> Callable[[bytes], bool] | None:
        """A function that tells by its name whether the user would miss a file that is not listed.

        None if the user has chosen the extensions: then no file outside of them is missed.
        """
        if as_list(self.file_filters) == (IMAGES,):
            return lambda name: name[name.rfind(b".") :].lower() in _IMAGE_EXTENSIONS
        return (
            (lambda name: name[name.rfind(b".") :].lower() in _SAMPLE_EXTENSIONS)
            if self.file_filters == FILE_FILTERS
            else None
        )

    def _doubts(self, listing: Listing) -> list[str]:
        """See `Records.doubts`."""
        if self.dir_filters is not None:  # a folder that the user names is no surprise
            literal = [x for x in as_list(self.dir_filters) if not x.startswith(("*", "?", "["))]
            # No name has "\0", so this pattern matches none.
            is_named = matcher(literal or ["\0"], self.case_sensitive_filter)
            listing.folders = [(k, name) for k, name in listing.folders if not is_named(os.fsencode(name))]
        first_letters = "".join(sorted({name[0] for _, name in listing.folders}))
        advice = f'dir_filters="[!{first_letters}]*" leaves out all that begin like this'
        remedies = {
            "left_out": self._remedy(listing.left_out),
            "folders": advice if self.dir_filters is None else "other dir_filters leave them out",
            "system_files": f'file_filters="{IMAGES}", or patterns such as "[!.]*.jpg", leave them out',
            "deeper": "files= or file_list= names any files",
        }
        return listing.doubts(remedies)

    def _describe_unlisted(self, listing: Listing) -> str:
        """The end of an error: the files that exist and are not listed; "" if there are none."""
        if listing.left_out:
            return f"; there are {counted(listing.left_out)}: {self._remedy(listing.left_out)}"
        if listing.deeper:
            return (
                f"; there are {listing.deeper_text} in deeper folders, such as {listing.example}, which are not entered"
            )
        return ""

    def _remedy(self, left_out: Counter[str]) -> str:
        """Advice on how files that are left out can be listed, from the number of files by extension."""
        extensions, advice = sorted({x.lower() for x in left_out}), []
        if self.file_filters == FILE_FILTERS and any(f"*{x}" in FILE_FILTERS for x in extensions):
            advice.append("case_sensitive_filter=False lists them")
            extensions = [x for x in extensions if f"*{x}" not in FILE_FILTERS]
        if any(x in decodable_extensions() for x in extensions):
            advice.append(f'file_filters="{IMAGES}" lists all images that can be decoded here')
        # `_DECODABLE` are the images that can be decoded here once all optional packages are installed.
        if need_packages := [x for x in extensions if x in _DECODABLE and x not in decodable_extensions()]:
            advice.append(f'{", ".join(need_packages)} can be decoded after pip install "jaxdali[formats]"')
        if undecodable := [x for x in extensions if x not in _DECODABLE]:
            patterns = sorted(
                {
                    f"*{x}" if self.case_sensitive_filter else f"*{x.lower()}"
                    for x in left_out
                    if x.lower() in undecodable
                }
            )
            advice.append(
                f"adding {', '.join(map(repr, patterns))} to file_filters lists {'these' if advice else 'them'}"
            )
        return "; ".join(advice)


def _read_list(path: Path, root: Path | None, store: Store) -> LabelledFiles:
    """Parses the lines ``path label`` of a `file_list`. Paths may contain white space."""
    names, labels = [], []
    for number, line in read_lines(path, store):
        name, _, label = line.replace(b"\t", b" ").rpartition(b" ")
        if not name.strip() or not re.fullmatch(rb"\d{1,20}", label):
            raise RuntimeError(
                f"{path}, line {number}: expected a file name, white space and a label (an integer >= 0), got {quoted(line)}"
            )
        names.append(line[: len(name)].rstrip())
        labels.append(int(label))
    start = root_of(path, root)
    # An array of objects, as a label may be too large for int64: `LabelledFiles` reports it.
    return LabelledFiles(
        Files(start, names_in_list(path, names, start, store), store), np.array(labels, object), f"labels in {path}"
    )


class FileArguments(StoredArguments, total=False):
    """DALI's hints to `file`; files are never mapped here."""

    dont_use_mmap: bool | None


@operator_function(ReadFile)
def file(
    *,
    file_root: Path | None = None,
    file_list: Path | None = None,
    files: Path | Sequence[Path] | Sequence[Sequence[Path]] | None = None,
    labels: int | Sequence[int] | None = None,
    file_filters: str | Sequence[str] = FILE_FILTERS,
    dir_filters: str | Sequence[str] | None = None,
    case_sensitive_filter: bool = False,
    **order: Unpack[FileArguments],
) -> list[DataNode]:
    """Reads whole files, each with a label.

    The files are those in the sub-directories of `file_root` (one class per sub-directory), those named in `file_list`,
    or those given as `files`. Like other readers, it never ends; the iterator's ``reader_name`` divides it into epochs.

    Args:
      file_root: the directory whose sub-directories hold the files. Sub-directories are numbered from 0 in byte order
        of their names (empty ones, too), and the files of each come in byte order; deeper levels are not entered. With
        `file_list` or `files`, relative paths start here.
      file_list: a text file with lines ``path label``; the paths are relative to `file_root`, or else to the list's
        directory.
      files: paths, or (not in DALI) tuples of paths that belong together, such as an image and its mask: ``[("a.jpg",
        "a.png"), ...]``. Each file of a tuple is an output, and order, shards and errors apply to whole tuples.
      labels: one integer per entry of `files`. Default: 0, 1, 2, ...
      file_filters: glob patterns; a file's name in a sub-directory must match one of them. "images" (not in DALI)
        matches all images that can be decoded with the installed packages, also ``.heic``, ``.avif``, ``.gif`` and
        ``.jxl``, but no sound, and no ``._*`` files of macOS. A warning counts the images that the default leaves out,
        and those in deeper folders or beside the sub-directories.
      dir_filters: glob patterns for the names of the sub-directories; only matching ones are numbered. A warning names
        hidden folders that are; ``"[!.]*"`` leaves them out.
      case_sensitive_filter: whether the filters are case-sensitive.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path (of tuples, the first one); "filenames": all paths of a
        tuple; "index": the number in the list; "source_info".

    Returns:
      (contents ``uint8[bytes]``, label ``int32[1]``) of each file; for tuples, the contents of each file, then the
      label. Their source_info is the path (for tuples, the first path) relative to `file_root`, or as given in
      `file_list` or `files`. A batch of labels is ``[N, 1]``, which broadcasts against ``[N]`` to ``[N, N]``: losses
      and accuracies want ``labels[:, 0]``.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, there are no files, or a line of the list is invalid. A file that can't
        be read fails when its batch runs.

    Differs from DALI: `random_shuffle` gives another order.
    """
    ...
