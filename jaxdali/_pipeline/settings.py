"""The arguments of a pipeline, checked, and under their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .._batch.options import RunOptions
from .._core.threads import available_cpus
from . import arguments as check
from .arguments import OperatorConcurrency, StreamPolicy

_FIRST_NUM_THREADS = 4  # where the number is tuned
DEFAULT_DEPTH = 2
MAX_DEPTH = 4096  # of batches made ahead, all of which are in memory
_OF_THIS_PROCESS = ("py_callback_pickler", "stream_policy", "concurrency")  # arguments that are not written to files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The arguments of `Pipeline`, which documents them; None: not given.

    Raises:
      TypeError, ValueError: one has a wrong type, or none of the values it may have.
    """

    batch_size: int | None = None
    num_threads: int | str | None = None
    device_id: int | None = None
    seed: int | None = None
    exec_pipelined: bool = True
    prefetch_queue_depth: int | dict[str, int] | str = 2
    exec_async: bool = True
    set_affinity: bool = False
    max_streams: int = -1
    default_cuda_stream_priority: int = 0
    enable_checkpointing: bool = False
    output_dtype: Any = None
    output_ndim: Any = None
    output_layout: Any = None
    enable_memory_stats: bool = False
    enable_statistics: bool = False
    enable_conditionals: bool = False
    fuse: bool = True
    py_num_workers: int = 1
    py_start_method: str = "fork"
    py_callback_pickler: Any = None
    exec_dynamic: bool | None = None
    stream_policy: StreamPolicy | None = None
    concurrency: OperatorConcurrency | None = None

    def __post_init__(self):
        self._convert(check.optional, "batch_size")
        self._convert(lambda name, x: check.or_auto(check.optional, name, x), "num_threads")
        self._convert(check.not_negative, "device_id")
        self._convert(lambda name, x: check.not_negative(name, int(x) if isinstance(x, bool) else x), "seed")  # True is 1, as in DALI
        self._convert(check.flag, "exec_pipelined", "exec_async", "set_affinity")
        self._convert(check.flag, "enable_checkpointing", "enable_memory_stats", "enable_statistics", "enable_conditionals", "fuse")
        self._convert(check.whole, "max_streams", "default_cuda_stream_priority", "py_num_workers")
        self._convert(lambda name, x: check.or_auto(lambda _, x: check.depth(x), name, x), "prefetch_queue_depth")
        self._convert(lambda _, x: check.output_dtypes(x), "output_dtype")
        self._convert(lambda _, x: check.output_ndims(x), "output_ndim")
        self._convert(lambda _, x: check.output_layouts(x), "output_layout")
        self._convert(lambda name, x: None if x is None else check.flag(name, x), "exec_dynamic")
        check.one_of("stream_policy", self.stream_policy, StreamPolicy)
        check.one_of("concurrency", self.concurrency, OperatorConcurrency)
        check.workers(self.py_num_workers, self.py_start_method, self.py_callback_pickler)

    def _convert(self, checked: Callable[[str, Any], Any], *names: str):
        for name in names:
            object.__setattr__(self, name, checked(name, getattr(self, name)))

    @property
    def threads(self) -> int:
        """CPU threads of the native operators; those to begin with, where they are tuned."""
        if isinstance(self.num_threads, str):
            return min(_FIRST_NUM_THREADS, available_cpus())
        return available_cpus() if self.num_threads is None else self.num_threads

    @property
    def depth(self) -> int:
        """Batches made ahead, as one number; those to begin with, where it is tuned."""
        depth = self.prefetch_queue_depth
        if isinstance(depth, str):
            return DEFAULT_DEPTH
        return max(depth.values()) if isinstance(depth, dict) else depth

    @property
    def tuned(self) -> tuple[str, ...]:
        """The arguments that are "auto"."""
        return tuple(name for name in ("num_threads", "prefetch_queue_depth") if getattr(self, name) == check.AUTO)

    def run_options(self, seed: int) -> RunOptions:
        """How batches are made, from a seed."""
        assert self.batch_size is not None
        return RunOptions(
            batch_size=self.batch_size,
            seed=seed,
            num_threads=self.threads,
            num_workers=self.py_num_workers,
            statistics=self.enable_statistics,
            fuse=self.fuse,
            tuned=self.tuned,
        )

    @property
    def outputs(self) -> dict[str, Any]:
        """What they say about the outputs."""
        return {name: getattr(self, name) for name in check.OUTPUTS}

    @property
    def for_file(self) -> dict[str, Any]:
        """What a serialized pipeline holds of them."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in _OF_THIS_PROCESS}

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not as when nothing is given."""
        return {f.name: x for f in dataclasses.fields(self) if (x := getattr(self, f.name)) != f.default}

    def check_to_run(self):
        """What a pipeline may lack while it is defined, but not when it runs; and what can't run together."""
        if self.batch_size is None:
            raise ValueError("batch_size must be at least 1, and none was given")
        check.check_range("batch_size", self.batch_size)
        check.check_range("num_threads", self.threads)
        depth = self.prefetch_queue_depth
        for x in depth.values() if isinstance(depth, dict) else [self.depth]:
            check.check_range("prefetch_queue_depth", x, MAX_DEPTH)
        if isinstance(depth, dict) and not self.exec_async:
            raise ValueError(f"prefetch_queue_depth={depth} needs exec_async=True; pass a number instead")
        if isinstance(depth, dict) and self.exec_dynamic:
            raise RuntimeError(f"prefetch_queue_depth={depth} and exec_dynamic=True exclude each other; pass a number instead")
