"""What the language of `DataNode`s is made of.

Its operators are operators of a pipeline, which take `DataNode`s. So that neither imports the other, `jaxdali.fn` says here what to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class Language(Protocol):
    """The functions behind the language; all but one return DataNodes. `jaxdali.fn._language` has them."""

    def pointwise(self, function: str, *operands: Any) -> Any:
        """A pointwise function; NotImplemented when an operand is none."""
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
        """What is known of samples besides their values."""
        ...

    def constant_node(self, x: Any) -> Any:
        """A number, list or array. TypeError when it is none."""
        ...

    def narrowed(self, x: Any) -> np.ndarray:
        """A number, list or array with the type that it has as a constant. TypeError when it is none."""
        ...

    def array_node(self, array: np.ndarray, *, layout: str = "", device: str | None = None, name: str | None = None) -> Any:
        """An array as it is."""
        ...

    def stack_nodes(self, elements: Sequence[Any]) -> Any:
        """Numbers and scalar DataNodes as one vector per sample."""
        ...

    def predicate_of(self, x: Any, /) -> Any:
        """A value that `if` may ask for, on the host."""
        ...

    def merge(self, if_true: Any, if_false: Any, predicate: Any, /) -> Any:
        """What the branches of an `if` made, as one."""
        ...

    def logical(self, x: Any, expression: str, side: str, /) -> Any:
        """A side of `and` or `or`; or `not`."""
        ...


_language: Language | None = None


def set_language(functions: Language):
    """Called once, by `jaxdali.fn`."""
    global _language
    _language = functions


def language() -> Language:
    """What `set_language` was given."""
    assert _language is not None, "jaxdali.fn is not imported"
    return _language
