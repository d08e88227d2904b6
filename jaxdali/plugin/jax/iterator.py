"""Iterators that give batches as dictionaries of jax.Arrays."""

from __future__ import annotations

import functools
import inspect
import logging
import secrets
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from ...epoch import EpochCounter, EpochPlan
from ...executor import BadSample, Executor
from ...graph import user_line
from ...pipeline import Pipeline, pipeline_def, split_arguments
from ...prefetch import Prefetch
from ...sharding import Shards, assemble
from ..base_iterator import LastBatchPolicy

_log = logging.getLogger(__name__)
_AUTO_RESET = {"no": False, "yes": True, "True": True}


class DALIGenericIterator:
    """Iterates over pipelines; each batch is a dict from the names in `output_map` to `jax.Array`.

    The arrays have the batch axis first and live on the pipeline's device, or on `sharding`. They are ordinary arrays:
    kept as long as anything refers to them, and safe to donate.

    Args:
      pipelines: one `Pipeline`, or a list of them, one per shard.
      output_map: a name for each output.
      size: samples in an epoch, of all pipelines together. -1: until a source ends.
      reader_name: the reader that says how large an epoch is and how it is padded. Excludes `size`.
      auto_reset: True, "yes", "True": the next epoch begins by itself after StopIteration; False, None, "no": `reset` does it.
      last_batch_padded: without `reader_name`: the source pads the last batch instead of wrapping around.
      last_batch_policy: FILL or DROP.
      prepare_first_batch: make the first batch in the constructor, so that its errors are raised there.
      sharding: of the outputs; the pipelines are its shards, in order. None: the outputs of several pipelines are stacked,
        ``(pipelines, batch, ...)``, sharded over their devices as `jax.pmap` takes it when these are distinct.

    Raises:
      ValueError, TypeError: see the arguments.
      RuntimeError: there is no reader of that name, or no data.
    """

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
        sharding: Sharding | None = None,
    ):
        if pipelines is None or isinstance(pipelines, Pipeline):
            pipelines = [pipelines] if pipelines is not None else []
        pipelines = list(pipelines)
        _check_arguments(pipelines, output_map := list(output_map), size, reader_name, last_batch_padded, last_batch_policy, sharding)
        executors = [_executor([p], Shards.single(p.device), None, reader_name) for p in pipelines]
        self._start(pipelines, executors, output_map, size, reader_name, auto_reset, last_batch_padded, last_batch_policy, prepare_first_batch)
        self._sharding = sharding if len(pipelines) > 1 else None
        if len(pipelines) == 1 and sharding is not None:
            self._executors[0].sharding = sharding

    @classmethod
    def _of_shards(
        cls, pipelines: list[Pipeline], shards: Shards, sharding: Sharding, stacked: bool, output_map, size, reader_name, auto_reset, padded, policy, prepare
    ) -> DALIGenericIterator:
        """One executor for the pipelines of all local shards."""
        _check_arguments(pipelines, output_map, size, reader_name, padded, policy, sharding)
        self = cls.__new__(cls)
        executors = [_executor(pipelines, shards, sharding, reader_name, stacked)]
        self._sharding = None
        self._start(pipelines, executors, output_map, size, reader_name, auto_reset, padded, policy, prepare)
        return self

    def _start(self, pipelines, executors, output_map, size, reader_name, auto_reset, padded, policy, prepare):
        self._pipes = pipelines
        self._executors: list[Executor] = executors
        self.output_map: list[str] = output_map
        self._auto_reset = _parse_auto_reset(auto_reset)
        self._given = 0
        try:
            for e in executors:
                e.build()
            names = len(pipelines[0].graph.outputs)
            if len(output_map) > names:
                raise ValueError(f"output_map has {len(output_map)} names, {output_map}, but the pipeline has {names} output(s)")
            self._counter = EpochCounter(_epoch_plan(pipelines, size, reader_name, padded, policy)) if size > 0 or reader_name is not None else None
            self._runners = [Prefetch(e, e.initial_state, pipelines[0].prefetch_queue_depth) for e in executors]
        except BaseException:
            for e in executors:
                e.close()
            raise
        self._finalizer = weakref.finalize(self, _close, self._runners, self._executors)
        if prepare:
            try:
                for r in self._runners:
                    r.wait()
            except StopIteration:
                self.close()
                raise RuntimeError("there are no data in the pipeline: its source ended before the first batch") from None
            except BaseException:
                self.close()
                raise

    # --- iteration ----------------------------------------------------------------------------------------------

    def __iter__(self) -> DALIGenericIterator:
        if self._given:
            self.reset()
        return self

    def __next__(self) -> dict[str, jax.Array]:
        if self._counter is not None and self._counter.is_over:
            self._end()
        try:
            outputs = [r.get().outputs for r in self._runners]
        except StopIteration:
            self._end()
            raise AssertionError from None  # _end raises
        except Exception:
            self._count()  # a failure consumes its batch
            raise
        self._count()
        return dict(zip(self.output_map, self._together(outputs)))

    def next(self) -> dict[str, jax.Array]:
        """The next batch. Raises StopIteration at the end of an epoch."""
        return next(self)

    def _count(self):
        self._given += 1
        if self._counter is not None:
            self._counter.advance()

    def _end(self):
        if self._auto_reset:
            self.reset()
        raise StopIteration

    def reset(self):
        """Begins the next epoch. Only possible at the end of one: a request before is ignored, with a warning in the log."""
        if self._counter is not None:
            if not self._counter.can_reset:
                _log.warning("reset() of %s before the end of the epoch is ignored", type(self).__name__)
                return
            for _ in range(self._counter.reset()):
                for r in self._runners:
                    r.get()
        elif all(r.at_end for r in self._runners):
            for r in self._runners:
                r.restart()
        else:
            _log.warning("reset() of %s before the end of the data is ignored", type(self).__name__)
            return
        self._given = 0

    def __len__(self) -> int:
        """Batches in an epoch; 0 when only the data's end tells."""
        return self._counter.length if self._counter is not None else 0

    @property
    def size(self) -> int:
        """Samples in an epoch, per shard where a reader tells; -1 when only the data's end tells."""
        return self._counter.size if self._counter is not None else -1

    @property
    def batch_size(self) -> int:
        """Samples per batch of one shard."""
        return self._executors[0].B

    def _together(self, outputs: list[tuple[Any, ...]]) -> Sequence[Any]:
        if len(outputs) == 1:
            return outputs[0]
        with self._executors[0].contexts():
            return [_combine(parts, self._sharding) for parts in zip(*outputs)]

    # --- life ---------------------------------------------------------------------------------------------------

    def close(self):
        """Stops the threads; no batch can be taken afterwards. Also done when the iterator is garbage, and at exit."""
        self._finalizer()

    def __enter__(self) -> DALIGenericIterator:
        return self

    def __exit__(self, *exc: Any):
        self.close()

    # --- beyond DALI --------------------------------------------------------------------------------------------

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines, one per local shard."""
        return tuple(self._pipes)

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """JAX's own `Lowered` of the program that ran last; see `Pipeline.lower`."""
        return self._executors[0].lower(segment)

    def bad_samples(self) -> list[BadSample]:
        """The samples that operators with ``on_error="replace"`` replaced so far: file, reason, count."""
        return [b for e in self._executors for b in e.bad_samples()]


