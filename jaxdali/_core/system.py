"""Functions that depend on the operating system: the CPUs, GPUs and memory that a process may use, and names of threads.

Linux has all of it; macOS has neither affinity nor control groups, nor ``/proc``. Files in memory, which it does not
have either, are in ``_data/source_worker.py``, which imports nothing from the package.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import resource
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

MAX_THREADS = 4096  # of a native pool: more than any machine has cores; a system gives up to some 30,000

_GROUPS = Path("/proc/self/cgroup")  # the control groups of this process
_THREADS = Path("/proc/self/task")
_CONTROL = Path("/sys/fs/cgroup")  # the limits of all control groups
_AFTER_RUN = 1.0  # seconds that `join` waits for a thread whose `run` has returned

_jax_process: int | None = None  # the id of the process that had run JAX before it forked
_threads: weakref.WeakSet[Thread] = weakref.WeakSet()  # that were started, or were about to start


def available_cpus() -> int:
    """The number of CPUs that this process may use: those of its affinity, limited by the CPU time of its control
    groups.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(affinity, cpu_quota())))


def cpu_quota(groups: Path = _GROUPS, control: Path = _CONTROL) -> float:
    """The CPU time per second that this process's control groups (version 1 or 2) allow; infinite if there is no
    limit.
    """
    return min((_quota_of(folder) for folder in _groups_with("cpu", groups, control)), default=math.inf)


def _groups_with(controller: str, groups: Path, control: Path) -> Iterator[Path]:
    """The folders of this process's control groups that may limit a resource, and of the groups around these."""
    try:
        memberships = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in memberships:
        if controllers and controller not in controllers.split(","):
            continue
        root = control / controllers  # version 2 does not name controllers: this is the folder itself
        group = root / path.lstrip("/")
        for folder in [group, *group.parents]:  # a container may see its own group as the root
            yield folder
            if folder == root:
                break


def _quota_of(folder: Path) -> float:
    """CPU seconds per second that one control group allows, by the files of version 2, then those of version 1."""
    with contextlib.suppress(OSError, ValueError):
        limit, period = (folder / "cpu.max").read_text().split()
        return math.inf if limit == "max" else int(limit) / int(period)
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / "cpu.cfs_quota_us").read_text())
        return math.inf if limit < 0 else limit / int((folder / "cpu.cfs_period_us").read_text())
    return math.inf


def available_memory(proc: Path = Path("/proc"), control: Path = _CONTROL) -> float:
    """The bytes that this process can still get: of the machine, of its control groups (version 1 or 2), and of its
    address space. Where the system tells none of them, all that the machine has.
    """
    available: float = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, KeyError):
        values = _numbers(proc / "meminfo")
        available = values["MemAvailable:"] * 1024
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft_limit != resource.RLIM_INFINITY:
        with contextlib.suppress(OSError):
            pages = int((proc / "self" / "statm").read_text().split()[0])
            available = min(available, max(soft_limit - pages * resource.getpagesize(), 0))
    for folder in _groups_with("memory", proc / "self" / "cgroup", control):
        available = min(available, _memory_left(folder))
    return available


def _memory_left(folder: Path) -> float:
    """The bytes that one control group has left, by the files of version 2, then those of version 1."""
    for limit, used, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        with contextlib.suppress(OSError, ValueError):
            text = (folder / limit).read_text().strip()
            if text == "max":
                return math.inf
            # Cached pages of files count as used, and are dropped when memory is short.
            values = _numbers(folder / "memory.stat")
            cached = values.get(f"{prefix}inactive_file", 0) + values.get(f"{prefix}active_file", 0)
            return max(int(text) - int((folder / used).read_text()) + cached, 0)
    return math.inf


def _numbers(path: Path) -> dict[str, int]:
    """The lines ``name number`` of a file, which may have a unit behind the number."""
    return {x[0]: int(x[1]) for line in path.read_text().splitlines() if len(x := line.split()) > 1 and x[1].isdigit()}


def has_nvidia_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether this process sees an NVIDIA GPU, without a context on it."""
    return any(devices.glob("nvidia[0-9]*"))


def show_name():
    """Gives the first 15 characters of the thread's name to the operating system, as Python does from 3.14 on."""
    with contextlib.suppress(OSError):  # if there is no /proc
        (_THREADS / str(threading.get_native_id()) / "comm").write_text(threading.current_thread().name[:15])


