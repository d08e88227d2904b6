"""A hundred photos of many sizes, made of the sample photos: the same arrays wherever Pillow decodes JPEG with
libjpeg-turbo.
"""

import numpy as np
import places
from PIL import Image

_SIZES = (  # of the first windows: usual ones, ones whose scaled sides are halves, ones around 224 and 256
    *(
        (375, 500),
        (500, 333),
        (350, 500),
        (500, 350),
        (480, 640),
        (1024, 768),
        (720, 1280),
        (512, 1024),
        (600, 200),
        (150, 120),
    ),
    *(
        (224, 224),
        (225, 224),
        (223, 225),
        (256, 257),
        (255, 511),
        (257, 256),
        (299, 299),
        (128, 1024),
        (1030, 258),
        (64, 64),
    ),
)


def sample_files():
    """The paths of the 21 sample photos, sorted."""
    return sorted(map(str, places.PHOTOS.glob("*/*.jpg")))


def hundred_photos():
    """The sample photos as they are stored, then windows of them as if mirrors stood around: uint8 ``[H, W, 3]``."""
    photos = [np.asarray(Image.open(path).convert("RGB")) for path in sample_files()]
    rng = np.random.default_rng(0)
    for k in range(100 - len(photos)):
        height, width = _SIZES[k] if k < len(_SIZES) else np.exp(rng.uniform(np.log(80), np.log(1200), 2)).astype(int)
        photo = photos[k % 21]
        top, left = rng.integers(0, photo.shape[:2])
        rows = np.pad(np.arange(photo.shape[0]), (0, top + height), "symmetric")[top : top + height]
        columns = np.pad(np.arange(photo.shape[1]), (0, left + width), "symmetric")[left : left + width]
        photos.append(np.ascontiguousarray(photo[rows][:, columns]))
    return photos
