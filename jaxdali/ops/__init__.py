"""DALI's class API: ``op = ops.Resize(size=(224, 224))``, then ``op(images)`` in a pipeline definition.

There is a class for each function of `jaxdali.fn`, made from it: ``fn.decoders.image`` is ``ops.decoders.Image``,
``fn.random.coin_flip`` is ``ops.random.CoinFlip``. Its constructor and its call take the function's arguments, each
argument in one of the two places.
"""

from typing import Any

from .. import fn as _fn
from .._core.tracebacks import boundary as _boundary
from ._classes import Classes as _Classes
from ._compose import Compose as Compose

_public = _Classes(_fn, __name__)
__all__ = sorted([*_public, "Compose"])  # pyright: ignore[reportUnsupportedDunderAll]


@_boundary
def __getattr__(name: str) -> Any:
    return _public[name]


def __dir__() -> list[str]:
    return __all__
