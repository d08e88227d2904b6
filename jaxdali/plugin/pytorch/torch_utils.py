"""Types and copies between batches and PyTorch's tensors, under DALI's name for their module."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

import torch as _torch  # pyright: ignore[reportMissingImports]

from ... import types as _types
from ..._core import names as _names
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

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "feed_ndarray to_torch_type")
