"""Finds a script's uses of DALI by reading it. Nothing in the script runs.

A use works if this package has the name; keyword arguments are compared with the signature in this package. Later uses
of objects, such as attributes of batches, are not analysed. Names of DALI are followed through variables, attributes,
tuples, dicts, functions that return them, and other files in the script's folders. Places where they can't be followed
are reported.
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
_SKIPPED_FOLDERS = {".git", ".venv", "__pycache__", "node_modules", "site-packages"}
_DECORATORS = ("pipeline_def", "data_iterator", "peekable_data_iterator")


@dataclasses.dataclass(frozen=True)
class Use:
    """A use of a name or argument of DALI in a file.

    Attributes:
      line: its number, or in a notebook the cell and the line in it.
      works: whether jaxdali has the name.
    """

    name: str
    file: str
    line: str
    works: bool


@dataclasses.dataclass(frozen=True)
class Remark:
    """A remark on a line: its uses are unknown, or it is slow.

    Attributes:
      line: its number, or in a notebook the cell and the line in it.
    """

    text: str
    file: str
    line: str


@dataclasses.dataclass
class Reading:
    """The findings in a file.

    Attributes:
      uses: of DALI's names and arguments.
      unseen: lines where uses of DALI's names are unknown, with reasons.
      hints: lines where the host waits for a program in each batch.
      ranks: lines where a pipeline runs on the GPU with the number of its process.
      shapes: lines of PyTorch iterators without `dynamic_shape`, in a file that pads each batch to its longest sample.
      fills: lines of PyTorch iterators with a reader's name and the policy FILL, the default.
    """

    uses: list[Use] = dataclasses.field(default_factory=list)
    unseen: list[Remark] = dataclasses.field(default_factory=list)
    hints: list[Remark] = dataclasses.field(default_factory=list)
    ranks: list[Remark] = dataclasses.field(default_factory=list)
    shapes: list[Remark] = dataclasses.field(default_factory=list)
    fills: list[Remark] = dataclasses.field(default_factory=list)


# PyTorch's iterators, with the place of `reader_name` among their arguments.
_TORCH_ITERATORS = {"DALIClassificationIterator": 2, "DALIGenericIterator": 3, "DALIRaggedIterator": 3}


# --- values of the script's variables
# -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DaliName:
    """A name of DALI, without ``nvidia.dali.``.

    "" stands for ``nvidia.dali`` itself, and "nvidia" for the enclosing package.
    """

    name: str


@dataclasses.dataclass(frozen=True)
class DaliObject:
    """An object of a class in DALI."""

    name: str


@dataclasses.dataclass(frozen=True)
class ScriptDefinition:
    """A function of the script that is decorated as a definition, with the names of its parameters."""

    decorator: str
    parameters: frozenset[str]


@dataclasses.dataclass(frozen=True)
class OperatorOutput:
    """The output of an operator at a line. `place`: "host", "program", or "" if it is uncertain."""

    operator: str
    place: str
    line: str


@dataclasses.dataclass(frozen=True)
class ValueGroup:
    """A tuple, dict or namespace in the script, or another module of it.

    Attributes:
      items: by index, key or name; None: the value is not from DALI.
    """

    items: Mapping[Any, ScriptValue | None]


@dataclasses.dataclass(frozen=True, eq=False)
class ScriptFunction:
    """A function of the script.

    Attributes:
      reader: the interpreter of the file that has it.
      scopes: around it, the module's first.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    reader: Interpreter
    scopes: list[ScriptScope]


ScriptValue: TypeAlias = DaliName | DaliObject | ScriptDefinition | OperatorOutput | ValueGroup | ScriptFunction


class ScriptScope(dict[str, "ScriptValue | None"]):
    """The variables of a module, class or function. A class also has the attributes that its methods set, with an ``@``
    before the name.
    """

    def __init__(self, items: Mapping[str, ScriptValue | None] | None = None, base: str | None = None):
        super().__init__(items or {})
        self.base = base  # of a class: DALI's name of its base, or ""
        self.of_module: set[str] = set()  # names that are declared `global`


