"""Analyses a script's code: its pipeline definitions."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
from collections.abc import Iterator
from typing import Any


def module_name(path: pathlib.Path, tree: ast.Module) -> tuple[str, str]:
    """The name of a file's module, and of its package, as deep as its relative imports need; "": without a package.

    A package that lies inside another one is named in full, as its other modules may import more.
    """
    depth = max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
    while (
        depth
        and depth < 8
        and (path.parents[depth - 1] / "__init__.py").exists()
        and (path.parents[depth] / "__init__.py").exists()
    ):
        depth += 1
    package = ".".join(p.name for p in reversed(path.parents[:depth]))
    stem = re.sub(r"\W", "_", path.stem)
    return (f"{package}.{stem}" if package else stem), package


def makes_pipelines(node: ast.AST) -> bool:
    """Whether a function or class makes pipelines inside, where they can't be accessed from outside."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and ast.unparse(inner.func).rpartition(".")[2] == "Pipeline":
            return True
    functions = (
        [node]
        if isinstance(node, ast.FunctionDef)
        else [x for x in ast.iter_child_nodes(node) if getattr(x, "name", "") == "__init__"]
    )
    for function in functions:
        if any(isinstance(x, ast.FunctionDef) and x is not function and _is_definition(x) for x in ast.walk(function)):
            return True
    return False


def out_of_reach(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Definitions in methods, and classes of pipelines in functions: name, line, and where they are."""
    for outer in tree.body:
        if not isinstance(outer, (ast.ClassDef, ast.FunctionDef)):
            continue
        methods = [outer]
        if isinstance(outer, ast.ClassDef):
            methods = [x for x in outer.body if isinstance(x, ast.FunctionDef) and x.name != "__init__"]
        for method in methods:
            for inner in ast.walk(method):
                place = outer.name if method is outer else f"{outer.name}.{method.name}"
                if (
                    isinstance(inner, ast.FunctionDef)
                    and inner is not method
                    and method is not outer
                    and _is_definition(inner)
                ):
                    yield inner.name, inner.lineno, place
                elif isinstance(inner, ast.ClassDef) and any(
                    ast.unparse(b).rpartition(".")[2] == "Pipeline" for b in inner.bases
                ):
                    yield inner.name, inner.lineno, place


def _is_definition(node: ast.FunctionDef) -> bool:
    return any(
        ast.unparse(d.func if isinstance(d, ast.Call) else d).rpartition(".")[2] == "pipeline_def"
        for d in node.decorator_list
    )


def line_of(tree: ast.Module, name: str) -> int:
    """The first line that defines or names a function, class or variable; 1 if there is none."""
    for node in ast.walk(tree):
        if getattr(node, "name", None) == name or getattr(node, "id", None) == name:
            return getattr(node, "lineno", 1)
    return 1


def line_of_function(tree: ast.Module, function: Any) -> int:
    """The line where a function is defined."""
    return getattr(code_of(tree, function), "lineno", inspect.unwrap(function).__code__.co_firstlineno)


def code_of(tree: ast.Module, function: Any) -> ast.AST:
    """The syntax tree of a function in the file: an empty module if it is not there, the whole file if it has no code of
    its own, as a class.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and code is not None and node.name == code.co_name:
            # The first line of a code object is that of its first decorator.
            if code.co_firstlineno in (node.lineno, *(d.lineno for d in node.decorator_list)):
                return node
    return tree if code is None else ast.Module([], [])


def passed_on_as(node: ast.AST, name: str) -> list[str]:
    """The names of the arguments that a parameter is passed on as."""
    names = []
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            names += [
                k.arg
                for k in call.keywords
                if k.arg is not None and isinstance(k.value, ast.Name) and k.value.id == name
            ]
    return names


def has_attributes(node: ast.AST, name: str) -> bool:
    """Whether attributes of a parameter are read."""
    return any(
        isinstance(x, ast.Attribute) and isinstance(x.value, ast.Name) and x.value.id == name for x in ast.walk(node)
    )


def keys_read(tree: ast.AST, name: str) -> list[str]:
    """The constant keys that code reads from a dict called `name`, or from an attribute of that name:
    ``kwargs["path"]``, ``self.kwargs.get("path")``.
    """

    def is_dict(node: ast.expr) -> bool:
        return ast.unparse(node).rpartition(".")[2] == name

    keys = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))) if is_dict(value):
                keys.append(key)
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "pop"), args=[ast.Constant(value=str(key))]) if (
                is_dict(value)
            ):
                keys.append(key)
    return list(dict.fromkeys(keys))


def positional_only(function: Any) -> list[str]:
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_ONLY]
