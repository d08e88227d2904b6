"""`if`, `and`, `or`, `not` on DataNodes. The expected results are those of DALI 2.4 for the same code."""

import importlib.util
import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
from branching import numbers, outputs

from jaxdali import Pipeline, fn, pipeline_def, types
from jaxdali.pipeline import do_not_convert

# --- as in DALI -------------------------------------------------------------------------------------------------------


def elif_():
    x = numbers()
    if x == 0:
        y = x + 10
    elif x == 1:
        y = x + 20
    else:
        y = x + 30
    return y


def no_else():
    x = numbers()
    y = x
    if x > 0:
        if x > 1:
            y = x * 100
    return y


def constants():
    x = numbers()
    if x:
        a, b, c = 1, True, np.array([1, 2])
    else:
        a, b, c = 2, False, np.array([3, 4])
    return a, b, c


def structures():
    x = numbers()
    d = {"a": x, "b": [x, 7]}
    if x > 0:
        d["a"] = x + 1
        pair = (x, [5])
    else:
        d["b"] = [x - 1, 8]
        pair = (x + 2, [6])
    return d["a"], *d["b"], pair[0], *pair[1]


def early_return():
    def inner(a):
        if a > 1:
            return a * 2
        if a:
            return a + 10
        return a - 1

    return inner(numbers())


def loop():
    x = numbers()
    for i in range(3):
        if x > i:
            x = x + 10
        else:
            x = x - 1
    return x


def python_conditions():
    x, flags = numbers(), [True, False]
    y = x + 1 if all(flags) or not flags else x
    if flags[0] and len(flags) == 2:
        y = y + 5
    while len(flags) < 4:
        flags.append(True)
    return y, len(flags)


def logic():
    x, y = numbers(np.bool_), numbers(np.bool_, 1)
    return (x and y), (x or y), (not x), (x and True), (False or x), (not numbers(np.float32))


def chained():
    return 0 < numbers() < 2


def division():
    x = numbers()
    if x != 0:
        y = 10 // x
    else:
        y = x
    return y


def sources():
    x = numbers()
    if x > 0:
        y = numbers() + 1
    else:
        y = numbers(np.int32, 1) + 10
    return y


def reduced():
    x = fn.stack(numbers(), numbers(np.int32, 1))
    if fn.reductions.max(x) > 1:
        y = x * 10
    else:
        y = x
    return y


def vectors():
    """Ragged values on the host."""
    x = numbers()
    v = fn.external_source(lambda: [np.arange(n, dtype=np.int32) for n in range(6)])
    if x == 1:
        y = fn.cat(v, v)
    elif x == 2:
        y = v[1:]
    else:
        y = v
    return y


DALI_RESULTS = [
    (elif_, [[10, 21, 32, 10, 21, 32]]),
    (no_else, [[0, 1, 200, 0, 1, 200]]),
    (constants, [[2, 1, 1, 2, 1, 1], [False, True, True] * 2, [[3, 4], [1, 2], [1, 2]] * 2]),
    (structures, [[0, 2, 3] * 2, [-1, 1, 2] * 2, [8, 7, 7] * 2, [2, 1, 2] * 2, [6, 5, 5] * 2]),
    (early_return, [[-1, 11, 4] * 2]),
    (loop, [[-3, 31, 32] * 2]),
    (python_conditions, [[5, 6, 7] * 2, [4] * 6]),
    (
        logic,
        [
            [False, True, False] * 2,
            [True, True, True] * 2,
            [True, False, False] * 2,
            [False, True, True] * 2,
            [False, True, True] * 2,
            [True, False, False] * 2,
        ],
    ),
    (chained, [[False, True, False] * 2]),
    (division, [[0, 10, 5] * 2]),
    (sources, [[11, 2, 3] * 2]),
    (reduced, [[[0, 1], [10, 20], [20, 0]] * 2]),
    (vectors, [[[], [0, 0], [1], [0, 1, 2], [0, 1, 2, 3, 0, 1, 2, 3], [1, 2, 3, 4]]]),
]


