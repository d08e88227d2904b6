"""Branches of an `if` with functions, permutations, bad files, or without samples; and pipelines with branches that are
resumed and peeked at.

The expected numbers are those of DALI 2.4 for the same code, where DALI accepts it.
"""

import io
from typing import Any

import numpy as np
import pytest
from images import encode, picture

from jaxdali import OperatorError, fn, pipeline_def, types
from jaxdali._batch import ahead_compiler
from jaxdali._program import program
from jaxdali.plugin.jax import data_iterator, peekable_data_iterator
from jaxdali.plugin.jax.fn import jax_function


def cycled(*batches, dtype=np.int32) -> Any:
    """A source of numbers, batch by batch, that begins again after the last batch."""
    return fn.external_source([np.array(b, dtype) for b in batches], cycle=True)


def batches_of(define, n=1, batch_size=6, **arguments) -> list[Any]:
    """Returns the outputs of n batches, as lists."""
    pipe = pipeline_def(define, batch_size=batch_size, num_threads=2, seed=1, enable_conditionals=True, **arguments)()
    batches = [[[np.asarray(x).tolist() for x in output.as_cpu()] for output in pipe.run()] for _ in range(n)]
    pipe.close()
    return batches


TENS, TAKE = [10, 11, 12, 13, 14, 15], [0, 1, 1, 0, 1, 0]


# --- a batch is the samples that take the branch ----------------------------------------------------------------------


@pytest.mark.parametrize("in_program", [False, True])
def test_permute_batch_counts_samples_of_its_branch(in_program):
    def define():
        x, takes = (
            fn.external_source(lambda: [np.full((k % 3 + 1, 2, 1), 10 + k, np.uint8) for k in range(6)], layout="HWC"),
            cycled(TAKE),
        )
        x, numbers = fn.flip(x, horizontal=0) if in_program else x, cycled([9, 2, 0, 9, 1, 9])
        if takes:
            by_list, by_input = fn.permute_batch(x, indices=[2, 0, 1]), fn.permute_batch(x, indices=numbers)
        else:
            by_list, by_input = x, x
        return by_list, by_input

    for output in batches_of(define)[0]:
        assert [np.ravel(x)[0] for x in output] == [10, 14, 11, 13, 12, 15]
        assert [len(x) for x in output] == [1, 2, 2, 1, 3, 3]


def test_permute_batch_in_an_empty_branch():
    def define():
        x = cycled(TENS)
        if cycled([0] * 6):
            x = fn.permute_batch(x, indices=[2, 0, 1])
        return x

    assert batches_of(define)[0] == [TENS]


def test_batch_permutation_is_of_the_branch():
    def define():
        x, takes = cycled(TENS), cycled(TAKE)
        if takes:
            x = fn.permute_batch(x, indices=fn.batch_permutation())
        return x

    orders = {tuple(b[0]) for b in batches_of(define, 20)}
    assert {x[0::3] + x[5:] for x in orders} == {(10, 13, 15)}
    assert {tuple(sorted(x[i] for i in (1, 2, 4))) for x in orders} == {(11, 12, 14)}
    assert len(orders) > 3


def test_multi_paste_counts_samples_of_its_branch():
    def define():
        x = fn.external_source(lambda: [np.full((2, 2, 1), 10 + k, np.uint8) for k in range(6)], layout="HWC")
        ids = fn.external_source(lambda: [np.array([2 - k % 3], np.int32) for k in (0, 0, 1, 0, 2, 0)])
        if cycled(TAKE):
            x = fn.multi_paste(x, in_ids=ids, output_size=(2, 2))
        return x

    assert [np.ravel(x)[0] for x in batches_of(define)[0][0]] == [10, 14, 12, 13, 11, 15]


# --- functions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [False, True])
def test_python_function_gets_present_samples(batch):
    calls = []

    def function(x):
        calls.append([int(v) for v in x] if batch else int(x))
        return [v + 100 for v in x] if batch else x + 100

    def define():
        x, takes = cycled(TENS), cycled(TAKE, [0] * 6, [1] * 6)
        if takes:
            x = fn.python_function(x, function=function, batch_processing=batch)
        return x

    batches = batches_of(define, 3, exec_pipelined=False)
    assert [b[0] for b in batches] == [[10, 111, 112, 13, 114, 15], TENS, [110, 111, 112, 113, 114, 115]]
    assert calls == [[11, 12, 14], TENS] if batch else [11, 12, 14, *TENS]


