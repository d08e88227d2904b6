"""`operator_function`: makes a public function from a signature, a docstring, and an `Operator`.

A complete operator::

    class Gain(HostOperator):
        \"\"\"Multiplies by a number of each sample.\"\"\"

        name = "gain"
        dtype: np.dtype | None

        def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
            return (dataclasses.replace(x, dtype=self.dtype or x.dtype),)

        def run(self, ctx: HostContext, x: Value, *arguments: Value):
            a = self.arguments(ctx, arguments)
            return ([(x.sample(i) * a.factor[i]).astype(ctx.spec.dtype) for i in range(ctx.N)],)


    @operator_function(Gain)
    def gain(
        input: Input,
        /,
        *,
        factor: Annotated[PerSample[float], Range(0, 10)] = 1.0,
        dtype: DType | None = None,
        device: Literal["cpu"] | None = None,
        name: str | None = None,
        **hints: Unpack[Hints],
    ) -> DataNode:
        \"\"\"Multiplies by a number.

        Args:
          input: any tensor.
          factor: the factor. May be per sample.
          dtype: element type of the result. Default: the input's.
          name: of the node.

        Example:
          >>> fn.gain(images, factor=fn.random.uniform(range=(0.5, 1.5)))
        \"\"\"
        ...

The signature is the declaration; the body is never run. Arguments that may come per sample are read with
`Operator.arguments`; every other argument is a field of the operator with the same name, already checked and converted.
Arguments that many functions share are declared once, in a `TypedDict` (``**arguments: Unpack[Hints]``); an argument
with a `Default` has this default and its line of help in each of these functions.

A function that adds several operators, or whose arguments don't match the fields of one, is decorated with
``@operator_function("its.name")`` instead. Its body then runs and gets checked values, in which a list with DataNodes
has become one DataNode.

A call with a list of DataNodes as an input is repeated for each of them ("multiple input sets").
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypedDict, TypeVar

import jax
import numpy as np

from ..types import DALIImageType, DALIInterpType
from .arguments import Arguments, declared
from .building import DeferredWarning, add, is_node, replaying_draws, user_line, warn, warn_or_defer
from .calls import functions, records
from .declaration import INPUT, PER_FRAME, PER_SAMPLE, Argument, DType, arguments_of
from .errors import ArgumentError, ArgumentTypeError, UnexpectedArgumentError
from .graph import DataNode
from .language import language
from .names import unexpected
from .operator import Operator
from .words import sample_advice

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

ArrayLike = np.ndarray | jax.Array | bool | int | float | Sequence[int] | Sequence[float]
Input = Annotated[DataNode | ArrayLike | Sequence[DataNode], INPUT]
InputPerFrame = Annotated[Input, PER_FRAME]  # an input whose frames match those of the other inputs
ListOf = Sequence[T | DataNode] | np.ndarray | jax.Array  # elements may each be one per sample
OneOrMore = T | ListOf[T]
PerSample = Annotated[T | DataNode | np.ndarray | jax.Array, PER_SAMPLE]
PerFrame = Annotated[T | DataNode | np.ndarray | jax.Array, PER_SAMPLE, PER_FRAME]  # per sample, or per frame of one


@dataclasses.dataclass(frozen=True)
class Default:
    """The default and the line of help of an argument that many operators share. It stands beside the argument's type
    in a `TypedDict`.

    A line in a function's own docstring overrides it.
    """

    value: Any
    help: str


class SeededHints(TypedDict, total=False):
    """Hints to DALI's executor, which every operator accepts. They have no effect. For operators with a `seed`."""

    bytes_per_sample_hint: int | Sequence[int] | None
    preserve: bool | None


class Hints(SeededHints, total=False):
    """Hints for operators that draw no random numbers, and whose `seed` has no effect."""

    seed: int | None


class ColorHints(Hints, total=False):
    """Hints for operators with `image_type`, which treat every image as RGB, as in DALI."""

    image_type: DALIImageType | None


class ImageTypeHints(Hints, total=False):
    """Hints for operators that once had `image_type`."""

    image_type: DALIImageType | None


class DTypeHints(Hints, total=False):
    """Hints for operators whose `dtype` was called `output_dtype`."""

    output_dtype: DType | None


class TypeHints(Hints, total=False):
    """Hints for operators whose `dtype` was called `type`."""

    type: DType | None


