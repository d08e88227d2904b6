"""Files of scripts: Python files and notebooks."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence

_SKIPPED_FOLDERS = {".git", ".venv", "__pycache__", "node_modules", "site-packages"}


def find(paths: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yields the Python files and notebooks among paths and in folders."""
    for path in map(pathlib.Path, paths):
        if not path.is_dir():
            yield path
            continue
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(f for f in folders if f not in _SKIPPED_FOLDERS)
            yield from (pathlib.Path(folder) / f for f in sorted(files) if f.endswith((".py", ".ipynb")))


def source(path: pathlib.Path) -> tuple[str, Callable[[int], str]]:
    """The Python code of a file or notebook, and a function that names its lines."""
    data = path.read_bytes()
    if path.suffix != ".ipynb":
        return data.decode("utf-8-sig"), str
    text, lines = "", []
    for number, cell in enumerate(json.loads(data)["cells"], 1):
        if cell["cell_type"] == "code":
            code = _code_of_cell("".join(cell["source"]))
            text += code
            lines += [f"cell {number}, line {k}" for k in range(1, code.count("\n") + 1)]
    return text, lambda line: lines[line - 1]


def module_file(script: pathlib.Path, module: str, level: int) -> pathlib.Path | None:
    """The file of another module of a script; None: there is none in the folders above.

    Args:
      script: the file of the script.
      level: the number of dots of a relative import; 0: absolute, so any folder above may be on the path.
    """
    parts = module.split(".") if module else []
    folder = script.absolute().parent
    # A relative import goes up a folder for each dot after the first. Others are searched for in 8 folders at most.
    folders = [folder, *folder.parents]
    folders = folders[level - 1 : level] if level else folders[:8]
    for base in folders:
        for path in (
            base.joinpath(*parts).with_suffix(".py") if parts else None,
            base.joinpath(*parts, "__init__.py"),
        ):
            if path is not None and path.is_file():
                return path
    return None


def imported(script: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the files in a script's folders that it imports, and those that these import. Files that can't be read
    import nothing.
    """
    known_files, pending = {script.absolute()}, [script]
    while pending:
        path = pending.pop(0)
        tree = ast.Module([], [])
        with contextlib.suppress(OSError, ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
            tree = parse(source(path)[0])
        for node in ast.walk(tree):
            modules: list[tuple[str, int]] = []  # with the number of dots
            if isinstance(node, ast.Import):
                modules = [(alias.name, 0) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):  # what is imported may be a module itself
                names = ["", *(f".{alias.name}" for alias in node.names)]
                modules = [(f"{node.module or ''}{name}".lstrip("."), node.level) for name in names]
            for module, level in modules:
                file = module_file(path, module, level)
                if file is not None and file not in known_files:
                    known_files.add(file)
                    pending.append(file)
                    yield file


def parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the script, such as invalid escapes
        return ast.parse(text)


def _code_of_cell(cell: str) -> str:
    """The code of a notebook's cell, with lines of magics blanked out."""
    lines = cell.split("\n")
    # A cell of another language has no code of Python.
    if lines[0].startswith("%%") and not lines[0].startswith(("%%time", "%%capture")):
        lines = [""] * len(lines)
    magic = [line.lstrip().startswith(("%", "!", "?")) for line in lines]
    return (
        "\n".join(line[: len(line) - len(line.lstrip())] + "pass" if m else line for line, m in zip(lines, magic))
        + "\n"
    )