@pytest.mark.parametrize("kind", ["python_function", "jax_function"])
def test_types_of_functions_uncalled_in_first_batch(kind):
    """The types follow from the values in the other branches of the `if`, also through an `elif`."""

    def function(x):
        assert len(np.shape(x)) == (kind == "jax_function")  # samples, or a batch
        assert kind == "python_function" or len(x)
        return x * 10

    def define():
        x, branch = cycled(TENS), cycled([0] * 6, [0, 1, 2, 2, 1, 0])
        call = (
            jax_function(function, jit=False)
            if kind == "jax_function"
            else lambda x: fn.python_function(x, function=function)
        )
        if branch == 1:
            y = call(x)
        elif branch == 2:
            y = call(x + 1)
        else:
            y = x
        return y + 1

    assert [b[0] for b in batches_of(define, 3)] == [
        [11, 12, 13, 14, 15, 16],
        [11, 111, 131, 141, 141, 16],
        [11, 12, 13, 14, 15, 16],
    ]


def test_error_if_types_are_not_known():
    def define():
        x = cycled(TENS)
        if cycled([0] * 6):
            x = fn.cast(fn.python_function(x, function=lambda v: v), dtype=types.INT32)
        return x

    with pytest.raises(
        OperatorError, match=rf"python_function \(.*{__file__}:\d+\): no sample of the first batch takes its branch"
    ):
        batches_of(define)


