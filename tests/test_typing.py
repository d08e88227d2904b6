"""Type checkers know the results of pipeline_def and data_iterator, and the arguments of definitions."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import places
import pytest

CASES = places.ROOT / "tests" / "data" / "typed.py"
WRONG = [n for n, line in enumerate(CASES.read_text().splitlines(), 1) if line.endswith("# wrong")]


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy(tmp_path):
    shutil.copy(CASES, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent", str(tmp_path / "typed.py")],
        capture_output=True, text=True, env={"PYTHONPATH": str(places.ROOT), "PATH": ""},
    )  # fmt: skip
    lines = {int(n) for n in re.findall(r"typed\.py:(\d+): error", done.stdout)}
    assert sorted(lines) == WRONG, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright(tmp_path):
    shutil.copy(CASES, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(places.ROOT)], "include": ["typed.py"]})
    )
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "--project", str(tmp_path)],
        capture_output=True, text=True,
    )  # fmt: skip
    diagnostics = json.loads(done.stdout)["generalDiagnostics"]
    lines = {d["range"]["start"]["line"] + 1 for d in diagnostics if d["severity"] == "error"}
    assert sorted(lines) == WRONG, diagnostics
