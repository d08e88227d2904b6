# ruff: noqa: NPY002  the global NumPy generator is what is tested
"""Functions of jax_function that are traced into the program, and those that run eagerly, as tracing would change their
results.
"""

import array
import contextvars
import dis
import functools
import inspect
import itertools
import logging
import multiprocessing
import random
import re
import threading
import types as types_of_python

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_images import SMALL, is_inline, run

import jaxdali.dynamic as jd
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax._tracing import reachability
from jaxdali.plugin.jax._tracing.trace import trace_once
from jaxdali.plugin.jax.fn import jax_function

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
    return x + int(x.sharding.device_set == {jax.devices()[0]})  # `assert` would reach all of pytest


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
    "function",
    [_numpy_random, _python_random, _global_counter, _split_key, _as_float, _sharding, _text, _branch, _Stateful()],
)
def test_untraceable_functions_run_eagerly(function, caplog):
    global _counter, _key
    _counter, _key = 0, jax.random.key(0)
    np.random.seed(3)
    random.seed(3)
    with caplog.at_level(logging.WARNING):
        batches, pipe = run(lambda x: (x, jax_function(function)(x)), n=3, exec_async=False, exec_pipelined=False)
    assert len([r for r in caplog.records if "runs eagerly" in r.message]) == 1
    pipe.close()
    # The same calls by hand, from the same state: trial traces must not have changed it.
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
    iterator = iter([np.float32(i) for i in range(10)])
    batches, pipe = run(
        lambda x: (
            jax_function(lambda x: jnp.full(4, next(numbers)))(x),
            jax_function(lambda x: jnp.full(4, generator.integers(1000)))(x),
            jax_function(lambda x: jnp.full(4, next(iterator)))(x),
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


def test_trials_leave_no_state():
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
            jax_function(lambda x: drop(dropout, jnp.ones(4)))(x),  # its tracing fails half-way
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
    """A user's object, whose methods are found only by the names in a function's code."""

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


def test_unrestorable_state_prevents_trials(tmp_path):
    """Each function counts its calls in another place. The counts must be those of the batches, without trials."""
    table, shared, lines = _Table(), multiprocessing.Value("i", 0), tmp_path / "calls"
    calls: list[int] = []
    variable = contextvars.ContextVar("calls", default=calls)
    large = np.zeros((1 << 30) + 1, np.uint8)  # its pages exist only when they are written
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

        table.database = sqlite3.connect(tmp_path / "base")  # a trial would make the second call fail
        table.database.execute(f"create table calls{table.count()} (n)")
        table.database.close()
        return jnp.full(4, table.array[0])

    global _counter
    _counter = 0
    for function in (of_array, of_value, of_variable, of_large, of_module, of_file, of_import):
        table.array[0] = 0
        batches, pipe = run(lambda x: jax_function(function)(x), n=2, exec_async=False, exec_pipelined=False)  # noqa: B023
        pipe.close()
        assert [int(b[0][0]) for b in batches] == [1, 2], function.__name__


def test_unnamed_state_is_ignored():
    """An object with a file, a lock and much data; the function uses only a number of it."""
    with open(__file__) as file:
        owner = types_of_python.SimpleNamespace(
            factor=3, file=file, lock=threading.Lock(), samples=[("name", i) for i in range(200_000)]
        )
        batches, pipe = run(lambda x: (x, jax_function(lambda x: x.astype(jnp.int32) * owner.factor)(x)))
    for x, y in batches:
        np.testing.assert_array_equal(y, x.astype(np.int32) * 3)
    assert is_inline(pipe)
    pipe.close()


def test_stateless_objects_are_traced_inline():
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


def clip():
    multiprocessing.active_children()


def test_methods_are_no_globals(caplog):
    """A function with the name of a method is not called by it."""
    (((x, y),), pipe) = run(lambda x: (x, jax_function(lambda x: x.clip(3, 5))(x)), n=1)
    np.testing.assert_array_equal(y, np.clip(x, 3, 5))
    assert not caplog.records
    pipe.close()


def test_names_of_globals():
    """`dis` finds the same in many functions, also with numbers above 255."""
    operations = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    many = "def f(x):\n    global a\n    a = 1\n    del b\n" + "".join(f"    x.m{i}(g{i})\n" for i in range(300))
    codes = [f.__code__ for f in vars(inspect).values() if inspect.isfunction(f)]
    for code in [*codes, compile(many, "", "exec").co_consts[0]]:
        assert reachability._globals_of(code) == {
            i.argval for i in dis.get_instructions(code) if i.opname in operations
        }


def test_jit_forces_either():
    batches, pipe = run(lambda x: jax_function(lambda x: x + 1, jit=False)(x))
    assert not re.search(r"stablehlo\.add .*ui8", pipe.lower().as_text())  # indices are added in int32
    np.testing.assert_array_equal(batches[0][0], SMALL + 1)
    pipe.close()
    np.random.seed(0)
    batches, pipe = run(lambda x: jax_function(_numpy_random, jit=True)(x), n=3)  # frozen, as asked for
    np.testing.assert_array_equal(batches[0][0], batches[2][0])
    pipe.close()
    with pytest.raises(RuntimeError, match=r"jit=True.*float|jit=True.*Concretization"):
        run(lambda x: jax_function(_as_float, jit=True)(x))


def growing(function):
    """A pipeline of two batches ``f32[2, 3]`` and then larger ones, with shapes that are not known before."""

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
    values = [np.array(pipe.run()[0].as_array())[0, 0] for _ in range(5)]
    pipe.close()
    np.random.seed(7)
    np.testing.assert_allclose(values, [1, 1, *(1 + np.random.rand(3))], rtol=1e-6)
    assert len([r for r in caplog.records if "runs eagerly" in r.message]) == 1


@pytest.mark.parametrize("decorate", [lambda f: f, jax.jit])
def test_changed_variable_at_a_new_shape(decorate, caplog):
    factor, values = jnp.float32(1), []
    pipe = growing(lambda x: decorate(lambda x: x * factor)(x))
    for factor in map(jnp.float32, range(1, 6)):  # noqa: B007
        values.append(float(np.array(pipe.run()[0].as_array())[0, 0]))
    pipe.close()
    assert values == [1, 1, 3, 4, 5]  # read once, until a new shape shows that it has changed
    assert "have changed since" in caplog.text


# --- fingerprints -----------------------------------------------------------------------------------------------------


def _call(callback, x):
    return jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")


def _custom_vjp(a):
    function = jax.custom_vjp(lambda x: x * a)
    function.defvjp(lambda x: (x * a, None), lambda _, g: (g * a,))
    return function


def _custom_jvp(a):
    function = jax.custom_jvp(lambda x: x * a)
    function.defjvp(lambda x, t: (x[0] * a, t[0] * a))
    return function


def _policy(a):
    return jax.checkpoint(lambda x: x * a, policy=jax.checkpoint_policies.save_only_these_names("a"))


def _shard_map(a):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    return jax.shard_map(lambda x: x * a, mesh=mesh, in_specs=spec, out_specs=spec)


def _repeated(a):
    inner = jax.jit(lambda x: x * a)
    return lambda x: inner(inner(x)) + inner(x)


def _read_only(a):
    table = np.asarray(a).copy()
    table.flags.writeable = False
    return lambda x: _call(lambda x: x * table, x)


# Functions of an array, by which they multiply somewhere inside. The text of a jaxpr does not show it.
SCALED = {
    "outermost": lambda a: lambda x: x * a,
    "jit": lambda a: jax.jit(lambda x: x * a),
    "numpy": lambda a: jax.jit(lambda x: x * np.asarray(a)),
    "jit_of_jit": lambda a: jax.jit(lambda x: jax.jit(lambda x: x * a)(x) + 1),
    "vmap": lambda a: jax.vmap(jax.jit(lambda x: x * a)),
    "map": lambda a: lambda x: jax.lax.map(jax.jit(lambda x: x * a), x),
    "scan": lambda a: lambda x: jax.lax.scan(lambda c, _: (jax.jit(lambda x: x * a)(c), None), x, length=2)[0],
    "while": lambda a: lambda x: jax.lax.fori_loop(0, x.shape[0], lambda _, x: jax.jit(lambda x: x * a)(x), x),
    "cond": lambda a: lambda x: jax.lax.cond(x.sum() > 0, jax.jit(lambda x: x * a), jnp.sin, x),
    "remat": lambda a: jax.checkpoint(jax.jit(lambda x: x * a)),
    "policy": _policy,
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
    "shard_map": _shard_map,
    "repeated": _repeated,
    "callback": lambda a: lambda x: _call(lambda x: x * float(a[0]), x),
    "argument": lambda a: lambda x: _call(lambda x, *, a=a: x * a, x),
    "partial": lambda a: lambda x: _call(functools.partial(lambda a, x: x * a, a), x),
    "tuple": lambda a: lambda x: _call(lambda x, pair=("a", a): x * pair[1], x),
    "read_only": _read_only,
    "debug": lambda a: lambda x: jax.debug.callback(lambda x: x * a, x) or x,
    "reduce": lambda a: lambda x: jax.lax.reduce(x, 1.0, lambda x, y: x * y * np.asarray(a)[0], (1,)),
    "random": lambda a: lambda x: jax.random.normal(jax.random.key(0), x.shape) * a,
    "key": lambda a: jax.jit(lambda x, key=jax.random.key(int(a[0])): x * jax.random.normal(key)),  # noqa: B008
    "resize": lambda a: lambda x: jax.image.resize(jax.nn.relu(x), (2, 4), "cubic") * a,
    "native": lambda a: lambda x: jd.flip(x[:, :, None, None]).jax()[..., 0, 0] * a,
}


def _traced(function):
    return trace_once(function, [jax.ShapeDtypeStruct((2, 4), np.float32)], lambda x: (x,))


@pytest.mark.parametrize("name", SCALED)
def test_fingerprints_tell_constants_apart(name):
    make = SCALED[name]
    one, two = (jnp.full(4, value, jnp.float32) for value in (1, 2))
    assert _traced(make(one)) == _traced(make(jnp.copy(one)))
    assert _traced(make(one)) != _traced(make(two))


def test_fingerprints_of_models():
    linen, nnx = pytest.importorskip("flax.linen"), pytest.importorskip("flax.nnx")
    model = linen.Sequential([linen.Dense(3), linen.BatchNorm(use_running_average=True), linen.relu])
    models = []
    for seed in (1, 1, 2):
        parameters = model.init(jax.random.key(seed), jnp.ones((2, 4)))
        layer = nnx.Sequential(nnx.Linear(4, 4, rngs=nnx.Rngs(seed)), jax.nn.relu)
        models.append(_traced(jax.jit(lambda x: model.apply(parameters, layer(x)))))  # noqa: B023
    assert models[0] == models[1] != models[2]


def test_fingerprint_of_literal_arrays():
    """With this option of JAX arrays are literals of a jaxpr, not constants."""
    option = "jax_use_simplified_jaxpr_constants"
    jax.config.update(option, True)
    try:
        traces = [_traced(SCALED["outermost"](np.full(4, value, np.float32))) for value in (1, 1, 2)]
    finally:
        jax.config.update(option, False)
    assert traces[0] == traces[1] != traces[2]


def _first(function, n=1, **options):
    """The first number of each of n batches ``f32[2, 4]``. That of the input is 1."""

    @pipeline_def(batch_size=2, exec_async=False, exec_pipelined=False)
    def definition():
        return jax_function(function, **options)(fn.external_source(lambda: [np.ones(4, np.float32)] * 2))

    pipe = definition()
    numbers = [float(np.asarray(pipe.run()[0][0])[0]) for _ in range(n)]
    pipe.close()
    return numbers


@pytest.mark.parametrize("jit", [None, True])
@pytest.mark.parametrize("name", ["jit", "vmap", "callback"])
def test_pipelines_of_functions_with_other_constants(name, jit):
    for value in (2, 3):
        assert _first(SCALED[name](jnp.full(4, value, jnp.float32)), jit=jit) == [value]


def _count_in_list():
    calls = []
    return lambda x: calls.append(1) or x * np.float32(len(calls))


def _count_in_array():
    calls = np.zeros(1, np.float32)

    def count(x):
        calls[0] += 1
        return x * calls[0]

    return count


def _count_in_variable():
    calls = 0

    def count(x):
        nonlocal calls
        calls += 1
        return x * np.float32(calls)

    return count


def _count_in_attribute():
    def count(x):
        count.calls += 1
        return x * np.float32(count.calls)

    count.calls = 0
    return count


@pytest.mark.parametrize(
    "make", [_count_in_list, _count_in_array, _count_in_variable, _count_in_attribute, lambda: _Stateful().__call__]
)
def test_callbacks_have_their_own_state(make):
    for _ in range(2):
        callback = make()
        first, second = _first(lambda x: _call(callback, x), n=2, jit=True)  # noqa: B023
        assert 0 < first < second <= 3  # the numbers of two calls


def test_each_pipeline_has_its_settings():
    for setting in (False, True):
        with jax.threefry_partitionable(setting):
            function = lambda x: x * jax.random.uniform(jax.random.key(0), x.shape)
            assert _first(function) == [float(function(jnp.ones((2, 4)))[0, 0])]
