"""Iterators that give batches as dictionaries of jax.Arrays."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from ..._batch.batch import FinishedBatch
from ..._batch.delivery import Delivery
from ..._batch.remote import WorkerBackend
from ..._core import names as _names
from ..._core.building import user_line, warn
from ..._core.declaration import Whole, checked
from ..._core.errors import one_shape
from ..._core.jax_settings import own_settings
from ..._core.tracebacks import boundaries, boundary
from ..._data.source import SampleIds
from ..._iterator import grain_handler
from ..._iterator.base import BaseIterator
from ..._iterator.batch import arrays_of, batch_of, metadata_among
from ..._iterator.iterator_options import LastBatchPolicy, list_of
from ..._iterator.shared import SharedStream
from ..._iterator.stream import BatchStream
from ..._pipeline.checkpoint import for_pipelines
from ..._pipeline.factory import Decorator, Factory, P, R
from ..._pipeline.lease import (
    function_over_processes,
    lease,
    num_outputs,
    outputs_of,
    own_places,
    reads_the_same,
    shard_of_reader,
)
from ..._pipeline.pipeline import ARGUMENTS, Pipeline
from ..._pipeline.pipeline_def import name_of, pipeline_def, split_arguments
from ..._program.sharding import Shards, assemble
from ..._program.transfer import Loading, Messages
from ._placement import BatchAxisPlacement, JaxOptions, Placement, batch_axis_sharding

A = ParamSpec("A")
T = TypeVar("T")


@boundaries
class DALIGenericIterator(BaseIterator):
    """Iterates over pipelines; each batch is a dict from the names in `output_map` to `jax.Array`.

    The arrays have the batch axis first and live on the pipeline's device, or on `sharding`. They are ordinary arrays:
    kept as long as anything refers to them, and safe to donate.

    An output that is metadata (the argument `metadata` of readers) is a list with one Python object for each row of
    this process's shards, in their order, and None for a row without a sample. The batch then has a property
    ``arrays``, a dict of the other entries for `jax.device_put` and jitted functions.

    Args:
      pipelines: one `Pipeline`, or a list of them, one per shard.
      output_map: a name for each output; outputs without a name are left out, with a warning.
      size: number of samples in an epoch, of all pipelines together, also of those in other processes. -1: until a
        source ends. An epoch also ends where a source does, so if that has more samples, the epoch with its last ones is
        shorter than ``len`` says.
      reader_name: the reader that determines the size of an epoch and its padding. It can't be combined with `size`.
      auto_reset: with True, "yes" or "True", the next epoch begins automatically after StopIteration; with False, None
        or "no", call `reset`.
      last_batch_padded: without `reader_name`, whether the source pads the last batch instead of wrapping around.
      last_batch_policy: FILL or DROP; PARTIAL with `mask_name`.
      prepare_first_batch: whether to make the first batch in the constructor, so that its errors are raised there.
      sharding: the sharding of the outputs; the pipelines are its shards, in order. None: the outputs of several
        pipelines are stacked, ``(pipelines, batch, ...)``, and sharded over their devices as `jax.pmap` expects if
        these are distinct. Unlike in DALI, it may be a dict from each name in `output_map` to a sharding; all must cut
        the batch into the same slices. A bare `jax.sharding.PartitionSpec` is on the mesh that is set, see
        `jax.set_mesh`.
      mask_name: the name of a mask, for PARTIAL (not in DALI). As JAX needs static shapes, the last batch keeps its
        size, and each batch gets a further entry of this name: a bool array over the batch axis, True for the samples
        that belong to the epoch. Over all shards and processes, which take the same number of steps, every sample of an
        epoch is True once, except those that a reader left out (``on_error="skip"``, which an iterator that knows its
        size accepts only with a mask). The other rows have unspecified values. The reader starts each epoch at the
        start of a shard, as with ``pad_last_batch=True``. A source of batches may end with a smaller batch, and a
        source of samples (``batch=False``) with an incomplete one; without `mask_name` an incomplete batch is dropped,
        as in DALI, and a warning says how many samples it had. With `size`, the sources of the shards may have
        different lengths: an epoch has as many steps as the longest needs (`len` assumes equal lengths), and the rows
        of a source that has ended are False. With several processes each shard counts an equal part of `size`, rounded
        up, so for sources of unequal lengths pass the length of the longest times the number of shards; the longest
        source of each process must have that length.
      repeat: whether the iterator never ends, for loops that count steps (not in DALI). At the end of an epoch,
        ``next()`` begins the next one; StopIteration is raised only if there are no more data at all. Masks and
        checkpoints are those of an iterator that is reset; ``len`` and `size` are those of an epoch.
      ragged: for outputs whose samples differ in shape, by name, their form in a batch (not in DALI).
        ``ragged={"boxes": None}`` gives a list of `jax.Array` of any shapes, one for each sample of this process, in
        order, on the devices of their shards. ``ragged={"boxes": 100}`` gives ``(boxes, lengths)`` of shapes ``(N, 100,
        ...)`` and ``(N,)`` (i32), on `sharding` like other outputs; all batches have these shapes, so that a jitted
        function compiles once. A longer sample is a `SampleError`, and the other extents must agree. For several ragged
        extents, ``ragged={"masks": (64, 512)}`` gives the limits of the first axes; the lengths are ``(N, 2)``. A
        sample that is missing according to `mask_name` has length 0, or is an empty array in a list.
      ragged_fill: the number that samples are padded with, or a dict with a number for each name. It must fit the
        output's type.
      workers: where batches are made, a `jaxdali.ray.Workers`; None: in this process (not in DALI). Batches, epochs and
        checkpoints are the same in both cases.
      loading_processes: numbers of processes of `jax.distributed`; these read and decode the data, and the others get
        their shards of the `sharding` by JAX transfers (not in DALI). It is for data that only some hosts can see.
        None: every process makes its own shards. Batches, epochs and states are the same in both cases. `pipelines` are
        then those of the shards that `loaded_shards` gives for this process; in other processes an empty list. All
        processes must call the methods of the iterator in the same order, except `get_state`, `checkpoints` and
        `close`, and `statistics` and `bad_samples`, which tell about this process alone. An exception in one is raised
        in all. The lists of ragged outputs and metadata go through the hosts' memory.

    Raises:
      ValueError, TypeError: see the arguments.
      IndexError: `output_map` has more names than the pipeline has outputs.
      RuntimeError: there is no reader of that name, or no data.

    Differs from DALI: an empty `output_map` is a ValueError, where DALI gives empty batches.
    """

    _instead = "; pass last_batch_policy=LastBatchPolicy.PARTIAL and mask_name to get them"

    @_names.suggests_names
    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Iterable[str],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: str | bool | None = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
        sharding: Placement = None,
        mask_name: str | None = None,
        ragged: Mapping[str, int | Sequence[int] | None] | None = None,
        ragged_fill: float | Mapping[str, float] = 0,
        repeat: bool = False,
        workers: WorkerBackend | None = None,
        loading_processes: Sequence[int] | None = None,
    ):
        options = JaxOptions.of(locals()).on_mesh()
        # Batch size 0, which any number of shards divides: the pipelines have the batch size of a shard.
        loading = options.loading(0)
        if loading is not None:
            self._begin_shared(loading, options, lambda: _checked_pipelines(pipelines, loading))
            return
        pipelines = list_of(pipelines)
        if options.sharding is None:
            self._begin(pipelines, own_places(pipelines), options)
            return
        shards = options.shards(0)
        if len(shards.ids) != len(pipelines):
            raise ValueError(
                f"{options.sharding} has {len(shards.ids)} shards in this process, but there are {len(pipelines)} pipelines; "
                "pass one for each"
            )
        # One pipeline has all devices of its shard, each of several only the primary device of its own.
        is_single = len(pipelines) == 1
        self._begin(pipelines, [shards] if is_single else [Shards.single(d) for d in shards.primaries], options, shards)

    def _begin(
        self,
        pipelines: Sequence[Pipeline],
        places: Sequence[Shards],
        options: JaxOptions,
        shards: Shards | None = None,
        stacked: bool = False,
        apart: bool = False,
    ):
        """Leases the pipelines and starts the stream.

        Args:
          pipelines: of the local shards.
          places: the devices of each executor: one executor for all pipelines, or one for each.
          options: the arguments of the constructor.
          shards: of the batch; None: without a sharding.
          stacked: whether the outputs get a leading axis of the shards, ``(shards, B, ...)``.
          apart: whether each output is a tuple with an array for each shard (`ShardArrays`), for loading processes,
            which send the shards to others.
        """
        # The epochs of all processes must end together.
        options.check_pipelines(pipelines[0], len(pipelines) if shards is None else shards.num)
        _check_names(options.output_map, num_outputs(pipelines[0]))
        self._metadata = metadata_among(list(options.output_map), outputs_of(pipelines[0]))
        options.check_metadata(self._metadata)
        self._store_options(options, shards, stacked)
        self._seen_shapes = {}  # shapes are tracked from now on
        is_masked = options.mask_name is not None
        forms = options.ragged_forms
        # Ragged outputs are padded or lists, and metadata are lists: their shapes are not tracked.
        self._tracked_outputs = [
            (i, name) for i, name in enumerate(options.output_map) if forms[i] is None and name not in self._metadata
        ]
        if len(places) > 1:  # `_combine` puts the results of the executors on the sharding
            forms = tuple(None if form is None else dataclasses.replace(form, lengths=None) for form in forms)
        shardings, finish = None, None
        if len(places) == 1:
            if options.any_sharding is not None and not apart:
                shardings = self._shardings or [options.any_sharding]
            # Most masks are True throughout. That one is made ahead, as the last output of each batch.
            if is_masked and not apart:
                placement = BatchAxisPlacement(places[0], self._batch_sharding, stacked)
                mask_shape = (len(pipelines), pipelines[0].batch_size)
                finish = [lambda plan, arrays: (*arrays, placement.put(np.ones(mask_shape, bool)))]
        delivery = Delivery(
            shardings=shardings,
            stacked=stacked,
            per_shard=apart,
            padded=is_masked,
            reader=options.reader_name,
            names=tuple(options.output_map),
            ragged=forms,
        )
        pipeline_lease = lease(
            pipelines,
            places,
            key=(type(self), options.common_options, stacked),
            delivery=delivery,
            finish=finish,
            workers=options.workers,
        )
        self._start(pipeline_lease, options, padded=is_masked, shards=shards, over_processes=options.is_over_processes)

    def _store_options(self, options: JaxOptions, shards: Shards | None, stacked: bool = False):
        """Stores the options and what follows from them, without the pipelines.

        Args:
          shards: of the batch; None: without a sharding.
          stacked: whether the outputs get a leading axis of the shards.
        """
        self.output_map = list(options.output_map)
        self._mask_name = options.mask_name
        self._shards = shards
        self._stacked = stacked
        self._shardings = options.shardings
        self._batch_sharding = None if options.any_sharding is None else batch_axis_sharding(options.any_sharding)
        self._element_spec: dict[str, Any] | None = None
        # The shapes that the outputs of batches had, numbered in their order; None: they are not tracked.
        self._seen_shapes: dict[tuple[tuple[int, ...], ...], int] | None = None
        self._tracked_outputs: list[tuple[int, str]] = []  # number and name of each output whose shapes are tracked

    def _begin_shared(self, loading: Loading, options: JaxOptions, make_pipelines: Callable[[], Sequence[Pipeline]]):
        """Starts the stream with loading processes.

        Args:
          loading: the process that makes each shard.
          options: the arguments of the constructor.
          make_pipelines: called in the loading processes, for the pipelines of their shards.
        """
        grain_handler.register(BaseIterator)
        class_name, shardings = type(self).__name__, options.shardings
        stream = SharedStream(
            loading, [(s, batch_axis_sharding(s)) for s in shardings], class_name, options.mask_name is not None
        )

        def begin() -> tuple[BatchStream, frozenset[str]]:
            """Starts the stream of this process's shards, and returns it with the names of outputs that are metadata."""
            pipelines = make_pipelines()
            if node := function_over_processes(pipelines[0]):
                raise node.error(
                    "a function over several processes needs all of them, so it can't be used with loading_processes"
                )
            self._begin(pipelines, [loading.shards], options, loading.shards, apart=True)
            assert isinstance(self._stream, BatchStream)
            return self._stream, self._metadata

        self._pipes = []
        self._auto_resets, self._repeats = bool(options.auto_reset), options.repeat
        self._set_dali_attributes(options, loading.num)
        self._store_options(options, loading.shards)
        stream.begin(begin)
        self._metadata, self._stream = stream.facts.metadata, stream

    @staticmethod
    def loaded_shards(sharding: Sharding | PartitionSpec, loading_processes: Sequence[int] | None = None) -> list[int]:
        """The shards of a batch on `sharding` that this process makes, in order. An iterator takes one pipeline for
        each.

        Not in DALI. `data_iterator` makes the pipelines of these shards itself.
        """
        options = JaxOptions([], sharding=sharding, loading_processes=loading_processes).on_mesh()
        loading = options.loading(0)
        return list((options.shards(0) if loading is None else loading.shards).ids)

    def __next__(self) -> dict[str, Any]:
        return self._to_dict(*self._take_batches())

    @property
    def _batch_shape(self) -> tuple[int, ...]:
        pipelines = self._shards.num if self._shards is not None else len(self._pipes)
        stacked = self._stacked or (self._shards is None and pipelines > 1)
        batch_size = self._stream.batch_size
        return (pipelines, batch_size) if stacked else (pipelines * batch_size,)

    def _placed(self, i: int) -> str:
        return f", on {self._shardings[i]}" if self._shardings[i] is not None else ""

    @property
    def element_spec(self) -> dict[str, Any]:
        """Shape, dtype and sharding of each entry of a batch, ``{name: jax.ShapeDtypeStruct}``, from the next batch
        when it is first read. Metadata have none, and are left out.

        A ragged output has a tuple of two, or a list with one for each sample of that batch.

        This looks at the next batch without taking it. It raises RuntimeError at the end of the data.
        """
        if self._element_spec is None:
            try:
                self._element_spec = _specs(arrays_of(self._to_dict(self._stream.peek(), valid=None)))
            except StopIteration:
                raise RuntimeError("the data have ended: read element_spec before that, or after reset()") from None
        return dict(self._element_spec)

    def _to_dict(self, batches: list[FinishedBatch], valid: Any) -> dict[str, Any]:
        """Makes the dict of one batch from the batches of the executors.

        Args:
          batches: one of each executor. With a mask and a single executor, the last output is the mask of a complete
            batch, which `_begin` makes ahead.
          valid: for each pipeline, the number of its first samples that belong to the epoch; None: all of them do.
        """
        if self._mask_name is None and isinstance(self._stream, BatchStream):
            self._stream.check_full(batches, " (or pass mask_name, with last_batch_policy=PARTIAL)")
        if len(batches) == 1:
            outputs: Sequence[Any] = batches[0].outputs
        else:
            with own_settings():
                outputs = [self._combine(x, s) for x, s in zip(zip(*(b.outputs for b in batches)), self._shardings)]
        result = batch_of(zip(self.output_map, outputs), self._metadata)
        if (
            self._seen_shapes is not None
            and (shapes := tuple([result[n].shape for _, n in self._tracked_outputs])) not in self._seen_shapes
        ):
            self._record_shapes(shapes)
        if self._mask_name is not None:
            result[self._mask_name] = self._mask(
                [b.ids for b in batches], valid, batches[0].outputs[-1] if len(batches) == 1 else None
            )
        return result

    def _record_shapes(self, shapes: tuple[tuple[int, ...], ...]):
        """Records shapes that no batch had before. Warns once, when an output has its third shape."""
        assert self._seen_shapes is not None
        self._seen_shapes[shapes] = len(self._seen_shapes)
        if len(self._seen_shapes) < 3:
            return
        num_batch_axes = len(self._batch_shape)
        for k, (i, name) in enumerate(self._tracked_outputs):
            # The shapes of a sample, without the batch axes.
            distinct = list(dict.fromkeys(batch_shapes[k][num_batch_axes:] for batch_shapes in self._seen_shapes))
            # The pipelines have equal outputs, so the first executor's stand for all.
            node = self._stream.executors[0].graph.outputs[i].node
            if len(distinct) > 2 and not node.op.few_shapes:
                self._seen_shapes = None
                warn(
                    f"output {i} ({name!r}), of {node.op.name} (created at {node.where}), has samples of another shape in each batch: "
                    f"{', '.join(map(str, distinct))}: a jitted function that takes it compiles anew for each. Give all batches one shape: "
                    f"{one_shape(distinct)}. Or make few shapes: fn.pad(x, align=64)"
                )
                return

    def _mask(self, ids: Sequence[SampleIds], valid: Any, full_mask: jax.Array | None = None) -> jax.Array:
        """The mask over the batch axis, on the outputs' sharding: which samples belong to the epoch.

        Args:
          ids: the samples of each executor's batch.
          valid: for each pipeline, the number of its first samples that belong to the epoch; None: all of them do.
          full_mask: the mask of a complete batch, if it was made ahead.
        """
        if isinstance(self._stream, SharedStream):
            assert self._batch_sharding is not None
            return self._stream.mask(valid, self._batch_sharding)
        rows = self._stream.rows(ids, valid)
        if full_mask is not None and rows.all():
            return full_mask
        # The user may have forbidden transfers, but these are the iterator's own.
        with jax.transfer_guard("allow"):
            if len(self._stream.executors) > 1:
                return self._combine(list(rows), self._batch_sharding)
            return BatchAxisPlacement(self._stream.executors[0].shards, self._batch_sharding, self._stacked).put(rows)

    def _combine(self, parts: Sequence[Any], sharding: Sharding | None) -> Any:
        """Combines the outputs of separate executors into one array; ragged ones into a list, or samples and lengths.

        Args:
          parts: the output of each executor: an array, a list of samples, or (samples, lengths).
          sharding: of the result; None: the parts are stacked.
        """
        if isinstance(parts[0], list):
            return [x for part in parts for x in part]
        if isinstance(parts[0], tuple):
            samples, lengths = zip(*parts)
            return self._combine(samples, sharding), self._combine(lengths, self._batch_sharding)
        if len({(p.shape, p.dtype) for p in parts}) > 1:
            raise ValueError(f"the pipelines' outputs differ: {[f'{p.dtype}{list(p.shape)}' for p in parts]}")
        if sharding is not None:
            assert self._shards is not None
            return assemble(parts, self._shards, sharding)
        # Without a sharding, the outputs are stacked: on the one device of all pipelines, or over their distinct
        # devices.
        devices = tuple(e.shards.primaries[0] for e in self._stream.executors)
        rows = [np.asarray(p)[None] for p in parts]  # [1, batch, ...] each: a row for each pipeline
        if len(set(devices)) == 1:
            return jax.device_put(np.concatenate(rows), devices[0])
        if len(set(devices)) < len(devices):
            raise ValueError(f"the pipelines must all be on one device, or each on a different device; got {devices}")
        shards = Shards(num=len(parts), ids=tuple(range(len(parts))), devices=tuple((d,) for d in devices))
        return assemble(
            rows, shards, NamedSharding(Mesh(np.array(devices), ("pipelines",)), PartitionSpec("pipelines"))
        )


