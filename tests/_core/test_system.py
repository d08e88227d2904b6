"""Threads have names that profilers and `top -H` show, and there are as many as the process may use CPUs."""

import math
import os
import pathlib

import numpy as np
import pytest

from jaxdali import Pipeline, fn
from jaxdali._core import system
from jaxdali._core.system import cpu_quota
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
