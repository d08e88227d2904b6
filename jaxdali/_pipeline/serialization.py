"""Pipelines as JSON text, and back.

The text contains the calls of public functions that defined the pipeline, each with its name and the arguments as the
user wrote them:

    {"function": "resize", "inputs": [{"node": [3, 0]}], "arguments": {"size": {"tuple": [224, 224]}}, "names":
    ["__resize_7"], ...}

``names`` has the name of each node that the call returned, null for a node that nothing needs. ``random`` has the
numbers of the nodes that draw random numbers. ``when`` has the branches of `if` that contain the call. Calls of
``_conditional.merge`` join the results of branches.

Loading calls these functions again. It looks up their names in a list of functions that a definition may call, and
passes them plain values. It imports nothing, evaluates nothing, and calls nothing else.

`VERSION` changes when an older version would misread the text. The arguments of functions are their public interface,
which continues to accept what it once accepted.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .. import fn as fn  # a text may call its functions
from .. import types
from .._core.building import Scope, building, inside, warn
from .._core.calls import Call, flat, functions, override_line
from .._core.errors import ArgumentError
from .._core.graph import Branch, DataNode, Graph, Node
from .._core.redaction import has_credentials, redacted
from .._data.storage import Storage
from ..fn import _augmentation as _augmentation  # as `fn`
from ..fn._decode import registered
from ..fn._tensor.subscript import NewAxis
from ..tfrecord import Feature, FeatureType, Partition
from .checks import CHECKSUM, digest, signed

FORMAT = "jaxdali pipeline"
VERSION = 3
_WIDTH = 120  # characters of a line
_DECODING = frozenset(  # operators whose results depend on registered decoders of images
    f"decoders.{name}" for name in ("image", "image_crop", "image_random_crop", "image_slice")
) | {"peek_image_shape", "readers.sequence"}
_ENUMS = {
    kind.__name__: kind for kind in vars(types).values() if isinstance(kind, type) and issubclass(kind, enum.Enum)
}


def dump(graph: Graph, arguments: Mapping[str, Any]) -> bytes:
    """Writes a graph and the arguments of its `Pipeline` as UTF-8 JSON.

    Raises:
      ArgumentError: an argument can't be written as text: a Python function, an iterator, a device.
    """
    calls = _calls(graph)
    # By node id and output: the number of the call that returned the output, and its place in the call's result.
    # Backwards, so that the first call that returned a node counts.
    places = {
        (x.node.id, x.index): (i, k) for i, call in reversed(list(enumerate(calls))) for k, x in enumerate(call.outputs)
    }
    # The graph has copies of the nodes that the calls returned. By the identity of a copy, the original's id.
    original_ids = {id(node): number for number, node in graph.copies.items()}
    tree = {
        "format": FORMAT,
        "version": VERSION,
        "arguments": {k: _encode(v, {}) for k, v in arguments.items()},
        "calls": [_encode_call(call, graph, places) for call in calls],
        "outputs": [list(places[original_ids[id(x.node)], x.index]) for x in graph.outputs],
    }
    if registered.names() and any(n.op.name in _DECODING for n in graph.nodes):
        tree["decoders"] = list(registered.names())  # the pipeline may need them
    # A name that is not UTF-8 has surrogates, which only an escape such as \udcff can stand for.
    return (_format_json(signed(tree)) + "\n").encode(errors="backslashreplace")


def load(text: bytes | str) -> tuple[Graph, dict[str, Any]]:
    """Reads the graph and the arguments that were passed to `dump`.

    Raises:
      RuntimeError: the text is not a pipeline, has another version, or names something that this version does not have.
    """
    try:
        tree = json.loads(text)
    except (ValueError, TypeError, RecursionError) as e:
        raise RuntimeError(f"this is not a serialized pipeline: {e}") from e
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise RuntimeError(f'this is not a serialized pipeline: it has no "format": "{FORMAT}"')
    if tree.get("version") != VERSION:
        raise RuntimeError(
            f"the serialized pipeline has version {tree.get('version')!r}; this jaxdali reads version {VERSION}: serialize it again"
        )
    try:
        nodes, results, branches = list[Node](), list[list[DataNode]](), dict[Any, Branch]()
        with building(Scope(None, nodes)):  # None: the pipeline does not exist yet
            for item in tree["calls"]:
                results.append(_decode_call(item, results, branches))
        needed = [x for item, outputs in zip(tree["calls"], results) for x in _needed_outputs(item, outputs)]
        graph = Graph.collect(nodes, [_decode_node(x, results) for x in tree["outputs"]], needed)
        for item, outputs in zip(tree["calls"], results, strict=True):
            _restore_nodes(item, outputs, graph)
        if len({n.name for n in graph.nodes}) < len(graph.nodes):
            raise ValueError("two operators have one name")
        arguments = {str(k): _decode(v, ()) for k, v in tree["arguments"].items()}
        # Last, because the other errors say more.
        if unknown := tree.keys() - {"format", "version", "arguments", "calls", "outputs", "decoders", CHECKSUM}:
            raise ValueError(f"it has an entry {min(unknown)!r}, which is unknown")
        decoders = [str(name) for name in tree.get("decoders", ())]
        # A text without a checksum is accepted.
        if tree.get(CHECKSUM, expected := digest(tree)) != expected:
            raise ValueError(
                f"its checksum is {tree[CHECKSUM]}, that of what it holds is {expected}: it was changed since it was written"
            )
    except Exception as e:  # a damaged file may make the functions raise anything
        reason = f"{e.args[0]!r} is missing or unknown" if isinstance(e, KeyError) else str(e)
        raise RuntimeError(
            f"the serialized pipeline is damaged, or from a jaxdali with other functions: {reason}"
        ) from e
    if missing := [name for name in decoders if name not in registered.names()]:
        warn(
            f"the serialized pipeline was made where these decoders were registered, which are not registered here: {', '.join(missing)}; "
            "register them with jaxdali.extend.register_decoder before the pipeline is built"
        )
    return graph, arguments


def _format_json(x: Any, indent: str = "") -> str:
    """Formats a value as JSON, with short values on one line."""
    line = json.dumps(x, allow_nan=False, ensure_ascii=False)
    if len(line) + len(indent) <= _WIDTH or not isinstance(x, (dict, list)) or not x:
        return line
    deeper = indent + "  "
    if isinstance(x, dict):
        rows = [f"{deeper}{json.dumps(k, ensure_ascii=False)}: {_format_json(v, deeper)}" for k, v in x.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _format_json(v, deeper) for v in x) + f"\n{indent}]"


# --- calls ----------------------------------------------------------------------------------------------------------


def _calls(graph: Graph) -> list[Call]:
    """The calls that made a graph's nodes, and the calls that made their arguments, in order."""
    pending, calls = list(graph.nodes), set[Call]()
    while pending:
        node = pending.pop()
        if node.call is None:
            raise ArgumentError(
                f"{node.op.name} (created at {node.where}) can't be serialized: it may call any Python function"
            )
        if node.call not in calls:
            calls.add(node.call)
            pending += [x.node for x in _nodes_in((node.call.inputs, list(node.call.arguments.values())))]
    return sorted(calls, key=lambda call: call.number)


