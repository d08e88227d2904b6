"""`Pipeline` and `pipeline_def`: a pipeline as its user sees it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import pathlib
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import jax

from .._core.graph import DataNode, Graph
from .._data.source import Source
from .._run.executor import Executor
from .._run.meter import Statistics
from .._run.prefetch import close_aside
from .._run.sharding import Shards
from .._run.work import BadSample
from ..backend import TensorListCPU, TensorListGPU
from ..errors import OperatorError
from . import arguments as check
from . import checkpoint as checkpoints
from . import serialization
from .arguments import OperatorConcurrency, StreamPolicy
from .definition import Definition
from .describe import describe
from .dot import dot
from .schedule import Schedule, make_executor, tensor_lists


class Pipeline(Definition):
    """A graph of operators and what is needed to run it.

    Made by calling a function decorated with `pipeline_def`; by subclassing and overriding `define_graph`; or with
    ``with pipeline: pipeline.set_outputs(...)``.

    Args:
      batch_size: samples per batch.
      num_threads: CPU threads of the native operators. Default: 4.
      device_id: place of the device in ``jax.local_devices()``, where "mixed" and "gpu" operators run and outputs are put.
        None or negative: `jax.default_device`, or the first. Differs from DALI: without an accelerator it is a CPU device, so that
        the same script runs on a laptop.
      seed: of all random numbers; None or negative: another one in each pipeline.
      exec_pipelined: False: a batch is made when it is scheduled; True: ahead, by threads of the pipeline's own (in the user's
        thread when the data come from `feed_input` or `iter_setup`).
      exec_async: without effect (JAX never waits for what it dispatches), accepted for DALI's sake.
      prefetch_queue_depth: batches made ahead: a number, or ``{"cpu_size": n, "gpu_size": m}``, of which the larger counts.
      bytes_per_sample, set_affinity, max_streams, default_cuda_stream_priority, exec_dynamic, experimental_exec_dynamic, stream_policy,
        concurrency, enable_memory_stats: checked, and without effect: memory, streams and placement of threads are XLA's and the
        operating system's.
      py_num_workers: threads in which each `external_source` of samples with ``parallel=True`` is called; 0 counts as 1.
      py_start_method, py_callback_pickler: checked, and without effect: workers are threads.
      enable_conditionals, debug: not there yet; True raises NotImplementedError. (In DALI arguments of `pipeline_def` alone.)
      enable_statistics: whether `statistics`, also of an iterator, may be called. Beyond DALI.
      enable_checkpointing: whether `checkpoint`, and `checkpoints` of an iterator, may be called.
      checkpoint: what one of these returned: the pipeline goes on from there, with its seed. Needs `enable_checkpointing`.
      output_dtype, output_ndim, output_layout: what the outputs must have, one for all or a list; None: anything. Checked when the
        pipeline is built, or with its first batch where only that tells.

    Raises:
      RuntimeError: `checkpoint` is none, or not enabled; when it is built: it is of another pipeline, or an output is not as said.
      ValueError: when it is built: batch_size missing; batch_size, num_threads or prefetch_queue_depth out of range; no such device.
      TypeError: an argument of a wrong type.
    """

    def __init__(
        self,
        batch_size: int | None = None,
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
        enable_memory_stats: bool = False,
        enable_statistics: bool = False,
        enable_checkpointing: bool = False,
        checkpoint: bytes | None = None,
        py_num_workers: int = 1,
        py_start_method: str = "fork",
        py_callback_pickler: Any = None,
        output_dtype: Any = None,
        output_ndim: Any = None,
        output_layout: Any = None,
        exec_dynamic: bool | None = None,
        experimental_exec_dynamic: bool | None = None,
        stream_policy: StreamPolicy | None = None,
        concurrency: OperatorConcurrency | None = None,
        enable_conditionals: bool = False,
        debug: bool = False,
    ):
        check.missing_modes(enable_conditionals, debug)
        if experimental_exec_dynamic is not None:
            warnings.warn("experimental_exec_dynamic is deprecated: use exec_dynamic", DeprecationWarning, stacklevel=2)
            exec_dynamic = experimental_exec_dynamic
        if check.whole("bytes_per_sample", bytes_per_sample) < 0:
            raise ValueError(f"bytes_per_sample must not be negative, got {bytes_per_sample}")
        given = {
            "batch_size": check.optional("batch_size", batch_size),
            "num_threads": check.optional("num_threads", num_threads),
            "device_id": check.not_negative("device_id", device_id),
            "seed": check.not_negative("seed", seed),
            "exec_pipelined": check.flag("exec_pipelined", exec_pipelined),
            "prefetch_queue_depth": check.depth(prefetch_queue_depth),
            "exec_async": check.flag("exec_async", exec_async),
            "set_affinity": check.flag("set_affinity", set_affinity),
            "max_streams": -1 if max_streams is None else check.whole("max_streams", max_streams),
            "default_cuda_stream_priority": check.whole("default_cuda_stream_priority", default_cuda_stream_priority or 0),
            "enable_checkpointing": check.flag("enable_checkpointing", enable_checkpointing),
            "output_dtype": check.output_dtypes(output_dtype),
            "output_ndim": check.output_ndims(output_ndim),
            "output_layout": check.output_layouts(output_layout),
            "enable_memory_stats": check.flag("enable_memory_stats", enable_memory_stats),
            "enable_statistics": check.flag("enable_statistics", enable_statistics),
            **check.workers(py_num_workers, py_start_method, py_callback_pickler),
            "exec_dynamic": None if exec_dynamic is None else check.flag("exec_dynamic", exec_dynamic),
            "stream_policy": check.one_of("stream_policy", stream_policy, StreamPolicy),
            "concurrency": check.one_of("concurrency", concurrency, OperatorConcurrency),
        }
        super().__init__(given)
        if checkpoint is not None and not enable_checkpointing:
            raise RuntimeError("checkpoint is given, but enable_checkpointing is not: pass enable_checkpointing=True")
        self._restore(None if checkpoint is None else checkpoints.from_bytes(checkpoint))
        self._executor: Executor | None = None
        self._schedule: Schedule | None = None
        self._outputs_checked = False
        self._owned = False  # by an iterator
        self._lease: Any = None  # what iterators over it hand on to each other: a `Lease`
        self._used_with = ""
        self._api_check = True

    def __repr__(self) -> str:
        graph = self._collected
        if graph is None and self._outputs is not None:
            with contextlib.suppress(OperatorError):  # what is wrong is said when it is built
                graph = Graph.collect(self._made, self._outputs, self._sinks)
        given = f"batch_size={self.batch_size}, num_threads={self.num_threads}, device_id={self.device_id}, seed={self._seed}"
        unknown = [None] * len(graph.outputs) if graph is not None else []
        specs = self._executor.plan.output_specs if self._executor is not None else unknown
        return describe(f"{type(self).__name__}({given})", graph, specs, self.batch_size)

    # --- running ------------------------------------------------------------------------------------------------

    def build(self):
        """Traces the definition, opens the sources, and checks types and arguments. Optional, and harmless to repeat.

        What depends on data that are fed, or on what a function returns, is checked with the first batch.
        """
        if self._owned or self._schedule is not None:
            return
        self._check_arguments()
        setups = self._setups()
        executor = make_executor(
            [self._graph],
            setups,
            shards=Shards.single(self._device),
            batch_size=self.batch_size,
            num_threads=self.num_threads,
            num_workers=self.py_num_workers,
            statistics=self.enable_statistics,
            seed=self._seed,
            as_arrays=False,
        )
        self._executor = executor
        by_user = bool(setups) or any(s.fed for s in executor.sources.values())
        try:
            if not by_user:
                executor.build()
                self._check_outputs()
            start = checkpoints.state_of(executor, [self._restored[0]], [(0, 1)]) if self._restored else executor.initial_state
        except BaseException:
            self._executor = None
            executor.close()
            raise
        self._schedule = Schedule(executor, start, self._depth, pipelined=self.exec_pipelined, by_user=by_user)
        self._finalizer = weakref.finalize(self, close_aside, self._schedule.close)

    def _check_outputs(self):
        if not self._outputs_checked:
            assert self._executor is not None
            specs = self._executor.plan.output_specs
            self._outputs_checked = check.check_outputs(self._graph, specs, self._given)

    def _setups(self) -> list[Callable[[], None]]:
        """`iter_setup`, if a subclass has one of its own."""
        if type(self).iter_setup is Pipeline.iter_setup:
            return []
        weak = weakref.WeakMethod(self.iter_setup)  # what runs a pipeline must not keep it alive

        def call():
            method = weak()
            if method is not None:
                method()

        return [call]

    def _use_with(self, api: str):
        if self._owned:
            raise RuntimeError(f"this pipeline is used by an iterator: take batches from that, not with {api}")
        if self._api_check:
            if self._used_with not in ("", api):
                raise RuntimeError(
                    f"this pipeline is used with {self._used_with} already, not to be mixed with {api}; enable_api_check(False) allows it"
                )
            self._used_with = api

    def run(self, cuda_stream: Any = None, /, **pipeline_inputs: Any) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """The next batch: a tensor list for each output. Not to be mixed with `schedule_run`, `share_outputs`, `outputs`.

        Args:
          cuda_stream: without effect: streams are XLA's.
          **pipeline_inputs: data for external_sources, by name, as for `feed_input`. Needs ``prefetch_queue_depth=1`` or
            ``exec_pipelined=False``.

        Raises:
          StopIteration: the data are at their end (of sources that end, not of readers, or iter_setup raised it); `reset`
            starts the next epoch.
          RuntimeError: the pipeline is used otherwise already, or `pipeline_inputs` can't be taken.
          SampleError: a sample failed; the next call gives the next batch.
        """
        if pipeline_inputs and self.exec_pipelined and self._depth > 1:
            raise RuntimeError(
                f"run({', '.join(f'{k}=...' for k in pipeline_inputs)}) needs prefetch_queue_depth=1 or exec_pipelined=False, got "
                f"prefetch_queue_depth={self.prefetch_queue_depth}; or use feed_input"
            )
        self._use_with("run()")
        self.build()
        for name, data in pipeline_inputs.items():
            self.feed_input(name, data)
        assert self._schedule is not None
        self._schedule.schedule()
        return self._take()

    def schedule_run(self):
        """Schedules a batch; the first call as many as are made ahead. Take them with `share_outputs` or `outputs`."""
        self._use_with("schedule_run()")
        self.build()
        assert self._schedule is not None
        self._schedule.schedule()

    def share_outputs(self, cuda_stream: Any = None) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """The batch that was scheduled first. Unlike DALI's, it stays valid after `release_outputs`.

        Args:
          cuda_stream: without effect.

        Raises:
          StopIteration: nothing is scheduled, or the data are at their end.
        """
        self._use_with("schedule_run()")
        self.build()
        return self._take()

    def release_outputs(self):
        """Without effect: a batch is freed when nothing refers to it."""
        self._use_with("schedule_run()")

    def outputs(self, cuda_stream: Any = None) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """`release_outputs` and `share_outputs`."""
        return self.share_outputs(cuda_stream)

    def _take(self) -> tuple[TensorListCPU | TensorListGPU, ...]:
        assert self._schedule is not None
        batch = self._schedule.take()
        self._check_outputs()
        return tensor_lists(batch)

    def empty(self) -> bool:
        """Whether all batches that were scheduled have been taken."""
        return self._schedule is None or self._schedule.empty

    def enable_api_check(self, enable: bool):
        """Whether mixing `run` with `schedule_run`, `share_outputs` and so on raises.

        Differs from DALI: a pipeline that an iterator uses can't be run otherwise in any case.
        """
        self._api_check = bool(enable)

    def iter_setup(self):
        """Overridden by subclasses: called once for each batch, before it is made, e.g. to call `feed_input`.

        StopIteration raised by it ends the epoch. It is called in the thread that calls `run` or the iterator's ``next``, as many
        batches ahead as are made ahead.
        """

    def feed_input(
        self,
        data_node: DataNode | str | None = None,
        data: Any = None,
        layout: str | None = None,
        cuda_stream: Any = None,
        use_copy_kernel: bool = False,
        *,
        ref: DataNode | str | None = None,
    ):
        """Gives an `external_source` without a source the data of one batch. Batches are taken in the order they were fed.

        Differs from DALI: one may feed `prefetch_queue_depth` batches before the first `run`, to have the next one made ahead,
        or just one before each `run`.

        Args:
          data_node: the DataNode the external_source returned, or its name.
          data: an array ``[N, ...]`` or a list of N arrays, N at most the batch size.
          layout: e.g. ``"HWC"``.
          cuda_stream, use_copy_kernel: without effect.
          ref: DALI's older name of `data_node`.

        Raises:
          KeyError: there is no such external_source.
          RuntimeError: it has a source of its own.
          TypeError: `data_node` or `data` is missing.
        """
        data_node = ref if data_node is None else data_node
        if data_node is None or data is None:
            raise TypeError(f"feed_input: {'data_node' if data_node is None else 'data'} is missing")
        self.build()
        assert self._executor is not None
        node = self._graph.find(data_node)
        if node is None or node.op.name != "external_source":
            name = data_node if isinstance(data_node, str) else data_node.name
            there = [n.name for n in self._graph.nodes if n.op.name == "external_source"]
            raise KeyError(f"there is no external_source named {name!r}; there are {there}")
        self._executor.sources[node.id].feed(data, layout, self._shard_index)

    def statistics(self) -> Statistics:
        """Seconds, calls, samples and bytes of each stage and step so far, as rows; printed it is a table. Beyond DALI.

        Stages: reading of sources, operators on the host, setup and launch of programs, waiting for them, form of the outputs. A program
        that runs while nobody waits for it costs nothing here; JAX's profiler shows what is inside.

        Raises:
          RuntimeError: the pipeline was not made with ``enable_statistics=True``, or has not run yet.
        """
        if self._executor is None:
            raise RuntimeError("statistics: the pipeline has not run yet")
        return self._executor.statistics()

    def reset(self):
        """Starts the next epoch after the data were at their end; without effect before that.

        Of a pipeline that an iterator uses: another iterator may take its place, and goes on where it stands; at the end of an epoch
        with the next one. The same goes when the iterator is gone.
        """
        if self._lease is not None:
            self._lease.released = True
        if self._schedule is not None:
            self._schedule.reset()

    def close(self):
        """Stops the pipeline's threads. It can't run afterwards. Also done when it is garbage, and at exit."""
        if self._schedule is not None:
            self._finalizer()

    # --- files --------------------------------------------------------------------------------------------------

    def serialize(self, filename: str | os.PathLike[str] | None = None) -> bytes:
        """The traced definition and the pipeline's arguments as JSON text, for `deserialize`.

        Differs from DALI: the format, which is readable. The state is not in it: a pipeline made of it starts anew. A seed is in it
        if one was given; otherwise each pipeline made of it draws its own, as the one that is serialized did.

        Args:
          filename: where to write it, too.

        Raises:
          ValueError: an operator holds a Python function or iterator, e.g. external_source with a source.
        """
        given = {k: v for k, v in self._given.items() if k not in _OF_THIS_PROCESS}
        text = serialization.dump(self._graph, given)
        if filename is not None:
            pathlib.Path(filename).write_bytes(text)
        return text

    @staticmethod
    def deserialize(
        serialized_pipeline: bytes | str | None = None, filename: str | os.PathLike[str] | None = None, **kwargs: Any
    ) -> Pipeline:
        """A pipeline that gives the same data, and if it had a seed the same random numbers, as the one that was serialized.

        Nothing in the text is executed.

        Args:
          serialized_pipeline: what `serialize` returned; or
          filename: the file it wrote.
          **kwargs: arguments of `Pipeline`, instead of those in the text.

        Raises:
          ValueError: none or both of the first two are given.
          RuntimeError: it is not a serialized pipeline.
        """
        if (serialized_pipeline is None) == (filename is None):
            raise ValueError("deserialize: pass either serialized_pipeline or filename")
        text = serialized_pipeline if filename is None else pathlib.Path(filename).read_bytes()
        assert text is not None
        graph, arguments = serialization.load(text)
        pipeline = Pipeline(**_known({**arguments, **kwargs}))
        pipeline._collected = graph
        return pipeline

    def deserialize_and_build(self, serialized_pipeline: bytes | str):
        """Makes this pipeline, which must have no definition yet, the one that was serialized, and builds it.

        Arguments that were given to this pipeline win over those in the text. Errors are those of `deserialize`.
        """
        if self._collected is not None or self._outputs is not None:
            raise RuntimeError("deserialize_and_build: this pipeline is defined already")
        graph, arguments = serialization.load(serialized_pipeline)
        unset = Pipeline()._given
        own = {k: v for k, v in self._given.items() if v != unset[k]}
        restored = self._restored
        Pipeline.__init__(self, **_known({**arguments, **own}))
        self._restore(restored)
        self._collected = graph
        self.build()

    def save_graph_to_dot_file(
        self, filename: str | os.PathLike[str], show_tensors: bool = False, show_ids: bool = False, use_colors: bool = False
    ):
        """Writes the graph of operators in Graphviz' DOT language.

        Args:
          filename: the file.
          show_tensors: show the values between operators as boxes.
          show_ids: show the operators' numbers.
          use_colors: colour operators by where they run: gray: on the host; blue: compiled, on the CPU; green: on the accelerator.
        """
        text = dot(self._graph, show_tensors=show_tensors, show_ids=show_ids, use_colors=use_colors)
        pathlib.Path(filename).write_text(text, encoding="utf-8")

    # --- about readers ------------------------------------------------------------------------------------------

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """What a reader says about its data: epoch_size, epoch_size_padded, number_of_shards, shard_id, pad_last_batch, stick_to_shard.

        Args:
          name: of the reader. None: a dict of all readers by name.
        """
        self.build()
        assert self._executor is not None
        metas = {
            n.name: self._meta(n.id) for n in self._graph.nodes if n.id in self._executor.sources and self._executor.sources[n.id].meta
        }
        if name is None:
            return metas
        if name not in metas:
            raise RuntimeError(f"there is no reader named {name!r} in the pipeline; there are {sorted(metas)}")
        return metas[name]

    def _claim(self) -> dict[int, Source]:
        """An iterator takes this pipeline over, and the sources that `build` has opened."""
        self._check_arguments()
        if self._owned or (self._schedule is not None and self._schedule.started):
            raise RuntimeError("this pipeline is in use already, by run() or by another iterator: make one for each")
        self._owned = True
        if self._schedule is None:
            return {}
        self._finalizer.detach()
        schedule, self._schedule = self._schedule, None
        return schedule.hand_over()

    def _meta(self, node_id: int) -> dict[str, int]:
        assert self._executor is not None
        return dict(self._executor.sources[node_id].metas[self._shard_index])

    __module__ = "jaxdali.pipeline"  # where users find it
    _shard_index = 0  # among the local shards of the iterator that owns this pipeline
    _checkpoints: Callable[[], list[bytes] | None] | None = None  # those of that iterator's pipelines, of which this is number
    _checkpoint_index = 0

    def _restore(self, checkpoint: tuple[dict[str, Any], dict[str, Any] | None] | None):
        """What to start from, as `checkpoint.from_bytes` returns it; its seed is this pipeline's from now on."""
        self._restored = checkpoint
        if checkpoint is not None:
            self._seed = int(checkpoint[0]["seed"])

    @property
    def is_restored_from_checkpoint(self) -> bool:
        """Whether `checkpoint` was given."""
        return self._restored is not None

    def checkpoint(self, filename: str | os.PathLike[str] | None = None) -> bytes:
        """Where the pipeline stands after the batch that was taken last, for the argument `checkpoint` of another one.

        Made by an iterator that owns this pipeline, it is that of the iterator. Taking one changes nothing. Sources that can't be
        taken to a place start over there, with a warning: see `external_source`.

        Args:
          filename: where to write it, too.

        Raises:
          RuntimeError: `enable_checkpointing` is not on.
        """
        if not self._given["enable_checkpointing"]:
            raise RuntimeError("checkpoint() needs a pipeline with enable_checkpointing=True")
        self.build()
        if self._checkpoints is not None:
            all_of_them = self._checkpoints()
            if all_of_them is None:
                raise RuntimeError("the iterator of this pipeline is gone")
            data = all_of_them[self._checkpoint_index]
        else:
            assert self._executor is not None and self._schedule is not None
            data = checkpoints.to_bytes(checkpoints.records_of(self._executor, self._schedule.state, [(0, 1)])[0], None)
        if filename is not None:
            pathlib.Path(filename).write_bytes(data)
        return data

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


_OF_THIS_PROCESS = ("py_callback_pickler", "stream_policy", "concurrency")  # arguments that are not written to files
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
        pipeline._define(functools.partial(fn, *args, **of_function))
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
            f"the pipeline definition {fn.__name__} takes **{[p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD][0]}: "
            "name its arguments instead, so that they can be told from those of Pipeline"
        )
    of_function = {k: v for k, v in kwargs.items() if k in parameters}
    of_pipeline = {k: v for k, v in kwargs.items() if k not in parameters}
    for name in of_pipeline:
        if name not in _PIPELINE_ARGUMENTS:
            raise TypeError(
                f"{fn.__name__}: unknown argument {name!r}; the function takes ({', '.join(parameters)}), "
                f"Pipeline takes ({', '.join(_PIPELINE_ARGUMENTS)})"
            )
    return of_pipeline, of_function


def _known(arguments: dict[str, Any]) -> dict[str, Any]:
    for name in arguments:
        if name not in _PIPELINE_ARGUMENTS:
            raise TypeError(f"unknown argument {name!r}; Pipeline takes {', '.join(_PIPELINE_ARGUMENTS)}")
    return arguments