class Interpreter(ast.NodeVisitor):
    """Follows names of DALI through the variables of one file. Collects the uses in its imports.

    Args:
      path: of the file.
      line: gives the text for a line's number: the number itself, or in a notebook the cell and the line in it.
      scopes_of_files: the variables of other files that were read, by path.
    """

    def __init__(
        self, path: pathlib.Path, line: Callable[[int], str], scopes_of_files: dict[pathlib.Path, ScriptScope]
    ):
        # Each with its line's number, as bodies of functions are visited last. Remarks are by field of `Reading`.
        self._uses: list[tuple[int, Use]] = []
        self._remarks: dict[str, list[tuple[int, Remark]]] = {
            kind: [] for kind in ("unseen", "hints", "ranks", "shapes", "fills")
        }
        self._path, self._line = path, line
        self._scopes_of_files = scopes_of_files
        self.module = ScriptScope()
        self._scopes = [self.module]  # around the visited code, the innermost last
        # Bodies of functions are visited last, because they see the module's final variables.
        self._deferred_bodies: list[tuple[list[ScriptScope], Sequence[ast.AST]]] = []
        self._returns: list[ScriptValue] = []  # the values from DALI in `return` statements so far
        self._depth = 0  # of calls and imports that are followed
        self._pipeline_classes: set[str] = set()  # names of the script's classes of pipelines

    def _add_use(self, name: str, node: ast.AST, works: bool = True):
        number = getattr(node, "lineno", 1)
        self._uses.append((number, Use(name, str(self._path), self._line(number), works)))

    def _add_remark(self, kind: str, text: str, node: ast.AST):
        number = getattr(node, "lineno", 1)
        self._remarks[kind].append((number, Remark(text, str(self._path), self._line(number))))

    def _record_use(self, name: str, node: ast.AST) -> Any:
        """Records a use of `name`, unless it is a module that exists.

        Returns the object; None: jaxdali lacks it, or it belongs to a plugin whose framework is not installed.
        """
        if not name:
            return jaxdali
        try:
            x = look_up(name)
        except Missing:
            self._add_use(name, node, works=False)
            return None
        if not isinstance(x, types.ModuleType):
            self._add_use(name, node)
        return x

    # --- values of variables

    def _bind(self, name: str, value: ScriptValue | None):
        """Sets a variable of the current scope, or of the module if it is declared `global`."""
        scope = self._scopes[-1]
        (self.module if name in scope.of_module else scope)[name] = value

    def _lookup(self, name: str) -> ScriptValue | None:
        """The value of a variable in the innermost scope that has it; None: it is unknown, or not from DALI."""
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _class_scope(self) -> ScriptScope | None:
        """The scope of the innermost class; None: the code is in none."""
        return next((scope for scope in reversed(self._scopes) if scope.base is not None), None)

    def _self_attribute(self, name: str) -> ScriptValue | None:
        """An attribute of the object whose method this is."""
        scope = self._class_scope()
        return None if scope is None else scope.get(f"@{name}") or scope.get(name)

    def _resolve(self, node: ast.AST | None) -> ScriptValue | None:
        """The value of an expression; None: it is not from DALI."""
        match node:
            case ast.Name(id=name):
                return self._lookup(name)
            case ast.Attribute():
                return self._resolve_attribute(node)
            case ast.Subscript(value=value, slice=index):
                parent = self._resolve(value)
                if isinstance(parent, ValueGroup) and isinstance(index, ast.Constant):
                    return parent.items.get(index.value)
                # Scopes also have entries for expressions such as ``a.b[c]``, see `_assign`.
                return parent if isinstance(parent, OperatorOutput) else self._lookup(ast.unparse(node))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return _group(dict(enumerate(map(self._resolve, elements))))
            case ast.Dict(keys=keys, values=values):
                return _group({k.value: self._resolve(v) for k, v in zip(keys, values) if isinstance(k, ast.Constant)})
            case ast.IfExp(body=body, orelse=orelse):
                return self._resolve(body) or self._resolve(orelse)
            case ast.BoolOp(values=values):
                return next(filter(None, map(self._resolve, values)), None)
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self._resolve(value)
            case ast.BinOp(left=left, right=right):
                # Arithmetic with an output of a program runs in the program; of other values the side is uncertain.
                return next(
                    (
                        x
                        for x in map(self._resolve, (left, right))
                        if isinstance(x, OperatorOutput) and x.place == "program"
                    ),
                    None,
                )
            case ast.Lambda():
                return ScriptFunction(node, self, list(self._scopes))
            case ast.Call():
                return self._resolve_call(node)
        return None

    def _resolve_attribute(self, node: ast.Attribute) -> ScriptValue | None:
        """The value of an attribute: of `self`, of a variable such as ``config.fn``, of a group, or of a name of DALI."""
        if (
            isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls")
            and (attribute := self._self_attribute(node.attr)) is not None
        ):
            return attribute
        if (variable := self._lookup(ast.unparse(node))) is not None:
            return variable
        parent = self._resolve(node.value)
        if isinstance(parent, ValueGroup):
            return parent.items.get(node.attr)
        if isinstance(parent, DaliName) and parent.name == "nvidia":
            return DaliName("") if node.attr == "dali" else None
        return DaliName(_dotted(parent.name, node.attr)) if isinstance(parent, (DaliName, DaliObject)) else None

    def _resolve_call(self, node: ast.Call) -> ScriptValue | None:
        """The result of a call; None: it is not from DALI."""
        function = ast.unparse(node.func)
        if function == "super":  # an object of the class's base in DALI
            scope = self._class_scope()
            return DaliObject(scope.base) if scope is not None and scope.base else None
        if (module := imported_module(node, function)) is not None:
            return _name_of_module(module)
        # With a constant name, `getattr` is an attribute.
        if function == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            return self._resolve(
                ast.copy_location(ast.Attribute(node.args[0], str(node.args[1].value), ast.Load()), node)
            )
        if function.rpartition(".")[2] in ("dict", "SimpleNamespace", "Namespace", "namedtuple"):
            return _group({k.arg: self._resolve(k.value) for k in node.keywords if k.arg is not None})
        if isinstance(node.func, ast.Attribute) and isinstance(x := self._resolve(node.func.value), OperatorOutput):
            return x  # x.gpu()
        function_value = self._resolve(node.func)
        if isinstance(function_value, ScriptDefinition):
            return DaliObject("Pipeline") if function_value.decorator == "pipeline_def" else None
        if isinstance(function_value, ScriptFunction):
            return self._function_result(function_value, node)
        if isinstance(function_value, (DaliName, DaliObject)):
            with contextlib.suppress(Missing):
                x = look_up(function_value.name)
                if isinstance(x, type) and isinstance(function_value, DaliName):
                    return DaliObject(function_value.name)
                return self._output_of(node, x)
        return None

    def _output_of(self, node: ast.Call, x: Any) -> OperatorOutput | None:
        """The output of a call of `x`; None: `x` is no operator."""
        operator = operator_of(x)
        if not operator:
            return None
        place = side(operator)
        if place == "either":
            inputs = [self._resolve(a) for a in node.args]
            place = (
                "program"
                if any(
                    isinstance(input_value, OperatorOutput) and input_value.place == "program" for input_value in inputs
                )
                else ""
            )
        return OperatorOutput(operator, place, self._line(node.lineno))

    def _function_result(self, function: ScriptFunction, call: ast.Call) -> ScriptValue | None:
        """The result of a function of the script: the value of its first `return` with a value from DALI; None: it has
        no such `return`.
        """
        if self._depth > 5:  # perhaps a recursion
            return None
        # Another interpreter visits the body for its `return` statements.
        silent = Interpreter(function.reader._path, function.reader._line, self._scopes_of_files)
        silent.module, silent._depth = function.reader.module, self._depth + 1
        parameters = self._parameters(function, call) if call is not None else {}
        silent._scopes = [*function.scopes, ScriptScope(parameters)]
        if isinstance(function.node, ast.Lambda):
            return silent._resolve(function.node.body)
        for statement in function.node.body:
            silent.visit(statement)
        return next(iter(silent._returns), None)

    def _parameters(self, function: ScriptFunction, call: ast.Call) -> dict[str, ScriptValue | None]:
        """The values of a function's parameters in a call; None: an argument is not a name of DALI or a group of them."""
        arguments = function.node.args
        names = [x.arg for x in (*arguments.posonlyargs, *arguments.args)]
        if names[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute):
            names = names[1:]
        values: dict[str, ScriptValue | None] = dict.fromkeys(
            x.arg for x in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        )
        for name, x in (*zip(names, call.args), *((k.arg, k.value) for k in call.keywords)):
            value = self._resolve(x)
            if name in values and isinstance(value, (DaliName, ValueGroup)):
                values[name] = value
        return values

    def visit_Return(self, node: ast.Return):
        self.generic_visit(node)
        if (x := self._resolve(node.value)) is not None:
            self._returns.append(x)

    def visit_Global(self, node: ast.Global):
        self._scopes[-1].of_module.update(node.names)

    # --- imports

    def visit_Import(self, node: ast.Import):
        """Binds names of DALI, and variables of other modules of the script."""
        for alias in node.names:
            if alias.name == DALI or alias.name.startswith(f"{DALI}."):
                self._record_use(alias.name.removeprefix(DALI).lstrip("."), node)
                if alias.asname:
                    self._bind(alias.asname, _name_of_module(alias.name))
                else:
                    self._bind("nvidia", DaliName("nvidia"))
            elif alias.asname or "." not in alias.name:
                self._bind(alias.asname or alias.name, self._read_module(alias.name, 0))

    def visit_ImportFrom(self, node: ast.ImportFrom):
        """Binds names that are imported from DALI, or from another module of the script, and records those of DALI."""
        module = node.module or ""
        if node.level or not (module == "nvidia" or module == DALI or module.startswith(f"{DALI}.")):
            self._import_other(node, module)
            return
        for alias in node.names:
            if module == "nvidia":
                if alias.name == "dali":
                    self._bind(alias.asname or "dali", DaliName(""))
                continue
            dali_module = module.removeprefix(DALI).lstrip(".")
            if alias.name == "*":
                for name in dir(self._record_use(dali_module, node)):
                    if not name.startswith("_"):
                        self._bind(name, DaliName(_dotted(dali_module, name)))
            else:
                self._record_use(_dotted(dali_module, alias.name), node)
                self._bind(alias.asname or alias.name, DaliName(_dotted(dali_module, alias.name)))

    def _import_other(self, node: ast.ImportFrom, module: str):
        """Binds names that are imported from another module of the script."""
        group = self._read_module(module, node.level)
        for alias in node.names:
            if alias.name == "*":
                if group is not None:
                    self._scopes[-1].update({k: v for k, v in group.items.items() if v is not None})
                continue
            value = group.items.get(alias.name) if group is not None else None
            if value is None:
                value = self._read_module(f"{module}.{alias.name}".lstrip("."), node.level)
            self._bind(alias.asname or alias.name, value)
            # A module that is not found may pass on names of DALI. Only one with "dali" in its name is suspected.
            if (
                value is None
                and module.partition(".")[0] != "jaxdali"  # what the script is ported to
                and module_file(self._path, module, node.level) is None
                and "dali" in f"{module}.{alias.name}".lower()
            ):
                self._add_remark(
                    "unseen",
                    f"what {alias.name} of {'.' * node.level}{module} is: the module is not found beside the file",
                    node,
                )

    def _read_module(self, module: str, level: int) -> ValueGroup | None:
        """Reads another module of the script. Returns its variables that are from DALI; None: there are none.

        Args:
          level: the number of dots of a relative import.
        """
        path = module_file(self._path, module, level)
        if path is None or self._depth > 5:
            return None
        if path not in self._scopes_of_files:
            self._scopes_of_files[path] = ScriptScope()  # empty while it is being read
            with contextlib.suppress(OSError, ValueError, SyntaxError):
                data = path.read_bytes()
                if b"dali" in data.lower():
                    reader = Interpreter(path, str, self._scopes_of_files)
                    reader._depth = self._depth + 1
                    for statement in parse(data.decode("utf-8-sig")).body:
                        reader.visit(statement)
                    self._scopes_of_files[path] = reader.module
        dali_values = {name: value for name, value in self._scopes_of_files[path].items() if value is not None}
        return ValueGroup(dali_values) if dali_values else None

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

    def _assign(self, target: ast.expr, value: ScriptValue | None):
        """Assigns a value to a target: a variable, several, an attribute of `self`, or an expression such as
        ``a.b[c]``.
        """
        match target:
            case ast.Name(id=name):
                self._bind(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for i, element in enumerate(targets):
                    element_value = (
                        value.items.get(i)
                        if isinstance(value, ValueGroup)
                        else value
                        if isinstance(value, OperatorOutput)
                        else None
                    )
                    self._assign(element.value if isinstance(element, ast.Starred) else element, element_value)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if (
                scope := self._class_scope()
            ) is not None:
                # A value from DALI, which another method has set, stays if this one is not from DALI.
                if value is not None or f"@{name}" not in scope:
                    scope[f"@{name}"] = value
            case ast.Attribute() | ast.Subscript():
                self.visit(target.value)
                if value is not None or self._lookup(ast.unparse(target)) is not None:
                    self._bind(ast.unparse(target), value)
            case _:
                self.visit(target)

    def visit_For(self, node: ast.For | ast.AsyncFor):
        self.visit(node.iter)
        self._assign(node.target, value=None)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    visit_AsyncFor = visit_For

    def visit_withitem(self, node: ast.withitem):
        self.visit(node.context_expr)
        if node.optional_vars is not None:
            self._assign(node.optional_vars, self._resolve(node.context_expr))

    def visit_If(self, node: ast.If):
        self.visit(node.test)
        self._visit_alternatives(node.body, [node.orelse])

    def visit_Try(self, node: ast.Try):
        self._visit_alternatives([*node.body, *node.orelse], [h.body for h in node.handlers])
        for statement in node.finalbody:
            self.visit(statement)

    def _visit_alternatives(self, body: Sequence[ast.stmt], others: Sequence[Sequence[ast.stmt]]):
        """Visits alternative paths, and merges their variables: a value from DALI on one path has precedence."""
        scope = self._scopes[-1]
        scope_before = dict(scope)
        for statement in body:
            self.visit(statement)
        scopes_after = [dict(scope)]
        for statements in others:
            scope.clear()
            scope.update(scope_before)
            for statement in statements:
                self.visit(statement)
            scopes_after.append(dict(scope))
        # None: the value is not from DALI. In reversed order, so that of two values from DALI that of the first path wins.
        for scope_after in reversed(scopes_after):
            scope.update(
                {name: value for name, value in scope_after.items() if value is not None or scope.get(name) is None}
            )

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef):
        """Binds the name of a function, or of a definition if it is decorated as one. Its body is visited later."""
        arguments = node.args
        names = [
            x.arg
            for x in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
            if x is not None
        ]
        value: ScriptValue = ScriptFunction(node, self, list(self._scopes))
        for decorator in node.decorator_list:
            self.visit(decorator)
            decorator_value = self._resolve(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if isinstance(decorator_value, DaliName) and decorator_value.name.rpartition(".")[2] in _DECORATORS:
                value = ScriptDefinition(decorator_value.name.rpartition(".")[2], frozenset(names))
        parameters: dict[str, ScriptValue | None] = dict.fromkeys(names)
        # Defaults of positional parameters belong to the last of them.
        for x, default in (
            *zip(reversed([*arguments.posonlyargs, *arguments.args]), reversed(arguments.defaults)),
            *zip(arguments.kwonlyargs, arguments.kw_defaults),
        ):
            if default is not None:
                self.visit(default)
                parameters[x.arg] = self._resolve(default) if isinstance(default, (ast.Name, ast.Attribute)) else None
        for annotation in (
            *(x.annotation for x in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)),
            node.returns,
        ):
            if annotation is not None:
                self.visit(annotation)
        self._bind(node.name, value)
        self._deferred_bodies.append(([*self._scopes, ScriptScope(parameters)], node.body))

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_Lambda(self, node: ast.Lambda):
        self._scopes.append(ScriptScope(dict.fromkeys(x.arg for x in node.args.args)))
        self.visit(node.body)
        self._scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef):
        """Visits a class, in a scope that has the name of its first base in DALI."""
        for x in (*node.bases, *node.keywords, *node.decorator_list):
            self.visit(x)
        bases = [base.name for base in map(self._resolve, node.bases) if isinstance(base, DaliName)]
        self._bind(node.name, value=None)
        with contextlib.suppress(Missing):
            if bases and is_pipeline(look_up(bases[0])):
                self._pipeline_classes.add(node.name)
        self._scopes = [*self._scopes, ScriptScope(base=bases[0] if bases else "")]
        for statement in node.body:
            self.visit(statement)
        self._scopes = self._scopes[:-1]

    # --- variables

    def visit_Name(self, node: ast.Name):
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id, value=None)


