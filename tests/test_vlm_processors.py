"""Images of vision-language models, against the image processors of transformers: tests/data/vlm.py recorded 64 photos.

Pillow and torchvision resize bytes there, and `jd.resize` is equal to either one to the bit.
"""

import dataclasses
import functools
import json
import zlib

import numpy as np
import places
import pytest
from pipelines import run

import jaxdali.dynamic as jd
from jaxdali import SampleError, fn, types, vlm

RECORDED = dict(np.load(places.DATA / "vlm.npz"))
ABOUT = json.loads(str(RECORDED["about"]))
FILES = [file.tobytes() for file in np.split(RECORDED["files"], RECORDED["ends"][:-1])]
SHAPES, NAMES = RECORDED["shapes"], ABOUT["photos"]
MODELS = {
    "qwen2-vl": "qwen2-vl",
    "qwen2-vl small": "qwen2.5-vl",  # of which transformers has the same processor
    "qwen3-vl": "qwen3-vl",
    "siglip2": "siglip2-naflex",
    "siglip": "siglip-so400m-patch14-384",
    "gemma3": "gemma-3",
    "gemma3 windows": "gemma-3",
    "pixtral": "pixtral",
    "internvl": "internvl3",
    "llama4": "llama-4",
}
EVERY = [(name, by) for name in MODELS for by in ("pillow", "torchvision") if f"{name}/{by}/sums" in RECORDED]

# Photos that Pillow reads otherwise. It cuts 16 bits of gray at 255. Where one color of a palette is transparent,
# load_image makes RGB of it and keeps a note of the color, and then processors with do_convert_rgb make it white.
CUT = "png gray 16 bit"
PAINTED = {"png palette transparent": (156, 155, 126), "gif transparent": (62, 202, 87)}
ALIKE = np.array([k for k, name in enumerate(NAMES) if name != CUT and name not in PAINTED])


@functools.cache
def photos(paints=True):
    """The pixels of all photos as Pillow reads them, and with `paints` as processors with do_convert_rgb do."""
    pixels = [np.asarray(x) for x in jd.decoders.image(FILES)]
    for k, name in enumerate(NAMES):
        if name == CUT:
            (gray,) = jd.decoders.image([FILES[k]], dtype=types.UINT16)
            pixels[k] = np.minimum(np.asarray(gray), 255).astype(np.uint8)
        elif name in PAINTED and paints:
            is_clear = (pixels[k] == np.uint8(PAINTED[name])).all(-1, keepdims=True)
            assert is_clear.any()
            pixels[k] = np.where(is_clear, np.uint8(255), pixels[k])
    return pixels


def model(name, library):
    """The numbers of jaxdali's table, with the smaller sizes that were recorded."""
    arguments, p = ABOUT["processors"][name], vlm.processors[MODELS[name]]
    size, numbers = arguments.get("size", {}), {}
    if p.rule == "smart_resize":
        numbers = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    elif p.rule == "patch_budget":
        numbers = {"max_patches": arguments["max_num_patches"]}
    elif p.rule == "longest_side":
        numbers = {"longest_side": size["longest_edge"]}
    elif p.rule == "square":
        numbers = {"side": size["height"]}
    else:
        numbers = {
            "tile_size": size["height"],
            "merge_size": size["height"] // p.patch_size,
            "max_tiles": arguments["max_patches"],
        }
    return dataclasses.replace(p, **numbers, convention=library)


def served_photos(p, among):
    """The numbers of the photos that the rule can serve."""
    return among[p.num_patches(SHAPES[among]) > 0]


def processed(images, shapes, p):
    """For each image its patches, their positions and the grid."""
    resized = jd.resize(images, size=p.size(shapes), **p.resize)
    if p.rule == "padded_tiles":
        pad = {"axis_names": "HW", "out_of_bounds_policy": "pad"}
        resized = jd.slice(resized, start=[0, 0], shape=p.canvas(shapes), **pad)
    patches, _, positions, grid = jd.patchify(resized, **p.patches)
    return [tuple(map(np.asarray, of_one)) for of_one in zip(patches, positions, grid, strict=True)]


