"""Traced pipelines as JSON text, and back.

The text names operators and the values of their attributes. Loading looks these names up among the classes that jaxdali has
defined, and passes them plain values: it imports nothing, evaluates nothing, and calls nothing but those classes.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import importlib
import json
import math
import pkgutil
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import fn
from .. import types as types_module
from .._core import arguments as arguments_module
from .._core.graph import DataNode, Graph, Node
from .._core.operator import Operator
from ..errors import ArgumentError

FORMAT = "jaxdali pipeline"
VERSION = 1
_WIDTH = 120


def dump(graph: Graph, arguments: dict[str, Any]) -> bytes:
    """A graph and the arguments of its `Pipeline`, as UTF-8 JSON.

    Raises:
      ArgumentError: an operator holds what has no text: a Python function, an iterator, a device.
    """
    types = _types()
    tree = {
        "format": FORMAT,
        "version": VERSION,
        "arguments": {k: _encode(v, types) for k, v in arguments.items()},
        "operators": [_encode_node(n, types) for n in graph.nodes],
        "outputs": [_reference(x) for x in graph.outputs],
    }
    return (_text(tree) + "\n").encode()


def load(text: bytes | str) -> tuple[Graph, dict[str, Any]]:
    """The graph and the arguments that `dump` was given.

    Raises:
      RuntimeError: the text is not a pipeline, or one of another version, or names what this version does not have.
    """
    try:
        tree = json.loads(text)
    except (ValueError, TypeError, RecursionError) as e:
        raise RuntimeError(f"this is not a serialized pipeline: {e}") from e
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise RuntimeError(f'this is not a serialized pipeline: it has no "format": "{FORMAT}"')
    if tree.get("version") != VERSION:
        raise RuntimeError(f"the serialized pipeline has version {tree.get('version')!r}; this jaxdali reads version {VERSION}")
    try:
        graph, by_name, types = Graph(), {}, _types()
        for item in tree["operators"]:
            node = _decode_node(graph, item, by_name, types)
            if by_name.setdefault(node.name, node) is not node:
                raise ValueError(f"two operators have the name {node.name!r}")
        graph.outputs = tuple(_node(x, by_name) for x in tree["outputs"])
        return graph, {str(k): _decode(v, types) for k, v in tree["arguments"].items()}
    except Exception as e:  # whatever a damaged file makes the classes say
        reason = f"{e.args[0]!r} is missing or unknown" if isinstance(e, KeyError) else str(e)
        raise RuntimeError(f"the serialized pipeline is damaged, or from a jaxdali with other operators: {reason}") from e


def _text(x: Any, indent: str = "") -> str:
    """JSON with what is short on one line."""
    line = json.dumps(x, allow_nan=False, ensure_ascii=False)
    if len(line) + len(indent) <= _WIDTH or not isinstance(x, (dict, list)) or not x:
        return line
    deeper = indent + "  "
    if isinstance(x, dict):
        rows = [f"{deeper}{json.dumps(k, ensure_ascii=False)}: {_text(v, deeper)}" for k, v in x.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _text(v, deeper) for v in x) + f"\n{indent}]"


# --- nodes ----------------------------------------------------------------------------------------------------------


def _encode_node(node: Node, types: dict[str, type]) -> dict[str, Any]:
    try:
        if types.get(_type_name(type(node.op))) is not type(node.op):
            raise ArgumentError("only jaxdali.fn's own operators can: others may call any Python function")
        attributes = _fields(node.op, types)
    except ArgumentError as e:
        raise ArgumentError(f"{node.op.name} (created at {node.where}) can't be serialized: {e}") from None
    return {
        "name": node.name,
        "operator": _type_name(type(node.op)),
        "attributes": attributes,
        "inputs": [_reference(x) for x in node.inputs],
        "device": node.device,
        "random_index": node.random_index,
        "where": node.where,
    }


def _decode_node(graph: Graph, item: dict[str, Any], by_name: dict[str, Node], types: dict[str, type]) -> Node:
    kind = types[item["operator"]]
    if not issubclass(kind, Operator):
        raise TypeError(f"{item['operator']} is not an operator")
    op = _construct(kind, item["attributes"], types)
    inputs = tuple(_node(x, by_name) for x in item["inputs"])
    for text in (item["name"], item["where"]):
        if not isinstance(text, str):
            raise TypeError(f"expected a text, got {text!r}")
    if item["device"] not in ("", "cpu", "mixed", "gpu"):
        raise ValueError(f"there is no device {item['device']!r}")
    node = graph.add(op, inputs, item["device"], item["name"], item["where"])
    if op.random:
        node.random_index = int(item["random_index"])  # operators that no output needs were counted, too
    return node


def _reference(x: DataNode) -> list[Any]:
    return [x.node.name, x.index]


def _node(reference: list[Any], by_name: dict[str, Node]) -> DataNode:
    name, index = reference
    node = by_name[name]
    if not 0 <= index < node.op.num_outputs:
        raise ValueError(f"{name!r} has no output {index}")
    return DataNode(node, index)


# --- values ---------------------------------------------------------------------------------------------------------


def _encode(x: Any, types: dict[str, type]) -> Any:
    """A value as JSON: sequences as lists, and what JSON does not have as an object with one entry that tells its type."""
    if isinstance(x, enum.Enum) and types.get(_type_name(type(x))) is type(x):
        return {"enum": f"{_type_name(type(x))}.{x.name}"}
    if isinstance(x, float) and not math.isfinite(x):
        return {"float": str(x)}
    if x is None or (isinstance(x, (bool, int, float, str)) and type(x).__module__ == "builtins"):
        return x
    if isinstance(x, (tuple, list)):
        return [_encode(e, types) for e in x]
    if isinstance(x, dict):
        return {"dict": [[_encode(k, types), _encode(v, types)] for k, v in x.items()]}
    if isinstance(x, bytes):
        return {"bytes": base64.b64encode(x).decode()}
    if isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.generic)):
        return {"dtype": np.dtype(x).name}
    if isinstance(x, np.generic):
        return {"number": [np.dtype(x.dtype).name, _encode(x.item(), types)]}
    if dataclasses.is_dataclass(x) and not isinstance(x, type) and types.get(_type_name(type(x))) is type(x):
        return {"object": _type_name(type(x)), "attributes": _fields(x, types)}
    raise ArgumentError(f"a {type(x).__name__} can't be written to a file")


def _decode(x: Any, types: dict[str, type]) -> Any:
    if isinstance(x, list):
        return tuple(_decode(e, types) for e in x)
    if not isinstance(x, dict):
        return x
    match x:
        case {"enum": str(text)}:
            name, _, member = text.rpartition(".")
            kind = types[name]
            if not issubclass(kind, enum.Enum):
                raise TypeError(f"{name} has no members")
            return kind[member]
        case {"float": ("inf" | "-inf" | "nan") as text}:
            return float(text)
        case {"dict": list(items)}:
            return {_decode(k, types): _decode(v, types) for k, v in items}
        case {"bytes": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"dtype": str(name)}:
            return _dtype(name)
        case {"number": [str(name), number]}:
            return _dtype(name).type(_decode(number, types))
        case {"object": str(name), "attributes": dict(attributes)}:
            return _construct(types[name], attributes, types)
    raise ValueError(f"unknown value {str(x)[:80]}")


def _dtype(name: str) -> np.dtype:
    dtype = np.dtype(jnp.bfloat16) if name == "bfloat16" else np.dtype(name)
    if dtype.kind not in "biuf" and name != "bfloat16":
        raise ValueError(f"{name!r} is not a type of numbers")
    return dtype


def _fields(x: Any, types: dict[str, type]) -> dict[str, Any]:
    encoded = {}
    for f in dataclasses.fields(x):
        try:
            encoded[f.name] = _encode(getattr(x, f.name), types)
        except ArgumentError as e:
            raise ArgumentError(f"its attribute {f.name!r}: {e}") from None
    return encoded


def _construct(kind: type, attributes: dict[str, Any], types: dict[str, type]) -> Any:
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} has no attributes")
    expected = {f.name for f in dataclasses.fields(kind)}
    if expected != attributes.keys():
        raise ValueError(f"{kind.__name__} has the attributes {sorted(expected)}, got {sorted(attributes)}")
    return kind(**{k: _decode(v, types) for k, v in attributes.items()})


def _type_name(kind: type) -> str:
    return kind.__qualname__.lstrip("_")  # without the module, so that files survive a move of the class


@functools.cache
def _types() -> dict[str, type]:
    """The classes that a file may name: operators, enums, and the frozen dataclasses that attributes consist of."""
    found: dict[str, type] = {}
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(fn.__path__, f"{fn.__name__}.")]
    for module in (arguments_module, types_module, *modules):
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen  # pyright: ignore[reportAttributeAccessIssue]
                if frozen or issubclass(kind, enum.Enum):
                    assert found.setdefault(_type_name(kind), kind) is kind, f"two classes are called {_type_name(kind)}"
    return found
