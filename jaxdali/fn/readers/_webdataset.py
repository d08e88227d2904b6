"""readers.webdataset: members of tar archives."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from ... import _cpu
from ..._core.building import add
from ..._core.declaration import DType
from ..._core.errors import ArgumentError, cut, quoted
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import Missing, RecordFormat
from ..._data.archives import HEADER, ArchiveSamples, Members, check_index
from ..._data.containers import ContainerRecords, Extents, RecordField, RecordParts, check_indices
from ..._data.files import Files, Paths, as_list, utf8
from ..._data.own_index import own_indices
from ..._data.storage import Store
from ._reader import ContainerArguments, Reader

_MISSING = {"": Missing.EMPTY, "empty": Missing.EMPTY, "skip": Missing.SKIP, "error": Missing.ERROR}


_MAX_SHOWN = 8  # extensions in a message
# Names of metadata; all other names are extensions of members.
_METADATA_NAMES = ("index", "source_info", "filename", "offset", "__key__", "__url__")
# Conversions of members to Python objects, by extension; members with other extensions are bytes.
_CONVERSIONS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("json", "jsn"), json.loads),
    **dict.fromkeys(("txt", "text", "transcript"), lambda data: utf8(data).decode()),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), lambda data: int(utf8(data))),
}


class _MemberPlaces:
    """The places of the members of all outputs and metadata in their archives, for `Records.stored`."""

    def __init__(self, outputs: Sequence[Extents]):
        self.outputs = outputs

    @property
    def store(self) -> Store:
        return self.outputs[0].store

    @property
    def read_ahead(self) -> int:
        return self.outputs[0].read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        """See `Records.ahead`. A sample is a range for each output and each member that is metadata."""
        ranges = (x.range(i) for i in index.tolist() for x in self.outputs)
        self.store.ahead(ranges, now * len(self.outputs))


class _Samples(ContainerRecords):
    """The samples of archives, with at most one member for each output.

    Attributes:
      outputs: the members of each output. Row i of a `table` is the offset and the size of sample i's member, with its
        header of `HEADER` bytes; zeros if the sample has none.
    """

    def __init__(self, op: ReadWebDataset):
        """Lists the samples of all archives, with the members that are outputs or metadata.

        Attributes of `ContainerRecords` are set here: `fields`, the outputs, `bounds`, the first sample of each archive,
        `stored`, the places of the members, `doubts`, warnings, and `digest`, by which checkpoints recognize the list.
        """
        self._files = files = Files.of(op.paths, op.storage, "paths")
        indices = files.store.expand(op.index_paths) if op.index_paths else None  # as in DALI, an empty list is none
        if indices is None:
            indices = own_indices(op.name, files, functools.partial(check_index, files))
        else:
            check_indices(files, indices)
        dtypes = op.dtypes or (np.dtype(np.uint8),) * op.num_arrays
        self.fields = tuple(RecordField(f"output {k}", k, Spec(t, 1, None), raw=True) for k, t in enumerate(dtypes))
        folds_case = not op.case_sensitive_extensions
        extensions = [(e.lower() if folds_case else e).split(";") for e in as_list(op.ext)]
        self._extensions, self._folds_case = extensions, folds_case  # the alternatives of each output
        metadata_extensions = [n for n in op.metadata_names if n not in _METADATA_NAMES]
        metadata_alternatives = [(n.lower() if folds_case else n).split(";") for n in metadata_extensions]
        self._samples = ArchiveSamples(
            files, indices, [*extensions, *metadata_alternatives], folds_case, _MISSING[op.missing_component_behavior]
        )
        self.doubts = self._check_extensions(op)
        if not len(self._samples):
            paths = ", ".join(map(os.fspath, as_list(op.paths)))
            raise RuntimeError("; ".join([f"there are no samples in {paths}", *self.doubts]))
        self.bounds = self._samples.bounds
        self.outputs = [Members(files, self._samples.table(k), self.bounds) for k in range(op.num_arrays)]
        for k, (x, dtype) in enumerate(zip(self.outputs, dtypes)):
            # Sizes in the table include the header, 512 bytes, which are a multiple of every item's size.
            if dtype.itemsize > 1 and len(odd_sized := np.flatnonzero(x.table[:, 1] % dtype.itemsize)):
                i = int(odd_sized[0])
                problem = f"output {k} of {self._samples.name(i)} has {x.table[i, 1] - HEADER} bytes"
                raise RuntimeError(
                    f"{x.path(i)}: {problem}, which is not a multiple of the {dtype.itemsize} bytes of {dtype}"
                )
        self._metadata_members = {
            n: Members(files, self._samples.table(op.num_arrays + k), self.bounds)
            for k, n in enumerate(metadata_extensions)
        }
        self.stored = _MemberPlaces([*self.outputs, *self._metadata_members.values()])
        # In place of the method `scan` of the class: `RecordParts` finds the members of all outputs in one call, with
        # tables that it prepares here once.
        self.scan = RecordParts(self.outputs).scan
        self.digest = " ".join(x.digest for x in self.outputs)

    def _check_extensions(self, op: ReadWebDataset) -> list[str]:
        """Compares `ext` with the extensions in the archives. Returns texts for `Records.doubts`.

        Raises:
          RuntimeError: no sample has a member, but some have it in other letters (upper or lower case), and the user
            did not ask for empty outputs.
        """
        total, texts, is_any_missing = len(self._samples), list[str](), False
        for k, ext in enumerate(as_list(op.ext)):
            # The number of samples that have it in other letters only, and whether any sample has it as given.
            num_other_case, is_present = self._samples.other_case(k), bool(self._samples.table(k)[:, 1].any())
            is_any_missing |= bool(num_other_case) and not is_present
            if num_other_case:
                subject = f"{num_other_case} samples have" if num_other_case > 1 else "1 sample has"
                texts.append(
                    f"{subject} the member {ext!r} only in other letters (case_sensitive_extensions=False reads it)"
                )
            elif total and not is_present and op.missing_component_behavior != "empty":
                texts.append(f"no sample has the member {ext!r}")
        if not total and not texts:
            texts = [f"no sample has all of the members {', '.join(map(repr, as_list(op.ext)))}"]
        extensions = self._samples.extensions() if texts else []
        if not extensions:
            return []
        shown = f"{cut(', '.join(extensions[:_MAX_SHOWN]))}{', ...' if len(extensions) > _MAX_SHOWN else ''}"
        text = f"{'; '.join(texts)}: the extensions in {self._files.path(0)} are {shown}"
        if is_any_missing and total and not op.missing_component_behavior:
            raise RuntimeError(f'{text}. missing_component_behavior="empty" permits empty outputs')
        return [text]

    def __len__(self) -> int:
        return len(self._samples)

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. All members of a sample are in one archive, so that any output has its path."""
        sample_facts = {
            "filename": self.outputs[0].path,
            "offset": self._offset,
            "__key__": self._key,
            "__url__": self.outputs[0].path,
        }
        return super().facts() | sample_facts

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """See `Records.metadata`. Other names are extensions of members, whose content is converted."""
        member = self._metadata_members.get(name)
        if member is None:
            return super().metadata(name)
        if not member.table[:, 1].any():
            extensions = cut(", ".join(self._samples.extensions()[:_MAX_SHOWN]))
            text = f"no sample has a member of this extension, but of {extensions}; other names are {', '.join(self.facts())}"
            raise ArgumentError(f"metadata {name!r}: {text}")
        # The last part of the last alternative decides: "json" for "seg.json".
        convert = _CONVERSIONS.get(name.rpartition(";")[2].rpartition(".")[2].lower(), bytes)

        def content(i: int) -> Any:
            """The content of the member; None if sample `i` has none."""
            if not member.table[i, 1]:
                return None
            try:
                return convert(member.content(i)[HEADER:])
            except (ValueError, RecursionError) as e:  # of JSON
                raise ValueError(
                    f"{member.path(i)}: the member {name!r} of {quoted(self._key(i))}: {cut(str(e))}"
                ) from e

        return content

    def _first(self, i: int) -> Extents:
        """The members of the first output or metadata for which sample `i` has a member; of output 0 if it has none."""
        return next((x for x in (*self.outputs, *self._metadata_members.values()) if x.table[i, 1]), self.outputs[0])

    def _offset(self, i: int) -> int:
        """The offset of the content of sample `i`'s first member in the archive; 0 if it has none."""
        first = self._first(i)
        return int(first.table[i, 0]) + HEADER if first.table[i, 1] else 0

    def _key(self, i: int) -> str:
        """The path of the members up to the first dot of the file's name."""
        members, name = self._first(i), self._samples.name(i)
        # An index need not have names. A tar header begins with the name, 100 bytes.
        if not name and members.table[i, 1]:
            header = bytes(members.store.read(members.path(i), int(members.table[i, 0]), 100))
            name = header.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        folder, slash, file = name.rpartition("/")
        return f"{folder}{slash}{file.partition('.')[0]}"

    def name(self, i: int) -> str:
        """See `Records.name`. In DALI's form: the archive's path, then offset and name of the first member."""
        first = next((x for x in self.outputs if x.table[i, 1]), self.outputs[0])
        begin = first.table[i, 0] + HEADER if first.table[i, 1] else 0
        return f"{first.path(i)}:{begin}:{self._samples.name(i)}"

    def name_of_output(self, i: int, output: int) -> str:
        """See `Records.name_of_output`; "" if sample `i` has no member for the output."""
        member, name = self.outputs[output], self._samples.name(i)
        if not member.table[i, 1]:
            return ""
        # The name of a sample is that of its first member. If this is another one, its extension has to be replaced.
        if not name or not any(x.table[i, 1] for x in self.outputs[:output]):
            return f"{member.path(i)}:{member.table[i, 0] + HEADER}:{name}"
        folder, _, file = name.rpartition("/")
        stem = f"{folder}/{file.partition('.')[0]}".removeprefix("/") + "."
        return f"{member.path(i)}:{member.table[i, 0] + HEADER}:{stem}{self._extension(i, output, stem)}"

    def _extension(self, i: int, output: int, stem: str) -> str:
        """The extension of the member for an output, as written in the archive."""
        alternatives = self._extensions[output]
        # It is known if there is no choice; otherwise the name is read, the first 100 bytes of a tar header.
        if len(alternatives) == 1 and not self._folds_case:
            return alternatives[0]
        try:
            header = bytes(
                self.outputs[output].store.read(
                    self.outputs[output].path(i), int(self.outputs[output].table[i, 0]), 100
                )
            )
        except OSError:  # the archive is gone
            return alternatives[0]
        name = header.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        extension = name.rpartition("/")[2].partition(".")[2]
        return extension if (extension.lower() if self._folds_case else extension) in alternatives else alternatives[0]

    def new_layout(self) -> _cpu.RecordLayout:
        return _cpu.RecordLayout(RecordFormat.TAR_MEMBER, [], 1, parts=len(self.outputs))


