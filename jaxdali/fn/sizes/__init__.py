"""``fn.sizes``: the sizes that vision-language models resize images to. The index is `__init__.pyi`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.lazy_index(__name__, globals())
