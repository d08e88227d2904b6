"""`fn.resize` with the numbers of other libraries, against results that were recorded from them (tests/data/conventions.py)."""

import json

import numpy as np
import places
import pytest
from pipelines import run

import jaxdali
from jaxdali import fn, types

RECORDED = np.load(places.DATA / "conventions.npz")
CASES = json.loads(str(RECORDED["cases"]))
TOLERANCES = {"pillow": 0, "tensorflow": 0.01}  # levels of 0 to 255
PHOTO = RECORDED["photo"]


def resize(images, layout="HWC", **kwargs):
    (result,) = run(lambda x: fn.resize(x, **kwargs), images, layouts=[layout])
    return [np.asarray(result.at(i)) for i in range(len(images))]


@pytest.mark.parametrize("convention", TOLERANCES)
@pytest.mark.parametrize("filter", ["NN", "LINEAR", "CUBIC", "LANCZOS3", "GAUSSIAN", "AREA"])
def test_pixels_are_those_of_the_library(convention, filter):
    cases = [(k, c) for k, c in enumerate(CASES) if (c["convention"], c["interp_type"]) == (convention, filter)]
    assert len(cases) > 9 or (convention, filter) in (("pillow", "GAUSSIAN"), ("tensorflow", "NN"), ("tensorflow", "AREA"))
    for k, case in cases:
        image, want = RECORDED[case.pop("input")], RECORDED[str(k)]
        case["interp_type"] = getattr(types, f"INTERP_{filter}")
        dtype = types.to_dali_type(want.dtype.name)
        (got,) = resize([image], dtype=dtype, **case)
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        assert np.abs(got.astype(np.float64) - want).max() <= TOLERANCES[convention], case


def test_a_window_of_the_result_and_a_mirrored_region_are_parts_of_the_whole():
    """The chain makes only the rows and columns that the next step needs."""

    def definition(images):
        given = {"size": (50, 19), "interp_type": types.INTERP_LANCZOS3, "convention": "pillow"}
        whole = fn.resize(images, **given)
        mirrored = fn.resize(images, **given, roi_start=(0, 1), roi_end=(1, 0), roi_relative=True)
        window = fn.crop(fn.resize(images, **given), crop=(11, 9), crop_pos_x=0.7, crop_pos_y=0.2)
        return whole, fn.flip(whole, horizontal=1), mirrored, fn.crop(whole, crop=(11, 9), crop_pos_x=0.7, crop_pos_y=0.2), window

    _, flipped, mirrored, cut, window = (np.asarray(x.as_array()) for x in run(definition, [PHOTO, PHOTO[:20]], layouts=["HWC"]))
    np.testing.assert_array_equal(mirrored, flipped)
    np.testing.assert_array_equal(window, cut)


def test_frames_planes_volumes_and_types():
    cubic = {"interp_type": types.INTERP_CUBIC, "convention": "tensorflow"}
    (want,) = resize([PHOTO], size=(20, 50), dtype=types.FLOAT, **cubic)

    def of(array, layout, size=(20, 50), dtype=types.FLOAT):
        return resize([array], layout, size=size, dtype=dtype, **cubic)[0].astype(np.float32)

    close = {"rtol": 0, "atol": 1e-4}
    np.testing.assert_allclose(of(PHOTO.transpose(2, 0, 1), "CHW"), want.transpose(2, 0, 1), **close)
    np.testing.assert_allclose(of(np.stack([PHOTO, PHOTO[::-1]]), "FHWC")[0], want, **close)
    np.testing.assert_allclose(of(np.stack([PHOTO] * 5), "DHWC", (3, 20, 50))[1], want, **close)
    np.testing.assert_array_equal(of(PHOTO, "HWC", dtype=types.UINT8), np.rint(want.clip(0, 255)))
    np.testing.assert_array_equal(of(PHOTO.astype(np.int16) - 200, "HWC", dtype=types.INT16), np.rint(want - 200))
    np.testing.assert_allclose(of(PHOTO.astype(np.float16), "HWC"), want, **close)
    wide = PHOTO.astype(np.uint16) * 257
    np.testing.assert_allclose(of(wide, "HWC"), want * 257, rtol=0, atol=0.05)


def test_sizes_are_rounded_as_in_these_libraries_and_the_whole_image_is_used():
    image = np.tile(PHOTO, (2, 2, 1))[:33, :30]  # resize_shorter=15: 16.5 rows
    (got,) = resize([image], resize_shorter=15, convention="pillow")
    (want,) = resize([image], size=(16, 15), convention="pillow")
    np.testing.assert_array_equal(got, want)
    assert resize([image], resize_shorter=15)[0].shape == (17, 15, 3)
    (scaled,) = resize([image], resize_shorter=15, convention="pillow", subpixel_scale=True)
    assert (scaled != want).any()


def test_a_region_that_reaches_far_outside_has_the_clipped_pixels_of_floats():
    """The weights of Lanczos are large there, and their sum with bytes exceeds 32 bits."""
    image = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
    region = {"roi_start": (0, -0.3), "roi_end": (1, 1.9), "roi_relative": True}
    how = {"size": (6, 8), "interp_type": types.INTERP_LANCZOS3, "convention": "pillow", **region}
    (got,), (floats,) = resize([image], **how), resize([image.astype(np.float32)], **how)
    assert np.abs(floats).max() > 1000
    np.testing.assert_allclose(got, floats.clip(0, 255), rtol=0, atol=1)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"interp_type": types.INTERP_AREA}, "convention='dali' has the filters .*not INTERP_AREA"),
        ({"min_filter": types.INTERP_GAUSSIAN, "convention": "pillow"}, "convention='pillow' has the filters .*not INTERP_GAUSSIAN"),
        ({"dtype": types.FLOAT, "convention": "pillow"}, "the output keeps the type"),
        ({"convention": "opencv"}, "convention must be"),
    ],
)
def test_what_a_convention_does_not_have_is_refused(kwargs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        resize([PHOTO], size=20, **kwargs)


def test_a_filter_of_a_sample_is_refused_too():
    filters = [np.int32(types.INTERP_LINEAR), np.int32(types.INTERP_GAUSSIAN)]
    with pytest.raises(jaxdali.OperatorError, match="not INTERP_GAUSSIAN"):
        run(lambda x, f: fn.resize(x, size=20, interp_type=f, convention="pillow"), [PHOTO] * 2, filters, layouts=["HWC", ""])
