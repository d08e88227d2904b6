"""Declarations of operators: a signature determines checks, the division into fields and inputs, and the documentation.
The tests declare an operator as users do.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Annotated, Literal, Unpack

import numpy as np
import pytest
from pipelines import run

from jaxdali import Pipeline, fn, ops, pipeline_def, tfrecord, types
from jaxdali._core.context import HostContext
from jaxdali._core.declaration import DType, Len, Range, checked
from jaxdali._core.errors import ArgumentError, ArgumentTypeError
from jaxdali._core.graph import DataNode
from jaxdali._core.operator import HostOperator
from jaxdali._core.operator_function import Default, Hints, Input, ListOf, OneOrMore, PerSample, operator_function
from jaxdali._core.values import Spec, Value


class Report(HostOperator):
    """Returns the arguments of its call as one vector."""

    name = "report"
    mode: str
    times: int
    dtype: np.dtype

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        return (Spec(self.dtype, 1, None),)

    def run(self, ctx: HostContext, x: Value, *arguments: Value):
        a = self.arguments(ctx, arguments)
        parts = [
            a.factor[:, None],
            a.vector("size", 2, one_for_all=True),
            a.get("axis"),
            np.full((ctx.N, 1), self.times),
        ]
        rows = np.concatenate([p for p in parts if p is not None], axis=1)
        return ([row.astype(self.dtype) for row in rows],)


@operator_function(Report)
def report(
    input: Input,
    /,
    *,
    factor: Annotated[PerSample[float], Range(0, 10)] = 1.0,
    size: PerSample[OneOrMore[float]] = (2, 3),
    axis: Annotated[PerSample[ListOf[float]] | None, Len(3)] = None,
    mode: Literal["a", "b"] = "a",
    times: Annotated[int, Range(1)] = 1,
    dtype: DType = types.FLOAT,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Reports its arguments.

    Args:
      input: anything.
      factor: a number. May be per sample.
      size: one for each axis.
      axis: three numbers.
      mode: "a" or "b".
      times: at least 1.
      dtype: of the report.
    """
    ...


class Loudness(Hints, total=False):
    """Arguments that several functions share."""

    times: Annotated[int, Range(1), Default(3, "how often. It is\n    at least 1.")]
    mode: Annotated[Literal["a", "b"], Default("b", "one of two.")]
    device: Annotated[Literal["cpu"] | None, Default(None, "")]
    name: Annotated[str | None, Default(None, "of a node that is loud.")]


class Repeated(Report):
    name = "repeated"


@operator_function(Repeated)
def repeated(
    input: Input, /, *, factor: PerSample[float] = 1.0, size: PerSample[OneOrMore[float]] = (2, 3), dtype: DType = types.FLOAT,
    **loudness: Unpack[Loudness],
) -> DataNode:  # fmt: skip
    """Reports its arguments.

    Args:
      input: anything.
      factor, size: numbers.
      dtype: of the report.
      times: of the report.
    """
    ...


@operator_function("shared")
def shared(**loudness: Unpack[Loudness]) -> list[DataNode]:
    """Has shared arguments alone.

    Args:
      bytes_per_sample_hint: a hint.
    """
    return [fn.constant(idata=loudness.get("times")), fn.constant(idata=ord(loudness.get("mode", "?")))]


