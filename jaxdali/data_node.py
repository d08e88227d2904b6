"""`DataNode` and `newaxis`, under DALI's name for their module."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._core import names as _names
from ._core.graph import DataNode as DataNode
from .fn._tensor.subscript import newaxis as newaxis

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
