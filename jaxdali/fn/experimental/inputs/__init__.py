"""``fn.experimental.inputs``: data that are fed and decoded bit by bit. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ...._core import names as _names
from ._video import video as video

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
