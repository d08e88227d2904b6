"""The arguments of one operator call that may come per sample: `Arguments` is known when the pipeline is built,
`Values` has their values for a batch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from .._cpu import Status
from .context import BuildContext, HostContext
from .declaration import Argument
from .errors import ArgumentError
from .values import Spec, Value

# Maps an operator's name to a function that returns the arguments in its signature. It is called on demand, because it
# takes time.
declared: dict[str, Callable[[], Mapping[str, Argument]]] = {}
D = TypeVar("D")


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments of one operator call: those that are the same for all samples, and those that are inputs of its
    node.

    Fields of an `Operator` must be hashable and the same for all samples; a DataNode among the arguments becomes an
    additional input, after the inputs that the user gave. This object, which is itself such a field, records which
    argument is which input.

    Attributes:
      static: (name, value) pairs; numbers, or tuples of numbers.
      inputs: names of the arguments that are inputs: the last inputs of the node, in this order.
      measured: (name, number) pairs: how many numbers the first sample of a source has, for inputs of which nothing
        else tells it. `measure` fills it in.
    """

    static: tuple[tuple[str, Any], ...] = ()
    inputs: tuple[str, ...] = ()
    measured: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(values: Mapping[str, Any], is_node: Callable[[Any], bool]) -> tuple[Arguments, tuple[Any, ...]]:
        """Splits checked values, by name (None: not given), into an `Arguments` and the DataNodes among them, which
        become the last inputs of the node.
        """
        passed = {name: x for name, x in values.items() if x is not None}
        nodes = {name: x for name, x in passed.items() if is_node(x)}
        return Arguments(tuple((n, x) for n, x in passed.items() if n not in nodes), tuple(nodes)), tuple(
            nodes.values()
        )

    @functools.cached_property
    def _by_name(self) -> dict[str, Any]:
        return dict(self.static)

    def __contains__(self, name: str) -> bool:
        return name in self.inputs or name in self._by_name

    def without(self, name: str) -> Arguments:
        """The arguments except one that is the same for all samples."""
        return dataclasses.replace(self, static=tuple(x for x in self.static if x[0] != name))

    def is_static(self, name: str) -> bool:
        """Whether the argument is the same for all samples, or not given at all."""
        return name not in self.inputs

    def get(self, name: str) -> Any:
        """The value for all samples; None if it is not given."""
        assert name not in self.inputs, name
        return self._by_name.get(name)

    def width(self, name: str, specs: Sequence[Spec]) -> int | None:
        """The number of values that a sample has of an argument that is given; None: unknown before the first batch.

        Args:
          specs: of the node's inputs.
        """
        if name not in self.inputs:
            return int(np.size(self.get(name)))
        # The arguments are the last inputs of the node: their index counts from the end.
        spec = specs[self.inputs.index(name) - len(self.inputs)]
        if spec.shape is not None:
            return int(np.prod(spec.shape))
        # A ragged value of vectors may have one length nevertheless.
        length = spec.extent(0) if spec.ndim == 1 else None
        return dict(self.measured).get(name) if length is None else length

    def measure(self, ctx: BuildContext, specs: Sequence[Spec], *names: str) -> Arguments:
        """Fills in `measured` from the first samples of sources, for an operator that must know `width` when the
        pipeline is built.

        Samples with another number of values are refused when their batch is made.

        Args:
          names: the arguments to measure.
        """
        # The arguments whose width is not known, by their index among the inputs, counted from the end.
        unknown = {
            n: self.inputs.index(n) - len(self.inputs)
            for n in names
            if n in self.inputs and self.width(n, specs) is None
        }
        first_shapes = {n: ctx.first_shape(len(specs) + i) for n, i in unknown.items()}
        measured = tuple((n, math.prod(shape)) for n, shape in first_shapes.items() if shape is not None)
        return dataclasses.replace(self, measured=measured) if measured else self

    def check_width(
        self, name: str, width: int, specs: Sequence[Spec], *, one_for_all: bool = False, why: str = ""
    ) -> None:
        """Raises ArgumentError if `Values.vector` would refuse an argument whose width is known already.

        Args:
          width: the number of values that are needed.
          specs: of the node's inputs.
          one_for_all: whether one value is accepted in place of all.
          why: the end of the message.
        """
        actual = self.width(name, specs) if name in self else None
        if actual not in (None, width) and not (one_for_all and actual == 1):
            raise ArgumentError(_wrong_width(name, width, one_for_all, actual) + why)


