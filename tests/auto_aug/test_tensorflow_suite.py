"""RandAugment with TensorFlow's augmentations, compared with results of TensorFlow
(tests/data/rand_augment_tensorflow.py).
"""

import numpy as np
import places
import pytest

from jaxdali import auto_aug, fn, pipeline_def
from jaxdali._core.errors import ArgumentError
from jaxdali.auto_aug.core import signed_bin
from jaxdali.auto_aug.rand_augment import get_rand_augment_tensorflow_suite

RECORDED = np.load(places.DATA / "rand_augment_tensorflow.npz")
IMAGE = RECORDED["image"]
MOVED = (
    "rotate",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)  # nearest pixels, of which a few at borders differ
SUITE = {x.name: x for x in get_rand_augment_tensorflow_suite(max_translate_abs=20)}


def run(define, batch_size):
    p = pipeline_def(define)(batch_size=batch_size, num_threads=2, device_id=None, seed=3, enable_conditionals=True)
    return [np.asarray(x) for x in p.run()[0].as_cpu()]


@pytest.mark.parametrize("case", [n for n in RECORDED.files if n != "image"])
def test_pixels_equal_tensorflows(case):
    name, level = case.rsplit("_", 1)
    signs = np.array([0, 1], np.int32)
    tiles = (1, 4, 5, 1) if name == "equalize" else (1, 1, 1, 1)

    def define():
        x = fn.external_source(lambda: np.tile(IMAGE, tiles).repeat(2, axis=0), layout="HWC")
        bins = signed_bin(int(level), fn.external_source(lambda: signs)) if SUITE[name].randomly_negate else int(level)
        return SUITE[name](x, magnitude_bin=bins, num_magnitude_bins=31, fill_value=128, interp_type=0)

    results = [x[: IMAGE.shape[0], : IMAGE.shape[1]] for x in run(define, 2)]
    assert not np.array_equal(results[0], IMAGE) or name == "solarize"
    differences = [np.abs(x.astype(int) - RECORDED[case]).max(axis=2) for x in results]
    if name in MOVED:  # TensorFlow's sign is one of the two
        assert min((d > 0).mean() for d in differences) < 0.01
    elif (
        name == "sharpness"
    ):  # the outermost pixels, which TensorFlow leaves as they are, are sharpened like the others
        assert max(d[1:-1, 1:-1].max() for d in differences) <= 1
    else:
        assert max(d.max() for d in differences) <= (3 if name == "equalize" else 1)


def test_cutout_fills_a_square_of_the_level():
    def define():
        x = fn.external_source(lambda: np.zeros((64, 100, 90, 3), np.uint8), layout="HWC")
        return SUITE["cutout"](x, magnitude_bin=5, num_magnitude_bins=31, fill_value=128)

    areas = []
    for image in run(define, 64):
        rows, columns = (image[..., 0] == 128).any(axis=1), (image[..., 0] == 128).any(axis=0)
        assert (image[np.ix_(rows, columns)] == 128).all()
        areas.append(rows.sum() * columns.sum())
    assert max(areas) == 40 * 40
    assert min(areas) < 40 * 40  # it may reach outside
    assert len(set(areas)) > 5


def test_levels_beyond_ten():
    def draw(m, excluded=()):
        def define():
            x = fn.external_source(lambda: np.stack([IMAGE] * 96), layout="HWC")
            return auto_aug.rand_augment.rand_augment(x, 2, m, suite="tensorflow", excluded=excluded)

        return run(define, 96)

    for m in (0, 10, 30):
        different = {x.tobytes() for x in draw(m)}
        assert len(different) > 20
    inverted_or_translated = draw(10, sorted({*SUITE} - {"invert", "translate_x"}))
    assert any(np.array_equal(x, IMAGE) for x in inverted_or_translated)  # inverted twice


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "torch"}, "suite must be"),
        ({"suite": "tensorflow", "num_magnitude_bins": 11}, "has 31 levels"),
        ({"suite": "tensorflow", "monotonic_mag": False}, "leave out"),
        ({"suite": "tensorflow", "m": 31}, "m must be a whole number from 0 to 30"),
        ({"suite": "tensorflow", "max_translate_abs": (1, 2, 3)}, "max_translate_abs must be"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        run(
            lambda: auto_aug.rand_augment.rand_augment(
                fn.constant(idata=[0], shape=(4, 4, 3), layout="HWC"), **{"n": 1, "m": 3, **arguments}
            ),
            1,
        )
