"""bfloat16: from sources, through operators, to JAX, NumPy and PyTorch. What is rounded is compared with ml_dtypes."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from pipelines import run

from jaxdali import Pipeline, backend, fn, math, pipeline_def, types
from jaxdali.plugin.jax import DALIGenericIterator

B = np.dtype(ml_dtypes.bfloat16)
rng = np.random.default_rng(0)
RAGGED = [rng.integers(0, 256, (23 + 5 * i, 37 - 3 * i, 3)).astype(np.uint8) for i in range(4)]
DENSE = [rng.integers(0, 256, (24, 37, 3)).astype(np.uint8) for _ in range(4)]
# Halves between two numbers, subnormal ones, those that become infinite, NaNs of both signs; each also among eight of a
# vector.
SPECIAL = np.concatenate(
    [
        (
            np.arange(0x3F80, 0x3FA0, dtype=np.uint32)[:, None] << 16 | np.array([0x7FFF, 0x8000, 0x8001], np.uint32)
        ).ravel(),
        np.array(
            [0, 1, 0x8000, 0x18000, 0x7F7F8000, 0x7F7F7FFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF812345],
            np.uint32,
        ),
        rng.integers(0, 1 << 32, 500, np.uint32),
    ]
).view(np.float32)


def bits(x):
    return np.asarray(x).view(np.uint16)


def rounded(x):
    """As ml_dtypes rounds float32."""
    with np.errstate(all="ignore"):
        return np.asarray(x, np.float32).astype(B)


def test_type():
    assert types.BFLOAT16 == types.DALIDataType.BFLOAT16
    assert types.to_numpy_type(types.BFLOAT16) is ml_dtypes.bfloat16
    for x in (jnp.bfloat16, B, "bfloat16", jnp.ones(1, jnp.bfloat16).dtype):
        assert types.to_dali_type(x) == types.BFLOAT16
    assert str(types.BFLOAT16) == "DALIDataType.BFLOAT16"
    assert types.BFLOAT16() == "bfloat16"
    assert types.Constant(3).bfloat16().dtype == types.BFLOAT16
    assert float(types.Constant(2.5, types.BFLOAT16)) == 2.5
    assert int(types.BFLOAT16) not in range(-1, 28)  # DALI's own


def test_cast_rounds_as_ml_dtypes():
    for on_device in (False, True):  # NumPy and a program
        (out,) = run(lambda x: fn.cast(x, dtype=types.BFLOAT16), [SPECIAL, SPECIAL[:100]], on_device=on_device)
        for y, x in zip(map(np.asarray, out.as_cpu()), (SPECIAL, SPECIAL[:100]), strict=True):
            want, numbers = rounded(x), ~np.isnan(x)
            np.testing.assert_array_equal(bits(y)[numbers], bits(want)[numbers])
            assert np.isnan(y[~numbers].astype(np.float32)).all()


@pytest.mark.parametrize("source", [np.int32, np.int64, np.float64])
def test_wide_types_are_cast_through_float32(source):
    x = np.array([16777217, 65793, -33554435, 257, 1 << 24, 12345678], source)
    for on_device in (False, True):
        (out,) = run(lambda x: fn.cast(x, dtype=types.BFLOAT16), [x, x], on_device=on_device)
        np.testing.assert_array_equal(bits(out.as_cpu().as_array()[0]), bits(rounded(x.astype(np.float32))))


def test_kernels_round_all_numbers():
    """By vectors and, behind the last eight, one by one; here by the kernel of windows, which only moves and scales."""
    normal = SPECIAL[~(np.abs(SPECIAL) < np.finfo(np.float32).tiny)]  # XLA's threads take smaller numbers for 0
    x = [normal[:597].reshape(1, -1, 1), normal[:15].reshape(1, -1, 1)]
    (out,) = run(
        lambda a: fn.crop_mirror_normalize(a, dtype=types.BFLOAT16, output_layout="HWC", mean=[0.0], std=[1.0]),
        x,
        layouts=["HWC"],
    )
    for y, a in zip(map(np.asarray, out.as_cpu()), x, strict=True):
        with np.errstate(invalid="ignore"):
            want = rounded(a + np.float32(0))  # -0 becomes 0
        np.testing.assert_array_equal(bits(y), bits(want))


OPERATORS = {
    "crop_mirror_normalize": lambda x, **k: fn.crop_mirror_normalize(
        x, mean=[1.0, 2, 3], std=[50.0, 60, 70], crop=(20, 21), mirror=1, **k
    ),
    "planes": lambda x, **k: fn.crop_mirror_normalize(x, std=[50.0, 60, 70], output_layout="CHW", pad_output=True, **k),
    "normalize": lambda x, **k: fn.normalize(x, **k),
    "resize": lambda x, **k: fn.resize(x, size=(19, 33), **k),
    "nearest": lambda x, **k: fn.resize(x, size=(19, 33), interp_type=types.INTERP_NN, **k),
    "cubic": lambda x, **k: fn.resize(x, size=(50, 13), interp_type=types.INTERP_CUBIC, **k),
    "resize of floats": lambda x, **k: fn.resize(fn.cast(x, dtype=types.FLOAT) / 3, size=(19, 33), **k),
    "resize of float16": lambda x, **k: fn.resize(
        fn.cast(x, dtype=types.FLOAT16), size=(19, 33), interp_type=types.INTERP_NN, **k
    ),
    "tensor_resize": lambda x, **k: fn.tensor_resize(x, sizes=[19, 33, 3], **k),
    "rotate": lambda x, **k: fn.rotate(fn.cast(x, dtype=types.FLOAT), angle=20, fill_value=0.5, **k),
    "brightness_contrast": lambda x, **k: fn.brightness_contrast(x, brightness=1.3, contrast=0.7, **k),
    "hsv": lambda x, **k: fn.hsv(x, hue=20, **k),
    "crop": lambda x, **k: fn.crop(x, crop=(11, 12), **k),
    "slice": lambda x, **k: fn.slice(
        x, (1, 2), (10, 10), axes=(0, 1), normalized_anchor=False, normalized_shape=False, **k
    ),
    "mean": lambda x, **k: fn.reductions.mean(x, axes=[0, 1], **k),
    "multi_paste": lambda x, **k: fn.multi_paste(x, in_ids=np.array([0, 1], np.int32), output_size=(60, 60), **k),
    "decoded": lambda x, **k: fn.cast(fn.resize(x, size=(9, 9)), **k),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_round_their_float32_result(name):
    f = OPERATORS[name]
    for images in (DENSE, RAGGED):
        half, single = run(
            lambda x, f=f: (f(x, dtype=types.BFLOAT16), f(x, dtype=types.FLOAT)), images, layouts=["HWC"]
        )
        assert half.dtype == types.BFLOAT16
        for y, expected in zip(map(np.asarray, half.as_cpu()), map(np.asarray, single.as_cpu()), strict=True):
            assert y.dtype == B
            np.testing.assert_array_equal(bits(y), bits(rounded(expected)))


READERS = {  # of bfloat16, and whose results are exact
    "flip": lambda x: fn.flip(x, horizontal=1),
    "transpose": lambda x: fn.transpose(x, perm=[1, 0, 2]),
    "pad": lambda x: fn.pad(x, axes=[0], shape=[50]),
    "cat": lambda x: fn.cat(x, x, axis=0),
    "subscript": lambda x: x[1:-2, 3:5],
    "maximum": lambda x: fn.reductions.max(x, axes=[0]),
    "erase": lambda x: fn.erase(x, anchor=[1.0, 2], shape=[4.0, 5], axis_names="HW", fill_value=[7.0]),
    "nearest": lambda x: fn.resize(x, size=(9, 40), interp_type=types.INTERP_NN),
    "warp_affine": lambda x: fn.warp_affine(x, matrix=[1.0, 0, 2, 0, 1, 3], interp_type=types.INTERP_NN, fill_value=0),
    "negative": lambda x: -x,
    "compare": lambda x: fn.cast(x > 100, dtype=types.FLOAT),
    "abs": lambda x: math.abs(x),
}


@pytest.mark.parametrize("name", READERS)
def test_operators_take_it(name):
    f = READERS[name]
    floats = [rounded(x / np.float32(1)).astype(np.float32) for x in RAGGED]
    for images in ([x[:20, :20] for x in floats], floats):
        (single,) = run(f, images, layouts=["HWC"])
        (half,) = run(f, [x.astype(B) for x in images], layouts=["HWC"])
        for a, b in zip(map(np.asarray, half.as_cpu()), map(np.asarray, single.as_cpu()), strict=True):
            np.testing.assert_array_equal(a.astype(np.float32), b)


def test_arithmetic_is_ml_dtypes():
    x = [np.array([1.0, 3.14, -250.5, 1e15], B)] * 2
    for on_device in (False, True):

        def define(a):
            return (
                a * a,
                a + types.Constant(3).bfloat16(),
                a * types.Constant(2).uint8(),
                fn.cast(a, dtype=types.FLOAT) + a,
            )

        product, total, twice, wide = (
            np.asarray(o.as_cpu().as_array())[0] for o in run(define, x, on_device=on_device)
        )
        np.testing.assert_array_equal(bits(product), bits(x[0] * x[0]))
        np.testing.assert_array_equal(bits(total), bits(x[0] + B.type(3)))
        np.testing.assert_array_equal(bits(twice), bits(x[0] * B.type(2)))
        assert wide.dtype == np.float32


def test_branches():
    @pipeline_def(batch_size=4, num_threads=1, device_id=None, enable_conditionals=True)
    def define():
        x = fn.external_source(lambda: [x.astype(B) for x in RAGGED], batch=True, layout="HWC")
        flag = fn.external_source(lambda: np.array([0, 1, 1, 0], np.bool_), batch=True)
        y = (
            fn.crop_mirror_normalize(x, dtype=types.BFLOAT16, mirror=1)
            if flag
            else fn.crop_mirror_normalize(x, dtype=types.BFLOAT16)
        )
        return y

    (out,) = define().run()
    for i, (y, x) in enumerate(zip(map(np.asarray, out.as_cpu()), RAGGED, strict=True)):
        x = x[:, ::-1] if i in (1, 2) else x
        np.testing.assert_array_equal(bits(y), bits(rounded(x.transpose(2, 0, 1))))


def test_random_numbers_stay_below_the_upper_bound():
    (x,) = run(
        lambda a: fn.random.uniform(a, range=(0.0, 1.0), dtype=types.BFLOAT16), [np.zeros((1000,), np.float32)] * 2
    )
    x = x.as_cpu().as_array().astype(np.float32)
    assert 0 <= x.min() < 0.1 < 0.9 < x.max() < 1


def test_iterator_and_serialization():
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def define():
        ids = fn.external_source(lambda info: np.full((3,), info.idx_in_epoch, B), batch=False, name="x")
        return (
            ids,
            types.Constant(np.arange(3), types.BFLOAT16, shape=[3], device="cpu", name="c"),
            fn.cast(ids, dtype=types.BFLOAT16),
        )

    with DALIGenericIterator(define(), ["x", "c", "cast"]) as it:
        batch = next(it)
    assert {v.dtype for v in batch.values()} == {jnp.bfloat16.dtype}
    np.testing.assert_array_equal(np.asarray(batch["x"], np.float32), [[0] * 3, [1] * 3])
    assert isinstance(batch["c"], jax.Array)

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def saved():
        noise = fn.random.uniform(range=(0, 1), shape=[3], seed=1)
        return fn.cast(noise, dtype=types.BFLOAT16) * types.Constant(
            np.arange(3), types.BFLOAT16, shape=[3], device="cpu"
        )

    first, copy = saved(), Pipeline.deserialize(saved().serialize())
    np.testing.assert_array_equal(*(bits(p.run()[0].as_array()) for p in (first, copy)))


def test_tensors():
    tensor = backend.TensorCPU(np.array([1, 2.5], B))
    assert tensor.dtype == types.BFLOAT16
    assert "BFLOAT16" in repr(tensor)
    assert np.asarray(tensor).dtype == np.array(tensor).dtype == B
    assert jnp.asarray(tensor).dtype == jnp.bfloat16
    batch = backend.TensorListCPU(jnp.ones((2, 2), jnp.bfloat16))
    assert (batch.dtype, batch.as_array().dtype) == (types.BFLOAT16, B)
    assert "BFLOAT16" in repr(batch)


def test_pytorch_takes_tensors():
    torch = pytest.importorskip("torch")
    assert types.to_dali_type(torch.bfloat16) == types.BFLOAT16
    x = torch.from_dlpack(backend.TensorCPU(np.array([1, 2.5, -3], B)))
    assert x.dtype == torch.bfloat16
    assert x.tolist() == [1, 2.5, -3]


def test_pytorch_gives_and_takes_it():
    torch = pytest.importorskip("torch")
    from jaxdali.plugin.pytorch import DALIGenericIterator as TorchIterator

    tensor = torch.arange(24, dtype=torch.float32).reshape(4, 2, 3).to(torch.bfloat16)
    for source in (lambda: tensor, lambda: list(tensor)):

        @pipeline_def(batch_size=4, num_threads=1, device_id=None)
        def define(source=source):
            x = fn.external_source(source, batch=True)
            return x, fn.crop_mirror_normalize(
                fn.reshape(x, layout="HW"), dtype=types.BFLOAT16, output_layout="HW", std=2.0, mean=0.0
            )

        ((batch,),) = [next(TorchIterator(define(), ["x", "half"]))]
        assert batch["x"].dtype == batch["half"].dtype == torch.bfloat16
        assert torch.equal(batch["x"], tensor)
        assert torch.equal(batch["half"], tensor / 2)


def test_fractions_may_be_of_it():
    """Where a float is a fraction and an integer is not."""

    def define(x):
        anchor, shape = (fn.cast(fn.constant(fdata=[a, a]), dtype=types.BFLOAT16) for a in (0.25, 0.5))
        return fn.slice(x, anchor, shape, axes=(0, 1))

    (out,) = run(define, [np.arange(64, dtype=np.uint8).reshape(8, 8)] * 2)
    np.testing.assert_array_equal(out.as_array()[0], np.arange(64).reshape(8, 8)[2:6, 2:6])


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda x: fn.shapes(x, dtype=types.BFLOAT16), "shapes: argument dtype .*got <DALIDataType.BFLOAT16"),
        (lambda x: fn.color_twist(fn.cast(x, dtype=types.FLOAT64), dtype=types.BFLOAT16), "at most 32 bits"),
        (lambda x: fn.gaussian_blur(x, window_size=5, dtype=types.BFLOAT16), "input's type or FLOAT"),
        (lambda x: fn.cast(x, dtype=types.BFLOAT16) & 3, "integers or bool"),
    ],
)
def test_refused_by_name(define, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run(define, DENSE, layouts=["HWC"])
