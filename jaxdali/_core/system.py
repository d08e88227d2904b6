"""Functions that depend on the operating system: the CPUs and GPUs that a process may use, and names of threads.

Linux has all of it; macOS has neither affinity nor control groups, nor ``/proc``. Files in memory, which it does not
have either, are in ``_data/source_worker.py``, which imports nothing from the package.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")  # the control groups of this process
_THREADS = Path("/proc/self/task")
_CONTROL = Path("/sys/fs/cgroup")  # the limits of all control groups


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
    try:
        memberships = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except OSError:
        return math.inf
    quota = math.inf
    for _, controllers, path in memberships:
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = control / controllers  # version 2 does not name controllers: this is the folder itself
        group = root / path.lstrip("/")
        for folder in [group, *group.parents]:  # a container may see its own group as the root
            quota = min(quota, _quota_of(folder))
            if folder == root:
                break
    return quota


def _quota_of(folder: Path) -> float:
    """CPU seconds per second that one control group allows, by the files of version 2, then those of version 1."""
    with contextlib.suppress(OSError, ValueError):
        limit, period = (folder / "cpu.max").read_text().split()
        return math.inf if limit == "max" else int(limit) / int(period)
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / "cpu.cfs_quota_us").read_text())
        return math.inf if limit < 0 else limit / int((folder / "cpu.cfs_period_us").read_text())
    return math.inf


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


# Note [Shared by threads]
# A free-threaded Python runs the threads of a process at the same time. This is everything that they share, by the
# means that keep it whole:
#
# 1. A lock, which stands beside the state with a comment that names what it guards.
#    * Of the process: kernels and GPUs (`_core/ffi.py`); which operators are dataclasses (`_core/operator.py`);
#      programs and capacities (`_program/program.py`, Note [Shared capacities]); compilations and JAX's setting for its
#      cache (`_program/compilation.py`); rewritten functions (`_pipeline/conditionals.py`); what was logged once
#      (`_batch/host_pass.py`); files that kernels refuse (`fn/_decode/decode.py`); caches of images
#      (`fn/_decode/cache.py`); registered decoders (`fn/_decode/registered.py`); indices of videos
#      (`fn/_video/clips.py`); LMDB databases (`_data/lmdb_files.py`); shuffled lists (`_data/shuffle.py`); compiled
#      functions of values, generators of keys and the shared pool (`dynamic/_functions.py`, `_keys.py`, `_threads.py`);
#      tracers that refuse to become text (`plugin/jax/_tracing/snapshot.py`).
#    * Of an executor, whose batches several threads make: batches (`_launching`) and resources of operators
#      (`_batch/resources.py`); statistics (`_batch/meter.py`); buffers (`_core/ragged.py`); requests
#      (`_data/storage.py`); groups of rows and chunks (`fn/readers/_parquet.py`, `_array_record.py`); open videos
#      (`fn/_video/files.py`); fed batches (`FedSource`); workers (`ray.py`).
# 2. One thread at a time, which `ExclusiveUse` (`_runner/fork_guard.py`) admits: iterators, schedules, pipelines with
#    debug=True. The readers of `jaxdali.dynamic`, batches and checkpoints are their user's, who gives them to one
#    thread at a time.
# 3. Queues and semaphores: what one thread of a runner hands to the next (`_runner/prefetch.py`). A batch and all that
#    it holds belongs to the thread that has it. So do sources, which one thread reads.
# 4. One operation of a dictionary, set, deque or counter, which Python makes whole: registries that grow while modules
#    are imported (functions, arguments, operators), numbers of nodes and calls, secrets, `WeakSet`s of live runners and
#    threads, memory that returns to a pool, executors of a function that wait for a call. Code that iterates over a
#    dictionary or set copies it first, by an operation that is whole, too: by `list` or `copy`, and not by `tuple` or a
#    comprehension.
# 5. Nothing: a value that is stored once, or stored twice if two threads compute it at the same time. Then both are
#    alike, and each thread goes on with the one that it has: `functools.cache` and `lru_cache`, `cached_property`,
#    lazily imported names.
#
# A user's functions are called in threads of ours, and those that are traced have the state that they name put back
# (Note [Snapshot of Python state]). What they share with other threads is theirs to lock. The native modules have a
# list of their own (ffi/README.md).
class Thread(threading.Thread):
    """A thread that shows its name. What threads share: Note [Shared by threads]."""

    def run(self):
        show_name()
        super().run()
