"""jax_function: traced into the program if that does not change its results, otherwise eager."""

import gc
import itertools
import logging
import weakref

import counts
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from small_images import SMALL, images, is_inline, run

import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def, types
from jaxdali._pipeline.pipeline import internals_of
from jaxdali._program import program
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator
from jaxdali.plugin.jax.fn import jax_function

IMAGES = [np.random.default_rng(0).integers(0, 255, (20 + i, 30, 3), np.uint8) for i in range(4)]


@pytest.mark.parametrize(
    "decorate",
    [
        lambda f: f,
        jax.jit,
        lambda f: jax.jit(jax.vmap(lambda x: f(x[None])[0])),
        lambda f: jax.vmap(jax.jit(lambda x: f(x[None])[0])),
    ],
)
def test_flip_is_traced_inline(decorate):
    flip = jax_function(decorate(lambda x: x[:, :, ::-1]))
    batches, pipe = run(lambda x: (x, flip(x)))
    for original, flipped in batches:
        np.testing.assert_array_equal(flipped, original[:, :, ::-1])
    assert is_inline(pipe)
    text = pipe.lower().as_text()
    assert "stablehlo.reverse" in text
    assert "callback" not in text
    assert pipe.run()[1].layout() == "HWC"
    pipe.close()


def test_decorator_forms():
    @jax_function
    def bare(x):
        return x

    @jax_function(num_outputs=2, output_layouts=("HWC", "AB"))
    def two(x):
        return x, x[:, 0]

    @jax_function(num_outputs=2, output_layouts="HWC")
    def same(x):
        return [x, x]

    assert (bare.__name__, two.__name__) == ("bare", "two")
    _, pipe = run(lambda x: (bare(x), *two(x), *same(x), jax_function(lambda x: (x[:, 0],))(x)))
    assert [o.layout() for o in pipe.run()] == ["HWC", "HWC", "AB", "HWC", "HWC", ""]
    pipe.close()


def test_inputs_may_be_constants_and_absent():
    batches, pipe = run(
        lambda x: (
            jax_function(lambda x, k, a: x * k.astype(x.dtype)[:, None, None, None] + a[:, None, None].astype(x.dtype))(
                x, 2, np.uint8([1, 2, 3])
            ),
            jax_function(lambda: jnp.arange(4.0))(),
        )
    )
    (a, b), _ = batches
    np.testing.assert_array_equal(a, (SMALL * 2 + np.uint8([1, 2, 3])).astype(np.uint8))
    np.testing.assert_array_equal(b, np.arange(4, dtype=np.float32))
    pipe.close()


# --- eager functions --------------------------------------------------------------------------------------------------


def test_eager_results_enter_later_programs():
    """Two eager functions, with native operators before, between and after them, make three programs."""
    double = jax_function(lambda x: x * 2, jit=False)

    def define(x):
        y = fn.resize(double(fn.resize(x, size=(4, 4))), size=(6, 6))
        z = fn.rotate(double(y), angle=jax_function(lambda x: jnp.full(4, 90.0), jit=False)(x), keep_size=True)
        return z, y + 1, x

    batches, pipe = run(define)

    def in_one_program(x):
        y = fn.resize(fn.resize(x, size=(4, 4)) * np.uint8(2), size=(6, 6))
        return fn.rotate(y * np.uint8(2), angle=90.0, keep_size=True), y + 1, x

    inline, inline_pipe = run(in_one_program)
    for outputs, expected in zip(batches, inline):
        for output, expected_output in zip(outputs, expected):
            np.testing.assert_array_equal(output, expected_output)
    assert internals_of(pipe).session.executor.programs() == 3
    pipe.close()
    inline_pipe.close()


def test_no_outputs_and_preserve():
    calls = []

    def define(x):
        assert jax_function(lambda x: calls.append(("kept", x.shape)), num_outputs=0)(x) is None
        jax_function(lambda x: calls.append("dropped"), num_outputs=0, preserve=False)(x)
        jax_function(lambda x: calls.append("unused") or x, jit=False)(x)
        return x

    _, pipe = run(define, n=2, exec_async=False, exec_pipelined=False)
    pipe.close()
    assert calls == [("kept", (4, 8, 9, 3)), "unused"] * 2


