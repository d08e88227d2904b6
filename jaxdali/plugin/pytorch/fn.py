"""torch_python_function: functions of PyTorch tensors as operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Annotated, Any, Literal, Unpack

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from ..._core import names as _names
from ..._core.building import add
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ...fn._tensor.python_function import PythonFunction, moved


class _TorchFunction(PythonFunction):
    name = "torch_python_function"
    takes_metadata = False

    def given(self, x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x)

    def returned(self, x: Any) -> np.ndarray:
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"the function must return torch.Tensors, got {type(x).__name__}")
        return super().returned(x.detach().cpu().numpy())


@operator_function("torch_python_function")
def torch_python_function(
    *inputs: Input,
    function: Callable[..., Any],
    num_outputs: Annotated[int, Range(0)] = 1,
    batch_processing: bool = False,
    output_layouts: str | Sequence[str] | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode | list[DataNode]:
    """Calls a Python function with PyTorch tensors, on the host, for each batch. It is called even if nobody needs its
    outputs.

    It works like `fn.python_function`, with tensors instead of arrays. Differs from DALI: inputs may be on the
    accelerator, but the tensors are on the host even with ``device="gpu"``, and results are converted on the host even
    if they are CUDA tensors. The function may keep and change its tensors. Neither a GPU nor a PyTorch with CUDA is
    needed.

    Args:
      inputs: the inputs of the function.
      function: called for each sample with a tensor per input. It returns a tensor, or a tuple of tensors if there are
        several outputs. An output must have the same type and number of dimensions in all samples; shapes may differ.
      num_outputs: how many outputs the function has; with 0, its result is ignored.
      batch_processing: whether to call the function once for each batch of a shard, with a list of tensors per input;
        it then returns lists.
      output_layouts: a layout for each of the first outputs, or one for all.
      device: with "gpu", the results are put on the accelerator. Default: the host.

    Returns:
      One value; several outputs are returned as a list, and no outputs as an empty list.

    Raises:
      OperatorError: the function raised or returned something else, or PyTorch does not have the type. The batch fails.

    Example:
      >>> noisy = torch_python_function(images, function=lambda image: image + 9 * torch.randn(image.shape))
    """
    op = _TorchFunction.of(function, num_outputs, batch_processing, output_layouts)
    return moved(add(op, *inputs, name=name), device)


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "torch_python_function")
