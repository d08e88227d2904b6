"""Several hosts: network namespaces with addresses of their own, joined by a bridge.

Each has one process, or several.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

import places
import pytest
from PIL import Image

PHOTOS = 61
REQUIRED = os.environ.get("JAXDALI_REQUIRE_HOSTS") == "1"


def reason_to_skip() -> str:
    """The reason why these tests can't run; "" if they can."""
    if not REQUIRED:
        return "a minute; set JAXDALI_REQUIRE_HOSTS=1 to run it"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2"
    if importlib.util.find_spec("orbax") is None:
        return "orbax-checkpoint is not installed"
    name = f"jaxdali{os.getpid()}"
    process = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return f"network namespaces can't be made: {process.stderr.strip()}" if process.returncode else ""


class Hosts:
    """Network namespaces host1, host2, ... with the addresses 10.77.0.1, 10.77.0.2, ...

    A bridge joins them; they reach nothing else.
    """

    def __init__(self, number: int):
        self._prefix = f"jaxdali{os.getpid()}-"
        self.number = number
        self._processes: list[subprocess.Popen] = []

    def name(self, host: int) -> str:
        return f"{self._prefix}{host}"

    def __enter__(self):
        try:
            bridge_namespace = self.name(0)
            self._ip("netns", "add", bridge_namespace)
            self._ip("-n", bridge_namespace, "link", "add", "bridge", "type", "bridge")
            self._ip("-n", bridge_namespace, "link", "set", "bridge", "up")
            for i in range(1, self.number + 1):
                namespace = self.name(i)
                self._ip("netns", "add", namespace)
                self._ip(
                    "-n",
                    bridge_namespace,
                    "link",
                    "add",
                    f"to{i}",
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "eth0",
                    "netns",
                    namespace,
                )
                self._ip("-n", bridge_namespace, "link", "set", f"to{i}", "master", "bridge", "up")
                self._ip("-n", namespace, "address", "add", f"10.77.0.{i}/24", "dev", "eth0")
                self._ip("-n", namespace, "link", "set", "eth0", "up")
                self._ip("-n", namespace, "link", "set", "lo", "up")
                names = [
                    f"10.77.0.{i} {socket.gethostname()}",
                    *(f"10.77.0.{k} host{k}" for k in range(1, self.number + 1)),
                ]
                folder = pathlib.Path("/etc/netns", namespace)  # `ip netns exec` mounts its files over those in /etc
                folder.mkdir(parents=True)
                (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for p in self._processes:
            p.kill()
            p.wait()
        for i in range(self.number + 1):
            subprocess.run(["ip", "netns", "delete", self.name(i)], capture_output=True, check=False)
            shutil.rmtree(pathlib.Path("/etc/netns", self.name(i)), ignore_errors=True)

    def _ip(self, *arguments: str):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)

    def start(self, host: int, arguments: list[str], log: pathlib.Path, **environment: str) -> subprocess.Popen:
        """Starts a process of the example on a host."""
        command = [
            "ip",
            "netns",
            "exec",
            self.name(host),
            sys.executable,
            "-P",
            str(places.ROOT / "examples/several_hosts.py"),
            *arguments,
        ]
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "",
            "JAX_NUM_CPU_DEVICES": "1",
            **environment,
        }
        with open(log, "w") as f:
            self._processes.append(subprocess.Popen(command, stdout=f, stderr=subprocess.STDOUT, env=environment))
        return self._processes[-1]


@pytest.fixture
def hosts():
    if reason := reason_to_skip():
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    with Hosts(4) as started:
        yield started


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(PHOTOS):
        Image.new("RGB", (8 + i % 5, 9), (i, 255 - i, i)).save(folder / f"{i:03}.png")
    return folder


def steps(logs):
    """A list of (epoch, step, photos of one process), from the logs."""
    matches = [
        m for log in logs for m in re.findall(r"epoch (\d+), step (\d+), loss [\d.]+, photos (\[.*\])", log.read_text())
    ]
    return [(int(epoch), int(step), json.loads(numbers)) for epoch, step, numbers in matches]


def losses(logs):
    """The losses that the processes printed, by step."""
    losses_of_step: dict[int, set[str]] = {}
    for log in logs:
        for step, loss in re.findall(r"step (\d+), (loss [\d.]+)", log.read_text()):
            losses_of_step.setdefault(int(step), set()).add(loss)
    return losses_of_step


def check_each_photo_once(recorded, epochs):
    """Checks that each of `epochs` epochs has each photo once, over all processes."""
    for epoch in range(epochs):
        assert Counter(i for e, _, numbers in recorded if e == epoch for i in numbers) == Counter(range(PHOTOS)), epoch


def wait_for(processes, logs, timeout=100):
    for p, log in zip(processes, logs):
        assert p.wait(timeout=timeout) == 0, log.read_text()


def test_three_hosts_resume_after_a_loss(hosts, photos, tmp_path):
    checkpoints = tmp_path / "checkpoints"

    def start(numbers, run):
        logs = [tmp_path / f"{run}-{host}.log" for host in numbers]
        options = [
            str(photos),
            str(checkpoints),
            "--save-every",
            "5",
            "--coordinator",
            f"10.77.0.{numbers[0]}:9911",
            "--num-processes",
            str(len(numbers)),
        ]
        return [
            hosts.start(h, [*options, "--process-id", str(i)], log) for i, (h, log) in enumerate(zip(numbers, logs))
        ], logs

    processes, logs = start([1, 2, 3, 4], "first")
    deadline = time.monotonic() + 90
    while not any(step >= 6 for _, step, _ in steps(logs[2:3])):
        assert time.monotonic() < deadline, "\n".join(log.read_text() for log in logs)
        assert all(p.poll() is None for p in processes), "\n".join(log.read_text() for log in logs)
        time.sleep(0.02)
    processes[2].send_signal(signal.SIGKILL)  # on host 3
    for p, log in zip(processes, logs):
        assert p.wait(timeout=60) != 0, log.read_text()  # the others end, too
    assert processes[2].returncode == -signal.SIGKILL

    restarted, new_logs = start([1, 2, 4], "second")
    wait_for(restarted, new_logs)
    (first_step,) = {int(re.findall(r"begins with step (\d+)", log.read_text())[0]) for log in new_logs}
    assert first_step in (5, 10, 15)  # in the middle of an epoch, which has 6 steps
    saved_steps, new_steps = [s for s in steps(logs) if s[1] < first_step], steps(new_logs)
    assert {len(numbers) for _, _, numbers in saved_steps} <= set(range(4))
    assert min(step for _, step, _ in new_steps) == first_step
    check_each_photo_once([*saved_steps, *new_steps], 3)
    assert all(len(values) == 1 for values in losses(new_logs).values())


def test_several_processes_per_host_by_slurm(hosts, photos, tmp_path):
    """Two processes on each of two hosts, by the variables that `srun` sets, without arguments of jax.distributed."""
    logs = [tmp_path / f"{i}.log" for i in range(4)]
    job = {"SLURM_JOB_ID": "77", "SLURM_STEP_NODELIST": "host[1-2]", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_NODES": "2"}
    processes = [
        hosts.start(
            1 + i // 2, [str(photos), str(tmp_path / "checkpoints"), "--epochs", "1"], logs[i],
            **job, SLURM_PROCID=str(i), SLURM_LOCALID=str(i % 2),
        )
        for i in range(4)
    ]  # fmt: skip
    wait_for(processes, logs)
    check_each_photo_once(steps(logs), 1)
    assert [len(steps([log])) for log in logs] == [6] * 4
    assert all(len(values) == 1 for values in losses(logs).values())
