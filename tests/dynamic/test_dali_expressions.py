"""Expressions of DALI's dynamic mode, and the results of real DALI (made by tests/data/dynamic/expressions.py)."""

import json

import numpy as np
import places
import pytest

import jaxdali.experimental.dynamic as ndd
from jaxdali import types

TABLE = json.loads((places.DATA / "dynamic" / "expressions.json").read_text())


def value(entry):
    samples = [np.array(x, entry["dtype"]).reshape(s) for x, s in zip(entry["data"], entry["shapes"], strict=True)]
    return (
        ndd.batch(samples, layout=entry["layout"]) if entry["batch"] else ndd.tensor(samples[0], layout=entry["layout"])
    )


NAMES = {"nd": ndd, "np": np, "types": types}


@pytest.fixture(scope="module")
def names():
    return {**NAMES, **{n: value(x) for n, x in TABLE["inputs"].items()}}


def assert_equal(actual, expected):
    """Compares a result with that of DALI.

    Args:
      expected: from JSON: a repr, [class, dtype, layout, shapes, data], or [class, item, ...].
    """
    if isinstance(expected, str):
        assert repr(actual) == expected
    elif expected[0] in ("Tensor", "Batch"):
        kind, dtype, layout, shapes, data = expected
        tensors = [actual] if kind == "Tensor" else actual.tensors.tolist()
        assert (type(actual).__name__, str(actual.dtype), actual.layout) == (kind, dtype, layout)
        assert [list(t.shape) for t in tensors] == shapes
        for t, x in zip(tensors, data, strict=True):
            np.testing.assert_allclose(np.asarray(t).ravel(), np.array(x, np.asarray(t).dtype), rtol=1e-5, atol=1e-6)
    else:
        assert type(actual).__name__ == expected[0]
        for x, y in zip(actual, expected[1:], strict=True):
            assert_equal(x, y)


@pytest.mark.parametrize("expression", [e for e, x in TABLE["results"].items() if x is not None])
def test_results(expression, names):
    assert_equal(eval(expression, dict(names)), TABLE["results"][expression])


@pytest.mark.parametrize("expression", [e for e, x in TABLE["results"].items() if x is None])
def test_refusals(expression, names):
    with pytest.raises((TypeError, ValueError, OverflowError, AttributeError, IndexError, RuntimeError)):
        eval(expression, dict(names))
