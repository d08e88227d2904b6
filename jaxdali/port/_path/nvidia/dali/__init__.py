"""`nvidia.dali` as an alias of jaxdali, for programs that find this folder first. `jaxdali.port` puts it on the path."""

import pathlib
import sys
from typing import Any

try:
    import jaxdali
except ModuleNotFoundError:  # this process has another search path than the first one
    sys.path.append(str(pathlib.Path(__file__).parents[5]))
    import jaxdali

from jaxdali.port import _alias

__version__ = _alias.VERSION
__all__ = dir(jaxdali)  # pyright: ignore[reportUnsupportedDunderAll]

_alias.install()


def __getattr__(name: str) -> Any:
    return getattr(jaxdali, name)


def __dir__() -> list[str]:
    return dir(jaxdali)
