"""Mutated sound and video: each file is read, or is its sample's error, and good files beside it are read as always."""

import json
import os
import subprocess
import sys

import places
import pytest

pytestmark = pytest.mark.same_with_any_jax

MUTANTS = 500


def run(kind: str, operator: str, *numbers: int) -> subprocess.CompletedProcess:
    """Reads mutants in a process of its own, which a fault in a library may end. After 5 minutes it has hung."""
    paths = os.pathsep.join([str(places.ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "mutants", kind, operator, *map(str, numbers)]
    environment = os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired as e:
        output, error = (x.decode() if isinstance(x, bytes) else x or "" for x in (e.stdout, e.stderr))
        return subprocess.CompletedProcess(command, "it hung", output, error)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("kind", "operator"),
    [
        ("sound", "decoders.audio"),
        ("sound", "readers.nemo_asr"),
        ("video", "decoders.video"),
        ("video", "readers.video"),
    ],
)
def test_mutants_are_read_or_reported(kind, operator):
    pytest.importorskip({"sound": "soundfile", "video": "av"}[kind])
    done = run(kind, operator, 0, MUTANTS)
    if done.returncode != 0:
        assert done.stdout, done.stderr
        # The batch in which it ended is read again, one mutant after another.
        first, last = map(int, done.stdout.splitlines()[-1].split())
        single = run(kind, operator, first, last, 1)
        if single.returncode != 0:
            done = single
        command = " ".join(done.args[1:])
        number = done.stdout.splitlines()[-1].split()[0]
        pytest.fail(f"{command} ended with {done.returncode} from mutant {number} on: {done.stderr[-2000:]}")
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["read"] + counts["refused"] == MUTANTS
    assert min(counts.values()) > MUTANTS / 10
