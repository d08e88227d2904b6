"""Inputs of functions of values."""

import io

import numpy as np
from PIL import Image


def photo(height, width, seed=0):
    """A JPEG file."""
    small = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(file, "jpeg")
    return file.getvalue()


FILES = [photo(60 + 4 * i, 80, i) for i in range(5)]


def images(shape=(4, 20, 30, 3)):
    """A dense batch, always the same."""
    return np.random.default_rng(3).integers(0, 255, shape, np.uint8)
