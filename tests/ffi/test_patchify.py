"""The kernel `patchify` against its definition in NumPy, alone and as the last stage of a chain with places."""

import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from kernel_calls import INTERNAL, Case, run
from ml_dtypes import bfloat16

from jaxdali import _cpu
from jaxdali._core import ffi as _ffi
from jaxdali._core.ragged import Ragged, pack
from jaxdali._core.values import Spec

ORDERS = {"CFHW": (3, 0, 1, 2), "FHWC": (0, 1, 2, 3), "FCHW": (0, 3, 1, 2), "WCFH": (2, 3, 0, 1), "HWCF": (1, 2, 3, 0)}


def patches_of(image, scale, offset, dtype, size, merge, frames, axes) -> np.ndarray:
    """The patches of an image or video, [tokens, elements]."""
    video = image if image.ndim == 4 else image[None]
    height, width, channels = video.shape[1:]
    video = np.concatenate([video, *[video[-1:]] * (-len(video) % frames)]).astype(np.float32)
    if scale.size:
        video = video * scale + offset
    if dtype == np.uint8:
        video = np.clip(np.floor(video + 0.5), 0, 255)
    (h, w), m = size, merge
    blocks = video.reshape(-1, frames, height // h // m, m, h, width // w // m, m, w, channels)
    blocks = blocks.transpose(0, 2, 5, 3, 6, 1, 4, 7, 8)  # time, block, patch in the block, patch
    return blocks.transpose(*range(5), *(5 + a for a in axes)).reshape(-1, frames * h * w * channels).astype(dtype)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("video", [False, True])
@pytest.mark.parametrize(
    ("source", "result", "scales"),
    [(np.uint8, np.float32, 3), (np.uint8, np.uint8, 0), (np.uint8, bfloat16, 1), (np.int16, np.uint8, 3)]
    + [(np.float32, np.float16, 0), (np.uint8, np.uint8, 3)],
)
def test_patches_equal_their_definition(order, video, source, result, scales):
    rng = np.random.default_rng(3)
    for channels, size, merge, frames in [
        (3, (14, 14), 2, 2),
        (3, (16, 5), 1, 1),
        (1, (9, 16), 1, 3),
        (3, (37, 40), 1, 1),
    ]:
        shapes = [
            (*(5,) * video, rows * merge * size[0], columns * merge * size[1], channels)
            for rows, columns in [(2, 3), (1, 1)]
        ]
        samples = [rng.integers(0, 256, shape).astype(source) for shape in shapes]
        scale, offset = (rng.uniform(-1, 1, (2, min(scales, channels))).astype(np.float32) * k for k in (1, 99))
        params = {"merge": merge, "frames": frames, "axes": ORDERS[order]}
        expected = [patches_of(x, s, o, result, size, **params) for x, s, o in zip(samples, scale, offset, strict=True)]
        attrs = {"patch_size": size, "merge_size": merge, "temporal_patch_size": frames, "axes": ORDERS[order]}
        operands = (scale, offset, np.zeros((2, 0), np.int32))
        rows = [(len(x) + 2, x.shape[1]) for x in expected]  # two of padding
        case = Case("patchify", samples, np.dtype(result), rows, operands, attrs)
        for dense in (False, True):
            outputs, status = run(case, dense=dense)
            assert not status.any()
            for output, patches in zip(outputs, expected, strict=False):
                np.testing.assert_array_equal(output[:-2], patches)
                assert not output[-2:].any()


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((29, 28, 3), (4, 588)), ((28, 27, 3), (4, 588)), ((28, 28, 3), (3, 588)), ((28, 28, 3), (4, 589))],
)
def test_extents_do_not_fit(shape, rows):
    none = np.zeros((1, 0), np.float32)
    attrs = {"patch_size": (14, 14), "merge_size": 2, "temporal_patch_size": 1, "axes": (0, 1, 2, 3)}
    params = (none, none, np.zeros((1, 0), np.int32))
    _, status = run(Case("patchify", [np.zeros(shape, np.uint8)], np.dtype(np.float32), [rows], params, attrs))
    assert status.tolist() == [INTERNAL]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"patch_size": (0, 1)}, "sizes must be positive"),
        ({"patch_size": (1,)}, "two extents"),
        ({"merge_size": 0}, "sizes must be positive"),
        ({"temporal_patch_size": -1}, "sizes must be positive"),
        ({"axes": (0, 1, 2)}, "a permutation of 0, 1, 2, 3"),
        ({"axes": (0, 1, 2, 2)}, "a permutation of 0, 1, 2, 3"),
    ],
)
def test_wrong_attributes(attrs, message):
    none = np.zeros((1, 0), np.float32)
    valid = {"patch_size": (1, 1), "merge_size": 1, "temporal_patch_size": 1, "axes": (0, 1, 2, 3)}
    params = (none, none, np.zeros((1, 0), np.int32))
    with pytest.raises(Exception, match=message):
        run(Case("patchify", [np.zeros((1, 1, 3), np.uint8)], np.dtype(np.uint8), [(1, 3)], params, valid | attrs))


