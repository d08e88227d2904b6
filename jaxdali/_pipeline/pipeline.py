"""`Pipeline`, the public class. Its work is done by `PipelineInternals`."""

from __future__ import annotations

import contextlib
import inspect
import os
import pathlib
from collections.abc import Callable
from typing import Annotated, Any, Generic, NoReturn, Self, TypeVar, overload

import jax

from .._batch.batch import BadSample
from .._batch.meter import Statistics
from .._core.building import current_scope, refuse_tracing, warn
from .._core.declaration import Range, Whole, checked
from .._core.errors import OperatorError
from .._core.graph import DataNode
from .._core.names import suggests_names, unexpected
from .._core.tracebacks import boundaries
from .._core.writing import write_whole
from ..backend import TensorListCPU, TensorListGPU
from ..types import DALIDataType, dali_type_of
from . import argument_checks, serialization
from . import checkpoint as checkpoints
from .argument_checks import OperatorConcurrency, StreamPolicy
from .describe import describe
from .dot import dot
from .graph_view import GraphPicture, draw
from .internals import PipelineInternals
from .pipeline_settings import PipelineSettings, QueueDepths

P = TypeVar("P")
T = TypeVar("T")


class _OverridableProperty(Generic[P, T]):
    """A property that a subclass or an instance may override by an attribute of its name. It is for properties that
    DALI's `Pipeline` does not have, so a subclass written for DALI may use the name.
    """

    def __init__(self, get: Callable[[P], T]):
        self._get = get
        self.__doc__ = get.__doc__

    # Without `__set__`, so that an attribute of the instance has precedence.
    @overload
    def __get__(self, instance: None, owner: type[P]) -> Self: ...
    @overload
    def __get__(self, instance: P, owner: type[P]) -> T: ...
    def __get__(self, instance: P | None, owner: type[P]) -> Self | T:
        return self if instance is None else self._get(instance)


