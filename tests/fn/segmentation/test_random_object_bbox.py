"""segmentation.random_object_bbox: the possible objects, and their probabilities, as in DALI 2.4."""

import collections

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn

I32 = np.iinfo(np.int32)
MAP = np.zeros((8, 10), np.uint8)
MAP[1:3, 1:4] = MAP[5, 5] = MAP[6, 1] = MAP[7, 2] = 1
MAP[4:8, 7:9], MAP[0, 9] = 2, 3
ONES = [(1, 1, 3, 4), (5, 5, 6, 6), (6, 1, 7, 2), (7, 2, 8, 3)]
TWO, THREE, WHOLE = (4, 7, 8, 9), (0, 9, 1, 10), (0, 0, 8, 10)
N = 1200


def drawn(labels=MAP, **arguments):
    def define(x):
        out = fn.segmentation.random_object_bbox(x, format="box", **arguments)
        return tuple(out) if isinstance(out, list) else (out,)

    boxes, *classes = (x.as_array() for x in run(define, [labels] * N))
    assert boxes.dtype == np.int32
    return collections.Counter((tuple(b), *(int(c[i]) for c in classes)) for i, b in enumerate(boxes.tolist()))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {TWO: 1 / 3, THREE: 1 / 3, **dict.fromkeys(ONES, 1 / 12)}),
        ({"ignore_class": True}, dict.fromkeys([*ONES, TWO, THREE], 1 / 6)),
        ({"foreground_prob": 0.5, "classes": 3}, {WHOLE: 0.5, THREE: 0.5}),
        ({"classes": [2, 9]}, {TWO: 1}),
        ({"classes": [8, 9]}, {WHOLE: 1}),
        ({"classes": [3, 2], "class_weights": [3, 1]}, {THREE: 0.75, TWO: 0.25}),
        ({"class_weights": [0.0, 1]}, {TWO: 1}),
        ({"class_weights": [0.0]}, {WHOLE: 1}),
        ({"class_weights": [0.0, 0, 1], "background": 2}, {THREE: 1}),
        ({"class_weights": [0.0, 0, 1], "background": 9}, {TWO: 1}),
        ({"k_largest": 1}, {TWO: 1 / 3, THREE: 1 / 3, ONES[0]: 1 / 3}),
        ({"k_largest": 2, "ignore_class": True}, {TWO: 0.5, ONES[0]: 0.5}),
        ({"threshold": 2}, {TWO: 0.5, ONES[0]: 0.5}),
        ({"threshold": [3, 2], "cache_objects": True}, {TWO: 1}),
        ({"threshold": [20, 2]}, {WHOLE: 1}),
        ({"background": 1, "classes": [2, 3]}, {TWO: 0.5, THREE: 0.5}),
    ],
)
def test_boxes(arguments, expected):
    counts = {box: n for (box,), n in drawn(**arguments).items()}
    assert counts.keys() == expected.keys()
    for box, p in expected.items():
        assert abs(counts[box] - N * p) <= 4.5 * np.sqrt(N * p * (1 - p))


@pytest.mark.parametrize(
    ("arguments", "background"),
    [
        ({}, 0),
        ({"background": 7}, 7),
        ({"classes": [0, 5]}, -1),
        ({"classes": [0, -2]}, -3),
        ({"class_weights": [1.0, 2]}, 0),
    ]
    + [({"classes": [0, I32.min]}, I32.max), ({"classes": [0, I32.min, I32.max]}, I32.max - 1)],
)
def test_background(arguments, background):
    assert drawn(foreground_prob=0.0, output_class=True, **arguments) == {(WHOLE, background): N}


def test_formats_and_axes():
    volume = np.stack([MAP == 2, MAP == 2]).astype(np.int32) * 5
    (out,) = run(lambda x: fn.segmentation.random_object_bbox(x, format="box"), [volume])
    assert np.asarray(out[0]).tolist() == [0, 4, 7, 2, 8, 9]
    both = run(
        lambda x: (
            *fn.segmentation.random_object_bbox(x, output_class=True),
            *fn.segmentation.random_object_bbox(x, format="start_end"),
        ),
        [volume[0]],
    )
    assert [np.asarray(x[0]).tolist() for x in both] == [[4, 7], [4, 2], 5, [4, 7], [8, 9]]


def test_per_sample():
    out = run(
        lambda x, c, t: fn.segmentation.random_object_bbox(x, classes=c, threshold=t, format="box", output_class=True),
        [MAP, MAP[:, 5:]],
        [np.int32([3]), np.int32([2, 3])],
        [np.int32([1, 1]), np.int32([2, 2])],
    )
    assert [np.asarray(x).tolist() for x in out[0]] == [[0, 9, 1, 10], [4, 2, 8, 4]]
    assert [int(np.asarray(x)) for x in out[1]] == [3, 2]


def test_bad_arguments():
    with pytest.raises(
        ValueError, match=r"^segmentation.random_object_bbox: ignore_class excludes classes, class_weights"
    ):
        drawn(ignore_class=True, classes=[1])
    with pytest.raises(OperatorError, match=r"segmentation.random_object_bbox .*class 0 is the background"):
        drawn(classes=[0, 2], background=0)
    with pytest.raises(OperatorError, match=r"class_weights must have a number for each of 1 classes, got 2"):
        drawn(classes=[2], class_weights=[1, 2])
    with pytest.raises(RuntimeError, match=r"a map of integer labels .*, got 2-D float32"):
        drawn(MAP.astype(np.float32))
