"""jaxdali for PyTorch: iterators, and functions of tensors. Needs the extra ``jaxdali[torch]``."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    import torch as _torch  # pyright: ignore[reportMissingImports]  # noqa: F401
except ModuleNotFoundError as _e:
    if _e.name != "torch":
        raise
    raise ImportError("jaxdali.plugin.pytorch needs PyTorch: pip install jaxdali[torch]") from _e

from ..._core import names as _names
from ..._iterator.iterator_options import LastBatchPolicy as LastBatchPolicy
from . import fn as fn
from ._iterator import DALIClassificationIterator as DALIClassificationIterator
from ._iterator import DALIGenericIterator as DALIGenericIterator
from ._iterator import DALIRaggedIterator as DALIRaggedIterator
from ._iterator import feed_ndarray as feed_ndarray
from ._torch_function import TorchPythonFunction as TorchPythonFunction
from .torch_utils import to_torch_type as to_torch_type

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
