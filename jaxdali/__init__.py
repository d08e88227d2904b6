"""NVIDIA DALI's pipeline API, native to JAX: pipelines are traced once and compiled by XLA."""

from . import _ffi as _ffi  # first, as it says best what is wrong when the compiled module is missing
from . import fn as fn
from . import math as math
from . import types as types
from ._config import show_config as show_config
from .errors import OperatorError as OperatorError
from .errors import SampleError as SampleError
from .fn._subscript import newaxis as newaxis
from .graph import DataNode as DataNode
from .host import BadSample as BadSample
from .pipeline import Pipeline as Pipeline
from .pipeline import pipeline_def as pipeline_def

__version__ = "0.1.0"