def test_ragged_batches_of_one_shape_each(caplog):
    """An input with another shape in each batch is compiled for each shape, with a warning if there are many."""

    @pipeline_def(batch_size=2)
    def definition():
        x = fn.external_source(source=lambda i: [np.full((i // 2 + 1, 3), i, np.float32)] * 2)
        return jax_function(lambda x: x.sum(axis=1))(x)

    pipe = definition()
    with caplog.at_level(logging.WARNING):
        for i in range(22):
            np.testing.assert_array_equal(pipe.run()[0].as_array(), np.full((2, 3), i * (i // 2 + 1)))
    pipe.close()
    assert len([r for r in caplog.records if "compiled for 9 shapes" in r.message]) == 1


@pytest.mark.parametrize("jit", [True, False])
def test_x64_follows_the_user(jit):
    for x64, want in ((False, np.int32), (True, np.int64)):
        with jax.enable_x64(x64):
            function = jax_function(lambda x: x * 2 + (1000 if x.dtype == np.int64 else 0), jit=jit)
            batches, pipe = run(lambda x: function(fn.cast(x, dtype=types.INT64)))  # noqa: B023
        pipe.close()
        assert batches[0][0].dtype == want
        np.testing.assert_array_equal(batches[0][0], SMALL.astype(want) * 2 + (1000 if x64 else 0))


def test_bfloat16_is_an_ordinary_output():
    @pipeline_def(batch_size=2)
    def definition():
        return jax_function(lambda: jnp.ones((2, 3), jnp.bfloat16))()

    with DALIGenericIterator(definition(), ["x"]) as it:
        assert next(it)["x"].dtype == jnp.bfloat16


@pytest.mark.parametrize("jit", [None, False])
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: (x, x), "returned 2 outputs, num_outputs is 1"),
        (lambda x: x[:2], "first axis"),
        (lambda x: x.sum(), r"first axis.*jax\.vmap\(f\) gives f one sample"),
        (lambda x: np.asarray([1, 2, 3, 4]), "must be a jax.Array, got ndarray"),
        (lambda x: jax.random.split(jax.random.key(0), 4), "array of random keys"),
        (lambda x: {"a": 1}["nothing"], "KeyError: 'nothing'"),
        (lambda x: x.reshape(7), "reshape"),
    ],
)
def test_errors_in_the_function(function, text, jit):
    with pytest.raises(RuntimeError, match=text):
        run(lambda x: jax_function(function, jit=jit)(x))


def test_error_in_one_batch_leaves_the_next():
    calls = itertools.count()

    def sometimes(x):
        if next(calls) == 1:
            raise KeyError("second call")
        return x

    _, pipe = run(lambda x: jax_function(sometimes)(x), n=1)
    with pytest.raises(RuntimeError, match="second call"):
        pipe.run()
    np.testing.assert_array_equal(pipe.run()[0].as_array(), SMALL)
    pipe.close()


def test_ragged_input_is_an_error():
    @jax_function
    def double(x):
        return x * 2

    @pipeline_def(batch_size=4)
    def definition():
        return double(fn.external_source(source=lambda: IMAGES, layout="HWC"))

    pipe = definition()
    location = rf"jax_function \(created at {__file__}:\d+\): double \({__file__}:\d+\)"
    with pytest.raises(
        RuntimeError,
        match=rf"{location}.*input 0 differ in shape.*\(20, 30, 3\), \(21, 30, 3\).*fn\.resize.*vmap can't help",
    ):
        pipe.run()
    pipe.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_outputs": -1}, ValueError),
        ({"device": "mixed"}, ValueError),
        ({"sharding": "batch"}, ValueError),
        ({"output_layouts": ("HWC", "HWC")}, RuntimeError),
        ({"output_layouts": 3}, TypeError),
        ({"output_layouts": [3]}, TypeError),
        ({"jit": True, "num_outputs": 0}, ValueError),
    ],
)
def test_wrong_options(options, error):
    with pytest.raises(error):
        jax_function(lambda x: x, **options)


def test_wrong_use():
    with pytest.raises(RuntimeError, match="inside a pipeline definition"):
        jax_function(lambda x: x)(1)
    with pytest.raises(RuntimeError, match="on the cpu"):
        run(lambda x: jax_function(lambda x: x, device="gpu")(x))
    with pytest.raises(ValueError, match="does not fit output 0"):
        run(lambda x: jax_function(lambda x: x, output_layouts="AB")(x))


# --- sharding --------------------------------------------------------------------------------------------------------

SHARDING = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))


