"""The operator that an `if` on DataNodes becomes: it takes each sample's value from the branch that the sample took."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._core import ffi as _ffi
from ..._core.building import add, as_node
from ..._core.calls import records
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.errors import InputTypeError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Names, NativeOperator, Operator, SampleOperator, Setup
from ..._core.ragged import Ragged
from ..._core.texts import Texts
from ..._core.values import Spec, Value

# The input of a value, or (input of a predicate, tree if it is true, tree if it is false).
Tree = int | tuple[int, "Tree", "Tree"]
_MAX_INPUTS = 64  # of one merge


class Merge(HostOperator, NativeOperator):
    """Chooses one of several values for each sample. In a program, each sample is copied once, however many branches
    there are.
    """

    name = "if"
    kernel = "merge"
    only_kernels = True
    tree: Tree = (2, 0, 1)  # inputs 0 and 1 are the values, and input 2 is the predicate

    @property
    def joins(self) -> Sequence[int]:
        return _leaves(self.tree)

    def origins(
        self, names: Sequence[Names], data: Callable[[int], Value | None], present: Callable[[], Sequence[np.ndarray]]
    ) -> Names:
        """See `Operator.origins`: if the host has the predicates, those of the values that the samples took."""
        predicates = {i: data(i) for i in range(len(names)) if i not in self.joins}
        if None in predicates.values():
            return super().origins(names, data, present)
        # The index among `joins` of the value that each sample took. Only the predicates need data for it.
        places = _places(self.tree, [predicates.get(i) for i in range(len(names))]).tolist()
        values = [names[k] or [""] * len(places) for k in self.joins]
        return Texts.of(values, lambda i: values[places[i]][i])

    def absorb(self, i: int, inner: Operator) -> Operator | None:  # see Note [Absorbing merges]
        """See `Operator.absorb`: one merge that also chooses among the values of another; None for other operators."""
        if not isinstance(inner, Merge) or i not in _leaves(self.tree):
            return None
        # The inner inputs become i, i + 1, ..., in place of input i. The outer inputs behind it move back by n - 1.
        n = max(_inputs(inner.tree)) + 1
        if max(_inputs(self.tree)) + n > _MAX_INPUTS:
            return None
        # No input is -1: all numbers rise by i, and nothing is replaced.
        inner_tree = _replaced(inner.tree, i=-1, shift=i, subtree=0)
        return dataclasses.replace(self, tree=_replaced(self.tree, i=i, shift=n - 1, subtree=inner_tree))

    def setup_reads(self, i: int) -> bool:
        return i not in _leaves(self.tree)

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        values = tuple(specs[i] for i in _leaves(self.tree))
        return self if _difference(values) is None else _Divergent(tree=self.tree, values=values)

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """The spec that all values have in common. The shape is static if all of them have the same static one."""
        values = [specs[i] for i in _leaves(self.tree)]
        first = dataclasses.replace(values[0], layout=_layout(values))
        extents = tuple(first.extent(d) if len({s.extent(d) for s in values}) == 1 else None for d in range(first.ndim))
        known_extents = tuple(n for n in extents if n is not None)
        if len(known_extents) == first.ndim and all(s.shape is not None for s in values):
            # The result is JAX random keys only if all values are.
            return (dataclasses.replace(first, keys=all(s.keys for s in values)),)
        return (dataclasses.replace(first, shape=None, dims=extents if known_extents else None),)

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray] | None:
        """Chooses among dense values; None if their shapes vary."""
        if self.infer(*specs)[0].shape is None:
            return None
        return lambda *data: _chosen(self.tree, data, specs[_leaves(self.tree)[0]].ndim)

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Takes each sample from the value that its predicates choose."""
        leaves, empty = _leaves(self.tree), np.zeros((0,) * ctx.spec.ndim, ctx.spec.dtype)
        places = zip(_places(self.tree, values).tolist(), ctx.present.tolist(), strict=True)
        return ([values[leaves[k]].sample(i) if is_present else empty for i, (k, is_present) in enumerate(places)],)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The shapes of the chosen samples, and for each sample the index of its value among the leaves of the tree."""
        places, shapes = _places(self.tree, values), None
        if ctx.spec.shape is None:
            shapes = np.stack([values[i].shapes for i in _leaves(self.tree)])[places, np.arange(ctx.N)]
        return Setup((shapes,), {"place": places.astype(np.int32)})

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Copies the samples that take a value to the output, value by value."""
        spec, out = ctx.spec, ctx.out[0]
        data = jnp.zeros((0,), spec.dtype)
        status = jnp.zeros((ctx.B,), jnp.int32)
        for k, i in enumerate(_leaves(self.tree)):
            # Each call copies the samples that take this value into the same buffer. For the kernel, the others are
            # absent: from element 1 on, the control operand has the presence of each sample.
            branch_ctx = dataclasses.replace(
                ctx, control=ctx.control.at[1:].multiply((ctx.params["place"] == k).astype(jnp.int32))
            )
            y, code = _ffi.call("merge", branch_ctx, arrays[i], spec, out, data, into=data if k else None)
            # Each sample takes part in one call, and has the status 0 in the others.
            data, status = (y.data if isinstance(y, Ragged) else y), status + code
        return (data if out is None else Ragged(data, out.offsets, out.shapes),), status


