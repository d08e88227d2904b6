"""The exceptions that jaxdali raises besides Python's own ``ValueError`` and ``TypeError``.

Users catch them as ``jaxdali.OperatorError`` and so on, or as the Python exceptions that they derive from.
"""

from __future__ import annotations

import errno
import os
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from .redaction import redacted

Shape: TypeAlias = tuple[int, ...]

LONGEST_QUOTE = 200  # characters of data in a message
_values = reprlib.Repr()  # of lists and dicts: few elements, and few levels
_values.maxstring = _values.maxother = LONGEST_QUOTE
_values.maxlist = _values.maxtuple = _values.maxdict = 20


def quoted(x: object) -> str:
    """The `repr` of a value from data, for a message: at most `LONGEST_QUOTE` characters and "...". A long or deep value
    costs no more than a short one.
    """
    return cut(repr(x[: LONGEST_QUOTE + 3]) if isinstance(x, (str, bytes)) else _values.repr(x))


def cut(text: str, longest: int = LONGEST_QUOTE) -> str:
    """A text for a message that quotes data, such as that of another exception: at most `longest` characters and
    "...".
    """
    return text if len(text) <= longest + 3 else f"{text[:longest]}..."


# Those that control a terminal, and surrogates, which can't be printed. Messages may have tabs and several lines.
_UNPRINTABLE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """A text for a message, such as one with the name of a file: without credentials, and without characters that would
    control a terminal, in whose place are their escapes.
    """
    return _UNPRINTABLE.sub(lambda character: ascii(character[0])[1:-1], redacted(text))


def unreadable(path: str | os.PathLike[str], e: OSError) -> str:
    """A path and the reason why it can't be read, for a message. If there is no such file, and the path is relative, the
    reason names the folder that it is relative to.
    """
    name = os.fspath(path)
    text = f"{name}: {e.strerror}"
    if e.errno != errno.ENOENT or "://" in name or os.path.isabs(name):
        return text
    try:
        return f"{text} (the path is relative to {os.getcwd()})"
    except OSError:  # the folder of the process was deleted
        return text


def located_message(operator: str, where: str, reason: object) -> str:
    """A message that begins with the operator and the user's line, also if `reason` already begins with them."""
    start = f"{operator} (created at {where}): "
    return start + str(reason).removeprefix(start).removeprefix(f"{operator}: ")


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def in_package(file: str) -> bool:
    """Whether a source file belongs to this package."""
    # A name such as "<string>" is none of a file. To make it absolute would fail without a working directory.
    return os.path.isabs(file) and os.path.normpath(file).startswith(_PACKAGE)


def is_self_explanatory(e: BaseException) -> bool:
    """Whether this package wrote the text of an exception for users, so that a message can omit the exception's
    class.
    """
    if isinstance(e, (ArgumentError, InputTypeError)):
        return True
    return type(e) in (ValueError, TypeError) and raised_by_package(e)


def raised_by_package(e: BaseException) -> bool:
    """Whether the innermost frame of an exception's traceback is in this package, not in a library or a user's
    function.
    """
    innermost = e.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and in_package(innermost.tb_frame.f_code.co_filename)


def _copied(cls: type[OperatorError], args: tuple[Any, ...], attributes: dict[str, Any]) -> OperatorError:
    """Makes an error without `__init__`, which would add the operator and the line to the message again."""
    copy = cls.__new__(cls)
    copy.args = args
    copy.__dict__.update(attributes)
    return copy


class OperatorError(RuntimeError):
    """A failure of one operator while a pipeline is built or runs.

    Attributes:
      operator: the name of the operator, e.g. ``"decoders.image"``.
      where: ``"file:line"`` where the user created it.
      reason: the cause in words, see `printable`.
    """

    __module__ = "jaxdali"  # where users find it

    def __init__(self, operator: str, where: str, reason: str):
        reason = printable(reason)
        super().__init__(located_message(operator, where, reason))
        self.operator = operator
        self.where = where
        self.reason = reason

    def __reduce__(self) -> Any:
        """Supports pickling: workers of other libraries send errors to the process that waits for them."""
        return _copied, (type(self), self.args, self.__dict__)


class SampleError(OperatorError):
    """A failure that was caused by one sample of a batch.

    Attributes:
      source: the origin of the sample: a path that can be opened, a file and a position in it, or the sample's number
        in its batch.
      code: the status code of ``ffi/common/status.h``.
      index: the sample's number in its batch; for an iterator over several devices, in the batch of this process.
    """

    __module__ = "jaxdali"

    def __init__(self, operator: str, where: str, source: str, reason: str, code: int = 0, *, index: int):
        source = redacted(source)
        name = source.replace("\n", "\\n")
        super().__init__(operator, where, f"{name}: {reason}" if source else reason)
        self.source = source
        self.code = code
        self.index = index


