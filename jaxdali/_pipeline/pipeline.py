"""`Pipeline`: a pipeline as its user sees it."""

from __future__ import annotations

import contextlib
import inspect
import os
import pathlib
from typing import Any

from .._core.building import warn
from .._core.errors import OperatorError
from .._core.graph import Graph
from .._core.names import named, unexpected
from . import arguments as check
from . import checkpoint as checkpoints
from . import serialization
from .arguments import OperatorConcurrency, StreamPolicy
from .describe import describe
from .dot import dot
from .runnable import Runnable
from .session import Session
from .settings import Settings


class Pipeline(Runnable):
    """A graph of operators and what is needed to run it.

    Made by calling a function decorated with `pipeline_def`; by subclassing and overriding `define_graph`; or with
    ``with pipeline: pipeline.set_outputs(...)``.

    Args:
      batch_size: samples per batch.
      num_threads: CPU threads of the native operators. Default: 4. "auto" (beyond DALI): as many as make batches faster while they are
        waited for, and no more than there are cores; found while batches are made ahead, without compiling anything.
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
        check.missing_modes(debug)
        if experimental_exec_dynamic is not None:
            warn("experimental_exec_dynamic is deprecated: use exec_dynamic", DeprecationWarning)
            exec_dynamic = experimental_exec_dynamic
        if bytes_per_sample is not None and check.whole("bytes_per_sample", bytes_per_sample) < 0:
            raise ValueError(f"bytes_per_sample must not be negative, got {bytes_per_sample}")
        settings = Settings(
            batch_size=batch_size,
            num_threads=num_threads,
            device_id=device_id,
            seed=seed,
            exec_pipelined=exec_pipelined,
            prefetch_queue_depth=prefetch_queue_depth,
            exec_async=exec_async,
            set_affinity=set_affinity,
            max_streams=-1 if max_streams is None else max_streams,
            default_cuda_stream_priority=default_cuda_stream_priority or 0,
            enable_checkpointing=enable_checkpointing,
            output_dtype=output_dtype,
            output_ndim=output_ndim,
            output_layout=output_layout,
            enable_memory_stats=enable_memory_stats,
            enable_statistics=enable_statistics,
            enable_conditionals=enable_conditionals,
            fuse=fuse,
            py_num_workers=1 if py_num_workers is None else py_num_workers,
            py_start_method="fork" if py_start_method is None else py_start_method,
            py_callback_pickler=py_callback_pickler,
            exec_dynamic=exec_dynamic,
            stream_policy=stream_policy,
            concurrency=concurrency,
        )
        if checkpoint is not None and not enable_checkpointing:
            raise RuntimeError("checkpoint is given, but enable_checkpointing is not: pass enable_checkpointing=True")
        super().__init__(settings, Session(settings))
        self._restore(None if checkpoint is None else checkpoints.from_bytes(checkpoint))

    __module__ = "jaxdali.pipeline"  # where users find it

    def __repr__(self) -> str:
        graph = self._collected
        if graph is None and self._outputs is not None:
            with contextlib.suppress(OperatorError):  # what is wrong is said when it is built
                graph = Graph.collect(self._made, self._outputs, self._sinks)
        given = f"batch_size={self.batch_size}, num_threads={self.num_threads}, device_id={self.device_id}, seed={self._seed}"
        executor = self._session.executor
        unknown = [None] * len(graph.outputs) if graph is not None else []
        specs = executor.plan.output_specs if executor is not None else unknown
        return describe(f"{type(self).__name__}({given})", graph, specs, self.batch_size)

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
        text = serialization.dump(self._graph, self._settings.for_file)
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
        start = self._session.start
        Pipeline.__init__(self, **_known({**arguments, **self._settings.given}))
        self._restore(start)
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

    # --- checkpoints --------------------------------------------------------------------------------------------

    def _restore(self, checkpoint: tuple[dict[str, Any], dict[str, Any] | None] | None):
        """What to start from, as `checkpoint.from_bytes` returns it; its seed is this pipeline's from now on."""
        self._session.start = checkpoint
        if checkpoint is not None:
            self._seed = int(checkpoint[0]["seed"])

    @property
    def is_restored_from_checkpoint(self) -> bool:
        """Whether `checkpoint` was given."""
        return self._session.start is not None

    def checkpoint(self, filename: str | os.PathLike[str] | None = None) -> bytes:
        """Where the pipeline stands after the batch that was taken last, for the argument `checkpoint` of another one.

        Made by an iterator that owns this pipeline, it is that of the iterator. Taking one changes nothing. Sources that can't be
        taken to a place start over there, with a warning: see `external_source`.

        Args:
          filename: where to write it, too.

        Raises:
          RuntimeError: `enable_checkpointing` is not on.
        """
        if not self._settings.enable_checkpointing:
            raise RuntimeError("checkpoint() needs a pipeline with enable_checkpointing=True")
        self.build()
        data = self._session.checkpoint()
        if filename is not None:
            pathlib.Path(filename).write_bytes(data)
        return data


ARGUMENTS = tuple(p for p in inspect.signature(Pipeline.__init__).parameters if p != "self")


def _known(arguments: dict[str, Any]) -> dict[str, Any]:
    for name in arguments:
        if name not in ARGUMENTS:
            raise TypeError(unexpected("Pipeline", name, ARGUMENTS))
    return arguments
