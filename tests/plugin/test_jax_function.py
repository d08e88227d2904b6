# ruff: noqa: NPY002  the global NumPy generator is what is tested
"""jax_function: traced into the program where that is faithful, eager where not."""

import array
import contextvars
import functools
import io
import itertools
import logging
import multiprocessing
import random
import threading
import types as types_of_python

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator
from jaxdali.plugin.jax.fn import jax_function

RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 255, (20 + i, 30, 3), np.uint8) for i in range(4)]
# Decoded, so that their shape is known when the pipeline is built.
SMALL = RNG.integers(0, 255, (4, 8, 9, 3), np.uint8)


def images():
    encoded = [np.frombuffer(png(x), np.uint8) for x in SMALL]
    return fn.resize(fn.decoders.image(fn.external_source(source=lambda: encoded)), size=(8, 9))


def png(x):
    file = io.BytesIO()
    Image.fromarray(x).save(file, "png")
    return file.getvalue()


def run(define, n=2, **options):
    """Outputs of n batches of a pipeline over SMALL, static in shape; and the pipeline."""

    @pipeline_def(batch_size=4, num_threads=1, seed=1, **options)
    def definition():
        return define(images())

    pipe = definition()
    batches = [[np.array(o.as_array()) for o in pipe.run()] for _ in range(n)]
    return batches, pipe


def is_inline(pipe):
    return pipe._session.executor.programs() == 1 and "custom_call @jaxdali_resize" in pipe.lower().as_text()


@pytest.mark.parametrize(
    "decorate",
    [lambda f: f, jax.jit, lambda f: jax.jit(jax.vmap(lambda x: f(x[None])[0])), lambda f: jax.vmap(jax.jit(lambda x: f(x[None])[0]))],
)
def test_flip_is_traced_inline(decorate):
    flip = jax_function(decorate(lambda x: x[:, :, ::-1]))
    batches, pipe = run(lambda x: (x, flip(x)))
    for before, after in batches:
        np.testing.assert_array_equal(after, before[:, :, ::-1])
    assert is_inline(pipe)
    text = pipe.lower().as_text()
    assert "stablehlo.reverse" in text
    assert "callback" not in text
    assert pipe.run()[1].layout() == "HWC"
    pipe.close()


def test_decorator_forms_keep_the_name_and_take_options():
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


# --- what can't be traced faithfully ---------------------------------------------------------------------------------

_counter = 0
_key = jax.random.key(0)


def _numpy_random(x):
    return x.astype(jnp.float32) + np.float32(np.random.uniform())


def _python_random(x):
    return x.astype(jnp.float32) + random.random()


def _global_counter(x):
    global _counter
    _counter += 1
    return x.astype(jnp.float32) + _counter


def _split_key(x):
    global _key
    _key, sub = jax.random.split(_key)
    return x.astype(jnp.float32) + jax.random.uniform(sub)


def _as_float(x):
    return x.astype(jnp.float32) + float(x.astype(jnp.float32).mean())


def _sharding(x):
    assert x.sharding.device_set == {jax.devices()[0]}
    return x + len(x.sharding.device_set)


def _text(x):
    return x + len(f"{x}") % 7


def _branch(x):
    return x + 1 if x.sum() > 0 else x


class _Stateful:
    def __init__(self):
        self.calls = []

    def __call__(self, x):
        self.calls.append(1)
        return x + len(self.calls)


@pytest.mark.parametrize(
    "function", [_numpy_random, _python_random, _global_counter, _split_key, _as_float, _sharding, _text, _branch, _Stateful()]
)
def test_what_can_not_be_traced_runs_eagerly_with_the_right_results(function, caplog):
    global _counter, _key
    _counter, _key = 0, jax.random.key(0)
    np.random.seed(3)
    random.seed(3)
    with caplog.at_level(logging.WARNING):
        batches, pipe = run(lambda x: (x, jax_function(function)(x)), n=3, exec_async=False, exec_pipelined=False)
    assert len([r for r in caplog.records if "runs eagerly" in r.message]) == 1
    pipe.close()
    # The same calls by hand, from the same state: trial traces must have left none.
    _counter, _key = 0, jax.random.key(0)
    np.random.seed(3)
    random.seed(3)
    if isinstance(function, _Stateful):
        assert len(function.calls) == 3
        function.calls.clear()
    for x, y in batches:
        np.testing.assert_allclose(y, function(jnp.asarray(x)), rtol=1e-6)


