"""Finds a script's uses of DALI by reading it. Nothing in the script runs.

A use works if this package has the name; keyword arguments are compared with the signature in this package. What a
script does with the objects that it gets (attributes of batches, for example) is not analysed. Names of DALI are
followed through variables, attributes, tuples, dicts, functions that return them, and other files in the script's
folders. Where they can't be followed, the place is reported.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jaxdali

from ._names import Missing, host_reads, keywords, look_up, operator_of, pipeline_keywords, side

DALI = "nvidia.dali"
_SKIPPED = {".git", ".venv", "__pycache__", "node_modules", "site-packages"}
_MAKERS = ("pipeline_def", "data_iterator", "peekable_data_iterator")


@dataclasses.dataclass(frozen=True)
class Use:
    """A use of a name or argument of DALI in a file. `works`: jaxdali has it."""

    name: str
    file: str
    line: str
    works: bool


@dataclasses.dataclass(frozen=True)
class Remark:
    """A remark on a line: the uses there are unknown, or it costs time."""

    text: str
    file: str
    line: str


@dataclasses.dataclass
class Reading:
    """The findings in a file.

    Attributes:
      unseen: where the uses of DALI's names are unknown, and why.
      hints: where the host waits for a program in each batch.
      ranks: where a pipeline runs on the GPU with the number of its process.
    """

    uses: list[Use] = dataclasses.field(default_factory=list)
    unseen: list[Remark] = dataclasses.field(default_factory=list)
    hints: list[Remark] = dataclasses.field(default_factory=list)
    ranks: list[Remark] = dataclasses.field(default_factory=list)


# --- values of the script's variables
# -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Name:
    """Something in DALI, by its name there; `nvidia` for the enclosing package."""

    name: str


@dataclasses.dataclass(frozen=True)
class _Object:
    """An object of a class in DALI."""

    name: str


@dataclasses.dataclass(frozen=True)
class _Definition:
    """A function of the script that `maker` turned into a pipeline, and its own arguments."""

    maker: str
    own: frozenset[str]


@dataclasses.dataclass(frozen=True)
class _Made:
    """The result of an operator at a line. `place`: "host", "program", or "" if it is uncertain."""

    operator: str
    place: str
    line: str


@dataclasses.dataclass(frozen=True)
class _Group:
    """A tuple, dict or namespace in the script, or another module of it."""

    items: Mapping[Any, _Bound | None]


@dataclasses.dataclass(frozen=True, eq=False)
class _Function:
    """A function of the script."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    reader: _Reader
    scopes: list[_Scope]


_Bound: TypeAlias = _Name | _Object | _Definition | _Made | _Group | _Function


class _Scope(dict[str, "_Bound | None"]):
    """The variables of a module, class or function. A class also has those that its methods set, with an ``@`` before
    the name.
    """

    def __init__(self, items: Mapping[str, _Bound | None] | None = None, base: str | None = None):
        super().__init__(items or {})
        self.base = base  # of a class: DALI's name of its base, or ""
        self.of_module: set[str] = set()  # names that are declared `global`


