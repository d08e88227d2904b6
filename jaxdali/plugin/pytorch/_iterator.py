"""Iterators that return batches as dictionaries of PyTorch tensors: dense, ragged or sparse."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import torch  # pyright: ignore[reportMissingImports]

from ..._batch.delivery import Delivery
from ..._core import names as _names
from ..._core.building import warn
from ..._core.declaration import checked
from ..._core.graph import Node
from ..._core.operator import EagerOperator
from ..._core.ragged import DeviceSamples
from ..._core.tracebacks import boundaries
from ..._iterator.base import BaseIterator
from ..._iterator.batch import arrays_of, batch_of, metadata_among
from ..._iterator.iterator_options import IteratorOptions, LastBatchPolicy, list_of
from ..._iterator.stream import BatchStream
from ..._pipeline.argument_checks import device_hooks
from ..._pipeline.lease import lease, outputs_of, own_places
from ..._pipeline.pipeline import Pipeline
from ..._plan.plan import Plan, Ref
from ...backend import TensorCPU, TensorGPU
from . import _memory

device_hooks.append(_memory.disable_preallocation)
_DENSE, _SPARSE_LIST, _SPARSE_COO = "dense", "sparse_list", "sparse_coo"


class _TorchIterator(BaseIterator):
    """Base of the iterators: each batch is a list with one dict for each pipeline.

    Attributes:
      _forms: of each output: `_DENSE`, `_SPARSE_LIST` or `_SPARSE_COO`.
      _metadata: the names of outputs that are metadata.
      _partial: whether the last batch of an epoch is cut to its samples.
      _has_size: whether the argument `size` determines the epoch.
      _keepers: the `_TensorKeeper` of each GPU, which keeps tensors alive until PyTorch has read them.
    """

    def _begin(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        options: IteratorOptions,
        dynamic_shape: bool,
        forms: Sequence[str] | None = None,
    ):
        """Leases the pipelines and starts the stream.

        Args:
          pipelines, options, dynamic_shape: as in the constructors.
          forms: `_DENSE`, `_SPARSE_LIST` or `_SPARSE_COO` for each output; None: all are dense.
        """
        _memory.check_memory()
        pipelines = list_of(pipelines)
        options.check_pipelines(pipelines[0], len(pipelines))
        names = list(options.output_map)
        self._forms = tuple(forms) if forms is not None else (_DENSE,) * len(names)
        dynamic_shape = checked(type(self).__name__, "dynamic_shape", bool, dynamic_shape or False)
        # With a reader, the last batch is also cut if the policy is FILL, see the argument `reader_name`.
        if options.reader_name is not None and options.last_batch_policy is LastBatchPolicy.FILL:
            options = dataclasses.replace(options, last_batch_policy=LastBatchPolicy.PARTIAL)
        self._partial = options.last_batch_policy is LastBatchPolicy.PARTIAL
        self._has_size = options.size > 0
        self._keepers: dict[torch.device, _TensorKeeper] = {}
        outputs = outputs_of(pipelines[0])
        if len(names) < len(outputs):
            raise IndexError(
                f"output_map has {len(names)} names, {names}, but the pipeline has {len(outputs)} outputs; name each of them"
            )
        self._metadata = metadata_among(names, outputs)
        key = (type(self), options.common_options, dynamic_shape, self._forms)
        finish = [_TensorMaker(names, self._forms, dynamic_shape) for _ in pipelines]
        # The numbers of the outputs that `_TensorMaker` gets as samples of their own.
        lists = tuple(i for i, form in enumerate(self._forms) if form != _DENSE)
        # With `x64` 64-bit types are kept, whatever JAX's settings are.
        delivery = Delivery(reader=options.reader_name, x64=True, as_sample_lists=lists, names=tuple(names))
        self._start(lease(pipelines, own_places(pipelines), key=key, delivery=delivery, finish=finish), options)

    def _take(self) -> list[dict[str, Any]]:
        """Takes the next batch, and cuts it at the end of the epoch if the policy is PARTIAL."""
        # `valid`: for each pipeline, the number of its first samples that belong to the epoch; None: all of them do.
        batches, valid = self._take_batches()
        assert isinstance(self._stream, BatchStream)
        # Batches with samples that could not be read are not checked, as their tensors may be shorter.
        self._stream.check_full([b for b in batches if not b.ids.unread])
        result = [batch_of(zip(self.output_map, b.outputs), self._metadata) for b in batches]
        # Tensors on a GPU stay alive until PyTorch has read them, see `_TensorKeeper`.
        for t in (
            t for tensors in result for x in arrays_of(tensors).values() for t in (x if isinstance(x, list) else [x])
        ):
            if t.is_cuda:
                self._keepers.setdefault(t.device, _TensorKeeper(t.device)).add(t.detach())
        for keeper in self._keepers.values():
            keeper.end_batch()
        if self._partial and valid is not None and min(valid) < self._stream.batch_size:
            # The first `valid` rows of a batch belong to the epoch. Tensors have no rows for samples that were not
            # read.
            counts = [
                n if b.ids.present is None else int(b.ids.present[:n].sum())
                for b, n in zip(batches, valid, strict=True)
            ]
            # With `size`, pipelines whose samples are all beyond it are left out. With a reader they have empty
            # batches.
            has_samples = [v > 0 or not self._has_size for v in valid]
            result = [
                batch_of([(k, _first(x, n)) for k, x in tensors.items()], self._metadata)
                for tensors, n, is_kept in zip(result, counts, has_samples)
                if is_kept
            ]
        return result


@boundaries
class DALIGenericIterator(_TorchIterator):
    """Iterates over pipelines; each batch is a list with one dict for each pipeline, from the names in `output_map` to
    `torch.Tensor`.

    The tensors have the batch axis first, and are on the device of the pipeline's outputs. They share the memory of
    these (DLPack), which nothing else uses: they may be changed in place, and stay valid as long as they are kept. Only
    inputs and outputs of a `jax_function` that is not compiled are copied, as it may keep them, and so are outputs that
    a pipeline returns twice.

    An output that is metadata (the argument `metadata` of readers) is a list with one Python object for each sample.
    The dict then has a property ``arrays``, a dict of the tensors alone.

    Args:
      pipelines: one `Pipeline`, or a list of them, one per shard.
      output_map: a name for each output.
      size: number of samples in an epoch, of all pipelines together. -1: until a source ends. An epoch also ends where a
        source does, so if that has more samples, the epoch with its last ones is shorter than ``len`` says.
      reader_name: the reader that determines the size of an epoch and its padding. It can't be combined with `size`,
        and FILL becomes PARTIAL with it.
      auto_reset: with True, "yes" or "True", the next epoch begins automatically after StopIteration; with False, None
        or "no", call `reset`.
      fill_last_batch: deprecated. True is ``last_batch_policy=FILL``, False is PARTIAL.
      dynamic_shape: whether the shape of an output's samples may change from batch to batch; if not, that is an error.
      last_batch_padded: without `reader_name`, whether the source pads the last batch instead of wrapping around.
      last_batch_policy: FILL, DROP or PARTIAL. With PARTIAL and `reader_name`, each pipeline's last batch is cut to the
        rest of its shard, which may be empty; with `size`, pipelines after the last sample are missing in the list.
      prepare_first_batch: whether to make the first batch in the constructor, so that its errors are raised there.
      repeat: whether the iterator never ends: at the end of an epoch, ``next()`` begins the next one. Not in DALI.

    Raises:
      ValueError, TypeError: see the arguments.
      IndexError: the pipeline has more outputs than `output_map` names.
      RuntimeError: there is no reader of that name, or there are no data. From `next`: the samples of an output differ
        in shape, within the batch or, without `dynamic_shape`, from the first batch.
      TypeError: from `next`: PyTorch does not support an output's type.

    Differs from DALI: 16, 32 and 64-bit unsigned integers are possible if PyTorch has them, and so is bfloat16. 64-bit
    types are kept even if JAX has x64 disabled. Tensors stay valid after the next batch is taken.
    """

    @_names.suggests_names
    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Iterable[str],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: str | bool | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: bool = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
        repeat: bool = False,
    ):
        options = _options_of(locals())
        self._begin(pipelines, options, dynamic_shape)

    def __next__(self) -> list[dict[str, torch.Tensor]]:
        return self._take()


@boundaries
class DALIClassificationIterator(DALIGenericIterator):
    """A `DALIGenericIterator` with the outputs ``"data"`` and ``"label"``. It takes the other arguments of that class.

    Outputs after these that are metadata are named as the reader names them, e.g. ``"filename"``.
    """

    @_names.suggests_names
    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: str | bool | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: bool = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
        repeat: bool = False,
    ):
        outputs = outputs_of(list_of(pipelines)[0])
        names = ["data", "label", *(x.metadata for x in outputs[2:] if x.metadata is not None)]
        options = _options_of({**locals(), "output_map": names})
        self._begin(pipelines, options, dynamic_shape)


@boundaries
class DALIRaggedIterator(_TorchIterator):
    """Iterates over pipelines whose samples differ in shape; each batch is a list with one dict for each pipeline, from
    names to outputs.

    The tag in `output_types` determines the form of an output:

    * `DENSE_TAG`: a tensor with the batch axis first, as in `DALIGenericIterator`.
    * `SPARSE_LIST_TAG`: a list of tensors, one for each sample, of any shapes. They share the memory of the output.
    * `SPARSE_COO_TAG`: for samples that are vectors, a sparse tensor ``[samples, longest]`` (`torch.sparse_coo_tensor`,
      coalesced): element ``(i, j)`` is the j-th of sample i. All elements are stored, including zeros.

    All may be changed in place, and stay valid as long as they are kept.

    Args:
      pipelines, output_map, size, reader_name, auto_reset, prepare_first_batch, repeat: see `DALIGenericIterator`.
      fill_last_batch, last_batch_padded, last_batch_policy: the same. A last batch is cut in each form: a list has
        fewer tensors, and a sparse tensor fewer rows, with columns for the longest of those.
      output_types: a tag for each output. None: all are dense.
      dynamic_shape: whether the shape of a dense output's samples may change from batch to batch.

    Raises:
      ValueError, TypeError, IndexError, RuntimeError: as in `DALIGenericIterator`. ValueError is also raised for an
        unknown tag, or if the numbers of tags and names differ; RuntimeError from `next` if samples with
        `SPARSE_COO_TAG` are not vectors.

    Differs from DALI: as in `DALIGenericIterator`. Sparse tensors have a row for each sample, even for empty ones at
    the end, and the last batch of them can be cut.

    Example:
      >>> it = DALIRaggedIterator(pipe, ["image", "boxes"], reader_name="reader",
      ...     output_types=[DALIRaggedIterator.DENSE_TAG, DALIRaggedIterator.SPARSE_LIST_TAG])
    """

    DENSE_TAG = _DENSE
    SPARSE_LIST_TAG = _SPARSE_LIST
    SPARSE_COO_TAG = _SPARSE_COO

    @_names.suggests_names
    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Iterable[str],
        size: int = -1,
        reader_name: str | None = None,
        output_types: Sequence[str] | None = None,
        auto_reset: str | bool | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: bool = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
        repeat: bool = False,
    ):
        options = _options_of(locals())
        self._begin(pipelines, options, dynamic_shape, _checked_tags(output_types, list(options.output_map)))

    def __next__(self) -> list[dict[str, torch.Tensor | list[torch.Tensor]]]:
        return self._take()

    def _placed(self, i: int) -> str:
        return f", {self._forms[i]}"


def feed_ndarray(dali_tensor: TensorCPU | TensorGPU, arr: torch.Tensor, cuda_stream: Any = None) -> torch.Tensor:
    """Copies a tensor of a pipeline's output into a PyTorch tensor.

    Args:
      dali_tensor: the tensor to copy, e.g. ``pipeline.run()[0].as_tensor()``.
      arr: the destination, on any device and with any strides, of the same shape and type.
      cuda_stream: a `torch.cuda.Stream`, or the address of a ``cudaStream_t``, on which a copy from or to a GPU runs.
        Default: PyTorch's current stream. Without a GPU it has no effect. The copy is done when the function returns.

    Returns:
      `arr`.

    Raises:
      TypeError: `dali_tensor` is not a tensor (but a list, for example), or its type differs from that of `arr`.
      ValueError: the shapes differ.
    """
    if not isinstance(dali_tensor, (TensorCPU, TensorGPU)):
        raise TypeError(
            f"feed_ndarray copies a TensorCPU or TensorGPU, got {type(dali_tensor).__name__}; use as_tensor() on a list"
        )
    if not isinstance(arr, torch.Tensor):
        raise TypeError(f"arr must be a torch.Tensor, got {type(arr).__name__}")
    if tuple(arr.shape) != tuple(dali_tensor.shape()):
        raise ValueError(
            f"the shapes differ: {tuple(dali_tensor.shape())} is to be copied to a tensor of {tuple(arr.shape)}"
        )
    name = dali_tensor._array.dtype.name
    if arr.dtype != getattr(torch, name, None):
        raise TypeError(f"the types differ: {name} is to be copied to a tensor of {arr.dtype}")
    if not arr.numel():
        return arr
    if isinstance(dali_tensor, TensorCPU) and arr.device.type == "cpu" and arr.is_contiguous():
        dali_tensor.copy_to_external(arr.data_ptr())
        return arr
    if isinstance(dali_tensor, TensorCPU):
        # NumPy, which holds the memory, can't export all types to DLPack.
        source = torch.empty(arr.shape, dtype=arr.dtype)
        dali_tensor.copy_to_external(source.data_ptr())
    else:
        source = torch.from_dlpack(dali_tensor._array)
    with torch.no_grad(), _on_stream(cuda_stream, source.device if source.is_cuda else arr.device) as stream:
        arr.copy_(source)
        if stream is not None:
            stream.synchronize()  # the source may be gone afterwards
    return arr


class _TensorMaker:
    """Converts the outputs of one pipeline to tensors.

    It is called in the thread that checks the batches, so that `next` has little to do.

    Args:
      names, forms: of the outputs.
      dynamic_shape: whether shapes may change from batch to batch.
    """

    def __init__(self, names: Sequence[str], forms: Sequence[str], dynamic_shape: bool):
        self._names = names
        self._forms = forms
        self._shapes: dict[str, tuple[int, ...]] = {}  # of a sample of each dense output, in the first batch
        self._dynamic_shape = dynamic_shape

    def __call__(self, plan: Plan, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Converts the arrays of a batch to tensors; returns metadata unchanged.

        Args:
          plan: of the pipeline.
          outputs: arrays, samples in one buffer (`DeviceSamples`) for the forms of lists, or metadata.
        """
        if not self._dynamic_shape:
            self._check_shapes(plan, outputs)
        arrays = [x.data if isinstance(x, DeviceSamples) else x for x in outputs]
        metadata = [plan.spec(ref).is_metadata for ref in plan.outputs]
        # The arrays must be complete before PyTorch uses them, as it may do so on any stream.
        jax.block_until_ready([x for x, is_metadata in zip(arrays, metadata) if not is_metadata])
        shared_refs = _shared_refs(plan)
        seen_pointers, results = set(), []
        for name, form, ref, output, array, is_metadata in zip(
            self._names, self._forms, plan.outputs, outputs, arrays, metadata
        ):
            if is_metadata:
                results.append(output)
                continue
            node = plan.maker(ref).node
            tensor = _to_tensor(array, name, node)
            # The user may change a tensor, so it must not share memory with a user's function or with another output.
            is_copied = ref in shared_refs or tensor.data_ptr() in seen_pointers
            if is_copied:
                tensor = tensor.clone()
            seen_pointers.add(tensor.data_ptr())
            result: torch.Tensor | list[torch.Tensor] = tensor
            if form != _DENSE:
                samples = _sample_views(tensor, output)
                result = samples if form == _SPARSE_LIST else _sparse(samples, tensor, name, node)
            # Copies run on this thread's stream, but the user may read the tensor on another one.
            if tensor.is_cuda and (is_copied or form == _SPARSE_COO):
                torch.cuda.current_stream(tensor.device).synchronize()
            results.append(result)
        return tuple(results)

    def _check_shapes(self, plan: Plan, outputs: Sequence[Any]):
        """Raises an error if the samples of a dense output have another shape than in the first batch."""
        for name, form, ref, array in zip(self._names, self._forms, plan.outputs, outputs):
            if form != _DENSE or plan.spec(ref).is_metadata or not len(array):  # empty if no sample could be read
                continue
            assert isinstance(array, jax.Array)
            shape = array.shape[1:]
            first_shape = self._shapes.setdefault(name, shape)
            if shape != first_shape:
                raise plan.maker(ref).node.error(
                    f"the samples of output {name!r} had the shape {first_shape} in batches before, now it is {shape}; "
                    "pass dynamic_shape=True to allow that"
                )