class DTypeImageTypeHints(ImageTypeHints, DTypeHints, total=False):
    """Hints for operators that once had `image_type`, and whose `dtype` was called `output_dtype`."""


_ARGUMENTS = re.compile(r"^  (\w[\w, *]*):", re.MULTILINE)  # names of documented arguments in a docstring
_COMMON = ("device", "name")  # arguments of every operator, for which an operator has no fields
# Arguments that users often pass by position. The error names the first one that the function has, else its first.
_BY_POSITION = "size crop angle perm sigma window_size range mean shape axes file_root path num_classes".split()
_RENAMED = {"output_dtype": "dtype", "type": "dtype"}  # deprecated arguments, and what took their place
_IGNORED = {  # arguments without effect, for which DALI warns too, and the reason
    "seed": "the operator draws no random numbers",
    "image_type": "what the channels mean makes no difference",
    "memory_stats": "there are no such statistics",
    "normalize_text": "the text is given as it is",
    "split_stages": "there are no stages to split",
    "use_chunk_allocator": "there is no such allocator",
}


def operator_function(operator: type[Operator] | str) -> Callable[[F], F]:
    """Makes an operator from a signature; see the module's docstring.

    Args:
      operator: the operator that the function adds, whose arguments are its fields or come per sample; or only the public
        name, if the function's body adds operators itself.

    Returns:
      A decorator that keeps name and types, adds the hints to the docstring, and shows them in `inspect.signature` one
      by one. The function has an attribute `draws`, see `Declaration`.
    """

    def decorate(f: F) -> F:
        """Makes the public function from the declaration `f`."""
        declaration = Declaration(f, operator)

        @records(declaration.name)
        @functools.wraps(f)
        def function(*inputs: Any, **arguments: Any) -> Any:
            return declaration(inputs, arguments)

        function.__signature__ = declaration.signature  # pyright: ignore[reportAttributeAccessIssue]
        function.__doc__ = declaration.document(f.__doc__ or "")
        function.draws = declaration.draws  # pyright: ignore[reportAttributeAccessIssue]
        return typing.cast(F, function)

    return decorate