class ReadWebDataset(Reader):
    """`readers.webdataset`; the fields are its arguments."""

    name: ClassVar[str] = "readers.webdataset"

    paths: Paths
    index_paths: Paths | None
    ext: str | tuple[str, ...]
    missing_component_behavior: str
    dtypes: tuple[np.dtype, ...] | None
    case_sensitive_extensions: bool

    def __post_init__(self):
        super().__post_init__()
        if self.dtypes is not None and len(self.dtypes) != self.num_arrays:
            raise ArgumentError(
                f"dtypes must have as many elements as ext, got {len(self.dtypes)} and {self.num_arrays}"
            )

    @property
    def num_arrays(self) -> int:
        return len(as_list(self.ext))

    def open(self) -> _Samples:
        return _Samples(self)


class WebDatasetArguments(ContainerArguments, total=False):
    """DALI's hints to `webdataset`; files are never mapped here."""

    dont_use_mmap: bool | None


@operator_function("readers.webdataset")
def webdataset(
    *,
    paths: Paths,
    index_paths: Paths | None = None,
    ext: str | Sequence[str],
    missing_component_behavior: Literal["", "empty", "skip", "error"] = "",
    dtypes: DType | Sequence[DType] | None = None,
    case_sensitive_extensions: bool = True,
    **order: Unpack[WebDatasetArguments],
) -> DataNode | list[DataNode]:
    """Reads members of tar archives in the format of WebDataset.

    A sample consists of consecutive members whose paths are equal up to the first dot of the file's name; the rest is
    the extension.

    Args:
      paths: paths of the archives, which are read one after another. Patterns (``*``, ``?``, ``[``, ``{a,b}``,
        ``{000..127}``) stand for files, the matches of wildcards in byte order, without ``X.idx`` if they match ``X``. A
        path that exists is literal.
      index_paths: paths or patterns of their indices, one for each or none, as ``python -m jaxdali.index`` (or DALI's
        wds2idx) writes them. Without it, the index ``X.idx`` beside an archive ``X`` is used if it fits it and is not
        older (not in DALI); otherwise one is made in memory when the pipeline is built, with a warning.
      ext: the extension of each output, or several alternatives: "jpg;jpeg;seg.png". Of a sample's matching members,
        the first is read.
      missing_component_behavior: what happens when a sample lacks a member. "empty" (or ""): the output is empty;
        "skip": the sample is left out; "error": an error is raised when the pipeline is built. A warning names members
        that no sample has, but not with "empty". Another one counts samples that have a member only in other letters,
        such as ``.JPG``; with "" it is an error if all do.
      dtypes: element types of the outputs, one for each. Default: uint8.
      case_sensitive_extensions: whether extensions are case-sensitive, as in DALI; the library webdataset writes them
        in lower case.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). Extensions of members, as in `ext`: the content of "json" is parsed; "txt"
        is a `str`; "cls" is an int; others are bytes; None in a sample without the member. Other names are "__key__",
        the path of the members up to the first dot of the file's name; "filename" or "__url__", the path of the
        archive; "offset", in bytes, of the first member; "index": the number in the list; "source_info".

    Returns:
      An output for each entry of `ext`: the member's bytes as a vector of the output's type. Their source_info is the
      archive's path, and the offset and name of the first member.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, an archive or an index can't be read, or a member's size is not a
        multiple of its type's. A member that is not where the index says, or whose archive is truncated or has changed
        since, fails when its batch runs.

    Differs from DALI: long names in PAX headers are understood, `random_shuffle` gives another order, and an output
    that is always empty only because of upper and lower case is an error unless "empty" asks for it.

    Example:
      >>> jpegs, classes = fn.readers.webdataset(paths="train.tar", index_paths="train.tar.idx", ext=["jpg", "cls"])
    """
    dtypes_list = None if dtypes is None else as_list(dtypes)
    op = ReadWebDataset(
        paths=paths,
        index_paths=index_paths,
        ext=as_list(ext),
        missing_component_behavior=missing_component_behavior,
        dtypes=dtypes_list,
        case_sensitive_extensions=case_sensitive_extensions,
        **ReadWebDataset.shared(order),
    )
    return add(op, device="cpu", name=order.get("name"))
