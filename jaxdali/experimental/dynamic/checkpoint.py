"""DALI's module of this name: the states of readers and generators in one text."""

from ._checkpoint import Checkpoint as Checkpoint
from ._contexts import EvalContext as _EvalContext

__all__ = ["Checkpoint", "current"]


def current() -> Checkpoint:
    """The checkpoint of the current `EvalContext`. Outside of all contexts each thread has one of its own."""
    return _EvalContext.current().checkpoint
