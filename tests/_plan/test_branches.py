"""The samples that operators in branches get, and the programs that are compiled for them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from branching import numbers, outputs
from images import encode, picture
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn, pipeline_def, types
from jaxdali._batch import ahead_compiler
from jaxdali._program import program
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

IMAGES = [picture(20 + 7 * i, 60 - 5 * i, seed=i) for i in range(6)]


def augmented(x, branch, on_device=False):
    x = x.gpu() if on_device else x
    if branch == 0:
        y = fn.rotate(x, angle=30)
    elif branch == 1:
        y = fn.flip(x)
    elif branch == 2:
        y = fn.cast(x // 2 + 1, dtype=types.UINT8)
    else:
        y = x
    return y


def unconditional(x, branch):
    """One of the branches of `augmented`, for all samples, without conditionals."""
    return [fn.rotate(x, angle=30), fn.flip(x), fn.cast(x // 2 + 1, dtype=types.UINT8), x][branch]


def test_branches_do_not_recompile(monkeypatch):
    """Each image gets the result of its branch, and no division of the batch compiles anything."""
    monkeypatch.setattr(ahead_compiler, "FIRST_BATCH", 100)  # no program for larger batches
    rng = np.random.default_rng(0)
    branches = [rng.permutation([0, 1, 2, 3, 0, 1]) for _ in range(5)] + [np.zeros(6), np.full(6, 3)]

    @pipeline_def(batch_size=6, num_threads=2, enable_conditionals=True, prefetch_queue_depth=1)
    def mixed():
        x = fn.external_source(lambda: IMAGES, layout="HWC")
        branch = fn.external_source(iter([c.astype(np.int32) for c in branches]))
        return augmented(x, branch), augmented(fn.resize(x, size=(16, 16)), branch)

    @pipeline_def(batch_size=6, num_threads=2)
    def every_branch():
        x = fn.external_source(lambda: IMAGES, layout="HWC")
        small = fn.resize(x, size=(16, 16))
        return tuple(unconditional(i, k) for i in (x, small) for k in range(4))

    expected = [[np.asarray(x) for x in o] for o in every_branch().run()]
    pipe = mixed()
    pipe.build()
    for number, branch in enumerate(branches):
        results = pipe.run()
        if number == 0:
            num_programs = len(program._programs)
        for i, k in enumerate(branch):
            np.testing.assert_array_equal(np.asarray(results[0][i]), expected[int(k)][i])
            np.testing.assert_array_equal(np.asarray(results[1][i]), expected[4 + int(k)][i])
    assert len(program._programs) == num_programs
    pipe.close()


def test_branches_of_videos_do_not_recompile(monkeypatch):
    """Also if no video, or only a short one, takes the branch with an argument per frame."""
    monkeypatch.setattr(ahead_compiler, "FIRST_BATCH", 100)  # no program for larger batches
    branches = [[0, 1, 0], [1, 1, 1], [1, 0, 1], [0, 0, 0]]
    videos = [np.stack([picture(16, 24, seed=i)] * n) for i, n in enumerate((5, 2, 8))]
    angles = [np.linspace(0, 90, len(v), dtype=np.float32) for v in videos]

    @pipeline_def(batch_size=3, num_threads=2, enable_conditionals=True, prefetch_queue_depth=1)
    def mixed():
        x = fn.external_source(lambda: videos, layout="FHWC").gpu()
        angle = fn.per_frame(fn.external_source(lambda: angles))
        if fn.external_source(iter(np.array(branches, np.int32))) == 0:
            y = fn.rotate(x, angle=angle, size=(16, 24))
        else:
            y = x
        return y

    pipe = mixed()
    pipe.build()
    rotated = {}
    for number, branch in enumerate(branches):
        (result,) = pipe.run()
        if number == 0:
            num_programs = len(program._programs)
        for i, k in enumerate(branch):
            if k:
                np.testing.assert_array_equal(np.asarray(result[i]), videos[i])
            else:
                np.testing.assert_array_equal(np.asarray(result[i]), rotated.setdefault(i, np.asarray(result[i])))
    assert len(program._programs) == num_programs
    pipe.close()


def test_decoder_sees_only_files_of_its_branch():
    files = [encode(IMAGES[i], "PNG") for i in range(6)]
    files[2] = b"not an image"

    def define():
        data = fn.external_source(lambda: [np.frombuffer(f, np.uint8) for f in files])
        if fn.external_source(lambda: np.arange(6) != broken):
            y = fn.decoders.image(data)
        else:
            y = types.Constant(np.zeros((2, 3, 3), np.uint8), layout="HWC")
        return y

    broken = 2
    assert [np.shape(x) for x in outputs(define)[0]] == [IMAGES[i].shape if i != 2 else (2, 3, 3) for i in range(6)]
    broken = 3
    with pytest.raises(RuntimeError, match=r"decoders\.image"):
        outputs(define)


def test_jax_function_gets_present_samples():
    shapes = []

    def double(x):
        shapes.append(x.shape)
        return x * 2

    def define():
        x = numbers()
        branch = fn.external_source(iter(np.array([[1, 0, 0, 1, 2, 1], [0] * 6, [1] * 6], np.int32)))
        if branch == 1:
            y = jax_function(double, jit=False)(x)
        elif branch == 2:
            y = jax_function(lambda a: a + a.shape[0], jit=True)(x)  # the whole batch
        else:
            y = x
        return y, fn.cast(y, dtype=types.FLOAT)

    assert outputs(define) == [[0, 1, 2, 0, 7, 4]] * 2
    assert shapes[0] == (3,)
    shapes.clear()
    assert outputs(define, 3) == [[0, 2, 4] * 2] * 2
    assert [s[0] for s in shapes] == [3, 6]


@pytest.mark.parametrize("jit", [None, False])
def test_jax_functions_in_nested_branches(jit):
    def define():
        x = fn.resize(fn.external_source(lambda: IMAGES, layout="HWC"), size=(4, 4))
        branch, y = numbers(), x
        if branch > 0:
            y = jax_function(lambda a: a // 2 + a.shape[0], jit=jit)(x)
            if branch > 1:
                y = jax_function(lambda a, b: jnp.maximum(a, b) - a.shape[0], jit=jit)(y, x)
        return x, y

    x, y = (np.array(o) for o in outputs(define))
    half = x // 2 + 4
    np.testing.assert_array_equal(y[[0, 3]], x[[0, 3]])
    np.testing.assert_array_equal(y[[1, 4]], half[[1, 4]])
    np.testing.assert_array_equal(y[[2, 5]], np.maximum(half, x)[[2, 5]] - 2)


def test_short_batches():
    def define():
        x = fn.external_source(lambda: IMAGES[:4], layout="HWC")
        branch = fn.external_source(lambda: np.arange(4, dtype=np.int32) % 4)
        y = augmented(x, branch)
        if branch == 1:
            y = jax_function(lambda a: a + 1)(fn.resize(y, size=(3, 3)))
        return y

    images = outputs(define)[0]
    assert [np.shape(x) for x in images][1:] == [(3, 3, 3), IMAGES[2].shape, IMAGES[3].shape]


def test_shards_have_branches_of_their_own():
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), PartitionSpec("x"))

    names = ["which", "image", "0", "1", "2", "3"]

    @data_iterator(output_map=names, sharding=sharding, size=64, enable_conditionals=True)
    def make(num_shards, shard_id):
        branch = fn.external_source(lambda i: np.int32((i.idx_in_epoch + shard_id) % 4), batch=False)
        x = fn.external_source(lambda i: IMAGES[i.idx_in_epoch % 6], batch=False, layout="HWC")
        y = augmented(x, branch)
        if branch == 1:
            y = jax_function(lambda a: a + jnp.uint8(a.shape[0]))(fn.resize(y, size=(8, 8)))
        else:
            y = fn.resize(y, size=(8, 8))
        return branch, y, *(fn.resize(unconditional(x, k), size=(8, 8)) for k in range(4))

    it: Any = make(batch_size=8, seed=3, fuse=False)  # one kernel for each, with and without a branch: to the last bit
    for _ in range(3):
        batch = {name: np.asarray(x) for name, x in next(it).items()}
        for i, k in enumerate(batch["which"]):
            num_present = (batch["which"] == 1).reshape(4, 2)[i // 2].sum()  # in this shard
            np.testing.assert_array_equal(batch["image"][i], batch[str(k)][i] + np.uint8(num_present * (k == 1)))


def test_predicates_of_programs_and_pad_in_branches():
    """A program ends with a condition that it makes. `pad` pads to the largest sample of its branch, as in DALI."""

    def define():
        x, branch = fn.external_source(lambda: IMAGES, layout="HWC"), numbers()
        v = fn.external_source(lambda: [np.arange(n, dtype=np.int32) for n in range(6)])
        if branch > 0:
            if branch > 1:
                x = fn.flip(x)
            else:
                x = fn.rotate(x, angle=90)
            v = fn.pad(v, axes=[0], align=1)
        else:
            v = fn.pad(v, axes=[0], align=4)
            if fn.reductions.mean(fn.flip(x)) > 300:
                x = fn.crop(x, crop=(2, 2))
        return x, v

    x, v = outputs(define)
    assert [len(e) for e in v] == [4, 5, 5, 4, 5, 5]
    expected = [IMAGES[0], np.rot90(IMAGES[1]), IMAGES[2][:, ::-1], IMAGES[3], np.rot90(IMAGES[4]), IMAGES[5][:, ::-1]]
    for a, b in zip(x, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_forty_diamonds():
    def define():
        x = fn.cast(numbers(), dtype=types.INT64)
        for _ in range(40):
            if x > 2:
                x = x + 1
            else:
                x = x * 2
        return x

    def python(x):
        for _ in range(40):
            x = x + 1 if x > 2 else x * 2
        return x

    assert outputs(define) == [[python(x) for x in (0, 1, 2)] * 2]


def test_the_picture_and_the_numbers(tmp_path):
    def define():
        return augmented(fn.external_source(lambda: IMAGES, layout="HWC"), fn.external_source(lambda: np.arange(6)))

    pipe = pipeline_def(define, batch_size=6, num_threads=2, enable_conditionals=True, enable_statistics=True)()
    pipe.save_graph_to_dot_file(tmp_path / "graph.dot")
    text = (tmp_path / "graph.dot").read_text()
    assert 'label="else", style="dashed"' in text
    pipe.run()
    assert "rotate" in repr(pipe.statistics())
    pipe.close()
