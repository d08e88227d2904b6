"""Numbers far outside any image: an error of the sample or a result, and no warning of NumPy's."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn

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


@pytest.mark.parametrize("angle", [1e30, -1e30, 90.0 * 2**70])
def test_angles(angle):
    (rotated,) = run(lambda x: fn.rotate(x, angle=angle, size=(4, 5)), [IMAGE], layouts=["HWC"])
    assert rotated[0].shape() == [4, 5, 3]
