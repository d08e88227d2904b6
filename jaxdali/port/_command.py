"""The command line of ``python -m jaxdali.port``."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence

from . import _alias, _report
from ._reading import Use, find, read

_DESCRIPTION = """\
Moves scripts from NVIDIA DALI to jaxdali.

  python -m jaxdali.port FILE_OR_FOLDER ...   what they use of DALI that is not here: reads them, and runs nothing
  python -m jaxdali.port --run SCRIPT ...     runs `python SCRIPT ...`, in which nvidia.dali is jaxdali
"""
_STATUSES = """\
exit status: 0 where nothing is missing, else 1; 2 for wrong arguments; with --run that of the script.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report. Returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    program = []
    if "--run" in given:  # what follows is the script's, whatever it looks like
        place = given.index("--run")
        given, program = given[: place + 1], given[place + 1 :]
    parser = argparse.ArgumentParser(
        "python -m jaxdali.port",
        usage="%(prog)s [--lines] FILE_OR_FOLDER ...\n       %(prog)s --run {SCRIPT,-m MODULE} [ARGUMENT ...]",
        description=_DESCRIPTION,
        epilog=_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="*", metavar="FILE_OR_FOLDER", help="a Python file, a notebook, or a folder of them")
    parser.add_argument("--lines", action="store_true", help="each use of what is missing as FILE:LINE: NAME")
    parser.add_argument("--run", action="store_true", help="run a script, or with -m a module; all that follows is its own")
    args = parser.parse_args(given)
    if args.run:
        if args.path or args.lines:
            parser.error("--run stands first: what follows it is the script and its arguments")
        if not program or program == ["-m"]:
            parser.error("--run: which script?")
        _alias.run(program)
    if not args.path:
        parser.error("which files?")
    return _names(args.path, args.lines)


def _names(paths: Sequence[str], each_line: bool) -> int:
    uses: list[Use] = []
    unread = []
    files = list(find(paths))
    for path in files:
        try:
            uses += read(path)
        except SyntaxError as e:
            unread.append(f"{path}:{e.lineno}: {e.msg}")
        except (OSError, ValueError, KeyError, TypeError) as e:
            unread.append(f"{path}: {e}")
    using = list(dict.fromkeys(u.file for u in uses))
    bad = {u.file for u in uses if not u.works}
    if each_line:
        rows = dict.fromkeys(f"{u.file}:{u.line}: {u.name}" for u in uses if not u.works)
    elif len(files) == 1:
        rows = [f"{using[0]}: not here" if using else ""] + list(_report.by_line(uses)) if bad else []
    else:
        rows = list(_report.by_name(uses, shutil.get_terminal_size((140, 24)).columns))
    print(*rows, sep="\n", end="\n\n" if rows and not each_line else "")
    for text in unread:
        print(f"can't be read: {text}")
    if not each_line and (using or not unread):
        if not using:
            print("It does not use DALI." if len(files) == 1 else f"None of {len(files)} files uses DALI.")
        else:
            of = f"{len(using)} of {len(files)} files use DALI, {len(using) - len(bad)} of them only what is here. "
            print(f"{of if len(files) > 1 else ''}{_report.summary(uses)}.")
    return int(bool(bad or unread))
