"""`fn.resize` with the numbers of other libraries, against results recorded from them (conventions.py, evaluation.py in
tests/data).
"""

import io
import json

import numpy as np
import places
import pytest
from images import resize_by_pillow
from PIL import Image
from pipelines import run

import jaxdali
from jaxdali import fn, types

RECORDED = np.load(places.DATA / "conventions.npz")
CASES = json.loads(str(RECORDED["cases"]))
EVALUATION = np.load(places.DATA / "evaluation.npz")
TOLERANCES = {"pillow": 0, "tensorflow": 0.01}  # levels of 0 to 255
PHOTO = RECORDED["photo"]


def resize(images, layout="HWC", **kwargs):
    (result,) = run(lambda x: fn.resize(x, **kwargs), images, layouts=[layout])
    return [np.asarray(result.at(i)) for i in range(len(images))]


@pytest.mark.parametrize("convention", TOLERANCES)
@pytest.mark.parametrize("filter", ["NN", "LINEAR", "CUBIC", "LANCZOS3", "GAUSSIAN", "AREA"])
def test_pixels_match_the_library(convention, filter):
    cases = [(k, c) for k, c in enumerate(CASES) if (c["convention"], c["interp_type"]) == (convention, filter)]
    assert len(cases) > 9 or (convention, filter) in (
        ("pillow", "GAUSSIAN"),
        ("tensorflow", "NN"),
        ("tensorflow", "AREA"),
    )
    for k, case in cases:
        image, want = RECORDED[case.pop("input")], RECORDED[str(k)]
        case["interp_type"] = getattr(types, f"INTERP_{filter}")
        dtype = types.to_dali_type(want.dtype.name)
        (pixels,) = resize([image], dtype=dtype, **case)
        assert pixels.shape == want.shape
        assert pixels.dtype == want.dtype
        assert np.abs(pixels.astype(np.float64) - want).max() <= TOLERANCES[convention], case


def test_windows_and_mirrored_regions_match_the_whole():
    """The chain makes only the rows and columns that the next step needs."""

    def definition(images):
        arguments = {"size": (50, 19), "interp_type": types.INTERP_LANCZOS3, "convention": "pillow"}
        whole = fn.resize(images, **arguments)
        mirrored = fn.resize(images, **arguments, roi_start=(0, 1), roi_end=(1, 0), roi_relative=True)
        window = fn.crop(fn.resize(images, **arguments), crop=(11, 9), crop_pos_x=0.7, crop_pos_y=0.2)
        return (
            whole,
            fn.flip(whole, horizontal=1),
            mirrored,
            fn.crop(whole, crop=(11, 9), crop_pos_x=0.7, crop_pos_y=0.2),
            window,
        )

    _, flipped, mirrored, cropped, window = (
        np.asarray(x.as_array()) for x in run(definition, [PHOTO, PHOTO[:20]], layouts=["HWC"])
    )
    np.testing.assert_array_equal(mirrored, flipped)
    np.testing.assert_array_equal(window, cropped)


def test_frames_planes_volumes_and_types():
    cubic = {"interp_type": types.INTERP_CUBIC, "convention": "tensorflow"}
    (want,) = resize([PHOTO], size=(20, 50), dtype=types.FLOAT, **cubic)

    def resized(array, layout, size=(20, 50), dtype=types.FLOAT):
        return resize([array], layout, size=size, dtype=dtype, **cubic)[0].astype(np.float32)

    close = {"rtol": 0, "atol": 1e-4}
    np.testing.assert_allclose(resized(PHOTO.transpose(2, 0, 1), "CHW"), want.transpose(2, 0, 1), **close)
    np.testing.assert_allclose(resized(np.stack([PHOTO, PHOTO[::-1]]), "FHWC")[0], want, **close)
    np.testing.assert_allclose(resized(np.stack([PHOTO] * 5), "DHWC", (3, 20, 50))[1], want, **close)
    np.testing.assert_array_equal(resized(PHOTO, "HWC", dtype=types.UINT8), np.rint(want.clip(0, 255)))
    np.testing.assert_array_equal(resized(PHOTO.astype(np.int16) - 200, "HWC", dtype=types.INT16), np.rint(want - 200))
    np.testing.assert_allclose(resized(PHOTO.astype(np.float16), "HWC"), want, **close)
    wide = PHOTO.astype(np.uint16) * 257
    np.testing.assert_allclose(resized(wide, "HWC"), want * 257, rtol=0, atol=0.05)


