"""Finds a script's uses of DALI by reading it. Nothing in the script runs.

A use works if this package has the name; keyword arguments are compared with the signature in this package. Places
where names of DALI can't be followed are reported.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import pathlib
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._findings import Reading
from ._interpreter import (
    DALI,
    DaliName,
    DaliObject,
    Interpreter,
    OperatorOutput,
    ScriptDefinition,
    ScriptFunction,
    ScriptScope,
    ScriptValue,
    imported_module,
    is_pipeline,
)
from ._names import MissingName, devices, host_reads, keywords, look_up, operator_of, pipeline_keywords
from ._scripts import parse, source

# PyTorch's iterators, with the place of `reader_name` among their arguments.
_TORCH_ITERATORS = {"DALIClassificationIterator": 2, "DALIGenericIterator": 3, "DALIRaggedIterator": 3}


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
        """Records keyword arguments that jaxdali lacks, and devices of operators. Adds a remark for ``**``, whose names are unknown."""
        keyword_names = known_devices = None
        if isinstance(callee, ScriptDefinition):
            name, keyword_names = callee.decorator, pipeline_keywords() | callee.parameters
        else:
            name = callee.name
            with contextlib.suppress(MissingName):
                keyword_names, known_devices = keywords(look_up(callee.name)), devices(look_up(callee.name))
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
            elif keyword.arg == "device" and known_devices is not None and isinstance(keyword.value, ast.Constant):
                device = keyword.value.value
                if isinstance(device, str) and device not in known_devices:
                    self._add_use(f"{name}(device={device!r})", keyword.value, works=False)

    def _remark_ranks(self, node: ast.Call, callee: ScriptValue | None):
        """Adds a remark where a pipeline runs on the GPU with the number of its process."""
        is_class = isinstance(node.func, ast.Name) and node.func.id in self._pipeline_classes
        if isinstance(callee, DaliName):
            with contextlib.suppress(MissingName):
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
        with contextlib.suppress(MissingName):
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


@functools.cache
def _is_module(name: str) -> bool:
    with contextlib.suppress(MissingName):
        return not name or isinstance(look_up(name), types.ModuleType)
    return False


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
