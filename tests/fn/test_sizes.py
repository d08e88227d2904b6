"""fn.sizes: the sizes of transformers' image processors, which tests/data/vlm_sizes.py records."""

import numpy as np
import places
import pytest
from pipelines import run

from jaxdali import ArgumentError, OperatorError, SampleError, fn, types
from jaxdali import dynamic as jd

RECORDED = dict(np.load(places.DATA / "vlm_sizes.npz"))
SHAPES = RECORDED.pop("shapes")
ARGUMENTS = {
    "smart_resize": ("factor", "min_pixels", "max_pixels", "min_side"),
    "patch_budget": ("patch_size", "max_patches"),
    "token_budget": ("patch_size", "pool_size", "max_tokens"),
    "longest_side": ("size", "patch_size"),
    "tiles": ("tile_size", "min_tiles", "max_tiles"),
    "padded_tiles": ("tile_size", "max_tiles", "enlarge"),
    "pan_and_scan": ("min_crop_size", "max_crops", "min_ratio"),
}


def call_of(recorded):
    """The name of the rule and its arguments, of the name of a recorded array."""
    rule, *numbers = recorded.split()
    values = [float(x) if "." in x else int(x) for x in numbers]
    arguments = dict(zip(ARGUMENTS[rule], values, strict=False))
    return rule, arguments | ({"enlarge": bool(arguments["enlarge"])} if "enlarge" in arguments else {})


@pytest.mark.parametrize("recorded", [r for r in RECORDED if not r.startswith("pan_and_scan")])
def test_sizes_of_transformers(recorded):
    (rule, arguments), expected = call_of(recorded), RECORDED[recorded]
    served = (expected > 0).all(axis=1)
    assert served.sum() > 600
    sizes = getattr(jd.sizes, rule)(SHAPES[served], **arguments)
    sizes = np.concatenate([*map(np.asarray, sizes)], axis=1) if isinstance(sizes, list) else np.asarray(sizes)
    np.testing.assert_array_equal(sizes, expected[served])
    for shape in SHAPES[~served][:4]:  # the model's processor also raises an error, or makes an image of no pixels
        with pytest.raises(SampleError, match=rf"the image is {shape[0]}x{shape[1]} \(height x width\): \S"):
            getattr(jd.sizes, rule)(shape[None], **arguments)


@pytest.mark.parametrize("recorded", [r for r in RECORDED if r.startswith("pan_and_scan")])
def test_windows_of_transformers(recorded):
    small = SHAPES.prod(axis=1) <= 5_000_000  # the others are not recorded
    _, arguments = call_of(recorded)
    expected = RECORDED[recorded][small].reshape(-1, 4, 4)
    windows = jd.sizes.pan_and_scan(SHAPES[small], **arguments)
    counts = [len(x) for x in windows]
    assert {*counts} == {0, *range(2, arguments["max_crops"] + 1)}
    for x, y in zip(windows, expected, strict=True):
        np.testing.assert_array_equal(x, y[y[:, 2] > 0])


def test_sequences():
    """Shapes of the images of a sample become sizes of the images, and the layout stays."""
    samples = [np.int64([[480, 640, 3], [100, 30, 1]]), np.zeros((0, 3), np.int64), np.int64([[7, 9, 3]])]

    def define(shapes):
        sizes = fn.sizes.smart_resize(shapes, factor=28, min_pixels=3136, max_pixels=12845056)
        return sizes, *fn.sizes.padded_tiles(shapes, tile_size=336, max_tiles=16)

    outputs = run(define, samples, layouts=["F*"])
    sizes = [[np.asarray(x).tolist() for x in output] for output in outputs]
    assert sizes[0] == [[[476, 644], [112, 28]], [], [[56, 84]]]
    assert sizes[2] == [[[672, 672], [336, 336]], [], [[336, 336]]]
    assert [output.layout() for output in outputs] == ["F*"] * 3
    assert np.asarray(outputs[0][1]).shape == (0, 2)


def test_size_argument_of_resize():
    images = [np.full((40, 90, 3), 7, np.uint8), np.full((33, 20, 3), 9, np.uint8)]
    (out,) = run(
        lambda x: fn.resize(x, size=fn.sizes.patch_budget(x.shape(), patch_size=8, max_patches=8)),
        images,
        layouts=["HWC"],
    )
    assert [np.asarray(x).shape for x in out] == [(16, 32, 3), (32, 16, 3)]


def test_images_without_a_size():
    numbers = {"factor": 28, "min_pixels": 3136, "max_pixels": 12845056}
    with pytest.raises(SampleError, match=r"sample 1: the image is empty, 0x640 \(height x width\)"):
        jd.sizes.smart_resize(np.int64([[480, 640, 3], [0, 640, 3]]), **numbers)
    with pytest.raises(OperatorError, match=r"image 2: .* 5x1001 .*one side is 200.2 times the other"):
        run(lambda x: fn.sizes.smart_resize(x, **numbers), [np.int32([[9, 9], [8, 8], [5, 1001]])], layouts=["F*"])
    with pytest.raises(OperatorError, match=r"begins with height and width, .*got 1-D int32 with 1 numbers there"):
        run(lambda x: fn.sizes.tiles(x[:1], tile_size=448, max_tiles=2), [np.int32([480, 640])])
    with pytest.raises(SampleError, match="a side would have more than 2147483647 pixels"):
        jd.sizes.longest_side(np.int64([[2**40, 5]]), size=2**31 - 1, patch_size=2**30)
    with pytest.raises(SampleError, match=r"1x5 .*, too small for 4 windows of 2 pixels: give a min_crop_size above 1"):
        jd.sizes.pan_and_scan(np.int32([[1, 5]]), min_crop_size=1, max_crops=4, min_ratio=1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: fn.sizes.smart_resize(x, factor=28, min_pixels=9, max_pixels=8),
            "min_pixels=9 is more than max_pixels=8",
        ),
        (lambda x: fn.sizes.tiles(x, tile_size=448, min_tiles=3, max_tiles=2), "min_tiles=3 is more than max_tiles=2"),
        (
            lambda x: fn.sizes.patch_budget(x, patch_size=0, max_patches=2),
            "argument patch_size must be .* at least 1, got 0",
        ),
        (
            lambda x: fn.sizes.tiles(x[0], tile_size=448, max_tiles=2),
            "begins with height and width, .*got 0-D int32, a scalar",
        ),
        (lambda x: fn.sizes.tiles(x * 1.5, tile_size=448, max_tiles=2), "must be integers .*got 1-D float32"),
        (
            lambda _: fn.sizes.tiles(np.int32([8, 480, 640, 3]), tile_size=448, max_tiles=2),
            r"with 4 numbers there; of a video take shape\[1:\]",
        ),
        (
            lambda x: fn.sizes.tiles(fn.cast(x, dtype=types.UINT8), tile_size=448, max_tiles=2),
            r"got encoded files: give peek_image_shape\(files\)",
        ),
        (lambda x: fn.sizes.pan_and_scan(fn.stack(x, x)), "the shape of one image, 1-D, .* got 2-D"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        run(call, [np.int32([480, 640, 3])])
