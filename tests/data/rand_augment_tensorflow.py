"""Writes rand_augment_tensorflow.npz: what the calls of TensorFlow in the usual RandAugment give. Needs tensorflow-cpu 2.21."""

import pathlib

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
y, x = np.mgrid[:60, :45]
waves = 120 + 90 * np.sin(y[..., None] / 11 + np.arange(3)) * np.cos(x[..., None] / 9) + rng.normal(0, 12, (60, 45, 3))
image = np.clip(waves, 5, 249).astype(np.uint8)


def blend(one, other, factor):
    mixed = tf.cast(one, tf.float32) + factor * (tf.cast(other, tf.float32) - tf.cast(one, tf.float32))
    return tf.cast(tf.clip_by_value(mixed, 0.0, 255.0), tf.uint8)


def stretch(channel):
    low, high = tf.cast(tf.reduce_min(channel), tf.float32), tf.cast(tf.reduce_max(channel), tf.float32)
    scale = 255.0 / (high - low)
    return tf.cast(tf.clip_by_value(tf.cast(channel, tf.float32) * scale - low * scale, 0.0, 255.0), tf.uint8)


def equalize(channel):
    counts = tf.histogram_fixed_width(tf.cast(channel, tf.int32), [0, 255], nbins=256)
    present = tf.boolean_mask(counts, counts > 0)
    step = (tf.reduce_sum(present) - present[-1]) // 255
    table = tf.concat([[0], ((tf.cumsum(counts) + step // 2) // step)[:-1]], 0)
    return tf.cast(tf.gather(tf.clip_by_value(table, 0, 255), tf.cast(channel, tf.int32)), tf.uint8)


def channels(function):
    return tf.stack([function(image[..., c]) for c in range(3)], 2)


def projected(matrix):
    """Nearest pixels, as tfa.image has them; 128 outside."""
    with_mask = np.concatenate([image, np.ones_like(image[..., :1])], 2).astype(np.float32)[None]
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        **{"images": with_mask, "transforms": np.float32([[*matrix, 0, 0]]), "output_shape": image.shape[:2], "fill_value": 0.0},
        **{"interpolation": "NEAREST", "fill_mode": "CONSTANT"},
    )[0].numpy()
    return np.where(moved[..., 3:] == 0, 128, moved[..., :3]).astype(np.uint8)


def rotated(degrees):
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    h, w = image.shape[0] - 1, image.shape[1] - 1
    return projected([c, -s, (w - (c * w - s * h)) / 2, s, c, (h - (s * w + c * h)) / 2])


recorded = {"image": image}
for level in (3, 10):
    factor = level / 10 * 1.8 + 0.1
    gray = tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))
    mean = np.minimum(image.shape[0] * image.shape[1] / 256.0, 255.0).astype(np.uint8)
    kernel = tf.tile(tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32, [3, 3, 1, 1]) / 13.0, [1, 1, 3, 1])
    smooth = tf.nn.depthwise_conv2d(image[None].astype(np.float32), kernel, [1, 1, 1, 1], "VALID")[0]
    blurred = image.copy()
    blurred[1:-1, 1:-1] = tf.cast(tf.clip_by_value(smooth, 0.0, 255.0), tf.uint8)
    bits, threshold, shift = int(level / 10 * 4), int(level / 10 * 256), int(level / 10 * 110)
    found = {
        "auto_contrast": channels(stretch),
        "equalize": np.stack([equalize(np.tile(image[..., c], (4, 5)))[:60, :45] for c in range(3)], 2),  # of an image of usual size
        "invert": 255 - image,
        "posterize": tf.bitwise.left_shift(tf.bitwise.right_shift(image, np.uint8(8 - bits)), np.uint8(8 - bits)),
        "solarize": tf.where(tf.cast(image, tf.int32) < threshold, image, 255 - image),
        "solarize_add": tf.where(image < 128, tf.cast(tf.clip_by_value(tf.cast(image, tf.int64) + shift, 0, 255), tf.uint8), image),
        "color": blend(gray, image, factor),
        "contrast": blend(np.full_like(image, mean), image, factor),
        "brightness": blend(np.zeros_like(image), image, factor),
        "sharpness": blend(blurred, image, factor),
        "rotate": rotated(level * 3.0),
        "shear_x": projected([1, level * 0.03, 0, 0, 1, 0]),
        "shear_y": projected([1, 0, 0, level * 0.03, 1, 0]),
        "translate_x": projected([1, 0, level * 10 * 0.2, 0, 1, 0]),  # at most 20 pixels of this small image
        "translate_y": projected([1, 0, 0, 0, 1, level * 10 * 0.2]),
    }
    recorded |= {f"{name}_{level}": np.asarray(x) for name, x in found.items() if level == 10 or name not in ("equalize", "invert")}
np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), **recorded)