def _group(items: dict[Any, ScriptValue | None]) -> ValueGroup | None:
    return ValueGroup(items) if any(items.values()) else None


def _name_of_module(module: str) -> DaliName:
    return DaliName(module.removeprefix(DALI).lstrip("."))


class _Reader(Interpreter):
    """Collects the uses of DALI in one file, and remarks on them."""

    def __init__(
        self, path: pathlib.Path, line: Callable[[int], str], scopes_of_files: dict[pathlib.Path, ScriptScope]
    ):
        super().__init__(path, line, scopes_of_files)
        # Calls of functions with names of DALI that are visited or will be: the id of the function's node, and its
        # arguments, (name, value) each.
        self._entered_calls: set[tuple[int, frozenset[tuple[str, Any]]]] = set()
        self._pads_to_longest = False  # whether a call of `pad` so far has no shape

    def read(self, tree: ast.Module):
        """Visits a whole file."""
        for statement in tree.body:
            self.visit(statement)
        for scopes, body in self._deferred_bodies:  # the list grows meanwhile
            self._scopes = scopes
            for statement in body:
                self.visit(statement)

    @property
    def reading(self) -> Reading:
        """The findings, in the order of lines."""

        def in_order(findings: Iterable[tuple[int, Any]]) -> list[Any]:
            return list(dict.fromkeys(x for _, x in sorted(findings, key=lambda item: item[0])))

        uses = [use for _, use in sorted(self._uses, key=lambda item: item[0])]
        # Without a use of DALI, the file's pipelines are not DALI's.
        ranks = in_order(self._remarks["ranks"]) if uses else []
        shapes = in_order(self._remarks["shapes"]) if self._pads_to_longest else []
        unseen, hints, fills = (in_order(self._remarks[kind]) for kind in ("unseen", "hints", "fills"))
        return Reading(uses, unseen, hints, ranks, shapes, fills)

    def visit_Name(self, node: ast.Name):
        """Records the use of a variable whose value is a name of DALI."""
        super().visit_Name(node)
        if (
            not isinstance(node.ctx, ast.Store)
            and isinstance(value := self._lookup(node.id), DaliName)
            and value.name != "nvidia"
        ):
            self._record_use(value.name, node)

    def visit_Attribute(self, node: ast.Attribute):
        """Records the use of an attribute of DALI's modules."""
        value = self._resolve(node)
        # Only the part before the dot may be a use.
        if not isinstance(value, DaliName):
            self.visit(node.value)
            return
        # Methods of an object are recorded where they are called: see `visit_Call`.
        if isinstance(self._resolve(node.value), DaliObject):
            self.visit(node.value)
            return
        self._record_use(value.name, node)

    def visit_Call(self, node: ast.Call):
        """Records the uses in a call: of a method, of arguments, and of a module that it imports."""
        self.visit(node.func)
        function = ast.unparse(node.func)
        callee = self._resolve(node.func)
        # A method of an object of DALI, which `visit_Attribute` leaves out.
        if (
            isinstance(callee, DaliName)
            and isinstance(node.func, ast.Attribute)
            and isinstance(self._resolve(node.func.value), DaliObject)
        ):
            self._record_use(callee.name, node.func)
        self._remark_ranks(node, callee)
        if isinstance(callee, (DaliName, DaliObject, ScriptDefinition)):
            self._check_arguments(node, callee)
            self._remark_round_trips(node, callee)
            self._remark_iterator(node, callee)
        elif isinstance(callee, ScriptFunction) and not isinstance(callee.node, ast.Lambda):
            self._defer_function(callee, node)
        else:
            self._remark_unseen(node, function)
        if (module := imported_module(node, function)) is not None:
            self._record_use(module.removeprefix(DALI).lstrip("."), node)
        for x in (*node.args, *node.keywords):
            self.visit(x)

    def _defer_function(self, callee: ScriptFunction, node: ast.Call):
        """Visits a function of the script later, with the arguments of a call, if some are from DALI."""
        dali_arguments = {
            name: argument for name, argument in self._parameters(callee, node).items() if argument is not None
        }
        # A body is visited once for each combination of names of DALI among the arguments.
        key = (
            id(callee.node),
            frozenset((name, argument) for name, argument in dali_arguments.items() if isinstance(argument, DaliName)),
        )
        if (
            dali_arguments
            and callee.reader is self
            and key not in self._entered_calls
            and isinstance(callee.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ):
            self._entered_calls.add(key)
            self._deferred_bodies.append(
                ([*callee.scopes, ScriptScope(self._parameters(callee, node))], callee.node.body)
            )

    def _remark_unseen(self, node: ast.Call, function: str):
        """Adds remarks on calls that use unknown names of DALI: by `getattr`, `exec`, or in other libraries."""
        values = [self._resolve(x.value if isinstance(x, ast.Starred) else x) for x in node.args]
        values += [self._resolve(k.value) for k in node.keywords]
        first_value = values[0] if values else None
        if (
            function == "getattr"
            and isinstance(first_value, (DaliName, DaliObject))
            and not isinstance(node.args[1], ast.Constant)
        ):
            name = f"nvidia.dali.{first_value.name}".rstrip(".")
            self._add_remark(
                "unseen", f"which attribute of {name} getattr takes: the name is made while the script runs", node
            )
        elif function in ("exec", "eval") and any("dali" in text for text in _strings(node)):
            self._add_remark("unseen", f"what the code that {function} gets uses", node)
        elif (
            "import" in function
            and any(text.startswith(DALI) for text in _strings(node))
            and imported_module(node, function) is None
        ):
            self._add_remark(
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
            for x in values:
                if isinstance(x, DaliName) and x.name != "nvidia" and _is_module(x.name):
                    self._add_remark(
                        "unseen", f"what {function} uses of {DALI}{'.' * bool(x.name)}{x.name}, which it is given", node
                    )

    def visit_Subscript(self, node: ast.Subscript):
        """Adds a remark for ``vars(fn)[name]`` and ``fn.__dict__[name]``."""
        match node.value:
            case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
                owner = self._resolve(owner)
            case _:
                owner = None
        if isinstance(owner, DaliName):
            self._add_remark(
                "unseen", f"which attribute of {DALI}.{owner.name} is taken: by a subscript of its dictionary", node
            )
        self.generic_visit(node)

    def _check_arguments(self, node: ast.Call, callee: DaliName | DaliObject | ScriptDefinition):
        """Records keyword arguments that jaxdali lacks. Adds a remark for ``**``, whose names are unknown."""
        keyword_names = None
        if isinstance(callee, ScriptDefinition):
            name, keyword_names = callee.decorator, pipeline_keywords() | callee.parameters
        else:
            name = callee.name
            with contextlib.suppress(Missing):
                keyword_names = keywords(look_up(callee.name))
        if keyword_names is None:
            return
        for keyword in node.keywords:
            if keyword.arg is None:
                dict_value = self._resolve(keyword.value)
                if isinstance(keyword.value, ast.Dict):
                    for key in keyword.value.keys:
                        if isinstance(key, ast.Constant) and key.value not in keyword_names:
                            self._add_use(f"{name}({key.value}=)", key, works=False)
                elif dict_value is None:
                    self._add_remark(
                        "unseen",
                        f"which arguments {name} gets: they are in **{ast.unparse(keyword.value)}",
                        keyword.value,
                    )
            elif keyword.arg not in keyword_names:
                self._add_use(f"{name}({keyword.arg}=)", keyword.value, works=False)

    def _remark_ranks(self, node: ast.Call, callee: ScriptValue | None):
        """Adds a remark where a pipeline runs on the GPU with the number of its process."""
        is_class = isinstance(node.func, ast.Name) and node.func.id in self._pipeline_classes
        if isinstance(callee, DaliName):
            with contextlib.suppress(Missing):
                is_class = is_pipeline(look_up(callee.name))
        if not is_class and not isinstance(callee, (ScriptDefinition, ScriptFunction)):
            return
        values = [k.value for k in node.keywords if k.arg == "device_id"]
        values += node.args[2:3] if is_class else []  # the third parameter of `Pipeline`, and of most of its subclasses
        # `rank` or `local_rank` as a word of its own, or `current_device`.
        for value in values:
            if re.search(
                r"(?<![a-z])(local)?rank(?![a-z])|current_device", expression := ast.unparse(value), re.IGNORECASE
            ):
                self._add_remark("ranks", f"device_id is {expression}", value)

    def _remark_iterator(self, node: ast.Call, callee: DaliName | DaliObject | ScriptDefinition):
        """Adds remarks for a PyTorch iterator: without `dynamic_shape`, or with a last batch that DALI fills. Notes a
        `pad` without a shape.
        """
        keyword_names = {k.arg for k in node.keywords}  # None: the names in a **dict are unknown
        match callee:
            case DaliName(name="fn.pad" | "ops.Pad"):
                self._pads_to_longest |= not keyword_names & {"shape", None}
            case DaliName(name=name) if (iterator := name.removeprefix("plugin.pytorch.")) in _TORCH_ITERATORS:
                if iterator != "DALIRaggedIterator" and not keyword_names & {"dynamic_shape", None}:
                    self._add_remark("shapes", iterator, node)
                arguments = {k.arg: ast.unparse(k.value) for k in node.keywords}
                place = _TORCH_ITERATORS[iterator]
                reader = (
                    ast.unparse(node.args[place]) if len(node.args) > place else arguments.get("reader_name", "None")
                )
                policies = [arguments.get("last_batch_policy", "FILL"), arguments.get("fill_last_batch", "True")]
                if (
                    reader != "None"
                    and None not in keyword_names
                    and policies[0].endswith("FILL")
                    and policies[1] == "True"
                ):
                    self._add_remark("fills", iterator, node)

    def _remark_round_trips(self, node: ast.Call, callee: DaliName | DaliObject | ScriptDefinition):
        """Adds remarks on values that are computed by a program and read by the host."""
        if isinstance(callee, ScriptDefinition):
            return
        operator = ""
        with contextlib.suppress(Missing):
            operator = operator_of(look_up(callee.name))
        if not operator:
            return
        if operator == "readers.numpy" and any(
            k.arg == "device" and ast.unparse(k.value) in ("'gpu'", '"gpu"') for k in node.keywords
        ):
            self._add_remark(
                "hints", "the files are read by the host, and the arrays copied: GPU Direct Storage is not used", node
            )
        for x, argument in (
            *((a, "") for a in node.args),
            *((k.value, k.arg) for k in node.keywords if k.arg is not None),
        ):
            output = self._resolve(x)
            if (
                isinstance(output, OperatorOutput)
                and output.place == "program"
                and host_reads(operator, bool(argument))
            ):
                text = f"on the host, {operator} needs" + (f" for {argument}=" if argument else "")
                self._add_remark(
                    "hints",
                    f"{text} what {output.operator} (line {output.line}) makes in the compiled program: a round trip in each batch",
                    x,
                )


def _strings(node: ast.Call) -> Iterator[str]:
    """Yields the strings among the arguments of a call; of a composed string, the beginning."""
    for x in (*node.args, *(k.value for k in node.keywords)):
        while isinstance(x, (ast.BinOp, ast.JoinedStr)):
            x = x.left if isinstance(x, ast.BinOp) else x.values[0] if x.values else None
        if isinstance(x, ast.Constant) and isinstance(x.value, str):
            yield x.value


def imported_module(node: ast.Call, function: str) -> str | None:
    """The module of DALI that a call imports by name, by any function with a name like ``lazy_import``; else None.

    Args:
      function: the code of the expression that is called.
    """
    if not any(word in function.lower() for word in ("import", "lazy")):
        return None
    for x in node.args:
        if (
            isinstance(x, ast.Constant)
            and isinstance(x.value, str)
            and (x.value == DALI or x.value.startswith(f"{DALI}."))
        ):
            # `fromlist` is the fourth argument.
            if function == "__import__" and len(node.args) < 4 and not any(k.arg == "fromlist" for k in node.keywords):
                return None  # the call returns `nvidia`
            return x.value
    return None


def is_pipeline(x: Any) -> bool:
    return isinstance(x, type) and issubclass(x, jaxdali.Pipeline)


@functools.cache
def _is_module(name: str) -> bool:
    with contextlib.suppress(Missing):
        return not name or isinstance(look_up(name), types.ModuleType)
    return False


def _dotted(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


# --- files ----------------------------------------------------------------------------------------------------------


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


def read(path: pathlib.Path) -> Reading:
    """Finds the uses of DALI in a file. Raises OSError or ValueError if the file can't be read (a SyntaxError becomes a
    ValueError).
    """
    if b"dali" not in path.read_bytes().lower():
        return Reading()
    text, line = source(path)
    reader = _Reader(path, line, {})
    reader.read(parse(text))
    return reader.reading


def module_file(script: pathlib.Path, module: str, level: int) -> pathlib.Path | None:
    """The file of another module of a script; None: there is none in the folders above.

    Args:
      script: the file of the script.
      level: the number of dots of a relative import; 0: absolute, so any folder above may be on the path.
    """
    parts = module.split(".") if module else []
    folder = script.absolute().parent
    # A relative import goes up a folder for each dot after the first. Others are searched for in 8 folders at most.
    folders = [[folder, *folder.parents][level - 1]] if level else [folder, *folder.parents][:8]
    for base in folders:
        for path in (
            base.joinpath(*parts).with_suffix(".py") if parts else None,
            base.joinpath(*parts, "__init__.py"),
        ):
            if path is not None and path.is_file():
                return path
    return None


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
