"""What a script uses of DALI, found by reading it: nothing of it runs.

A name works when it is found in this package; keyword arguments are compared with the signature here. What a script does with the
objects it gets (attributes of batches, say) is not followed.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jaxdali

DALI = "nvidia.dali"
_SKIPPED = {".git", ".venv", "__pycache__", "node_modules", "site-packages"}


class Missing(Exception):
    """A name is not here."""


@functools.cache
def look_up(name: str) -> Any:
    """What is called `name` in DALI, under ``nvidia.dali``, as it is here. Raises `Missing`."""
    found: Any = jaxdali
    for part in name.split("."):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecated names, which work
            try:
                found = getattr(found, part)
            except AttributeError:
                found = _module(found, part)
        if found is None:  # it stands in a text: what it has is not known
            break
    return found


def _module(parent: Any, part: str) -> Any:
    if not isinstance(parent, types.ModuleType) or not hasattr(parent, "__path__"):
        raise Missing(part)
    spec = importlib.util.find_spec(f"{parent.__name__}.{part}")
    if spec is None:
        raise Missing(part)
    try:
        return importlib.import_module(spec.name)
    except ImportError:  # of a plugin whose framework is not installed: what it defines stands in its text
        assert spec.origin is not None
        module = types.ModuleType(spec.name)
        for node in ast.parse(pathlib.Path(spec.origin).read_text()).body:
            names = [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
            if isinstance(node, ast.ImportFrom):
                names = [alias.asname or alias.name for alias in node.names]
            for name in names:
                setattr(module, name, None)
        return module


def keywords(x: Any) -> frozenset[str] | None:
    """The keyword arguments that a function or class takes; None: any, or unknown."""
    if not callable(x):
        return None
    try:
        parameters = inspect.signature(x).parameters.values()
    except (TypeError, ValueError):
        return None
    found = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        return found
    return found | _pipeline_keywords() if x is jaxdali.pipeline_def else None


def _pipeline_keywords() -> frozenset[str]:
    return keywords(jaxdali.Pipeline) or frozenset()


@functools.cache
def _refuses(argument: str, value: Any) -> bool:
    """Whether a pipeline says of this value that it is not there yet."""
    try:
        jaxdali.Pipeline(**{argument: value})
    except NotImplementedError:
        return True
    except Exception:  # wrong here and in DALI: the user will hear of it
        return False
    return False


@dataclasses.dataclass(frozen=True)
class Use:
    """A name or an argument of DALI's in a file, with the line; `works`: it is here."""

    name: str
    file: str
    line: str
    works: bool


@dataclasses.dataclass(frozen=True)
class _Bound:
    """What a variable of the script stands for: something in DALI by name, an object of a class there, or a function defined with one."""

    name: str
    is_object: bool = False
    own: frozenset[str] | None = None  # of a function that was made a pipeline: the arguments of its own