def _sample_views(tensor: torch.Tensor, output: jax.Array | DeviceSamples) -> list[torch.Tensor]:
    """The samples of an output, as views of `tensor`, which has the memory of its array."""
    if isinstance(output, DeviceSamples):
        return [
            tensor[start : start + math.prod(shape)].view(shape) for start, shape in zip(output.starts, output.shapes)
        ]
    return [tensor[i] for i in range(len(tensor))]


def _sparse(samples: list[torch.Tensor], memory: torch.Tensor, name: str, node: Node) -> torch.Tensor:
    """Makes a sparse tensor in new memory, with the samples, which are vectors, as rows.

    Args:
      memory: a tensor with the device and type of the samples.
      name, node: of the output, for messages.
    """
    ndim = next((t.ndim for t in samples if t.ndim != 1), 1)
    if ndim != 1:
        raise node.error(
            f"output {name!r} has SPARSE_COO_TAG, which is for vectors, but samples of {ndim} dimensions; use SPARSE_LIST_TAG"
        )
    lengths = [len(t) for t in samples]
    rows = torch.repeat_interleave(torch.arange(len(samples)), torch.tensor(lengths, dtype=torch.int64))
    # Empty tensors come first, as there may be no sample.
    columns = torch.cat([torch.arange(0), *map(torch.arange, lengths)])
    values = torch.cat([memory.new_empty(0), *samples])
    return _coo(torch.stack([rows, columns]).to(values.device), values, (len(samples), max(lengths, default=0)))