def names_of_threads() -> list[str]:
    """The names that the operating system has for the threads of this process; empty where it does not tell."""
    names = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(_THREADS):
            # A thread may have ended meanwhile.
            with contextlib.suppress(OSError), open(_THREADS / thread / "comm") as file:
                names.append(file.read().rstrip("\n"))
    return names


def _before_fork():
    """Notes whether this process runs threads of JAX: a forked child that calls JAX would wait for them forever.

    JAX does not tell whether it has begun to run, but its threads have names.
    """
    global _jax_process
    if "jax" in sys.modules and _jax_process is None and any(name.startswith("tf_XLA") for name in names_of_threads()):
        _jax_process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


def forked_from_jax() -> bool:
    """Whether this process was forked from one that had run JAX."""
    return _jax_process not in (None, os.getpid())


def refuse_fork():
    """Raises RuntimeError if this process was forked from one that had run JAX: JAX can't run in it."""
    if forked_from_jax():
        raise fork_error("run JAX")


def fork_error(activity: str) -> RuntimeError:
    """The error in a process that was forked from one whose threads it needs.

    Args:
      activity: what that process had done, after "had".
    """
    return RuntimeError(
        f"this process was forked from one that had {activity}, whose threads a fork does not have: "
        'start it by "spawn" or "forkserver" (multiprocessing.set_start_method, DataLoader(multiprocessing_context="spawn")), '
        "or fork before that"
    )


# Note [Shared by threads]
# A free-threaded Python runs the threads of a process at the same time. This is everything that they share, by the
# means that keep it whole:
#
# 1. A lock, which stands beside the state with a comment that names what it guards.
#    * Of the process: kernels and GPUs (`_core/ffi.py`); which operators are dataclasses (`_core/operator.py`);
#      programs and capacities (`_program/program.py`, Note [Shared capacities]); compilations and JAX's setting for its
#      cache (`_program/compilation.py`); rewritten functions (`_pipeline/conditionals.py`); what was logged once
#      (`_batch/host_pass.py`); files that kernels refuse (`fn/_decode/headers.py`); caches of images
#      (`fn/_decode/cache.py`); registered decoders (`fn/_decode/registered.py`); indices of videos
#      (`fn/_video/clips.py`); LMDB databases (`_data/lmdb_files.py`); shuffled lists (`_data/shuffle.py`); sources that
#      can't be copied (`fn/_source/copies.py`); compiled functions of values, the numbers of their calls, generators of
#      keys and the shared pool (`dynamic/_functions.py`, `_numbers.py`, `_keys.py`, `_threads.py`); tracers that refuse
#      to become text (`plugin/jax/_tracing/snapshot.py`); lists that sources of Grain open (`plugin/grain/_source.py`).
#    * Of an executor, whose batches several threads make: batches (`_launching`) and resources of operators
#      (`_batch/resources.py`); statistics (`_batch/meter.py`); buffers (`_core/ragged.py`); requests
#      (`_data/storage.py`, `request_threads.py`); groups of rows, chunks and decompressed blocks
#      (`fn/readers/_parquet.py`, `_array_record.py`, `_data/compressed_extents.py`); open videos
#      (`fn/_video/open_videos.py`); fed batches (`FedSource`); workers (`ray.py`).
# 2. One thread at a time, which `ExclusiveUse` (`_runner/fork_guard.py`) admits: iterators, schedules, pipelines with
#    debug=True. The readers of `jaxdali.dynamic`, batches and checkpoints are their user's, who gives them to one
#    thread at a time.
# 3. Queues and semaphores: what one thread of a runner hands to the next (`_runner/prefetch.py`). A batch and all that
#    it holds belongs to the thread that has it. So do sources, which one thread reads; but many threads read records
#    of one list for Grain.
# 4. One operation of a dictionary, set, deque or counter, which Python makes whole: registries that grow while modules
#    are imported (functions, arguments, operators), numbers of nodes and calls, secrets, memory that returns to a pool,
#    executors of a function, or of a source of Grain, that wait for a call. Code that iterates over a dictionary or
#    set copies it first, by an operation that is whole, too: by `list` or `copy`, and not by `tuple` or a
#    comprehension. `members` copies the `WeakSet`s of live runners and threads.
# 5. Nothing: a value that is stored once, or stored twice if two threads compute it at the same time. Then both are
#    alike, and each thread goes on with the one that it has: `functools.cache` and `lru_cache`, `cached_property`,
#    lazily imported names.
#
# A user's functions are called in threads of ours, and those that are traced have the state that they name put back
# (Note [Snapshot of Python state]). What they share with other threads is theirs to lock. The native modules have a
# list of their own (ffi/README.md).
class Thread(threading.Thread):
    """A thread that shows its name, and that the exit of the process knows, see Note [Exit]. What threads share: Note
    [Shared by threads].

    `is_alive` and `join` take a thread that could not start, or whose start was interrupted before it began to run, for
    one that has ended. They also hold after an interrupt: if Python's own `join` is interrupted, Python 3.11 and 3.12
    take the thread for ended.

    Attributes:
      in_call: whether the thread runs a function of the user that it can be made to leave.
      stopping: whether the thread must not call that function again.
    """

    in_call = stopping = False
    _process: int | None = None  # in which the thread runs; None: perhaps it never will

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._ended = threading.Event()

    def start(self):
        # Before it starts: an interrupt may be raised in `start` when the thread runs already.
        _threads.add(self)
        super().start()
        self._process = os.getpid()  # also here: others may wait for the thread before `run` begins

    def run(self):
        self._process = os.getpid()
        try:
            show_name()
            super().run()
        finally:
            self._ended.set()

    def is_alive(self) -> bool:
        # In a forked process the threads of its parent do not run.
        return self._process == os.getpid() and not self._ended.is_set()

    def join(self, timeout: float | None = None):
        if self._process == os.getpid() and self._ended.wait(timeout):
            # What it does after `run` takes no time, but needs a lock of `threading`. The caller has that lock if the
            # garbage collector has called it within `threading.enumerate`.
            super().join(_AFTER_RUN)