def _close(runners: list[Prefetch], executors: list[Executor]):
    for r in runners:
        r.close()
    for e in executors:
        e.close()


def _executor(pipelines: list[Pipeline], shards: Shards, sharding: Sharding | None, reader_name: str | None, stacked: bool = False) -> Executor:
    first = pipelines[0]
    for p in pipelines:
        p._claim()
    executor = Executor(
        [p.graph for p in pipelines],
        shards=shards,
        batch_size=first.batch_size,
        num_threads=first.num_threads,
        seed=first.seed,
        as_arrays=True,
        sharding=sharding,
        stacked=stacked,
        reader=reader_name,
    )
    for i, p in enumerate(pipelines):
        p._executor, p._shard_index = executor, i
    return executor


def _combine(parts: Sequence[jax.Array], sharding: Sharding | None) -> jax.Array:
    """The outputs of separate pipelines as one array."""
    if len({p.shape for p in parts}) > 1:
        raise RuntimeError(f"the pipelines' outputs differ in shape: {[p.shape for p in parts]}")
    devices = [next(iter(p.devices())) for p in parts]
    if sharding is not None:
        shards = Shards.of(sharding, len(parts) * parts[0].shape[0])
        if len(shards.ids) != len(parts):
            raise ValueError(f"{sharding} has {len(shards.ids)} local shards, there are {len(parts)} pipelines")
        return assemble(parts, shards, sharding)
    host = [np.asarray(p)[None] for p in parts]
    if len(set(devices)) == 1:
        return jax.device_put(np.concatenate(host), devices[0])
    if len(set(devices)) < len(devices):
        raise ValueError(f"the pipelines must all be on one device, or each on a device of its own; got {devices}")
    mesh = Mesh(np.array(devices), ("pipelines",))
    return assemble(host, Shards(len(parts), tuple(range(len(parts))), tuple((d,) for d in devices)), NamedSharding(mesh, PartitionSpec("pipelines")))


