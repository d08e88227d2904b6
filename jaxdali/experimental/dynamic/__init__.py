"""DALI's dynamic mode: `jaxdali.dynamic` under the names and by the rules of ``nvidia.dali.experimental.dynamic``.

Everything but a `Batch` is one sample: an array, and also a list of numbers or of arrays. Random functions have a
default generator. New code should use `jaxdali.dynamic`, which has random numbers by JAX's keys, and `jit`.

Differs from DALI:

- Arithmetic with a NumPy array or scalar on the left of a `Tensor` follows DALI's rules, too; in DALI it is NumPy's.
- Comparisons of floats with negative integers, `math.min`, `max` and `clamp` of NaN, `math.rsqrt` of 0, and shifts by
  negative numbers or by all bits of a type have the values that NumPy gives. Division of integers by 0 gives 0. float16
  is computed with; bool is not shifted by bool.
- Tensors also have NumPy's subscripts (arrays, None), `len`, iteration, `bool`, `int`, `float` and `tolist`, batches
  have subscripts; DALI's lack or ignore these. `select` and `as_batch` of some samples have these samples.
- `layout=` always sets the layout, and must fit. Samples of different layouts are not made one batch. `cat` and `stack`
  take the layout that any of their inputs has. A subscript keeps the letters of the axes that are left at once, in DALI
  after it is evaluated.
- A list of files' bytes is a batch of files, and a named argument of one number takes a list or an array of one for
  each sample. Arguments that are whole numbers refuse fractions, which DALI cuts.
- Tensors are in the host's memory, those of enumeration members do not exist, and functions run when they are called.
- Readers take another batch size in each epoch.
"""

from typing import Any

import numpy as _np

from ... import dynamic as _dynamic
from ..._core.tracebacks import boundary as _boundary
from ...dynamic import get_num_threads as get_num_threads
from ...dynamic import set_num_threads as set_num_threads
from . import capture as capture
from . import checkpoint as checkpoint
from . import math as math
from . import random as random
from . import readers as readers
from ._contexts import Device as Device
from ._contexts import EvalContext as EvalContext
from ._contexts import EvalMode as EvalMode
from ._contexts import Stream as Stream
from ._contexts import device as device
from ._contexts import get_current_stream as get_current_stream
from ._contexts import get_current_stream as get_default_stream  # noqa: F401
from ._dtypes import DType as DType
from ._dtypes import dtype as dtype
from ._dtypes import type_id as type_id
from ._external_source import ExternalSource as ExternalSource
from ._functions import functions_with_dali_defaults as _functions_with_dali_defaults
from ._functions import missing_name_error as _missing_name_error
from ._values import Batch as Batch
from ._values import Tensor as Tensor
from ._values import as_batch as as_batch
from ._values import as_tensor as as_tensor
from ._values import batch as batch
from ._values import tensor as tensor

bool = DType.parse("bool")  # DALI's name
int8, int16, int32, int64 = map(DType.parse, ("i8", "i16", "i32", "i64"))
uint8, uint16, uint32, uint64 = map(DType.parse, ("u8", "u16", "u32", "u64"))
float16, float32, float64, bfloat16 = map(DType.parse, ("f16", "f32", "f64", "bfloat16"))
DataType, ImageType, InterpType = map(DType.parse, ("DataType", "ImageType", "InterpType"))

globals().update(_functions_with_dali_defaults(_dynamic, __name__))


def imread(filepaths: Any, /, *, device: Any = "cpu", **arguments: Any) -> Any:
    """Reads and decodes image files.

    Args:
      filepaths: a path, or its bytes as an array; or a list or a batch of them.
      device, **arguments: of `decoders.image`.

    Returns:
      An image, or a batch of them.

    Raises:
      SampleError: a file can't be read or decoded.
    """
    is_list = isinstance(filepaths, (list, tuple, Batch))
    data = []
    for path in filepaths if is_list else [filepaths]:
        # A tensor or an array holds the path's bytes.
        name: Any = path if isinstance(path, str) or hasattr(path, "__fspath__") else bytes(_np.asarray(path))
        with open(name, "rb") as f:
            data.append(f.read())
    decoders: Any = globals()["decoders"]
    return decoders.image(
        data if is_list else data[0], device="mixed" if str(device).startswith(("gpu", "tpu")) else "cpu", **arguments
    )


@_boundary
def __getattr__(name: str) -> Any:
    raise _missing_name_error(__name__, name, globals())
