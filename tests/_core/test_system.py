"""Threads have names that profilers and `top -H` show, and there are as many as the process may use CPUs."""

import math
import os
import pathlib
import resource

import numpy as np
import pytest

from jaxdali import Pipeline, fn
from jaxdali._core import system
from jaxdali._core.system import available_memory, cpu_quota
from jaxdali.plugin.jax import data_iterator


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").is_dir(), reason="there is no /proc")
def test_names_of_threads():
    @data_iterator(output_map=["x"])
    def iterator():
        images = fn.external_source(lambda info: np.zeros((9, 9, 3), np.uint8), batch=False, parallel=True)
        return fn.resize(images, size=(4, 4))

    with iterator(batch_size=2, num_threads=3, py_num_workers=2) as it:
        next(it)
        names = [p.read_text().strip() for p in pathlib.Path("/proc/self/task").glob("*/comm")]
    assert {"jaxdali-produce", "jaxdali-check", "jaxdali-source", "jaxdali-kernels"} <= {*names}
    assert names.count("jaxdali-kernels") >= 2


@pytest.mark.parametrize(
    ("memberships", "files", "quota"),
    [
        # Version 2: the lowest limit counts.
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000", "cpu.max": "max 100000"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000"}, math.inf),
        # Inside of a container, which sees only its own group.
        ("0::/kubepods/pod1/c\n", {"cpu.max": "300000 100000"}, 3),
        (
            "4:cpu,cpuacct:/a\n3:memory:/a\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "50000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        # Version 1 without a limit.
        ("4:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, math.inf),
        ("3:memory:/a\n", {"memory/a/cpu.max": "1 100000"}, math.inf),
    ],
)
def test_quota(tmp_path, memberships, files, quota):
    (tmp_path / "cgroup").write_text(memberships)
    for name, text in files.items():
        (tmp_path / "control" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "control" / name).write_text(text + "\n")
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "control") == quota


@pytest.mark.parametrize(
    ("memberships", "files", "memory"),
    [
        ("", {}, 8_000_000 << 10),  # that of the machine
        # Version 2: the group that has least left counts. Cached pages of files are no use of memory.
        (
            "0::/a/b\n",
            {
                "a/b/memory.max": "max",
                "a/b/memory.current": "5000",
                "a/memory.max": "9000",
                "a/memory.current": "6000",
                "a/memory.stat": "anon 1500\ninactive_file 1000\nactive_file 500\nfile 4000",
            },
            4500,
        ),
        # Inside of a container, which sees only its own group; it uses more than it may.
        ("0::/kubepods/c\n", {"memory.max": "3000", "memory.current": "4000", "memory.stat": "active_file 500"}, 0),
        (
            "4:cpu:/a\n3:memory:/a\n",
            {
                "memory/a/memory.limit_in_bytes": "7000",
                "memory/a/memory.usage_in_bytes": "2000",
                "memory/a/memory.stat": "inactive_file 7\ntotal_inactive_file 100\ntotal_active_file 20",
            },
            5120,
        ),
        # Version 1 without a limit.
        (
            "3:memory:/a\n",
            {"memory/a/memory.limit_in_bytes": "9223372036854771712", "memory/a/memory.usage_in_bytes": "2000"},
            8_000_000 << 10,
        ),
    ],
)
def test_memory_of_control_groups(tmp_path, monkeypatch, memberships, files, memory):
    proc, control = tmp_path / "proc", tmp_path / "control"
    for path, text in {
        proc / "meminfo": "MemTotal:       9000000 kB\nMemAvailable:    8000000 kB\nHugePages_Total:       0",
        proc / "self/cgroup": memberships,
        proc / "self/statm": "1000 500 90 1 0 400 0",
        **{control / name: text for name, text in files.items()},
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert available_memory(proc, control) == memory
    # The address space has what its 1000 pages leave.
    page = resource.getpagesize()
    for limit, left in ((1000 * page + 4000, min(4000, memory)), (999 * page, 0)):
        monkeypatch.setattr(system.resource, "getrlimit", lambda which, limit=limit: (limit, -1))
        assert available_memory(proc, control) == left


def test_memory_of_machines_without_files(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 3000, "SC_PAGE_SIZE": 16384}.get)
    assert available_memory(tmp_path, tmp_path) == 3000 * 16384


def test_default_num_threads(monkeypatch):
    """A pipeline has as many threads as the process may use CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5, 7, 9})
    monkeypatch.setattr(system, "cpu_quota", lambda: 2.5)
    assert Pipeline(batch_size=1).num_threads == 3
    monkeypatch.setattr(system, "cpu_quota", lambda: math.inf)
    assert Pipeline(batch_size=1).num_threads == 5
    assert Pipeline(batch_size=1, num_threads=7).num_threads == 7


def test_gpus_are_found_by_their_devices(tmp_path):
    (tmp_path / "nvidiactl").touch()
    assert not system.has_nvidia_gpu(tmp_path)
    (tmp_path / "nvidia3").touch()
    assert system.has_nvidia_gpu(tmp_path)