def sharded(define, sharding=SHARDING, **options):
    @data_iterator(output_map=["x", "y"], size=1000, sharding=sharding)
    def definition(num_shards=1, shard_id=0):
        per_shard = 16 // num_shards
        x = fn.external_source(
            source=lambda i: np.full((2, 4), i.idx_in_batch + per_shard * shard_id, np.float32), batch=False
        )
        return x, define(x, shard_id)

    return definition(batch_size=16, **options)


@pytest.mark.one_device
def test_local_and_global_functions():
    shapes = []

    def local(x):
        shapes.append(x.shape)
        return x * 2

    def globally(x):
        shapes.append((x.shape, x.sharding))
        return x - x.mean()

    with sharded(lambda x, shard: jax_function(local)(x)) as it:
        batch = next(it)
        np.testing.assert_array_equal(batch["y"], batch["x"] * 2)
        assert batch["y"].sharding == SHARDING
        assert set(shapes) == {(2, 2, 4)}
    shapes.clear()
    with sharded(lambda x, shard: jax_function(globally, sharding=SHARDING)(x)) as it:
        batch = next(it)
        np.testing.assert_allclose(batch["y"], batch["x"] - 7.5)
        assert shapes[-1] == ((16, 2, 4), SHARDING)


GRID = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))


@pytest.mark.one_device
@pytest.mark.parametrize(
    ("sharding", "where"),
    [
        (SHARDING, NamedSharding(Mesh(np.array(jax.devices()[::-1]), ("batch",)), PartitionSpec("batch"))),
        (SHARDING, NamedSharding(SHARDING.mesh, PartitionSpec())),
        (SHARDING, NamedSharding(GRID, PartitionSpec("model", None, "data"))),
        (NamedSharding(GRID, PartitionSpec("data")), NamedSharding(GRID, PartitionSpec("model"))),
        (NamedSharding(GRID, PartitionSpec("data")), SHARDING),
    ],
    ids=["reversed", "replicated", "fewer devices", "another axis", "more devices"],
)
def test_global_functions_on_another_sharding(sharding, where):
    """They get the whole batch in order, and each shard gets its own results."""
    with sharded(
        lambda x, shard: jax_function(lambda x: x + jnp.arange(16.0)[:, None, None], sharding=where)(x), sharding
    ) as it:
        batch = next(it)
    assert batch["y"].sharding == sharding
    np.testing.assert_array_equal(batch["y"][:, 1, 3], 2 * np.arange(16.0))


@pytest.mark.one_device
def test_global_functions_of_short_batches():
    """Missing samples are zeros, which don't change a sum."""
    masked = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}

    @data_iterator(output_map=["x", "y"], size=16, sharding=SHARDING, **masked)
    def definition(num_shards=1, shard_id=0):
        x = fn.external_source(list(np.arange(1.0, 4 if shard_id < 4 else 2, dtype=np.float32)), batch=False)
        return x, jax_function(lambda x: 2 * x + x.sum(), sharding=SHARDING)(x)

    with definition(batch_size=16) as it:
        batches = list(it)
    for batch, count in zip(batches, (12, 4), strict=True):
        x, y = np.asarray(batch["x"])[batch["mask"]], np.asarray(batch["y"])[batch["mask"]]
        assert len(x) == count
        np.testing.assert_array_equal(y, 2 * x + x.sum())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.pure_callback(lambda a: a[:, ::-1], x, x),
        lambda x: jd.flip(x[..., None], horizontal=0, vertical=1).jax()[..., 0],
    ],
    ids=["callback", "native"],
)
def test_calls_in_functions_of_several_devices(function):
    """Operations that name the mesh of their program, which is not that of the outputs."""
    with sharded(lambda x, shard: jax_function(function)(x + np.arange(8).reshape(2, 4))) as it:
        batch = next(it)
        expected = np.asarray(batch["x"]) + np.arange(8).reshape(2, 4)[::-1]
        np.testing.assert_array_equal(batch["y"], expected)
        assert batch["y"].sharding == SHARDING