class DifferentShapes(OperatorError):
    """The samples of an output differ in shape, but must become one array.

    Attributes:
      shapes: up to four shapes of the samples, as text.
      distinct: all of them, each once, in order.
      output: number of the output in the pipeline; -1: it is not an output, but the input of a function.
      key: its name in the iterator's `output_map`; "" if there is none.
    """

    __module__ = "jaxdali"

    # shapes: those of all samples. layout: theirs, "" if it is not known. is_read: whether the samples are bytes that a
    # reader read.
    def __init__(
        self,
        operator: str,
        where: str,
        shapes: Iterable[Shape],
        output: int = -1,
        key: str = "",
        layout: str = "",
        is_read: bool = False,
    ):
        distinct = sorted(set(shapes))
        axes = differing_axes(distinct)
        text = ", ".join(map(str, distinct[:4])) + (f" and {len(distinct) - 4} more" if len(distinct) > 4 else "")
        subject = "this value" if output < 0 else f"output {output}" + (f" ({key!r})" if key else "")
        # The limits are those of the first axes, so they begin with the extents that do not differ.
        limits = ["N" if k in axes else str(distinct[0][k]) for k in range(axes[-1] + 1)] if axes else ["N"]
        limit = limits[0] if len(limits) == 1 else f"({', '.join(limits)})"
        name = repr(key or "name")
        files = (
            "If these are files, fn.decoders.image decodes images, and metadata=[key] of readers.source passes on text. "
            if is_read
            else ""
        )
        super().__init__(
            operator,
            where,
            f"the samples of {subject} differ in shape along {'axis' if len(axes) == 1 else 'the axes'} {', '.join(map(str, axes))} "
            f"({text}), so they can't become one array. {files}Give all batches one shape: "
            f"{one_shape(distinct, layout, operator)}. Or keep the shapes: a JAX iterator with "
            f"ragged={{{name}: {limit}}} pads the samples and returns their shapes, with ragged={{{name}: None}} it returns a list",
        )
        self.shapes = text
        self.distinct = distinct
        self.output = output
        self.key = key


def differing_axes(shapes: Sequence[Shape]) -> list[int]:
    """The axes along which shapes of one length differ."""
    return [k for k, extents in enumerate(zip(*shapes)) if len(set(extents)) > 1]


def one_shape(shapes: Sequence[Shape], layout: str = "", operator: str = "") -> str:
    """Advice on operators that give samples one shape, for a message.

    Args:
      shapes: different shapes of the samples.
      layout: the layout of the samples; "" if it is not known.
      operator: the name of the operator that made them; "": any.
    """
    axes = differing_axes(shapes)
    limits = f"[{', '.join('N' * len(axes))}]"
    pad = f"fn.pad(x, axes={axes}, shape={limits}) with the N of the longest sample"
    if operator == "pad":  # to a shape that is too small for some samples
        start = [0] * len(axes)
        pad += (
            f", as fn.pad cuts nothing; fn.slice(x, start={start}, shape={limits}, axes={axes}, "
            'out_of_bounds_policy="pad") pads and cuts'
        )
    # `fn.resize` takes samples of three axes without a layout as HWC.
    layout = layout or ("HWC" if shapes and len(shapes[0]) == 3 else "")
    is_resized = {layout[k] for k in axes if k < len(layout)} <= {"H", "W"} if layout else False
    return f"fn.resize(x, size=(height, width)) for images, or {pad}" if is_resized else pad


def _make_error(name: str, args: tuple[Any, ...]) -> BaseException:
    """Makes an error of this module."""
    return globals()[name](*args)


def _reduce(self: BaseException) -> tuple[Any, ...]:
    """The parts from which pickle makes an error whose class is not among the public names, as `__module__` says."""
    return _make_error, (type(self).__name__, self.args), self.__dict__


class ArgumentError(ValueError, RuntimeError):
    """An argument or a combination of arguments is invalid for an operator.

    It is a ValueError, as is usual in Python, and also a RuntimeError, which DALI raises for most of these when the
    pipeline is built, so that existing code that catches it keeps working.
    """

    __module__ = "jaxdali"

    def __init__(self, *args: object):
        super().__init__(*(printable(x) if isinstance(x, str) else x for x in args))


class ArgumentTypeError(TypeError, ArgumentError):
    """An argument has a wrong type, or is missing: a TypeError as in Python, and also the exception that DALI
    raises.
    """

    __module__ = "jaxdali"

    __init__ = ArgumentError.__init__  # TypeError's would come first


class UnexpectedArgumentError(ArgumentTypeError, KeyError):
    """An argument that the operator does not have: a TypeError as in Python, a KeyError as in DALI."""

    __module__ = "jaxdali"

    __str__ = ArgumentTypeError.__str__  # KeyError's would put quotes around the message
    __reduce__ = _reduce


class OutputsError(ArgumentTypeError, IndexError):
    """A source does not return what its outputs need. In DALI, this is a TypeError or an IndexError, depending on what
    it returns.
    """

    __module__ = "jaxdali"

    __reduce__ = _reduce


class InputTypeError(TypeError, RuntimeError):
    """The operator does not accept the types of its inputs: a TypeError as in Python, a RuntimeError as in DALI."""

    __module__ = "jaxdali"


class TooFewError(ValueError, IndexError):
    """There are fewer pipelines or outputs than needed: an IndexError in DALI."""

    __module__ = "jaxdali"

    __reduce__ = _reduce