def test_iterators_and_closures():
    numbers = itertools.count(1)
    generator = np.random.default_rng(5)
    made = iter([np.float32(i) for i in range(10)])
    batches, pipe = run(
        lambda x: (
            jax_function(lambda x: jnp.full(4, next(numbers)))(x),
            jax_function(lambda x: jnp.full(4, generator.integers(1000)))(x),
            jax_function(lambda x: jnp.full(4, next(made)))(x),
        ),
        n=3,
        exec_async=False,
        exec_pipelined=False,
    )
    pipe.close()
    expected = np.random.default_rng(5)
    for i, (a, b, c) in enumerate(batches):
        assert (a[0], b[0], c[0]) == (i + 1, expected.integers(1000), i)


class _Slotted:
    __slots__ = ("n",)
    of_all = 0
    listed: list[int] = []  # noqa: RUF012  changed by a test

    def __init__(self):
        self.n = 0


def test_trials_leave_nothing_in_other_places():
    nnx = pytest.importorskip("flax.nnx")
    slotted, module, table = _Slotted(), types_of_python.ModuleType("users"), bytearray(1)
    module.n = 0
    dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    drop = nnx.jit(lambda m, x: m(x))
    _Slotted.of_all = 0
    _Slotted.listed.clear()

    @functools.lru_cache
    def weights(n):
        return jnp.arange(n, dtype=jnp.float32)

    def attribute(x):
        attribute.n += 1
        return jnp.full(4, attribute.n)

    def keyword(x, *, seen=[]):  # noqa: B006  what is tested
        seen.append(1)
        return jnp.full(4, len(seen))

    def slot(x):
        slotted.n += 1
        return jnp.full(4, slotted.n)

    def of_class(x):
        _Slotted.of_all += 1
        _Slotted.listed.append(1)
        return jnp.full(4, _Slotted.of_all * len(_Slotted.listed))

    def of_module(x):
        module.n += 1
        return jnp.full(4, module.n)

    def item(x):
        table[0] += 1
        return jnp.full(4, int(table[0]))

    attribute.n = 0
    functions = [attribute, keyword, slot, of_class, of_module, item]
    batches, pipe = run(
        lambda x: (
            *(jax_function(f)(x) for f in functions),
            jax_function(lambda x: weights(4))(x),  # the trial must not leave tracers in the cache
            jax_function(lambda x: drop(dropout, jnp.ones(4)))(x),  # whose tracing fails half-way
        ),
        n=3,
        exec_async=False,
        exec_pipelined=False,
    )
    pipe.close()
    fresh = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    for i, (*counts, cached, dropped) in enumerate(batches):
        assert [int(c[0]) for c in counts] == [i + 1, i + 1, i + 1, (i + 1) ** 2, i + 1, i + 1]
        np.testing.assert_array_equal(cached, np.arange(4))
        np.testing.assert_array_equal(dropped, fresh(jnp.ones(4)))


class _Table:
    """Its methods, and the functions of its module, are found by the names in a function's code only."""

    def __init__(self):
        self.array = array.array("i", [0])
        self.unnamed = iter(())

    def count(self):
        self.array[0] += 1
        return self.array[0]


def _counted_elsewhere():
    global _counter
    _counter += 1
    return _counter


