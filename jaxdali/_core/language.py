"""The functions that implement the operators of `DataNode`.

These functions make operators, which take `DataNode`s. `jaxdali.fn` registers them here, so that neither module imports
the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class Language(Protocol):
    """The functions behind Python's operators on nodes. Most return DataNodes. `jaxdali.fn._language` defines them."""

    def pointwise(self, function: str, *operands: Any) -> Any:
        """Applies a pointwise function. Returns NotImplemented if an operand is not supported."""
        ...

    def subscript(self, node: Any, key: Any) -> Any:
        """A part of each sample."""
        ...

    def copy_to(self, node: Any, device: str) -> Any:
        """The value on "cpu" or "gpu"."""
        ...

    def shapes(self, node: Any, dtype: Any) -> Any:
        """The shape of each sample; `dtype` None: INT64."""
        ...

    def get_property(self, node: Any, /, *, key: Any, device: Any) -> Any:
        """Metadata of samples."""
        ...

    def constant_node(self, x: Any) -> Any:
        """A number, list or array as a node. Raises TypeError for other values."""
        ...

    def narrowed(self, x: Any) -> np.ndarray:
        """A number, list or array as an array of the type that a constant has. Raises TypeError for other values."""
        ...

    def array_node(
        self, array: np.ndarray, *, layout: str = "", device: str | None = None, name: str | None = None
    ) -> Any:
        """An array as a node, unchanged."""
        ...

    def stack_nodes(self, elements: Sequence[Any]) -> Any:
        """Numbers and scalar DataNodes as one vector per sample."""
        ...

    def predicate_of(self, x: Any, /) -> Any:
        """A value on the host that `if` can test."""
        ...

    def merge(self, if_true: Any, if_false: Any, predicate: Any, /) -> Any:
        """The values from the two branches of an `if`, merged into one."""
        ...

    def logical(self, x: Any, expression: str, side: str, /) -> Any:
        """An operand of `and` or `or`; or `not`."""
        ...


_language: Language | None = None


def set_language(functions: Language):
    """Registers the functions. `jaxdali.fn` calls it once."""
    global _language
    _language = functions


def language() -> Language:
    """The functions that were registered by `set_language`."""
    assert _language is not None, "jaxdali.fn is not imported"
    return _language
