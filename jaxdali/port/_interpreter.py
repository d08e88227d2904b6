"""Follows names of DALI through a script, which does not run: through variables, attributes, tuples, dicts, functions
that return them, and other files in the script's folders. Later uses of objects, such as attributes of batches, are not
analysed.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import pathlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jaxdali

from ._findings import Remark, Use
from ._names import MissingName, look_up, operator_of, side
from ._scripts import module_file, parse

DALI = "nvidia.dali"
_DECORATORS = ("pipeline_def", "_pipeline_def_experimental", "data_iterator", "peekable_data_iterator")


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
        except MissingName:
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
            return DaliObject("Pipeline") if "pipeline_def" in function_value.decorator else None
        if isinstance(function_value, ScriptFunction):
            return self._function_result(function_value, node)
        if isinstance(function_value, (DaliName, DaliObject)):
            with contextlib.suppress(MissingName):
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
            with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError):
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
        with contextlib.suppress(MissingName):
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


def _dotted(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name
