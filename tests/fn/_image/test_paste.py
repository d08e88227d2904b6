"""Images on canvases."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import fn, types


def noise(*shape, dtype=np.uint8, seed=0):
    return np.random.default_rng([seed, *shape]).integers(0, 255, shape).astype(dtype)


def test_paste():
    images = [noise(10, 13, 3), noise(7, 4, 3)]
    ratio, x, min_size = np.array([[1.55, 2.0], [0.3, 1.0], [0, 20]], np.float32)
    out, plain = run(
        lambda a, r, x, m: (
            fn.paste(a, ratio=r, paste_x=x, paste_y=0.0, min_canvas_size=m, fill_value=(1, 2, 3)),
            fn.paste(a, ratio=2.0, fill_value=9),
        ),
        images, ratio, x, min_size,
        layouts=["HWC", "", "", ""],
    )  # fmt: skip
    for i, (height, width) in enumerate([(15, 20), (20, 20)]):
        want = np.tile(np.uint8([1, 2, 3]), (height, width, 1))
        h, w = images[i].shape[:2]
        x0 = int(x[i] * (width - w))
        want[:h, x0 : x0 + w] = images[i]
        np.testing.assert_array_equal(np.array(out[i]), want)
        want = np.full((2 * h, 2 * w, 3), 9, np.uint8)
        want[h // 2 : h // 2 + h, w // 2 : w // 2 + w] = images[i]
        np.testing.assert_array_equal(np.array(plain[i]), want)


def test_paste_errors():
    for arguments, message in [
        ({"fill_value": (1, 2)}, "argument fill_value is for images with 2 channels, the input has 3"),
        ({"fill_value": (1, 2), "n_channels": 3}, "fill_value must be 1 number or n_channels=3, got 2"),
        ({"fill_value": 1, "n_channels": 4}, "argument n_channels is for images with 4 channels"),
        ({"fill_value": 300}, "argument fill_value must be .* in 0 ... 255"),
        ({"fill_value": 1, "ratio": 0.5}, "argument ratio must be .* at least 1"),
        ({"fill_value": 1, "paste_x": 1.5}, "argument paste_x must be .* in 0 ... 1"),
    ]:
        with pytest.raises(ValueError, match=f"^paste.*: .*{message}"):
            run(
                lambda a, arguments=arguments: fn.paste(a, **{"ratio": 1.5, **arguments}),
                [noise(4, 4, 3)],
                layouts=["HWC"],
            )


def pasted(canvas, images, regions):
    """The canvas with `regions` of (image, (y, x), (height, width), (y, x) on the canvas) pasted."""
    canvas = canvas.copy()
    for k, (y, x), (h, w), (v, u) in regions:
        canvas[v : v + h, u : u + w] = images[k][y : y + h, x : x + w]
    return canvas


def test_regions_of_other_samples():
    images = [noise(20, 30, 3), noise(11, 9, 3), noise(16, 16, 3)]
    ids = [np.int32([1, 0]), np.int32([2]), np.int32([])]
    (out,) = run(
        lambda a, ids, at, shapes, to: fn.multi_paste(
            a, in_ids=ids, in_anchors=at, shapes=shapes, out_anchors=to, output_size=(25, 33), dtype=types.FLOAT
        ),
        images, ids,
        [np.int32([[2, 3], [5, 0]]), np.int32([[0, 1]]), np.zeros((0, 2), np.int32)],
        [np.int32([[9, 5], [10, 30]]), np.int32([[16, 2]]), np.zeros((0, 2), np.int32)],
        [np.int32([[16, 20], [1, 3]]), np.int32([[9, 31]]), np.zeros((0, 2), np.int32)],
        layouts=["HWC", "", "", "", ""],
    )  # fmt: skip
    black = np.zeros((25, 33, 3), np.float32)
    want = [
        pasted(black, images, [(1, (2, 3), (9, 5), (16, 20)), (0, (5, 0), (10, 30), (1, 3))]),
        pasted(black, images, [(2, (0, 1), (16, 2), (9, 31))]),
        black,
    ]
    assert out.layout() == "HWC"
    for pasted_image, expected in zip(map(np.array, out), want, strict=True):
        assert pasted_image.dtype == np.float32
        np.testing.assert_array_equal(pasted_image, expected)


@pytest.mark.parametrize("ragged", [False, True])
def test_one_region_of_each_input(ragged):
    first = (
        [noise(8, 9, 2, dtype=np.int16), noise(10, 7, 2, dtype=np.int16)]
        if ragged
        else [noise(8, 9, 2, dtype=np.int16)] * 2
    )
    second = [noise(5, 5, 2, dtype=np.int16, seed=k) for k in range(2)]
    (out,) = run(
        lambda a, b: fn.multi_paste(a, b, output_size=(12, 10), out_anchors_rel=[[0, 0], [0.5, 0.5]], shapes_rel=[[1, 1], [0.5, 0.41]]),
        first, second,
        layouts=["HWC", "HWC"],
    )  # fmt: skip
    for i in range(2):
        size = first[i].shape[:2]
        want = pasted(
            np.zeros((12, 10, 2), np.int16),
            [first[i], second[i]],
            [(0, (0, 0), size, (0, 0)), (1, (0, 0), (3, 3), (6, 5))],
        )
        np.testing.assert_array_equal(np.array(out[i]), want)


def test_sequences_and_the_size_of_the_images():
    clips = [noise(3, 6, 7, 1), noise(3, 6, 7, 1, seed=1)]
    (out,) = run(lambda a: fn.multi_paste(a, in_ids=[1, 0], in_anchors=[[0, 0], [3, 2]]), clips, layouts=["FHWC"])
    for clip in map(np.array, out):
        want = clips[1].copy()
        want[:, :3, :5] = clips[0][:, 3:, 2:]
        np.testing.assert_array_equal(clip, want)


def test_multi_paste_errors():
    images = [noise(6, 6, 3), noise(7, 6, 3)]
    for arguments, message in [
        ({"in_ids": [0]}, r"output_size must be given for images of different sizes, got \[\[6, 6\], \[7, 6\]\]"),
        ({"in_ids": [2], "output_size": (9, 9)}, r"in_ids must be samples of the batch, 0 \.\.\. 1; got 2"),
        (
            {"in_ids": [0], "output_size": (5, 9)},
            r"region 0 must lie inside the output of size \[5, 9\], it is at \[0, 0\] and of size \[6, 6\]",
        ),
        ({"in_ids": [0], "output_size": (9, 9), "shapes": [[7, 7]]}, "region 0 must lie inside the input"),
        (
            {"in_ids": [0, 1], "output_size": (9, 9), "shapes": [[3, 3]]},
            "argument shapes must have 2 x 2 numbers, one pair per region; got 2",
        ),
        ({"shapes": [[3, 3]], "shapes_rel": [[0.5, 0.5]]}, "give either shapes or shapes_rel, not both"),
        (
            {"in_ids": [0], "output_size": (9, 9), "shapes_rel": [[0.5, 1.5]]},
            "argument shapes_rel must be .* in 0 ... 1",
        ),
    ]:
        with pytest.raises((ValueError, RuntimeError), match=f"multi_paste.*{message}"):
            run(lambda a, arguments=arguments: fn.multi_paste(a, **arguments), images, layouts=["HWC"])
    with pytest.raises(ValueError, match=r"multi_paste.*: in_ids are samples of one input, got 2"):
        run(lambda a: fn.multi_paste(a, a, in_ids=[0]), images, layouts=["HWC"])