def test_shared_arguments_have_types_defaults_and_help():
    """A shared declaration appears in signature and help, and is checked. A function's own help comes first."""
    parameters = inspect.signature(repeated).parameters
    assert [parameters[n].default for n in ("mode", "times")] == ["b", 3]
    assert [str(parameters[n].annotation) for n in ("mode", "times")] == [
        "Literal['a', 'b']",
        "Annotated[int, Range(1)]",
    ]
    lines = (repeated.__doc__ or "").splitlines()
    assert [line for line in lines if line.startswith("  times:")] == ["  times: of the report."]
    assert {"  mode: one of two.", "  name: of a node that is loud.", '  device: "cpu" or None.'} <= set(lines)
    assert "  times: how often. It is\n    at least 1." in (shared.__doc__ or "")

    def values(**arguments):
        return pipeline_def(lambda: tuple(shared(**arguments)))(batch_size=1)

    assert [np.asarray(x[0]).item() for x in values().run()] == [3, ord("b")]
    assert [np.asarray(x[0]).item() for x in values(times=5, mode="a").run()] == [5, ord("a")]
    for arguments, message in [
        ({"times": 0}, "times must be"),
        ({"mode": "c"}, "mode must be"),
        ({"tims": 1}, "'times'"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            values(**arguments).build()


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (fn.readers.file, '"cpu" or None.'),
        (fn.random.uniform, '"cpu", "gpu" or None: where the result is, by default the host.'),
        (fn.resize, '"cpu", "gpu" or None: where the input is.'),
    ],
)
def test_the_help_of_device_is_its_annotation(function, line):
    assert f"  device: {line}" in (function.__doc__ or "").splitlines()


def always(batch, **options):
    return fn.external_source(source=lambda: batch, **options)


def call(**arguments):
    """Rows of one batch; a list given as "per sample" comes from a source."""
    pipe = Pipeline(batch_size=2, num_threads=1)
    with pipe:
        nodes = {}
        for name, x in arguments.items():
            if isinstance(x, tuple) and x and x[0] == "per sample":
                x = always([np.float32(v) for v in x[1]])
            nodes[name] = x
        pipe.set_outputs(report(np.float32(0), **nodes))
    (rows,) = pipe.run()
    pipe.close()
    return [np.asarray(x).tolist() for x in rows]


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ({}, [[1, 2, 3, 1]] * 2),
        (
            {"factor": None, "size": None, "mode": None, "times": None, "dtype": None, "name": None, "device": None},
            [[1, 2, 3, 1]] * 2,
        ),
        ({"bytes_per_sample_hint": 5, "preserve": True}, [[1, 2, 3, 1]] * 2),
        ({"bytes_per_sample_hint": None, "preserve": None, "seed": None}, [[1, 2, 3, 1]] * 2),
        ({"factor": np.float64(3), "size": 7, "times": 2.0}, [[3, 7, 7, 2]] * 2),
        ({"factor": types.Constant(3), "size": np.array([4, 5])}, [[3, 4, 5, 1]] * 2),
        ({"factor": ("per sample", [3, 4]), "size": ("per sample", [[5, 6], [7, 8]])}, [[3, 5, 6, 1], [4, 7, 8, 1]]),
        ({"size": ("per sample", [5, 6]), "axis": [1, 0, 0]}, [[1, 5, 5, 1, 0, 0, 1], [1, 6, 6, 1, 0, 0, 1]]),
        ({"dtype": np.int32, "factor": 2}, [[2, 2, 3, 1]] * 2),
    ],
)
def test_values(arguments, rows):
    assert call(**arguments) == rows