@pytest.mark.parametrize(("define", "expected"), DALI_RESULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_as_dali(define, expected):
    assert outputs(define) == expected
    assert outputs(define, 3) == expected


@pytest.mark.parametrize(("define", "expected"), DALI_RESULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_files(define, expected):
    """A serialized pipeline, with the branches of its calls, returns the same results for the same data."""
    source, callbacks = fn.external_source, []

    def record_source(callback):
        callbacks.append(callback)
        return source(name=f"source {len(callbacks)}")

    fn.external_source = record_source
    try:
        pipe = pipeline_def(define, batch_size=6, num_threads=2, enable_conditionals=True)()
    finally:
        fn.external_source = source
    text = pipe.serialize()
    assert b'"when": [[[' in text or define in (logic, python_conditions, constants, chained)
    copy = Pipeline.deserialize(text)
    assert json.loads(copy.serialize())["calls"] == json.loads(text)["calls"]
    for i, callback in enumerate(callbacks):
        copy.feed_input(f"source {i + 1}", callback())
    assert [[np.asarray(x).tolist() for x in output.as_cpu()] for output in copy.run()] == expected


# --- refused code -----------------------------------------------------------------------------------------------------


def types_differ():
    x = numbers()
    if x > 0:
        y = fn.cast(x, dtype=types.FLOAT)
    else:
        y = x
    return y


def ranks_differ():
    x = numbers()
    if x > 0:
        y = x
    else:
        y = fn.stack(x, x)
    return y


def layouts_differ():
    x = fn.stack(numbers(), numbers())
    if numbers() > 0:
        y = fn.reshape(x, layout="X")
    else:
        y = fn.reshape(x, layout="Y")
    return y


def lists_differ():
    if numbers() > 0:
        y = [1, 2]
    else:
        y = [3]
    return tuple(y)


def texts_differ():
    if numbers() > 0:
        y = "a"
    else:
        y = "b"
    return len(y)


def undefined():
    x = numbers()
    if x > 0:
        y = x
    return y  # pyright: ignore[reportPossiblyUnboundVariable]


def no_return():
    x = numbers()
    if x > 0:
        return x


def vector_condition():
    if fn.stack(numbers(), numbers()):
        y = 1
    else:
        y = 2
    return y


def and_of_numbers():
    return numbers() and numbers()


def leaks():
    values = []
    if numbers() > 0:
        values.append(numbers() + 1)
    return tuple(values)


def while_():
    x = numbers()
    while x > 0:
        x = x - 1
    return x


@pytest.mark.parametrize(
    ("define", "error", "message"),
    [
        (types_differ, RuntimeError, "different types: 'float32', 'int32'"),
        (ranks_differ, RuntimeError, "different numbers of dimensions: '0', '1'"),
        (layouts_differ, RuntimeError, "different layouts: 'X', 'Y'"),
        (lists_differ, ValueError, r"the variable 'y' another structure in each branch: \[\*, \*\] and \[\*\]"),
        (texts_differ, TypeError, "the variable 'y' values of types str and str: only DataNodes, numbers and arrays"),
        (undefined, RuntimeError, "the `if` branch gives 'y' a value, so the `else` branch must"),
        (no_return, RuntimeError, "the `if` branch returns a value, so the `else` branch must"),
        (vector_condition, RuntimeError, "must be a number for each sample, got 1-D values of type int32"),
        (and_of_numbers, RuntimeError, r"and \(.*: the left side must be a truth value \(bool\)"),
        (leaks, RuntimeError, "is used outside of it as an output"),
        (while_, TypeError, "not `while`"),
    ],
)
def test_refused_with_the_users_line(define, error, message):
    with pytest.raises(error, match=message) as e:
        outputs(define)
    lines, first_line = inspect.getsourcelines(define)
    wrong_line = next(
        i for i, text in enumerate(lines) if " if " in text or "while x" in text or " and " in text or "append" in text
    )
    assert f"{__file__}:{first_line + wrong_line}" in str(
        e.value
    ) or f"{__file__}:{first_line + wrong_line + 1}" in str(e.value)


def test_error_suggests_enable_conditionals():
    with pytest.raises(TypeError, match=r"in a pipeline or .* with enable_conditionals=True"):
        outputs(elif_, enable_conditionals=False)


def test_tracebacks_show_the_users_code():
    def fails():
        x = numbers()
        if x > 0:
            y = x.shape(dtype="no such type")
        else:
            y = x
        return y

    with pytest.raises(TypeError) as e:
        outputs(fails)
    lines, first_line = inspect.getsourcelines(fails)
    user_entries = [
        entry for entry in e.traceback if str(entry.path) == __file__ and entry.frame.code.name != "outputs"
    ]
    assert user_entries[-1].lineno + 1 == first_line + next(i for i, text in enumerate(lines) if "no such type" in text)


def test_do_not_convert():
    def asks(x):
        if x > 0:
            return x
        return -x

    assert outputs(lambda: asks(numbers())) == [[0, 1, 2] * 2]
    with pytest.raises(TypeError, match="truth value"):
        outputs(lambda: do_not_convert(asks)(numbers()))
    with pytest.raises(TypeError, match="truth value"):
        outputs(lambda: do_not_convert()(asks)(numbers()))


def test_do_not_convert_of_objects():
    class Asks:
        def __call__(self, x):
            if x > 0:
                return x
            return -x

    assert outputs(lambda: Asks()(numbers())) == [[0, 1, 2] * 2]
    unconverted = Asks()
    assert do_not_convert(unconverted) is unconverted
    with pytest.raises(TypeError, match="truth value"):
        outputs(lambda: unconverted(numbers()))
    assert do_not_convert(Asks) is Asks  # the class itself, which may still be subclassed
    with pytest.raises(TypeError, match="truth value"):
        outputs(lambda: Asks()(numbers()))


def test_code_without_a_file(caplog):
    namespace = {}
    exec("def magnitude(x):\n    return x if x > 0 else -x\n", namespace)
    with pytest.raises(
        TypeError, match=r"truth value.* needs the source of this code, which can't be read, as it was "
    ):
        outputs(lambda: namespace["magnitude"](numbers()))
    assert "magnitude, <string>:1, runs unchanged, without conditionals: its source can't be read" in caplog.text


def test_code_of_a_changed_file(tmp_path, caplog):
    file = tmp_path / "doubled.py"
    file.write_text("def doubled(x:\n    return x + x\n")  # in the middle of an edit
    namespace = {}
    exec(compile("def doubled(x):\n    return x + x\n", file, "exec"), namespace)
    outputs(lambda: namespace["doubled"](numbers()))
    assert "doubled.py:1, runs unchanged, without conditionals: " in caplog.text


def test_kinds_of_callables():
    """Methods, objects, partials, subclasses' super(), defaults, closures."""

    class Base:
        def more(self, x, by=3):
            return x + by if x > 1 else x

    class Derived(Base):
        def more(self, x, by=4):
            return super().more(x, by=by)

        def __call__(self, x):
            return self.more(x)

    class Sub(Pipeline):
        def define_graph(self):
            if (x := numbers()) > 1:
                return x
            return -x

    assert outputs(lambda: Derived()(numbers())) == [[0, 1, 6] * 2]
    pipe = Sub(batch_size=6, num_threads=1, enable_conditionals=True)
    assert [np.asarray(x).tolist() for x in pipe.run()[0]] == [0, -1, 2] * 2
    pipe.close()


def test_autograph_is_imported_when_it_is_needed():
    code = "import sys, jaxdali.plugin.jax; print('malt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# --- images -----------------------------------------------------------------------------------------------------------


# --- branches that a whole batch takes --------------------------------------------------------------------------------


def of_other_kinds():
    """None of the six samples takes the first branch, all take the second. As in DALI, types of a branch without
    samples are not compared with those of the other one.
    """
    x = numbers()
    images = fn.external_source(lambda: [np.full((2, 3, 1), i, np.uint8) for i in range(6)], layout="HWC")
    a = b = c = d = images
    if x > 5:
        a = fn.cast(images, dtype=types.FLOAT)
        b = fn.transpose(images, perm=[2, 0, 1])
        c = fn.reductions.sum(images, axes=[2])
        d = 2.5
    else:
        if x > 6:
            c = 1
        d = x
    if x < 9:
        e = fn.cast(images, dtype=types.INT16) if x < 7 else fn.reshape(images, layout="")
    else:
        e = 7.0
    unused = 1 if x > 1 else 2.5  # noqa: F841
    return a, b, c, d, fn.resize(e, size=(4, 4)), x


def test_types_of_empty_branches_are_not_compared():
    pipe = pipeline_def(of_other_kinds, batch_size=6, num_threads=2, enable_conditionals=True)()
    for _ in range(2):
        a, b, c, d, e, x = pipe.run()
        assert [output.layout() for output in (a, b, c, d, e)] == ["HWC", "HWC", "HWC", "", "HWC"]
        for output in (a, b, c):
            assert [np.asarray(sample).dtype.name for sample in output.as_cpu()] == ["uint8"] * 6
            assert [np.asarray(sample).ravel().tolist() for sample in output.as_cpu()] == [[i] * 6 for i in range(6)]
        assert [np.asarray(sample).tolist() for sample in d.as_cpu()] == [
            np.asarray(sample).tolist() for sample in x.as_cpu()
        ]
        expected = np.arange(6, dtype=np.int16)[:, None, None, None] * np.ones((4, 4, 1), np.int16)
        np.testing.assert_array_equal(np.stack([np.asarray(sample) for sample in e.as_cpu()]), expected)
    pipe.close()


def test_types_must_not_change_between_batches():
    @pipeline_def(batch_size=2, num_threads=1, enable_conditionals=True, prefetch_queue_depth=1)
    def definition():
        x = fn.external_source(lambda i: [np.int32(i // 2)] * 2)
        if x:
            y = x
        else:
            y = 0.5
        return y

    pipe = definition()
    for _ in range(2):
        (y,) = pipe.run()
        assert [np.asarray(v).tolist() for v in y] == [0.5, 0.5]
    with pytest.raises(RuntimeError, match=r"different types: 'float32', 'int32'.*the first in batches before"):
        pipe.run()
    pipe.close()


def test_modules_named_as_pythons(tmp_path):
    """A user's module may have the name of a module of Python, whose own functions are not rewritten."""
    path = tmp_path / "code.py"
    path.write_text(
        "import random\nfrom jaxdali import fn, pipeline_def\n"
        "@pipeline_def(batch_size=4, num_threads=1, device_id=None, enable_conditionals=True)\n"
        "def define(source):\n"
        "    x = fn.external_source(source)\n"
        "    if x > 1:\n        x = x * 10\n"
        "    return x + random.Random(0).randint(100, 100)\n"
    )
    spec = importlib.util.spec_from_file_location("code", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = module.define(lambda: np.arange(4)).run()[0]
    assert out.as_array().tolist() == [100, 101, 120, 130]
