"""The exceptions that jaxdali raises besides Python's own ``ValueError`` and ``TypeError``.

Users catch them as ``jaxdali.OperatorError`` and so on, or as the exceptions of Python's that they are.
"""

from __future__ import annotations

import os
from typing import Any

from .redaction import redacted


def about(operator: str, where: str, reason: object) -> str:
    """A message that names the operator and the user's line, once: the reason may have them already."""
    start = f"{operator} (created at {where}): "
    return start + str(reason).removeprefix(start).removeprefix(f"{operator}: ")


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def in_package(file: str) -> bool:
    """Whether a source file is this package's."""
    return os.path.abspath(file).startswith(_PACKAGE)


def says_all(e: BaseException) -> bool:
    """Whether the text of an exception was written by this package for users, so that the name of its class adds nothing."""
    if isinstance(e, (ArgumentError, InputTypeError)):
        return True
    if type(e) not in (ValueError, TypeError):
        return False
    raised_in = e.__traceback__
    while raised_in is not None and raised_in.tb_next is not None:
        raised_in = raised_in.tb_next
    return raised_in is not None and in_package(raised_in.tb_frame.f_code.co_filename)


def _copied(cls: type[OperatorError], args: tuple[Any, ...], attributes: dict[str, Any]) -> OperatorError:
    copy = cls.__new__(cls)
    copy.args = args
    copy.__dict__.update(attributes)
    return copy


class OperatorError(RuntimeError):
    """A failure of one operator while a pipeline is built or runs.

    Attributes:
      operator: name of the operator, e.g. ``"decoders.image"``.
      where: ``"file:line"`` of the user's code that created it.
    """

    __module__ = "jaxdali"  # where users find it

    def __init__(self, operator: str, where: str, reason: str):
        reason = redacted(reason)
        super().__init__(about(operator, where, reason))
        self.operator = operator
        self.where = where
        self.reason = reason

    def __reduce__(self) -> Any:
        """Workers of other libraries send errors to the process that waits for them."""
        return _copied, (type(self), self.args, self.__dict__)


class SampleError(OperatorError):
    """A failure that one sample of a batch is to blame for.

    Attributes:
      source: where the sample came from: a file as it can be opened, file and place in it, or the sample's number in its batch.
      code: the status code of ``ffi/common/status.h``.
      index: the sample's number in its batch; of an iterator over several devices in that of this process.
    """

    __module__ = "jaxdali"

    def __init__(self, operator: str, where: str, source: str, reason: str, code: int = 0, *, index: int):
        source = redacted(source)
        super().__init__(operator, where, f"{source}: {reason}" if source else reason)
        self.source = source
        self.code = code
        self.index = index


class DifferentShapes(OperatorError):
    """The samples of an output differ in shape, but have to be one array.

    Attributes:
      shapes: those of the samples, as text.
      output: number of the output among those of the pipeline; -1: it is none, but the input of a function.
      key: the name that the iterator's `output_map` gives it; "" where there is none.
    """

    __module__ = "jaxdali"

    def __init__(self, operator: str, where: str, shapes: str, output: int = -1, key: str = ""):
        which = "this value" if output < 0 else f"output {output}" + (f" ({key!r})" if key else "")
        super().__init__(
            operator,
            where,
            f"the samples of {which} differ in shape ({shapes}), so they can't become one jax.Array; make them uniform: images with "
            "fn.resize(..., size=...), other arrays with fn.pad(x, axes=[0], shape=[N]), which gives all batches one shape "
            "(without shape= each batch gets that of its longest sample, and a jitted function compiles for each anew); a JAX iterator "
            f"pads them with ragged={{{key or 'name'!r}: N}}, or lists them with ragged={{{key or 'name'!r}: None}}",
        )
        self.shapes = shapes
        self.output = output
        self.key = key


class ArgumentError(ValueError, RuntimeError):
    """An argument, or a combination of them, that an operator can't work with.

    A ValueError, as is usual in Python; also a RuntimeError, which is what DALI raises for most of these when the pipeline
    is built, so that existing code that catches that keeps working.
    """

    __module__ = "jaxdali"

    def __init__(self, *args: object):
        super().__init__(*(redacted(x) if isinstance(x, str) else x for x in args))


class ArgumentTypeError(TypeError, ArgumentError):
    """An argument of a wrong type, or one that is missing: a TypeError as in Python, and whatever DALI raises for it."""

    __module__ = "jaxdali"

    __init__ = ArgumentError.__init__  # TypeError's would come first


class UnexpectedArgumentError(ArgumentTypeError, KeyError):
    """An argument that an operator has not: a TypeError as in Python, a KeyError as in DALI."""

    __module__ = "jaxdali"

    __str__ = ArgumentTypeError.__str__  # KeyError's would put quotes around the message


class OutputsError(ArgumentTypeError, IndexError):
    """A source does not return what its outputs need: a TypeError or an IndexError in DALI, by what it returns."""

    __module__ = "jaxdali"


class InputTypeError(TypeError, RuntimeError):
    """Inputs of types that an operator does not take: a TypeError as in Python, a RuntimeError as in DALI."""

    __module__ = "jaxdali"


class TooFewError(ValueError, IndexError):
    """Fewer pipelines or outputs than are needed: an IndexError in DALI."""
