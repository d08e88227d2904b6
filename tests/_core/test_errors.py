"""Messages give only the reason, without names of the package's classes, and users can catch the errors by name."""

import inspect
import pickle
import re
import traceback
import warnings

import jax
import numpy as np
import pytest

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax import DALIGenericIterator

HERE = re.escape(__file__)


def message(define, **arguments):
    with pytest.raises(RuntimeError) as e:
        pipeline_def(define)(batch_size=2, device_id=None, **arguments).run()
    return str(e.value)


def vectors(*lengths):
    return fn.external_source(lambda: [np.arange(n, dtype=np.float32) for n in lengths])


REASONS = {
    "coin_flip": (
        lambda: fn.random.coin_flip(probability=fn.constant(fdata=[2.0])),
        "argument probability must be in 0 ... 1, got 2.0",
    ),
    "permute_batch": (
        lambda: fn.permute_batch(vectors(3, 4), indices=[9, 0]),
        "argument indices must be from 0 to 1, got 9",
    ),
    "subscript": (lambda: vectors(3, 4)[99], "index 99 is out of range for axis 0 of extent 3"),
    "slice": (
        lambda: fn.slice(vectors(3, 4), 1, 3, axes=[0]),
        "the window 1 ... 4 reaches outside the sample, of shape (3,)",
    ),
    "arithmetic": (lambda: vectors(3, 4) + vectors(3, 5), "sample 1: the shapes do not broadcast: (4,) + (5,)"),
    "clahe": (
        lambda: fn.clahe(
            fn.reshape(fn.cast(vectors(8, 8), dtype=types.UINT8), shape=[2, 2, 2], layout="HWC"),
            tiles_x=1,
            tiles_y=1,
            clip_limit=2.0,
        ),
        "1 or 3 channels",
    ),
    "decoders.image": (
        lambda: fn.decoders.image(fn.cast(vectors(9, 9), dtype=types.UINT8)),
        "the data are not an image of a known format",
    ),
}


@pytest.mark.parametrize("operator", REASONS)
def test_the_reason_stands_alone(operator):
    define, reason = REASONS[operator]
    text = message(define)
    assert re.match(
        rf"[\w.]*{re.escape(operator)} \(created at {HERE}:\d+\): (sample [01]: )?[^:]*{re.escape(reason)}", text
    ), text
    if operator != "decoders.image":
        assert not re.search("image|file", text.replace(__file__, ""))
    assert not re.search(r"\w+Error", text)


def test_user_functions_exception_is_named():
    def fail(x):
        raise ValueError("not today")

    assert "ValueError: not today" in message(lambda: fn.python_function(vectors(3, 3), function=fail))


def test_different_shards_are_reported_by_arguments():
    from jaxdali.plugin.jax import data_iterator

    sharding = jax.sharding.NamedSharding(
        jax.make_mesh((2,), ("x",), devices=jax.devices()[:2]), jax.sharding.PartitionSpec("x")
    )

    @data_iterator(output_map=["x"], size=8, sharding=sharding)
    def iterator(num_shards, shard_id):
        return fn.rotate(fn.zeros(shape=(8, 8, 3), dtype=types.UINT8), angle=30.0 + shard_id)

    with pytest.raises(RuntimeError, match=r"angle is 30.0 there, 31.0 here$"):
        iterator(batch_size=4)


def test_errors_of_docstrings_are_at_the_top():
    names = set()
    for _, function in inspect.getmembers(fn, inspect.isfunction):
        names |= set(re.findall(r"^\s+(\w+Error|DifferentShapes):", inspect.getdoc(function) or "", re.M))
    names |= {"ArgumentError", "ArgumentTypeError", "InputTypeError", "DifferentShapes", "OperatorError", "SampleError"}
    import builtins

    for name in names - set(vars(builtins)):
        error = getattr(jaxdali, name)
        assert (error.__module__, name in dir(jaxdali)) == ("jaxdali", True)
    with pytest.raises(jaxdali.ArgumentError):
        pipeline_def(lambda: fn.random.coin_flip(probability=2.0))(batch_size=1).build()


def lengths_iterator(lengths, define, **arguments):
    batches = iter(lengths)
    pipe = pipeline_def(
        lambda: [fn.constant(idata=[1]), define(fn.external_source(lambda: [np.arange(n) for n in next(batches)]))]
    )
    return DALIGenericIterator(pipe(batch_size=2, device_id=None), ["one", "tokens"], **arguments)


def test_different_shapes_names_the_output():
    with pytest.raises(jaxdali.DifferentShapes, match=r"samples of output 1 \('tokens'\) differ in shape") as e:
        next(lengths_iterator([(3, 4)], lambda x: x, prepare_first_batch=False))
    assert (e.value.output, e.value.key, e.value.shapes) == (1, "tokens", "(3,), (4,)")