def _checked_pipelines(pipelines: Any, loading: Loading) -> list[Pipeline]:
    """The pipelines of this process. Raises ValueError if their number is not that of its shards."""
    local_pipelines, ids = list_of(pipelines), loading.shards.ids
    if len(local_pipelines) != len(ids):
        raise ValueError(
            f"this process makes the shards {list(ids)}, but there are {len(local_pipelines)} pipelines; pass one for each"
        )
    return local_pipelines


def _check_names(names: Iterable[str], outputs: int):
    """Raises an error if no output has a name, and warns if some have none. Too many names are an error elsewhere.

    Args:
      outputs: number of outputs of the pipeline.
    """
    names = list(names)
    if outputs and not names:
        example = ["images", "labels", *(f"output{i}" for i in range(2, outputs))][:outputs]
        raise ValueError(
            f"output_map is empty, but the pipeline has {outputs} output(s): name each of them, as in output_map={example}"
        )
    if len(names) < outputs:
        warn(
            f"output_map has {len(names)} of the pipeline's {outputs} outputs, {names}: the others are left out of the batches"
        )


def _specs(batch: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), batch)


# --- data_iterator --------------------------------------------------------------------------------------------------


class DataIterator(Protocol[A, R]):
    """The type of `data_iterator`: the arguments after the definition, and the iterators that its result makes."""

    @overload
    def __call__(self, pipeline_fn: Callable[P, Any], *args: A.args, **options: A.kwargs) -> Factory[P, R]: ...
    @overload
    def __call__(self, pipeline_fn: None = None, *args: A.args, **options: A.kwargs) -> Decorator[R]: ...