class _Divergent(SampleOperator):
    """Chooses one of several values for each sample, where the branches differ in type, dimensions or layout. The
    values that one batch takes must agree.

    The first batch determines type, dimensions and layout of the result. As these are not known before, the operator
    runs on the host, between programs.

    Attributes:
      last_value: the spec of the value that the samples of the last batch took; empty before the first batch.
    """

    name = "if"
    tree: Tree
    values: tuple[Spec, ...]
    last_value: list[Spec] = dataclasses.field(default_factory=list, compare=False)

    def call_samples(self, ctx: HostContext, inputs: Sequence[Value]) -> Sequence[Sequence[np.ndarray | None]]:
        """Takes each sample from the value that its predicates choose. Raises InputTypeError if the samples differ in
        type.
        """
        leaves, places = _leaves(self.tree), _places(self.tree, inputs)
        chosen = [self.values[k] for k in sorted(set(places[ctx.present].tolist()))]
        if difference := _difference(chosen):
            raise InputTypeError(f"its branches give a variable values of different {difference}")
        self.last_value[:] = [dataclasses.replace(chosen[0], layout=_layout(chosen))]
        return [
            [np.asarray(inputs[leaves[k]].sample(i)) if ctx.present[i] else None for i, k in enumerate(places.tolist())]
        ]

    def changed(self, i: int, before: Spec, now: Spec) -> str:
        difference = _difference((before, now))
        return (
            f"its branches give a variable values of different {difference} "
            "(the first in batches before; what a value is must not change)"
        )

    @property
    def unseen(self) -> Spec | None:
        return self.values[0]

    def layout_of(self, i: int, ndim: int) -> str:
        return next((s.layout for s in (*self.last_value, *self.values) if s.ndim == ndim), "")


def _difference(values: Sequence[Spec]) -> str | None:
    """The difference between several values, for an error message. None if they can be one value of a batch."""
    layout = _layout(values)
    for kind, get in (
        ("types", lambda s: s.dtype),
        ("numbers of dimensions", lambda s: s.ndim),
        ("layouts", lambda s: s.layout or layout),
    ):
        if len(distinct := {get(s): None for s in values}) > 1:
            advice = "; fn.cast_like makes one of the other's type" if kind == "types" else ""
            return f"{kind}: {', '.join(repr(str(x)) for x in distinct)}{advice}"
    return None


def _layout(values: Sequence[Spec]) -> str:
    """The layout of a value that is one of these. Values without a layout get the layout of the others."""
    return next((s.layout for s in values if s.layout), "")