def _nodes_in(x: Any) -> Iterator[DataNode]:
    """Yields the DataNodes in a value: itself, in lists, tuples and slices."""
    if isinstance(x, DataNode):
        yield x
    elif isinstance(x, (list, tuple)):
        for e in x:
            yield from _nodes_in(e)
    elif isinstance(x, slice):
        yield from _nodes_in((x.start, x.stop, x.step))


def _nodes_of_call(call: Call, graph: Graph) -> tuple[list[Node | None], list[Node]]:
    """The nodes of a call in a graph: the nodes that it returned (None: a node that nothing needs), and the nodes that
    draw random numbers.
    """
    nodes = [n for n in graph.nodes if n.call is call]
    # A node with several outputs counts once.
    returned = [graph.copies.get(number) for number in dict.fromkeys(x.node.id for x in call.outputs)]
    return [n if n in nodes else None for n in returned], [n for n in nodes if n.op.random]


def _encode_call(call: Call, graph: Graph, places: Places) -> dict[str, Any]:
    """Encodes a call of a public function. Raises ArgumentError, with the user's line, if an argument can't be written.

    Args:
      places: the call that returned each value, and its place in the call's result.
    """
    line = call.outputs[0].node.where
    returned, random = _nodes_of_call(call, graph)
    encoded = {}
    for name, value in [*enumerate(call.inputs), *call.arguments.items()]:
        # The name of an input is its number. None stands for an argument that was not given.
        if value is not None or isinstance(name, int):
            try:
                encoded[name] = _encode(value, places)
            except ArgumentError as e:
                argument = f"input {name}" if isinstance(name, int) else f"argument {name}"
                raise ArgumentError(
                    f"{call.function} (created at {line}) can't be serialized: {argument}: {e}"
                ) from None
    return {
        "function": call.function,
        "inputs": [encoded.pop(i) for i in range(len(call.inputs))],
        "arguments": encoded,
        "names": [None if n is None else n.name for n in returned] if any(returned) else [],
        "random": [n.random_index for n in random],  # these count nodes that no output needs, too
        **_encode_branches(call, places),
        "line": line,
    }


def _encode_branches(call: Call, places: Places) -> dict[str, Any]:
    """The entry ``when``: the branches in which a call was made, the outermost first, each with predicate and side."""
    branch = next((x.node.branch for x in call.outputs if x.node.branch is not None), None)
    while branch is not None and branch.by_inputs:  # loading derives such a branch from the inputs of the call
        branch = branch.outer
    return {} if branch is None else {"when": [[_encode_node(b.predicate, places), b.side] for b in branch.path]}


