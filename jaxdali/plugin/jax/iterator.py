"""Iterators that give batches as dictionaries of jax.Arrays."""

from __future__ import annotations

import functools
import inspect
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from ...executor import Executor
from ...graph import user_line
from ...pipeline import Pipeline, pipeline_def, split_arguments
from ...sharding import Shards, assemble
from ..base_iterator import BaseIterator, LastBatchPolicy, check_arguments


class DALIGenericIterator(BaseIterator):
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
        pipelines = [pipelines] if isinstance(pipelines, Pipeline) else list(pipelines or ())
        options = {
            "output_map": list(output_map),
            "size": size,
            "reader_name": reader_name,
            "auto_reset": auto_reset,
            "last_batch_padded": last_batch_padded,
            "last_batch_policy": last_batch_policy,
            "prepare_first_batch": prepare_first_batch,
        }
        _check(pipelines, sharding, options)
        self._sharding = sharding if len(pipelines) > 1 else None
        if sharding is None:
            executors = [_executor([p], Shards.single(p.device), None, reader_name) for p in pipelines]
        else:
            shards = Shards.of(sharding, 0)
            if len(shards.ids) != len(pipelines):
                raise ValueError(
                    f"{sharding} has {len(shards.ids)} shards in this process, but there are {len(pipelines)} pipelines; pass one for each"
                )
            if len(pipelines) == 1:
                executors = [_executor(pipelines, shards, sharding, reader_name)]
            else:
                executors = [_executor([p], Shards.single(d), None, reader_name) for p, d in zip(pipelines, shards.primaries)]
        self._start(pipelines, executors, **options)

    @classmethod
    def _of_shards(
        cls, pipelines: list[Pipeline], shards: Shards, sharding: Sharding, stacked: bool, options: dict[str, Any]
    ) -> DALIGenericIterator:
        """One executor for the pipelines of all local shards."""
        _check(pipelines, sharding, options)
        self = cls.__new__(cls)
        self._sharding = None
        self._start(pipelines, [_executor(pipelines, shards, sharding, options["reader_name"], stacked)], **options)
        return self

    def __next__(self) -> dict[str, jax.Array]:
        batches, _ = self._take()
        return dict(zip(self.output_map, self._together([b.outputs for b in batches])))

    def _together(self, outputs: list[tuple[Any, ...]]) -> Sequence[Any]:
        if len(outputs) == 1:
            return outputs[0]
        with self._executors[0].contexts():
            return [_combine(parts, self._sharding) for parts in zip(*outputs)]


def _executor(
    pipelines: list[Pipeline], shards: Shards, sharding: Sharding | None, reader_name: str | None, stacked: bool = False
) -> Executor:
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
    return assemble(
        host, Shards(len(parts), tuple(range(len(parts))), tuple((d,) for d in devices)), NamedSharding(mesh, PartitionSpec("pipelines"))
    )


def _check(pipelines: list[Pipeline], sharding: Sharding | None, options: dict[str, Any]):
    if sharding is not None and not isinstance(sharding, Sharding):
        raise TypeError(f"sharding must be a jax.sharding.Sharding, got {type(sharding).__name__}")
    if options["last_batch_policy"] is LastBatchPolicy.PARTIAL:
        raise ValueError("JAX iterators have no LastBatchPolicy.PARTIAL, as JAX needs static shapes; use FILL or DROP")
    check_arguments(pipelines, *(options[k] for k in ("output_map", "size", "reader_name", "last_batch_padded", "last_batch_policy")))


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
    options = {
        "output_map": names,
        "size": size,
        "reader_name": reader_name,
        "auto_reset": auto_reset,
        "last_batch_padded": last_batch_padded,
        "last_batch_policy": last_batch_policy,
        "prepare_first_batch": prepare_first_batch,
    }

    @functools.wraps(function)
    def make_iterator(*args: Any, **kwargs: Any) -> DALIGenericIterator:
        if sharding is None and devices is None:
            return DALIGenericIterator(factory(*args, **kwargs), **options)
        split_arguments(function, kwargs)
        for name in ("device_id", "num_shards", "shard_id"):
            if name in kwargs:
                raise TypeError(f"{function.__name__}: {name} is filled in from the sharding, don't pass it")
        parameters = inspect.signature(function).parameters
        for name in ("num_shards", "shard_id"):
            if name not in parameters:
                raise TypeError(
                    f"{function.__name__}, called at {user_line()}, must take the argument {name!r}: it says which part of the data a shard reads"
                )
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
        return DALIGenericIterator._of_shards(pipelines, shards, where, stacked, options)

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