def threads_named(name: str) -> list[Thread]:
    """Our threads of this name that run, or are about to start, or have ended."""
    return [t for t in members(_threads) if t.name == name]


def members(weak_set: weakref.WeakSet[T]) -> list[T]:
    """The members of a set, to which other threads may add some meanwhile: then the copy begins anew."""
    while True:
        with contextlib.suppress(RuntimeError):  # the set changed
            return list(weak_set)


def exiting() -> bool:
    """Whether the interpreter is about to exit."""
    return not threading.main_thread().is_alive()


def despite_interrupts(wait: Callable[[], None]):
    """Calls a function that waits for threads while the process exits, and calls it again after each KeyboardInterrupt.
    Raises the last one in the end.
    """
    interrupt = None
    while True:
        try:
            wait()
            break
        except KeyboardInterrupt as e:
            interrupt = e
    if interrupt is not None:
        raise interrupt


def thread_pool(number: int, name: str) -> ThreadPoolExecutor:
    """A pool of threads that show their names.

    If the start of a thread is interrupted, Python does not tell that thread when the process exits, but waits for it.
    The other threads of a pool tell it. So the first thread is started by a thread of ours, which no interrupt reaches.

    Args:
      number: of threads, at most.
      name: of the threads, which get a number in addition.
    """
    pool = ThreadPoolExecutor(number, name, show_name)

    def start():
        with contextlib.suppress(RuntimeError, MemoryError):  # the first use of the pool raises it again
            pool.submit(int)

    starter = Thread(target=start, name=name)
    starter.start()
    starter.join()
    return pool


@functools.lru_cache(maxsize=16)
def _lasting_pool(number: int, name: str) -> ThreadPoolExecutor:
    return thread_pool(number, name)


def map_on_threads(function: Callable[[Any], T], items: Sequence[Any], number: int, name: str) -> list[T]:
    """The results of a function for each item, computed on `number` threads, which stay for later calls. A single item
    needs none.

    Args:
      name: of the threads, see `thread_pool`.
    """
    if len(items) <= 1 or number <= 1:
        return list(map(function, items))
    return list(_lasting_pool(number, name).map(function, items))
