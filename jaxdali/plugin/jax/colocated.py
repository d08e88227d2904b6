"""Iterators that live on the hosts of the accelerators, under a single controller
(`jax.experimental.colocated_python`).

**Experimental**, as JAX's API is: names and behaviour may change in any version. With Pathways one process, the
controller, runs the user's program, and the accelerators belong to other hosts. An iterator of this module reads and
decodes there: each host makes the shards that its devices hold, and the controller sees global arrays. It needs jax
0.10, cloudpickle, and the data under the same paths on all hosts.

In several processes of `jax.distributed` each process is the controller of its own hosts. All must call the same
methods, and each sees the errors of its own hosts only.

Example:
  >>> from jaxdali.plugin.jax import colocated
  >>> @colocated.data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=sharding)
  ... def iterator_fn(num_shards=1, shard_id=0):
  ...     jpegs, labels = fn.readers.file(file_root="photos", name="reader", num_shards=num_shards, shard_id=shard_id)
  ...     return fn.resize(fn.decoders.image(jpegs), size=(256, 256)), labels
  >>> for batch in iterator_fn(batch_size=256):
  ...     batch["images"].sharding  # as given
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pickle
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import colocated_python
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..._core.building import warn
from ..._core.declaration import checked
from ..._core.tracebacks import boundaries, boundary
from ..._iterator.iterator_options import LastBatchPolicy
from ..._pipeline.pipeline_def import name_of
from ..._runner.shutdown import refuse
from ._placement import JaxOptions, Placement, batch_axis_sharding
from .iterator import agreed_seed, processes_of
from .iterator import data_iterator as local_data_iterator

if jax.__version_info__ < (0, 10):  # an error of a colocated object has ended the process there
    raise ImportError(f"jaxdali.plugin.jax.colocated needs jax 0.10 or newer, and this is {jax.__version__}")

__all__ = ["ColocatedIterator", "data_iterator"]

_CHUNK = 1 << 12  # bytes of a response that one call returns. Most responses fit, and the others are read in chunks.


@dataclasses.dataclass(frozen=True)
class _ShardingSpec:
    """A `NamedSharding` without its devices, which can be sent to the hosts.

    Attributes:
      shape, names: of the mesh.
      spec: of the sharding.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    spec: PartitionSpec

    @staticmethod
    def of(sharding: NamedSharding) -> _ShardingSpec:
        assert sharding.mesh.devices is not None
        return _ShardingSpec(sharding.mesh.devices.shape, sharding.mesh.axis_names, sharding.spec)

    def on(self, devices: Sequence[jax.Device]) -> NamedSharding:
        return NamedSharding(Mesh(np.array(devices).reshape(self.shape), self.names), self.spec)


@dataclasses.dataclass
class _Response:
    """The response of a host to a request.

    Attributes:
      error: raised by the iterator.
      ended: whether the iterator raised StopIteration.
      result: of the method.
      specs: of a batch: a pytree with the shape and type of each array.
    """

    error: BaseException | None = None
    ended: bool = False
    result: Any = None
    specs: Any = None


class _HostIterator:
    """The iterator on one host. The arrays that its methods take and return are on the hosts' CPU devices.

    The iterator is made by the first request, whose sharding has the host's devices.

    Args:
      definition: of the pipeline.
      options: of `jaxdali.plugin.jax.data_iterator`.
      sharding: a `_ShardingSpec`, or a dict of them.
      arguments: ``(args, kwargs)`` of the definition.
    """

    def __init__(self, definition: Callable[..., Any], options: dict[str, Any], sharding: Any, arguments: Any):
        self._definition, self._options, self._sharding, self._arguments = definition, options, sharding, arguments
        self._iterator: Any = None
        self._arrays: Any = None  # of the batch that was requested last
        self._payload = b""  # the last response, pickled

    def call(self, request_rows: jax.Array) -> jax.Array:
        """Runs a request, and returns the first chunk of the response. The request "read" returns another chunk of it.

        A response is its length in 8 bytes, little-endian, and a pickled `_Response`.

        Args:
          request_rows: ``u8[devices, n]``, the request as JSON, the same in each row.

        Returns:
          ``u8[devices, _CHUNK]``.
        """
        # Each shard is one row, and all rows are the same.
        row = np.asarray(request_rows.addressable_shards[0].data)[0]
        request = json.loads(row.tobytes().rstrip(b"\0"))
        if request["method"] != "read":
            response = _Response()
            try:
                _run_method(self, request, request_rows.sharding, response)
            except StopIteration:
                response.ended = True
            except Exception as e:
                response.error = e
            self._payload = _pickle_response(response)
        offset = request.get("offset", 0)
        row_out = np.zeros((1, _CHUNK), np.uint8)
        chunk = (len(self._payload).to_bytes(8, "little") + self._payload)[offset : offset + _CHUNK]
        row_out[0, : len(chunk)] = np.frombuffer(chunk, np.uint8)
        return _replicate_row(row_out, request_rows.sharding)

    def batch(self, token: jax.Array) -> Any:
        """Returns the arrays of the batch that was requested last. The sharding of `token` selects the devices."""
        arrays, self._arrays = self._arrays, None
        return arrays