def _coo(indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False)


def _first(x: torch.Tensor | list[torch.Tensor], n: int) -> torch.Tensor | list[torch.Tensor]:
    """The first `n` samples of an output. A sparse tensor, whose rows are samples, gets fewer columns, too."""
    if isinstance(x, list) or not x.is_sparse:
        return x[:n]
    # The elements of a coalesced tensor are in the order of the rows.
    rows, _ = x.indices()
    count = int((rows < n).sum())
    indices = x.indices()[:, :count]
    _, columns = indices
    return _coo(indices, x.values()[:count], (min(n, len(x)), int(columns.max()) + 1 if count else 0))


def _shared_refs(plan: Plan) -> frozenset[Ref]:
    """The values that an eager user function may still refer to: arrays that it returned or was given.

    It is known after a batch: the first one tells whether a function is compiled, and a later one may end that.
    """
    eager = [s for s in plan.steps if isinstance(s.op, EagerOperator) and not s.op.compiled]
    return frozenset(r for s in eager for r in (*s.inputs, *s.outputs))


class _TensorKeeper:
    """Keeps tensors on a GPU alive that PyTorch may still use.

    XLA gives memory to its next program as soon as the last tensor on it is freed, but kernels that PyTorch has queued
    may still read it. So the tensors of a batch are kept until the kernels have run that were queued when the next
    batch was requested.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._batch: list[torch.Tensor] = []
        self._last_batch: list[torch.Tensor] = []
        # CUDA events, each recorded when a batch was taken, with the tensors of the batch before it.
        self._waiting: collections.deque[tuple[Any, list[torch.Tensor]]] = collections.deque()

    def add(self, tensor: torch.Tensor):
        """Adds a tensor of the batch that is being taken."""
        self._batch.append(tensor)

    def end_batch(self):
        """Ends the batch, and frees the tensors that no queued kernel can read any more."""
        if self._last_batch:
            self._waiting.append((torch.cuda.current_stream(self._device).record_event(), self._last_batch))
        self._last_batch, self._batch = self._batch, []
        while self._waiting:
            event, _ = self._waiting[0]
            if not event.query():
                break
            self._waiting.popleft()


def _to_tensor(array: jax.Array, name: str, node: Node) -> torch.Tensor:
    """Makes a tensor that shares the memory of an array."""
    device = next(iter(array.devices()))
    if device.platform != "cpu" and not torch.cuda.is_available():
        raise node.error(
            f"output {name!r} is on {device}, which this PyTorch ({torch.__version__}) can't use: it finds no GPU"
        )
    try:
        return torch.from_dlpack(array)
    except (BufferError, RuntimeError) as e:
        raise TypeError(
            f"{node.op.name} (created at {node.where}): output {name!r} is of type {array.dtype}, which PyTorch {torch.__version__} "
            f"does not support; use fn.cast(..., dtype=...) ({e})"
        ) from e


def _options_of(arguments: Mapping[str, Any]) -> IteratorOptions:
    """The options among the arguments of a constructor, with a warning if the deprecated `fill_last_batch` is given."""
    fill_last_batch = arguments["fill_last_batch"]
    if fill_last_batch is None:
        return IteratorOptions.of(arguments)
    policy = LastBatchPolicy.FILL if fill_last_batch else LastBatchPolicy.PARTIAL
    warn(f"fill_last_batch={fill_last_batch} is deprecated: use last_batch_policy={policy}", DeprecationWarning)
    return IteratorOptions.of({**arguments, "last_batch_policy": policy})


def _checked_tags(tags: Sequence[str] | None, names: Sequence[str]) -> Sequence[str] | None:
    """Checks that `output_types` has a valid tag for each name in `output_map`. Returns it; None: all are dense."""
    tags_by_name = {"DENSE_TAG": _DENSE, "SPARSE_LIST_TAG": _SPARSE_LIST, "SPARSE_COO_TAG": _SPARSE_COO}
    if tags is None:
        return None
    if isinstance(tags, str) or not isinstance(tags, Sequence) or not all(t in tags_by_name.values() for t in tags):
        raise ValueError(
            f"output_types must be a list of {', '.join(f'{name} ({tag!r})' for name, tag in tags_by_name.items())}, got {tags!r}"
        )
    if len(tags) != len(names):
        raise ValueError(
            f"output_types must have a tag for each of the {len(names)} names in output_map, got {len(tags)}"
        )
    return tags


@contextlib.contextmanager
def _on_stream(stream: Any, device: torch.device):
    """Makes a stream of a GPU PyTorch's current one, and yields it.

    Args:
      stream: a `torch.cuda.Stream`, or the address of a ``cudaStream_t``; None: the current stream.
      device: of the stream. If it is no GPU, None is yielded.
    """
    if device.type != "cuda":
        yield None
    elif stream is None:
        yield torch.cuda.current_stream(device)
    else:
        if not isinstance(stream, torch.cuda.Stream):
            stream = torch.cuda.ExternalStream(
                stream.value if isinstance(stream, ctypes.c_void_p) else int(stream), device
            )
        with torch.cuda.stream(stream):
            yield stream
