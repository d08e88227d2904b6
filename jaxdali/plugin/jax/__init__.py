"""jaxdali's iterators for JAX."""

from . import fn as fn
from .clu import DALIGenericPeekableIterator as DALIGenericPeekableIterator
from .clu import peekable_data_iterator as peekable_data_iterator
from .iterator import DALIGenericIterator as DALIGenericIterator
from .iterator import data_iterator as data_iterator
