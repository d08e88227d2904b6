"""The command line of ``python -m jaxdali.port``."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import sys
from collections.abc import Iterable, Sequence

from . import _alias, _report
from ._findings import Remark, Use
from ._reading import read
from ._scripts import find, imported

_DESCRIPTION = """\
Moves scripts from NVIDIA DALI to jaxdali.

  python -m jaxdali.port FILE_OR_FOLDER ...
    what they use of DALI that is not here: reads them, and runs nothing
  python -m jaxdali.port --run SCRIPT ...
    runs `python SCRIPT ...`, in which nvidia.dali is jaxdali
  python -m jaxdali.port --run --batches 1 SCRIPT ...
    the same, but each iterator, and each pipeline that is run without one, ends
    after its first batch, and the script when it begins another epoch. Prints
    type, shape, and least and largest number of each output. Processes that the
    script starts do the same
"""
_UNSEEN = "not seen"
_SLOW = "slower than need be"
_RANKS = (
    "a process for each GPU: JAX opens all GPUs that a process sees. Before jax is imported, let CUDA_VISIBLE_DEVICES name the one of "
    'LOCAL_RANK, and then device_id=0 (jaxdali/plugin/README.md, "GPUs")'
)
_SHAPES = (
    "shapes may change from batch to batch, as fn.pad pads to the longest sample: pass dynamic_shape=True, without "
    "which a change is an error"
)
_FILLS = (
    "with reader_name, the last batch is the samples that are left (PARTIAL), as DALI's documents say, where DALI 2.4 fills it (FILL). "
    "If all processes need equal batches: size= in place of reader_name fills it, last_batch_policy=LastBatchPolicy.DROP drops it"
)
_STATUSES = """\
exit status:
  0  nothing is missing
  1  something is missing, or a file can't be read
  2  wrong arguments
  with --run that of the script
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report. Returns the exit status."""
    arguments_of_tool = list(sys.argv[1:] if arguments is None else arguments)
    program = []
    if "--run" in arguments_of_tool:  # the following arguments are the script's, except --batches
        index = arguments_of_tool.index("--run") + 1
        first = arguments_of_tool[index] if index < len(arguments_of_tool) else ""
        index += 2 if first == "--batches" else int(first.startswith("--batches="))
        arguments_of_tool, program = arguments_of_tool[:index], arguments_of_tool[index:]
    parser = argparse.ArgumentParser(
        "python -m jaxdali.port",
        usage="%(prog)s [--lines] FILE_OR_FOLDER ...\n"
        "       %(prog)s --run [--batches N] {SCRIPT,-m MODULE} [ARGUMENT ...]",
        description=_DESCRIPTION,
        epilog=_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "path", nargs="*", metavar="FILE_OR_FOLDER", help="a Python file, a notebook, or a folder of them"
    )
    parser.add_argument("--lines", action="store_true", help="each use of what is missing as FILE:LINE: NAME")
    parser.add_argument(
        "--run", action="store_true", help="run a script, or with -m a module; all that follows is its own"
    )
    parser.add_argument(
        "--batches", type=_number, metavar="N", help="with --run: how many batches each iterator and pipeline gives"
    )
    args = parser.parse_args(arguments_of_tool)
    if args.run:
        if args.path or args.lines:
            parser.error("--run stands first: what follows it is the script and its arguments")
        if not program or program == ["-m"]:
            parser.error("--run: which script?")
        if program[0].startswith("--"):
            parser.error(f"--run {program[0]}: there is no such option")
        _alias.run(program, args.batches)
    if args.batches:
        parser.error("--batches goes with --run")
    if not args.path:
        parser.error("which files?")
    return _report_names(args.path, args.lines)


def _number(text: str) -> int:
    """The argument of --batches."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)


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
    shapes: list[Remark] = []
    fills: list[Remark] = []
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
        shapes += reading.shapes
        fills += reading.fills
    other_files = [] if each_line else _other_files(paths, files)
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
        _print(_report.remarks_by_line(_SHAPES, shapes))
        _print(_report.remarks_by_line(_FILLS, fills))
        _print(_report.remarks_by_line(_UNSEEN, unseen))
    else:
        columns = shutil.get_terminal_size((140, 24)).columns
        _print(_report.by_name(uses, columns))
        _print(_report.by_text(_SLOW, hints, columns))
        _print(_report.by_text(_RANKS, ranks, columns))
        _print(_report.by_text(_SHAPES, shapes, columns))
        _print(_report.by_text(_FILLS, fills, columns))
        _print(_report.by_text(_UNSEEN, unseen, columns))
    for text in unread:
        print(f"can't be read: {text}")
    if not each_line and (using or not unread):
        if not using:
            sentence = "It does not use DALI" if len(files) == 1 else f"None of {len(files)} files uses DALI"
            print(f"{sentence}{' itself' * bool(other_files)}{', as far as that is seen' * bool(unseen)}.")
        else:
            prefix = f"{len(using)} of {len(files)} files use DALI, {len(using) - len(bad)} of them only what is here. "
            print(f"{prefix if len(files) > 1 else ''}{_report.summary(uses)}.")
    if other_files:
        print(f"Imported files that use DALI, too, but are not read: {', '.join(other_files)}.")
    return int(bool(bad or unread))


def _other_files(paths: Sequence[str], files: Sequence[pathlib.Path]) -> list[str]:
    """The files that use DALI and are not among the files that are read, but imported by one of `paths`."""
    known_paths, other_files = {f.absolute() for f in files}, []
    for script in map(pathlib.Path, paths):
        for path in imported(script) if script.is_file() else ():
            if path not in known_paths:
                known_paths.add(path)
                # The last two are of expressions that are nested too deeply for Python's parser.
                with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError):
                    if read(path).uses:
                        other_files.append(os.path.relpath(path))
    return other_files


def _print(rows: Iterable[str]):
    """Prints a paragraph, unless it is empty."""
    rows = list(rows)
    print(*rows, sep="\n", end="\n\n" if rows else "")