def _decode_branch(item: dict[str, Any], results: Results, branches: dict[Any, Branch]) -> Branch | None:
    """The branch of a call, the innermost of its entry ``when``; None: it is in none.

    Args:
      item: the call, as `_encode_call` returned it.
      results: of the calls before it.
      branches: those made so far, by their paths; new ones are added.
    """
    branch, path = None, ()  # the path: predicates and sides of the branches so far
    for reference, side in item.get("when", ()):
        path = (*path, *reference, side)
        if path not in branches:
            branches[path] = Branch(_decode_node(reference, results), bool(side), branch, item["line"])
        branch = branches[path]
    return branch


def _decode_call(item: dict[str, Any], results: Results, branches: dict[Any, Branch]) -> list[DataNode]:
    """Calls the function of a call again. Returns its results.

    Args:
      item: the call, as `_encode_call` returned it.
      results: of the calls before it.
      branches: those made so far, by their paths: the predicates and sides of a branch and of those around it.
    """
    function, line = _lookup_function(item["function"]), item["line"]
    inputs = [_decode(x, results) for x in item["inputs"]]
    arguments = {str(k): _decode(v, results) for k, v in item["arguments"].items()}
    if not isinstance(line, str):
        raise TypeError(f"expected a string, got {line!r}")
    with override_line(line), inside(_decode_branch(item, results, branches)):
        return list(flat(function(*inputs, **arguments)))


def _lookup_function(name: str) -> Callable[..., Any]:
    """Returns a function that a text may call. A function of `fn` that has not been used yet is imported."""
    if name not in functions:
        functools.reduce(getattr, name.split("."), fn)
    return functions[name]


def _needed_outputs(item: dict[str, Any], outputs: list[DataNode]) -> list[DataNode]:
    """One output of each node that a call returned and that the serialized graph had."""
    nodes = {x.node.id: x for x in outputs}
    if not item["names"]:  # the call made no node, as .gpu() of a value on the GPU
        return []
    return [x for x, name in zip(nodes.values(), item["names"], strict=True) if name is not None]


def _restore_nodes(item: dict[str, Any], outputs: list[DataNode], graph: Graph):
    """Gives a call's nodes their original names and the indices by which they draw random numbers.

    Args:
      item: the call, as `_encode_call` returned it.
      outputs: the results of the call.
      graph: has the nodes, as copies of those that the call made.
    """
    if not item["names"]:
        return
    call = outputs[0].node.call
    assert call is not None
    returned, random = _nodes_of_call(call, graph)
    for node, name in zip(returned, item["names"], strict=True):
        if node is not None:
            if not isinstance(name, str):
                raise TypeError(f"expected a string, got {name!r}")
            node.name = name
    # Nodes that the call made but did not return.
    for i, node in enumerate(n for n in graph.nodes if n.call is call and n not in returned):
        node.name = f"{item['names'][-1]}/{i}"  # no user's node has such a name
    for node, number in zip(random, item["random"], strict=True):
        node.random_index = operator.index(number)


def _encode_node(x: DataNode, places: Places) -> list[int]:
    """A value as the number of the call that returned it, and its place in the call's result."""
    return list(places[x.node.id, x.index])


def _decode_node(reference: list[int], results: Results) -> DataNode:
    """The value of a reference, see `_encode_node`. Raises ValueError if there is no such value before this call."""
    call, output = reference
    if not (0 <= call < len(results) and 0 <= output < len(results[call])):
        raise ValueError(f"call {call} has no output {output}, or comes later")
    return results[call][output]


# --- values ---------------------------------------------------------------------------------------------------------

# By the id of a node and the number of its output: the call that returned the output, and its place in the result.
Places = Mapping[tuple[int, int], tuple[int, int]]
Results = Sequence[Sequence[DataNode]]  # of each call


