"""What depends on the operating system: the CPUs and GPUs that a process may use and names of threads.

Linux has all of it; macOS has neither affinity nor control groups, nor ``/proc``. Files in memory, which it does not have either, are in
``_data/source_worker.py``, which imports nothing from the package.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_THREADS = Path("/proc/self/task")
_CONTROL = Path("/sys/fs/cgroup")


def available_cpus() -> int:
    """The number of CPUs that this process may use: those of its affinity, limited by the CPU time of its control groups."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(affinity, cpu_quota())))


def cpu_quota(groups: Path = _GROUPS, control: Path = _CONTROL) -> float:
    """The CPU time per second that this process's control groups (version 1 or 2) allow; infinite if there is no limit."""
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
    """The names that the operating system has for the threads of this process; none where it does not tell."""
    names = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(_THREADS):
            with contextlib.suppress(OSError), open(_THREADS / thread / "comm") as file:  # a thread may have ended meanwhile
                names.append(file.read().rstrip("\n"))
    return names


class Thread(threading.Thread):
    """A thread that shows its name."""

    def run(self):
        show_name()
        super().run()