def _places(tree: Tree, values: Sequence[Value | None]) -> np.ndarray:
    """The index, among the leaves, of the value that each sample takes, ``[N]``. Only the predicates need data."""
    data: list[Any] = [None if v is None else v.data for v in values]
    # In place of each value: its index among the leaves.
    for k, i in enumerate(_leaves(tree)):
        data[i] = k
    return _chosen(tree, data, 0)


@functools.lru_cache(maxsize=1024)
def _leaves(tree: Tree) -> tuple[int, ...]:
    """The inputs that are values, not predicates, in the order of the tree."""
    return (tree,) if isinstance(tree, int) else (*_leaves(tree[1]), *_leaves(tree[2]))


def _inputs(tree: Tree) -> list[int]:
    """All inputs of the tree, values and predicates."""
    return [tree] if isinstance(tree, int) else [tree[0], *_inputs(tree[1]), *_inputs(tree[2])]


def _replaced(tree: Tree, i: int, shift: int, subtree: Tree) -> Tree:
    """The tree with `subtree` in place of input `i`, and with numbers higher by `shift` for the inputs after it."""
    if isinstance(tree, int):
        return subtree if tree == i else tree + shift * (tree > i)
    return tree[0] + shift * (tree[0] > i), _replaced(tree[1], i, shift, subtree), _replaced(tree[2], i, shift, subtree)


def _chosen(tree: Tree, data: Sequence[Any], ndim: int) -> Any:
    """Takes each sample from one of several arrays ``[N, ...]``. `ndim`: rank of a sample."""
    if isinstance(tree, int):
        return data[tree]
    is_true = data[tree[0]].reshape(-1, *(1,) * ndim) != 0
    return np.where(is_true, _chosen(tree[1], data, ndim), _chosen(tree[2], data, ndim))


@records("_conditional.merge")
def merge(if_true: Any, if_false: Any, predicate: DataNode) -> DataNode:
    """For each sample, `if_true` if its `predicate` is not 0, otherwise `if_false`. Each value needs only the samples
    that take it.
    """
    return add(Merge(), if_true, if_false, predicate)


@records("_conditional.predicate")
def predicate_of(x: DataNode) -> DataNode:
    """Converts a value to a predicate for `if`: one number per sample, on the host."""
    return _checked(x, "if", "")


class Logical(HostOperator):
    """Checks the condition of an `if`, or an operand of `and` or `or`, and passes it on. For `not`, negates it."""

    expression: str  # "if", "and", "or" or "not"
    side: str  # the operand of "and" or "or": "left" or "right"; "" for "if"

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.expression

    def is_identity(self, *specs: Spec) -> bool:
        return self.expression != "not"

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        """A bool; the condition of an `if` may be any number, and keeps its type. Raises InputTypeError for other
        values.
        """
        takes_numbers = self.expression in ("if", "not")
        if x.ndim or not (takes_numbers or x.dtype == np.bool_):
            subject, kind = (
                f"the {self.side} side" if self.side else "what it asks",
                "a number" if takes_numbers else "a truth value (bool)",
            )
            advice = "take an element (x[0]), or reduce them" if x.ndim else "compare or cast them"
            raise InputTypeError(
                f"{subject} must be {kind} for each sample, got {x.ndim}-D values of type {x.dtype}: {advice}"
            )
        return (x if self.expression == "if" else Spec(np.dtype(np.bool_), 0, ()),)

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray]:
        return (lambda x: x == 0) if self.expression == "not" else (lambda x: x)


@records("_conditional.logical")
def logical(x: Any, expression: str, side: str) -> DataNode:
    """`x` as the "left" or "right" side of "and" or "or"; or "not" `x`."""
    return _checked(as_node(x, expression), expression, side)


def _checked(x: DataNode, expression: str, side: str) -> DataNode:
    """Adds a `Logical` to the pipeline."""
    return add(Logical(expression=expression, side=side), x)
