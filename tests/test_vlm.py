"""The table `jaxdali.vlm`, against the numbers and the results of transformers' image processors."""

import dataclasses
import doctest
import functools
import json
import math
import pickle

import numpy as np
import places
import pytest
from pipelines import run

from jaxdali import ArgumentError, ArgumentTypeError, fn, types, vlm
from jaxdali import dynamic as jd

RECORDED = json.loads((places.DATA / "vlm_processors.json").read_text())
QWEN = vlm.processors["qwen2-vl"]
RESAMPLE = {types.INTERP_LINEAR: 2, types.INTERP_CUBIC: 3}  # numbers of Pillow


def side(size):
    """The side of a square, of Hugging Face's way to write it."""
    if not isinstance(size, dict):
        return size
    assert size["height"] == size["width"]
    return size["height"]


def test_every_row_is_recorded():
    assert {*vlm.processors} == {*RECORDED}
    assert all(p.source.startswith("https://huggingface.co/") for p in vlm.processors.values())


@pytest.mark.parametrize("name", RECORDED)
def test_numbers_of_transformers(name):
    p, numbers = vlm.processors[name], RECORDED[name]["numbers"]
    assert [[*p.mean], [*p.std]] == [numbers["image_mean"], numbers["image_std"]]
    assert RESAMPLE[p.interp_type] == numbers["resample"]
    assert p.patches["mean"] == [255 * x for x in numbers["image_mean"]]
    size = numbers.get("size") or {}
    if p.rule == "smart_resize":
        limits = np.array([size["shortest_edge"], size["longest_edge"]]) // (2 if name.startswith("glm") else 1)
        assert [p.min_pixels, p.max_pixels] == limits.tolist()
        assert [p.patch_size, p.merge_size, p.pool_size] == [numbers["patch_size"], *[numbers["merge_size"]] * 2]
        assert p.temporal_patch_size == numbers["temporal_patch_size"]
    elif p.rule == "patch_budget":
        assert [p.patch_size, p.max_patches] == [numbers["patch_size"], numbers["max_num_patches"]]
    elif p.rule == "token_budget":
        assert [p.patch_size, p.pool_size] == [numbers["patch_size"], numbers["pooling_kernel_size"]]
        assert p.max_tokens == numbers["max_soft_tokens"]
    elif p.rule == "longest_side":
        assert [p.longest_side, p.patch_size * p.pool_size] == [size["longest_edge"], side(numbers["patch_size"])]
    elif p.rule == "square":
        assert p.side == side(size)
    else:
        assert [p.tile_size, p.max_tiles] == [side(size), numbers["max_patches"]]
        assert p.min_tiles == numbers.get("min_patches")
        assert p.merge_size * p.patch_size == p.tile_size