class Declaration:
    """The inputs and arguments of an operator, read from a function's signature. Annotations are resolved at the first
    call.

    Attributes:
      function: the function.
      name: the operator's public name.
      signature: the function's signature, with the hints one by one.
      hints: the names of the hints, which have no effect.
      _operator_class: the operator; None: the function's body makes operators itself.
      _hints: the `TypedDict` of ``**hints``; None: there is none.
      _defaults: the `Default` of each argument of `_hints` that has one: these are proper arguments, not hints.
      _ignored: by hint for which a call warns, the reason why it has no effect.
    """

    def __init__(self, f: Callable[..., Any], operator: type[Operator] | str):
        """Registers the declaration by its name. `operator` is as that of `operator_function`."""
        self.function = f
        self.name = operator if isinstance(operator, str) else operator.name
        self._operator_class = None if isinstance(operator, str) else operator
        if self.name in functions and (other_module := functions[self.name].__module__) != f.__module__:
            raise ValueError(
                f"there is already an operator {self.name!r}, of {other_module}: names of operators must be unique"
            )
        self._hints, self._defaults, self.signature = _expand_hints(f)
        # The parameters that the function itself declares. Shared ones that are not among them are hints, unless they
        # have a `Default`.
        own_names = f.__code__.co_varnames[: f.__code__.co_argcount + f.__code__.co_kwonlyargcount]
        shared = () if self._hints is None else self._hints.__annotations__
        self.hints = frozenset(n for n in shared if n not in own_names and n not in self._defaults)
        # DALI's operators with `ColorHints` still have `image_type`, so it is no reason for a warning.
        not_deprecated = (
            ColorHints.__annotations__.keys() - Hints.__annotations__.keys() if self._hints is ColorHints else ()
        )
        self._ignored = {n: reason for n, reason in _IGNORED.items() if n in self.hints and n not in not_deprecated}
        declared[self.name] = lambda: self.arguments

    @property
    def draws(self) -> bool:
        """Whether the function draws random numbers: it has a seed, which is not only a hint."""
        return "seed" in self.signature.parameters and "seed" not in self.hints

    @functools.cached_property
    def arguments(self) -> dict[str, Argument]:
        """Inputs and arguments, by name."""
        resolved = typing.get_type_hints(self.function, include_extras=True)
        hints = _resolved_hints(self._hints) if self._hints is not None else {}
        return arguments_of(self.signature, {**hints, **resolved}, (DataNode, np.ndarray, jax.Array))

    @functools.cached_property
    def fields(self) -> tuple[str, ...]:
        """The arguments that are fields of the operator: those that can't come per sample. Checks that each field
        without a default has an argument, and that each of these arguments has a field.
        """
        assert self._operator_class is not None
        fields = {f.name: f for f in self._operator_class.fields() if f.name != "args"}
        argument_names = {
            n
            for n, a in self.arguments.items()
            if not a.per_sample and not a.is_input and n not in _COMMON and n not in self.hints
        }
        required_fields = {n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING}
        assert required_fields <= argument_names <= {*fields}, (
            f"{self.name}: the operator has the fields {sorted(fields)}, the function the arguments {sorted(argument_names)}"
        )
        return tuple(argument_names)

    def document(self, text: str) -> str:
        """The docstring `text`, with lines for the arguments that all operators share."""
        text = inspect.cleandoc(text)
        # The section of arguments ends at the next blank line, where the other arguments are inserted.
        start = text.find("Args:\n")
        if start < 0:
            return text
        end = text.find("\n\n", start)
        end = len(text) if end < 0 else end
        documented = {n for names in _ARGUMENTS.findall(text) for n in names.split(", ")}
        shared_help = {n: d.help for n, d in self._defaults.items() if d.help}
        undocumented = [
            n for n in self.signature.parameters if (n in shared_help or n in _COMMON) and n not in documented
        ]
        lines = [f"  {n}: {shared_help.get(n) or self._help(n)}" for n in undocumented]
        lines += [f"  {old}: the deprecated name of `{new}`." for old, new in _RENAMED.items() if old in self.hints]
        # Not `seed`, which most operators accept.
        ignored = {n: reason for n, reason in self._ignored.items() if n not in documented and n != "seed"}
        lines += [f"  {n}: deprecated, without effect: {reason}." for n, reason in ignored.items()]
        hints = self.hints - documented - ignored.keys() - _RENAMED.keys()
        if hints:
            lines.append(f"  {', '.join(sorted(hints))}: hints to DALI's executor, without effect here.")
        return "\n".join([text[:end], *lines]) + text[end:]

    def _help(self, name: str) -> str:
        """The line of help for an argument that every operator has."""
        if name == "name":
            return "of the node."
        parameter = self.signature.parameters[name]
        annotation = parameter.annotation
        # The strings of a `Literal`; the annotation may be a text.
        values = re.findall(r"[\"'](\w+)[\"']", annotation if isinstance(annotation, str) else str(annotation))
        choices = [f'"{v}"' for v in values] + ["None"] * (parameter.default is None)
        text = f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]
        if values == ["cpu"]:
            return f"{text}."
        positional = [p for p in self.signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        has_inputs = any(p.default is p.empty for p in positional)
        return f"{text}: where the input is." if has_inputs else f"{text}: where the result is, by default the host."

    def __call__(self, inputs: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        """Calls the operator: checks the arguments, and makes nodes. Returns a DataNode or a list of them. Errors get
        the operator's name and the user's line.
        """
        try:
            return self._call(inputs, arguments)
        except (TypeError, ValueError) as e:
            line = user_line()
            if not str(e).endswith(f"(called at {line})"):
                start = "" if str(e).startswith(self.name) else f"{self.name}: "
                e.args = (f"{start}{e} (called at {line})",)
            raise

    def _call(self, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The call without the treatment of errors. With several input sets, the result is a list with the output for
        each set; for an operator with several outputs, a list of such lists, one for each output.
        """
        inputs, values = self._check(positional, named)
        input_sets = self._input_sets(inputs)
        if len(input_sets) == 1:
            return _as_list(self._add(input_sets[0], values))
        results: list[Any] = []
        random_indices: list[int] = []
        for input_set in input_sets:
            with replaying_draws(random_indices):  # all sets get the same random numbers
                results.append(_as_list(self._add(input_set, values)))
            values["name"] = None  # only the first node has the user's name
        return [list(outputs) for outputs in zip(*results)] if isinstance(results[0], list) else results

    def _check(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(inputs, checked arguments by name) of a call. Warns about arguments that are deprecated."""
        for n in named:
            if n not in self.signature.parameters:
                raise UnexpectedArgumentError(
                    unexpected(
                        self.name, n, (p.name for p in self.signature.parameters.values() if p.kind is p.KEYWORD_ONLY)
                    )
                )
        try:
            bound = self.signature.bind_partial(*positional, **named)
        except TypeError as e:
            # If there are more positional values than inputs, an example shows how arguments are passed.
            parameters = self.signature.parameters.values()
            input_names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
            keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
            example = next((n for n in keywords if self.arguments[n].required), "")
            example = example or next((n for n in (*_BY_POSITION, *keywords) if n in keywords), "")
            if len(positional) <= len(input_names) or not example:
                raise
            usage = f"takes {', '.join(input_names)} by position" if input_names else "has no inputs"
            raise ArgumentTypeError(
                f"{self.name}: {e}: it {usage}; arguments are passed by name, such as {example}="
            ) from None
        inputs: list[Any] = []
        values: dict[str, Any] = {}
        for name, a in self.arguments.items():
            if not a.is_input:
                x = bound.arguments.get(name, a.default)
                # None counts as not passed, unless it is a value. A default need not be checked.
                if x is None and not a.required:
                    values[name] = None if a.takes_none else a.default
                else:
                    values[name] = self._value(a, x) if name in bound.arguments or a.required else x
            elif self.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:  # *inputs
                inputs += bound.arguments.get(name, ())
            elif name in bound.arguments or not a.required:
                inputs.append(bound.arguments.get(name))
            else:
                raise ArgumentTypeError(f"{self.name}: the input {name!r} is missing")
        for n, reason in self._ignored.items():
            if values.get(n) is not None:
                text = f"{self.name}: the argument {n} is deprecated and has no effect: {reason}"
                warn(text, DeprecationWarning)
        for old, new in _RENAMED.items():
            if old in self.hints and values.get(old) is not None:
                warn(f"{self.name}: the argument {old} is deprecated: it is {new} now", DeprecationWarning)
                if new in named:
                    raise ArgumentTypeError(
                        f"{self.name}: {old} is the deprecated name of {new}: give only one of them"
                    )
                values[new] = self.arguments[new].check(self.name, values[old])
        return tuple(inputs), values

    def _value(self, a: Argument, x: Any) -> Any:
        """The checked and converted value of an argument. A DataNode, or a list with one, becomes a DataNode of values
        per sample, if the argument may have one.
        """
        if a.kinds and is_node(x):
            if not a.per_sample:
                raise ArgumentTypeError(
                    f"{self.name}: argument {a.name} must be {a.expected}, the same for all samples, got a DataNode"
                )
            return x
        if a.per_sample and isinstance(x, (list, tuple)) and any(map(is_node, x)):
            if a.many and a.lengths and len(x) not in a.lengths:
                raise a.error(self.name, x)
            return language().stack_nodes(
                [e if is_node(e) else dataclasses.replace(a, many=False).check(self.name, e) for e in x]
            )
        checked = a.check(self.name, x)
        # Numbers of interpolation types mean other types in Pillow, and from 3 on in OpenCV. 0 is the nearest pixel in
        # all libraries.
        if type(x) is int and x and isinstance(checked, DALIInterpType):
            libraries = "Pillow" if x < 3 else "Pillow and OpenCV"
            text = f"{self.name}: {a.name}={x} is types.{checked.name}; in {libraries} this number has another meaning: pass the member"
            warn_or_defer(DeferredWarning(user_line(), text))
        return checked

    def _input_sets(self, inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The inputs of each call: one call, or one for each element if inputs are lists of DataNodes."""
        lengths = set()
        for i, x in enumerate(inputs):
            if isinstance(x, (list, tuple)) and _holds_nodes(x):
                if isinstance(x, tuple) and all(map(is_node, x)):
                    raise ArgumentTypeError(
                        f"{self.name}: input {i} must be a DataNode, got {len(x)} of them in a tuple: a list of DataNodes is accepted, "
                        "and gives a list of results"
                    )
                if isinstance(x, tuple) or not all(map(is_node, x)):
                    raise ArgumentTypeError(
                        f"{self.name}: input {i} must be a DataNode, or a list that contains only DataNodes, got {x!r}{sample_advice(x)}"
                    )
                lengths.add(len(x))
        if not lengths:
            return [tuple(inputs)]
        if len(lengths) > 1:
            raise ArgumentError(
                f"{self.name}: lists of inputs must be equally long, got lengths {', '.join(map(str, sorted(lengths)))}"
            )
        # Call i gets element i of each list of DataNodes, and the other inputs unchanged.
        return [
            tuple(x[i] if isinstance(x, list) and x and is_node(x[0]) else x for x in inputs)
            for i in range(lengths.pop())
        ]

    def _add(self, inputs: tuple[Any, ...], values: Mapping[str, Any]) -> Any:
        """Makes the node of one call, or runs the body of a function that makes nodes itself."""
        if self._operator_class is None:
            return self.function(*inputs, **values)
        while inputs and inputs[-1] is None and not self._required(len(inputs) - 1):
            inputs = inputs[:-1]  # optional inputs that are not passed
        args, nodes = Arguments.of({n: values[n] for n, a in self.arguments.items() if a.per_sample}, is_node)
        op = self._operator_class(args=args, **{n: values[n] for n in self.fields})
        return add(op, *inputs, *nodes, device=values.get("device"), name=values.get("name"))

    def _required(self, i: int) -> bool:
        """Whether input `i` must be passed."""
        inputs = [a for a in self.arguments.values() if a.is_input]
        return i < len(inputs) and inputs[i].required


def _as_list(outputs: Any) -> Any:
    """Several outputs in DALI's form: a list is an input set for the next operator, a tuple is not."""
    return list(outputs) if isinstance(outputs, tuple) else outputs


def _holds_nodes(x: Any) -> bool:
    """Whether `x` is a DataNode, or a list or tuple with one at any depth."""
    return is_node(x) or (isinstance(x, (list, tuple)) and any(map(_holds_nodes, x)))


def _expand_hints(f: Callable[..., Any]) -> tuple[Any, dict[str, Default], inspect.Signature]:
    """Expands ``**arguments: Unpack[Hints]`` in a function's signature.

    Returns:
      (the class `Hints`, None if there is none; the defaults of its arguments that have a `Default`; the signature with
      a keyword-only parameter for each argument).
    """
    signature = inspect.signature(f)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return None, {}, signature
    annotation = parameters.pop().annotation
    if isinstance(annotation, str):  # with `from __future__ import annotations`
        annotation = eval(annotation, f.__globals__)
    (hints,) = typing.get_args(annotation)
    defaults: dict[str, Default] = {}
    hint_parameters: list[inspect.Parameter] = []
    for name, t in hints.__annotations__.items():
        if name in signature.parameters:  # the function declares this argument itself
            continue
        # Annotations are texts, and are resolved only where a `Default` is needed, because that takes time.
        text = t.__forward_arg__ if isinstance(t, typing.ForwardRef) else t
        if "Default(" in str(text):
            defaults[name] = next(m for m in _resolved_hints(hints)[name].__metadata__ if isinstance(m, Default))
            value = defaults[name].value
            parameters.append(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=_without_default(text)
                )
            )
        else:
            hint_parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=text)
            )
    # The order: the function's own parameters, shared arguments, `device` and `name`, hints.
    common = [p for p in parameters if p.name in _COMMON and p.kind is p.KEYWORD_ONLY]
    parameters = [*(p for p in parameters if p not in common), *common, *hint_parameters]
    return hints, defaults, signature.replace(parameters=parameters)


@functools.cache
def _resolved_hints(hints: Any) -> dict[str, Any]:
    """The resolved annotations of a `TypedDict`."""
    return typing.get_type_hints(hints, include_extras=True)


@functools.cache
def _without_default(annotation: Any) -> Any:
    """An annotation, resolved or as text, as a signature shows it: ``Annotated[int, Range(1), Default(4, "...")]``
    without its `Default`; the bare type if nothing else is annotated.
    """
    if isinstance(annotation, str):
        parts = typing.cast(Any, ast.parse(annotation, mode="eval").body).slice.elts
        remaining = [
            ast.unparse(p) for p in parts if not (isinstance(p, ast.Call) and ast.unparse(p.func).endswith("Default"))
        ]
        return f"Annotated[{', '.join(remaining)}]" if len(remaining) > 1 else remaining[0]
    remaining = tuple(m for m in annotation.__metadata__ if not isinstance(m, Default))
    return Annotated[(annotation.__origin__, *remaining)] if remaining else annotation.__origin__  # pyright: ignore[reportInvalidTypeForm]
