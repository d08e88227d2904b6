"""The guides that port other code bases, against recorded results of these.

Calls of TensorFlow, JAX and Pillow gave those of tests/data/ports.py; torchvision, timm, ADM, clean-fid and
transformers those of evaluation.py.
"""

import contextlib
import functools
import re
import runpy
import zlib
from pathlib import Path

import numpy as np
import places
import pytest
import sample_photos
from pipelines import run

import jaxdali
from jaxdali import fn, types

RECORDED = np.load(places.DATA / "ports.npz")
PHOTOS = [str(places.PHOTOS / f"{name}.jpg") for name in RECORDED["names"]]
SIZE = 56
EVALUATION = np.load(places.DATA / "evaluation.npz")


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The names that the code of a guide defines."""

    @functools.cache
    def names_of(name):
        text = (places.EXAMPLES / "site" / "guides" / f"{name}.md").read_text()
        file = tmp_path_factory.mktemp("guides") / f"{name}.py"  # pipelines with conditionals need their source
        file.write_text("".join(re.findall(r"```\{code-cell\}\n(.*?)```", text, re.DOTALL)))
        with contextlib.chdir(places.ROOT), pytest.MonkeyPatch.context() as patch:
            patch.setattr(jaxdali, "show", lambda images: None)  # which needs matplotlib
            return runpy.run_path(str(file))

    return names_of


def check(images, name, most, often, share):
    """No value is more than `most` off, and at most this share of them more than `often`."""
    for k in range(len(PHOTOS)):
        difference = np.abs(np.asarray(images[k], np.float64) - RECORDED[f"{name}_{k}"])
        assert difference.max() <= most, (name, k)
        assert (difference > often).mean() <= share, (name, k)


def test_imagenet(guide):
    names = guide("port_imagenet")
    in_windows, normalized = names["in_windows"], names["fn"].crop_mirror_normalize
    levels = lambda iterator: next(iterator)["image"] * 127.5 + 127.5
    check(levels(names["big_vision_eval"](PHOTOS, SIZE, batch_size=3)), "big_vision_eval", 1.01, 0.01, 0.03)
    inception = lambda x: normalized(names["inception_crop"](x, SIZE), **names["RANGE"])
    check(levels(in_windows(PHOTOS, inception, batch_size=3)), "big_vision_train", 1.01, 0.01, 0.005)
    # Recorded as float16.
    check(next(names["flax_eval"](PHOTOS, SIZE, batch_size=3))["image"], "flax_eval", 0.002, 0.0, 1.0)
    flax = lambda x: normalized(names["flax_resize"](x, SIZE), **names["COLORS"])
    check(next(in_windows(PHOTOS, flax, batch_size=3))["image"], "flax_train", 0.02, 0.002, 0.005)
    assert names["batch"]["image"].shape == (6, 224, 224, 3)
    assert len({np.asarray(x).tobytes() for x in names["batch"]["image"]}) == 6


def test_images_for_models(guide):
    names = guide("port_vlm")
    jpegs = [Path(p).read_bytes() for p in PHOTOS]
    patches, _, _, grids = names["maxtext_patches"](jpegs, max_pixels=112 * 112)
    np.testing.assert_array_equal(grids.numpy(), [RECORDED[f"qwen_grid_{k}"][1:] for k in range(3)])
    check([np.rint(np.asarray(p) * 127.5 + 127.5) for p in patches], "qwen", 0, 0, 0)
    for convention, library in (("pillow", "pillow"), ("tensorflow", "jax")):
        padded = names["resize_with_pad"](names["photos"], 64, 80, convention)
        check(np.asarray(padded.jax()).astype(int), f"openpi_{library}", 1, 0, 0 if library == "pillow" else 0.001)


@pytest.fixture(scope="module")
def photos():
    return sample_photos.hundred_photos()


CUBIC = {"interp_type": types.INTERP_CUBIC}
TENSORS = {
    "bilinear": {"resize_shorter": 256},
    "bicubic": {"resize_shorter": 256, **CUBIC},
    "bicubic max_size": {"resize_shorter": 256, "max_size": 333, **CUBIC},
    "lanczos": {"size": (224, 224), "interp_type": types.INTERP_LANCZOS3},
    "nearest": {"resize_shorter": 224, "interp_type": types.INTERP_NN},
    "bilinear, not antialiased": {"resize_shorter": 224, "antialias": False},
    "bicubic, not antialiased": {"resize_shorter": 224, "antialias": False, **CUBIC},
}
TRANSFORMS = {  # a function of a guide, and its arguments
    "torchvision 256": ("torchvision_eval", {}),
    "torchvision 232": ("torchvision_eval", {"size": 232}),
    "torchvision 256 bicubic": ("torchvision_eval", CUBIC),
    "torchvision 200 max_size": ("torchvision_eval", {"size": 200, "max_size": 300}),
    "timm 0.875 bilinear": ("timm_eval", {"interp_type": types.INTERP_LINEAR}),
    "timm 0.9 bicubic": ("timm_eval", {"crop_pct": 0.9}),
    "timm 0.95 bicubic": ("timm_eval", {"crop_pct": 0.95}),
    "timm 1.0 bicubic": ("timm_eval", {"crop_pct": 1.0}),
    "timm squash": ("timm_eval", {"crop_pct": 0.95, "crop_mode": "squash"}),
    "timm border": ("timm_eval", {"crop_pct": 0.95, "crop_mode": "border"}),
    "timm wide": ("timm_eval", {"input_size": (192, 256), "crop_pct": 0.9}),
    "adm 64": ("adm_crop", {"size": 64}),
    "adm 256": ("adm_crop", {"size": 256}),
    "clean-fid": ("clean_fid", {}),
}


def check_sums(name, results):
    assert len(results) == 100
    assert [zlib.crc32(np.ascontiguousarray(x)) for x in results] == EVALUATION[name].tolist()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_evaluation_of_a_hundred_photos(name, guide, photos):
    function, arguments = TRANSFORMS[name]
    (results,) = run(lambda x: guide("evaluation")[function](x, **arguments), photos, layouts=["HWC"])
    check_sums(name, [results.at(i) for i in range(100)])


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_torchvision(name, photos):
    (results,) = run(lambda x: fn.resize(x, **TENSORS[name], convention="torchvision"), photos, layouts=["HWC"])
    check_sums(f"tensor {name}", [results.at(i) for i in range(100)])


def test_evaluation_of_bytes_by_pillow(photos):
    squashed = {"size": (256, 240), "convention": "pillow"}
    definition = lambda x: (
        fn.resize(x, size=(299, 299), convention="pillow"),
        fn.crop(fn.resize(x, **squashed), crop=(224, 224), rounding="torchvision"),
    )
    for name, results in zip(
        ("clean-fid bytes", "torchvision squashed"), run(definition, photos, layouts=["HWC"]), strict=True
    ):
        check_sums(name, [results.at(i) for i in range(100)])


PROCESSORS = {  # mean and standard deviation of 0 to 1
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "vit": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


@pytest.mark.parametrize("convention", ["torchvision", "pillow"])
@pytest.mark.parametrize("name", PROCESSORS)
def test_processors_of_a_hundred_photos(name, convention, photos):
    """The functions of the guide to Hugging Face, which needs `datasets` for the rest."""
    text = (places.EXAMPLES / "site" / "guides" / "huggingface.md").read_text()
    names = {"fn": fn, "types": types}
    exec(*re.findall(r"^def clip.*?(?=^@)", text, re.DOTALL | re.MULTILINE), names)
    (results,) = run(lambda x: names[name](x, convention=convention), photos, layouts=["HWC"])
    mean, std = np.float64(PROCESSORS[name])
    levels = 255 * (np.asarray(results.as_array()).transpose(0, 2, 3, 1) * std + mean)
    np.testing.assert_allclose(levels, levels.round(), rtol=0, atol=1e-4)
    check_sums(f"{name} {convention}", levels.round().astype(np.uint8))


def test_normalized_evaluation(guide):
    """The decoded files, resized, cut and normalised at once."""
    names = guide("evaluation")
    files = sample_photos.sample_files()
    assert [zlib.crc32(x) for x in names["images"]] == EVALUATION["torchvision 256"][: len(files)].tolist()
    np.testing.assert_allclose(names["floats"], names["expected"].transpose(0, 3, 1, 2), rtol=0, atol=5e-7)
