"""The exceptions that jaxdali raises besides Python's own ``ValueError`` and ``TypeError``.

Users catch ``jaxdali.OperatorError`` and ``jaxdali.SampleError``, and the others as the exceptions of Python's that they are.
"""

from __future__ import annotations


def about(operator: str, where: str, reason: object) -> str:
    """A message that names the operator and the user's line, once: the reason may have them already."""
    start = f"{operator} (created at {where}): "
    return start + str(reason).removeprefix(start).removeprefix(f"{operator}: ")


class OperatorError(RuntimeError):
    """A failure of one operator while a pipeline is built or runs.

    Attributes:
      operator: name of the operator, e.g. ``"decoders.image"``.
      where: ``"file:line"`` of the user's code that created it.
    """

    __module__ = "jaxdali"  # where users find it

    def __init__(self, operator: str, where: str, reason: str):
        super().__init__(about(operator, where, reason))
        self.operator = operator
        self.where = where
        self.reason = reason


class SampleError(OperatorError):
    """A failure that one sample of a batch is to blame for.

    Attributes:
      source: where the sample came from: a file as it can be opened, file and place in it, or the sample's number in its batch.
      code: the status code of ``ffi/common/status.h``.
    """

    __module__ = "jaxdali"

    def __init__(self, operator: str, where: str, source: str, reason: str, code: int = 0):
        super().__init__(operator, where, f"{source}: {reason}" if source else reason)
        self.source = source
        self.code = code


class ArgumentError(ValueError, RuntimeError):
    """An argument, or a combination of them, that an operator can't work with.

    A ValueError, as is usual in Python; also a RuntimeError, which is what DALI raises for most of these when the pipeline
    is built, so that existing code that catches that keeps working.
    """


class ArgumentTypeError(TypeError, ArgumentError):
    """An argument of a wrong type, or one that is missing: a TypeError as in Python, and whatever DALI raises for it."""


class InputTypeError(TypeError, RuntimeError):
    """Inputs of types that an operator does not take: a TypeError as in Python, a RuntimeError as in DALI."""


class TooFewError(ValueError, IndexError):
    """Fewer pipelines or outputs than are needed: an IndexError in DALI."""
