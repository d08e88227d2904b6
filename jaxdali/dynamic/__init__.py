"""The operators of `jaxdali.fn` as functions: ``images = jd.resize(jd.decoders.image(files), size=(224, 224))``.

Samples that fail: a function that is evaluated raises `jaxdali.SampleError`, whose `index` is the sample's number;
decoders accept ``on_error="replace"``, as in pipelines. Inside `jax.jit`, the program fails when it runs, with a
`jax.errors.JaxRuntimeError` that has the same text. A program on an accelerator can't fail: there such a sample is NaN,
or 0 if its type has no NaN. Numbers per sample are checked on the host in both cases.

Images are read as HWC unless they have another layout: ``jd.batch(x, layout="CHW")``. An array is a batch, whose first
axis counts samples: one image is ``[x]`` or ``x[None]``, a `tensor`, an image of Pillow, or a file's bytes. Functions
take arrays without a copy, and their results never share the memory of these; `batch` and `tensor` copy.

A function is compiled once for each number of samples: the first call with a new batch size takes about 30 ms more CPU
time, and that of a function of `jit` about 30 ms for each operator in it. If batches have any size, as in a server that
collects requests, pass only a few sizes, e.g. powers of two.

Threads and processes: functions may be called from many threads at the same time, and share one pool of native threads,
see `set_num_threads`. A call raises RuntimeError in a process that was forked after a function was called or JAX ran.
Readers run no JAX, so new ones can be used there.
"""

from typing import Any

from .. import fn as _fn
from .._core.tracebacks import boundary as _boundary
from . import random as random
from . import readers as readers
from ._batch import Batch as Batch
from ._batch import Tensor as Tensor
from ._functions import Functions as _Functions
from ._jit import jit as jit
from ._threads import get_num_threads as get_num_threads
from ._threads import set_num_threads as set_num_threads
from ._values import batch as batch
from ._values import tensor as tensor

_public = _Functions(_fn, __name__)
__all__ = sorted(
    [*_public, "Batch", "Tensor", "batch", "get_num_threads", "jit", "readers", "set_num_threads", "tensor"]
)  # pyright: ignore[reportUnsupportedDunderAll]


@_boundary
def __getattr__(name: str) -> Any:
    return _public[name]


def __dir__() -> list[str]:
    return __all__
