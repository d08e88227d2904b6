"""Tries the pipelines of files. Each file has its own process, so that it can neither block nor end this one."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from . import _alias

_STARTING = 60.0  # seconds until the process answers for the first time
_GRACE = 5.0  # seconds to notice that the time is up: a compilation, for example, is not interrupted
_MOST_RESTARTS = 20
# The first import finds this package, wherever it is.
_START = "import nvidia.dali, runpy; runpy.run_module('jaxdali.port._trial', run_name='__main__', alter_sys=True)"


class Checked:
    """The results of trying a file's pipelines.

    Attributes:
      results: the `_trial.Result` of each pipeline as a dict, in the order of trial.
      stand_ins: modules that are not installed.
    """

    def __init__(self):
        self.results: list[dict[str, Any]] = []
        self.stand_ins: list[str] = []

    def worst(self) -> str:
        """ "fails", "untried" or "runs"."""
        statuses = {r["what"] for r in self.results}
        return next((status for status in ("fails", "untried") if status in statuses), "runs")


def check(path: pathlib.Path, seconds: float) -> Checked:
    """Tries the pipelines of a file.

    Args:
      seconds: time limit for each pipeline.
    """
    checked = Checked()
    skipped: list[str] = []
    with tempfile.TemporaryDirectory(prefix="jaxdali-port-") as folder:
        for _ in range(_MOST_RESTARTS):
            events = _events(path, pathlib.Path(folder), seconds, skipped)
            # The last event "begin" of a definition without a result, or of the file, whose name is "".
            begun: dict[str, Any] | None = None
            for event in events:
                if "begin" in event:
                    begun = event
                elif "result" in event:
                    checked.results.append(event["result"])
                    skipped.append(event["result"]["name"])
                    begun = None if event["result"]["name"] else begun
                elif "stand_ins" in event:
                    checked.stand_ins = event["stand_ins"]
            last = events[-1]
            if "end" in last:
                break
            # The process died. Another one tries the definitions that follow.
            name = begun["begin"] if begun is not None else ""
            text = last["died"]
            checked.results.append(
                {"name": name, "line": begun["line"] if begun else "", "what": "untried", "text": text}
            )
            if not name:  # it died outside of the definitions, as another one would
                break
            skipped.append(name)
            checked.results = [r for r in checked.results if r["name"]]  # the next process imports the file again
    named = [r["name"] for r in checked.results]  # the first result of each name counts
    checked.results = [r for i, r in enumerate(checked.results) if r["name"] not in named[:i]]
    return checked


def _events(path: pathlib.Path, folder: pathlib.Path, seconds: float, skipped: list[str]) -> list[dict[str, Any]]:
    """The messages of a process that tries the file, see `Trial`. The last one is {"end": True}, or {"died": reason}.

    Others are {"begin": name of a definition, "line": text}, {"result": a `Result` as a dict}, {"stand_ins": names of
    modules that are not installed} and {"alive": True}.

    Args:
      folder: for the files of the process.
      seconds: time limit for each pipeline.
      skipped: names of definitions that are not tried, as they have a result.
    """
    run_folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
    report = run_folder / "report"
    report.touch()
    environment = _alias.environment(os.environ)
    # Eight devices on the CPU, so that `device_id=1`, for example, exists.
    environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
    environment["MPLBACKEND"] = "agg"
    command = [sys.executable, "-c", _START, str(path.absolute()), str(report), str(run_folder), str(seconds), *skipped]
    with (run_folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=run_folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            size, since = -1, time.monotonic()  # of the report, and the time when it last grew
            while process.poll() is None:
                if report.stat().st_size != size:
                    size, since = report.stat().st_size, time.monotonic()
                if time.monotonic() - since > (seconds + _GRACE if size else _STARTING):
                    break
                time.sleep(0.05)
            status = process.poll()
        finally:
            _kill(process)
    events = [json.loads(line) for line in report.read_text().splitlines()]
    if not events or "end" not in events[-1]:
        events.append({"died": _reason_of_death(status, seconds, (run_folder / "output").read_text(errors="replace"))})
    return events


def _kill(process: subprocess.Popen[bytes]):
    """Ends the process and its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _reason_of_death(status: int | None, seconds: float, output: str) -> str:
    """Describes why a process ended, with its last line of output. `status`: None if it had to be killed."""
    last_line = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    if status is None:
        return f"it is still running after {seconds:g} s, and can't be interrupted"
    reason = (
        f"the process is ended by signal {signal.Signals(-status).name}"
        if status < 0
        else f"the process ends with status {status}"
    )
    return reason + (f"; its last words: {last_line:.200}" if last_line else "")