def takes_fields_of(
    options: Callable[A, T],
) -> Callable[[Callable[[Callable[..., Any] | None, T], Callable[..., R]]], DataIterator[A, R]]:
    """Decorator that gives a function of a definition and options the fields of the options as arguments.

    Args:
      options: the dataclass of the options.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        own_signature = inspect.signature(function)
        definition, _ = own_signature.parameters.values()
        fields = inspect.signature(options).parameters.values()
        signature = own_signature.replace(
            parameters=[definition.replace(default=None), *fields], return_annotation="Any"
        )

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError as e:
                raise TypeError(f"{function.__name__}: {e}") from None
            return function(arguments.pop(definition.name, None), options(**arguments))  # pyright: ignore[reportCallIssue]

        wrapped.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
        wrapped.__annotations__ = {n: p.annotation for n, p in signature.parameters.items()} | {"return": "Any"}
        return _names.suggests_names(wrapped, ARGUMENTS)

    return decorate


@takes_fields_of(JaxOptions)
def data_iterator(pipeline_fn: Callable[..., Any] | None, options: JaxOptions) -> Callable[..., DALIGenericIterator]:
    """Turns a function that defines a pipeline into a function that makes iterators over it.

    It can be used as a decorator with arguments, or as a function of the pipeline definition. The result takes the
    arguments of the definition and of `Pipeline`, e.g. ``batch_size``, ``num_threads``, ``seed``, ``device_id``; and
    ``checkpoints``.

    With `sharding` the batch size is global; the definition is traced once for each local shard and must take the
    arguments ``num_shards`` and ``shard_id``, which are filled in (and ``device_id``, if it takes that).

    Example:
      >>> @data_iterator(output_map=["images", "labels"], reader_name="reader")
      ... def iterator_fn(num_shards=1, shard_id=0):
      ...     jpegs, labels = fn.readers.file(file_root="photos", name="reader", num_shards=num_shards, shard_id=shard_id)
      ...     return fn.resize(fn.decoders.image(jpegs), size=(256, 256)), labels
      >>> for batch in iterator_fn(batch_size=8):
      ...     batch["images"].shape
      (8, 256, 256, 3)

      The objects of an image, whose number varies, padded to 100, with their number:

      >>> @data_iterator(output_map=["images", "boxes"], reader_name="coco", ragged={"boxes": 100})
      ... def detection():
      ...     jpegs, boxes, labels = fn.readers.coco(file_root="photos", annotations_file="instances.json", name="coco")
      ...     return fn.resize(fn.decoders.image(jpegs), size=(256, 256)), boxes
      >>> for batch in detection(batch_size=8):
      ...     boxes, lengths = batch["boxes"]  # (8, 100, 4) and (8,)

    Args:
      pipeline_fn: the definition.
      output_map, size, reader_name, auto_reset, last_batch_padded, last_batch_policy, prepare_first_batch: see
        `DALIGenericIterator`.
      sharding: the sharding of the outputs, one for all or a dict with one for each. A bare
        `jax.sharding.PartitionSpec` is on the mesh that is set when the iterator is made, see `jax.set_mesh`. Without a
        sharding batches lie on one device, and JAX refuses those in programs under a set mesh. It can't be combined
        with `devices`.
      devices: the devices, each with one shard; the outputs have the shape ``(devices, batch per device, ...)``, as
        `jax.pmap` expects.
      mask_name, ragged, ragged_fill, repeat: see `DALIGenericIterator`.
      workers, loading_processes: the same. They can be passed here or to the result. Processes that load nothing do not
        call the definition.
      checkpoints: the result of an iterator's method `checkpoints`; the new iterator resumes from there. It can be
        passed here or, as in DALI, to the result, and needs ``enable_checkpointing=True``. None or []: the iterator
        starts anew. To begin the epoch of a checkpoint anew, pass it to `set_state` of the new iterator instead, with
        ``restart_epoch=True``.
      enable_conditionals: see `pipeline_def`. (In DALI, only `pipeline_def` has this argument.)

    Raises:
      TypeError: `checkpoints` is given both here and to the result.
      ValueError: `sharding` and `devices` are both given, or the shards don't divide the batch.
    """
    return iterator_factory(DALIGenericIterator, pipeline_fn, options)


def iterator_factory(
    cls: type[DALIGenericIterator], pipeline_fn: Callable[..., Any] | None, options: JaxOptions
) -> Any:
    """Implements `data_iterator` for iterators of class `cls`.

    Returns:
      A function that makes iterators; a decorator if `pipeline_fn` is None.
    """
    devices = options.devices
    if options.sharding is not None and devices is not None:
        raise ValueError("sharding and devices can't be given together: pass one of them")
    if pipeline_fn is None:
        return lambda fn: iterator_factory(cls, fn, options)
    if not callable(pipeline_fn):
        raise TypeError(f"data_iterator takes a pipeline definition, a function; got {type(pipeline_fn).__name__}")
    factory = pipeline_fn if getattr(pipeline_fn, "_is_pipeline_def", False) else pipeline_def(pipeline_fn)
    function = inspect.unwrap(pipeline_fn)

    @boundary
    @functools.wraps(function)
    def make_iterator(*args: Any, **kwargs: Any) -> DALIGenericIterator:
        """Makes the pipelines, and the iterator over them. The arguments are those of the definition and of `Pipeline`."""
        # A definition with a parameter `checkpoints` gets that argument; otherwise it is the iterator's.
        takes_checkpoints = "checkpoints" in inspect.signature(function).parameters
        if options.checkpoints is not None and not takes_checkpoints and "checkpoints" in kwargs:
            raise TypeError(f"{name_of(function)}: checkpoints was already given to data_iterator")
        checkpoints = options.checkpoints if takes_checkpoints else kwargs.pop("checkpoints", options.checkpoints)
        if checkpoints is not None and not (
            isinstance(checkpoints, (list, tuple)) and all(isinstance(c, bytes) for c in checkpoints)
        ):
            raise TypeError(
                f"{name_of(function)}: checkpoints must be a list of bytes, as checkpoints() returns it, got {checkpoints!r:.100}"
            )
        definition_parameters = inspect.signature(function).parameters
        overrides = {
            k: kwargs.pop(k) for k in ("workers", "loading_processes") if k in kwargs and k not in definition_parameters
        }
        for field in dataclasses.fields(options):
            if field.name in kwargs and field.name not in (*definition_parameters, *ARGUMENTS):
                raise TypeError(
                    f"{name_of(function)}: {field.name} is an argument of the decorator: "
                    f"@data_iterator(..., {field.name}=...)"
                )
        chosen_options = dataclasses.replace(options, **overrides).on_mesh()
        if options.enable_conditionals:
            kwargs.setdefault("enable_conditionals", True)
        iterator = cls.__new__(cls)  # `_begin` or `_begin_shared` does the work of `__init__`
        if chosen_options.sharding is None and devices is None:
            pipelines = [factory(*args, **kwargs, **_checkpoint_argument(checkpoints[0] if checkpoints else None))]
            iterator._begin(pipelines, own_places(pipelines), chosen_options)
            return iterator
        split_arguments(function, kwargs)  # only raises an error for an unknown argument
        for name in ("device_id", "num_shards", "shard_id"):
            if name in kwargs:
                raise TypeError(f"{name_of(function)}: {name} is filled in from the sharding; don't pass it")
        parameters = inspect.signature(function).parameters
        for name in ("num_shards", "shard_id"):
            if name not in parameters:
                raise TypeError(
                    f"{name_of(function)}, called at {user_line()}, must take the argument {name!r}: "
                    "it says which part of the data a shard reads"
                )
        defaults = getattr(factory, "_pipeline_kwargs", {})  # the arguments of `Pipeline` that the decorator got
        batch_size = kwargs.get("batch_size", defaults.get("batch_size"))
        if batch_size is None:
            raise TypeError(
                f"{name_of(function)}: batch_size is needed; with a sharding it is the size of the global batch"
            )
        batch_size = checked("Pipeline", "batch_size", Whole, batch_size)
        placed_options = (
            chosen_options if devices is None else dataclasses.replace(chosen_options, sharding=_sharding_over(devices))
        )
        loading = placed_options.loading(batch_size)
        shards = placed_options.shards(batch_size) if loading is None else loading.shards
        seed = kwargs.get("seed", defaults.get("seed"))
        processes = processes_of(placed_options.shardings) if loading is None else loading.everyone
        arguments = {**kwargs, "batch_size": batch_size // shards.num, "seed": agreed_seed(seed, processes)}
        local_devices = jax.local_devices()

        def make_pipeline(i: int, device: jax.Device, checkpoint: bytes | None) -> Pipeline:
            """The pipeline of shard `i`."""
            device_argument = {"device_id": local_devices.index(device)} if device in local_devices else {}
            of_shard = {**arguments, **device_argument, **_checkpoint_argument(checkpoint)}
            return factory(*args, **of_shard, num_shards=shards.num, shard_id=i)

        def make_pipelines() -> list[Pipeline]:
            """The pipelines of this process's shards."""
            # With loading processes, the checkpoints are those of the shards that one process loads. If there were
            # another number of such shards, any checkpoint has the position from which the rest of the epoch is
            # divided.
            if loading is not None and checkpoints:
                shard_checkpoints = (
                    checkpoints if len(checkpoints) == len(shards.ids) else [checkpoints[0]] * len(shards.ids)
                )
            else:
                shard_checkpoints = for_pipelines(checkpoints, len(shards.ids), shards.num)
            pipelines = [
                make_pipeline(i, device, checkpoint)
                for i, device, checkpoint in zip(shards.ids, shards.primaries, shard_checkpoints)
            ]
            reader = placed_options.reader_name
            if reader is not None and shards.num > 1 and all_read_the_same(pipelines, reader):
                warn(
                    f"{name_of(function)}: the reader {reader!r} is the same for all {shards.num} shards, "
                    "which get the same data: pass num_shards and shard_id to it"
                )
            return pipelines

        def all_read_the_same(pipelines: Sequence[Pipeline], reader: str) -> bool:
            """Whether the definition does not use `shard_id` for the reader of this name, as far as that is known."""
            # It may choose the data of a shard itself. All pipelines are made by it, so two of them show that.
            i, device = shards.ids[0], shards.primaries[0]
            if len(pipelines) == 1 and shard_of_reader(pipelines[0], reader) == (shards.num, i):
                return False
            try:
                if len(pipelines) == 1:  # the next shard is in another process
                    with warnings.catch_warnings(action="ignore"):
                        pipelines = [*pipelines, make_pipeline((i + 1) % shards.num, device, None)]
                return reads_the_same(pipelines[0], pipelines[1], reader)
            except Exception:  # the other shard's data may not be on this host, or a user's items can't be compared
                return False

        if loading is not None:
            iterator._begin_shared(loading, placed_options, make_pipelines)
        else:
            iterator._begin(make_pipelines(), [shards], placed_options, shards, stacked=devices is not None)
        return iterator

    return make_iterator


