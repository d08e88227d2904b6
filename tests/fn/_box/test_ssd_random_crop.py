"""ssd_random_crop: windows and boxes as in SSD's training."""

import numpy as np
from pipelines import run

from jaxdali import fn

BOXES = np.array([[0.2, 0.3, 0.5, 0.6], [0.6, 0.1, 0.9, 0.5]], np.float32)
# The first two channels of each pixel are its row and column.
IMAGE = np.stack(np.broadcast_arrays(*np.ogrid[:60, :80], np.zeros((1, 1), int)), -1).astype(np.uint8)


def iou(box, window):
    low, high = np.maximum(box[:2], window[:2]), np.minimum(box[2:], window[2:])
    intersection = np.clip(high - low, 0, None).prod()
    area = lambda b: (b[2:] - b[:2]).prod()
    return intersection / (area(box) + area(window) - intersection)


def test_windows_and_boxes():
    inputs = [IMAGE] * 64, [BOXES] * 64, [np.array([7, 8], np.int32)] * 64
    images, boxes, labels = run(
        lambda *x: tuple(fn.ssd_random_crop(*x, num_attempts=3)), *inputs, layouts=["HWC", "", ""]
    )
    whole, overlaps = 0, []
    for image, box, label in zip(*(x.as_cpu() for x in (images, boxes, labels))):
        image, box, label = (np.array(x) for x in (image, box, label))
        y0, x0 = image[0, 0, :2].astype(int)
        height, width = image.shape[:2]
        np.testing.assert_array_equal(image[..., 0], np.arange(y0, y0 + height)[:, None].repeat(width, 1))
        if (height, width) == (60, 80):
            whole += 1
            continue
        assert 0.29 <= height / 60 <= 1.01
        assert 0.45 <= (width / 80) / (height / 60) <= 2.1
        window = np.array([x0 / 80, y0 / 60, (x0 + width) / 80, (y0 + height) / 60])
        overlaps.append(min(iou(b, window) for b in BOXES))
        for b, k in zip(box, label):
            original = BOXES[k - 7]
            relative = (original - np.tile(window[:2], 2)) / np.tile(window[2:] - window[:2], 2)
            np.testing.assert_allclose(b, np.clip(relative, 0, 1), atol=0.05)  # windows are cut to whole pixels
        assert len(box) == len(label) >= 1
    assert 4 <= whole <= 40
    assert min(overlaps) < 0.15 < 0.2 < max(overlaps)
