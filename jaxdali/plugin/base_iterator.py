"""`LastBatchPolicy`, under DALI's name for its module. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._core import names as _names
from .._iterator.iterator_options import LastBatchPolicy as LastBatchPolicy

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
