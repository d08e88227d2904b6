"""NVIDIA DALI's pipeline API, native to JAX: pipelines are traced once and compiled by XLA."""

from . import fn as fn
from . import math as math
from . import ops as ops
from . import pickling as pickling
from . import tensors as tensors
from . import tfrecord as tfrecord
from . import types as types
from ._batch.batch import BadSample as BadSample
from ._core.errors import ArgumentError as ArgumentError
from ._core.errors import ArgumentTypeError as ArgumentTypeError
from ._core.errors import DifferentShapes as DifferentShapes
from ._core.errors import InputTypeError as InputTypeError
from ._core.errors import OperatorError as OperatorError
from ._core.errors import SampleError as SampleError
from ._core.graph import DataNode as DataNode
from ._data.storage import Storage as Storage
from ._pipeline.config import show_config as show_config
from ._pipeline.show import show as show
from ._version import __version__ as __version__
from .fn._decode.encode_jpeg import encode_jpeg as encode_jpeg
from .fn._decode.jpeg import decode_jpeg as decode_jpeg
from .fn._tensor.subscript import newaxis as newaxis
from .pipeline import OperatorConcurrency as OperatorConcurrency
from .pipeline import Pipeline as Pipeline
from .pipeline import StreamPolicy as StreamPolicy
from .pipeline import pipeline_def as pipeline_def
