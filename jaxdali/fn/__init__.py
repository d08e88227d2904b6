"""The operators, under DALI's names. Their index is `__init__.pyi`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._core import names as _names
from .._core.language import set_language as _set_language
from . import _conditional as _conditional
from . import _language

_set_language(_language)

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.lazy_index(__name__, globals())
