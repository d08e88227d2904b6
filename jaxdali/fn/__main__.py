"""The command ``python -m jaxdali.fn`` lists the operators by group, with the devices they run on. ``python -m
jaxdali.fn resize`` shows the help of one.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import enum
import inspect
import re
import signal
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from jaxdali import fn
from jaxdali._core.names import foreign, members


def operators(module: types.ModuleType = fn, prefix: str = "") -> dict[str, Callable[..., Any]]:
    """The operators of a module and its public submodules, by dotted name."""
    by_name = {}
    for name, x in members(module).items():
        if inspect.ismodule(x) and x.__name__.startswith(f"{fn.__name__}."):
            by_name |= operators(x, f"{prefix}{name}.")
        elif inspect.isfunction(x):
            by_name[prefix + name] = x
    return by_name


def group(name: str, operator: Callable[..., Any]) -> str:
    """The public module of an operator, or the folder of its file."""
    if "." in name:
        return name.rpartition(".")[0]
    folder = operator.__module__.removeprefix(f"{fn.__name__}.").partition(".")[0]
    return folder.lstrip("_")


def placements(operator: Callable[..., Any]) -> list[str]:
    """The values of an operator's argument `device`, by its annotation."""
    device = inspect.signature(operator).parameters.get("device")
    return [] if device is None else re.findall(r"[\"'](\w+)[\"']", str(device.annotation))


def table(only: str | None = None) -> str:
    """The operators, a row each: all, or those of one group."""
    by_name = {name: x for name, x in operators().items() if only in (None, group(name, x))}
    width = max(map(len, by_name))
    rows, heading = [], ""
    for name, operator in sorted(by_name.items(), key=lambda item: (group(*item), item[0])):
        # A heading above the first operator of each group.
        if group(name, operator) != heading:
            heading = group(name, operator)
            rows += [f"\n{heading}"]
        devices = " ".join(placements(operator))
        # The name, the devices, and the first line of the docstring.
        rows.append(f"  {name:<{width}}  {devices:<13}  {(operator.__doc__ or '').partition(chr(10))[0]}".rstrip())
    return "\n".join(rows).strip()


def expected(annotation: Any, names: Mapping[str, Any]) -> str:
    """An annotation as users read it: without limits, which the docstring has, and with the choices of a `Literal` in
    place of its name.

    `names`: the global names of the operator's module.
    """
    text = str(annotation)
    match ast.parse(text, mode="eval").body:
        # Annotated[type, limits, ...] becomes the type.
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([first, *_])):
            text = ast.unparse(first)

    def choices(name: re.Match[str]) -> str:
        value = names.get(name[0])
        return f"Literal{list(get_args(value))}" if get_origin(value) is Literal else name[0]

    return re.sub(r"\b[A-Z]\w*", choices, text)


def describe(name: str) -> str:
    """The signature and the docstring of an operator."""
    operator = operators()[name]
    signature, names = inspect.signature(operator), inspect.unwrap(operator).__globals__
    lines, has_keywords = [], False
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not has_keywords:
            has_keywords = True
            lines.append("*")
        star = "*" if p.kind is p.VAR_POSITIONAL else ""
        default = f"types.{p.default.name}" if isinstance(p.default, enum.Enum) else repr(p.default)
        lines.append(
            f"{star}{p.name}: {expected(p.annotation, names)}" + ("" if p.default is p.empty else f" = {default}")
        )
    arguments = "".join(f"    {line},\n" for line in lines)
    return f"fn.{name}(\n{arguments}) -> {signature.return_annotation}\n\n{inspect.getdoc(operator)}"


def no_operator(name: str) -> str:
    """The message for a word that is no operator: operators whose names contain it, and the answer to a name of another
    library; without either, operators with similar names.
    """
    current = [n for n, f in operators().items() if not (f.__doc__ or "").startswith("Deprecated name")]
    squashed, answer = foreign().squashed, foreign().answer
    # The shortest name comes first: it may be the word in another spelling. One or two letters are in too many names.
    similar = sorted((n for n in current if len(name) >= 3 and squashed(name) in squashed(n)), key=len)
    # The table has formats of files as "readers.csv".
    answers = filter(None, (answer(f"{module}{name}") for module in ("", "readers.", "decoders.")))
    if not (advice := next(answers, "")):
        similar = similar or difflib.get_close_matches(name, current, 3)
    parts = [f"there is no operator {name!r}"]
    parts += [f"there is {', '.join(similar)}"] if similar else []
    parts += [f"instead: {advice}"] if advice else []
    return "; ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the list, or the help of the named operators or groups. Returns 1 if there is no such operator."""
    parser = argparse.ArgumentParser("python -m jaxdali.fn", description="The operators, or the help of some of them.")
    parser.add_argument("operator", nargs="*", help='as in a script: "resize", "readers.file"; or a group: "random"')
    names = [n.removeprefix("fn.") for n in parser.parse_args(arguments).operator]
    if not names:
        print(table())
    groups = {group(*item) for item in operators().items()}
    for name in names:
        if name in groups and name not in operators():
            print(table(name))
        elif name not in operators():
            print(no_operator(name), file=sys.stderr)
            return 1
        else:
            print(describe(name))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that a reader such as `head` can stop early without a traceback
    sys.exit(main())
