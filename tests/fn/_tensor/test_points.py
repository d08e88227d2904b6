"""coord_transform, coord_flip, bb_flip and bbox_paste against NumPy: on the host and in programs, ragged and dense."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn, types

rng = np.random.default_rng(3)
POINTS = [rng.uniform(-5, 5, (n, 2)).astype(np.float32) for n in (3, 40, 1)]
UNIFORM = [rng.uniform(-5, 5, (7, 2)).astype(np.float32) for _ in range(3)]
VOLUME = [rng.uniform(-5, 5, (n, 3)).astype(np.float32) for n in (23, 2, 50)]
M = rng.uniform(-2, 2, (3, 3, 2)).astype(np.float32)  # a matrix for each sample, to three coordinates


def check(define, expected, samples, *more):
    for on_device in (False, True):
        (out,) = run(lambda x, *y, on_device=on_device: define(x.gpu() if on_device else x, *y), samples, *more)
        for x, want in zip(map(np.asarray, out), expected, strict=True):
            assert x.dtype == want.dtype
            np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("samples", [POINTS, UNIFORM], ids=["ragged", "dense"])
def test_coord_transform(samples):
    check(
        lambda x: fn.coord_transform(x, M=2.0, T=[1.0, -1.0]), [2 * p + np.float32([1, -1]) for p in samples], samples
    )
    matrices = [m.reshape(-1) for m in M]
    check(
        lambda x, m: fn.coord_transform(x, M=fn.reshape(m, shape=[6]), T=1.0),
        [p @ m.T + 1 for p, m in zip(samples, M)],
        samples,
        matrices,
    )
    turn = np.array([[0, -1, 3], [1, 0, 1]], np.float32)
    expected = [p @ turn[:, :2].T + turn[:, 2] for p in samples]
    check(lambda x: fn.coord_transform(x, MT=turn), expected, samples)
    check(
        lambda x: fn.coord_transform(
            x, MT=fn.transforms.translation(fn.transforms.rotation(angle=90.0), offset=[3.0, 1])
        ),
        expected,
        samples,
    )


def test_types_and_volumes():
    whole = [np.array([[1, 2], [250, 4]], np.uint8)]
    check(
        lambda x: fn.coord_transform(x, T=[0.6, 10.0], M=[1.0, 0, 0, -3.0], dtype=types.UINT8),
        [np.array([[2, 4], [251, 0]], np.uint8)],
        whole,
    )
    swap = [v[:, [2, 0, 1]] for v in VOLUME]
    check(lambda x: fn.coord_transform(x, M=[0.0, 0, 1, 1, 0, 0, 0, 1, 0]), swap, VOLUME)


def test_coord_flip():
    mirror, height = [np.int32(1), np.int32(0), np.int32(1)], np.float32([0.5, 1.0, 2.0])
    expected = [
        np.stack([np.where(m, 1 - p[:, 0], p[:, 0]), 2 * h - p[:, 1]], 1) for p, m, h in zip(POINTS, mirror, height)
    ]
    check(
        lambda x, m, h: fn.coord_flip(x, flip_x=m, flip_y=1, center_y=h),
        [e.astype(np.float32) for e in expected],
        POINTS,
        mirror,
        list(height),
    )
    check(
        lambda x: fn.coord_flip(x, layout="yx"),
        [np.float32([[1, -1]]) * p + np.float32([0, 1]) for p in POINTS],
        POINTS,
    )
    check(
        lambda x: fn.coord_flip(x, flip_x=0, flip_z=1),
        [np.float32([1, 1, -1]) * p + np.float32([0, 0, 1]) for p in VOLUME],
        VOLUME,
    )


@pytest.mark.parametrize("ltrb", [False, True])
def test_bb_flip(ltrb):
    boxes = [np.sort(rng.uniform(0, 1, (n, 4)).astype(np.float32)) for n in (3, 20, 1)]
    mirror = [np.int32(1), np.int32(0), np.int32(1)]

    def flipped(b, on, axis):
        b = b.copy()
        low, high = b[:, axis].copy(), b[:, axis + 2].copy()
        if on and ltrb:
            b[:, axis], b[:, axis + 2] = 1 - high, 1 - low
        elif on:
            b[:, axis] = 1 - low - high
        return b

    expected = [flipped(flipped(b, m, 0), 1, 1) for b, m in zip(boxes, mirror)]
    check(lambda x, m: fn.bb_flip(x, horizontal=m, vertical=1, ltrb=ltrb), expected, boxes, mirror)


@pytest.mark.parametrize("ltrb", [False, True])
def test_bbox_paste(ltrb):
    """Against the formula of DALI's documentation."""
    boxes = [np.sort(rng.uniform(0, 1, (n, 4)).astype(np.float32)) for n in (3, 20, 1)]
    ratio, x, y = np.float32([1.0, 2.5, 4.0]), np.float32([0.5, 0.0, 0.8]), 0.3
    expected = []
    for b, r, px in zip(boxes, ratio, x):
        shift = np.float32([px, y]) * (r - 1) / r
        expected.append(b / r + np.concatenate([shift, shift if ltrb else [0, 0]]).astype(np.float32))
    check(
        lambda b, r, px: fn.bbox_paste(b, ratio=r, paste_x=px, paste_y=y, ltrb=ltrb),
        expected,
        boxes,
        list(ratio),
        list(x),
    )


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda x: fn.coord_transform(x, MT=[1.0, 2, 3, 1, 1, 1], M=2.0), "MT can't be given together with M or T"),
        (lambda x: fn.coord_transform(x, MT=[1.0, 2, 3, 1]), "MT has 4 elements, which is not a multiple of 3"),
        (lambda x: fn.coord_transform(x, T=[1.0, 2, 3]), "argument T must have 1 or 2 numbers"),
        (lambda x: fn.coord_transform(x, T=1.0, dtype=types.INT32), "the same or float32; got float32 to int32"),
        (lambda x: fn.coord_flip(x, layout="ab"), "must consist of x, y, got 'ab'"),
        (lambda x: fn.coord_flip(fn.cast(x, dtype=types.INT32)), "must be float32 points"),
        (lambda x: fn.bbox_paste(x, ratio=2.0), "boxes have 4 coordinates, got 2"),
        (lambda x: fn.bbox_paste(x, ratio=0.0), "argument ratio must be .*above 0"),
        (lambda x: fn.bb_flip(x), "boxes have 4 coordinates, got 2"),
    ],
)
def test_bad_arguments(define, message):
    with pytest.raises((OperatorError, ValueError), match=message):
        run(define, UNIFORM)