@pytest.mark.parametrize("name", RECORDED)
def test_results_of_transformers(name):
    """The shapes of what the processors return for images."""
    p, outputs = vlm.processors[name], RECORDED[name]["outputs"]
    for i, (canvas, count) in enumerate(zip(*(f([x["image"] for x in outputs]) for f in (p.canvas, p.num_patches)))):
        shape, grid = outputs[i]["shape"], outputs[i]["grid"]
        if p.rule == "smart_resize":
            assert [1, *(canvas // p.patch_size).tolist()] == grid
            numbers = 3 * p.temporal_patch_size * p.patch_size**2
            assert shape == [count, numbers]
        elif p.rule == "patch_budget":
            assert (canvas // p.patch_size).tolist() == grid
            assert shape == [1, p.max_patches, 3 * p.patch_size**2]
        elif p.rule == "token_budget":
            assert count // p.pool_size**2 == grid
            assert shape == [1, RECORDED[name]["numbers"]["max_soft_tokens"] * p.pool_size**2, 3 * p.patch_size**2]
        elif p.thumbnail:
            tiles = shape[0] if p.rule == "tiles" else shape[-4]
            assert count == tiles * p.merge_size**2
            assert grid in (None, (canvas // p.tile_size).tolist())
            assert shape[-3:] == [3, p.tile_size, p.tile_size]
        else:
            assert shape == [1, 3, *p.size(outputs[i]["image"]).tolist()]


@pytest.mark.parametrize(
    ("name", "image", "tokens"),
    [  # by the models' own counts
        ("qwen2-vl", (480, 640), 17 * 23),
        ("gemma-3", (480, 640), 256),  # mm_tokens_per_image
        ("paligemma-224", (480, 640), 256),
        ("siglip-base-patch16-224", (480, 640), 14 * 14),
        ("siglip-so400m-patch14-384", (480, 640), 27 * 27),
        ("mistral-small-3.1", (1540, 1540), 55 * 55),
        ("internvl3", (448, 448), 256),
        ("internvl3", (896, 896), 5 * 256),
        ("llama-4", (336, 336), 144),
        ("llama-4", (672, 672), 5 * 144),
    ],
)
def test_tokens(name, image, tokens):
    assert vlm.processors[name].tokens(image) == tokens


@pytest.mark.parametrize("name", RECORDED)
def test_nodes_and_arrays_agree(name):
    p = vlm.processors[name]
    shapes = [np.int64([480, 640, 3]), np.int64([900, 70, 3]), np.int64([31, 32, 1])]
    sizes, canvases = run(lambda x: tuple(fn.copy(f(x)) for f in (p.size, p.canvas)), shapes)
    np.testing.assert_array_equal(sizes.as_array(), p.size(np.stack(shapes)))
    np.testing.assert_array_equal(canvases.as_array(), p.canvas(np.stack(shapes)))
    assert p.size(shapes[0]).dtype == sizes.as_array().dtype == np.int32
    assert p.size(np.zeros((4, 0, 3), np.int32)).shape == (4, 0, 2)


def test_padded_canvas_of_images():
    """The line in the docstring of `canvas` pads and crops."""
    for name, image in (("llama-4", (300, 500)), ("siglip-so400m-patch14-384", (384, 384))):
        h, w = canvas = vlm.processors[name].canvas(image)
        arguments = {"start": [0, 0], "shape": canvas, "axis_names": "HW", "out_of_bounds_policy": "pad"}
        (out,) = run(functools.partial(fn.slice, **arguments), [np.ones((*image, 3), np.uint8)], layouts=["HWC"])
        expected = np.zeros((h, w, 3), np.uint8)
        expected[: image[0], : image[1]] = 1
        np.testing.assert_array_equal(np.asarray(out[0]), expected)


def test_images_without_a_size():
    shapes = np.array([[480, 640, 3], [1, 1000, 3], [0, 7, 3]])
    assert QWEN.tokens(shapes).tolist() == [391, 0, 0]
    assert vlm.processors["gemma-3"].tokens(shapes).tolist() == [256, 256, 0]
    with pytest.raises(ArgumentError, match=r"^smart_resize: image 1: the image is 1x1000 .*; 2 images fail$"):
        QWEN.size(shapes)
    with pytest.raises(ArgumentError, match=r"^square: the image is empty, of shape \[0, 7, 3\]$"):
        vlm.processors["gemma-3"].size(shapes[2])
    with pytest.raises(ArgumentError, match=r"must be integers .*got 1-D float64"):
        QWEN.tokens([480.0, 640.0])
    with pytest.raises(ArgumentTypeError, match=r"known for arrays of shapes; in a pipeline, .* grid of fn.patchify"):
        run(lambda x: QWEN.tokens(x), [np.int64([480, 640, 3])])


def test_other_numbers():
    small = dataclasses.replace(QWEN, max_pixels=200_704)
    assert (small.size((3000, 4000)) == [364, 504]).all()
    assert pickle.loads(pickle.dumps(small)) == small != QWEN
    assert len({small, QWEN, dataclasses.replace(QWEN)}) == 2
    for numbers, message in (
        ({"max_patches": 256}, "the rule 'smart_resize' has no max_patches, its numbers are min_pixels, max_pixels"),
        ({"max_pixels": None}, "the rule 'smart_resize' needs max_pixels"),
        ({"max_pixels": 0}, "max_pixels must be a whole number, at least 1, got 0"),
        ({"patch_size": 14.0}, "patch_size must be a whole number, at least 1, got 14.0"),
        ({"merge_size": None}, "the rule 'smart_resize' needs merge_size"),
        ({"convention": "pil"}, "convention must be one of dali, pillow, .*, got 'pil'"),
        (
            {"patch_layout": "CHW"},
            "with temporal_patch_size=2, patch_layout must have the letters C, F, H, W, got 'CHW'",
        ),
        ({"mean": (), "std": 1.0}, r"mean must be a tuple of finite numbers, got \(\)"),
        ({"mean": (0.5, math.nan, 0.5)}, r"mean must be a tuple of finite numbers, got \(0.5, nan, 0.5\)"),
        ({"std": (math.inf,) * 3}, "std must be a tuple of finite numbers"),
        ({"std": (1.0, 0.0, 1.0)}, "std divides, so it must be above 0"),
        ({"std": (1.0, -1.0, 1.0)}, "std divides, so it must be above 0"),
        ({"std": (1e-45,) * 3}, "std divides, so it must be above 0"),  # which makes infinities of float32
        ({"patch_layout": None}, "patch_layout must be a str, got None"),
        ({"rule": []}, r"rule must be a str, got \[\]"),
        ({"source": None}, "source must be a str, got None"),
        ({"thumbnail": "no"}, "thumbnail must be a bool, got 'no'"),
        (
            {"merge_size": 4},
            r"multiples of 28 pixels \(patch_size \* pool_size\), .* of 56: change merge_size, or pool_size",
        ),
        ({"max_pixels": 100}, "min_pixels=3136 is more than max_pixels=100"),
        ({"rule": "resize"}, "rule must be one of smart_resize, .*, got 'resize'"),
    ):
        with pytest.raises(ArgumentError, match=message):
            dataclasses.replace(QWEN, **numbers)
    for name, numbers, message in (
        (
            "internvl3",
            {"tile_size": 336},
            r"of 336 pixels \(tile_size\), .* multiples of 448: change merge_size, or tile_size",
        ),
        (
            "gemma-3",
            {"side": 470},
            r"of 462 pixels \(side\), but .*pool_size=4 need multiples of 56: change pool_size, or side",
        ),
        ("gemma-3", {"side": 13}, "multiples of 0 pixels"),
        ("gemma-3", {"side": 896 << 24}, "side must be at most 16777216"),
        ("siglip2-naflex", {"pool_size": 2}, r"of 16 pixels \(patch_size\), .* 32: change pool_size, or patch_size"),
    ):
        with pytest.raises(ArgumentError, match=message):
            dataclasses.replace(vlm.processors[name], **numbers)
    with pytest.raises(TypeError):
        vlm.processors["qwen2-vl"] = small  # pyright: ignore[reportIndexIssue]


def test_unknown_names():
    with pytest.raises(KeyError, match=r"no 'qwen3vl'; it has qwen3-vl, qwen2-vl"):
        vlm.processors["qwen3vl"]
    assert vlm.processors.get("qwen3vl") is None


def test_numbers_of_batches():
    """A number for each sample of a batch, which may have several images or none."""
    shapes = [np.int64([[480, 640, 3], [100, 100, 3]]), np.zeros((0, 3), np.int64), np.int64([[900, 900, 3]])]
    p = vlm.processors["internvl3"]
    for batch in (
        jd.batch(shapes, layout="F*"),
        jd.batch([shapes[0]] * 3, layout="F*"),
        jd.batch([x[0] for x in shapes[::2]]),
    ):
        expected = [p.num_patches(np.asarray(x)).sum() for x in batch]
        assert p.num_patches(batch).tolist() == expected
        assert (4 * p.tokens(batch)).tolist() == expected


def test_files_instead_of_shapes():
    files = [path.read_bytes() for path in sorted(places.PHOTOS.glob("*/*.jpg"))[:2]]
    vectors = [np.frombuffer(x, np.uint8) for x in files]
    for x in (files, files[0], vectors[0], jd.batch(files)):
        with pytest.raises(ArgumentError, match=r"got encoded files: give peek_image_shape\(files\)"):
            QWEN.size(x)
    with pytest.raises(ArgumentError, match=r"rows differ in length: give jd\.peek"):
        QWEN.tokens(vectors)
    with pytest.raises(ArgumentError, match=r"with 4 numbers there; of a video take shape\[1:\]"):
        QWEN.size([8, 480, 640, 3])


def test_thumbnail_as_second_image():
    """The lines in the docstring of `ImageProcessor`."""
    p = vlm.processors["internvl3"]
    files = [path.read_bytes() for path in sorted(places.PHOTOS.glob("*/*.jpg"))]
    shapes = jd.peek_image_shape(files).numpy()
    count, k = min((n, k) for k, n in enumerate(p.num_patches(shapes).tolist()) if n > p.merge_size**2)
    file, shape = files[k], shapes[k]
    sizes = np.array([p.size(shape), [p.tile_size, p.tile_size]])
    options = {**p.resize, **p.patches}
    patches, segments, *_ = jd.decoders.image_patches([[file, file]], size=sizes[None], length=count, **options)
    assert (np.asarray(segments[0]) > 0).all()
    of_tile = jd.decoders.image_patches([file], size=sizes[1], **options)[0][0]
    np.testing.assert_array_equal(np.asarray(patches[0])[np.asarray(segments[0]) == 2], of_tile)


def test_example():
    examples = doctest.testmod(vlm)
    assert examples.failed == 0
    assert examples.attempted > 0
