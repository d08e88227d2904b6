"""Arguments per frame: each frame is processed like an image with its own arguments.

DALI's numbers are the cases `frames` of tests/data/golden.
"""

import emulated
import numpy as np
import pytest
from branching import outputs
from pipelines import run

from jaxdali import OperatorError, fn, types
from jaxdali._core import ffi as _ffi

rng = np.random.default_rng(4)
RAGGED = [rng.integers(0, 255, s).astype(np.uint8) for s in ((3, 6, 9, 3), (1, 4, 5, 3), (2, 7, 3, 3))]
DENSE = [rng.integers(0, 255, (3, 6, 9, 3)).astype(np.uint8) for _ in range(3)]


def numbers(videos, low, high, *shape):
    """Random numbers for each frame."""
    return [rng.uniform(low, high, (len(v), *shape)).astype(np.float32) for v in videos]


def frames(samples):
    return [f for s in samples for f in s]


def turned(x, sigma, angle):
    return fn.rotate(fn.gaussian_blur(x, sigma=sigma), angle=angle, keep_size=True, fill_value=5)


@pytest.mark.parametrize("kernels", ["cpu", "emulated"])
@pytest.mark.parametrize("videos", [RAGGED, DENSE], ids=["ragged", "dense"])
def test_each_frame_is_an_image(videos, kernels, monkeypatch):
    sigma, angle = numbers(videos, 0.4, 2), numbers(videos, -90, 90)
    (images,) = run(turned, *map(frames, (videos, sigma, angle)), layouts=("HWC", "", ""))
    if kernels == "emulated":
        targets, call = emulated.required(), _ffi.call
        monkeypatch.setattr(_ffi, "call", lambda kernel, *args, **options: call(targets[kernel], *args, **options))

    def sequences(x, *arguments):
        # The reshape tells the program that all samples have one shape.
        x = fn.reshape(x, shape=DENSE[0].shape, layout="FHWC") if videos is DENSE else x
        return turned(x, *map(fn.per_frame, arguments))

    (out,) = run(sequences, videos, sigma, angle, layouts=("FHWC", "", ""))
    assert out.layout() == "FHWC"
    assert [np.asarray(x).shape for x in out] == [v.shape for v in videos]
    np.testing.assert_array_equal(
        np.concatenate([np.ravel(x) for x in out]), np.concatenate([np.ravel(x) for x in images])
    )


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
def test_points(on_device):
    """On the host, and in a program without native kernels of the operator's own."""
    points = [rng.normal(size=(f, k, 2)).astype(np.float32) for f, k in ((3, 5), (1, 1), (4, 2))]
    matrices = numbers(points, -1, 1, 3, 3)
    (out,) = run(
        lambda x, m: fn.coord_transform(x.gpu() if on_device else x, MT=fn.per_frame(m)),
        points,
        matrices,
        layouts=("FPX", ""),
    )
    assert out.layout() == "FPX"
    for actual, x, m in zip(out, points, matrices, strict=True):
        np.testing.assert_allclose(
            actual, np.einsum("fij,fpj->fpi", m[:, :, :2], x) + m[:, None, :, 2], rtol=1e-4, atol=1e-5
        )


def test_regions_of_the_same_frame():
    """The regions of a sample's third frame are from the third frame of the other sample."""
    videos = [
        np.full((3, 4, 4, 1), 10 * k, np.uint8) + np.arange(3, dtype=np.uint8)[:, None, None, None] for k in range(2)
    ]
    anchors = [np.array([[[f, f]] for f in range(3)], np.int32)] * 2
    (out,) = run(
        lambda x, y: fn.multi_paste(x, in_ids=[1], shapes=[[1, 1]], out_anchors=fn.per_frame(y)),
        videos,
        anchors,
        layouts=("FHWC", ""),
    )
    for video in map(np.asarray, out):
        np.testing.assert_array_equal(
            video[..., 0], [np.diag([10 + f if k == f else 0 for k in range(4)]) for f in range(3)]
        )
    with pytest.raises(
        OperatorError, match=r"multi_paste .*sample 0: .*frame 2: pasted images must have the same frames"
    ):
        run(
            lambda x, y: fn.multi_paste(
                x, in_ids=[1], shapes=[[1, 1]], out_anchors=fn.per_frame(y), output_size=[4, 4]
            ),
            [videos[0], videos[1][:2]],
            [anchors[0], anchors[1][:2]],
            layouts=("FHWC", ""),
        )


