"""Several hosts: network namespaces with addresses of their own, joined by a bridge. Each has one process, or several."""

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


def missing() -> str:
    """Why these tests do not run."""
    if not REQUIRED:
        return "a minute; set JAXDALI_REQUIRE_HOSTS=1 to run it"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2"
    if importlib.util.find_spec("orbax") is None:
        return "orbax-checkpoint is not installed"
    name = f"jaxdali{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return f"network namespaces can't be made: {made.stderr.strip()}" if made.returncode else ""


class Hosts:
    """Namespaces host1, host2, ... with the addresses 10.77.0.1, 10.77.0.2, ... They reach each other by a bridge, and
    nothing else.
    """

    def __init__(self, number: int):
        self._prefix = f"jaxdali{os.getpid()}-"
        self.number = number
        self._processes: list[subprocess.Popen] = []

    def name(self, host: int) -> str:
        return f"{self._prefix}{host}"

    def __enter__(self):
        try:
            net = self.name(0)
            self._ip("netns", "add", net)
            self._ip("-n", net, "link", "add", "bridge", "type", "bridge")
            self._ip("-n", net, "link", "set", "bridge", "up")
            for i in range(1, self.number + 1):
                own = self.name(i)
                self._ip("netns", "add", own)
                self._ip("-n", net, "link", "add", f"to{i}", "type", "veth", "peer", "name", "eth0", "netns", own)
                self._ip("-n", net, "link", "set", f"to{i}", "master", "bridge", "up")
                self._ip("-n", own, "address", "add", f"10.77.0.{i}/24", "dev", "eth0")
                self._ip("-n", own, "link", "set", "eth0", "up")
                self._ip("-n", own, "link", "set", "lo", "up")
                names = [
                    f"10.77.0.{i} {socket.gethostname()}",
                    *(f"10.77.0.{k} host{k}" for k in range(1, self.number + 1)),
                ]
                folder = pathlib.Path("/etc/netns", own)  # `ip netns exec` mounts its files over those in /etc
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
        """A process of the example on a host."""
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
    if reason := missing():
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    with Hosts(4) as made:
        yield made


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(PHOTOS):
        Image.new("RGB", (8 + i % 5, 9), (i, 255 - i, i)).save(folder / f"{i:03}.png")
    return folder


def steps(logs):
    """[(epoch, step, photos of one process)]."""
    found = [
        m for log in logs for m in re.findall(r"epoch (\d+), step (\d+), loss [\d.]+, photos (\[.*\])", log.read_text())
    ]
    return [(int(epoch), int(step), json.loads(numbers)) for epoch, step, numbers in found]


def losses(logs):
    """{step: the loss that each process printed}."""
    found: dict[int, set[str]] = {}
    for log in logs:
        for step, loss in re.findall(r"step (\d+), (loss [\d.]+)", log.read_text()):
            found.setdefault(int(step), set()).add(loss)
    return found


def check_each_once(found, epochs):
    for epoch in range(epochs):
        assert Counter(i for e, _, numbers in found if e == epoch for i in numbers) == Counter(range(PHOTOS)), epoch


def wait_for(processes, logs, timeout=100):
    for p, log in zip(processes, logs):
        assert p.wait(timeout=timeout) == 0, log.read_text()


def test_a_host_is_lost_and_three_go_on(hosts, photos, tmp_path):
    checkpoints = tmp_path / "checkpoints"

    def begin(numbers, run):
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

    processes, logs = begin([1, 2, 3, 4], "first")
    until = time.monotonic() + 90
    while not any(step >= 6 for _, step, _ in steps(logs[2:3])):
        assert time.monotonic() < until, "\n".join(log.read_text() for log in logs)
        assert all(p.poll() is None for p in processes), "\n".join(log.read_text() for log in logs)
        time.sleep(0.02)
    processes[2].send_signal(signal.SIGKILL)  # on host 3
    for p, log in zip(processes, logs):
        assert p.wait(timeout=60) != 0, log.read_text()  # the others end, too
    assert processes[2].returncode == -signal.SIGKILL

    again, more = begin([1, 2, 4], "second")
    wait_for(again, more)
    (begun,) = {int(re.findall(r"begins with step (\d+)", log.read_text())[0]) for log in more}
    assert begun in (5, 10, 15)  # in the middle of an epoch, which has 6 steps
    before, after = [s for s in steps(logs) if s[1] < begun], steps(more)
    assert {len(numbers) for _, _, numbers in before} <= set(range(4))
    assert min(step for _, step, _ in after) == begun
    check_each_once([*before, *after], 3)
    assert all(len(values) == 1 for values in losses(more).values())


def test_several_processes_of_a_host_that_slurm_starts(hosts, photos, tmp_path):
    """Two on each of two hosts, by the variables that `srun` sets, without an argument of jax.distributed."""
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
    check_each_once(steps(logs), 1)
    assert [len(steps([log])) for log in logs] == [6] * 4
    assert all(len(values) == 1 for values in losses(logs).values())
