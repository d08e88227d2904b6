"""The containers of outputs, under DALI's name for their module."""

from .backend import TensorCPU as TensorCPU
from .backend import TensorGPU as TensorGPU
from .backend import TensorListCPU as TensorListCPU
from .backend import TensorListGPU as TensorListGPU