def _check_arguments(pipelines, output_map, size, reader_name, padded, policy, sharding):
    if not pipelines:
        raise ValueError("at least one pipeline is needed")
    for p in pipelines:
        if not isinstance(p, Pipeline):
            raise TypeError(f"pipelines must be Pipeline objects, got {type(p).__name__}")
    if len({p.batch_size for p in pipelines}) > 1:
        raise ValueError(f"the pipelines must have one batch size, got {[p.batch_size for p in pipelines]}")
    for name in output_map:
        if not isinstance(name, str):
            raise TypeError(f"output_map must be a list of names, got {name!r} in it")
    if len(set(output_map)) != len(output_map):
        raise ValueError(f"the names in output_map must be distinct, got {output_map}")
    if sharding is not None and not isinstance(sharding, Sharding):
        raise TypeError(f"sharding must be a jax.sharding.Sharding, got {type(sharding).__name__}")
    if not isinstance(policy, LastBatchPolicy):
        raise ValueError(f"last_batch_policy must be a LastBatchPolicy, got {policy!r}")
    if policy is LastBatchPolicy.PARTIAL:
        raise ValueError("JAX iterators have no LastBatchPolicy.PARTIAL, as JAX needs static shapes; use FILL or DROP")
    if size == 0:
        raise ValueError("size must be positive, or -1: until a source ends")
    if size > 0 and reader_name is not None:
        raise ValueError(f"size={size} and reader_name={reader_name!r} exclude each other: the reader tells the size")
    if size < 0 and reader_name is None and len(pipelines) > 1:
        raise ValueError("with several pipelines pass reader_name (or size), so that all end their epochs together")
    if padded and reader_name is not None:
        raise ValueError("last_batch_padded=True and reader_name exclude each other: the reader's pad_last_batch counts")
    if size > 0:
        warnings.warn("size is given: pass reader_name instead where there is a reader, so that it tells the size and padding", stacklevel=4)


def _parse_auto_reset(x: Any) -> bool:
    if x is None or isinstance(x, bool):
        return bool(x)
    if isinstance(x, str) and x in _AUTO_RESET:
        return _AUTO_RESET[x]
    raise ValueError(f'auto_reset must be True, "yes", "True", False, None or "no", got {x!r}')


def _epoch_plan(pipelines: list[Pipeline], size: int, reader_name: str | None, padded: bool, policy: LastBatchPolicy) -> EpochPlan:
    batch_size = pipelines[0].batch_size
    if reader_name is None:
        return EpochPlan.of_size(size=size, num_pipelines=len(pipelines), batch_size=batch_size, padded=padded, policy=policy.name)
    metas = [p.reader_meta(reader_name) for p in pipelines]
    return EpochPlan.of_readers(metas=metas, batch_size=batch_size, policy=policy.name)


# --- data_iterator --------------------------------------------------------------------------------------------------