@boundaries
class Pipeline:
    """A graph of operators and what is needed to run it.

    Made by calling a function decorated with `pipeline_def`; by subclassing and overriding `define_graph`; or with
    ``with pipeline: pipeline.set_outputs(...)``.

    Args:
      batch_size: samples per batch.
      num_threads: number of CPU threads for native operators. Default: the number of CPUs that the process may use (its
        affinity, and its control group's quota). "auto" (not in DALI) adds threads, up to these CPUs, while batches are
        waited for and more threads make them faster; it adapts while batches are made ahead, and compiles nothing.
      device_id: index in ``jax.local_devices()`` of the device where "mixed" and "gpu" operators run and outputs are
        put. None or negative: `jax.default_device`, or the first device. Differs from DALI: without an accelerator it
        is a CPU device, so that the same script runs on a laptop. The argument `device` of operators may also be "tpu",
        which means the same as "gpu".
      seed: the seed of all random numbers; None or negative draws a new one for each pipeline.
      exec_pipelined: whether batches are made ahead, in threads of the pipeline (in the user's thread if the data come
        from `feed_input` or `iter_setup`); otherwise a batch is made when it is scheduled.
      exec_async: has no effect, as JAX always dispatches asynchronously; accepted for compatibility with DALI.
      prefetch_queue_depth: how many batches are made ahead: a number, or ``{"cpu_size": n, "gpu_size": m}``, of which
        the larger counts. Pipelines whose sources are readers read one more with at least 16 threads, and on the CPU
        make one more; two with at least 32. "auto" (not in DALI) begins with 2, and goes up to 8 while batches are
        waited for although they are made fast enough on average.
      bytes_per_sample, set_affinity, max_streams, default_cuda_stream_priority: are checked, but have no effect: XLA
        and the operating system manage memory, streams and the placement of threads.
      exec_dynamic, experimental_exec_dynamic, stream_policy, concurrency, enable_memory_stats: are checked, but have no
        effect either.
      py_num_workers: number of threads in which each `external_source` of samples with ``parallel=True`` is called; 0
        counts as 1.
      py_start_method, py_callback_pickler: are checked, but have no effect, as workers are threads.
      enable_conditionals: whether `if`, `and`, `or` and `not` work on DataNodes, sample by sample, in the definition
        and in everything that it calls; see `pipeline_def`. (In DALI, only `pipeline_def` has this argument.)
      debug: whether the definition runs once for each batch, operator by operator, so that its values can be looked at:
        ``x.get()`` gives those of a node, ``print(x)`` shows them, and a debugger stops where you want. Plain Python
        code may depend on the values. The outputs are those of the compiled pipeline. It is slow, and only `run` and
        `schedule_run` take batches: iterators, checkpoints and files need a compiled pipeline. (In DALI, only
        `pipeline_def` has this argument.)
      enable_statistics: whether `statistics` of the pipeline and of iterators may be called. Not in DALI.
      fuse: whether decoding, warping, resizing, cropping and normalising on the CPU become one native call, which
        processes image by image in the cache and computes only the pixels that are needed. Results are the same within
        one level of 255. On GPUs, resizing or warping and the window behind it, such as `fn.crop_mirror_normalize`,
        become one. Not in DALI.
      enable_checkpointing: whether `checkpoint` of the pipeline and `checkpoints` of an iterator may be called.
      checkpoint: a checkpoint from one of these. The pipeline resumes from it, with its seed. Needs
        `enable_checkpointing`.
      output_dtype, output_ndim, output_layout: the type, number of dimensions or layout that outputs must have, one for
        all or a list; None: any. They are checked when the pipeline is built, or with its first batch if they are not
        known before.

    Raises:
      RuntimeError: `checkpoint` is not a checkpoint, or is not enabled; or, when the pipeline is built, it belongs to
        another pipeline, or an output does not have the required form.
      ValueError: when the pipeline is built, batch_size is missing, batch_size, num_threads or prefetch_queue_depth is
        out of range, or the device does not exist.
      TypeError: an argument has a wrong type.
    """

    @suggests_names
    def __init__(
        self,
        batch_size: int | None = None,
        num_threads: int | str | None = None,
        device_id: int | None = None,
        seed: int | None = None,
        exec_pipelined: bool = True,
        prefetch_queue_depth: int | dict[str, int] | str = 2,
        exec_async: bool = True,
        bytes_per_sample: int | None = 0,
        set_affinity: bool = False,
        max_streams: int | None = None,
        default_cuda_stream_priority: int | None = None,
        enable_memory_stats: bool = False,
        enable_checkpointing: bool = False,
        checkpoint: bytes | None = None,
        py_num_workers: int | None = 1,
        py_start_method: str | None = "fork",
        py_callback_pickler: Any = None,
        output_dtype: Any = None,
        output_ndim: Any = None,
        output_layout: Any = None,
        exec_dynamic: bool | None = None,
        experimental_exec_dynamic: bool | None = None,
        stream_policy: StreamPolicy | None = None,
        concurrency: OperatorConcurrency | None = None,
        *,
        enable_statistics: bool = False,
        enable_conditionals: bool = False,
        fuse: bool = True,
        debug: bool = False,
    ):
        arguments = locals()
        if experimental_exec_dynamic is not None:
            warn("experimental_exec_dynamic is deprecated: use exec_dynamic", DeprecationWarning)
            exec_dynamic = experimental_exec_dynamic
        if bytes_per_sample is not None:
            checked("Pipeline", "bytes_per_sample", Annotated[Whole, Range(0)], bytes_per_sample)
        settings = PipelineSettings.of({**arguments, "exec_dynamic": exec_dynamic})
        if checkpoint is not None and not enable_checkpointing:
            raise RuntimeError("checkpoint is given, but enable_checkpointing is not: pass enable_checkpointing=True")
        restored = None if checkpoint is None else checkpoints.from_bytes(checkpoint)
        iter_setup = None if type(self).iter_setup is Pipeline.iter_setup else self.iter_setup
        # The only attribute of an instance, with a name that Python mangles: subclasses may use any other name.
        self.__jaxdali = PipelineInternals(self, settings, restored, iter_setup)

    __module__ = "jaxdali.pipeline"  # where users find it

    def __repr__(self) -> str:
        graph = None
        with contextlib.suppress(OperatorError):  # a wrong definition is reported when it is built
            graph = self.__jaxdali.definition.current_graph
        arguments = f"batch_size={self.batch_size}, num_threads={self.num_threads}, device_id={self.device_id}, seed={self.__jaxdali.seed}"
        executor = self.__jaxdali.session.executor
        unknown = [None] * len(graph.outputs) if graph is not None else []
        specs = executor.plan.output_specs if executor is not None else unknown
        return describe(f"{type(self).__name__}({arguments})", graph, specs, self.batch_size)

    def _repr_html_(self) -> str | None:
        """The graph for a notebook, if the pipeline is built already; None otherwise."""
        return None if self.__jaxdali.session.executor is None else self.show()._repr_html_()

    # --- arguments ----------------------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Samples per batch; -1 if it was not given."""
        batch_size = self.__jaxdali.settings.batch_size
        return -1 if batch_size is None else batch_size

    @property
    def max_batch_size(self) -> int:
        """The same as `batch_size`."""
        return self.batch_size

    @property
    def num_threads(self) -> int:
        """CPU threads of the native operators; with "auto", the initial number."""
        return self.__jaxdali.settings.threads

    @property
    def device_id(self) -> int | None:
        """Index of the device in ``jax.local_devices()``; None: the first."""
        return self.__jaxdali.settings.device_id

    @property
    def seed(self) -> int:
        """The seed, given or drawn."""
        return self.__jaxdali.seed

    @property
    def exec_pipelined(self) -> bool:
        """Whether batches are made ahead."""
        return bool(self.__jaxdali.settings.exec_pipelined)

    @property
    def exec_async(self) -> bool:
        """The argument; it has no effect."""
        return bool(self.__jaxdali.settings.exec_async)

    @property
    def prefetch_queue_depth(self) -> int | QueueDepths | str:
        """The argument for the number of batches made ahead: a number, a dict or "auto"."""
        return self.__jaxdali.settings.prefetch_queue_depth

    @property
    def cpu_queue_size(self) -> int | str:
        """Batches that DALI's CPU stage makes ahead: `prefetch_queue_depth`, or its "cpu_size"."""
        depth = self.prefetch_queue_depth
        return depth["cpu_size"] if isinstance(depth, dict) else depth

    @property
    def gpu_queue_size(self) -> int | str:
        """Batches that DALI's GPU stage makes ahead: `prefetch_queue_depth`, or its "gpu_size"."""
        depth = self.prefetch_queue_depth
        return depth["gpu_size"] if isinstance(depth, dict) else depth

    @property
    def set_affinity(self) -> bool:
        """The argument; it has no effect."""
        return bool(self.__jaxdali.settings.set_affinity)

    @property
    def max_streams(self) -> int:
        """The argument, -1 for no limit; it has no effect."""
        return self.__jaxdali.settings.max_streams

    @property
    def default_cuda_stream_priority(self) -> int:
        """The argument; it has no effect."""
        return self.__jaxdali.settings.default_cuda_stream_priority

    @property
    def exec_dynamic(self) -> bool | None:
        """The argument; it has no effect. The default is that of DALI: True with one asynchronous queue, otherwise
        None.
        """
        exec_dynamic = self.__jaxdali.settings.exec_dynamic
        return (
            exec_dynamic
            if exec_dynamic is not None
            else (self.exec_pipelined and self.exec_async and not self.exec_separated) or None
        )

    @property
    def exec_separated(self) -> bool:
        """Whether `prefetch_queue_depth` is a dict."""
        return isinstance(self.prefetch_queue_depth, dict)

    @property
    def stream_policy(self) -> StreamPolicy | None:
        """The argument; it has no effect."""
        return self.__jaxdali.settings.stream_policy

    @property
    def concurrency(self) -> OperatorConcurrency | None:
        """The argument; it has no effect."""
        return self.__jaxdali.settings.concurrency

    @_OverridableProperty
    def enable_statistics(self) -> bool:
        """Whether `Pipeline.statistics` may be called."""
        return self.__jaxdali.settings.enable_statistics

    @_OverridableProperty
    def fuse(self) -> bool:
        """Whether operators that work image by image may be fused into one native call."""
        return self.__jaxdali.settings.fuse

    @property
    def enable_memory_stats(self) -> bool:
        """The argument; it has no effect."""
        return self.__jaxdali.settings.enable_memory_stats

    @property
    def py_num_workers(self) -> int:
        """Threads for sources with ``parallel=True``."""
        return self.__jaxdali.settings.py_num_workers

    @property
    def py_start_method(self) -> str:
        """The argument; it has no effect, as the workers are threads."""
        return self.__jaxdali.settings.py_start_method

    # --- definition ---------------------------------------------------------------------------------------------

    @property
    def num_outputs(self) -> int:
        """How many outputs the definition has."""
        return len(self.__jaxdali.graph.outputs)

    def output_dtype(self) -> list[DALIDataType | None]:
        """The type that each output must have, from the argument of this name; None: any."""
        dtypes = argument_checks.per_output(self.__jaxdali.graph, "output_dtype", self.__jaxdali.settings.output_dtype)
        return [None if dtype is None else dali_type_of(dtype) for dtype in dtypes]

    def output_ndim(self) -> list[int | None]:
        """The number of dimensions that each output must have, from the argument of this name; None: any."""
        return list(
            argument_checks.per_output(self.__jaxdali.graph, "output_ndim", self.__jaxdali.settings.output_ndim)
        )

    def output_layout(self) -> list[str | None]:
        """The layout that each output must have, from the argument of this name; None: any. Not in DALI."""
        return list(
            argument_checks.per_output(self.__jaxdali.graph, "output_layout", self.__jaxdali.settings.output_layout)
        )

    def define_graph(self) -> Any:
        """Overridden by subclasses: creates operators and returns the outputs, one DataNode or several."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no graph: override define_graph, use @pipeline_def, or call set_outputs inside `with pipeline:`"
        )

    def set_outputs(self, *outputs: DataNode | Any):
        """Sets the outputs, replacing earlier ones: DataNodes, or numbers and arrays, which become constants.

        Raises:
          TypeError: an output is none of these; a list of DataNodes must be spread: ``set_outputs(*nodes)``.
          RuntimeError: the pipeline is already built.
        """
        self.__jaxdali.definition.set_outputs(outputs)

    def add_sink(self, edge: DataNode):
        """Keeps an operator that no output depends on, and runs it with each batch."""
        self.__jaxdali.definition.add_sink(edge)

    @staticmethod
    def current() -> Pipeline | None:
        """The pipeline that is being defined in this thread: inside a definition, and inside ``with pipeline:``; else
        None.
        """
        scope = current_scope()
        return scope.owner if scope is not None else None

    @staticmethod
    def push_current(pipeline: Pipeline):
        """Makes this pipeline the current one, as ``with pipeline:`` does."""
        pipeline.__enter__()

    @staticmethod
    def pop_current():
        """Ends `push_current`. Raises RuntimeError if there is no current pipeline."""
        pipeline = Pipeline.current()
        if pipeline is None:
            raise RuntimeError("pop_current: there is no current pipeline")
        pipeline.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self.__jaxdali.definition.enter()
        return self

    def __exit__(self, *exc: Any):
        self.__jaxdali.definition.leave(*exc)

    # --- batches ------------------------------------------------------------------------------------------------

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Pipeline can't be pickled or copied: create it in the process that uses it, or serialize() it"
        )

    def build(self):
        """Traces the definition, opens the sources, and checks types and arguments. Calling it is optional, and may be
        repeated.

        Values that depend on fed data, or on what a function returns, are checked with the first batch.
        """
        self.__jaxdali.build()

    def run(self, cuda_stream: Any = None, /, **pipeline_inputs: Any) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """Returns the next batch, a tensor list for each output. It can't be mixed with `schedule_run`, `share_outputs`
        and `outputs`.

        Args:
          cuda_stream: has no effect, as XLA manages streams.
          **pipeline_inputs: data for external_sources, by name, as for `feed_input`. This needs
            ``prefetch_queue_depth=1`` or ``exec_pipelined=False``.

        Raises:
          StopIteration: the data have ended (a source ended, or iter_setup raised it; readers never end); `reset`
            starts the next epoch.
          RuntimeError: the pipeline is already used in another way, or `pipeline_inputs` can't be taken.
          SampleError: a sample failed; the next call returns the next batch.
        """
        if pipeline_inputs and self.exec_pipelined and self.__jaxdali.settings.depth > 1:
            raise RuntimeError(
                f"run({', '.join(f'{k}=...' for k in pipeline_inputs)}) needs prefetch_queue_depth=1 or exec_pipelined=False, got "
                f"prefetch_queue_depth={self.prefetch_queue_depth}; or use feed_input"
            )
        refuse_tracing("run()")
        self.__jaxdali.session.check_use("run()")
        self.build()
        for name, data in pipeline_inputs.items():
            self.feed_input(name, data)
        self.__jaxdali.session.schedule()
        return self.__jaxdali.session.take()

    def schedule_run(self):
        """Schedules a batch; the first call schedules as many as are made ahead. Take them with `share_outputs` or
        `outputs`.
        """
        self.__jaxdali.session.check_use("schedule_run()")
        self.build()
        self.__jaxdali.session.schedule()

    def share_outputs(self, cuda_stream: Any = None) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """Returns the batch that was scheduled first. Unlike DALI's, it stays valid after `release_outputs`.

        Args:
          cuda_stream: has no effect.

        Raises:
          StopIteration: nothing is scheduled, or the data have ended.
        """
        refuse_tracing("share_outputs()")
        self.__jaxdali.session.check_use("schedule_run()")
        self.build()
        return self.__jaxdali.session.take()

    def release_outputs(self):
        """Has no effect: a batch is freed when nothing refers to it."""
        self.__jaxdali.session.check_use("schedule_run()")

    def outputs(self, cuda_stream: Any = None) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """Calls `release_outputs` and `share_outputs`."""
        return self.share_outputs(cuda_stream)

    # Methods of older versions of DALI, which scripts still call. DALI 2.4 has them, too.

    def _prefetch(self):
        """Schedules as many batches as are made ahead, less those that are scheduled already."""
        self.__jaxdali.session.check_use("schedule_run()", "_prefetch()")
        self.build()
        self.__jaxdali.session.schedule(fill=True)

    def _run(self):
        """The same as `schedule_run`."""
        self.schedule_run()

    def _share_outputs(self) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """The same as `share_outputs`. In DALI 2.4 it returns nothing, but in the versions of these scripts it did."""
        return self.share_outputs()

    def _release_outputs(self):
        """The same as `release_outputs`."""
        self.release_outputs()

    def empty(self) -> bool:
        """Whether all batches that were scheduled have been taken."""
        return self.__jaxdali.session.empty

    def enable_api_check(self, enable: bool):
        """Sets whether mixing `run` with `schedule_run`, `share_outputs` and so on raises an error.

        Differs from DALI: a pipeline that an iterator uses can never be run in another way.
        """
        self.__jaxdali.session.allows_mixing = not enable

    def iter_setup(self):
        """Overridden by subclasses: called once for each batch, before it is made, e.g. to call `feed_input`.

        If it raises StopIteration, the epoch ends. It is called in the thread that calls `run` or the iterator's
        ``next``, as far ahead as batches are made.
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
        """Feeds the data of one batch to an `external_source` without a source. Batches are used in the order in which
        they are fed.

        Differs from DALI: one may feed `prefetch_queue_depth` batches before the first `run`, so that the next one is
        made ahead, or only one before each `run`.

        Args:
          data_node: the DataNode that the external_source returned, or its name.
          data: an array ``[N, ...]`` or a list of N arrays, N at most the batch size.
          layout: e.g. ``"HWC"``.
          cuda_stream, use_copy_kernel: have no effect.
          ref: DALI's older name of `data_node`.

        Raises:
          KeyError: there is no such external_source.
          RuntimeError: the external_source has a source.
          TypeError: `data_node` or `data` is missing.
        """
        data_node = ref if data_node is None else data_node
        if data_node is None or data is None:
            raise TypeError(f"feed_input: {'data_node' if data_node is None else 'data'} is missing")
        self.build()
        self.__jaxdali.session.feed(data_node, data, layout)

    def reset(self):
        """Starts the next epoch after the data have ended; it has no effect before that.

        If an iterator uses the pipeline, another iterator may then replace it. It continues where the first one stands,
        or with the next epoch at the end of one. The same holds when the iterator has been garbage-collected.
        """
        self.__jaxdali.session.reset()

    def close(self):
        """Stops the pipeline's threads. The pipeline can't run afterwards. This also happens when it is
        garbage-collected, and at exit.
        """
        self.__jaxdali.session.close()

    # --- about readers ------------------------------------------------------------------------------------------

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """Returns information about a reader: epoch_size, epoch_size_padded, number_of_shards, shard_id,
        pad_last_batch, stick_to_shard.

        Args:
          name: the name of the reader. None: the result is a dict of all readers by name.
        """
        self.build()
        sources = self.__jaxdali.session.metas()
        readers = {source_name: meta for source_name, meta in sources.items() if meta}
        if name is None:
            return readers
        if name not in readers:
            advice = (
                "; a source without a list of samples, such as external_source, is not a reader: leave out "
                "reader_name, and the epoch ends when the source does, or pass size="
            )
            named = sorted(n for n in readers if not n.startswith("__"))  # other names are made by the pipeline
            existing = f"; there are {named}" if named or not readers else ""
            unnamed = f"; give the reader name={name!r}" if len(named) < len(readers) else ""
            raise RuntimeError(
                f"there is no reader named {name!r} in the pipeline{existing}{unnamed}"
                + (advice if name in sources or (sources and not readers) else "")
            )
        return readers[name]

    def epoch_size(self, name: str | None = None) -> Any:
        """Returns the padded epoch size of a reader, or a dict with those of all readers."""
        if name is None:
            return {k: v["epoch_size_padded"] for k, v in self.reader_meta().items()}
        return self.reader_meta(name)["epoch_size_padded"]

    # --- how it runs --------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Returns seconds, calls, samples and bytes of each stage and step so far, as rows, which print as a table. Not
        in DALI.

        The stages are: reading sources, operators on the host, setup and launch of programs, waiting for them, and the
        final form of the outputs. A program that runs while nobody waits for it takes no time here.

        The stage "program" has the time of operators inside programs on the CPU: the seconds of each native call from
        beginning to end, regardless of how many threads work on it, by the operator's ``name=``. They are already part
        of "launch" and "check", and must not be added to these. Operators that are fused into one call (such as decode
        and resize) divide its time in proportion to their time in all threads. With several devices at the same time,
        it is their mean. Operators that XLA computes (arithmetic, `jax_function`, ...) have no rows here, as XLA fuses
        them; nor have operators on an accelerator. JAX's profiler shows these.

        Raises:
          RuntimeError: the pipeline was not made with ``enable_statistics=True``, or has not run yet.
        """
        executor = self.__jaxdali.session.executor
        if executor is None:
            raise RuntimeError("statistics: the pipeline has not run yet")
        return executor.statistics()

    def show(self) -> GraphPicture:
        """Builds the pipeline and draws its graph: each operator, where it runs, and the type and shape of each output.
        Not in DALI.

        Operators that are fused into one native call are one box. With ``enable_statistics=True`` and after the first
        batch, each operator has its time in milliseconds per batch. Operators that nothing needs, or that change
        nothing, are not shown.

        Example:
          >>> pipeline.show().save("pipeline.svg")
        """
        self.build()
        executor = self.__jaxdali.session.executor
        if executor is None:
            raise RuntimeError(
                "show: a pipeline with debug=True has no graph that stays the same: show it without debug=True"
            )
        names = [f"output {i}" for i in range(len(executor.plan.outputs))]
        return draw(executor.plan, names, self.batch_size, executor.statistics() if self.enable_statistics else ())

    def executor_statistics(self) -> dict[str, Any]:
        """Returns an empty dict, as DALI's default executor does: XLA manages memory."""
        return {}

    def external_source_shm_statistics(self) -> dict[str, list[int]]:
        """Returns empty lists: sources run in threads, and share no memory between processes."""
        return {"capacities": [], "per_sample_capacities": []}

    def start_py_workers(self):
        """Has no effect: workers are threads, which start with the pipeline and may start after CUDA."""

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """Returns JAX's `Lowered` object of the program that ran last, with `.as_text()`, `.compile().cost_analysis()`
        and so on.

        Args:
          segment: the number of the program, if the pipeline has several.

        Raises:
          RuntimeError: no batch has been made yet.
        """
        executor = self.__jaxdali.session.executor
        if executor is None:
            raise RuntimeError("no program has run yet: take a batch first")
        return executor.lower(segment)

    def bad_samples(self) -> list[BadSample]:
        """Returns the samples that ``on_error`` has replaced or skipped so far: file, reason, count. Not in DALI."""
        return self.__jaxdali.session.bad_samples()

    # --- files --------------------------------------------------------------------------------------------------

    def serialize(
        self, define_graph: Callable[[], Any] | None = None, filename: str | os.PathLike[str] | None = None
    ) -> bytes:
        """Returns the traced definition and the pipeline's arguments as JSON text, for `deserialize`.

        Differs from DALI: the format, which is human-readable. It does not contain the state: a deserialized pipeline
        starts anew. It contains the seed only if one was given; otherwise each deserialized pipeline draws its own.

        Args:
          define_graph: a definition for a pipeline that has none yet; it is called without arguments.
          filename: a file to write the result to.

        Raises:
          TypeError: `define_graph` can't be called.
          RuntimeError: `define_graph` is given, but the pipeline already has outputs.
          ValueError: an operator holds a Python function or iterator, e.g. external_source with a source.
        """
        if define_graph is not None:
            if not callable(define_graph):
                advice = (
                    ": pass the name of a file as filename=..." if isinstance(define_graph, (str, os.PathLike)) else ""
                )
                raise TypeError(f"serialize: argument define_graph must be callable, got {define_graph!r}{advice}")
            if self.__jaxdali.definition.is_begun:
                raise RuntimeError("serialize: define_graph is given, but the pipeline has a definition already")
            self.__jaxdali.definition.define(define_graph)
        text = serialization.dump(self.__jaxdali.graph, self.__jaxdali.settings.serialized)
        if filename is not None:
            pathlib.Path(filename).write_bytes(text)
        return text

    @staticmethod
    def deserialize(
        serialized_pipeline: bytes | str | None = None, filename: str | os.PathLike[str] | None = None, **kwargs: Any
    ) -> Pipeline:
        """Makes a pipeline from a serialized one. It gives the same data, and the same random numbers if that one had a
        seed.

        No code in the text is executed.

        Args:
          serialized_pipeline: the text from `serialize`.
          filename: the file that `serialize` wrote, instead of the text.
          **kwargs: arguments of `Pipeline`, which override those in the text.

        Raises:
          ValueError: none or both of the first two are given.
          RuntimeError: the text is not a serialized pipeline.
        """
        if (serialized_pipeline is None) == (filename is None):
            raise ValueError("deserialize: pass either serialized_pipeline or filename")
        text = serialized_pipeline if filename is None else pathlib.Path(filename).read_bytes()
        assert text is not None
        graph, arguments = serialization.load(text)
        pipeline = Pipeline(**_check_names({**arguments, **kwargs}))
        internals_of(pipeline).definition.graph = graph
        return pipeline

    def deserialize_and_build(self, serialized_pipeline: bytes | str):
        """Turns this pipeline, which must not have a definition yet, into the serialized one, and builds it.

        Arguments of this pipeline override those in the text. Errors are those of `deserialize`.
        """
        if self.__jaxdali.definition.is_begun:
            raise RuntimeError("deserialize_and_build: this pipeline is defined already")
        graph, arguments = serialization.load(serialized_pipeline)
        start = self.__jaxdali.session.start  # a checkpoint is not among the settings
        Pipeline.__init__(self, **_check_names({**arguments, **self.__jaxdali.settings.non_defaults}))
        self.__jaxdali.restore(start)
        self.__jaxdali.definition.graph = graph
        self.build()

    def save_graph_to_dot_file(
        self,
        filename: str | os.PathLike[str],
        show_tensors: bool = False,
        show_ids: bool = False,
        use_colors: bool = False,
    ):
        """Writes the graph of operators in Graphviz' DOT language.

        Args:
          filename: the file.
          show_tensors: whether to show the values between operators as boxes.
          show_ids: whether to show the operators' numbers.
          use_colors: whether to colour operators by where they run: gray on the host, blue compiled on the CPU, green
            on the accelerator.
        """
        text = dot(self.__jaxdali.graph, show_tensors=show_tensors, show_ids=show_ids, use_colors=use_colors)
        pathlib.Path(filename).write_text(text, encoding="utf-8")

    # --- checkpoints --------------------------------------------------------------------------------------------

    @property
    def is_restored_from_checkpoint(self) -> bool:
        """Whether `checkpoint` was given."""
        return self.__jaxdali.session.start is not None

    def checkpoint(self, filename: str | os.PathLike[str] | None = None) -> bytes:
        """Returns the state after the batch that was taken last, for the argument `checkpoint` of another pipeline.

        If an iterator uses this pipeline, the state is that of the iterator. Taking a checkpoint changes nothing.
        Sources that can't resume start over, with a warning; see `external_source`.

        Args:
          filename: a file to write the result to. It holds the former one until the new one is complete.

        Raises:
          RuntimeError: `enable_checkpointing` is not on.
          OSError: the file can't be written.
        """
        if not self.__jaxdali.settings.enable_checkpointing:
            raise RuntimeError("checkpoint() needs a pipeline with enable_checkpointing=True")
        self.build()
        data = self.__jaxdali.session.checkpoint()
        if filename is not None:
            write_whole(filename, data)
        return data


def internals_of(pipeline: Pipeline) -> PipelineInternals:
    """The internals of a pipeline, for the modules that run it."""
    return pipeline._Pipeline__jaxdali  # pyright: ignore[reportAttributeAccessIssue]


ARGUMENTS = tuple(p for p in inspect.signature(Pipeline.__init__).parameters if p != "self")


def _check_names(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments. Raises TypeError if `Pipeline` has no argument of one of the names."""
    for name in arguments:
        if name not in ARGUMENTS:
            raise TypeError(unexpected("Pipeline", name, ARGUMENTS))
    return arguments
