"""The containers of outputs, under the name of DALI's compiled module."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._core import names as _names
from .backend import TensorCPU as TensorCPU
from .backend import TensorGPU as TensorGPU
from .backend import TensorListCPU as TensorListCPU
from .backend import TensorListGPU as TensorListGPU

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