def data_iterator(
    pipeline_fn: Callable[..., Any] | None = None,
    output_map: Iterable[str] = (),
    size: int = -1,
    reader_name: str | None = None,
    auto_reset: str | bool | None = False,
    last_batch_padded: bool = False,
    last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
    prepare_first_batch: bool = True,
    sharding: Sharding | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Any:
    """Turns a function that defines a pipeline into a function that makes iterators over it.

    Usable as a decorator with arguments, or as a function of the pipeline definition. The result takes the definition's own
    arguments and those of `Pipeline`, e.g. ``batch_size``, ``num_threads``, ``seed``, ``device_id``.

    With `sharding` the batch size is global; the definition is traced once for each local shard and must take the arguments
    ``num_shards`` and ``shard_id``, which are filled in (also ``device_id``, when it takes that).

    Example:
      >>> @data_iterator(output_map=["images", "labels"], reader_name="reader")
      ... def iterator_fn(num_shards=1, shard_id=0):
      ...     jpegs, labels = fn.readers.file(file_root="photos", name="reader", num_shards=num_shards, shard_id=shard_id)
      ...     return fn.resize(fn.decoders.image(jpegs), size=(256, 256)), labels
      >>> for batch in iterator_fn(batch_size=8):
      ...     batch["images"].shape
      (8, 256, 256, 3)

    Args:
      pipeline_fn: the definition.
      output_map, size, reader_name, auto_reset, last_batch_padded, last_batch_policy, prepare_first_batch: see `DALIGenericIterator`.
      sharding: of the outputs. Excludes `devices`.
      devices: one shard for each; the outputs have the shape ``(devices, batch per device, ...)``, as `jax.pmap` takes it.

    Raises:
      ValueError: `sharding` and `devices` are both given, or the shards don't divide the batch.
    """
    if sharding is not None and devices is not None:
        raise ValueError("sharding and devices exclude each other: pass one of them")
    if sharding is not None and not isinstance(sharding, Sharding):
        raise TypeError(f"sharding must be a jax.sharding.Sharding, got {type(sharding).__name__}")
    if pipeline_fn is None:
        return functools.partial(
            data_iterator,
            output_map=output_map,
            size=size,
            reader_name=reader_name,
            auto_reset=auto_reset,
            last_batch_padded=last_batch_padded,
            last_batch_policy=last_batch_policy,
            prepare_first_batch=prepare_first_batch,
            sharding=sharding,
            devices=devices,
        )
    if not callable(pipeline_fn):
        raise TypeError(f"data_iterator takes a pipeline definition, a function; got {type(pipeline_fn).__name__}")
    names = list(output_map)
    factory = pipeline_fn if getattr(pipeline_fn, "_is_pipeline_def", False) else pipeline_def(pipeline_fn)
    function = inspect.unwrap(pipeline_fn)
    arguments = (size, reader_name, auto_reset, last_batch_padded, last_batch_policy, prepare_first_batch)

    @functools.wraps(function)
    def make_iterator(*args: Any, **kwargs: Any) -> DALIGenericIterator:
        if sharding is None and devices is None:
            return DALIGenericIterator(factory(*args, **kwargs), names, *arguments)
        split_arguments(function, kwargs)
        for name in ("device_id", "num_shards", "shard_id"):
            if name in kwargs:
                raise TypeError(f"{function.__name__}: {name} is filled in from the sharding, don't pass it")
        parameters = inspect.signature(function).parameters
        for name in ("num_shards", "shard_id"):
            if name not in parameters:
                raise TypeError(f"{function.__name__}, called at {user_line()}, must take the argument {name!r}: it says which part of the data a shard reads")
        defaults = getattr(factory, "_pipeline_kwargs", {})
        batch_size = kwargs.get("batch_size", defaults.get("batch_size"))
        if batch_size is None:
            raise TypeError(f"{function.__name__}: batch_size is needed; with a sharding it is the size of the global batch")
        where, stacked = (sharding, False) if sharding is not None else (_of_devices(devices or ()), True)
        assert where is not None
        shards = Shards.of(where, batch_size)
        seed = kwargs.get("seed", defaults.get("seed"))
        common = {**kwargs, "batch_size": batch_size // shards.num, "seed": _agreed_seed(seed)}
        local = jax.local_devices()
        pipelines = []
        for i, device in zip(shards.ids, shards.primaries):
            place = {"device_id": local.index(device)} if device in local else {}
            pipelines.append(factory(*args, **common, **place, num_shards=shards.num, shard_id=i))
        return DALIGenericIterator._of_shards(pipelines, shards, where, stacked, names, *arguments)

    return make_iterator


def _of_devices(devices: Sequence[jax.Device]) -> Sharding:
    if not devices:
        raise ValueError("devices must not be empty")
    if jax.process_count() > 1:
        raise RuntimeError("devices works in a single process only; use sharding with several")
    return NamedSharding(Mesh(np.array(devices), ("devices",)), PartitionSpec("devices"))


def _agreed_seed(seed: int | None) -> int:
    """The seed given, or one drawn for all processes: otherwise shards would shuffle differently and lose samples."""
    if seed is not None and seed >= 0:
        return seed
    drawn = secrets.randbits(31)
    if jax.process_count() > 1:
        drawn = int(multihost_utils.broadcast_one_to_all(np.int32(drawn)))
    return drawn