@pytest.mark.one_device
@pytest.mark.parametrize("jit", [None, False])
def test_global_functions_run_eagerly_on_request(jit):
    def is_traced(x):
        return x * 0 + float(isinstance(x, jax.core.Tracer))

    with sharded(lambda x, shard: jax_function(is_traced, sharding=SHARDING, jit=jit)(x)) as it:
        assert (np.asarray(next(it)["y"]) == (jit is None)).all()


def test_global_functions_without_outputs_run_eagerly(capsys):
    def show(x):
        print(isinstance(x, jax.core.Tracer))

    with sharded(lambda x, shard: jax_function(show, sharding=SHARDING, num_outputs=0)(x) or x) as it:
        next(it)
    assert set(capsys.readouterr().out.split()) == {"False"}


def _sizes(x):
    """``f32[2, 2]``, the shape of each sample."""
    return fn.cast(fn.shapes(x), dtype=types.FLOAT)


@pytest.mark.parametrize("decorate", [lambda f: f, jax.jit])
def test_shards_with_different_functions_run_eagerly(decorate, caplog):
    def numbered(x, shard):
        numbers = np.full((2, 2), shard, np.float32)
        return jax_function(decorate(lambda x: x * 0 + numbers))(_sizes(x))

    with caplog.at_level(logging.WARNING), sharded(numbered) as it:
        np.testing.assert_array_equal(np.asarray(next(it)["y"])[:, 0], [i // 2 for i in range(16)])
    assert "different things" in caplog.text


def test_callbacks_on_arrays_on_a_mesh():
    mesh = jax.make_mesh((len(jax.devices()),), ("d",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        factor = jnp.full((2, 2), 3, jnp.float32)
        scale = jax_function(lambda x: jax.pure_callback(lambda x: x + 1, x, x * factor))
        with sharded(lambda x, shard: scale(_sizes(x))) as it:
            np.testing.assert_array_equal(np.asarray(next(it)["y"]), [[7, 13]] * 16)


def test_shards_with_equal_functions_run_inline(caplog):
    def scaled(x, shard):
        factor = np.full((2, 2), 3, np.float32)
        inner = jax.jit(lambda x: jax.nn.relu(x * factor))
        return jax_function(lambda x: jax.pure_callback(lambda x: x + 1, x, inner(x)))(_sizes(x))

    with caplog.at_level(logging.WARNING), sharded(scaled) as it:
        np.testing.assert_array_equal(np.asarray(next(it)["y"]), [[7, 13]] * 16)
    assert "eagerly" not in caplog.text


def test_a_second_iterator_compiles_nothing():
    def make():
        scale = np.float32(2)
        inner = jax.jit(lambda x: x * np.full((1, 1, 1, 3), scale))

        def scaled(x):
            return jax.nn.relu(inner(jax.pure_callback(lambda y: y * scale, x, x)))

        with data_iterator(lambda: jax_function(scaled)(fn.resize(images(), size=(5, 5), dtype=types.FLOAT)), ["x"])(
            batch_size=4
        ) as it:
            return np.asarray(next(it)["x"])

    first = make()
    with counts.compilations() as compiled:
        np.testing.assert_array_equal(make(), first)
    assert not compiled


@pytest.mark.one_device
def test_dropped_programs_release_constants(monkeypatch):
    monkeypatch.setattr(program, "_programs", {})
    table = jnp.arange(256, dtype=jnp.float32)
    constant = weakref.ref(table)
    _, pipe = run(jax_function(lambda x, table=table: table[x], jit=True))
    pipe.close()
    del table, pipe, _
    assert program._capacities  # a later pipeline of this computation starts with these
    program._programs.clear()
    gc.collect()
    assert constant() is None


def test_nans_are_looked_for_in_eager_functions():
    """A program is not checked: gaps between samples may hold NaNs."""

    def logarithm(x):
        return jnp.log(x.astype(jnp.float32) * 0 - 1)

    with jax.debug_nans(True):
        ((result,), *_), pipe = run(jax_function(logarithm))
        assert np.isnan(result).all()
        pipe.close()
        with pytest.raises(RuntimeError, match=r"jax_function \(created at .*: logarithm .*nan.* encountered in log"):
            run(jax_function(logarithm, jit=False))
    assert "``jit=False`` to look for a NaN" in " ".join((jax_function.__doc__ or "").split())