def placed(images, place, present, rows, length) -> tuple[np.ndarray, list[np.ndarray]]:
    """A chain that mirrors images and cuts them into patches of 2 x 2 pixels at places of [rows, length, 12]."""
    n = len(images)
    none = jnp.zeros((n, 0), jnp.float32)
    batch = pack(images, 1, lambda elements, dtype: np.zeros((1, elements), dtype))
    shapes = jnp.asarray(batch.shapes.astype(np.int32))
    start = shapes * jnp.array([0, 1, 0]) - jnp.array([0, 1, 0])
    step = jnp.tile(jnp.array([[1, -1, 1]], jnp.int32), (n, 1))
    mirror = _ffi.KernelCall((start, step, shapes, none, none, none), {"permutation": (0, 1, 2), "channel": -1})
    attrs = {"patch_size": (2, 2), "merge_size": 1, "temporal_patch_size": 1, "axes": (0, 1, 2, 3)}
    patches = _ffi.KernelCall((none, none, jnp.asarray(place, jnp.int32)), attrs)
    pool = _cpu.pool_create(2)
    try:
        control = jnp.asarray([pool, *present], jnp.int32)

        def context(spec: Spec, out: Any) -> Any:
            return types.SimpleNamespace(B=n, control=control, times=None, spec=spec, out=(out,))

        stages = [
            ("window", context(Spec(np.uint8, 3, None), _ffi.Out(1, jnp.zeros(n, jnp.int32), shapes)), mirror),
            ("patchify", context(Spec(np.float32, 2, (length, 12)), None), patches),
        ]
        image = Ragged(jnp.asarray(batch.data[0]), jnp.asarray(batch.offsets), shapes)
        result, codes = _ffi.call_chain(image, stages, rows=rows)
        return np.asarray(result), [np.asarray(c) for c in codes]
    finally:
        _cpu.pool_destroy(pool)


def test_images_at_places_of_rows():
    """Two images share row 0, row 1 has none, row 2 has one that is absent, and row 3 has one."""
    rng = np.random.default_rng(0)
    images = [rng.integers(1, 256, shape).astype(np.uint8) for shape in [(4, 6, 3), (2, 2, 3), (2, 4, 3), (6, 2, 3)]]
    place = [(0, 0, 6), (0, 6, 9), (2, 0, 9), (3, 0, 9)]
    result, codes = placed(images, place, [1, 1, 0, 1], rows=4, length=9)
    assert not np.any(codes)
    expected = np.zeros((4, 9, 12), np.float32)
    for i in (0, 1, 3):
        none = np.zeros(0, np.float32)
        patches = patches_of(images[i][:, ::-1], none, none, np.float32, (2, 2), 1, 1, (0, 1, 2, 3))
        row, first, _ = place[i]
        expected[row, first : first + len(patches)] = patches
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("place", [(2, 0, 9), (-1, 0, 9), (0, -1, 9), (0, 0, 10), (0, 4, 9), (0, 7, 6)])
def test_places_outside_the_result(place):
    result, (window, patchify) = placed([np.ones((4, 6, 3), np.uint8)], [place], [1], rows=2, length=9)
    assert (window.tolist(), patchify.tolist()) == ([0], [INTERNAL])
    assert not result[1].any()


def test_places_are_for_chains():
    none = np.zeros((1, 0), np.float32)
    attrs = {"patch_size": (1, 1), "merge_size": 1, "temporal_patch_size": 1, "axes": (0, 1, 2, 3)}
    params = (none, none, np.zeros((1, 3), np.int32))
    with pytest.raises(Exception, match="places are for chains"):
        run(Case("patchify", [np.zeros((1, 1, 3), np.uint8)], np.dtype(np.uint8), [(1, 3)], params, attrs), dense=True)