@pytest.mark.parametrize(
    ("shapes", "layout", "axes", "advice"),
    [
        ([(3,), (4,)], "", "axis 0", ["shape: fn.pad(x, axes=[0], shape=[N])", "ragged={'x': N} pads"]),
        ([(8, 6), (8, 7)], "ft", "axis 1", ["shape: fn.pad(x, axes=[1], shape=[N])", "ragged={'x': (8, N)} pads"]),
        (
            [(2, 3, 3), (3, 5, 3)],
            "HWC",
            "the axes 0, 1",
            [
                "shape: fn.resize(x, size=(height, width)) for images, or fn.pad(x, axes=[0, 1], shape=[N, N])",
                "(N, N)} pads",
            ],
        ),
        ([(2, 2, 1), (2, 2, 3)], "HWC", "axis 2", ["shape: fn.pad(x, axes=[2]", "ragged={'x': (2, 2, N)} pads"]),
    ],
)
def test_advice_for_different_shapes_helps(shapes, layout, axes, advice):
    samples = [np.ones(shape, np.uint8) for shape in shapes]

    def x_of(define=lambda x: x, **arguments):
        pipe = pipeline_def(lambda: define(fn.external_source(lambda: samples, layout=layout or None)))
        return next(DALIGenericIterator(pipe(batch_size=2, device_id=None), ["x"], **arguments))["x"]

    with pytest.raises(
        jaxdali.DifferentShapes, match=rf"differ in shape along {axes} \({re.escape(str(shapes[0]))}"
    ) as e:
        x_of()
    assert all(text in str(e.value) for text in advice), e.value
    changed = [int(k) for k in re.findall(r"\d", axes)]
    assert x_of(lambda x: fn.pad(x, axes=changed, shape=[9] * len(changed))).shape[1 + changed[0]] == 9
    limits = re.search(r"\{'x': (.*?)\} pads", str(e.value))
    padded, _ = x_of(ragged={"x": eval(limits[1], {"N": 9})})
    assert padded.shape[1 + changed[0]] == 9


def test_third_shape_of_an_output_warns_once():
    def shapes_of(define):
        it = lengths_iterator([(3, 4), (3, 4), (1, 9), (5, 5), (6, 5), (7, 1)], define)
        return [next(it)["tokens"].shape for _ in range(6)]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        shapes = shapes_of(fn.pad)
    assert shapes == [(2, n) for n in (4, 4, 9, 5, 6, 7)]
    (warning,) = caught
    assert warning.filename == __file__
    assert re.search(
        r"output 1 \('tokens'\), of pad .*\(4,\), \(9,\), \(5,\).*fn.pad\(x, axes=\[0\], shape=\[N\]\)",
        str(warning.message),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shapes_of(lambda x: fn.pad(x, axes=[0], shape=[9])) == [(2, 9)] * 6


def test_names_do_not_control_terminals(tmp_path):
    r"""Escapes, lines and surrogates in names are written as `repr` does; `source` can still be opened."""
    path = str(tmp_path / "a\x1b[31mb\nc\udcff.jpg")
    with open(path, "wb") as f:
        f.write(b"no image")
    pipe = pipeline_def(lambda: fn.decoders.image(fn.readers.file(files=[path])[0]), batch_size=1, device_id=None)()
    with pytest.raises(jaxdali.SampleError) as sample_error:
        pipe.run()
    assert sample_error.value.source == path
    assert f"{tmp_path}/a\\x1b[31mb\\nc\\udcff.jpg: the data are not an image" in str(sample_error.value)
    pipe.close()
    name = r"a\\x1b\[31mb\nc\\udcff\.jpg"
    with (
        pytest.raises(jaxdali.OperatorError, match=f"{name} ends within a header"),
        pytest.warns(UserWarning, match=f"there is no index of .*{name}"),
    ):
        pipeline_def(lambda: fn.readers.webdataset(paths=path, ext="a"), batch_size=1, device_id=None)().build()


@pytest.mark.parametrize(
    "call",
    [
        lambda: fn.resize(np.zeros((4, 4, 3), np.uint8), sise=3),
        lambda: DALIGenericIterator([], ["x"]),
        lambda: pipeline_def(lambda: fn.external_source(lambda: np.zeros((2, 3)), num_outputs=3), batch_size=2)().run(),
        lambda: jd.random.uniform(),
        lambda: jd.batch(np.zeros((2, 3))).nonsense,
        lambda: jd.tensor(np.zeros((2, 3))).nonsense,
    ],
)
def test_classes_in_tracebacks(call):
    """They have no names of private modules, and survive pickle, also if users don't find them by their names."""
    with pytest.raises(Exception) as e:  # noqa: PT011
        call()
    name = traceback.format_exception_only(e.value)[0]
    assert re.match(r"(jaxdali\.)?[A-Z]\w+Error: ", name), name
    copy = pickle.loads(pickle.dumps(e.value))
    assert isinstance(e.value, type(copy))
    assert traceback.format_exception_only(copy)[0] == name


@pytest.mark.parametrize(
    ("define", "is_read"),
    [
        (lambda: fn.readers.source(["a", "bb"]), True),
        (lambda: fn.cast(fn.readers.source(["a", "bb"]), dtype=types.INT32), False),
        (lambda: fn.readers.source([np.arange(2), np.arange(3)]), False),
    ],
)
def test_bytes_of_different_lengths(define, is_read):
    with pytest.raises(jaxdali.DifferentShapes, match=r"can't become one array") as e:
        next(DALIGenericIterator(pipeline_def(define, batch_size=2)(), ["x"]))
    advice = "If these are files, fn.decoders.image decodes images, and metadata=[key] of readers.source passes on text"
    assert (advice in str(e.value)) == is_read


def test_padding_of_long_samples_names_slice():
    def define(advice="x"):
        x = fn.readers.source([np.arange(2), np.arange(1, 4)])
        return eval(advice, {"fn": fn, "x": fn.pad(x, axes=[0], shape=[1])})

    with pytest.raises(jaxdali.DifferentShapes, match=r"fn\.pad cuts nothing") as e:
        next(DALIGenericIterator(pipeline_def(define, batch_size=2)(), ["x"]))
    (advice,) = re.findall(r"fn\.slice\(.*?\)", str(e.value))
    pipeline = pipeline_def(define, batch_size=2)(advice.replace("N", "1"))
    assert next(DALIGenericIterator(pipeline, ["x"]))["x"].tolist() == [[0], [1]]