def test_sizes_are_rounded_as_in_pillow():
    # The whole image is resized to the rounded size, unless `subpixel_scale` is set.
    image = np.tile(PHOTO, (2, 2, 1))[:33, :30]  # resize_shorter=15: 16.5 rows
    (actual,) = resize([image], resize_shorter=15, convention="pillow")
    (want,) = resize([image], size=(16, 15), convention="pillow")
    np.testing.assert_array_equal(actual, want)
    assert resize([image], resize_shorter=15)[0].shape == (17, 15, 3)
    (scaled,) = resize([image], resize_shorter=15, convention="pillow", subpixel_scale=True)
    assert (scaled != want).any()


def test_bytes_are_clipped_floats_far_outside():
    """For a region far outside the image, the weights of Lanczos are large, and sums of bytes exceed 32 bits."""
    image = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
    region = {"roi_start": (0, -0.3), "roi_end": (1, 1.9), "roi_relative": True}
    arguments = {"size": (6, 8), "interp_type": types.INTERP_LANCZOS3, "convention": "pillow", **region}
    (bytes_result,), (floats,) = resize([image], **arguments), resize([image.astype(np.float32)], **arguments)
    assert np.abs(floats).max() > 1000
    np.testing.assert_allclose(bytes_result, floats.clip(0, 255), rtol=0, atol=1)


def test_nearest_neighbours_of_long_rows():
    """Pillow adds up the steps."""
    begin, end, length = 0.3, 98.9, 200_000
    row = np.arange(100, dtype=np.uint8).reshape(1, 100, 1)
    region, mirrored = (
        resize(
            [row],
            size=(1, length),
            interp_type=types.INTERP_NN,
            convention="pillow",
            roi_start=(0, first),
            roi_end=(1, last),
        )[0].ravel()
        for first, last in [(begin, end), (end, begin)]
    )
    first, last = (np.float64(np.float32(x)) for x in (begin, end))
    step = (last - first) / length
    steps = np.full(length, step)
    steps[0] = first + step * 0.5
    want = np.floor(np.cumsum(steps))  # numpy adds them up one by one
    np.testing.assert_array_equal(region, want)
    np.testing.assert_array_equal(mirrored, want[::-1])


@pytest.mark.parametrize("name", [n for n in EVALUATION.files if n.startswith("float ")])
def test_floats_of_torchvision(name):
    _, mode, antialias, height, width = name.split()
    filter = {"bilinear": "LINEAR", "bicubic": "CUBIC", "lanczos": "LANCZOS3", "nearest": "NN"}[mode]
    arguments = {
        "size": (int(height), int(width)),
        "antialias": antialias == "True",
        "interp_type": getattr(types, f"INTERP_{filter}"),
    }
    (result,) = resize([EVALUATION["floats"]], convention="torchvision", **arguments)
    np.testing.assert_allclose(result, EVALUATION[name], rtol=0, atol=2e-4)  # of 36 levels


def test_windows_of_bytes_of_torchvision():
    """The number of bits that weights have depends on the largest one, which is at the edges here."""
    arguments = {"size": (90, 65), "interp_type": types.INTERP_CUBIC, "convention": "torchvision"}
    whole, window = run(
        lambda x: (fn.resize(x, **arguments), fn.crop(fn.resize(x, **arguments), crop=(60, 45))),
        [PHOTO[:36]],
        layouts=["HWC"],
    )
    np.testing.assert_array_equal(window.at(0), np.asarray(whole.at(0))[15:75, 10:55])


def _sizes(shapes, **kwargs):
    images = [np.zeros((*shape, 1), np.uint8) for shape in shapes]
    return [x.shape[:2] for x in resize(images, interp_type=types.INTERP_NN, convention="pillow", **kwargs)]


