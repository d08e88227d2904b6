"""NVIDIA DALI's pipeline API, native to JAX: pipelines are traced once and compiled by XLA. The index is
`__init__.pyi`.
"""

from ._core import compiled as _compiled  # isort: skip  # noqa: F401
from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._core import names as _names
from ._version import __version__ as __version__

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.lazy_index(__name__, globals())
