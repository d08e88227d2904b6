"""`Pipeline` and `pipeline_def`: a pipeline as its user sees it."""

from __future__ import annotations

import functools
import inspect
import secrets
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .backend import TensorListCPU, TensorListGPU
from .executor import Executor
from .graph import DataNode, Graph, Value, as_node, building, user_line
from .host import BadSample
from .prefetch import Prefetch, Synchronous, close_together
from .ragged import Packed
from .sharding import Shards

DEFAULT_NUM_THREADS = 4


class Pipeline:
    """A graph of operators and what is needed to run it.

    Made by calling a function decorated with `pipeline_def`; by subclassing and overriding `define_graph`; or with
    ``with pipeline: pipeline.set_outputs(...)``.

    Args:
      batch_size: samples per batch.
      num_threads: CPU threads of the native operators. Default: 4.
      device_id: place of the device in ``jax.local_devices()``, where "mixed" and "gpu" operators run and outputs are put.
        None or negative: `jax.default_device`, or the first. Differs from DALI: without an accelerator it is a CPU device, so the same script runs on a laptop.
      seed: of all random numbers; None or negative: another one in each pipeline.
      exec_pipelined, exec_async: both False: a batch is made when it is asked for; otherwise ahead, by threads of the pipeline's own.
      prefetch_queue_depth: batches made ahead: a number, or ``{"cpu_size": n, "gpu_size": m}``, of which the larger counts.
      bytes_per_sample, set_affinity, max_streams, default_cuda_stream_priority, exec_dynamic: accepted for DALI's sake and without
        effect: memory, streams and placement of threads are XLA's and the operating system's.
      output_dtype, output_ndim: what the outputs must have, one for all or a list; checked when the pipeline is built.

    Raises:
      ValueError: batch_size, num_threads, prefetch_queue_depth out of range, or there is no such device.
      TypeError: an argument of a wrong type.
    """

    def __init__(
        self,
        batch_size: int = -1,
        num_threads: int | None = None,
        device_id: int | None = None,
        seed: int | None = None,
        exec_pipelined: bool = True,
        prefetch_queue_depth: int | dict[str, int] = 2,
        exec_async: bool = True,
        bytes_per_sample: int = 0,
        set_affinity: bool = False,
        max_streams: int | None = None,
        default_cuda_stream_priority: int | None = None,
        *,
        exec_dynamic: bool | None = None,
        output_dtype: Any = None,
        output_ndim: Any = None,
    ):
        self._batch_size = _positive("batch_size", batch_size)
        given = num_threads is not None and num_threads != -1
        self._num_threads = _positive("num_threads", num_threads) if given else DEFAULT_NUM_THREADS
        self._device_id = None if device_id is None or device_id < 0 else device_id
        self._seed = seed if seed is not None and seed >= 0 else secrets.randbits(31)
        self._depth = _depth(prefetch_queue_depth)
        self._ahead = bool(exec_pipelined or exec_async)
        self._output_dtype, self._output_ndim = output_dtype, output_ndim
        self._function: Callable[[], Any] | None = None
        self._graph: Graph | None = None
        self._context: Any = None
        self._executor: Executor | None = None
        self._runner: Prefetch | Synchronous | None = None
        self._owned = False  # by an iterator

    # --- properties ---------------------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Samples per batch."""
        return self._batch_size

    @property
    def max_batch_size(self) -> int:
        """The same as `batch_size`."""
        return self._batch_size

    @property
    def num_threads(self) -> int:
        """CPU threads of the native operators."""
        return self._num_threads

    @property
    def device_id(self) -> int | None:
        """Place of the device in ``jax.local_devices()``; None: the first."""
        return self._device_id

    @property
    def seed(self) -> int:
        """The seed, given or drawn."""
        return self._seed

    @property
    def prefetch_queue_depth(self) -> int:
        """Batches made ahead."""
        return self._depth

    @functools.cached_property
    def device(self) -> jax.Device:
        """The device of "mixed" and "gpu" operators, and of the outputs."""
        return local_device(self._device_id)

    # --- definition ---------------------------------------------------------------------------------------------

    def define_graph(self) -> Any:
        """Overridden by subclasses: creates operators and returns the outputs, one DataNode or several."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no graph: override define_graph, use @pipeline_def, or call set_outputs inside `with pipeline:`"
        )

    def set_outputs(self, *outputs: DataNode | Any):
        """Sets the outputs of a pipeline defined inside ``with pipeline:``."""
        if self._context is None:
            raise RuntimeError("set_outputs is for use inside `with pipeline:`")
        assert self._graph is not None
        self._graph.outputs = tuple(as_node(x, "an output of the pipeline") for x in outputs)

    def __enter__(self) -> Pipeline:
        if self._graph is not None:
            raise RuntimeError("this pipeline is defined already")
        self._graph = Graph()
        self._context = building(self._graph)
        self._context.__enter__()
        return self

    def __exit__(self, *exc: Any):
        assert self._graph is not None
        context, self._context = self._context, None
        context.__exit__(*exc)
        self._graph.prune()

    @property
    def graph(self) -> Graph:
        """The traced definition. The user's function is called once, at first use."""
        if self._graph is None:
            self.device  # noqa: B018  no such device: say so before the user's function runs
            graph = Graph()
            where = user_line()
            with building(graph):
                outputs = self._function() if self._function is not None else self.define_graph()
                if outputs is None:
                    raise TypeError(f"the pipeline definition used at {where} returns None: it must return its outputs")
                if not isinstance(outputs, (tuple, list)):
                    outputs = (outputs,)
                for i, x in enumerate(outputs):
                    if isinstance(x, (list, tuple, str, bytes, dict)):
                        raise TypeError(
                            f"output {i} of the pipeline must be a DataNode, a number or an array, got {type(x).__name__}: {x!r:.80}"
                        )
                graph.outputs = tuple(as_node(x, f"output {i} of the pipeline") for i, x in enumerate(outputs))
            graph.prune()
            self._graph = graph
        return self._graph

    # --- running ------------------------------------------------------------------------------------------------

    def build(self):
        """Traces the definition, opens the sources, and checks types and arguments. Optional, and harmless to repeat."""
        if self._owned or self._executor is not None:
            return
        executor = Executor(
            [self.graph],
            shards=Shards.single(self.device),
            batch_size=self._batch_size,
            num_threads=self._num_threads,
            seed=self._seed,
            as_arrays=False,
        )
        self._executor = executor
        if not self._fed:
            executor.build()
            self._check_outputs()

    @property
    def _fed(self) -> bool:
        """Whether a source gets its data from `feed_input`: nothing can be made ahead then."""
        return self._executor is not None and any(getattr(s, "fed", False) for s in self._executor.sources.values())

    def _check_outputs(self):
        from .types import numpy_dtype

        n = len(self.graph.outputs)
        for name, wanted in (("output_dtype", self._output_dtype), ("output_ndim", self._output_ndim)):
            if wanted is None:
                continue
            each = wanted if isinstance(wanted, (list, tuple)) else [wanted] * n
            if len(each) != n:
                raise RuntimeError(f"{name} has {len(each)} entries, the pipeline {n} outputs")
            for i, (w, x) in enumerate(zip(each, self.graph.outputs, strict=True)):
                if w is None:
                    continue
                if name == "output_ndim" and (not isinstance(w, int) or w < 0):
                    raise (ValueError if isinstance(w, int) else TypeError)(f"output_ndim must be a number >= 0, got {w!r}")
                got, want = (x.spec.dtype, numpy_dtype(w)) if name == "output_dtype" else (x.spec.ndim, w)
                if got != want:
                    raise RuntimeError(f"{name}: output {i} (made at {x.node.where}) has {got}, expected {want}")

    def run(self) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """The next batch: a tensor list for each output.

        Raises:
          StopIteration: the data are at their end (sources that end, not readers); `reset` starts the next epoch.
          SampleError: a sample failed; the next call gives the next batch.
        """
        if self._owned:
            raise RuntimeError("this pipeline is used by an iterator: take batches from that, not with run()")
        self.build()
        assert self._executor is not None
        if self._runner is None:
            ahead = self._ahead and not self._fed
            make = Prefetch if ahead else Synchronous
            self._runner = make(self._executor, self._executor.initial_state, self._depth)
            self._finalizer = weakref.finalize(self, close_together, [self._runner], [self._executor])
        batch = self._runner.get()
        return tuple(_tensor_list(v, n, batch.ids.present) for v, n in zip(batch.outputs, batch.names, strict=True))

    def feed_input(self, data_node: DataNode | str, data: Any, layout: str = ""):
        """Gives an `external_source` without a source the data of one batch, taken by the next `run`.

        Args:
          data_node: the DataNode the external_source returned, or its name.
          data: an array ``[N, ...]`` or a list of N arrays, N at most the batch size.
          layout: e.g. ``"HWC"``.

        Raises:
          KeyError: there is no such external_source.
          RuntimeError: it has a source of its own.
        """
        self.build()
        assert self._executor is not None
        name = data_node if isinstance(data_node, str) else data_node.node.name
        for node in self.graph.nodes:
            if node.name == name and node.op.name == "external_source":
                self._executor.sources[node.id].feed(data, layout)  # pyright: ignore[reportAttributeAccessIssue]
                return
        raise KeyError(
            f"there is no external_source named {name!r}; there are {[n.name for n in self.graph.nodes if n.op.name == 'external_source']}"
        )

    def reset(self):
        """Starts the next epoch after the sources have ended one; without effect before that."""
        if self._runner is not None:
            self._runner.restart()

    def close(self):
        """Stops the pipeline's threads. It can't run afterwards. Also done when it is garbage, and at exit."""
        if self._runner is not None:
            self._finalizer()

    # --- about readers ------------------------------------------------------------------------------------------

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """What a reader says about its data: epoch_size, epoch_size_padded, number_of_shards, shard_id, pad_last_batch, stick_to_shard.

        Args:
          name: of the reader. None: a dict of all readers by name.
        """
        self.build()
        assert self._executor is not None
        metas = {n.name: self._meta(n.id) for n in self.graph.nodes if n.id in self._executor.sources and self._executor.sources[n.id].meta}
        if name is None:
            return metas
        if name not in metas:
            raise RuntimeError(f"there is no reader named {name!r} in the pipeline; there are {sorted(metas)}")
        return metas[name]

    def _claim(self):
        """An iterator takes this pipeline over."""
        if self._owned or self._executor is not None:
            raise RuntimeError("this pipeline is in use already, by run() or by another iterator: make one for each")
        self._owned = True

    def _meta(self, node_id: int) -> dict[str, int]:
        assert self._executor is not None
        return dict(self._executor.sources[node_id].metas[self._shard_index])

    _shard_index = 0  # among the local shards of the iterator that owns this pipeline

    def epoch_size(self, name: str | None = None) -> Any:
        """Padded epoch size of a reader, or of all readers as a dict."""
        if name is None:
            return {k: v["epoch_size_padded"] for k, v in self.reader_meta().items()}
        return self.reader_meta(name)["epoch_size_padded"]

    # --- beyond DALI --------------------------------------------------------------------------------------------

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """JAX's own `Lowered` object of the very program that ran last: `.as_text()`, `.compile().cost_analysis()` and so on.

        Args:
          segment: number of the program, where the pipeline has several.

        Raises:
          RuntimeError: no batch was made yet.
        """
        if self._executor is None:
            raise RuntimeError("no program has run yet: take a batch first")
        return self._executor.lower(segment)

    def bad_samples(self) -> list[BadSample]:
        """The samples that operators with ``on_error="replace"`` replaced so far: file, reason, count."""
        return self._executor.bad_samples() if self._executor is not None else []


