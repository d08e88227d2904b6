"""Numbers far outside any image: an error of the sample or a result, and no warning of NumPy's."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn, types

IMAGE = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)


@pytest.mark.parametrize("far", [1e19, -1e30, 3e38])
def test_windows(far):
    for window in ({"rel_start": [far], "rel_shape": [1.0]}, {"start": [far], "shape": [1]}):
        with pytest.raises((OperatorError, ValueError)):
            run(lambda x, w=window: fn.slice(x, axes=[0], **w), [IMAGE], layouts=["HWC"])
    (windows,) = run(
        lambda x: fn.slice(x, rel_start=[far], rel_shape=[1.0], axes=[0], out_of_bounds_policy="pad"),
        [IMAGE],
        layouts=["HWC"],
    )
    assert not np.asarray(windows[0]).any()  # nothing of the image


@pytest.mark.parametrize("far", [1e18, 1e19, 3e38])
def test_crops(far):
    for policy in ("error", "pad"):  # where 1e19 became the whole image, and 1e18 with "pad" ended the process
        with pytest.raises(
            ValueError, match=r"crop \(created at .*: the result would be too large, of shape \(.*e\+18, 1, 3\)"
        ):
            run(lambda x, p=policy: fn.crop(x, crop=[far, 1], out_of_bounds_policy=p), [IMAGE], layouts=["HWC"])
    (cut,) = run(lambda x: fn.crop(x, crop=[far, 1], out_of_bounds_policy="trim_to_shape"), [IMAGE], layouts=["HWC"])
    assert cut[0].shape() == [4, 1, 3]
    with pytest.raises(OperatorError, match="reaches outside the sample"):
        run(lambda x: fn.crop(x, crop=fn.constant(fdata=[far, 1])), [IMAGE], layouts=["HWC"])


@pytest.mark.parametrize(
    "define",
    [
        lambda: fn.full(fn.constant(idata=1), shape=-1e30),
        lambda: fn.zeros(shape=[1e19, 2]),
        lambda: fn.reshape(fn.zeros(shape=[1]), shape=[1e19]),
        lambda: fn.decoders.image_crop(fn.zeros(shape=[3], dtype=types.UINT8), crop=[1e38, 1e38]),
    ],
)
def test_far_sizes(define):
    with pytest.raises(ValueError, match="the result would be too large, of shape"):
        run(lambda x: define(), [IMAGE], layouts=["HWC"])


@pytest.mark.parametrize("far", [2.0**29, -1e9, 1e30, -3e38])
def test_translations(far):
    """All pixels are fill, or the nearest ones of the image."""
    matrix = [1, 0, far, 0, 1, 0]
    filled, nearest = run(
        lambda x: (fn.warp_affine(x, matrix=matrix, fill_value=7), fn.warp_affine(x, matrix=matrix)),
        [IMAGE],
        layouts=["HWC"],
    )
    np.testing.assert_array_equal(filled[0], np.full_like(IMAGE, 7))
    edge = -1 if far > 0 else 0
    np.testing.assert_array_equal(nearest[0], np.broadcast_to(IMAGE[:, [edge]], IMAGE.shape))


def test_scales():
    with pytest.raises(OperatorError, match="an argument is invalid"):
        run(lambda x: fn.warp_affine(x, matrix=[1e9, 0, 0, 0, 1, 0]), [IMAGE], layouts=["HWC"])


@pytest.mark.parametrize("angle", [1e30, -1e30, 90.0 * 2**70])
def test_angles(angle):
    (rotated,) = run(lambda x: fn.rotate(x, angle=angle, size=(4, 5)), [IMAGE], layouts=["HWC"])
    assert rotated[0].shape() == [4, 5, 3]


@pytest.mark.parametrize("convention", ["pillow", "torchvision"])
def test_resized_regions(convention):
    """The first output is the mean of the whole image, and no filter of another output reaches the image."""
    (result,) = run(
        lambda x: fn.resize(x, size=[3, 3], roi_start=[0, 0], roi_end=[1e30, 1e30], convention=convention),
        [IMAGE],
        layouts=["HWC"],
    )
    want = np.zeros((3, 3, 3))
    want[0, 0] = IMAGE.mean(axis=(0, 1))
    np.testing.assert_allclose(result.at(0), want, rtol=0, atol=1)
