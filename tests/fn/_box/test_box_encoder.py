"""box_encoder: results of DALI 2.4, and the definition for many boxes."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn

ANCHORS = np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0.25, 0.25, 0.75, 0.75], [0, 0.5, 0.5, 1]], np.float32)
BOXES, LABELS = np.array([[0.1, 0.1, 0.4, 0.4], [0.5, 0.5, 0.9, 0.8]], np.float32), np.array([3, 4], np.int32)
CENTERS = [[0.25, 0.25, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5], [0.25, 0.75, 0.5, 0.5]]
FIRST, SECOND = [0.25, 0.25, 0.3, 0.3], [0.7, 0.65, 0.4, 0.3]


def encode(boxes=BOXES, labels=LABELS, anchors=ANCHORS, **arguments):
    out = run(
        lambda b, c: fn.box_encoder(b, c, anchors=np.asarray(anchors).ravel().tolist(), **arguments), [boxes], [labels]
    )
    return tuple(np.asarray(x[0]) for x in out)


@pytest.mark.parametrize(
    ("arguments", "boxes", "labels"),
    [
        ({}, [FIRST, SECOND, CENTERS[2], CENTERS[3]], [3, 4, 0, 0]),
        ({"criteria": 0.1}, [FIRST, SECOND, SECOND, CENTERS[3]], [3, 4, 4, 0]),
        (
            {
                "criteria": 0.1,
                "offset": True,
                "means": [0.1, 0.2, 0.3, 0.4],
                "stds": [0.5, 0.6, 0.7, 0.8],
                "scale": 300.0,
            },
            [
                [-0.2, -0.3333333, -1.1583223, -1.1385320],
                [-0.4, -0.6666667, -0.7473481, -1.1385320],
                [0.6, 0.1666667, -0.7473481, -1.1385320],
                [0, 0, 0, 0],
            ],
            [3, 4, 4, 0],
        ),
    ],
)
def test_recorded(arguments, boxes, labels):
    encoded = encode(**arguments)
    assert [x.dtype for x in encoded] == [np.float32, np.int32]
    np.testing.assert_allclose(encoded[0], boxes, atol=2e-6)
    assert encoded[1].tolist() == labels


@pytest.mark.parametrize(
    ("boxes", "labels", "arguments", "expected"),
    [  # of equal overlaps the last; an anchor's overlap is above the criterion, not equal to it
        ([BOXES[0]] * 2, [5, 6], {"criteria": 0.05}, [6, 0, 6, 0]),
        ([ANCHORS[2]], [5], {"criteria": 1.0, "anchors": ANCHORS[[2, 2, 0]]}, [0, 5, 0]),
        ([[0, 0, 1, 1]], [5], {"criteria": 0.25}, [0, 0, 0, 5]),
        ([[0.9, 0, 1, 0.1]], [7], {}, [0, 0, 0, 7]),
        ([BOXES[0], [0, 0, 0.4, 0.4], [0.6, 0.6, 0.9, 0.9]], [1, 2, 3], {"anchors": ANCHORS[:1]}, [3]),
        (np.zeros((0, 4)), [], {}, [0, 0, 0, 0]),
    ],
)
def test_recorded_matches(boxes, labels, arguments, expected):
    assert encode(np.float32(boxes).reshape(-1, 4), np.int32(labels), **arguments)[1].tolist() == expected


def test_definition():
    rng = np.random.default_rng(1)
    low = rng.uniform(0, 0.7, (60, 2))
    anchors = np.concatenate([low, low + rng.uniform(0.05, 0.3, (60, 2))], 1).astype(np.float32)
    low = rng.uniform(0, 0.7, (9, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.05, 0.3, (9, 2))], 1).astype(np.float32)
    encoded, labels = encode(boxes, np.arange(1, 10, dtype=np.int32)[:, None], anchors, criteria=0.2)

    def iou(a, b):
        w, h = (max(0, min(a[k + 2], b[k + 2]) - max(a[k], b[k])) for k in (0, 1))
        return w * h / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h)

    overlap = np.array([[iou(a, b) for a in anchors] for b in boxes])
    expected = [overlap[:, k].argmax() + 1 if overlap[:, k].max() > 0.2 else 0 for k in range(60)]
    for b in range(9):
        expected[overlap[b].argmax()] = b + 1
    assert labels.tolist() == expected
    assert 10 < (labels > 0).sum() < 60
    shown = [boxes[k - 1] if k else a for k, a in zip(labels, anchors)]
    np.testing.assert_allclose(
        encoded, [[(x[0] + x[2]) / 2, (x[1] + x[3]) / 2, x[2] - x[0], x[3] - x[1]] for x in shown], atol=1e-6
    )


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"^box_encoder: argument anchors must have 4 numbers for each anchor, got 3"):
        encode(anchors=[0, 0, 1])
    with pytest.raises(RuntimeError, match=r"box_encoder .*boxes must be float32 \[n, 4\], got 2-D float64"):
        encode(BOXES.astype(np.float64))
    with pytest.raises(
        OperatorError,
        match=r"box_encoder .*each box must have 4 coordinates and a label, got boxes \(2, 4\) and 1 labels",
    ):
        encode(labels=LABELS[:1])
