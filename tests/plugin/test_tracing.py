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

from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax._tracing import reachability
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


def test_changed_variable_at_a_new_shape(caplog):
    factor, values = 1, []
    pipe = growing(lambda x: x * factor)
    for factor in range(1, 6):  # noqa: B007
        values.append(float(np.array(pipe.run()[0].as_array())[0, 0]))
    pipe.close()
    assert values == [1, 1, 3, 4, 5]  # read once, until a new shape shows that it has changed
    assert "have changed since" in caplog.text
