"""jaxdali's iterators for JAX."""

from .iterator import DALIGenericIterator as DALIGenericIterator
from .iterator import data_iterator as data_iterator
