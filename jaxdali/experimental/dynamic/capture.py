"""DALI's module of this name, for loops with ``next_epoch(capture=True)``.

Capture changes no result. Here nothing is captured: functions run when they are called. `jaxdali.dynamic.jit` compiles
several of them into one program.
"""

from typing import TypeVar

__all__ = ["invariant"]

T = TypeVar("T")


def invariant(value: T) -> T:
    """Returns the value. In DALI it marks a value that stays the same while a loop is captured."""
    return value