class _Reader(ast.NodeVisitor):
    """Collects the uses of DALI in one file."""

    def __init__(self, path: pathlib.Path, line: Callable[[int], str], seen: dict[pathlib.Path, _Scope]):
        self._found: list[tuple[int, Use]] = []
        self._remarks: dict[str, list[tuple[int, Remark]]] = {"unseen": [], "hints": [], "ranks": []}
        self._path, self._line = path, line
        self._seen = seen  # the other files that were read
        self.module = _Scope()
        self._scopes = [self.module]
        # Bodies of functions, which see the module's final variables.
        self._later: list[tuple[list[_Scope], Sequence[ast.AST]]] = []
        # Functions that were called with names of DALI.
        self._entered: set[tuple[int, frozenset[tuple[str, Any]]]] = set()
        self._returns: list[_Bound] = []
        self._depth = 0
        self._pipelines: set[str] = set()  # names of the script's classes of pipelines

    def read(self, tree: ast.Module):
        """Visits a whole file."""
        for statement in tree.body:
            self.visit(statement)
        for scopes, body in self._later:  # the list grows meanwhile
            self._scopes = scopes
            for statement in body:
                self.visit(statement)

    @property
    def reading(self) -> Reading:
        """The findings, in the order of lines."""

        def in_order(found: Iterable[tuple[int, Any]]) -> list[Any]:
            return list(dict.fromkeys(x for _, x in sorted(found, key=lambda item: item[0])))

        uses = [u for _, u in sorted(self._found, key=lambda item: item[0])]
        ranks = in_order(self._remarks["ranks"]) if uses else []
        return Reading(uses, in_order(self._remarks["unseen"]), in_order(self._remarks["hints"]), ranks)

    def _use(self, name: str, node: ast.AST, works: bool = True):
        number = getattr(node, "lineno", 1)
        self._found.append((number, Use(name, str(self._path), self._line(number), works)))

    def _remark(self, kind: str, text: str, node: ast.AST):
        number = getattr(node, "lineno", 1)
        self._remarks[kind].append((number, Remark(text, str(self._path), self._line(number))))

    def _record(self, name: str, node: ast.AST) -> Any:
        """Records a use of `name`, unless it is a module that exists. Returns the object, or None."""
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

    # --- values of variables

    def _bind(self, name: str, to: _Bound | None):
        scope = self._scopes[-1]
        (self.module if name in scope.of_module else scope)[name] = to

    def _bound(self, name: str) -> _Bound | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _class(self) -> _Scope | None:
        return next((scope for scope in reversed(self._scopes) if scope.base is not None), None)

    def _own_attribute(self, name: str) -> _Bound | None:
        """An attribute of the object whose method this is."""
        scope = self._class()
        return None if scope is None else scope.get(f"@{name}") or scope.get(name)

    def _resolve(self, node: ast.AST | None) -> _Bound | None:
        """The value of an expression; None: it is not from DALI."""
        match node:
            case ast.Name(id=name):
                return self._bound(name)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript(value=value, slice=index):
                of = self._resolve(value)
                if isinstance(of, _Group) and isinstance(index, ast.Constant):
                    return of.items.get(index.value)
                return of if isinstance(of, _Made) else self._bound(ast.unparse(node))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return _group(dict(enumerate(map(self._resolve, elements))))
            case ast.Dict(keys=keys, values=values):
                return _group({k.value: self._resolve(v) for k, v in zip(keys, values) if isinstance(k, ast.Constant)})
            case ast.IfExp(body=body, orelse=other):
                return self._resolve(body) or self._resolve(other)
            case ast.BoolOp(values=values):
                return next(filter(None, map(self._resolve, values)), None)
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self._resolve(value)
            case ast.BinOp(left=left, right=right):
                return next(
                    (x for x in map(self._resolve, (left, right)) if isinstance(x, _Made) and x.place == "program"),
                    None,
                )
            case ast.Lambda():
                return _Function(node, self, list(self._scopes))
            case ast.Call():
                return self._result(node)
        return None

    def _attribute(self, node: ast.Attribute) -> _Bound | None:
        if (
            isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls")
            and (own := self._own_attribute(node.attr)) is not None
        ):
            return own
        if (kept := self._bound(ast.unparse(node))) is not None:
            return kept
        of = self._resolve(node.value)
        if isinstance(of, _Group):
            return of.items.get(node.attr)
        if isinstance(of, _Name) and of.name == "nvidia":
            return _Name("") if node.attr == "dali" else None
        return _Name(_joined(of.name, node.attr)) if isinstance(of, (_Name, _Object)) else None

    def _result(self, node: ast.Call) -> _Bound | None:
        """The result of a call."""
        function = ast.unparse(node.func)
        if function == "super":
            scope = self._class()
            return _Object(scope.base) if scope is not None and scope.base else None
        if (module := _imported(node, function)) is not None:
            return _name(module)
        if function == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            return self._resolve(
                ast.copy_location(ast.Attribute(node.args[0], str(node.args[1].value), ast.Load()), node)
            )
        if function.rpartition(".")[2] in ("dict", "SimpleNamespace", "Namespace", "namedtuple"):
            return _group({k.arg: self._resolve(k.value) for k in node.keywords if k.arg is not None})
        if isinstance(node.func, ast.Attribute) and isinstance(x := self._resolve(node.func.value), _Made):
            return x  # x.gpu()
        of = self._resolve(node.func)
        if isinstance(of, _Definition):
            return _Object("Pipeline") if of.maker == "pipeline_def" else None
        if isinstance(of, _Function):
            return self._returned(of, node)
        if isinstance(of, (_Name, _Object)):
            with contextlib.suppress(Missing):
                x = look_up(of.name)
                if isinstance(x, type) and isinstance(of, _Name):
                    return _Object(of.name)
                return self._made(node, x)
        return None

    def _made(self, node: ast.Call, x: Any) -> _Made | None:
        operator = operator_of(x)
        if not operator:
            return None
        place = side(operator)
        if place == "either":
            read = [self._resolve(a) for a in node.args]
            place = "program" if any(isinstance(m, _Made) and m.place == "program" for m in read) else ""
        return _Made(operator, place, self._line(node.lineno))

    def _returned(self, of: _Function, call: ast.Call) -> _Bound | None:
        """The result of a function of the script: the first of its possible results that is from DALI."""
        if self._depth > 5:
            return None
        silent = _Reader(of.reader._path, of.reader._line, self._seen)
        silent.module, silent._depth = of.reader.module, self._depth + 1
        parameters = self._parameters(of, call) if call is not None else {}
        silent._scopes = [*of.scopes, _Scope(parameters)]
        if isinstance(of.node, ast.Lambda):
            return silent._resolve(of.node.body)
        for statement in of.node.body:
            silent.visit(statement)
        return next(iter(silent._returns), None)

    def _parameters(self, of: _Function, call: ast.Call) -> dict[str, _Bound | None]:
        """The values of a function's parameters in a call."""
        a = of.node.args
        names = [x.arg for x in (*a.posonlyargs, *a.args)]
        if names[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute):
            names = names[1:]
        known: dict[str, _Bound | None] = dict.fromkeys(x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs))
        for name, x in (*zip(names, call.args), *((k.arg, k.value) for k in call.keywords)):
            to = self._resolve(x)
            if name in known and isinstance(to, (_Name, _Group)):
                known[name] = to
        return known

    def visit_Return(self, node: ast.Return):
        self.generic_visit(node)
        if (x := self._resolve(node.value)) is not None:
            self._returns.append(x)

    def visit_Global(self, node: ast.Global):
        self._scopes[-1].of_module.update(node.names)

    # --- imports

    def visit_Import(self, node: ast.Import):
        for alias in node.names:
            if alias.name == DALI or alias.name.startswith(f"{DALI}."):
                self._record(alias.name.removeprefix(DALI).lstrip("."), node)
                if alias.asname:
                    self._bind(alias.asname, _name(alias.name))
                else:
                    self._bind("nvidia", _Name("nvidia"))
            elif alias.asname or "." not in alias.name:
                self._bind(alias.asname or alias.name, self._other(alias.name, 0))

    def visit_ImportFrom(self, node: ast.ImportFrom):
        module = node.module or ""
        if node.level or not (module == "nvidia" or module == DALI or module.startswith(f"{DALI}.")):
            self._import_other(node, module)
            return
        for alias in node.names:
            if module == "nvidia":
                if alias.name == "dali":
                    self._bind(alias.asname or "dali", _Name(""))
                continue
            of = module.removeprefix(DALI).lstrip(".")
            if alias.name == "*":
                for name in dir(self._record(of, node)):
                    if not name.startswith("_"):
                        self._bind(name, _Name(_joined(of, name)))
            else:
                self._record(_joined(of, alias.name), node)
                self._bind(alias.asname or alias.name, _Name(_joined(of, alias.name)))

    def _import_other(self, node: ast.ImportFrom, module: str):
        group = self._other(module, node.level)
        for alias in node.names:
            if alias.name == "*":
                if group is not None:
                    self._scopes[-1].update({k: v for k, v in group.items.items() if v is not None})
                continue
            to = group.items.get(alias.name) if group is not None else None
            if to is None:
                to = self._other(f"{module}.{alias.name}".lstrip("."), node.level)
            self._bind(alias.asname or alias.name, to)
            if to is None and self._file(module, node.level) is None and "dali" in f"{module}.{alias.name}".lower():
                self._remark(
                    "unseen",
                    f"what {alias.name} of {'.' * node.level}{module} is: the module is not found beside the file",
                    node,
                )

    def _file(self, module: str, level: int) -> pathlib.Path | None:
        """The file of another module of the script."""
        parts = module.split(".") if module else []
        folder = self._path.absolute().parent
        folders = [[folder, *folder.parents][level - 1]] if level else [folder, *folder.parents][:8]
        for base in folders:
            for path in (
                base.joinpath(*parts).with_suffix(".py") if parts else None,
                base.joinpath(*parts, "__init__.py"),
            ):
                if path is not None and path.is_file():
                    return path
        return None

    def _other(self, module: str, level: int) -> _Group | None:
        """The variables of another module of the script."""
        path = self._file(module, level)
        if path is None or self._depth > 5:
            return None
        if path not in self._seen:
            self._seen[path] = _Scope()  # empty while it is being read
            with contextlib.suppress(OSError, ValueError, SyntaxError):
                data = path.read_bytes()
                if b"dali" in data.lower():
                    reader = _Reader(path, str, self._seen)
                    reader._depth = self._depth + 1
                    for statement in _parse(data.decode("utf-8-sig")).body:
                        reader.visit(statement)
                    self._seen[path] = reader.module
        known = {k: v for k, v in self._seen[path].items() if v is not None}
        return _Group(known) if known else None

    # --- statements

    def visit_Assign(self, node: ast.Assign):
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, self._resolve(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign):
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
        self._assign(node.target, self._resolve(node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr):
        self.visit(node.value)
        self._assign(node.target, self._resolve(node.value))

    def _assign(self, target: ast.expr, to: _Bound | None):
        match target:
            case ast.Name(id=name):
                self._bind(name, to)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for i, each in enumerate(targets):
                    of = to.items.get(i) if isinstance(to, _Group) else to if isinstance(to, _Made) else None
                    self._assign(each.value if isinstance(each, ast.Starred) else each, of)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if (scope := self._class()) is not None:
                if to is not None or f"@{name}" not in scope:
                    scope[f"@{name}"] = to
            case ast.Attribute() | ast.Subscript():
                self.visit(target.value)
                if to is not None or self._bound(ast.unparse(target)) is not None:
                    self._bind(ast.unparse(target), to)
            case _:
                self.visit(target)

    def visit_For(self, node: ast.For | ast.AsyncFor):
        self.visit(node.iter)
        self._assign(node.target, None)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    visit_AsyncFor = visit_For

    def visit_withitem(self, node: ast.withitem):
        self.visit(node.context_expr)
        if node.optional_vars is not None:
            self._assign(node.optional_vars, self._resolve(node.context_expr))

    def visit_If(self, node: ast.If):
        self.visit(node.test)
        self._either(node.body, [node.orelse])

    def visit_Try(self, node: ast.Try):
        self._either([*node.body, *node.orelse], [h.body for h in node.handlers])
        for statement in node.finalbody:
            self.visit(statement)

    def _either(self, body: Sequence[ast.stmt], others: Sequence[Sequence[ast.stmt]]):
        """Merges alternative paths: what is DALI's on one path stays so, even if another path sets something else."""
        scope = self._scopes[-1]
        known = dict(scope)
        for statement in body:
            self.visit(statement)
        ends = [dict(scope)]
        for other in others:
            scope.clear()
            scope.update(known)
            for statement in other:
                self.visit(statement)
            ends.append(dict(scope))
        for end in reversed(ends):
            scope.update({k: v for k, v in end.items() if v is not None or scope.get(k) is None})

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef):
        a = node.args
        names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None]
        to: _Bound = _Function(node, self, list(self._scopes))
        for decorator in node.decorator_list:
            self.visit(decorator)
            by = self._resolve(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if isinstance(by, _Name) and by.name.rpartition(".")[2] in _MAKERS:
                to = _Definition(by.name.rpartition(".")[2], frozenset(names))
        parameters: dict[str, _Bound | None] = dict.fromkeys(names)
        for x, default in (
            *zip(reversed([*a.posonlyargs, *a.args]), reversed(a.defaults)),
            *zip(a.kwonlyargs, a.kw_defaults),
        ):
            if default is not None:
                self.visit(default)
                parameters[x.arg] = self._resolve(default) if isinstance(default, (ast.Name, ast.Attribute)) else None
        for annotation in (*(x.annotation for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)), node.returns):
            if annotation is not None:
                self.visit(annotation)
        self._bind(node.name, to)
        self._later.append(([*self._scopes, _Scope(parameters)], node.body))

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_Lambda(self, node: ast.Lambda):
        self._scopes.append(_Scope(dict.fromkeys(x.arg for x in node.args.args)))
        self.visit(node.body)
        self._scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef):
        for x in (*node.bases, *node.keywords, *node.decorator_list):
            self.visit(x)
        bases = [of.name for of in map(self._resolve, node.bases) if isinstance(of, _Name)]
        self._bind(node.name, None)
        with contextlib.suppress(Missing):
            if bases and _is_pipeline(look_up(bases[0])):
                self._pipelines.add(node.name)
        self._scopes = [*self._scopes, _Scope(base=bases[0] if bases else "")]
        for statement in node.body:
            self.visit(statement)
        self._scopes = self._scopes[:-1]

    # --- uses

    def visit_Name(self, node: ast.Name):
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id, None)
        elif isinstance(to := self._bound(node.id), _Name) and to.name != "nvidia":
            self._record(to.name, node)

    def visit_Attribute(self, node: ast.Attribute):
        to = self._resolve(node)
        if not isinstance(to, _Name):
            self.visit(node.value)
            return
        # Attributes of an object are checked where it is made: see `visit_Call`
        if isinstance(self._resolve(node.value), _Object):
            self.visit(node.value)
            return
        self._record(to.name, node)

    def visit_Call(self, node: ast.Call):
        self.visit(node.func)
        function = ast.unparse(node.func)
        to = self._resolve(node.func)
        if (
            isinstance(to, _Name)
            and isinstance(node.func, ast.Attribute)
            and isinstance(self._resolve(node.func.value), _Object)
        ):
            self._record(to.name, node.func)
        self._device_of_rank(node, to)
        if isinstance(to, (_Name, _Object, _Definition)):
            self._arguments(node, to)
            self._places(node, to)
        elif isinstance(to, _Function) and not isinstance(to.node, ast.Lambda):
            self._enter(to, node)
        else:
            self._out_of_sight(node, function)
        if (module := _imported(node, function)) is not None:
            self._record(module.removeprefix(DALI).lstrip("."), node)
        for x in (*node.args, *node.keywords):
            self.visit(x)

    def _enter(self, to: _Function, node: ast.Call):
        """Records the uses in a function of the script that is called with names of DALI."""
        given = {k: v for k, v in self._parameters(to, node).items() if v is not None}
        key = (id(to.node), frozenset((k, v) for k, v in given.items() if isinstance(v, _Name)))
        if (
            given
            and to.reader is self
            and key not in self._entered
            and isinstance(to.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ):
            self._entered.add(key)
            self._later.append(([*to.scopes, _Scope(self._parameters(to, node))], to.node.body))

    def _out_of_sight(self, node: ast.Call, function: str):
        """Adds remarks on calls of other libraries that get objects of DALI."""
        given = [self._resolve(x.value if isinstance(x, ast.Starred) else x) for x in node.args]
        given += [self._resolve(k.value) for k in node.keywords]
        first = given[0] if given else None
        if function == "getattr" and isinstance(first, (_Name, _Object)) and not isinstance(node.args[1], ast.Constant):
            name = f"nvidia.dali.{first.name}".rstrip(".")
            self._remark(
                "unseen", f"which attribute of {name} getattr takes: the name is made while the script runs", node
            )
        elif function in ("exec", "eval") and any("dali" in text for text in _strings(node)):
            self._remark("unseen", f"what the code that {function} gets uses", node)
        elif (
            "import" in function
            and any(text.startswith(DALI) for text in _strings(node))
            and _imported(node, function) is None
        ):
            self._remark(
                "unseen", f"which module of {DALI} {function} imports: its name is made while the script runs", node
            )
        elif function not in (
            "getattr",
            "hasattr",
            "isinstance",
            "print",
            "dir",
            "help",
            "vars",
            "setattr",
            "str",
            "repr",
            "id",
            "type",
        ):
            for x in given:
                if isinstance(x, _Name) and x.name != "nvidia" and _is_module(x.name):
                    self._remark(
                        "unseen", f"what {function} uses of {DALI}{'.' * bool(x.name)}{x.name}, which it is given", node
                    )

    def visit_Subscript(self, node: ast.Subscript):
        match node.value:
            case ast.Attribute(value=of, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[of]):
                of = self._resolve(of)
            case _:
                of = None
        if isinstance(of, _Name):
            self._remark(
                "unseen", f"which attribute of {DALI}.{of.name} is taken: by a subscript of its dictionary", node
            )
        self.generic_visit(node)

    def _arguments(self, node: ast.Call, to: _Name | _Object | _Definition):
        takes = None
        if isinstance(to, _Definition):
            name, takes = to.maker, pipeline_keywords() | to.own
        else:
            name = to.name
            with contextlib.suppress(Missing):
                takes = keywords(look_up(to.name))
        if takes is None:
            return
        for k in node.keywords:
            if k.arg is None:
                known = self._resolve(k.value)
                if isinstance(k.value, ast.Dict):
                    for key in k.value.keys:
                        if isinstance(key, ast.Constant) and key.value not in takes:
                            self._use(f"{name}({key.value}=)", key, works=False)
                elif known is None:
                    self._remark(
                        "unseen", f"which arguments {name} gets: they are in **{ast.unparse(k.value)}", k.value
                    )
            elif k.arg not in takes:
                self._use(f"{name}({k.arg}=)", k.value, works=False)

    def _device_of_rank(self, node: ast.Call, to: _Bound | None):
        """Adds a remark where a pipeline runs on the GPU with the number of its process."""
        is_class = isinstance(node.func, ast.Name) and node.func.id in self._pipelines
        if isinstance(to, _Name):
            with contextlib.suppress(Missing):
                is_class = _is_pipeline(look_up(to.name))
        if not is_class and not isinstance(to, (_Definition, _Function)):
            return
        values = [k.value for k in node.keywords if k.arg == "device_id"]
        values += node.args[2:3] if is_class else []  # of `Pipeline`, and as most classes of pipelines have it
        for value in values:
            if re.search(
                r"(?<![a-z])(local)?rank(?![a-z])|current_device", expression := ast.unparse(value), re.IGNORECASE
            ):
                self._remark("ranks", f"device_id is {expression}", value)

    def _places(self, node: ast.Call, to: _Name | _Object | _Definition):
        """Adds remarks on values that a program makes and the host needs."""
        if isinstance(to, _Definition):
            return
        operator = ""
        with contextlib.suppress(Missing):
            operator = operator_of(look_up(to.name))
        if not operator:
            return
        if operator == "readers.numpy" and any(
            k.arg == "device" and ast.unparse(k.value) in ("'gpu'", '"gpu"') for k in node.keywords
        ):
            self._remark(
                "hints", "the files are read by the host, and the arrays copied: GPU Direct Storage is not used", node
            )
        for x, argument in (
            *((a, "") for a in node.args),
            *((k.value, k.arg) for k in node.keywords if k.arg is not None),
        ):
            made = self._resolve(x)
            if isinstance(made, _Made) and made.place == "program" and host_reads(operator, bool(argument)):
                what = f"on the host, {operator} needs" + (f" for {argument}=" if argument else "")
                self._remark(
                    "hints",
                    f"{what} what {made.operator} (line {made.line}) makes in the compiled program: a round trip in each batch",
                    x,
                )


def _group(items: dict[Any, _Bound | None]) -> _Group | None:
    return _Group(items) if any(items.values()) else None


def _name(module: str) -> _Name:
    return _Name(module.removeprefix(DALI).lstrip("."))


def _strings(node: ast.Call) -> Iterator[str]:
    """The strings among the arguments of a call. For a composed string, its beginning."""
    for x in (*node.args, *(k.value for k in node.keywords)):
        while isinstance(x, (ast.BinOp, ast.JoinedStr)):
            x = x.left if isinstance(x, ast.BinOp) else x.values[0] if x.values else None
        if isinstance(x, ast.Constant) and isinstance(x.value, str):
            yield x.value


def _imported(node: ast.Call, function: str) -> str | None:
    """The module of DALI that a call imports by name, whatever function does it: ``lazy_import("nvidia.dali")``."""
    if not any(word in function.lower() for word in ("import", "lazy")):
        return None
    for x in node.args:
        if (
            isinstance(x, ast.Constant)
            and isinstance(x.value, str)
            and (x.value == DALI or x.value.startswith(f"{DALI}."))
        ):
            if function == "__import__" and len(node.args) < 4 and not any(k.arg == "fromlist" for k in node.keywords):
                return None  # the call returns `nvidia`
            return x.value
    return None


def _is_pipeline(x: Any) -> bool:
    return isinstance(x, type) and issubclass(x, jaxdali.Pipeline)


@functools.cache
def _is_module(name: str) -> bool:
    with contextlib.suppress(Missing):
        return not name or isinstance(look_up(name), types.ModuleType)
    return False


def _joined(of: str, name: str) -> str:
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


def source(path: pathlib.Path) -> tuple[str, Callable[[int], str]]:
    """The Python code of a file or notebook, and a function that names its lines."""
    data = path.read_bytes()
    if path.suffix != ".ipynb":
        return data.decode("utf-8-sig"), str
    text, lines = "", []
    for number, cell in enumerate(json.loads(data)["cells"], 1):
        if cell["cell_type"] == "code":
            code = _python("".join(cell["source"]))
            text += code
            lines += [f"cell {number}, line {k}" for k in range(1, code.count("\n") + 1)]
    return text, lambda line: lines[line - 1]


def read(path: pathlib.Path) -> Reading:
    """The uses of DALI in a file. Raises OSError or ValueError if the file can't be read (a SyntaxError becomes a
    ValueError).
    """
    if b"dali" not in path.read_bytes().lower():
        return Reading()
    text, line = source(path)
    reader = _Reader(path, line, {})
    reader.read(_parse(text))
    return reader.reading


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the script, such as invalid escapes
        return ast.parse(text)


def _python(cell: str) -> str:
    """The code of a notebook's cell, with lines of magics blanked out."""
    lines = cell.split("\n")
    if lines[0].startswith("%%") and not lines[0].startswith(("%%time", "%%capture")):
        lines = [""] * len(lines)
    magic = [line.lstrip().startswith(("%", "!", "?")) for line in lines]
    return (
        "\n".join(line[: len(line) - len(line.lstrip())] + "pass" if m else line for line, m in zip(lines, magic))
        + "\n"
    )