def test_what_can_not_be_put_back_is_not_tried(tmp_path):
    """Each function counts its calls somewhere else: as many as there are batches."""
    table, shared, lines = _Table(), multiprocessing.Value("i", 0), tmp_path / "calls"
    calls: list[int] = []
    variable = contextvars.ContextVar("calls", default=calls)
    large = np.zeros((1 << 30) + 1, np.uint8)  # no page of which exists before it is written
    module = types_of_python.ModuleType("users")
    module.bump = _counted_elsewhere  # pyright: ignore[reportAttributeAccessIssue]

    def of_array(x):
        return jnp.full(4, table.count())

    def of_value(x):
        with shared.get_lock():
            shared.value += 1
        return jnp.full(4, shared.value)

    def of_variable(x):
        variable.get().append(1)
        return jnp.full(4, len(variable.get()))

    def of_large(x):
        large[0] += 1
        return jnp.full(4, large[0])

    def of_module(x):
        return jnp.full(4, module.bump())

    def of_file(x):
        with open(lines, "a") as file:
            file.write("call\n")
        return jnp.full(4, len(lines.read_text().splitlines()))

    def of_import(x):
        import sqlite3

        table.database = sqlite3.connect(tmp_path / "base")  # tried, it would fail at the second call
        table.database.execute(f"create table calls{table.count()} (n)")
        return jnp.full(4, table.array[0])

    global _counter
    _counter = 0
    for function in (of_array, of_value, of_variable, of_large, of_module, of_file, of_import):
        table.array[0] = 0
        batches, pipe = run(lambda x: jax_function(function)(x), n=2, exec_async=False, exec_pipelined=False)  # noqa: B023
        pipe.close()
        assert [int(b[0][0]) for b in batches] == [1, 2], function.__name__


def test_what_is_not_named_does_not_matter():
    """An object with a file, a lock and much data, of which the function uses a number."""
    with open(__file__) as file:
        owner = types_of_python.SimpleNamespace(factor=3, file=file, lock=threading.Lock(), samples=[("name", i) for i in range(200_000)])
        batches, pipe = run(lambda x: (x, jax_function(lambda x: x.astype(jnp.int32) * owner.factor)(x)))
    for x, y in batches:
        np.testing.assert_array_equal(y, x.astype(np.int32) * 3)
    assert is_inline(pipe)
    pipe.close()


def test_what_is_no_state_is_traced_inline():
    log, lock, settings = logging.getLogger("of a test"), threading.Lock(), types_of_python.SimpleNamespace(factor=3)

    def f(x):
        log.debug("traced")
        with lock:
            return x.astype(jnp.int32) * settings.factor

    batches, pipe = run(lambda x: (x, jax_function(f)(x)))
    for x, y in batches:
        np.testing.assert_array_equal(y, x.astype(np.int32) * 3)
    assert is_inline(pipe)
    pipe.close()


def test_jit_forces_either():
    batches, pipe = run(lambda x: jax_function(lambda x: x + 1, jit=False)(x))
    assert "stablehlo.add" not in pipe.lower().as_text()
    np.testing.assert_array_equal(batches[0][0], SMALL + 1)
    pipe.close()
    np.random.seed(0)
    batches, pipe = run(lambda x: jax_function(_numpy_random, jit=True)(x), n=3)  # frozen, as asked for
    np.testing.assert_array_equal(batches[0][0], batches[2][0])
    pipe.close()
    with pytest.raises(RuntimeError, match=r"jit=True.*float|jit=True.*Concretization"):
        run(lambda x: jax_function(_as_float, jit=True)(x))


def test_eager_results_go_on_into_later_programs():
    """Two eager functions with native operators between and after: three programs."""
    double = jax_function(lambda x: x * 2, jit=False)

    def define(x):
        y = fn.resize(double(fn.resize(x, size=(4, 4))), size=(6, 6))
        z = fn.rotate(double(y), angle=jax_function(lambda x: jnp.full(4, 90.0), jit=False)(x), keep_size=True)
        return z, y + 1, x

    batches, pipe = run(define)

    def in_one_program(x):
        y = fn.resize(fn.resize(x, size=(4, 4)) * np.uint8(2), size=(6, 6))
        return fn.rotate(y * np.uint8(2), angle=90.0, keep_size=True), y + 1, x

    inline, other = run(in_one_program)
    for got, want in zip(batches, inline):
        for g, w in zip(got, want):
            np.testing.assert_array_equal(g, w)
    assert pipe._session.executor.programs() == 3
    pipe.close()
    other.close()