_PIPELINE_ARGUMENTS = tuple(p for p in inspect.signature(Pipeline.__init__).parameters if p != "self")


def pipeline_def(fn: Callable[..., Any] | None = None, **pipeline_kwargs: Any) -> Any:
    """Turns a function that creates operators and returns outputs into a factory of pipelines.

    Usable bare or with arguments. The factory takes the function's arguments and those of `Pipeline`; the latter override the decorator's.

    Example:
      >>> @pipeline_def(batch_size=8, num_threads=4)
      ... def pipe(image_dir):
      ...     jpegs, labels = fn.readers.file(file_root=image_dir)
      ...     images = fn.decoders.image(jpegs)
      ...     return fn.resize(images, size=(256, 256)), labels
      >>> images, labels = pipe("photos").run()

    Args:
      fn: the function.
      **pipeline_kwargs: arguments of `Pipeline`.

    Raises:
      TypeError: an argument that is neither the function's nor the Pipeline's.
    """
    if fn is None:
        return functools.partial(pipeline_def, **pipeline_kwargs)
    for name in pipeline_kwargs:
        if name not in _PIPELINE_ARGUMENTS:
            raise TypeError(f"pipeline_def: unknown argument {name!r}; Pipeline takes {', '.join(_PIPELINE_ARGUMENTS)}")

    @functools.wraps(fn)
    def factory(*args: Any, **kwargs: Any) -> Pipeline:
        of_pipeline, of_function = split_arguments(fn, kwargs)
        pipeline = Pipeline(**{**pipeline_kwargs, **of_pipeline})
        pipeline._function = functools.partial(fn, *args, **of_function)
        return pipeline

    factory._is_pipeline_def = True  # pyright: ignore[reportAttributeAccessIssue]
    factory._pipeline_kwargs = pipeline_kwargs  # pyright: ignore[reportAttributeAccessIssue]
    return factory