def pixels_of(patches, positions, grid, p):
    """The image ``[3, height, width]`` that the patches come from."""
    extents = {"H": p.patch_size, "W": p.patch_size, "C": 3}
    patches = patches.reshape(-1, *(extents[axis] for axis in p.patch_layout))
    image = np.full((*grid, *patches.shape[1:]), np.nan, np.float32)
    image[tuple(positions.T)] = patches
    row, column, channel = (2 + p.patch_layout.index(axis) for axis in "HWC")
    return image.transpose(channel, 0, row, 1, column).reshape(3, *(grid * p.patch_size))


def tiles_of(image, side):
    """``[tiles, 3, side, side]``, row by row."""
    return image.reshape(3, image.shape[1] // side, side, -1, side).transpose(1, 3, 0, 2, 4).reshape(-1, 3, side, side)


def windows(k):
    """Photo and windows that Gemma's processor cuts out of it."""
    arguments = ABOUT["processors"]["gemma3 windows"]
    (cuts,) = jd.sizes.pan_and_scan(
        SHAPES[k : k + 1],
        min_crop_size=arguments["pan_and_scan_min_crop_size"],
        max_crops=arguments["pan_and_scan_max_num_crops"],
        min_ratio=arguments["pan_and_scan_min_ratio_to_activate"],
    )
    photo = photos()[k]
    return [photo, *(photo[y : y + height, x : x + width] for y, x, height, width in np.asarray(cuts))]


def of_transformers(name, library):
    """For each photo that the rule can serve: its number, the values in the order of transformers, and the numbers that
    transformers returns besides.
    """
    p, images = model(name, library), photos(paints=name != "siglip2")
    served = served_photos(p, np.arange(len(FILES)))
    if name == "gemma3 windows":
        for k in served:
            cuts = windows(k)
            shapes = np.array([x.shape for x in cuts])
            yield k, np.stack([pixels_of(*x, p) for x in processed(cuts, shapes, p)]), [len(cuts) - 1]
        return
    results = processed([images[k] for k in served], SHAPES[served], p)
    whole, thumbnails = p, []
    if p.thumbnail:
        whole = dataclasses.replace(vlm.processors["gemma-3"], side=p.tile_size, pool_size=1, mean=p.mean, std=p.std)
        whole = dataclasses.replace(whole, interp_type=p.interp_type, convention=library)
        thumbnails = processed([images[k] for k in served], SHAPES[served], whole)
    for i, (k, (patches, positions, grid)) in enumerate(zip(served, results, strict=True)):
        if name.startswith("qwen"):
            yield k, patches, [1, *grid]
        elif name == "siglip2":
            yield k, patches, grid
        elif not p.thumbnail:
            image = pixels_of(patches, positions, grid, p)
            yield k, image, image.shape[1:]
        else:
            tiles = tiles_of(pixels_of(patches, positions, grid, p), p.tile_size)
            if len(tiles) > 1:
                tiles = np.concatenate([tiles, pixels_of(*thumbnails[i], whole)[None]])
            yield k, tiles, [len(tiles)] if name == "internvl" else grid * p.patch_size // p.tile_size


@pytest.mark.parametrize(("name", "library"), EVERY)
def test_values(name, library):
    p = model(name, library)
    mean, std = (np.array(x, np.float32)[:, None] for x in (p.mean, p.std))
    recorded = {key: RECORDED[f"{name}/{library}/{key}"] for key in ("counts", "levels", "sums", "values")}
    results = list(of_transformers(name, library))
    np.testing.assert_array_equal([k for k, _, _ in results], recorded["counts"].nonzero()[0])
    for k, values, grid in results:
        message = f"{name}, {library}, {NAMES[k]}"
        if name != "gemma3":  # which returns a number of windows, 0
            np.testing.assert_array_equal(grid, RECORDED[f"{name}/grid"][k], err_msg=message)
        assert values.size == recorded["counts"][k], message
        # All channels of SigLIP 2, whose order is another one, have the same numbers.
        num_elements = values.shape[-1] // 3 if values.ndim == 2 else values.shape[-2] * values.shape[-1]
        levels = (values.reshape(-1, 3, num_elements) * std + mean) * 255
        levels = np.rint(levels).astype(np.uint8).ravel()
        sampled = (RECORDED["fractions"] * values.size).astype(int)
        np.testing.assert_array_equal(levels[sampled], recorded["levels"][k], err_msg=message)
        assert zlib.crc32(levels) == recorded["sums"][k], message
        sampled = sampled[: recorded["values"].shape[1]]
        # Llama 4's processor computes in bfloat16.
        tolerance = 1e-6 if name != "llama4" else 1 / 127.5
        np.testing.assert_allclose(values.ravel()[sampled], recorded["values"][k], 0, tolerance, err_msg=message)


def test_convention_of_each_row():
    """A model has a processor of the library that its row names."""
    for name, row in MODELS.items():
        assert (name, vlm.processors[row].convention) in EVERY


def test_photos_of_pillow():
    np.testing.assert_array_equal(np.asarray(jd.peek_image_shape(FILES))[:, :2], SHAPES)
    sums = [zlib.crc32(np.ascontiguousarray(x)) for x in photos(paints=False)]
    np.testing.assert_array_equal(np.array(NAMES)[sums != RECORDED["pixels"]], [])


def three_operators(files, p):
    images = fn.decoders.image(files)
    return fn.patchify(fn.resize(images, size=p.size(fn.peek_image_shape(files)), **p.resize), **p.patches)


def one_operator(files, p):
    return fn.decoders.image_patches(files, size=p.size(fn.peek_image_shape(files)), **p.resize, **p.patches)


@pytest.mark.parametrize("define", [three_operators, one_operator])
@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("qwen2-vl", "pillow"),
        ("qwen3-vl", "torchvision"),
        ("siglip2", "pillow"),
        ("gemma3", "torchvision"),
        ("pixtral", "pillow"),
        ("internvl", "torchvision"),
    ],
)
def test_pipelines_of_files(define, name, library):
    p = model(name, library)
    served = served_photos(p, ALIKE)
    expected = processed([photos()[k] for k in served], SHAPES[served], p)
    patches, _, positions, grid = run(lambda x: define(x, p), [np.frombuffer(FILES[k], np.uint8) for k in served])
    for i, k in enumerate(served):
        for x, y in zip((patches[i], positions[i], grid[i]), expected[i], strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"{name}, {library}, {NAMES[k]}")


