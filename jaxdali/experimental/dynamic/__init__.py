"""DALI's dynamic mode: `jaxdali.dynamic` under the names of ``nvidia.dali.experimental.dynamic``, with its default generator.

As in DALI, an array is one sample; a `Batch`, or a list of samples, is a batch. New code does better with `jaxdali.dynamic`: random numbers
by JAX's keys, and `jit`.
"""

from typing import Any

import numpy as _np
from ml_dtypes import bfloat16 as _bfloat16

from ... import dynamic as _dynamic
from ... import math as math
from ... import types as _types
from ...dynamic import get_num_threads as get_num_threads
from ...dynamic import set_num_threads as set_num_threads
from ...types import DALIDataType as DataType
from ...types import DALIImageType as ImageType  # noqa: F401
from ...types import DALIInterpType as InterpType  # noqa: F401
from . import capture as capture
from . import checkpoint as checkpoint
from . import random as random
from . import readers as readers
from ._contexts import Device as Device
from ._contexts import EvalContext as EvalContext
from ._contexts import EvalMode as EvalMode
from ._contexts import Stream as Stream
from ._contexts import device as device
from ._contexts import get_current_stream as get_current_stream
from ._contexts import get_current_stream as get_default_stream  # noqa: F401
from ._external_source import ExternalSource as ExternalSource
from ._functions import functions_of as _functions_of
from ._functions import missing as _missing
from ._values import Batch as Batch
from ._values import Tensor as Tensor
from ._values import as_batch as as_batch
from ._values import as_tensor as as_tensor
from ._values import batch as batch
from ._values import tensor as tensor

DType = _np.dtype
bool = _np.dtype(_np.bool_)  # DALI's name
int8, int16, int32, int64 = map(_np.dtype, (_np.int8, _np.int16, _np.int32, _np.int64))
uint8, uint16, uint32, uint64 = map(_np.dtype, (_np.uint8, _np.uint16, _np.uint32, _np.uint64))
float16, float32, float64 = map(_np.dtype, (_np.float16, _np.float32, _np.float64))
bfloat16 = _np.dtype(_bfloat16)

globals().update(_functions_of(_dynamic, __name__))


def dtype(x: Any) -> _np.dtype:
    """An element type: of a member of `DataType`, or of what NumPy takes."""
    return _types.numpy_dtype(x)


def type_id(x: Any) -> DataType:
    """DALI's number for an element type."""
    return _types.dali_type_of(_types.numpy_dtype(x))


def imread(filepaths: Any, /, *, device: Any = "cpu", **arguments: Any) -> Any:
    """Reads and decodes image files.

    Args:
      filepaths: a path, or a list of them.
      device, **arguments: of `decoders.image`.

    Returns:
      An image, or a batch of them.

    Raises:
      SampleError: a file can't be read or decoded.
    """
    one = isinstance(filepaths, str) or hasattr(filepaths, "__fspath__")
    data = []
    for path in [filepaths] if one else filepaths:
        with open(path, "rb") as f:
            data.append(f.read())
    here: Any = globals()["decoders"]
    return here.image(data[0] if one else data, device="mixed" if str(device).startswith(("gpu", "tpu")) else "cpu", **arguments)


def __getattr__(name: str) -> Any:
    raise _missing(__name__, name, globals())