NO_ARGUMENTS = Arguments()


class Values:
    """The arguments' values for a batch, as attributes: ``a.angle``.

    An argument with one value per sample is ``[N]``, with a list per sample ``[N, length]``, of type float64, int64 or
    bool as declared. Values per sample are checked here: a sample with a value outside the declared range fails, and
    gets a value of the range.

    Attributes:
      samples: N, the number of samples in the batch.
    """

    def __init__(
        self, operator: str, arguments: Arguments, N: int, ctx: HostContext | None = None, inputs: Sequence[Value] = ()
    ):
        """Takes the node's inputs, of which the last ones are arguments. `ctx` None: only static arguments are read."""
        self.samples = N
        self._declared = declared[operator]()  # the declaration of each argument, by name
        self._arguments = arguments
        self._ctx = ctx
        self._inputs = inputs
        self._arrays: dict[Any, np.ndarray] = {}  # results of `get` by name, and of `vector` by its arguments

    def __contains__(self, name: str) -> bool:
        return name in self._arguments

    def __getattr__(self, name: str) -> np.ndarray:
        x = self.get(name)
        if x is None:
            raise AttributeError(f"no argument {name} was given")
        return x

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of an argument whose name is computed."""
        return self.__getattr__(name)

    @overload
    def get(self, name: str) -> np.ndarray | None: ...
    @overload
    def get(self, name: str, default: D) -> np.ndarray | D: ...
    def get(self, name: str, default: Any = None) -> Any:
        """The values of an argument; `default` if it is not given."""
        if name.startswith("_") or name not in self._arguments:
            return default
        if name not in self._arrays:
            self._arrays[name] = self._static(name) if self._arguments.is_static(name) else self._per_sample(name)
        return self._arrays[name]

    def vector(self, name: str, width: int, *, one_for_all: bool = False) -> np.ndarray | None:
        """The values of an argument as ``[N, width]``; None: it is not given. Raises ArgumentError for another number
        of them.

        Args:
          one_for_all: one number stands for all `width`.
        """
        key = name, width, one_for_all
        if key not in self._arrays:
            x = self.get(name)
            if x is None:
                return None
            x = x.reshape(len(x), -1)
            if x.shape[1] != width and self._is_absent(name):
                x = x[:, :1]
                one_for_all = True
            if x.shape[1] != width and not (one_for_all and x.shape[1] == 1):
                raise ArgumentError(_wrong_width(name, width, one_for_all, x.shape[1]))
            self._arrays[key] = x if x.shape[1] == width else np.broadcast_to(x, (len(x), width))
        return self._arrays[key]

    def ragged(self, name: str) -> list[np.ndarray]:
        """The values of an argument as one vector per sample, whose lengths may differ."""
        if self._arguments.is_static(name):
            return [np.atleast_1d(x) for x in self._static(name)]
        assert self._ctx is not None, name
        value = self._input(name)
        return [np.asarray(value.sample(i), np.float64).reshape(-1) for i in value.indices(self._ctx.present)]

    def _static(self, name: str) -> np.ndarray:
        """The values of an argument that is the same for all samples: ``[N]``, or ``[N, length]`` for a list."""
        declaration = self._declared[name]
        value = self._arguments.get(name)
        try:
            # The first kind of values determines the type of the array.
            x = _repeated(value, self.samples, declaration.kinds[0].dtype or float)
        except OverflowError:
            raise ArgumentError(f"argument {name} must fit into 64 bits, got {value!r}") from None
        return x if declaration.many else x[:, 0]

    def _is_absent(self, name: str) -> bool:
        """Whether an argument comes per sample, but no sample is present. Its values then don't matter, and there may
        be any number of them, or none.
        """
        return not self._arguments.is_static(name) and self._ctx is not None and not self._ctx.present.any()

    def _input(self, name: str) -> Value:
        """The input that has the values of an argument. Raises ArgumentError if the host does not have its data."""
        value = self._inputs[self._arguments.inputs.index(name) - len(self._arguments.inputs)]
        if value.data is None:
            raise ArgumentError(
                f"argument {name} is made in the compiled program, but is needed on the host before that is launched; "
                "arguments must come from host operators: readers, external_source, random.*, shapes, arithmetic and constants"
            )
        return value

    def _per_sample(self, name: str) -> np.ndarray:
        """The values that come per sample, checked: ``[N]``, or ``[N, length]`` for a list. Samples with invalid values
        fail.
        """
        ctx, declaration = self._ctx, self._declared[name]
        assert ctx is not None, name
        x = self._input(name).dense(f"argument {name}", ctx.present).astype(np.float64)
        x = x.reshape(len(x), -1)
        if self._is_absent(name):
            # Operators expect valid values nevertheless.
            lengths = declaration.lengths if declaration.many else (1,)
            if x.shape[1] not in lengths if lengths else not x.shape[1]:
                x = np.zeros((len(x), lengths[0] if lengths else 1))
        if not declaration.many and x.shape[1] != 1:
            raise ArgumentError(f"argument {name} must be one number per sample, got {x.shape[1]}")
        if declaration.many and declaration.lengths and x.shape[1] not in declaration.lengths:
            raise ArgumentError(
                f"argument {name} must have {' or '.join(map(str, declaration.lengths))} numbers per sample, got {x.shape[1]}"
            )
        kind = declaration.kinds[0]  # the type of the numbers, and `members`, the only ones that are allowed
        if kind.members or not declaration.range.holds_all(x):
            valid = np.logical_or.reduce([x == m for m in kind.members]) if kind.members else declaration.range.holds(x)
            expected = f"be {kind.one if kind.members else str(declaration.range) or 'finite'}"
            x = self._valid(name, x, valid, expected, kind.members[0] if kind.members else declaration.range.inside)
        if kind.dtype is int and not (fits := (x >= -(2.0**63)) & (x < 2.0**63)).all():
            x = self._valid(name, x, fits, "fit into 64 bits", declaration.range.inside)
        x = x.astype(kind.dtype or np.float64, copy=False)
        return x if declaration.many else x[:, 0]

    def _valid(self, name: str, x: np.ndarray, valid: np.ndarray, expected: str, substitute: float) -> np.ndarray:
        """The values of an argument, of which samples with invalid ones fail. Such samples continue with a valid value,
        so that operators need not expect others.

        Args:
          x: the values, ``[N, length]``.
          valid: ``bool[N, length]``.
          expected: what valid values must do, for the message.
          substitute: a valid value.
        """
        assert self._ctx is not None, name
        for i in np.flatnonzero(~valid.all(axis=1) & self._ctx.present).tolist():
            actual = x[i].tolist() if self._declared[name].many else x[i, 0]
            self._ctx.fail(i, Status.ARGUMENT, f"argument {name} must {expected}, got {actual}")
        return np.where(valid, x, substitute)


def _wrong_width(name: str, width: int, one_for_all: bool, got: int | None) -> str:
    """The message about an argument with `got` values per sample in place of `width`."""
    expected = f"{'1 or ' if one_for_all and width > 1 else ''}{width} number{'s' * (width > 1)}"
    return f"argument {name} must have {expected} per sample, got {got}"


@functools.lru_cache(maxsize=1024)
def _repeated(x: Any, N: int, dtype: type) -> np.ndarray:
    """A static argument, repeated for N samples without a copy: ``[N, numbers]``."""
    a = np.asarray(x, dtype).reshape(1, -1)
    return np.broadcast_to(a, (N, a.shape[1]))