def _checkpoint_argument(checkpoint: bytes | None) -> dict[str, bytes]:
    return {} if checkpoint is None else {"checkpoint": checkpoint}


def _sharding_over(devices: Sequence[jax.Device]) -> Sharding:
    """A sharding with one shard on each device.

    Raises an error if `devices` are not distinct devices of one process.
    """
    if not devices:
        raise ValueError("devices must not be empty")
    for d in devices:
        if not isinstance(d, jax.Device):
            raise TypeError(f"devices must be JAX devices, as in jax.devices(), got {d!r}")
    if len(set(devices)) < len(devices):
        raise ValueError(f"devices must be distinct, got {list(devices)}")
    if jax.process_count() > 1:
        raise RuntimeError("devices works only with a single process; use sharding with several")
    return NamedSharding(Mesh(np.array(devices), ("devices",)), PartitionSpec("devices"))


def processes_of(shardings: Iterable[Sharding | None]) -> list[int]:
    """The processes whose devices have shards, in order."""
    return sorted({d.process_index for s in shardings if s is not None for d in s.device_set})


def agreed_seed(seed: int | None, processes: Sequence[int]) -> int:
    """The given seed, or one that is drawn for these processes, which all call this.

    With different seeds the shards would shuffle differently and lose samples.
    """
    if seed is not None and not isinstance(seed, bool):
        seed = checked("data_iterator", "seed", Whole, seed)
    if seed is not None and seed >= 0:  # as in `Pipeline`, a negative seed means a random one
        return seed
    drawn = secrets.randbits(31)
    if min(len(processes), jax.process_count()) <= 1:  # one controller has the devices of several processes
        return drawn
    if len(processes) == jax.process_count():
        return int(multihost_utils.broadcast_one_to_all(np.int32(drawn)))
    return int.from_bytes(Messages(processes).exchange(drawn.to_bytes(4, "little"))[0], "little")


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "DALIGenericIterator data_iterator")