def test_no_outputs_and_preserve():
    seen = []

    def define(x):
        assert jax_function(lambda x: seen.append(("kept", x.shape)), num_outputs=0)(x) is None
        jax_function(lambda x: seen.append("dropped"), num_outputs=0, preserve=False)(x)
        jax_function(lambda x: seen.append("unused") or x, jit=False)(x)
        return x

    _, pipe = run(define, n=2, exec_async=False, exec_pipelined=False)
    pipe.close()
    assert seen == [("kept", (4, 8, 9, 3)), "unused"] * 2


def test_ragged_batches_of_one_shape_each(caplog):
    """An input whose shape differs from batch to batch: compiled for each shape, with a warning when there are many."""

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


def growing(function):
    """A pipeline of two batches ``f32[2, 3]`` and then larger ones, whose shapes nobody knows before."""

    @pipeline_def(batch_size=2, exec_async=False, exec_pipelined=False)
    def definition():
        x = fn.external_source(source=lambda i: [np.ones((3 + 3 * (i // 2),), np.float32)] * 2)
        return jax_function(function)(x)

    return definition()


def test_a_new_pipeline_sees_new_values():
    factor = 1

    def scaled(x):
        return x * factor

    for factor in (1, 2, 3):
        pipe = growing(scaled)
        np.testing.assert_array_equal(pipe.run()[0].as_array(), np.full((2, 3), factor))
        pipe.close()


def test_each_shape_is_tried(caplog):
    random_when_large = lambda x: x + (np.random.rand() if x.shape[1] > 4 else 0)
    np.random.seed(7)
    pipe = growing(random_when_large)
    got = [np.array(pipe.run()[0].as_array())[0, 0] for _ in range(5)]
    pipe.close()
    np.random.seed(7)
    np.testing.assert_allclose(got, [1, 1, *(1 + np.random.rand(3))], rtol=1e-6)
    assert len([r for r in caplog.records if "runs eagerly" in r.message]) == 1


def test_a_variable_that_changes_between_shapes(caplog):
    factor, got = 1, []
    pipe = growing(lambda x: x * factor)
    for factor in range(1, 6):  # noqa: B007
        got.append(float(np.array(pipe.run()[0].as_array())[0, 0]))
    pipe.close()
    assert got == [1, 1, 3, 4, 5]  # read once, until it is seen to have changed
    assert "has changed since" in caplog.text


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
        (lambda x: x.sum(), "first axis"),
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


def test_ragged_input_within_a_batch_is_an_error():
    @jax_function
    def double(x):
        return x * 2

    @pipeline_def(batch_size=4)
    def definition():
        return double(fn.external_source(source=lambda: IMAGES, layout="HWC"))

    pipe = definition()
    at = rf"jax_function \(created at {__file__}:\d+\): double \({__file__}:\d+\)"
    with pytest.raises(RuntimeError, match=rf"{at}.*input 0 differ in shape.*\(20, 30, 3\), \(21, 30, 3\).*fn\.resize.*vmap can't help"):
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


def sharded(define, **options):
    @data_iterator(output_map=["x", "y"], size=1000, sharding=SHARDING)
    def definition(num_shards=1, shard_id=0):
        x = fn.external_source(source=lambda i: np.full((2, 4), i.idx_in_batch + 2 * shard_id, np.float32), batch=False)
        return x, define(x, shard_id)

    with pytest.warns(UserWarning, match="reader_name"):
        return definition(batch_size=16, **options)


def test_each_shard_sees_its_own_batch_and_global_functions_all():
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


def test_shards_with_different_functions_run_eagerly(caplog):
    with (
        caplog.at_level(logging.WARNING),
        sharded(lambda x, shard: jax_function(lambda x: jnp.full((2,), float(shard)))(fn.cast(fn.shapes(x), dtype=types.FLOAT))) as it,
    ):
        assert next(it)["y"].tolist() == [float(i // 2) for i in range(16)]
    assert "different things" in caplog.text


def test_a_second_iterator_compiles_nothing():
    seen = []

    def listener(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    def make():
        scale = np.float32(2)
        with data_iterator(lambda: jax_function(lambda x: x * scale)(fn.resize(images(), size=(5, 5), dtype=types.FLOAT)), ["x"])(
            batch_size=4
        ) as it:
            return np.asarray(next(it)["x"])

    first = make()
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        np.testing.assert_array_equal(make(), first)
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert seen == []
