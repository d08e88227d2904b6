"""random_bbox_crop: windows and boxes satisfy the arguments, and are distributed as DALI's."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn, math, types

pytestmark = pytest.mark.same_with_any_jax

BOXES, LABELS = np.array([[0.1, 0.1, 0.4, 0.4], [0.5, 0.5, 0.9, 0.8]], np.float32), np.array([3, 4], np.int32)
N = 600


def crops(boxes=BOXES, labels=None, n=N, **arguments):
    """Anchors and shapes, stacked; then a list of arrays for each other output."""
    inputs = [[boxes] * n] if labels is None else [[boxes] * n, [labels] * n]
    anchor, shape, *others = run(lambda *x: fn.random_bbox_crop(*x, **arguments), *inputs)
    return anchor.as_array(), shape.as_array(), *([np.asarray(x) for x in out] for out in others)


def overlaps(anchor, shape, boxes, kind):
    """``[windows, boxes]``."""
    intersection = np.clip(
        np.minimum((anchor + shape)[:, None], boxes[:, 2:]) - np.maximum(anchor[:, None], boxes[:, :2]), 0, None
    ).prod(2)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return intersection / area if kind == "overlap" else intersection / (area + shape.prod(1)[:, None] - intersection)


@pytest.mark.parametrize("kind", ["iou", "overlap"])
@pytest.mark.parametrize("every", [True, False])
def test_thresholds(kind, every):
    threshold = 0.12 if kind == "iou" else 0.6
    anchor, shape, boxes, labels, indices = crops(
        labels=LABELS,
        scaling=(0.3, 1.0),
        aspect_ratio=(0.5, 2.0),
        thresholds=[threshold],
        threshold_type=kind,
        all_boxes_above_threshold=every,
        allow_no_crop=False,
        output_bbox_indices=True,
    )
    assert [x.dtype for x in (anchor, shape, boxes[0], labels[0], indices[0])] == [np.float32] * 3 + [np.int32] * 2
    metric = overlaps(anchor, shape, BOXES, kind)
    assert ((metric.min(1) if every else metric.max(1)) > threshold - 1e-5).all()
    assert (anchor >= 0).all()
    assert (anchor + shape <= 1 + 1e-6).all()
    assert shape.min() > 0.3
    ratio = shape[:, 0] / shape[:, 1]
    assert ((ratio > 0.5) & (ratio < 2)).all()
    centers = (BOXES[:, :2] + BOXES[:, 2:]) / 2
    for a, s, window_boxes, label, index in zip(anchor, shape, boxes, labels, indices, strict=True):
        is_kept = ((a <= centers) & (centers <= a + s)).all(1)
        assert is_kept.any()
        assert index.tolist() == np.flatnonzero(is_kept).tolist()
        assert label.tolist() == LABELS[is_kept].tolist()
        np.testing.assert_allclose(window_boxes, np.clip((BOXES[is_kept] - [*a, *a]) / [*s, *s], 0, 1), atol=1e-5)


def test_best_of_a_limited_number(caplog):
    metric = overlaps(
        *crops(scaling=(0.3, 0.4), thresholds=[0.9], total_num_attempts=20, allow_no_crop=False)[:2], BOXES, "iou"
    )
    assert "no window was found in 20 attempts" in caplog.text
    caplog.clear()
    one = overlaps(
        *crops(scaling=(0.3, 0.4), thresholds=[0.9], total_num_attempts=1, allow_no_crop=False, quiet=True)[:2],
        BOXES,
        "iou",
    )
    assert not caplog.text
    assert metric.min(1).mean() > 5 * one.min(1).mean()
    anchor, shape, boxes = crops(
        scaling=(0.3, 0.4), aspect_ratio=(5, 6), total_num_attempts=4, allow_no_crop=False, quiet=True, n=3
    )
    assert (anchor == 0).all()  # no window had the aspect ratio: nothing is cropped
    assert (shape == 1).all()
    np.testing.assert_array_equal(boxes, [BOXES] * 3)
    with pytest.raises(
        OperatorError, match=r"random_bbox_crop .*no window was found in 131072 attempts; pass total_num_attempts"
    ):
        crops(scaling=(0.3, 0.4), aspect_ratio=(5, 6), allow_no_crop=False, n=1)


def test_distribution():
    """Means and deviations of 16000 windows of DALI 2.4, without boxes."""
    none = np.zeros((0, 4), np.float32)
    for arguments, mean, std in (
        ({"scaling": (0.3, 0.6)}, (0.5011, 0.5011), (0.0705, 0.0705)),
        ({"scaling": (0.3, 0.6), "aspect_ratio": (0.5, 2.0)}, (0.4512, 0.4512), (0.0865, 0.0865)),
        ({"scaling": (0.1, 1.0), "aspect_ratio": (2.0, 3.0)}, (0.6997, 0.2916), (0.2035, 0.0915)),
    ):
        anchor, shape, _ = crops(none, n=400, allow_no_crop=False, **arguments)
        np.testing.assert_allclose(shape.mean(0), mean, atol=0.03)
        np.testing.assert_allclose(shape.std(0), std, atol=0.015)
        place = anchor / (1 - shape)
        np.testing.assert_allclose([place.mean(), place.std()], [0.5, 12**-0.5], atol=0.03)
    # Not to crop is one of 1 + 1 thresholds, or of 3 + 1; an attempt that misses the aspect ratio draws again.
    for arguments, p in (
        ({}, 0.5),
        ({"thresholds": [0, 0.1, 0.2]}, 0.25),
        ({"aspect_ratio": (2.0, 3.0)}, 0.911),
        ({"aspect_ratio": (2.0, 3.0), "num_attempts": 50}, 0.5),
    ):
        shape = crops(none, n=400, scaling=(0.1, 1.0), **arguments)[1]
        assert abs((shape == 1).all(1).mean() - p) < 0.08


def test_shapes_in_pixels():
    anchor, shape, boxes = crops(crop_shape=[100, 50], input_shape=[400, 200])
    assert (shape == [100, 50]).all()
    assert (anchor == np.round(anchor)).all()
    assert ((anchor >= 0) & (anchor + shape <= [400, 200])).all()
    k = int(np.argmax([len(b) for b in boxes]))
    box_indices = [i for i, b in enumerate(BOXES) if (((b[:2] + b[2:]) / 2 * [400, 200] - anchor[k] <= shape[k]).all())]
    assert len(boxes[k]) == 1
    assert box_indices
    anchor, shape, _ = crops(crop_shape=[50, 500], input_shape=[200, 400], shape_layout="HW")
    assert (shape == [500, 50]).all()
    assert -100 <= anchor[:, 0].min() < anchor[:, 0].max() <= 0
    _, shape, _ = crops(scaling=(0.3, 1.0), aspect_ratio=(0.5, 2.0), input_shape=[400, 200], allow_no_crop=False)
    ratio = 2 * shape[:, 0] / shape[:, 1]
    assert 0.5 < ratio.min() < 0.8
    assert 1.8 < ratio.max() < 2


@pytest.mark.parametrize(
    ("layout", "columns"),
    [("xyXY", [0, 1, 2, 3]), ("yxYX", [1, 0, 3, 2]), ("xyWH", [0, 1, 2, 3]), ("WxHy", [1, 3, 0, 2])],
)
def test_layouts(layout, columns):
    """The same boxes in another layout give the same windows and boxes."""
    expected = crops(scaling=(0.3, 0.6))
    written = BOXES.copy()
    if "W" in layout:
        written[:, 2:] -= written[:, :2]
    swapped = np.empty_like(written)
    swapped[:, columns] = written
    actual = crops(swapped, scaling=(0.3, 0.6), bbox_layout=layout)
    np.testing.assert_allclose(actual[0], expected[0], atol=1e-6)
    for a, b in zip(actual[2], expected[2], strict=True):
        a = a[:, columns]
        if "W" in layout:
            a[:, 2:] += a[:, :2]
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_volumes_and_pruning():
    cube = np.float32([[0.1, 0.1, 0.1, 0.4, 0.4, 0.4]])
    _, shape, boxes = crops(cube, scaling=(0.3, 0.9), aspect_ratio=(1, 1, 0.5, 2, 0.5, 2), allow_no_crop=False, n=100)
    np.testing.assert_allclose(shape[:, 0], shape[:, 1], rtol=1e-6)
    assert shape[:, 2].std() > 0.05
    assert all(b.shape == (1, 6) for b in boxes)
    for threshold in (0.0, 0.2, 1.0):
        anchor, shape, _, indices = crops(scaling=(0.3, 0.9), bbox_prune_threshold=threshold, output_bbox_indices=True)
        overlap = overlaps(anchor, shape, BOXES, "overlap")
        for row, index in zip(overlap, indices, strict=True):
            assert index.tolist() == np.flatnonzero((row >= threshold - 1e-6) & (row > 0)).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"crop_shape": [5, 5]}, "crop_shape needs input_shape"),
        (
            {"crop_shape": [5, 5], "input_shape": [9, 9], "allow_no_crop": True},
            "crop_shape can't be given together with allow_no_crop",
        ),
        (
            {"crop_shape": [5, 5], "input_shape": [9, 9], "scaling": (0.5, 1)},
            "crop_shape can't be given together with aspect_ratio or scaling",
        ),
        ({"scaling": (0.5, 0.3)}, r"scaling must be \(least, most\), got \(0.5, 0.3\)"),
        ({"aspect_ratio": (1.0, 2.0, 1.0)}, "aspect_ratio must be .*three such ranges"),
        ({"thresholds": []}, "thresholds is empty"),
        ({"thresholds": 1.5}, "argument thresholds must be .* in 0 ... 1"),
        ({"bbox_layout": "xyX"}, "bbox_layout must be made of xy and XY or WH, got 'xyX'"),
        ({"shape_layout": "HWC"}, "shape_layout must be made of WH, got 'HWC'"),
        ({"ltrb": True, "bbox_layout": "xyXY"}, "either bbox_layout or ltrb"),
        ({"total_num_attempts": 0}, "total_num_attempts must be at least 1"),
        ({"boxes": BOXES + 0.5}, r"boxes must lie in 0 ... 1"),
        ({"labels": LABELS[:1]}, "there are 2 boxes, but 1 labels"),
        ({"boxes": BOXES[:, :3]}, r"float32 \[n, 4\]|4 coordinates, got 3"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((ValueError, RuntimeError), match=f"random_bbox_crop.*{message}"):
        crops(**arguments, n=1)


def test_crop_shape_computed_from_slices():
    """As detection pipelines do with the result of peek_image_shape: slices of host values, and values computed from
    them, stay on the host.
    """

    def define(boxes, extents):
        height, width = (fn.slice(extents, k, 1, axes=[0], dtype=types.FLOAT) for k in (0, 1))
        side = fn.cast(math.ceil(0.5 * math.min(height, width)), dtype=types.INT32)
        shape = {
            "input_shape": fn.slice(extents, 0, 2, axes=[0]),
            "crop_shape": fn.cat(side, side),
            "shape_layout": "HW",
        }
        return fn.random_bbox_crop(boxes, thresholds=[0.0], total_num_attempts=1000, **shape)[1]

    (shapes,) = run(define, [BOXES] * 2, [np.int32([31, 60, 3]), np.int32([50, 41, 3])])
    assert [np.asarray(x).tolist() for x in shapes] == [[16, 16], [21, 21]]


@pytest.mark.parametrize(("attempts", "expected"), [(1, 0.606), (5, 0.608), (20, 0.613)])
def test_window_without_boxes_ends_attempts(attempts, expected):
    """A window that reaches the threshold, but keeps no box, ends the attempts at that threshold. So nothing is cropped
    as often as in 2000 draws of DALI 2.4, whatever `num_attempts` is.
    """
    n = 1500
    box = np.float32([[0.361, 0.641, 0.86, 0.703]])
    arguments = {
        "scaling": [0.383, 0.606],
        "threshold_type": "overlap",
        "total_num_attempts": 100,
        "num_attempts": attempts,
    }
    _, shape, *_ = run(
        lambda x: tuple(fn.random_bbox_crop(x, quiet=True, input_shape=[50, 211], **arguments)), [box] * n
    )
    assert abs((shape.as_array() == 1).all(axis=1).mean() - expected) < 4 * np.sqrt(0.24 / n) + 0.01


def test_equally_good_windows_are_equally_likely():
    """No window reaches the threshold; all within the box have the same metric, but for rounding."""
    n = 600
    box = np.float32([[0.46, 0.1, 0.95, 0.93]])
    window = {"input_shape": [294, 268], "crop_shape": [22, 65], "thresholds": [0.82]}
    anchor, *_ = run(lambda x: tuple(fn.random_bbox_crop(x, quiet=True, total_num_attempts=1000, **window)), [box] * n)
    low, high = np.array([0.46 * 294, 0.1 * 268]), np.array([0.95 * 294 - 22, 0.93 * 268 - 65])
    deviation = (anchor.as_array().mean(axis=0) - (low + high) / 2) / (high - low)
    assert np.abs(deviation).max() < 4 * np.sqrt(1 / 12 / n) + 0.01
