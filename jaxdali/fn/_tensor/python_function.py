"""python_function: calls functions of NumPy arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self, Unpack

import numpy as np

from ..._core.building import add
from ..._core.context import BuildContext, HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Operator, SampleOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ...types import is_number


class PythonFunction(SampleOperator):
    """Calls a user function. Each shard has its own function.

    For another framework's tensors, a subclass overrides `given`, which converts arrays to tensors, and `returned`,
    which converts tensors to arrays.
    """

    name = "python_function"
    takes_metadata = True  # pyright: ignore[reportAssignmentType]
    function: Callable[..., Any] = dataclasses.field(compare=False)
    outputs: int  # how many the function returns
    layouts: tuple[str, ...]  # of the first outputs; the others have none
    batch: bool  # whether a call gets lists of all samples
    # the function of each local shard; `bind` sets it
    of_shards: tuple[Callable[..., Any], ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        num_outputs: int,
        batch_processing: bool,
        output_layouts: str | Sequence[str] | None,
    ) -> Self:
        """Makes the operator from the arguments of `python_function`."""
        layouts = (output_layouts,) * num_outputs if isinstance(output_layouts, str) else tuple(output_layouts or ())
        if len(layouts) > num_outputs:
            raise ArgumentError(f"output_layouts has {len(layouts)} layouts, for {num_outputs} outputs")
        return cls(function=function, outputs=num_outputs, layouts=layouts, batch=batch_processing)

    @property
    def num_outputs(self) -> int:
        return self.outputs

    @property
    def preserved(self) -> bool:
        return True

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return dataclasses.replace(self, of_shards=tuple(op.function for op in ctx.of_shards))

    def layout_of(self, i: int, ndim: int) -> str:
        layout = self.layouts[i] if i < len(self.layouts) else ""
        if layout and len(layout) != ndim:
            raise ArgumentError(f"output_layouts has {layout!r} for output {i}, which has {ndim} dimensions")
        return layout

    def given(self, x: np.ndarray) -> Any:
        """Converts the array of a sample to the function's argument. Nothing else refers to `x`."""
        return x

    def returned(self, x: Any) -> np.ndarray:
        """Converts a result of the function to an array."""
        array = np.asarray(x)
        if x is None or not (array.dtype == np.bool_ or is_number(array.dtype)):
            raise TypeError(f"the function must return arrays of numbers, got {type(x).__name__}")
        return array

    def call_samples(self, ctx: HostContext, inputs: Sequence[Value]) -> Sequence[Sequence[np.ndarray | None]]:
        """Calls each shard's function, for each of its samples or once with lists of them. See
        `SampleOperator.call_samples`.
        """
        outputs: list[list[np.ndarray | None]] = [[None] * ctx.N for _ in range(self.outputs)]
        for s, function in enumerate(self.of_shards):
            present = (s * ctx.B + np.flatnonzero(ctx.present[s * ctx.B : (s + 1) * ctx.B])).tolist()
            arguments = [
                # Copies, because the function may keep and change its arguments.
                [x.sample(i) if x.spec.is_metadata else self.given(np.array(x.sample(i))) for i in present]
                for x in inputs
            ]
            if self.batch:
                results = zip(
                    *(self._of_batch(x, len(present)) for x in self._split(function(*arguments))), strict=True
                )
            else:
                results = (self._split(function(*(x[k] for x in arguments))) for k in range(len(present)))
            # A batch function without outputs has no results at all.
            for i, result in zip(present, results, strict=bool(self.outputs) or not self.batch):
                for output, x in zip(outputs, result, strict=True):
                    output[i] = self.returned(x)
        return outputs

    def _split(self, result: Any) -> Sequence[Any]:
        """Splits the result of the function by output."""
        if not self.outputs:
            return ()
        # A list is one output if there is to be one.
        outputs = (
            result
            if isinstance(result, (tuple, list)) and (self.outputs > 1 or isinstance(result, tuple))
            else (result,)
        )
        if len(outputs) != self.outputs:
            count = f"{self.outputs} output{'s' * (self.outputs > 1)}"
            advice = f"; num_outputs={len(outputs)} takes them all" if len(outputs) > 1 else ""
            raise ValueError(f"the function must return {count}, got {len(outputs)}{advice}")
        return outputs

    @staticmethod
    def _of_batch(x: Any, count: int) -> Sequence[Any]:
        """One output of a function with `batch_processing`, after a check of its length."""
        if not hasattr(x, "__len__") or len(x) != count:
            actual = f"{len(x)}" if hasattr(x, "__len__") else f"a {type(x).__name__}"
            raise ValueError(f"with batch_processing=True an output must be a list of {count} arrays, got {actual}")
        return x


def moved(outputs: Any, device: str | None) -> Any:
    """The outputs of a host function as one DataNode or a list; on the accelerator if `device` is "gpu"."""
    if device != "gpu":
        return outputs
    return [x.gpu() for x in outputs] if isinstance(outputs, list) else outputs.gpu()


@operator_function("python_function")
def python_function(
    *inputs: Input,
    function: Callable[..., Any],
    num_outputs: Annotated[int, Range(0)] = 1,
    batch_processing: bool = False,
    output_layouts: str | Sequence[str] | None = None,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode | list[DataNode]:
    """Calls a Python function with NumPy arrays, on the host, for each batch.

    It is called even if nobody needs its outputs.

    The pipeline is compiled into separate programs before and after the function. Use `jax_function` for JAX functions,
    which become part of the program. Differs from DALI: inputs may be on the accelerator; the function may keep and
    change the arrays, and may return numbers; it gets no CuPy arrays.

    Args:
      inputs: the inputs of the function.
      function: called for each sample with an array per input. It returns an array, or a tuple of arrays if there are
        several outputs. An output must have the same type and number of dimensions in all samples; shapes may differ.
      num_outputs: how many outputs the function has; with 0, its result is ignored.
      batch_processing: whether to call the function once for each batch of a shard, with a list of arrays per input; it
        then returns lists.
      output_layouts: a layout for each of the first outputs, or one for all.

    Returns:
      One host value; several outputs are returned as a list, and no outputs as an empty list.

    Raises:
      OperatorError: the function raised, or returned something else. The batch fails.

    Example:
      >>> edges = fn.python_function(images, function=lambda image: np.abs(np.diff(image.astype(np.int16), axis=0)))
    """
    op = PythonFunction.of(function, num_outputs, batch_processing, output_layouts)
    return add(op, *inputs, device=device, name=name)
