"""The readers of `jaxdali.fn.readers` as classes that need no pipeline."""

from typing import Any

from .._core.tracebacks import boundary as _boundary
from ..fn import readers as _functions
from ._readers import Reader as Reader
from ._readers import Readers as _Readers

_public = _Readers(_functions, __name__)
__all__ = sorted([*_public, "Reader"])  # pyright: ignore[reportUnsupportedDunderAll]


@_boundary
def __getattr__(name: str) -> Any:
    return _public[name]


def __dir__() -> list[str]:
    return __all__