def test_in_branches():
    def define():
        x = fn.external_source(lambda: [np.full((k % 3 + 1, 1, 1, 1), k, np.uint8) for k in range(6)], layout="FHWC")
        factors = fn.per_frame(fn.external_source(lambda: [np.arange(k % 3 + 1, dtype=np.float32) for k in range(6)]))
        if fn.external_source(lambda: np.int32([1, 0, 1, 0, 1, 1])):
            x = fn.brightness(x, brightness=factors)
        else:
            x = fn.brightness(x, brightness=factors, brightness_shift=40 / 255)
        return x

    (videos,) = outputs(define)
    assert [np.ravel(x).tolist() for x in videos] == [[0], [40, 41], [0, 2, 4], [40], [0, 4], [0, 5, 10]]


def test_refused():
    factors = numbers(RAGGED, 0, 2)

    def brightness(x, y):
        return fn.brightness(x, brightness=fn.per_frame(y))

    with pytest.raises(
        OperatorError,
        match=r"brightness .*sample 1: .*argument brightness has values for 2 frames, the input has 1: .*or 1",
    ):
        run(brightness, RAGGED, [factors[0], factors[2], factors[2]], layouts=("FHWC", ""))
    with pytest.raises(
        RuntimeError,
        match=r"brightness .*argument brightness is a sequence, of layout 'F', so the first axis of the input .* 'HWC'",
    ):
        run(brightness, [v[0] for v in RAGGED], factors, layouts=("HWC", ""))
    with pytest.raises(RuntimeError, match=r"jitter .*argument mask is a sequence, of layout 'F': .*not per frame"):
        run(
            lambda x, y: fn.jitter(x, mask=fn.per_frame(fn.cast(y, dtype=types.INT32))),
            RAGGED,
            factors,
            layouts=("FHWC", ""),
        )
    with pytest.raises(
        OperatorError, match=r"gaussian_blur .*sample 0: .*frame 2: sigma or window_size must be above 0"
    ):
        run(
            lambda x, y: fn.gaussian_blur(x, sigma=fn.per_frame(y)),
            DENSE,
            [np.float32([1, 1, 0])] * 3,
            layouts=("FHWC", ""),
        )
    eye = np.tile(np.eye(2, 3, dtype=np.float32), (3, 1, 1))
    with pytest.raises(RuntimeError, match=r"transforms.combine .*input.* values for 2 frames, .*input.* 3"):
        run(lambda a, b: fn.transforms.combine(fn.per_frame(a), fn.per_frame(b)), [eye], [eye[:2]])


@pytest.mark.parametrize(
    "apply",
    [
        lambda x, v: fn.gaussian_blur(x, sigma=v),
        lambda x, v: fn.laplacian(x, scale=v),
        lambda x, v: fn.experimental.dilate(x, mask_size=v),
        lambda x, v: fn.warp_affine(x, fn.per_frame(fn.stack(v, v, v, axis=2) * 1.0)),
    ],
)
def test_vectors_of_frames_in_an_empty_branch(apply):
    def define():
        x = fn.external_source(lambda: DENSE, layout="FHWC", batch=True)
        v = fn.external_source(lambda: [np.int32([[1, 2]] * 3)] * 3, batch=True)
        if fn.external_source([np.zeros(3, bool)], batch=True):
            x = apply(x, fn.per_frame(v * 1))
        return x

    (images,) = outputs(define, batch_size=3)
    np.testing.assert_array_equal(images, DENSE)
