"""segmentation.select_masks: the examples of DALI's documentation."""

import numpy as np
import pytest
from pipelines import run

from jaxdali import OperatorError, fn, pipeline_def

POLYGONS = np.int32([[0, 0, 3], [1, 3, 7], [2, 7, 10]])
VERTICES = np.arange(20, dtype=np.float32).reshape(10, 2)


def select(ids, polygons=POLYGONS, vertices=VERTICES, **arguments):
    inputs = [np.int32(i) for i in ids], [polygons] * len(ids), [vertices] * len(ids)
    outputs = run(lambda i, p, v: fn.segmentation.select_masks(i, p, v, **arguments), *inputs)
    return [[np.asarray(x) for x in out] for out in outputs]


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_selected(dtype):
    polygons, vertices = select([[1], [2, 0], []], vertices=VERTICES.astype(dtype))
    assert [p.tolist() for p in polygons] == [[[1, 0, 4]], [[2, 0, 3], [0, 3, 6]], []]
    for selected, rows in zip(vertices, ([3, 4, 5, 6], [7, 8, 9, 0, 1, 2], []), strict=True):
        assert selected.dtype == dtype
        np.testing.assert_array_equal(selected, VERTICES[rows].astype(dtype))
    polygons, _ = select([[2, 0]], reindex_masks=True)
    assert polygons[0].tolist() == [[0, 0, 3], [1, 3, 6]]


def test_a_mask_of_several_polygons():
    polygons, vertices = select([[0]], np.int32([[0, 5, 8], [1, 0, 3], [0, 3, 6]]))  # DALI 2.4 gives this
    assert polygons[0].tolist() == [[0, 0, 3]]
    np.testing.assert_array_equal(vertices[0], VERTICES[3:6])


@pytest.mark.parametrize(
    ("ids", "polygons", "message"),
    [
        ([5], POLYGONS, "no polygon belongs to mask 5"),
        ([1, 1], POLYGONS, r"a mask occurs twice in mask_ids, \[1, 1\]"),
        ([0], np.int32([[0, 0, 11]]), "mask 0 has the vertices 0 to 11, of 10"),
        ([0], np.int32([[0, 4, 2]]), "mask 0 has the vertices 4 to 2, of 10"),
        ([0], np.int32([[0, 4]]), "polygons must have three columns, .*, got 2"),
    ],
)
def test_bad_samples(ids, polygons, message):
    with pytest.raises(OperatorError, match=f"segmentation.select_masks .*{message}"):
        select([ids], polygons)


def test_bad_inputs():
    with pytest.raises(RuntimeError, match=r"segmentation.select_masks .*polygons must be 2-D int32, got 2-D int64"):
        select([[0]], POLYGONS.astype(np.int64))
    with pytest.raises(RuntimeError, match=r"segmentation.select_masks .*vertices must be 2-D, got 1-D"):
        select([[0]], vertices=VERTICES.reshape(-1))


def test_absent_samples():
    @pipeline_def(batch_size=3, num_threads=1, device_id=None, enable_conditionals=True)
    def pipeline():
        rows = [[[2, 0], [1], [0]], [[1]]]  # the second batch is short
        ids = fn.external_source([[np.int32(i) for i in batch] for batch in rows])
        polygons, vertices = (fn.external_source([[x] * len(b) for b in rows]) for x in (POLYGONS, VERTICES))
        if ids[0] < 2:
            polygons, vertices = fn.segmentation.select_masks(ids, polygons, vertices)
        return polygons, vertices

    p = pipeline()
    batches = [[[np.asarray(x).tolist() for x in out] for out in p.run()] for _ in range(2)]
    # DALI 2.4 gives this.
    assert batches[0] == [
        [POLYGONS.tolist(), [[1, 0, 4]], [[0, 0, 3]]],
        [VERTICES.tolist(), VERTICES[3:7].tolist(), VERTICES[:3].tolist()],
    ]
    assert batches[1] == [[[[1, 0, 4]]], [VERTICES[3:7].tolist()]]