def test_a_list_of_numbers_and_nodes():
    pipe = Pipeline(batch_size=2, num_threads=1)
    with pipe:
        x = fn.external_source(source=lambda: [np.float32(4), np.float32(5)])
        pipe.set_outputs(report(0, size=[x, 6]))
    assert [np.asarray(r).tolist() for r in pipe.run()[0]] == [[1, 4, 6, 1], [1, 5, 6, 1]]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            {"factor": "2"},
            TypeError,
            "report: argument factor must be a number in 0 ... 10, or a batch .*, got '2'",
        ),
        ({"factor": 11}, ArgumentError, "factor must be a number in 0 ... 10.*got 11"),
        ({"factor": float("nan")}, ArgumentError, "factor .*got nan"),
        ({"factor": 10**400}, ArgumentError, "factor"),
        ({"factor": [1, 2]}, TypeError, "factor"),
        ({"factor": object()}, TypeError, "factor .*got a object"),
        ({"size": {}}, TypeError, "size must be a finite number, or a list of finite numbers, or a batch"),
        ({"size": float("inf")}, ArgumentError, "size"),
        ({"size": [[1, 2]]}, TypeError, "size"),
        ({"axis": 1.0}, TypeError, "axis must be a list of 3 finite numbers"),
        ({"axis": [1, 2]}, ArgumentError, r"axis must be a list of 3 finite numbers, .*got \[1, 2\]"),
        ({"mode": "c"}, ArgumentError, "mode must be one of 'a', 'b', got 'c'"),
        ({"mode": 3}, TypeError, "mode"),
        ({"times": 1.5}, TypeError, "times must be a whole number at least 1, got 1.5"),
        ({"times": 0}, ArgumentError, "times must be a whole number at least 1, got 0"),
        ({"times": float("inf")}, TypeError, "times"),
        ({"dtype": "text"}, TypeError, "dtype must be a numeric type"),
        ({"device": "gpu"}, ArgumentError, "device must be 'cpu', got 'gpu'"),
        ({"name": 3}, TypeError, "name"),
        ({"preserve": "False"}, TypeError, "preserve must be True or False, got 'False'"),
        ({"preserve": 0.5}, TypeError, "preserve"),
        ({"sizes": 3}, TypeError, "report: got an unexpected argument 'sizes'; did you mean 'size'"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=f"{text}.*called at .*test_operator_function.py"):
        call(**arguments)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Range(0, 100), "in 0 ... 100"),
        (Range(0, 100, above=True), "above 0, at most 100"),
        (Range(0, above=True), "above 0"),
        (Range(0), "at least 0"),
        (Range(high=100), "at most 100"),
        (Range(1e-6, 2.0**24), "in 1e-06 ... 16777216"),
        (Range(-(2**31)), "at least -2147483648"),
        (Range(), ""),
    ],
)
def test_limits_in_words(limits, text):
    assert str(limits) == text


def test_limits_above_a_number():
    annotation = Annotated[float, Range(0, 100, above=True)]
    assert [checked("gain", "factor", annotation, x) for x in (0.5, 100)] == [0.5, 100]
    for x in (0, 101):
        with pytest.raises(ArgumentError, match=rf"factor must be a number above 0, at most 100, got {x}$"):
            checked("gain", "factor", annotation, x)


@pytest.mark.parametrize(
    ("axis", "text"), [([[1, 2], [3, 4]], "argument axis must have 3 numbers"), ([1, 2], "axis must have 3 numbers")]
)
def test_wrong_length_per_sample(axis, text):
    with pytest.raises((ValueError, RuntimeError), match=text):
        call(axis=("per sample", axis))


def test_a_sample_outside_the_range_is_named():
    with pytest.raises(RuntimeError, match=r"report.*sample 1.*argument factor must be in 0 ... 10, got 12"):
        call(factor=("per sample", [3, 12]))


def test_missing():
    with Pipeline(batch_size=1, num_threads=1):
        x = fn.external_source(source=lambda: [np.zeros(1)])
        with pytest.raises(ArgumentTypeError, match="cast: argument dtype is required"):
            fn.cast(x)  # pyright: ignore[reportCallIssue]
        with pytest.raises(ArgumentTypeError, match="cast: argument dtype is required"):
            fn.cast(x, dtype=None)  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match="report: the input 'input' is missing"):
            report()  # pyright: ignore[reportCallIssue]
        with pytest.raises(
            TypeError, match="argument mode must be one of 'a', 'b', the same for all samples, got a DataNode"
        ):
            report(x, mode=x)  # pyright: ignore[reportArgumentType]


def test_signature_and_document():
    parameters = inspect.signature(report).parameters
    assert list(parameters)[-3:] == ["bytes_per_sample_hint", "preserve", "seed"]
    assert parameters["factor"].default == 1.0
    assert all(p.kind is p.KEYWORD_ONLY for n, p in parameters.items() if n != "input")
    text = report.__doc__ or ""
    assert (
        "  name: of the node.\n  bytes_per_sample_hint, preserve, seed: hints to DALI's executor, without effect here."
        in text
    )
    assert text.count("device:") == 1


