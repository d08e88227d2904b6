"""The guides as notebooks, which run in the root of a checkout."""

import json
import pathlib
import re
from typing import Any

DIRECTIVE = re.compile(r"^```\{([\w-]+)\} *(.*)\n((?::[\w-]+:.*\n)*)((?:.*\n)*?)```$", re.MULTILINE)
START = """from pathlib import Path

assert Path("examples/images").is_dir(), "start Jupyter in the root of a checkout of jaxdali\""""


def write(guides: pathlib.Path, folder: pathlib.Path, substitutions: dict[str, str]) -> list[str]:
    """Writes a notebook of each guide that has cells into a folder, and returns their names."""
    folder.mkdir()
    names = []
    for guide in sorted(guides.glob("*.md")):
        text = guide.read_text()
        if "{code-cell}" in text:
            names.append(guide.stem)
            notebook = convert(text, guides, substitutions)
            (folder / f"{guide.stem}.ipynb").write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    return names


def convert(text: str, guides: pathlib.Path, substitutions: dict[str, str]) -> dict[str, Any]:
    """A guide's Markdown as a notebook, in version 4.5 of the format."""
    text = substitute(re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL), substitutions)
    title = re.findall(r"^# (.+)", text, re.MULTILINE)[0]
    introduction = (
        f'This notebook is the guide "{title}" of jaxdali. It runs in the root of a checkout of the repository, because '
        "it reads files from there. Its kernel is the Python in which jaxdali is installed: in the checkout "
        '`.venv/bin/pip install -e ".[examples]" ipykernel` does it. The guide says what else it needs.'
    )
    start = START + ('\nPath("recipes").mkdir(exist_ok=True)' if "{literalinclude} recipes/" in text else "")
    cells = [("markdown", introduction), ("code", start)]
    end = 0
    for directive in DIRECTIVE.finditer(text):
        cells += [("markdown", plain(text[end : directive.start()])), cell_of(directive, guides)]
        end = directive.end()
    cells.append(("markdown", plain(text[end:])))
    return {
        "cells": [make_cell(kind, source, k) for k, (kind, source) in enumerate(x for x in cells if x[1])],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def substitute(text: str, substitutions: dict[str, str]) -> str:
    """Replaces the names in double braces by their values."""
    return re.sub(r"\{\{ *(\w+) *\}\}", lambda name: substitutions[name[1]], text)


def make_cell(kind: str, source: str, number: int) -> dict[str, Any]:
    """A cell without outputs."""
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source.strip("\n"), **code}


def cell_of(directive: re.Match[str], guides: pathlib.Path) -> tuple[str, str]:
    """The kind and the source of the cell that stands for a directive."""
    name, argument, options, body = directive.groups()
    if name == "code-cell":
        return "code", body
    if name == "literalinclude" and argument.startswith("recipes/"):  # a checkout doesn't have these files
        return "code", f"%%writefile {argument}\n{(guides / argument).read_text()}"
    if name == "literalinclude":
        fields = dict(re.findall(r"^:([\w-]+): *(.*)$", options, re.MULTILINE))
        return "markdown", f"```{fields.pop('language')}\n{included(guides / argument, fields)}\n```"
    raise ValueError(f"notebooks have nothing that stands for the directive {name!r}")


def included(file: pathlib.Path, fields: dict[str, str]) -> str:
    """The lines of a file that a `literalinclude` shows: all, or those from `start-at` to before `end-before`."""
    unknown = fields.keys() - {"end-before", "start-at"}
    if unknown:
        raise ValueError(f"a notebook's literalinclude of {file.name} has no option {', '.join(sorted(unknown))}")
    text = file.read_text()
    if "start-at" in fields:
        text = text[text.index(unquote(fields["start-at"])) :]
    if "end-before" in fields:
        text = text[: text.index(unquote(fields["end-before"]))]
    return text.strip("\n")


def unquote(text: str) -> str:
    return text.strip('"').replace('\\"', '"')


def plain(text: str) -> str:
    """Markdown in which links inside the site are their text."""
    return re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:)[^)\s]*\)", r"\1", text).strip("\n")
