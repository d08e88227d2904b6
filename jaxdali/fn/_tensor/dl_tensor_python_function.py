"""dl_tensor_python_function: calls functions of DLPack capsules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.building import add
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from .python_function import PythonFunction, moved

_CPU = (1, 0)  # DLPack's kDLCPU, and the number of the device


class _Exchanged:
    """A capsule as an object with ``__dlpack__``, which NumPy can read."""

    def __init__(self, capsule: Any):
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


class DLTensorPythonFunction(PythonFunction):
    """`dl_tensor_python_function`."""

    name = "dl_tensor_python_function"
    takes_metadata = False

    def given(self, x: np.ndarray) -> Any:
        return x.__dlpack__()

    def returned(self, x: Any) -> np.ndarray:
        """Copies the memory of a DLPack capsule, or of an object that exports one, to an array."""
        # NumPy reads objects with __dlpack__, not capsules themselves.
        if type(x).__name__ == "PyCapsule":
            x = _Exchanged(x)
        elif not hasattr(x, "__dlpack__"):
            raise TypeError(
                f"the function must return DLPack capsules, or objects with __dlpack__, got {type(x).__name__}"
            )
        return super().returned(np.array(np.from_dlpack(x)))


@operator_function(DLTensorPythonFunction.name)
def dl_tensor_python_function(
    *inputs: Input,
    function: Callable[..., Any],
    num_outputs: Annotated[int, Range(0)] = 1,
    batch_processing: bool = False,
    output_layouts: str | Sequence[str] | None = None,
    synchronize_stream: bool = True,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode | list[DataNode]:
    """Calls a Python function with DLPack capsules, on the host, for each batch.

    It is called even if nobody needs its outputs.

    It works like `fn.python_function`, with capsules instead of arrays. A capsule can be converted to a tensor once,
    e.g. by ``torch.utils.dlpack.from_dlpack``. Differs from DALI: tensors are on the host also with ``device="gpu"``.

    Args:
      inputs: the inputs of the function.
      function: called for each sample with a capsule per input. Returns a capsule, or any tensor that has
        ``__dlpack__``, on the host; with several outputs, it returns a tuple of them.
      num_outputs: how many outputs the function has; with 0, its result is ignored.
      batch_processing: whether to call the function once for each batch of a shard, with a list of capsules per input;
        it then returns lists.
      output_layouts: a layout for each of the first outputs, or one for all.
      synchronize_stream: has no effect: the function is called when its inputs are ready.
      device: with "gpu", the results are put on the accelerator. Default: the host.

    Returns:
      One value; several outputs are returned as a list, and no outputs as an empty list.

    Raises:
      OperatorError: the function raised, or returned something else. The batch fails.

    Example:
      >>> to_torch, to_dlpack = torch.utils.dlpack.from_dlpack, torch.utils.dlpack.to_dlpack
      >>> noisy = fn.dl_tensor_python_function(images, function=lambda x: to_dlpack(to_torch(x).float() + 1))
    """
    op = DLTensorPythonFunction.of(function, num_outputs, batch_processing, output_layouts)
    return moved(add(op, *inputs, name=name), device)