def _run_method(host: _HostIterator, request: Mapping[str, Any], sharding: Any, response: _Response):
    """Runs one method of a host's iterator, and stores its result in `response`.

    It is a function because colocated_python would make a method callable from the controller.

    Args:
      request: the name of the method, and its arguments.
      sharding: of the request, over the host's devices.
    """
    if host._iterator is None:
        devices = sharding.mesh.devices.flat
        shardings = jax.tree.map(lambda spec: spec.on(devices), host._sharding)
        args, kwargs = host._arguments
        host._iterator = local_data_iterator(host._definition, sharding=shardings, **host._options)(*args, **kwargs)
    iterator = host._iterator
    match request["method"]:
        case "next":
            host._arrays = None
            batch = dict(next(iterator))
            if lists := [name for name, x in batch.items() if isinstance(x, list)]:
                raise ValueError(
                    f"only arrays can be sent to the controller; {lists} are lists: leave them out, or pad them (ragged)"
                )
            host._arrays = batch
            response.specs = jax.tree.map(lambda x: (x.shape, x.dtype.name), batch)
        case "begin":
            # The warning says that states can't be continued with other shards; "" if they can.
            response.result = len(iterator), iterator.size, iterator._stream.state_warning
        case "iter":
            iter(iterator)
        case "reset":
            iterator.reset()
        case "get_state":
            response.result = iterator._stream.get_state()  # without the iterator's warning, which the controller gives
        case "set_state":
            iterator.set_state(request["state"], restart_epoch=request["restart_epoch"])
        case "close":
            iterator.close()


def _pickle_response(response: _Response) -> bytes:
    """Pickles a response. An error that can't be pickled becomes a RuntimeError with its text."""
    # Some exceptions can be pickled but not unpickled, so both are tried here, on the host.
    try:
        data = pickle.dumps(response)
        pickle.loads(data)
    except Exception:
        return pickle.dumps(_Response(error=RuntimeError(f"{type(response.error).__name__}: {response.error}")))
    return data


def _replicate_row(row: np.ndarray, sharding: Any) -> jax.Array:
    """Puts the row ``[1, n]`` on each of this process's devices of a sharding over the first axis: ``[devices, n]``."""
    shape = (sharding.num_devices, row.shape[1])
    return jax.make_array_from_callback(shape, sharding, lambda _: row)