def _encode(x: Any, places: Places) -> Any:
    """Encodes a value as JSON. A type that JSON lacks becomes an object with one entry, whose name is the type."""
    if isinstance(x, DataNode):
        return {"node": _encode_node(x, places)}
    if isinstance(x, enum.Enum) and _ENUMS.get(type(x).__name__) is type(x):
        return {"enum": f"{type(x).__name__}.{x.name}"}
    if isinstance(x, float) and not math.isfinite(x):
        return {"float": str(float(x))}
    if isinstance(x, str) and has_credentials(x):
        raise ArgumentError(f"the URL {redacted(x)} holds credentials, which are not written to a file")
    if x is None or type(x) in (bool, int, float, str):
        return x
    if isinstance(x, (list, range)):
        return [_encode(e, places) for e in x]
    if isinstance(x, tuple):
        return {"tuple": [_encode(e, places) for e in x]}
    if isinstance(x, dict):
        return {"dict": [[_encode(k, places), _encode(v, places)] for k, v in x.items()]}
    if isinstance(x, Feature):
        partitions = tuple((p.kind, p.key) for p in x.partitions)
        values = x.kind, x.dtype.name, x.shape, x.default, x.allow_missing, x.key, partitions
        return {"feature": [_encode(v, places) for v in values]}
    if isinstance(x, slice):
        return {"slice": [_encode(e, places) for e in (x.start, x.stop, x.step)]}
    if isinstance(x, NewAxis):
        return {"newaxis": x.letter}
    if isinstance(x, types.ScalarConstant):
        return {"constant": [_encode(x.value, places), x.dtype.name]}
    if isinstance(x, Storage):
        if x.options:
            raise ArgumentError("the options of a Storage, which may be credentials, are not written to a file")
        if x.allow_chained:
            raise ArgumentError(
                "Storage(allow_chained=True) is not written to a file, whose text could then run what a URL names"
            )
        skipped = ("options", "allow_chained")
        return {
            "storage": {
                f.name: _encode(getattr(x, f.name), places) for f in dataclasses.fields(x) if f.name not in skipped
            }
        }
    if isinstance(x, os.PathLike):
        return os.fsdecode(x)
    if isinstance(x, bytes):
        return {"bytes": base64.b64encode(x).decode()}
    if isinstance(x, (np.dtype, type)) and _is_numeric(np.dtype(x)):
        return {"dtype": np.dtype(x).name}
    if isinstance(x, (np.ndarray, np.generic, jax.Array)) and _is_numeric(x.dtype):
        a = np.asarray(x)
        return {"array": [a.dtype.name, list(a.shape), base64.b64encode(a.tobytes()).decode()]}
    description = "function" if callable(x) and hasattr(x, "__code__") else f"{type(x).__name__} object"
    raise ArgumentError(
        f"a {description} of the program can't be written to a file: build the pipeline from its definition where it runs, or read files "
        "(readers.file, readers.array_record, ...), which are written by their names"
    )


def _decode(x: Any, results: Results) -> Any:
    """Decodes a value of `_encode`. It makes values of known types only, and imports and calls nothing that a text
    names.
    """
    if isinstance(x, list):
        return [_decode(e, results) for e in x]
    if not isinstance(x, dict):
        return x
    match x:
        case {"node": [int() as call, int() as output]}:
            return _decode_node([call, output], results)
        case {"enum": str(text)}:
            name, _, member = text.partition(".")
            return _ENUMS[name][member]
        case {"float": ("inf" | "-inf" | "nan") as text}:
            return float(text)
        case {"tuple": list(items)}:
            return tuple(_decode(e, results) for e in items)
        case {"dict": list(items)}:
            return {_decode(k, results): _decode(v, results) for k, v in items}
        case {"feature": [shape, str(dtype), default, partial_shape]}:  # before features had kinds
            shape, default, partial_shape = (_decode(e, results) for e in (shape, default, partial_shape))
            if shape is None:
                return Feature("VarLenFeature", FeatureType[dtype], partial_shape)
            return Feature("FixedLenFeature", FeatureType[dtype], shape, b"" if default is None else default)
        case {"feature": [str(kind), str(dtype), *encoded]}:
            shape, default, allow_missing, key, partitions = (_decode(e, results) for e in encoded)
            partitions = tuple(Partition(*p) for p in partitions)
            return Feature(kind, FeatureType[dtype], shape, default, allow_missing, key, partitions)
        case {"slice": [start, stop, step]}:
            return slice(_decode(start, results), _decode(stop, results), _decode(step, results))
        case {"newaxis": str(letter)}:
            return NewAxis(letter)
        case {"constant": [value, str(dtype)]}:
            return types.Constant(_decode(value, results), types.DALIDataType[dtype])
        case {"storage": dict(fields)}:
            if fields.get("allow_chained"):
                raise ValueError("a serialized pipeline can't allow chained URLs")
            if "options" in fields:
                raise ValueError("a serialized pipeline can't hold options of a Storage")
            return Storage(**fields)
        case {"bytes": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"dtype": str(name)}:
            return _dtype(name)
        case {"array": [str(name), list(shape), str(text)]}:
            a = np.frombuffer(base64.b64decode(text, validate=True), _dtype(name)).reshape(shape)
            return a if shape else a[()]
    raise ValueError(f"unknown value {str(x)[:80]}")


def _is_numeric(dtype: np.dtype) -> bool:
    return dtype == np.bool_ or types.is_number(dtype)


def _dtype(name: str) -> np.dtype:
    dtype = np.dtype(name)
    if not _is_numeric(dtype):
        raise ValueError(f"{name!r} is not a type of numbers")
    return dtype