def test_errors_of_functions_name_the_users_line():
    def define():
        x = cycled(TENS)
        if cycled(TAKE):
            x = fn.python_function(x, function=lambda v: 1 // 0)
        return x

    with pytest.raises(OperatorError, match=rf"python_function \(.*{__file__}:\d+\): ZeroDivisionError"):
        batches_of(define)


def test_raising_while_it_is_defined():
    def define():
        x = cycled(TENS)
        if x > 0:
            raise ValueError("mine")
        return x

    with pytest.raises(ValueError, match=r"^mine$"):
        batches_of(define)


def test_right_operand_of_undecided_left():
    calls = []

    def function(x):
        calls.append(int(x))
        return np.array(10 // x > 3)

    def define():
        x = cycled([0, 1, 2, 3, 4, 5])
        y = x != 0 and fn.python_function(x, function=function)
        z = x < 3 or fn.python_function(x, function=function)
        return y, z, not z

    assert batches_of(define, exec_pipelined=False)[0] == [
        [False, True, True, False, False, False],
        [True, True, True, False, False, False],
        [False, False, False, True, True, True],
    ]
    assert calls == [1, 2, 3, 4, 5, 3, 4, 5]


# --- what Python has beside `if` --------------------------------------------------------------------------------------


def test_statements_around_and_inside():
    """`continue`, deletions, attributes, elements and unpacking in branches; `with` and `try` around them."""

    class Holder:
        value: Any

    def define():
        x, holder, d = cycled([0, 1, 2, 0, 1, 2]), Holder(), {"k": cycled([0, 1, 2, 0, 1, 2])}
        looped = x
        for _ in range(3):
            if looped > 5:
                continue
            looped = looped + 3
        with io.StringIO():
            try:
                if x > 0:
                    t = x + 1
                    y = t * 2
                    del t
                    holder.value = x + 5
                    d["k"] += 5
                    a, (b, c) = x, (x + 1, x + 2)
                else:
                    y = x
                    holder.value = x - 5
                    a, (b, c) = x + 5, (x + 6, x + 7)
            except ValueError:
                pass
        return looped, y, holder.value, d["k"], a, b, c

    rows = [[6, 7, 8], [0, 4, 6], [-5, 6, 7], [0, 6, 7], [5, 1, 2], [6, 2, 3], [7, 3, 4]]
    assert batches_of(define)[0] == [row * 2 for row in rows]


@pytest.mark.parametrize("statement", ["break", "assert", "in"])
def test_whole_batch_conditions_are_refused(statement):
    def define():
        x = cycled(TENS)
        if statement == "assert":
            assert x >= 0
        elif statement == "in":
            x = x + 1 if x in [1, 2] else x
        else:
            for _ in range(3):
                if x > 5:
                    break
                x = x + 3
        return x

    with pytest.raises(
        TypeError, match=rf"has no truth value .*not `while`, `assert`, or `break` in an `if`.*{__file__}"
    ):
        batches_of(define)


# --- pipelines --------------------------------------------------------------------------------------------------------


def photo(i):
    return picture(10 + 3 * i, 30 - 2 * i, seed=i)


@pytest.fixture
def folder(tmp_path):
    for i in range(12):
        path = tmp_path / f"{i % 2}" / f"{i:02}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode(photo(i), "PNG"))
    return tmp_path


def random_branches(folder, on_error="raise"):
    files, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="reader")
    if fn.random.coin_flip():
        x = fn.decoders.image(files, on_error=on_error)
        if labels[0] == 1:
            x = fn.rotate(x, angle=fn.random.uniform(range=(-40, 40)))
    else:
        x = fn.flip(fn.decoders.image(files, on_error=on_error))
    x = fn.resize(x, size=(8, 8))
    if labels[0] == 0:
        x = jax_function(lambda a: a // 2)(x)
    return x, labels


def test_resumed(folder):
    make = data_iterator(random_branches, ["x", "label"], reader_name="reader", enable_conditionals=True)

    def taken(it, n):
        return [np.asarray(next(it)["x"]).tobytes() for _ in range(n)]

    options: Any = {"batch_size": 4, "seed": 3, "enable_checkpointing": True}
    with make(folder, **options) as it:
        first = taken(it, 1)
        state = it.checkpoints()
        expected = taken(it, 2)
    with make(folder, **options, checkpoints=state) as it:
        assert taken(it, 2) == expected
    assert len({*first, *expected}) == 3


def test_peeked(folder):
    make = peekable_data_iterator(random_branches, ["x", "label"], reader_name="reader", enable_conditionals=True)
    with make(folder, batch_size=4, seed=3) as it:
        for _ in range(3):
            peeked = [it.peek(), it.peek_async().result(10)]
            batch = next(it)
            assert all(p["x"] is batch["x"] for p in peeked)
        assert it.element_spec["x"].shape == (4, 8, 8, 3)


def test_bad_files_become_samples_of_the_branch(folder):
    def define():
        files, labels = fn.readers.file(file_root=folder, name="reader")
        if labels[0] == 1:
            x = fn.decoders.image(files, on_error="replace")
        else:
            x = types.Constant(np.zeros((1, 1, 3), np.uint8), layout="HWC")
        return x

    (folder / "1" / "05.png").write_bytes(b"this is no image")
    (folder / "0" / "02.png").write_bytes(b"nobody looks at this")
    pipe = pipeline_def(define, batch_size=12, num_threads=2, seed=1, enable_conditionals=True)()
    images = [np.asarray(x) for x in pipe.run()[0]]
    assert [(b.file, b.count) for b in pipe.bad_samples()] == [(f"{folder}/1/05.png", 1)]
    pipe.close()
    assert [x.shape for x in images[:6]] == [(1, 1, 3)] * 6
    for i, k in enumerate((1, 3, 7, 7, 9, 11)):
        np.testing.assert_array_equal(images[6 + i], photo(k))


def test_other_division_of_a_batch_compiles_nothing(monkeypatch):
    """Branches with values on the host, with ragged and dense values in programs, with a predicate of a program, and
    nested ones.
    """
    monkeypatch.setattr(ahead_compiler, "FIRST_BATCH", 100)  # no program for larger batches
    rng = np.random.default_rng(0)
    branches = [*(rng.integers(0, 4, 6) for _ in range(4)), np.zeros(6), np.full(6, 3)]

    def define():
        x, branch = fn.external_source(lambda: [photo(i) for i in range(6)], layout="HWC"), cycled(*branches)
        if branch > 1:
            x = fn.gaussian_blur(x, window_size=3)
            if branch == 2:
                x = fn.crop(x, crop=(5, 5))
            x = fn.brightness(x, brightness=0.5)
        small = fn.resize(x, size=(4, 4))
        if fn.reductions.mean(fn.cast(small, dtype=types.FLOAT)) > 60:
            small = fn.flip(small)
        return x, small

    pipe = pipeline_def(define, batch_size=6, num_threads=2, enable_conditionals=True, prefetch_queue_depth=1)()
    pipe.run()
    num_programs = len(program._programs)
    for _ in branches[1:]:
        pipe.run()
    assert len(program._programs) == num_programs
    pipe.close()


@pytest.mark.parametrize("in_program", [False, True])
@pytest.mark.parametrize("take", [[0, 1, 1, 0, 1, 0], [0] * 6, [1] * 6])
def test_absent_ragged_samples_have_no_elements(take, in_program):
    """Samples that take the other branch may have shapes that fit no matrix, number of channels, or dense operand."""
    rng = np.random.default_rng(1)
    boxes, images = (
        [rng.random((n + 1, *inner_shape), np.float32) for n in range(6)] for inner_shape in ((4,), (2, 3))
    )
    weights = np.float32([1, 2, 3])

    def define():
        b, x = fn.external_source(lambda: boxes), fn.external_source(lambda: images, layout="HWC")
        if in_program:
            b, x = b.gpu(), x.gpu()
        if cycled(take):
            b = fn.bb_flip(b)
            x, y = fn.crop_mirror_normalize(x, mean=[1.0, 2, 3], output_layout="HWC"), fn.normalize(x, axes=[0, 1])
        else:
            x, y = x * weights.reshape(1, 1, 3), x - fn.reductions.mean(x, axes=[0, 1], keep_dims=True)
        return b, x, y

    for i, (b, x, y) in enumerate(zip(*batches_of(define, device_id=0)[0], strict=True)):
        flipped = boxes[i].copy()
        flipped[:, 0] = 1 - boxes[i][:, 0] - boxes[i][:, 2]
        centred = images[i] - images[i].mean((0, 1))
        np.testing.assert_allclose(b, flipped if take[i] else boxes[i], atol=1e-6)
        np.testing.assert_allclose(x, images[i] - weights if take[i] else images[i] * weights, atol=1e-6)
        np.testing.assert_allclose(y, centred / images[i].std((0, 1)) if take[i] else centred, rtol=1e-4, atol=1e-5)


VECTORS = {
    "crop": lambda x, v: fn.crop(x, crop=v + 2),
    "filter": lambda x, v: fn.filter(x, np.float32([[0, 0], [0, 1]]), anchor=v * 0),
    "matrix": lambda x, v: fn.warp_affine(x, matrix=fn.cat(v * 0 + (1, 0), v[:1], v * 0 + (0, 1), v[1:])),
    "matrix input": lambda x, v: fn.warp_affine(x, fn.stack(v * 0 + (1, 0), v * 0 + (0, 1), v, axis=1) * 1.0),
    "pad": lambda x, v: fn.pad(x, axes=[0, 1], shape=v + 6),
    "perspective": lambda x, v: fn.experimental.warp_perspective(x, fn.cat(v, v, v, v, [0])),
    "reshape": lambda x, v: fn.reshape(x, shape=fn.cat(v[:1] + 7, [2, 1]), layout="HWC"),
    "resize": lambda x, v: fn.resize(x, size=v + 3),
    "slice": lambda x, v: fn.slice(x, v, v * 0 + 1),
    "zeros": lambda x, v: fn.zeros(shape=fn.cat(v + 2, [1]), dtype=types.UINT8),
}


@pytest.mark.parametrize("operator", VECTORS)
def test_vectors_made_in_an_empty_branch(operator):
    """Without a sample, the host does not make them, so how many numbers they have is not known."""
    images = np.arange(32, dtype=np.uint8).reshape(2, 4, 4, 1)

    def define(*takes):
        x = fn.flip(fn.external_source(lambda: images, layout="HWC"), horizontal=0)
        v = cycled([[1, 1], [1, 1]])
        y = x
        if cycled(*takes):
            y = VECTORS[operator](x, v)
        return y

    full, empty, mixed = batches_of(lambda: define([1, 1], [0, 0], [1, 0]), 3, batch_size=2)
    assert empty[0] == images.tolist()
    assert mixed[0] == [full[0][0], images[1].tolist()]
