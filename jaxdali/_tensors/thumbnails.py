"""Arrays as pictures: tells which arrays are images, scales their pixels, and makes HTML with thumbnails."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence

import numpy as np

SHOWN, THUMBNAIL = 32, 128  # maximum number of images in a notebook, and the maximum extent of each in pixels
_CHANNELS = (1, 3, 4)


def as_images(samples: Sequence[np.ndarray], layout: str) -> list[np.ndarray]:
    """Returns the samples as images ``HWC`` or ``HW``; an empty list if they are not images.

    Args:
      layout: of the samples; "" if it is not known.
    """
    # Numbers, bools, and types such as bfloat16 ("V").
    if not samples or any(s.dtype.kind not in "biufV" or 0 in s.shape for s in samples):
        return []
    images = []
    # A sample without a layout is CHW if its first axis can be channels and its last one can't. If a sample is no image,
    # `images` is shorter than `samples` at the end.
    for s in samples:
        if s.ndim == 2 and min(s.shape) > 1 and layout in ("", "HW"):
            images.append(s)
        elif s.ndim == 3 and (
            layout == "CHW" or (layout == "" and s.shape[0] in _CHANNELS and s.shape[2] not in _CHANNELS)
        ):
            images.append(np.moveaxis(s, 0, -1))
        elif s.ndim == 3 and layout in ("", "HWC"):
            images.append(s)
    return images if len(images) == len(samples) and all(s.ndim == 2 or s.shape[2] in _CHANNELS for s in images) else []


def scale_of(images: Sequence[np.ndarray]) -> tuple[float, float]:
    """The values of black and white, common to all images of an output.

    Floats are taken to be in 0 ... 1 or 0 ... 255, if their values are; otherwise black is the minimum and white the
    maximum.
    """
    if images[0].dtype == np.bool_:
        return 0.0, 1.0
    if images[0].dtype == np.uint8:
        return 0.0, 255.0
    finite = [s[np.isfinite(s)] for s in (s.astype(np.float32) for s in images)]
    low, high = (
        min((float(s.min()) for s in finite if s.size), default=0.0),
        max((float(s.max()) for s in finite if s.size), default=1.0),
    )
    if low >= 0 and high <= 255:
        return 0.0, 1.0 if high <= 1 else 255.0
    return low, max(high, low + 1e-6)  # never equal, as `pixels_of` divides by the difference


def pixels_of(image: np.ndarray, scale: tuple[float, float]) -> np.ndarray:
    """Scales an image to floats in 0 ... 1, ``HWC`` or ``HW``."""
    low, high = scale
    scaled = np.nan_to_num((image.astype(np.float32) - low) / (high - low)).clip(0, 1)
    return scaled[..., 0] if scaled.ndim == 3 and scaled.shape[2] == 1 else scaled


def page_of(title: str, samples: Sequence[np.ndarray], layout: str, total: int) -> str | None:
    """HTML of a title and a grid of images; None if the samples are not images.

    Args:
      samples: the first of `total` samples.
      layout: of the samples, such as "HWC"; "" if it is not known.
    """
    images = as_images(samples, layout)
    if not images:
        return None
    scale = scale_of(images)
    cells = "".join(_html_of(pixels_of(x, scale), str(s.shape)) for x, s in zip(images, samples))
    remainder = f"<div>and {total - len(images)} more</div>" if total > len(images) else ""
    return (
        f'<div>{html.escape(title)}</div><div style="display: flex; flex-wrap: wrap; gap: 4px">{cells}</div>{remainder}'
    )


def _html_of(pixels: np.ndarray, title: str) -> str:
    """HTML of one image, ``HWC`` or ``HW`` with values in 0 ... 1."""
    from PIL import Image

    image = Image.fromarray(np.rint(pixels * 255).astype(np.uint8))
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    image.save(file, "png")
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" title="{html.escape(title)}" width="{image.width}" height="{image.height}">'
