"""jaxdali's iterators for JAX."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from . import fn as fn
from .clu import DALIGenericPeekableIterator as DALIGenericPeekableIterator
from .clu import peekable_data_iterator as peekable_data_iterator
from .iterator import DALIGenericIterator as DALIGenericIterator
from .iterator import data_iterator as data_iterator

if not _TYPE_CHECKING:
    _public = "DALIGenericIterator DALIGenericPeekableIterator clu data_iterator fn iterator peekable_data_iterator"
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), _public)  # `colocated` is not DALI's
