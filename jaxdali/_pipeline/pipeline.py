"""`Pipeline`: a pipeline as its user sees it."""

from __future__ import annotations

import contextlib
import inspect
import os
import pathlib
from collections.abc import Callable
from typing import Any, Generic, NoReturn, Self, TypeVar, overload

import jax

from .._batch.batch import BadSample
from .._batch.meter import Statistics
from .._core.building import current_scope, refuse_tracing, warn
from .._core.errors import OperatorError
from .._core.graph import DataNode
from .._core.names import named, unexpected
from .._core.tracebacks import boundaries
from ..backend import TensorListCPU, TensorListGPU
from ..types import DALIDataType, dali_type_of
from . import arguments as check
from . import checkpoint as checkpoints
from . import serialization
from .arguments import OperatorConcurrency, StreamPolicy
from .describe import describe
from .dot import dot
from .parts import Parts
from .settings import Settings

P = TypeVar("P")
T = TypeVar("T")


class _Beyond(Generic[P, T]):
    """A property that DALI's `Pipeline` does not have: subclasses may set attributes of its name."""

    def __init__(self, get: Callable[[P], T]):
        self._get = get
        self.__doc__ = get.__doc__

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
      num_threads: CPU threads of the native operators. Default: as many as the CPUs that the process may use (its affinity, and its
        control group's quota). "auto" (beyond DALI): as many as make batches faster while they are waited for, and no more than those
        CPUs; found while batches are made ahead, without compiling anything.
      device_id: place of the device in ``jax.local_devices()``, where "mixed" and "gpu" operators run and outputs are put.
        None or negative: `jax.default_device`, or the first. Differs from DALI: without an accelerator it is a CPU device, so that
        the same script runs on a laptop.
      seed: of all random numbers; None or negative: another one in each pipeline.
      exec_pipelined: False: a batch is made when it is scheduled; True: ahead, by threads of the pipeline's own (in the user's
        thread when the data come from `feed_input` or `iter_setup`).
      exec_async: without effect (JAX never waits for what it dispatches), accepted for DALI's sake.
      prefetch_queue_depth: batches made ahead: a number, or ``{"cpu_size": n, "gpu_size": m}``, of which the larger counts. "auto" (beyond
        DALI): 2, and up to 8 while batches are waited for although they are made fast enough on the whole.
      bytes_per_sample, set_affinity, max_streams, default_cuda_stream_priority, exec_dynamic, experimental_exec_dynamic, stream_policy,
        concurrency, enable_memory_stats: checked, and without effect: memory, streams and placement of threads are XLA's and the
        operating system's.
      py_num_workers: threads in which each `external_source` of samples with ``parallel=True`` is called; 0 counts as 1.
      py_start_method, py_callback_pickler: checked, and without effect: workers are threads.
      enable_conditionals: whether `if`, `and`, `or` and `not` work on DataNodes, sample by sample, in the definition and in all that it
        calls: see `pipeline_def`, of which alone it is an argument in DALI.
      debug: not there yet; True raises NotImplementedError. (In DALI an argument of `pipeline_def` alone.)
      enable_statistics: whether `statistics`, also of an iterator, may be called. Beyond DALI.
      fuse: whether decoding, warping, resizing, cropping and normalising on the CPU become one native call, which works image by
        image in the cache and makes of each no more than is wanted: the same results to a level of 255. Beyond DALI.
      enable_checkpointing: whether `checkpoint`, and `checkpoints` of an iterator, may be called.
      checkpoint: what one of these returned: the pipeline goes on from there, with its seed. Needs `enable_checkpointing`.
      output_dtype, output_ndim, output_layout: what the outputs must have, one for all or a list; None: anything. Checked when the
        pipeline is built, or with its first batch where only that tells.

    Raises:
      RuntimeError: `checkpoint` is none, or not enabled; when it is built: it is of another pipeline, or an output is not as said.
      ValueError: when it is built: batch_size missing; batch_size, num_threads or prefetch_queue_depth out of range; no such device.
      TypeError: an argument of a wrong type.
    """

    @named
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
        check.missing_modes(debug)
        if experimental_exec_dynamic is not None:
            warn("experimental_exec_dynamic is deprecated: use exec_dynamic", DeprecationWarning)
            exec_dynamic = experimental_exec_dynamic
        if bytes_per_sample is not None and check.whole("bytes_per_sample", bytes_per_sample) < 0:
            raise ValueError(f"bytes_per_sample must not be negative, got {bytes_per_sample}")
        settings = Settings.of({**arguments, "exec_dynamic": exec_dynamic})
        if checkpoint is not None and not enable_checkpointing:
            raise RuntimeError("checkpoint is given, but enable_checkpointing is not: pass enable_checkpointing=True")
        restored = None if checkpoint is None else checkpoints.from_bytes(checkpoint)
        # The only attribute: subclasses may use any other name.
        own = None if type(self).iter_setup is Pipeline.iter_setup else self.iter_setup
        self.__jaxdali = Parts(self, settings, restored, own)

    __module__ = "jaxdali.pipeline"  # where users find it

    def __repr__(self) -> str:
        graph = None
        with contextlib.suppress(OperatorError):  # what is wrong is said when it is built
            graph = self.__jaxdali.definition.so_far
        given = f"batch_size={self.batch_size}, num_threads={self.num_threads}, device_id={self.device_id}, seed={self.__jaxdali.seed}"
        executor = self.__jaxdali.session.executor
        unknown = [None] * len(graph.outputs) if graph is not None else []
        specs = executor.plan.output_specs if executor is not None else unknown
        return describe(f"{type(self).__name__}({given})", graph, specs, self.batch_size)

    # --- arguments ----------------------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Samples per batch; -1 when it was not given."""
        given = self.__jaxdali.settings.batch_size
        return -1 if given is None else given

    @property
    def max_batch_size(self) -> int:
        """The same as `batch_size`."""
        return self.batch_size

    @property
    def num_threads(self) -> int:
        """CPU threads of the native operators; those to begin with, where they are tuned."""
        return self.__jaxdali.settings.threads

    @property
    def device_id(self) -> int | None:
        """Place of the device in ``jax.local_devices()``; None: the first."""
        return self.__jaxdali.settings.device_id

    @property
    def seed(self) -> int:
        """The seed, given or drawn."""
        return self.__jaxdali.seed

    @property
    def exec_pipelined(self) -> bool:
        """Whether batches are made ahead."""
        return self.__jaxdali.settings.exec_pipelined

    @property
    def exec_async(self) -> bool:
        """As given; without effect."""
        return self.__jaxdali.settings.exec_async

    @property
    def prefetch_queue_depth(self) -> int | dict[str, int] | str:
        """Batches made ahead, as given: a number, a dict or "auto"."""
        return self.__jaxdali.settings.prefetch_queue_depth

    @property
    def cpu_queue_size(self) -> int | str:
        """Batches that DALI's CPU stage makes ahead: `prefetch_queue_depth`, of a dict its "cpu_size"."""
        depth = self.prefetch_queue_depth
        return depth["cpu_size"] if isinstance(depth, dict) else depth

    @property
    def gpu_queue_size(self) -> int | str:
        """The same of its GPU stage: of a dict its "gpu_size"."""
        depth = self.prefetch_queue_depth
        return depth["gpu_size"] if isinstance(depth, dict) else depth

    @property
    def set_affinity(self) -> bool:
        """As given; without effect."""
        return self.__jaxdali.settings.set_affinity

    @property
    def max_streams(self) -> int:
        """As given, -1: no limit; without effect."""
        return self.__jaxdali.settings.max_streams

    @property
    def default_cuda_stream_priority(self) -> int:
        """As given; without effect."""
        return self.__jaxdali.settings.default_cuda_stream_priority

    @property
    def exec_dynamic(self) -> bool | None:
        """As given; else True where DALI's default would be that; without effect."""
        given = self.__jaxdali.settings.exec_dynamic
        return given if given is not None else (self.exec_pipelined and self.exec_async and not self.exec_separated) or None

    @property
    def exec_separated(self) -> bool:
        """Whether `prefetch_queue_depth` is a dict."""
        return isinstance(self.prefetch_queue_depth, dict)

    @property
    def stream_policy(self) -> StreamPolicy | None:
        """As given; without effect."""
        return self.__jaxdali.settings.stream_policy

    @property
    def concurrency(self) -> OperatorConcurrency | None:
        """As given; without effect."""
        return self.__jaxdali.settings.concurrency

    @_Beyond
    def enable_statistics(self) -> bool:
        """Whether `Pipeline.statistics` may be called."""
        return self.__jaxdali.settings.enable_statistics

    @_Beyond
    def fuse(self) -> bool:
        """Whether operators on the CPU that work image by image may be one native call."""
        return self.__jaxdali.settings.fuse

    @property
    def enable_memory_stats(self) -> bool:
        """As given; without effect."""
        return self.__jaxdali.settings.enable_memory_stats

    @property
    def py_num_workers(self) -> int:
        """Threads for sources with ``parallel=True``."""
        return self.__jaxdali.settings.py_num_workers

    @property
    def py_start_method(self) -> str:
        """As given; without effect: the workers are threads."""
        return self.__jaxdali.settings.py_start_method

    # --- definition ---------------------------------------------------------------------------------------------

    @property
    def num_outputs(self) -> int:
        """How many outputs the definition has."""
        return len(self.__jaxdali.graph.outputs)

    def output_dtype(self) -> list[DALIDataType | None]:
        """The type that each output must have, as the argument of this name says; None: any."""
        each = check.per_output(self.__jaxdali.graph, "output_dtype", self.__jaxdali.settings.output_dtype)
        return [None if x is None else dali_type_of(x) for x in each]

    def output_ndim(self) -> list[int | None]:
        """The number of dimensions that each output must have, as the argument of this name says; None: any."""
        return list(check.per_output(self.__jaxdali.graph, "output_ndim", self.__jaxdali.settings.output_ndim))

    def output_layout(self) -> list[str | None]:
        """The layout that each output must have, as the argument of this name says; None: any. Not in DALI."""
        return list(check.per_output(self.__jaxdali.graph, "output_layout", self.__jaxdali.settings.output_layout))

    def define_graph(self) -> Any:
        """Overridden by subclasses: creates operators and returns the outputs, one DataNode or several."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no graph: override define_graph, use @pipeline_def, or call set_outputs inside `with pipeline:`"
        )

    def set_outputs(self, *outputs: DataNode | Any):
        """Sets the outputs, in place of those it had: DataNodes, wherever they were made, and numbers or arrays, which become constants.

        Raises:
          TypeError: an output is none of these; a list of DataNodes must be spread: ``set_outputs(*nodes)``.
          RuntimeError: the pipeline is built already.
        """
        self.__jaxdali.definition.set_outputs(outputs)

    def add_sink(self, edge: DataNode):
        """Keeps an operator that no output depends on, and runs it with each batch."""
        self.__jaxdali.definition.add_sink(edge)

    @staticmethod
    def current() -> Pipeline | None:
        """The pipeline that is being defined in this thread: inside a definition, and inside ``with pipeline:``; else None."""
        scope = current_scope()
        return scope.owner if scope is not None else None

    @staticmethod
    def push_current(pipeline: Pipeline):
        """Begins what ``with pipeline:`` does."""
        pipeline.__enter__()

    @staticmethod
    def pop_current():
        """Ends what `push_current` began. RuntimeError when there is no current pipeline."""
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
        raise TypeError("a Pipeline can't be pickled or copied: make it in the process that uses it, or serialize() it")

    def build(self):
        """Traces the definition, opens the sources, and checks types and arguments. Optional, and harmless to repeat.

        What depends on data that are fed, or on what a function returns, is checked with the first batch.
        """
        self.__jaxdali.build()

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
        """Schedules a batch; the first call as many as are made ahead. Take them with `share_outputs` or `outputs`."""
        self.__jaxdali.session.check_use("schedule_run()")
        self.build()
        self.__jaxdali.session.schedule()

    def share_outputs(self, cuda_stream: Any = None) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """The batch that was scheduled first. Unlike DALI's, it stays valid after `release_outputs`.

        Args:
          cuda_stream: without effect.

        Raises:
          StopIteration: nothing is scheduled, or the data are at their end.
        """
        refuse_tracing("share_outputs()")
        self.__jaxdali.session.check_use("schedule_run()")
        self.build()
        return self.__jaxdali.session.take()

    def release_outputs(self):
        """Without effect: a batch is freed when nothing refers to it."""
        self.__jaxdali.session.check_use("schedule_run()")

    def outputs(self, cuda_stream: Any = None) -> tuple[TensorListCPU | TensorListGPU, ...]:
        """`release_outputs` and `share_outputs`."""
        return self.share_outputs(cuda_stream)

    def empty(self) -> bool:
        """Whether all batches that were scheduled have been taken."""
        return self.__jaxdali.session.empty

    def enable_api_check(self, enable: bool):
        """Whether mixing `run` with `schedule_run`, `share_outputs` and so on raises.

        Differs from DALI: a pipeline that an iterator uses can't be run otherwise in any case.
        """
        self.__jaxdali.session.mixing = not enable

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
        self.__jaxdali.session.feed(data_node, data, layout)

    def reset(self):
        """Starts the next epoch after the data were at their end; without effect before that.

        Of a pipeline that an iterator uses: another iterator may take its place, and goes on where it stands; at the end of an epoch
        with the next one. The same goes when the iterator is gone.
        """
        self.__jaxdali.session.reset()

    def close(self):
        """Stops the pipeline's threads. It can't run afterwards. Also done when it is garbage, and at exit."""
        self.__jaxdali.session.close()

    # --- about readers ------------------------------------------------------------------------------------------

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """What a reader says about its data: epoch_size, epoch_size_padded, number_of_shards, shard_id, pad_last_batch, stick_to_shard.

        Args:
          name: of the reader. None: a dict of all readers by name.
        """
        self.build()
        metas = self.__jaxdali.session.metas()
        if name is None:
            return metas
        if name not in metas:
            raise RuntimeError(f"there is no reader named {name!r} in the pipeline; there are {sorted(metas)}")
        return metas[name]

    def epoch_size(self, name: str | None = None) -> Any:
        """Padded epoch size of a reader, or of all readers as a dict."""
        if name is None:
            return {k: v["epoch_size_padded"] for k, v in self.reader_meta().items()}
        return self.reader_meta(name)["epoch_size_padded"]

    # --- how it runs --------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Seconds, calls, samples and bytes of each stage and step so far, as rows; printed it is a table. Beyond DALI.

        Stages: reading of sources, operators on the host, setup and launch of programs, waiting for them, form of the outputs. A program
        that runs while nobody waits for it costs nothing there.

        What operators take inside programs on the CPU is the stage "program": seconds of each native call, from its begin to its end,
        however many threads work on it, by the operator's ``name=``. They are part of what "launch" and "check" took, and not to be
        added to it. Operators that are one call (decode and resize, say) divide its time by what their stages took in all threads.
        Where several devices run at once it is their mean. Operators that XLA computes (arithmetic, `jax_function`, ...) have no rows
        there, as it makes one loop of several, nor has any on an accelerator: JAX's profiler shows these.

        Raises:
          RuntimeError: the pipeline was not made with ``enable_statistics=True``, or has not run yet.
        """
        executor = self.__jaxdali.session.executor
        if executor is None:
            raise RuntimeError("statistics: the pipeline has not run yet")
        return executor.statistics()

    def executor_statistics(self) -> dict[str, Any]:
        """Empty, as from DALI's default executor: memory is XLA's."""
        return {}

    def external_source_shm_statistics(self) -> dict[str, list[int]]:
        """Empty lists: sources run in threads, and share no memory between processes."""
        return {"capacities": [], "per_sample_capacities": []}

    def start_py_workers(self):
        """Without effect: workers are threads, which start with the pipeline, and need no care before CUDA is used."""

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """JAX's own `Lowered` object of the very program that ran last: `.as_text()`, `.compile().cost_analysis()` and so on.

        Args:
          segment: number of the program, where the pipeline has several.

        Raises:
          RuntimeError: no batch was made yet.
        """
        executor = self.__jaxdali.session.executor
        if executor is None:
            raise RuntimeError("no program has run yet: take a batch first")
        return executor.lower(segment)

    def bad_samples(self) -> list[BadSample]:
        """The samples that ``on_error="replace"`` replaced and "skip" left out so far: file, reason, count. Beyond DALI."""
        return self.__jaxdali.session.executor.bad_samples() if self.__jaxdali.session.executor is not None else []

    # --- files --------------------------------------------------------------------------------------------------

    def serialize(self, define_graph: Callable[[], Any] | None = None, filename: str | os.PathLike[str] | None = None) -> bytes:
        """The traced definition and the pipeline's arguments as JSON text, for `deserialize`.

        Differs from DALI: the format, which is readable. The state is not in it: a pipeline made of it starts anew. A seed is in it
        if one was given; otherwise each pipeline made of it draws its own, as the one that is serialized did.

        Args:
          define_graph: a definition, called without arguments, of a pipeline that has none yet.
          filename: where to write it, too.

        Raises:
          TypeError: `define_graph` can't be called.
          RuntimeError: it is given, and the pipeline has outputs already.
          ValueError: an operator holds a Python function or iterator, e.g. external_source with a source.
        """
        if define_graph is not None:
            if not callable(define_graph):
                instead = ": the name of a file is filename=..." if isinstance(define_graph, (str, os.PathLike)) else ""
                raise TypeError(f"serialize: argument define_graph must be callable, got {define_graph!r}{instead}")
            if self.__jaxdali.definition.begun:
                raise RuntimeError("serialize: define_graph is given, but the pipeline has a definition already")
            self.__jaxdali.definition.define(define_graph)
        text = serialization.dump(self.__jaxdali.graph, self.__jaxdali.settings.for_file)
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
        parts_of(pipeline).definition.graph = graph
        return pipeline

    def deserialize_and_build(self, serialized_pipeline: bytes | str):
        """Makes this pipeline, which must have no definition yet, the one that was serialized, and builds it.

        Arguments that were given to this pipeline win over those in the text. Errors are those of `deserialize`.
        """
        if self.__jaxdali.definition.begun:
            raise RuntimeError("deserialize_and_build: this pipeline is defined already")
        graph, arguments = serialization.load(serialized_pipeline)
        start = self.__jaxdali.session.start
        Pipeline.__init__(self, **_known({**arguments, **self.__jaxdali.settings.given}))
        self.__jaxdali.restore(start)
        self.__jaxdali.definition.graph = graph
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
        text = dot(self.__jaxdali.graph, show_tensors=show_tensors, show_ids=show_ids, use_colors=use_colors)
        pathlib.Path(filename).write_text(text, encoding="utf-8")

    # --- checkpoints --------------------------------------------------------------------------------------------

    @property
    def is_restored_from_checkpoint(self) -> bool:
        """Whether `checkpoint` was given."""
        return self.__jaxdali.session.start is not None

    def checkpoint(self, filename: str | os.PathLike[str] | None = None) -> bytes:
        """Where the pipeline stands after the batch that was taken last, for the argument `checkpoint` of another one.

        Made by an iterator that owns this pipeline, it is that of the iterator. Taking one changes nothing. Sources that can't be
        taken to a place start over there, with a warning: see `external_source`.

        Args:
          filename: where to write it, too.

        Raises:
          RuntimeError: `enable_checkpointing` is not on.
        """
        if not self.__jaxdali.settings.enable_checkpointing:
            raise RuntimeError("checkpoint() needs a pipeline with enable_checkpointing=True")
        self.build()
        data = self.__jaxdali.session.checkpoint()
        if filename is not None:
            pathlib.Path(filename).write_bytes(data)
        return data


def parts_of(pipeline: Pipeline) -> Parts:
    """What a pipeline consists of: for the library, which runs it."""
    return pipeline._Pipeline__jaxdali  # pyright: ignore[reportAttributeAccessIssue]


ARGUMENTS = tuple(p for p in inspect.signature(Pipeline.__init__).parameters if p != "self")


def _known(arguments: dict[str, Any]) -> dict[str, Any]:
    for name in arguments:
        if name not in ARGUMENTS:
            raise TypeError(unexpected("Pipeline", name, ARGUMENTS))
    return arguments