def test_lists_of_inputs():
    """As in DALI 2.4: a list for a list, a node for a list of one, a list for each output."""
    pipe = Pipeline(batch_size=1, num_threads=1)
    with pipe:
        a, b = (always([np.full((2, 2, 1), v, np.uint8)], layout="HWC") for v in (1, 2))
        both = fn.cast([a, b], dtype=types.INT32, name="first")
        assert isinstance(both, list)
        assert [x.name == "first" for x in both] == [True, False]
        one = fn.cast([a], dtype=types.INT32)
        assert isinstance(one, DataNode)
        for wrong, text in (
            ((a, b), "input 0 must be a DataNode, got 2 of them in a tuple: a list"),
            ([[a], b], "list that contains only DataNodes"),
            ([a, 3], "list that contains only DataNodes"),
        ):
            with pytest.raises(TypeError, match=text):
                fn.cast(wrong, dtype=types.INT32)  # pyright: ignore[reportArgumentType]
        pipe.set_outputs(*both, one)
    assert [np.asarray(x[0]).max() for x in pipe.run()] == [1, 2, 1]


def test_fields_match_the_functions_arguments():
    @operator_function(Report)
    def unfinished(input: Input, /, *, mode: str = "a", extra: Sequence[int] = ()) -> DataNode:
        """Lacks an argument, and has one too many."""
        ...

    with (
        Pipeline(batch_size=1, num_threads=1),
        pytest.raises(AssertionError, match=r"'dtype', 'mode', 'times'.*'extra', 'mode'"),
    ):
        unfinished(0)


def test_lists_of_inputs_meet():
    """A single input is used with each element of a list. Lists must be equally long."""
    with Pipeline(batch_size=1, num_threads=1):
        a, b, anchor = (always([np.zeros(2, np.float32)]) for _ in range(3))
        assert len(fn.decoders.image_slice([a, b], anchor, [anchor, anchor])) == 2  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="image_slice: lists of inputs must be equally long, got lengths 2, 3"):
            fn.decoders.image_slice([a, b], anchor, [anchor] * 3)
        both = fn.resize([a, b], size=3, save_attrs=True)
        assert [len(x) for x in both] == [2, 2]  # pyright: ignore[reportArgumentType]  # images of both, attributes of both


def test_deprecated_names_of_arguments():
    """`output_dtype` is `dtype`; `image_type`, and the seed of an operator that draws nothing, have no effect. The
    warnings are at the user's line.
    """
    x = [np.float32([[[1.4], [2.6]]])]
    with pytest.warns(DeprecationWarning) as caught:
        (out,) = run(lambda x: fn.crop(x, output_dtype=types.UINT8, image_type=types.RGB, seed=-1), x, layouts=("HWC",))
    assert sorted(str(w.message).partition(":")[2].partition(":")[0] for w in caught) == [
        " the argument image_type is deprecated and has no effect",
        " the argument output_dtype is deprecated",
        " the argument seed is deprecated and has no effect",
    ]
    assert {w.filename for w in caught} == {__file__}
    assert np.asarray(out[0]).ravel().tolist() == [1, 3]
    with pytest.raises(
        ValueError, match=r"rotate: output_dtype is the deprecated name of dtype: give only one of them"
    ):
        with pytest.warns(DeprecationWarning):
            run(lambda x: fn.rotate(x, angle=0, output_dtype=types.FLOAT, dtype=types.FLOAT), x, layouts=("HWC",))
    assert "  output_dtype: the deprecated name of `dtype`." in (fn.slice.__doc__ or "")
    with warnings.catch_warnings():  # as in DALI, where these are not deprecated
        warnings.simplefilter("error")
        rgb = [np.zeros((1, 1, 3), np.uint8)]
        run(lambda x: fn.hue(x, hue=3.0, image_type=types.BGR), rgb, layouts=("HWC",))
        run(lambda x: fn.noise.gaussian(x, seed=-1), rgb, layouts=("HWC",))


