"""Writes conventions.npz: images resized by Pillow 13, TensorFlow 2.21 and JAX. Needs pillow, tensorflow-cpu and jax: python conventions.py."""

import itertools
import json
import pathlib

import jax
import numpy as np
import tensorflow as tf
from PIL import Image

rng = np.random.default_rng(0)
rows, columns = np.mgrid[:37, :26]
smooth = 128 + 100 * np.sin(rows[..., None] / 5 + np.arange(3)) * np.cos(columns[..., None] / 4)
photo = np.clip(smooth + rng.normal(0, 25, (37, 26, 3)), 0, 255).astype(np.uint8)
SIZES = [(17, 13), (61, 40), (9, 50), (37, 26), (30, 11), (37, 12), (80, 24)]
METHODS = {
    "pillow": {"NN": Image.NEAREST, "LINEAR": Image.BILINEAR, "CUBIC": Image.BICUBIC, "LANCZOS3": Image.LANCZOS, "AREA": Image.BOX},
    "tensorflow": {
        **{"NN": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic"},
        **{"LANCZOS3": "lanczos3", "GAUSSIAN": "gaussian", "AREA": "area"},
    },
    "jax": {"LINEAR": "linear", "CUBIC": "cubic", "LANCZOS3": "lanczos3"},
}

cases, arrays = [], {"photo": photo, "gray": photo[..., :1], "floats": photo[..., :1].astype(np.float32) / 7 - 3}


def add(case, result):
    arrays[str(len(cases))] = np.asarray(result)
    cases.append(case)


for name, size in itertools.product(METHODS["pillow"], SIZES):
    method = METHODS["pillow"][name]
    case = {"convention": "pillow", "interp_type": name, "size": size}
    add({**case, "input": "photo"}, Image.fromarray(photo).resize(size[::-1], method))
    if size[0] < 40:
        add({**case, "input": "floats"}, np.asarray(Image.fromarray(arrays["floats"][..., 0]).resize(size[::-1], method))[..., None])
box = (3.25, 5.5, 20.0, 31.75)  # left, top, right, bottom
case = {"convention": "pillow", "interp_type": "CUBIC", "size": (20, 20), "roi_start": (5.5, 3.25), "roi_end": (31.75, 20.0)}
add({**case, "input": "photo"}, Image.fromarray(photo).resize((20, 20), Image.BICUBIC, box=box))
for name, size, antialias in itertools.product(METHODS["tensorflow"], SIZES[:5], (False, True)):
    if name not in ("NN", "AREA") or antialias:
        case = {"convention": "tensorflow", "interp_type": name, "size": size, "antialias": antialias, "input": "gray"}
        add(case, tf.image.resize(arrays["gray"], size, METHODS["tensorflow"][name], antialias=antialias))
for name, size in itertools.product(METHODS["jax"], SIZES[:5]):
    case = {"convention": "tensorflow", "interp_type": name, "size": size, "input": "floats"}
    add(case, jax.image.resize(arrays["floats"], (*size, 1), METHODS["jax"][name]))
np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), cases=json.dumps(cases), **arrays)
