"""readers.numpy: arrays from .npy files."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ... import _cpu
from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError, unreadable
from ..._core.graph import DataNode
from ..._core.operator_function import OneOrMore, PerSample, operator_function
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec
from ..._cpu import Status
from ..._data.directories import in_directories
from ..._data.files import (
    Files,
    Path,
    Paths,
    as_list,
    check_file_arguments,
    matcher,
    names_in_list,
    native_error,
    read_lines,
    refused_files,
    root_of,
)
from ..._data.npy import header_size, parse_header
from ..._data.ranges import error_text
from ..._data.records import Records
from ..._data.storage import Store
from ._reader import Reader, StoredArguments
from ._regions import REGION, CutRegion, Region

_HEAD_SIZE = 256  # bytes of a file that are read first: most headers have 128


class _Arrays(Records):
    """The arrays in a list of files. All have the type and the number of dimensions of the first.

    Attributes:
      whole: the spec of whole arrays, of which a region may be the output.

    A header is (shape, whether in Fortran order, dtype, offset of the elements). `_common_header` is (bytes of the
    header, shape) of the first file, as long as all files have had this header; None otherwise.
    """

    def __init__(self, files: Files, op: ReadNumpy):
        """Reads the header of the first file, which determines the type and the number of dimensions.

        Attributes of `Records` are set here: `specs` of the output, `stored`, the files, and `digest`, by which
        checkpoints recognize the list.
        """
        self._files = self.stored = files
        self._op = op
        self._region_arguments = dict(op.args.static)
        self._headers: dict[int, Any] = {}  # the results of `_header` by file, if the user wants them to be kept
        self._sizes = np.zeros(len(files), np.int64)  # sizes of the files when their headers were read
        self.digest = files.digest.hexdigest()[:16]
        try:
            shape, fortran, dtype, start = self._header(0, files.read(0) if files.remote else None)
            # Files with this header are read at once: the elements follow it, and are stored as the output needs them.
            self._common_header: tuple[bytes, tuple[int, ...]] | None = None
            if not files.remote and shape and dtype.isnative and not (fortran and len(shape) > 1):
                self._common_header = files.store.read(files.path(0), 0, start), shape
        except (OSError, ValueError) as e:
            self.close()
            if isinstance(e, OSError):
                raise RuntimeError(f"can't read {unreadable(files.path(0), e)}") from e.__cause__
            raise RuntimeError(f"{files.path(0)}: {e}") from e
        self.whole = Spec(dtype.newbyteorder("="), len(shape), None if shape else ())
        try:
            self.specs = (self.whole if op.region is None else op.region.spec(self.whole, op.args),)
        except ValueError as e:
            self.close()
            raise RuntimeError(f"{files.path(0)}: {e}") from e

    def __len__(self) -> int:
        return len(self._files)

    def name(self, i: int) -> str:
        return self._files.name(i)

    def _header(self, i: int, head: bytes | None, size: int = -1) -> tuple[tuple[int, ...], bool, np.dtype, int]:
        """(shape, whether in Fortran order, dtype, offset of the elements) of a file.

        Args:
          head: the first bytes of the file (of `size` bytes), or all of them; None: they are read here.

        Raises:
          OSError, ValueError: the file can't be read, or is damaged.
        """
        if i in self._headers:
            return self._headers[i]
        if head is None or len(head) < min(size, header_size(head)):
            path = self._files.path(i)
            size = self._files.store.size(path)  # refuses a pipe, where `open` would wait for a writer
            with open(path, "rb") as f:
                head = f.read(_HEAD_SIZE)
                head += f.read(max(header_size(head) - len(head), 0))
        start = header_size(head)
        shape, fortran, dtype, min_size = parse_header(head[:start])
        self._sizes[i] = size = max(size, len(head))
        if size < min_size:
            raise ValueError("it is shorter than its header says")
        header = shape, fortran, dtype, start
        if self._op.cache_header_information:
            self._headers[i] = header
        return header

    def _headers_of(self, index: np.ndarray, pool: int) -> list[Any]:
        """The headers of local files, checked for type and dimensions; the reason in place of an invalid one, a str."""
        heads_or_errors: dict[int, Any] = {}
        unknown = np.array([i for i in index.tolist() if i not in self._headers], np.int64)
        # Natively, all at once; headers that are longer are read again one by one.
        heads, sizes, error = (
            np.empty((len(unknown), _HEAD_SIZE), np.uint8),
            np.empty(len(unknown), np.int64),
            np.empty(len(unknown), np.int32),
        )
        _cpu.file_heads(self._files.table, unknown, heads, sizes, error, pool)
        content = heads.tobytes()
        for k, (i, size, e) in enumerate(zip(unknown.tolist(), sizes.tolist(), error.tolist())):
            head = content[k * _HEAD_SIZE : k * _HEAD_SIZE + min(size, _HEAD_SIZE)]
            path = self._files.path(i)
            heads_or_errors[i] = unreadable(path, native_error(e, path)) if e else (head, size)
        headers: list[Any] = []
        for i in index.tolist():
            # A str is an error, a tuple has the arguments of `_checked_header` after `i`; (None,): the header is known.
            try:
                headers.append(
                    x if isinstance(x := heads_or_errors.get(i, (None,)), str) else self._checked_header(i, *x)
                )
            except OSError as e:
                headers.append(f"{e.filename}: {e.strerror}")
            except ValueError as e:
                headers.append(f"{self._files.path(i)}: {e}")
        return headers

    def _checked_header(
        self, i: int, head: bytes | None, size: int = -1
    ) -> tuple[tuple[int, ...], bool, np.dtype, int]:
        """The header of an array, checked for type and dimensions. The arguments are those of `_header`."""
        shape, _, dtype, _ = header = self._header(i, head, size)
        if len(shape) != self.whole.ndim or (dtype != self.whole.dtype and dtype.newbyteorder("=") != self.whole.dtype):
            raise ValueError(
                f"it has {len(shape)} dimensions of {dtype.name}, the first file {self.whole.ndim} of {self.whole.dtype}; "
                "all files must have one type and one number of dimensions"
            )
        return header

    def read(self, i: int) -> tuple[np.ndarray]:
        """See `Records.read`: the array of file `i`, or its region, in C order and native byte order."""
        fetched = self._files.read(i) if self._files.remote else None
        shape, fortran, dtype, start = self._checked_header(i, fetched)
        path, order, region = self._files.path(i), "F" if fortran else "C", self._op.region
        if fetched is not None:
            x = np.frombuffer(fetched, dtype, math.prod(shape), start).reshape(shape, order=order)
        elif region is None or self._op.dont_use_mmap or not math.prod(shape):
            self._files.store.check_file(math.prod(shape) * dtype.itemsize, path)
            x = np.fromfile(path, dtype, math.prod(shape), offset=start).reshape(shape, order=order)
        else:
            x = np.memmap(path, dtype, "r", start, shape, order)
        if region is not None:
            # A copy, so that mapped memory is read here, in the reader's thread.
            x = np.array(region.cut(x, self._region_arguments))
        return (np.array(x, self.whole.dtype, order="C", copy=None),)

    @classmethod
    def read_batch(cls, ctx: HostContext, parts: Sequence[tuple[_Arrays, np.ndarray]], threads: Any) -> tuple[Any, ...]:
        """See `Records.read_batch`. Whole arrays of local files are read natively, except scalars."""
        if any(records._op.region or records._files.remote or not records.whole.ndim for records, _ in parts):
            return super().read_batch(ctx, parts, threads)
        if (packed := cls._read_with_common_header(ctx, parts)) is not None:
            return (packed,)
        # A header begins with the shape. A str is the reason why a header is invalid; its array is empty.
        headers = [h for records, index in parts for h in records._headers_of(index, ctx.pool)]
        whole = parts[0][0].whole
        shapes = np.array([(0,) * whole.ndim if isinstance(h, str) else h[0] for h in headers], np.int64).reshape(
            ctx.N, whole.ndim
        )
        refused = refused_files(
            parts[0][0]._files.store, shapes.prod(axis=1) * whole.dtype.itemsize, lambda: ctx.free_bytes(1)
        )
        for k, reason in refused.items():
            records, i = [(records, i) for records, index in parts for i in index.tolist()][k]
            headers[k], shapes[k] = f"{records._files.path(i)}: {reason}", 0
        offsets, num_elements = plan_offsets(shapes, ctx.S)
        packed = Packed(ctx.empty(num_elements, whole.dtype, 0), offsets, shapes)  # memory of output 0
        starts = packed.starts
        first = 0
        for records, index in parts:
            for k, reason in enumerate(records._read_to(packed, starts, headers, first, index, ctx.pool), first):
                if reason:
                    ctx.fail(k, Status.READ_ERROR, reason)
            first += len(index)
        return (packed,)

    @classmethod
    def _read_with_common_header(cls, ctx: HostContext, parts: Sequence[tuple[_Arrays, np.ndarray]]) -> Packed | None:
        """Reads arrays whose files have the same header as the first one, header and elements at once.

        Returns None if a header differs, or a file can't be read.
        """
        shapes = []
        for records, index in parts:
            if records._common_header is None:
                return None
            _, shape = records._common_header
            shapes.append(np.broadcast_to(np.array(shape, np.int64), (len(index), len(shape))))
        whole, shapes = parts[0][0].whole, np.concatenate(shapes)
        if refused_files(
            parts[0][0]._files.store, shapes.prod(axis=1) * whole.dtype.itemsize, lambda: ctx.free_bytes(1)
        ):
            return None
        offsets, num_elements = plan_offsets(shapes, ctx.S)
        packed = Packed(ctx.empty(num_elements, whole.dtype, 0), offsets, shapes)  # memory of output 0
        item_size, starts, sizes = whole.dtype.itemsize, packed.starts, shapes.prod(axis=1)
        out, first = packed.data.reshape(-1).view(np.uint8), 0
        for records, index in parts:
            assert records._common_header is not None
            samples, error = slice(first, first + len(index)), np.empty(len(index), np.int32)
            table, (head, _) = records._files.table, records._common_header
            _cpu.read_files_behind(
                table, index, head, out, starts[samples] * item_size, sizes[samples] * item_size, error, ctx.pool
            )
            if error.any():
                if (error == _cpu.OTHER_HEAD).any():
                    records._common_header = None  # so that no further file is read twice
                return None
            first = samples.stop
        return packed

    def _read_to(
        self, packed: Packed, starts: np.ndarray, headers: list[Any], first: int, index: np.ndarray, pool: int
    ) -> list[str]:
        """Reads whole arrays, the first one as sample `first`. Returns the reason of each that failed, otherwise "".

        Arrays that are stored in the form of the result are read natively.

        Args:
          starts: where each sample of the batch begins in the data of `packed`, in elements.
          headers: the header, or the reason why it is invalid, of each sample of the batch.
          index: the numbers of the files to read.
        """
        part_headers = headers[first : first + len(index)]
        reasons = [h if isinstance(h, str) else "" for h in part_headers]
        # Whether each array is read natively, and where the elements of those begin in their files.
        plain, begins = [], []
        for header in part_headers:
            is_plain = False
            if not isinstance(header, str):
                shape, fortran, dtype, start = header
                # The order does not matter for vectors, and for a single element or none.
                is_plain = dtype.isnative and (not fortran or min(len(shape), math.prod(shape)) < 2)
                if is_plain:
                    begins.append(start)
            plain.append(is_plain)
        direct = np.flatnonzero(plain)
        item = packed.data.dtype.itemsize
        begin = np.array(begins, np.int64)
        size = packed.shapes[first + direct].prod(axis=1) * item
        out = packed.data.reshape(-1).view(np.uint8)
        errors = _cpu.read_ranges(
            self._files.table, index[direct], begin, out, starts[first + direct] * item, size, self._sizes, pool
        )
        for k, error in errors:
            reasons[direct[k]] = f"{self._files.path(int(index[direct[k]]))}: {error_text(error)}"
        for k in range(len(index)):
            if not plain[k] and not reasons[k]:
                try:
                    packed[first + k][...] = self.read(int(index[k]))[0]
                except (OSError, ValueError) as e:  # the file has just changed
                    reasons[k] = f"{self._files.path(int(index[k]))}: {e}"
        return reasons


class ReadNumpy(Reader):
    """`readers.numpy`; `region` is the part of each file that is read, by the values in `args`; None: the whole."""

    name: ClassVar[str] = "readers.numpy"

    file_root: Path | None
    file_list: Path | None
    files: Paths | None
    file_filter: str
    region: Region | None
    cache_header_information: bool
    dont_use_mmap: bool

    def __post_init__(self):
        super().__post_init__()
        check_file_arguments(self.file_root, self.file_list, self.files)

    def open(self) -> _Arrays:
        """See `Reader.open`."""
        store = Store(self.storage)
        if self.files is not None:
            return _Arrays(Files(self.file_root or "", [os.fsencode(f) for f in as_list(self.files)], store), self)
        if self.file_list is not None:
            names = [name for _, name in read_lines(self.file_list, store)]
            root = root_of(self.file_list, self.file_root)
            return _Arrays(Files(root, names_in_list(self.file_list, names, root, store), store), self)
        assert self.file_root is not None
        # With the default filter, a warning counts files such as "a.NPY", which it leaves out.
        keep = matcher([self.file_filter], case_sensitive=True)
        any_case = matcher([self.file_filter], case_sensitive=False)
        listing = in_directories(
            self.file_root, store, keep, include_root=True, is_sample=any_case if self.file_filter == "*.npy" else None
        )
        remedy = "files= or file_list= names any files"
        remedies = dict.fromkeys(("folders", "system_files", "deeper"), remedy)
        doubts = listing.doubts(remedies | {"left_out": 'file_filter="*.[nN][pP][yY]" lists them'}, labels=False)
        if not any(listing.names):
            text = (
                f"no files in file_root {self.file_root} or its sub-directories match file_filter {self.file_filter!r}"
            )
            raise RuntimeError("; ".join([text, *doubts]))
        arrays = _Arrays(
            Files(self.file_root, [name for names in listing.names for name in names], store, listing.sizes), self
        )
        arrays.doubts = doubts
        return arrays


class NumpyArguments(StoredArguments, total=False):
    """DALI's hints to `numpy`, about reading directly to the GPU."""

    register_buffers: bool | None


