"""Types and copies between batches and PyTorch's tensors, under DALI's name for their module."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

import torch as _torch  # pyright: ignore[reportMissingImports]

from ... import types as _types
from ..._core import names as _names
from ...backend import TensorCPU as _TensorCPU
from ...backend import TensorGPU as _TensorGPU
from ._iterator import feed_ndarray as feed_ndarray

to_torch_type = {  # of `types.DALIDataType`
    _types.FLOAT: _torch.float32,
    _types.FLOAT64: _torch.float64,
    _types.FLOAT16: _torch.float16,
    _types.UINT8: _torch.uint8,
    _types.INT8: _torch.int8,
    _types.BOOL: _torch.bool,
    _types.INT16: _torch.int16,
    _types.INT32: _torch.int32,
    _types.INT64: _torch.int64,
}


def to_torch_tensor(dali_tensor: _TensorCPU | _TensorGPU, copy: bool) -> _torch.Tensor:
    """Converts a tensor of a pipeline's output to one of PyTorch, of the same shape and type, on the same device.

    Args:
      dali_tensor: the tensor, e.g. ``pipeline.run()[0].as_tensor()``.
      copy: whether to copy the elements. Otherwise both share them.
    """
    shared = _torch.from_dlpack(dali_tensor)
    return shared.clone() if copy else shared


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "feed_ndarray to_torch_tensor to_torch_type")