def split_arguments(fn: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keyword arguments of a call of a pipeline definition, as (the Pipeline's, the function's).

    A parameter of the function that has the name of a Pipeline argument takes it away from the Pipeline.
    """
    parameters = inspect.signature(fn).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise TypeError(
            f"the pipeline definition {fn.__name__} takes **{[p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD][0]}: name its arguments instead, so that they can be told from those of Pipeline"
        )
    of_function = {k: v for k, v in kwargs.items() if k in parameters}
    of_pipeline = {k: v for k, v in kwargs.items() if k not in parameters}
    for name in of_pipeline:
        if name not in _PIPELINE_ARGUMENTS:
            raise TypeError(
                f"{fn.__name__}: unknown argument {name!r}; the function takes ({', '.join(parameters)}), Pipeline takes ({', '.join(_PIPELINE_ARGUMENTS)})"
            )
    return of_pipeline, of_function


def local_device(device_id: int | None) -> jax.Device:
    """``jax.local_devices()[device_id]``; None: the user's default device, or the first.

    Raises:
      ValueError: there are fewer devices.
    """
    devices = jax.local_devices()
    if device_id is None:
        default = jax.config.jax_default_device
        return default if isinstance(default, jax.Device) else devices[0]
    if not 0 <= device_id < len(devices):
        raise ValueError(f"device_id={device_id}: JAX has {len(devices)} local device(s) here, numbered from 0: {devices}")
    return devices[device_id]


def _tensor_list(value: Value, names: Sequence[str], present: np.ndarray | None) -> TensorListCPU | TensorListGPU:
    """A finished output as DALI's container; samples that a short batch lacks are left out."""
    data, spec = value.data, value.spec
    on_device = isinstance(data, jax.Array) and next(iter(data.devices())).platform != "cpu"
    kind = TensorListGPU if on_device else TensorListCPU
    here = range(len(value)) if present is None else np.flatnonzero(present).tolist()
    if isinstance(data, Packed) or len(here) < len(value):
        assert data is not None
        samples = [data[i] for i in here]
        return kind(samples, spec.layout, source_info=[names[i] for i in here], owner=data, dtype=spec.dtype, ndim=spec.ndim)
    return kind(data, spec.layout, source_info=names)


def _positive(name: str, x: Any) -> int:
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {x!r}")
    if x.__index__() < 1:
        raise ValueError(f"{name} must be at least 1, got {x}")
    return x.__index__()


def _depth(x: Any) -> int:
    if isinstance(x, dict):
        if set(x) != {"cpu_size", "gpu_size"}:
            raise ValueError(f'prefetch_queue_depth must be a number or {{"cpu_size": n, "gpu_size": m}}, got {x!r}')
        return max(_positive(f"prefetch_queue_depth[{k!r}]", v) for k, v in x.items())
    return _positive("prefetch_queue_depth", x)
