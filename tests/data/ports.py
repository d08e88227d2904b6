"""Writes ports.npz: images as known code bases prepare them, by the calls of TensorFlow, JAX and Pillow that these make.

Needs tensorflow-cpu 2.21, jax and Pillow 13: python ports.py, in this folder. The results are small, so sizes are too.
"""

import math
import pathlib

import jax
import numpy as np
import tensorflow as tf
from PIL import Image

PHOTOS = pathlib.Path(__file__).parents[2] / "examples" / "images"
NAMES = ("cat/cat_0", "coffee/coffee_2", "rocket/rocket_1")
found = {}


def big_vision_eval(jpeg, size):
    """decode|resize_small(size * 8 / 7)|central_crop(size)|value_range(-1, 1)"""
    image = tf.io.decode_image(jpeg, channels=3, expand_animations=False)
    h, w = image.shape[:2]
    factor = tf.cast(size * 8 // 7, tf.float32) / tf.cast(min(h, w), tf.float32)
    h, w = (int(tf.cast(tf.round(tf.cast(n, tf.float32) * factor), tf.int32)) for n in (h, w))
    image = tf.cast(tf.clip_by_value(tf.image.resize(image, (h, w), "area"), 0, 255), tf.uint8)
    image = tf.image.crop_to_bounding_box(image, (h - size) // 2, (w - size) // 2, size, size)
    return -1 + tf.cast(image, tf.float32) / 255 * 2


def big_vision_train(jpeg, window, size):
    """decode_jpeg_and_inception_crop(size)|value_range(-1, 1), for a window (y, x, height, width)"""
    image = tf.image.decode_and_crop_jpeg(jpeg, window, channels=3)
    image = tf.cast(tf.clip_by_value(tf.image.resize(image, (size, size), "bilinear"), 0, 255), tf.uint8)
    return -1 + tf.cast(image, tf.float32) / 255 * 2


def flax(jpeg, window, size):
    image = tf.image.resize(tf.image.decode_and_crop_jpeg(jpeg, window, channels=3), (size, size), "bicubic")
    return (image - np.float32([0.485 * 255, 0.456 * 255, 0.406 * 255])) / np.float32([0.229 * 255, 0.224 * 255, 0.225 * 255])


def flax_eval(jpeg, size):
    h, w, _ = tf.image.extract_jpeg_shape(jpeg).numpy().tolist()
    inner = int(size / (size + 32) * min(h, w))
    return flax(jpeg, ((h - inner + 1) // 2, (w - inner + 1) // 2, inner, inner), size)


def smart_resize(height, width, factor, fewest, most):
    h, w = round(height / factor) * factor, round(width / factor) * factor
    if h * w > most:
        beta = math.sqrt(height * width / most)
        h, w = (max(factor, math.floor(n / beta / factor) * factor) for n in (height, width))
    elif h * w < fewest:
        beta = math.sqrt(fewest / (height * width))
        h, w = (math.ceil(n * beta / factor) * factor for n in (height, width))
    return h, w


def qwen(photo, most, patch=16, merge=2, frames=2):
    """Patches of MaxText's processor for Qwen3-Omni: [patches, channels * frames * patch * patch], and their grid."""
    for factor in (28, patch * merge):
        h, w = smart_resize(photo.height, photo.width, factor, 4 * 28 * 28, most)
        photo = photo.resize((w, h), Image.BICUBIC)
    x = (np.asarray(photo, np.float32) - 127.5) / 127.5
    x = np.repeat(x.transpose(2, 0, 1)[None], frames, 0)
    x = x.reshape(frames, 3, h // patch // merge, merge, patch, w // patch // merge, merge, patch)
    return x.transpose(2, 5, 3, 6, 1, 0, 4, 7).reshape(-1, 3 * frames * patch * patch), (1, h // patch, w // patch)


def with_pad(photo, height, width, by):
    ratio = max(photo.width / width, photo.height / height)
    h, w = int(photo.height / ratio), int(photo.width / ratio)
    if by == "pillow":
        image = np.asarray(photo.resize((w, h), Image.BILINEAR))
    else:
        x = jax.image.resize(np.asarray(photo), (h, w, 3), "linear")
        image = np.asarray(jax.numpy.round(x).clip(0, 255)).astype(np.uint8)
    top, left = (height - h) // 2, (width - w) // 2
    return np.pad(image, ((top, height - h - top), (left, width - w - left), (0, 0)))


for k, name in enumerate(NAMES):
    path = PHOTOS / f"{name}.jpg"
    jpeg, photo = path.read_bytes(), Image.open(path).convert("RGB")
    window = (20 + 7 * k, 11 * k, 101 + 30 * k, 130)
    found[f"window_{k}"] = np.array(window)
    found[f"big_vision_eval_{k}"] = big_vision_eval(jpeg, 56)
    found[f"big_vision_train_{k}"] = big_vision_train(jpeg, window, 56)
    found[f"flax_train_{k}"] = flax(jpeg, window, 56)
    found[f"flax_eval_{k}"] = flax_eval(jpeg, 56)
    patches, grid = qwen(photo, 112 * 112)
    found[f"qwen_{k}"], found[f"qwen_grid_{k}"] = np.rint(patches * 127.5 + 127.5).astype(np.uint8), grid  # as pixels: smaller
    for by in ("pillow", "jax"):
        found[f"openpi_{by}_{k}"] = with_pad(photo, 64, 80, by)
for k, x in found.items():
    if k.startswith("big"):
        found[k] = np.rint(np.asarray(x) * 127.5 + 127.5).astype(np.uint8)
    elif k.startswith("flax"):
        found[k] = np.asarray(x).astype(np.float16)
np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), names=NAMES, **found)