def test_several_outputs_are_an_input_set():
    """As in DALI 2.4: several outputs are a list, of operators, classes and sources. An operator that gets a list is
    called for each element, with the same arguments.
    """

    def source():
        return [np.arange(6, dtype=np.uint8).reshape(1, 2, 3)], [np.arange(12, dtype=np.uint8).reshape(1, 4, 3)]

    @pipeline_def(batch_size=1, num_threads=1, enable_conditionals=True)
    def define():
        images = fn.external_source(source, num_outputs=2, layout="HWC")
        assert isinstance(images, list)
        assert isinstance(ops.ExternalSource(source, num_outputs=2)(), list)
        single = fn.external_source(lambda: source()[:1], num_outputs=1, layout="HWC")
        assert isinstance(single, list)
        assert isinstance(fn.flip(single), DataNode)
        assert isinstance(fn.python_function(single[0], function=lambda x: (x, x), num_outputs=2), list)
        flag = fn.random.coin_flip(probability=1.0)
        flipped = fn.flip(images, horizontal=flag)
        assert isinstance(flipped, list)
        if flag:
            both = ops.Slice(axis_names="W")(flipped, 0.0, fn.constant(fdata=0.5))
        else:
            both = images
        assert isinstance(both, list)
        return (*both, *fn.cat(images, single[0], axis=1))

    a, b, c, d = (np.asarray(x[0]) for x in define().run())
    first, second = (x[0] for x in source())
    np.testing.assert_array_equal(a, first[:, ::-1][:, :1])
    np.testing.assert_array_equal(b, second[:, ::-1][:, :2])
    np.testing.assert_array_equal(c, np.concatenate([first, first], 1))
    np.testing.assert_array_equal(d, np.concatenate([second, first], 1))


SHARED = {
    "random_shuffle": True, "initial_fill": 3, "num_shards": 3, "shard_id": 2, "stick_to_shard": True, "pad_last_batch": True, "seed": 5,
    "on_error": "skip",
}  # fmt: skip
BODIES = {  # readers whose function makes the operator itself
    "caffe2": {"path": "x"},
    "numpy": {"files": ["x"]},
    "source": {"dataset": [1, 2, 3, 4]},
    "tfrecord": {"path": "x", "index_path": "y", "features": {"a": tfrecord.FixedLenFeature((), tfrecord.int64, 0)}},
    "webdataset": {"paths": "x", "ext": "jpg"},
}


@pytest.mark.parametrize("reader", BODIES)
def test_shared_arguments_reach_the_operator(reader):
    nodes = getattr(fn.readers, reader)(**BODIES[reader], **SHARED, name="reader")
    while not hasattr(nodes, "node"):
        nodes = next(iter(nodes.values() if isinstance(nodes, dict) else nodes))
    node = nodes.node
    while node.inputs:
        node = node.inputs[0].node
    assert {n: getattr(node.op, n) for n in SHARED} == SHARED
    assert node.name == "reader"


@pytest.mark.parametrize(
    ("call", "example"),
    [
        (lambda x: fn.brightness(x, 1.2), "brightness="),
        (lambda x: fn.flip(x, 1), "horizontal="),
        (lambda x: fn.gaussian_blur(x, 2.0), "sigma="),
        (lambda x: fn.cast(x, types.FLOAT), "dtype="),
        (lambda x: fn.resize(x, (8, 8)), "size="),
        (lambda x: fn.random.uniform(-1, 1), "range="),
    ],
)
def test_arguments_by_position(call, example):
    with pytest.raises(TypeError, match=f"by position; arguments are passed by name, such as {example} "):
        call(np.zeros((4, 4, 3), np.uint8))