@boundaries
class ColocatedIterator:
    """Iterates over a pipeline that runs on the hosts of the accelerators. Experimental. `data_iterator` makes it.

    Each batch is a dict of `jax.Array` on the sharding, as from the iterators of `jaxdali.plugin.jax`. All batches must
    have the same shapes.

    Attributes:
      output_map: the names of the outputs.
      size: the number of samples in an epoch; -1 if only the end of the data shows it.
    """

    def __init__(self, definition: Callable[..., Any], options: JaxOptions, arguments: Any):
        """Makes the iterators on the hosts.

        Args:
          definition: of the pipeline.
          options: the arguments of `data_iterator`.
          arguments: ``(args, kwargs)`` of the definition.
        """
        self.output_map = list(options.output_map)
        self._closed = False
        shardings = {n: s for n, s in zip(self.output_map, options.shardings) if s is not None}
        if not shardings:
            raise ValueError("a colocated iterator needs a sharding: its devices tell which hosts read the data")
        for s in shardings.values():
            if not isinstance(s, NamedSharding):
                raise TypeError(f"the sharding of a colocated iterator must be a NamedSharding, got {s!r}")
        first = next(iter(shardings.values()))
        if any(tuple(s.mesh.devices.flat) != tuple(first.mesh.devices.flat) for s in shardings.values()):
            raise ValueError("the shardings of a colocated iterator must have the same devices in the same order")
        self._shardings = shardings
        self._mask = (options.mask_name, batch_axis_sharding(first))  # its name and sharding
        hosts = colocated_python.colocated_cpu_devices(tuple(first.mesh.devices.flat))
        # The sharding of requests and responses, which have a row for each device.
        self._per_device = NamedSharding(Mesh(np.array(hosts), ("device",)), PartitionSpec("device"))
        specs = {n: _ShardingSpec.of(s) for n, s in shardings.items()}
        spec_tree = specs if isinstance(options.sharding, Mapping) else next(iter(specs.values()))
        host_options = {name: x for name, x in vars(options).items() if name != "sharding"}
        remote_class: Any = colocated_python.colocated_python_class(_HostIterator)
        # A list of one object, which stands for the iterators on all hosts. The finalizer can clear the list.
        self._remote_iterators = [remote_class(definition, host_options, spec_tree, arguments)]
        # At exit, JAX's objects must be freed before its modules.
        self._finalizer = weakref.finalize(self, self._remote_iterators.clear)
        # The argument of `_HostIterator.batch`: its devices tell where to run.
        self._token = _replicate_row(np.zeros((1, 1), np.uint8), self._per_device)
        self._specs: Any = None  # a pytree with the shape and type of each array of the first batch
        try:
            # `_doubt`: the warning of `get_state`; "" if its states can be continued with other shards.
            self._length, self.size, self._doubt = self._call_hosts("begin").result
        except BaseException:
            self._finalizer()
            raise

    def __iter__(self):
        self._call_hosts("iter")
        return self

    def __next__(self) -> dict[str, Any]:
        specs = self._call_hosts("next").specs
        if self._specs is None:
            self._specs = specs
        if specs != self._specs:
            raise ValueError(
                f"the batches of a colocated iterator must keep their shapes and types, but {self._specs} became {specs}"
            )
        # The list has one object, which stands for the iterators on all hosts.
        batch = self._remote_iterators[0].batch(self._token)
        return {name: self._put(name, x) for name, x in batch.items()}

    def next(self) -> dict[str, Any]:
        """The next batch. Raises StopIteration at the end of an epoch."""
        return next(self)

    def _put(self, name: str, x: Any) -> Any:
        """Copies an output from the hosts to their accelerators."""
        mask_name, mask_sharding = self._mask
        sharding = mask_sharding if name == mask_name else self._shardings[name]
        if isinstance(x, tuple):  # a ragged output
            samples, lengths = x
            return jax.device_put(samples, sharding), jax.device_put(lengths, batch_axis_sharding(sharding))
        return jax.device_put(x, sharding)

    def __len__(self) -> int:
        """The number of batches in an epoch; 0 if only the end of the data shows it."""
        return self._length

    def __bool__(self) -> bool:
        return True

    def reset(self):
        """Begins the next epoch, at the end of one."""
        self._call_hosts("reset")

    def get_state(self) -> dict[str, Any]:
        """The state after the batch that was taken last: JSON, for `set_state` of this iterator and those of
        `jaxdali.plugin.jax`. The first call warns if such states can't be continued with another number of shards.
        """
        state = self._call_hosts("get_state").result
        doubt, self._doubt = self._doubt, ""
        if doubt:
            warn(f"{type(self).__name__}: {doubt}")
        return state

    def set_state(self, state: Mapping[str, Any], *, restart_epoch: bool = False):
        """Goes on from a state, also from one with another number of shards, or with `restart_epoch` from the start of
        its epoch. Raises as the iterators of `jaxdali.plugin.jax`.
        """
        try:
            json.dumps(state)
        except (TypeError, ValueError, RecursionError) as e:  # as on the hosts, which get it as JSON
            reason = f"{type(e).__name__}: {e}"
            raise RuntimeError(f"this is not a checkpoint of jaxdali, or it is damaged: {reason}") from None
        self._call_hosts(
            "set_state", state=state, restart_epoch=checked("set_state", "restart_epoch", bool, restart_epoch)
        )

    def close(self):
        """Ends the iterators on the hosts."""
        if not self._closed:
            try:
                self._call_hosts("close")
            finally:
                self._closed = True
                self._finalizer()

    def __enter__(self):
        return self

    def __exit__(self, *exc: Any):
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ColocatedIterator can't be pickled or copied; get_state() gives its state")

    def _call_hosts(self, method: str, **arguments: Any) -> _Response:
        """Runs a method on all hosts. Returns the first response, and raises the error of any host."""
        if self._closed:
            refuse("iterator")
        rows = self._send({"method": method, **arguments})
        # A response is its length in 8 bytes and the data. The first call returns its first chunk. Hosts have responses
        # of different lengths, and all are read to the end of the longest.
        length = max(int.from_bytes(row[:8].tobytes(), "little") for row in rows) + 8
        for offset in range(_CHUNK, length, _CHUNK):
            rows = [np.concatenate(x) for x in zip(rows, self._send({"method": "read", "offset": offset}))]
        responses = []
        for row in rows:
            size = int.from_bytes(row[:8].tobytes(), "little")
            responses.append(pickle.loads(row[8 : 8 + size].tobytes()))
        for response in responses:
            if response.error is not None:
                raise response.error
        if any(response.ended for response in responses):
            raise StopIteration
        return responses[0]

    def _send(self, request: Mapping[str, Any]) -> list[np.ndarray]:
        """Sends a request to the hosts.

        Returns a row of the response for each device; devices of a host have the same.
        """
        data = json.dumps(request).encode()
        # Padded to a power of two, at least 64, as JAX compiles for each length.
        row = np.zeros((1, 1 << max(6, len(data).bit_length())), np.uint8)
        row[0, : len(data)] = np.frombuffer(data, np.uint8)
        result = self._remote_iterators[0].call(_replicate_row(row, self._per_device))
        # Each shard is one row, ``u8[1, _CHUNK]``.
        return [np.asarray(s.data)[0] for s in result.addressable_shards]