def test_sizes_of_one_scale():
    """In Python's double precision: `round` is half to even, and the order of the operations decides at halves."""
    rng = np.random.default_rng(0)
    shapes = [
        *rng.integers(1, 90, (150, 2)).tolist(),
        *(14 * rng.integers(1, 9, (50, 2))).tolist(),
        [49, 7],
        [7, 49],
        [350, 500],
    ]
    sizes = {"resize_shorter": [], "limited": [], "pillow": [], "timm": [], "longer": []}
    for h, w in shapes:
        shorter, longer = min(h, w), max(h, w)
        scaled = [int(35 * n / shorter) for n in (h, w)]
        sizes["resize_shorter"].append(tuple(scaled))
        sizes["limited"].append(tuple(int(50 * n / max(scaled)) for n in scaled) if max(scaled) > 50 else tuple(scaled))
        sizes["pillow"].append((round(h * (35 / shorter)), round(w * (35 / shorter))))
        ratio = max(h / 45, w / 235)
        sizes["timm"].append((round(h / ratio), round(w / ratio)))
        sizes["longer"].append((int(35 * h / longer), int(35 * w / longer)))
    sizes = {name: [tuple(max(n, 1) for n in size) for size in sizes_of_rule] for name, sizes_of_rule in sizes.items()}
    assert _sizes(shapes, resize_shorter=35, size_convention="torchvision") == sizes["resize_shorter"]
    assert _sizes(shapes, resize_shorter=35, max_size=50, size_convention="torchvision") == sizes["limited"]
    assert _sizes(shapes, resize_longer=35, size_convention="torchvision") == sizes["longer"]
    assert _sizes(shapes, resize_shorter=35) == sizes["pillow"]
    assert _sizes(shapes, size=(45, 235), mode="not_larger", size_convention="timm") == sizes["timm"]
    assert _sizes([[33, 30]], resize_shorter=15, size_convention="dali") == [(17, 15)]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"interp_type": types.INTERP_AREA}, "convention='dali' has the filters .*not INTERP_AREA"),
        (
            {"min_filter": types.INTERP_GAUSSIAN, "convention": "pillow"},
            "convention='pillow' has the filters .*not INTERP_GAUSSIAN",
        ),
        ({"dtype": types.FLOAT, "convention": "pillow"}, "the output keeps the type"),
        (
            {"interp_type": types.INTERP_AREA, "convention": "torchvision"},
            "convention='torchvision' has the filters .*not INTERP_AREA",
        ),
        (
            {"interp_type": types.INTERP_LANCZOS3, "convention": "torchvision", "antialias": False},
            "'torchvision' with antialias=False has the filters .*not INTERP_LANCZOS3",
        ),
        ({"convention": "opencv"}, "convention must be"),
    ],
)
def test_unsupported_filters_and_types_are_refused(kwargs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        resize([PHOTO], size=20, **kwargs)


def test_unsupported_filter_per_sample_is_refused():
    filters = [np.int32(types.INTERP_LINEAR), np.int32(types.INTERP_GAUSSIAN)]
    with pytest.raises(jaxdali.OperatorError, match="not INTERP_GAUSSIAN"):
        run(
            lambda x, f: fn.resize(x, size=20, interp_type=f, convention="pillow"),
            [PHOTO] * 2,
            filters,
            layouts=["HWC", ""],
        )


@pytest.mark.parametrize("convention", ["pillow", "torchvision"])
@pytest.mark.parametrize(("format", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB")])
@pytest.mark.parametrize("size", [(20, 150), (97, 301), (331, 40), (240, 170)])
def test_rows_of_decoders_become_the_same_pixels(format, mode, size, convention):
    """Rows are resized as they are decoded, here also vertically first, and images in memory as a whole."""
    picture = Image.fromarray(np.tile(PHOTO, (5, 4, 1))[:240, :170]).convert(mode)
    file = io.BytesIO()
    picture.save(file, format)
    encoded = np.frombuffer(file.getvalue(), np.uint8)
    decoded = np.asarray(Image.open(file).convert("RGB"))
    arguments = {"size": size, "interp_type": types.INTERP_CUBIC, "convention": convention}
    (rows,) = run(lambda x: fn.resize(fn.decoders.image(x), **arguments), [encoded])
    if convention == "pillow":
        want = np.asarray(resize_by_pillow(Image.fromarray(decoded), size, Image.Resampling.BICUBIC))
    else:
        (want,) = resize([decoded], **arguments)
    np.testing.assert_array_equal(rows.at(0), want)
