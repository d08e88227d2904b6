"""The command line of ``python -m jaxdali.port``."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from . import _alias, _report
from ._check import check
from ._reading import Remark, Use, find, read

_DESCRIPTION = """\
Moves scripts from NVIDIA DALI to jaxdali.

  python -m jaxdali.port FILE_OR_FOLDER ...
    what they use of DALI that is not here: reads them, and runs nothing
  python -m jaxdali.port --check FILE ...
    tries their pipelines, too: imports each file in a process of its own, makes
    up data and arguments, builds each pipeline definition and runs a batch
  python -m jaxdali.port --run SCRIPT ...
    runs `python SCRIPT ...`, in which nvidia.dali is jaxdali
"""
_UNSEEN = "not seen"
_SLOW = "slower than need be"
_RANKS = (
    "a process for each GPU: JAX opens all GPUs that a process sees. Before jax is imported, let CUDA_VISIBLE_DEVICES name the one of "
    'LOCAL_RANK, and then device_id=0 (jaxdali/plugin/README.md, "GPUs")'
)
_STATUSES = """\
exit status:
  0  nothing is missing; with --check all pipelines run
  1  something is missing, a pipeline fails, or a file can't be read
  2  wrong arguments
  3  with --check: nothing fails, but something could not be tried
  with --run that of the script
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report. Returns the exit status."""
    arguments_of_tool = list(sys.argv[1:] if arguments is None else arguments)
    program = []
    if "--run" in arguments_of_tool:  # the following arguments are the script's
        index = arguments_of_tool.index("--run")
        arguments_of_tool, program = arguments_of_tool[: index + 1], arguments_of_tool[index + 1 :]
    parser = argparse.ArgumentParser(
        "python -m jaxdali.port",
        usage="%(prog)s [--lines] FILE_OR_FOLDER ...\n       %(prog)s --check [--timeout SECONDS] FILE_OR_FOLDER ...\n"
        "       %(prog)s --run {SCRIPT,-m MODULE} [ARGUMENT ...]",
        description=_DESCRIPTION,
        epilog=_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "path", nargs="*", metavar="FILE_OR_FOLDER", help="a Python file, a notebook, or a folder of them"
    )
    parser.add_argument("--lines", action="store_true", help="each use of what is missing as FILE:LINE: NAME")
    parser.add_argument(
        "--check", action="store_true", help="try the pipelines; this imports the files, so it runs their code"
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="for each pipeline; default: %(default)g"
    )
    parser.add_argument(
        "--run", action="store_true", help="run a script, or with -m a module; all that follows is its own"
    )
    args = parser.parse_args(arguments_of_tool)
    if args.run:
        if args.path or args.lines or args.check:
            parser.error("--run stands first: what follows it is the script and its arguments")
        if not program or program == ["-m"]:
            parser.error("--run: which script?")
        _alias.run(program)
    if not args.path:
        parser.error("which files?")
    if args.timeout <= 0:
        parser.error("--timeout must be positive")
    if args.check and args.lines:
        parser.error("--lines goes without --check")
    return _check_files(args.path, args.timeout) if args.check else _report_names(args.path, args.lines)


def _check_files(paths: Sequence[str], seconds: float) -> int:
    """Tries the pipelines of files and prints a report of each file.

    Returns the exit status: 0: all run; 1: something is missing or fails; 3: something could not be tried.

    Args:
      seconds: time limit for each pipeline.
    """
    columns = shutil.get_terminal_size((140, 24)).columns
    files, num_checked = list(find(paths)), 0
    results: list[dict[str, Any]] = []
    is_failed = is_untried = False
    for path in files:
        try:
            reading = read(path)
        except SyntaxError as e:
            print(f"can't be read: {path}:{e.lineno}: {e.msg}\n")
            is_failed = True
            continue
        except (OSError, ValueError, KeyError, TypeError) as e:
            print(f"can't be read: {path}: {e}\n")
            is_failed = True
            continue
        if not reading.uses and not reading.unseen:
            continue
        num_checked += 1
        print(path, flush=True)
        trial = check(path, seconds)
        missing = list(_report.by_line(reading.uses))
        _print(["not here", *missing] if missing else [])
        _print(_report.remarks_by_line(_RANKS, reading.ranks))
        _print(_report.trials(trial.results, columns))
        if trial.stand_ins:
            print(f"not installed, so that nothing of it runs: {', '.join(trial.stand_ins)}\n")
        is_failed |= bool(missing) or trial.worst() == "fails"
        if not any(r["name"] for r in trial.results) and any(u.name.startswith(("fn.", "ops.")) for u in reading.uses):
            print("it uses operators, but no pipeline definition is found in it\n")
            is_untried = True
        is_untried |= trial.worst() == "untried"
        results += trial.results
    if not num_checked:
        print("It does not use DALI." if len(files) == 1 else f"None of {len(files)} files uses DALI.")
    else:
        print(_report.counts(results))
    return 1 if is_failed else 3 if is_untried else 0


def _report_names(paths: Sequence[str], each_line: bool) -> int:
    """Prints which names of DALI the files use that jaxdali lacks. Returns the exit status: 1 if there is one, or if a
    file can't be read; else 0.

    Args:
      each_line: whether to print only the missing names, as ``file:line: name``.
    """
    uses: list[Use] = []
    unseen: list[Remark] = []
    hints: list[Remark] = []
    ranks: list[Remark] = []
    unread = []
    files = list(find(paths))
    for path in files:
        try:
            reading = read(path)
        except SyntaxError as e:
            unread.append(f"{path}:{e.lineno}: {e.msg}")
            continue
        except (OSError, ValueError, KeyError, TypeError) as e:
            unread.append(f"{path}: {e}")
            continue
        uses += reading.uses
        unseen += reading.unseen
        hints += reading.hints
        ranks += reading.ranks
    using = list(dict.fromkeys(u.file for u in uses))
    bad = {u.file for u in uses if not u.works}
    if each_line:
        print(
            *dict.fromkeys(f"{u.file}:{u.line}: {u.name}" for u in uses if not u.works),
            sep="\n",
            end="\n" if bad else "",
        )
    elif len(files) == 1:
        _print([f"{using[0]}: not here", *_report.by_line(uses)] if bad else [])
        _print(_report.remarks_by_line(_SLOW, hints))
        _print(_report.remarks_by_line(_RANKS, ranks))
        _print(_report.remarks_by_line(_UNSEEN, unseen))
    else:
        columns = shutil.get_terminal_size((140, 24)).columns
        _print(_report.by_name(uses, columns))
        _print(_report.by_text(_SLOW, hints, columns))
        _print(_report.by_text(_RANKS, ranks, columns))
        _print(_report.by_text(_UNSEEN, unseen, columns))
    for text in unread:
        print(f"can't be read: {text}")
    if not each_line and (using or not unread):
        if not using:
            sentence = "It does not use DALI" if len(files) == 1 else f"None of {len(files)} files uses DALI"
            print(sentence + (", as far as that is seen." if unseen else "."))
        else:
            prefix = f"{len(using)} of {len(files)} files use DALI, {len(using) - len(bad)} of them only what is here. "
            print(f"{prefix if len(files) > 1 else ''}{_report.summary(uses)}.")
    return int(bool(bad or unread))


def _print(rows: Iterable[str]):
    """Prints a paragraph, unless it is empty."""
    rows = list(rows)
    print(*rows, sep="\n", end="\n\n" if rows else "")