def data_iterator(
    pipeline_fn: Callable[..., Any] | None = None,
    output_map: Iterable[str] = (),
    size: int = -1,
    reader_name: str | None = None,
    auto_reset: str | bool | None = False,
    last_batch_padded: bool = False,
    last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
    prepare_first_batch: bool = True,
    sharding: Placement = None,
    mask_name: str | None = None,
    *,
    ragged: Mapping[str, int | Sequence[int] | None] | None = None,
    ragged_fill: float | Mapping[str, float] = 0,
    repeat: bool = False,
    enable_conditionals: bool = False,
) -> Any:
    """Turns a definition into a function that makes iterators of the class `ColocatedIterator`. Experimental.

    The definition is sent to the hosts by cloudpickle, and takes ``num_shards`` and ``shard_id``, which are filled in
    there.

    Args:
      pipeline_fn: the definition.
      sharding: the `jax.sharding.NamedSharding` of the outputs, one for all or a dict with one for each; needed. A bare
        `jax.sharding.PartitionSpec` is on the mesh that is set.
      output_map, size, reader_name, auto_reset, last_batch_padded: see `jaxdali.plugin.jax.data_iterator`.
      last_batch_policy, prepare_first_batch, mask_name, repeat, enable_conditionals: the same.
      ragged, ragged_fill: the same. Outputs that are lists, which are metadata and ragged outputs without limits, are
        refused with the first batch.

    Raises:
      ValueError, TypeError: see the arguments.
      ModuleNotFoundError: cloudpickle is not installed.
    """
    options = JaxOptions.of(locals())
    if pipeline_fn is None:
        return lambda fn: _factory(fn, options)
    return _factory(pipeline_fn, options)


def _factory(definition: Callable[..., Any], options: JaxOptions) -> Callable[..., ColocatedIterator]:
    """Makes the function that `data_iterator` returns."""
    if not callable(definition):
        raise TypeError(f"data_iterator takes a pipeline definition, a function; got {type(definition).__name__}")

    @boundary
    @functools.wraps(definition)
    def make_iterator(*args: Any, **kwargs: Any) -> ColocatedIterator:
        """Makes the iterator. The arguments are those of the definition and of `Pipeline`."""
        for name in ("workers", "loading_processes", "checkpoints"):
            if name in kwargs:
                raise TypeError(
                    f"{name_of(definition)}: a colocated iterator has no {name}; states go through get_state and set_state"
                )
        defaults = getattr(definition, "_pipeline_kwargs", {})  # the arguments of `Pipeline` that its decorator got
        placed_options = options.on_mesh()
        seed = kwargs.get("seed", defaults.get("seed"))
        kwargs["seed"] = agreed_seed(seed, processes_of(placed_options.shardings))
        return ColocatedIterator(definition, placed_options, (args, kwargs))

    return make_iterator