@pytest.mark.parametrize("name", ["qwen2-vl", "siglip2"])
def test_files_of_one_sample(name):
    """A sequence of files: the patches of one image follow those of another, without gaps."""
    p = model(name, "pillow")
    served = served_photos(p, ALIKE)
    expected = processed([photos()[k] for k in served], SHAPES[served], p)
    counts = p.num_patches(SHAPES[served])
    files = np.zeros((len(served), max(len(FILES[k]) for k in served)), np.uint8)
    for row, k in zip(files, served, strict=True):
        row[: len(FILES[k])] = np.frombuffer(FILES[k], np.uint8)
    options = {"size": p.size(SHAPES[served])[None], "length": int(counts.sum()) + 5, **p.resize, **p.patches}
    outputs = jd.decoders.image_patches(jd.batch(files[None], layout="F*"), **options)
    patches, segments, positions, grid = (np.asarray(x)[0] for x in outputs)
    padding = [np.zeros((5, patches.shape[1])), np.zeros(5), np.zeros((5, 2))]
    np.testing.assert_array_equal(patches, np.concatenate([*(x[0] for x in expected), padding[0]]))
    np.testing.assert_array_equal(segments, np.concatenate([np.arange(len(served)).repeat(counts) + 1, padding[1]]))
    np.testing.assert_array_equal(positions, np.concatenate([*(x[1] for x in expected), padding[2]]))
    np.testing.assert_array_equal(grid, [x[2] for x in expected])


@pytest.mark.parametrize("define", [three_operators, one_operator])
@pytest.mark.parametrize("name", ["qwen3-vl", "pixtral"])
def test_photos_without_a_size(define, name):
    """A photo that a processor refuses is the error of its sample."""
    p = model(name, "pillow")
    refused = np.flatnonzero(RECORDED[f"{name}/pillow/counts"] == 0)
    assert len(refused) > 1
    for k in refused:
        files = [np.frombuffer(FILES[i], np.uint8) for i in (0, k, 1)]
        with pytest.raises(SampleError, match=rf"the image is {SHAPES[k][0]}x{SHAPES[k][1]} ") as error:
            run(lambda x: define(x, p), files)
        assert error.value.index == 1
