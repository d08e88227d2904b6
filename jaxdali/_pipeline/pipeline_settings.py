"""The checked arguments of a pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from .._core.declaration import Auto, DType, Range, Whole, check_fields, checked
from .._core.system import MAX_THREADS, available_cpus
from .._plan.run_options import RunOptions, Tuned
from ..types import NO_TYPE
from .argument_checks import OUTPUTS, OperatorConcurrency, StreamPolicy

_FIRST_NUM_THREADS = 4  # the initial number, if it is tuned
DEFAULT_DEPTH = 2
MAX_DEPTH = 4096  # batches made ahead are all in memory
_NOT_SERIALIZED = ("py_callback_pickler", "stream_policy", "concurrency")  # has a meaning only in this process


class QueueDepths(TypedDict):
    """Batches made ahead by each of DALI's two stages. Here there is one stage, for which the larger number counts."""

    cpu_size: Whole
    gpu_size: Whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """The arguments of `Pipeline`, which documents them. None: not given.

    Raises:
      TypeError, ValueError: an argument has a wrong type or value.
    """

    batch_size: Whole | None = None
    num_threads: Whole | Auto | None = None
    device_id: Whole | None = None
    seed: Whole | None = None
    exec_pipelined: bool | int = True
    prefetch_queue_depth: Whole | Auto | QueueDepths = 2
    exec_async: bool | int = True
    set_affinity: bool | int = False
    max_streams: Whole = -1
    default_cuda_stream_priority: Whole = 0
    enable_checkpointing: bool = False
    output_dtype: DType | Sequence[DType | None] | None = None
    output_ndim: Annotated[Whole | Sequence[Whole | None] | None, Range(0)] = None
    output_layout: str | Sequence[str | None] | None = None
    enable_memory_stats: bool = False
    enable_statistics: bool = False
    enable_conditionals: bool = False
    debug: bool = False
    fuse: bool = True
    py_num_workers: Annotated[Whole, Range(0)] = 1
    py_start_method: Literal["fork", "spawn"] = "fork"
    py_callback_pickler: Any = None
    exec_dynamic: bool | None = None
    stream_policy: StreamPolicy | None = None
    concurrency: OperatorConcurrency | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> PipelineSettings:
        """The settings among the arguments of `Pipeline`."""
        return cls(**{f.name: arguments[f.name] for f in dataclasses.fields(cls)})

    def __post_init__(self):
        """Checks types and values. Forms of an argument that are equal in DALI, such as -1 and None, become one."""
        for name in (f.name for f in dataclasses.fields(self) if f.default is True and getattr(self, f.name) is None):
            self._set(name, False)  # None is False, as in DALI
        if isinstance(self.seed, bool):
            self._set("seed", int(self.seed))  # as in DALI
        if any(
            x is NO_TYPE
            for x in (self.output_dtype if isinstance(self.output_dtype, (list, tuple)) else [self.output_dtype])
        ):
            raise ValueError("output_dtype can't be NO_TYPE; use None for any type")
        check_fields("Pipeline", self)
        # As in DALI, -1 means that these two are not given, and any negative number that the next two are not.
        for name in ("batch_size", "num_threads"):
            if getattr(self, name) == -1:
                self._set(name, None)
        for name in ("device_id", "seed"):
            if (x := getattr(self, name)) is not None and x < 0:
                self._set(name, None)
        layout = self.output_layout  # an empty one stands for any, as in DALI
        self._set("output_layout", tuple(x or None for x in layout) if isinstance(layout, tuple) else layout or None)
        self._check_pickler()

    def _check_pickler(self):
        """Checks `py_callback_pickler`, a module like pickle or a tuple that begins with one, as DALI does."""
        pickler = self.py_callback_pickler
        if pickler is None:
            return
        if self.py_start_method == "fork":
            raise ValueError("py_callback_pickler is for py_start_method='spawn'")
        first_item = pickler[0] if isinstance(pickler, tuple) and pickler else pickler
        if not (hasattr(first_item, "dumps") and hasattr(first_item, "loads")):
            raise TypeError(
                f"py_callback_pickler must have dumps and loads, or be a tuple whose first item has them, got {pickler!r}"
            )

    def _set(self, name: str, value: Any):
        object.__setattr__(self, name, value)

    @property
    def threads(self) -> int:
        """CPU threads of the native operators; the initial number if it is tuned."""
        if isinstance(self.num_threads, str):
            return min(_FIRST_NUM_THREADS, available_cpus())
        return available_cpus() if self.num_threads is None else self.num_threads

    @property
    def depth(self) -> int:
        """Number of batches made ahead; the initial number if it is tuned."""
        depth = self.prefetch_queue_depth
        if isinstance(depth, str):
            return DEFAULT_DEPTH
        return max(depth["cpu_size"], depth["gpu_size"]) if isinstance(depth, dict) else depth

    @property
    def tuned(self) -> tuple[Tuned, ...]:
        """The arguments that are "auto"."""
        names: tuple[Tuned, ...] = ("num_threads", "prefetch_queue_depth")
        return tuple(name for name in names if getattr(self, name) == "auto")

    def run_options(self, seed: int) -> RunOptions:
        """The options of an executor, with a seed."""
        same_names = {f.name: getattr(self, f.name) for f in dataclasses.fields(RunOptions) if hasattr(self, f.name)}
        other_names = {
            "seed": seed,
            "num_threads": self.threads,
            "num_workers": self.py_num_workers,
            "statistics": self.enable_statistics,
        }
        return RunOptions(**(same_names | other_names))

    @property
    def output_requirements(self) -> dict[str, Any]:
        """The requirements on the outputs."""
        return {name: getattr(self, name) for name in OUTPUTS}

    @property
    def serialized(self) -> dict[str, Any]:
        """The arguments that a serialized pipeline contains."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in _NOT_SERIALIZED}

    @property
    def non_defaults(self) -> dict[str, Any]:
        """The arguments that differ from their defaults."""
        return {f.name: x for f in dataclasses.fields(self) if (x := getattr(self, f.name)) != f.default}

    def check_to_run(self):
        """Checks what only a pipeline that runs needs: required arguments, limits of numbers, and their combinations."""
        if self.batch_size is None:
            raise ValueError(
                "batch_size must be at least 1, and none was given: pass it in the call of the function under pipeline_def or "
                "data_iterator, as in define(batch_size=8), or to Pipeline"
            )
        checked("Pipeline", "batch_size", Annotated[Whole, Range(1)], self.batch_size)
        checked("Pipeline", "num_threads", Annotated[Whole, Range(1, MAX_THREADS)], self.threads)
        depth = self.prefetch_queue_depth
        for x in depth.values() if isinstance(depth, dict) else [self.depth]:
            checked("Pipeline", "prefetch_queue_depth", Annotated[Whole, Range(1, MAX_DEPTH)], x)
        if isinstance(depth, dict) and not self.exec_async:
            raise ValueError(f"prefetch_queue_depth={depth} needs exec_async=True; pass a number instead")
        if isinstance(depth, dict) and self.exec_dynamic:
            raise RuntimeError(
                f"prefetch_queue_depth={depth} and exec_dynamic=True can't be given together; pass a number instead"
            )