class _Reader(ast.NodeVisitor):
    """Collects the uses of DALI in one file."""

    def __init__(self, file: str, line: Callable[[int], str]):
        self.uses: list[Use] = []
        self._file, self._line = file, line
        self._scopes: list[dict[str, _Bound | None]] = [{}]
        self._bases = [""]  # of the classes around, the name in DALI of what they are derived from

    def _use(self, name: str, node: ast.AST, works: bool = True):
        self.uses.append(Use(name, self._file, self._line(getattr(node, "lineno", 1)), works))

    def _record(self, name: str, node: ast.AST) -> Any:
        """Notes that `name` is used, unless it is a module that is here. Returns what it is, or None."""
        if not name:
            return jaxdali
        try:
            x = look_up(name)
        except Missing:
            self._use(name, node, works=False)
            return None
        if not isinstance(x, types.ModuleType):
            self._use(name, node)
        return x

    # --- what variables stand for

    def _bind(self, name: str, to: _Bound | None):
        self._scopes[-1][name] = to

    def _bound(self, name: str) -> _Bound | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _resolve(self, node: ast.AST) -> _Bound | None:
        """What an expression of names and dots stands for; None: nothing of DALI's."""
        if isinstance(node, ast.Name):
            return self._bound(node.id)
        if isinstance(node, ast.Attribute) and (of := self._resolve(node.value)) is not None and of.own is None:
            return _Bound(_joined(of.name, node.attr)) if of.name != "nvidia" or node.attr == "dali" else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and self._bases[-1]:
            return _Bound(self._bases[-1], is_object=True)
        if isinstance(node, ast.Call) and (of := self._resolve(node.func)) is not None:
            return self._result(of)
        return None

    def _result(self, of: _Bound) -> _Bound | None:
        """What a call gives."""
        if of.own is not None:
            return _Bound("Pipeline", is_object=True) if of.name == "pipeline_def" else None
        with contextlib.suppress(Missing):
            if isinstance(look_up(of.name), type):
                return _Bound(of.name, is_object=True)
        return None

    def visit_Import(self, node: ast.Import):
        for alias in node.names:
            if not (alias.name == DALI or alias.name.startswith(f"{DALI}.")):
                continue
            self._record(alias.name.removeprefix(DALI).lstrip("."), node)
            if alias.asname:
                self._bind(alias.asname, _Bound(alias.name.removeprefix(DALI).lstrip(".")))
            else:
                self._bind("nvidia", _Bound("nvidia"))

    def visit_ImportFrom(self, node: ast.ImportFrom):
        module = node.module or ""
        if node.level or not (module in ("nvidia", DALI) or module.startswith(f"{DALI}.")):
            for alias in node.names:
                self._bind(alias.asname or alias.name, None)
            return
        for alias in node.names:
            if module == "nvidia":
                if alias.name == "dali":
                    self._bind(alias.asname or "dali", _Bound(""))
                continue
            of = module.removeprefix(DALI).lstrip(".")
            if alias.name == "*":
                for name in dir(self._record(of, node)):
                    if not name.startswith("_"):
                        self._bind(name, _Bound(_joined(of, name)))
            else:
                self._record(_joined(of, alias.name), node)
                self._bind(alias.asname or alias.name, _Bound(_joined(of, alias.name)))

    def visit_Assign(self, node: ast.Assign):
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._bind(target.id, self._resolve(node.value))
            else:
                self.visit(target)

    def visit_withitem(self, node: ast.withitem):
        self.visit(node.context_expr)
        if isinstance(node.optional_vars, ast.Name):
            self._bind(node.optional_vars.id, self._resolve(node.context_expr))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef):
        a = node.args
        names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None]
        own = None
        for decorator in node.decorator_list:
            self.visit(decorator)
            made_by = self._resolve(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if made_by is not None and made_by.name.rpartition(".")[2] in ("pipeline_def", "data_iterator", "peekable_data_iterator"):
                own = _Bound(made_by.name.rpartition(".")[2], own=frozenset(names))
        for default in (*a.defaults, *(d for d in a.kw_defaults if d is not None)):
            self.visit(default)
        self._bind(node.name, own)
        self._inside(dict.fromkeys(names), node.body)

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_Lambda(self, node: ast.Lambda):
        self._inside(dict.fromkeys(x.arg for x in node.args.args), [node.body])

    def visit_ClassDef(self, node: ast.ClassDef):
        for x in (*node.bases, *node.keywords, *node.decorator_list):
            self.visit(x)
        self._bind(node.name, None)
        bases = [of.name for of in map(self._resolve, node.bases) if of is not None]
        self._bases.append(bases[0] if bases else "")
        self._inside({}, node.body)
        self._bases.pop()

    def _inside(self, scope: dict[str, _Bound | None], body: Sequence[ast.AST]):
        self._scopes.append(scope)
        for statement in body:
            self.visit(statement)
        self._scopes.pop()

    # --- uses

    def visit_Name(self, node: ast.Name):
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id, None)
        elif (to := self._bound(node.id)) is not None and not to.is_object and to.own is None and to.name != "nvidia":
            self._record(to.name, node)

    def visit_Attribute(self, node: ast.Attribute):
        to = self._resolve(node)
        if to is None:
            self.visit(node.value)
            return
        of = self._resolve(node.value)
        if of is not None and of.is_object:  # attributes that the object gets when it is made are not known: only methods are looked at
            self.visit(node.value)
            return
        self._record(to.name, node)

    def visit_Call(self, node: ast.Call):
        self.visit(node.func)
        to = self._resolve(node.func)
        if to is not None:
            of = self._resolve(node.func.value) if isinstance(node.func, ast.Attribute) else None
            if of is not None and of.is_object:
                self._record(to.name, node.func)
            self._arguments(node, to)
        for x in (*node.args, *node.keywords):
            self.visit(x)

    def _arguments(self, node: ast.Call, to: _Bound):
        takes = None
        if to.own is not None:
            takes = _pipeline_keywords() | to.own
        else:
            with contextlib.suppress(Missing):
                takes = keywords(look_up(to.name))
        if takes is None:
            return
        for k in node.keywords:
            if k.arg is not None and k.arg not in takes:
                self._use(f"{to.name}({k.arg}=)", k.value, works=False)
            elif (
                k.arg is not None and isinstance(k.value, ast.Constant) and takes >= _pipeline_keywords() and _refuses(k.arg, k.value.value)
            ):
                self._use(f"{to.name}({k.arg}={k.value.value!r})", k.value, works=False)


def _joined(of: str, name: str) -> str:
    if of == "nvidia":  # `import nvidia.dali` binds the first part
        return ""
    return f"{of}.{name}" if of else name


# --- files ----------------------------------------------------------------------------------------------------------


def find(paths: Sequence[str]) -> Iterator[pathlib.Path]:
    """The Python files and notebooks among paths and in folders."""
    for path in map(pathlib.Path, paths):
        if not path.is_dir():
            yield path
            continue
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(f for f in folders if f not in _SKIPPED)
            yield from (pathlib.Path(folder) / f for f in sorted(files) if f.endswith((".py", ".ipynb")))


def read(path: pathlib.Path) -> list[Use]:
    """The uses of DALI in a file. Raises OSError, or ValueError (SyntaxError is shown as one), where it can't be read."""
    data = path.read_bytes()
    if b"nvidia" not in data:
        return []
    lines: list[str] = []
    if path.suffix == ".ipynb":
        text = ""
        for number, cell in enumerate(json.loads(data)["cells"], 1):
            if cell["cell_type"] == "code":
                code = _python("".join(cell["source"]))
                text += code
                lines += [f"cell {number}, line {k}" for k in range(1, code.count("\n") + 1)]
    else:
        text = data.decode("utf-8-sig")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the script, such as invalid escapes
        tree = ast.parse(text)
    reader = _Reader(str(path), lambda line: lines[line - 1] if lines else str(line))
    reader.visit(tree)
    return reader.uses


def _python(cell: str) -> str:
    """A notebook's cell with its magics blanked out, line by line."""
    lines = cell.split("\n")
    if lines[0].startswith("%%") and not lines[0].startswith(("%%time", "%%capture")):
        lines = [""] * len(lines)
    magic = [line.lstrip().startswith(("%", "!", "?")) for line in lines]
    return "\n".join(line[: len(line) - len(line.lstrip())] + "pass" if m else line for line, m in zip(lines, magic)) + "\n"
