"""Random operators of `jaxdali.fn.random` as functions of values, and their keys."""

from typing import TYPE_CHECKING, Any

from ._functions import broadcast as broadcast
from ._keys import RNG as RNG
from ._keys import fold_in as fold_in
from ._keys import split as split

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The operators; `_functions` puts them here."""
        ...