@operator_function("readers.numpy")
def numpy(
    *,
    file_root: Path | None = None,
    file_list: Path | None = None,
    files: Paths | None = None,
    file_filter: str = "*.npy",
    roi_start: PerSample[OneOrMore[int]] | None = None,
    rel_roi_start: PerSample[OneOrMore[float]] | None = None,
    roi_end: PerSample[OneOrMore[int]] | None = None,
    rel_roi_end: PerSample[OneOrMore[float]] | None = None,
    roi_shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    rel_roi_shape: Annotated[PerSample[OneOrMore[float]] | None, Range(0)] = None,
    roi_axes: int | Sequence[int] = (),
    out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = "error",
    fill_value: Annotated[float, Range(infinite=True)] = 0.0,
    cache_header_information: bool = False,
    dont_use_mmap: bool = False,
    use_o_direct: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    **order: Unpack[NumpyArguments],  # pyright: ignore[reportGeneralTypeIssues]: this reader's `device` is another
) -> DataNode:
    """Reads arrays, or a region of each, from NumPy's ``.npy`` files.

    The files are those in `file_root` and in its sub-directories, those named in `file_list`, or those given as
    `files`. All must have the same type and number of dimensions. Two readers with the same seed read their lists in
    the same order, for example images and masks.

    Args:
      file_root: a directory. Its own files come first, then those of its sub-directories, both in byte order; deeper
        levels are not entered. With `file_list` or `files`, relative paths start here.
      file_list: a text file with one path per line, relative to `file_root`, or else to the list's directory.
      files: paths.
      file_filter: a case-sensitive glob pattern that a file's name in a directory must match.
      roi_start: where the region begins along each axis: one number for all axes, a list, or a DataNode with the
        numbers of each sample. Default: 0.
      rel_roi_start: the same as a fraction of the extent.
      roi_end: the index after the region's last. Default, without a shape: the array's end.
      rel_roi_end: the same as a fraction of the extent.
      roi_shape: the region's shape.
      rel_roi_shape: the same as a fraction of the array's.
      roi_axes: the axes that these arguments refer to, in their order; negative numbers count from the last. Empty: all
        axes.
      out_of_bounds_policy: what happens when the region reaches outside the array. "error": the sample fails; "pad":
        the missing part is filled with `fill_value`; "trim_to_shape": the region is cut to the array.
      fill_value: the fill value, which is rounded and saturated to the arrays' type.
      cache_header_information: whether to keep the files' headers, which takes memory, but avoids parsing them again in
        later epochs.
      dont_use_mmap: whether to read whole files even for a region; by default the file is mapped then. Regions that
        differ between samples are always cut from whole arrays.
      use_o_direct: has no effect, but needs `dont_use_mmap`, as in DALI.
      device: with "gpu", the result is moved to the accelerator. The host reads the files in any case.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). "filename": the path; "index": the number in the list; "source_info".

    Returns:
      The arrays, in C order, with the type in the files. Their source_info is the path relative to `file_root`, or as
      given in `file_list` or `files`.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, there are no files, or the first file can't be read. Another file that
        can't be read, or a region that does not fit, fails when its batch runs.

    Differs from DALI: all files must have the type of the first one, also those of another shard, as programs are
    compiled for it; `random_shuffle` gives another order; big-endian files are also read.

    Example:
      >>> volumes = fn.readers.numpy(file_root="volumes", roi_start=fn.random.uniform(range=(0, 64), shape=3, dtype=types.INT32),
      ...                            roi_shape=(96, 96, 96), out_of_bounds_policy="pad")
    """
    if use_o_direct and not dont_use_mmap:
        raise ArgumentError("use_o_direct=True needs dont_use_mmap=True")
    values = {"roi_start": roi_start, "rel_roi_start": rel_roi_start, "roi_end": roi_end, "rel_roi_end": rel_roi_end}
    values |= {"roi_shape": roi_shape, "rel_roi_shape": rel_roi_shape}
    # An empty list counts as none, as in DALI. `nodes` are the arguments that differ between samples: then the reader
    # reads whole arrays, and `CutRegion` cuts them.
    args, nodes = Arguments.of({n: None if isinstance(x, tuple) and not x else x for n, x in values.items()}, is_node)
    # The two names of the start, and the four of the end or the shape.
    for group in (REGION[:2], REGION[2:]):
        if len(both := [n for n in group if n in args]) > 1:
            raise ArgumentError(f"{' and '.join(both)} can't be given together; pass one of them")
    region = Region(() if roi_axes == () else as_list(roi_axes), out_of_bounds_policy, fill_value)
    op = ReadNumpy(
        args=Arguments() if nodes else args,
        file_root=file_root,
        file_list=file_list,
        files=files,
        file_filter=file_filter,
        region=region if args.static and not nodes else None,
        cache_header_information=cache_header_information,
        dont_use_mmap=dont_use_mmap,
        **ReadNumpy.shared(order),
    )
    arrays = add(op, device="cpu", name=order.get("name"))
    result = add(CutRegion(region=region, args=args), arrays, *nodes) if nodes else arrays
    return result.gpu() if device == "gpu" else result
