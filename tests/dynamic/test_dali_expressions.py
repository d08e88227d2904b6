"""Expressions of DALI's dynamic mode, with what real DALI gives for them (tests/data/dynamic/expressions.py)."""

import json

import numpy as np
import places
import pytest

import jaxdali.experimental.dynamic as ndd
from jaxdali import types

TABLE = json.loads((places.DATA / "dynamic" / "expressions.json").read_text())


def value(made):
    samples = [np.array(x, made["dtype"]).reshape(s) for x, s in zip(made["data"], made["shapes"], strict=True)]
    return ndd.batch(samples, layout=made["layout"]) if made["batch"] else ndd.tensor(samples[0], layout=made["layout"])


NAMES = {"nd": ndd, "np": np, "types": types}


@pytest.fixture(scope="module")
def names():
    return {**NAMES, **{n: value(x) for n, x in TABLE["inputs"].items()}}


def assert_equal(found, want):
    """A result, and that of DALI as JSON."""
    if isinstance(want, str):
        assert repr(found) == want
    elif want[0] in ("Tensor", "Batch"):
        kind, dtype, layout, shapes, data = want
        tensors = [found] if kind == "Tensor" else found.tensors.tolist()
        assert (type(found).__name__, str(found.dtype), found.layout) == (kind, dtype, layout)
        assert [list(t.shape) for t in tensors] == shapes
        for t, x in zip(tensors, data, strict=True):
            np.testing.assert_allclose(np.asarray(t).ravel(), np.array(x, np.asarray(t).dtype), rtol=1e-5, atol=1e-6)
    else:
        assert type(found).__name__ == want[0]
        for x, y in zip(found, want[1:], strict=True):
            assert_equal(x, y)


@pytest.mark.parametrize("expression", [e for e, x in TABLE["results"].items() if x is not None])
def test_results(expression, names):
    assert_equal(eval(expression, dict(names)), TABLE["results"][expression])


@pytest.mark.parametrize("expression", [e for e, x in TABLE["results"].items() if x is None])
def test_refusals(expression, names):
    with pytest.raises((TypeError, ValueError, OverflowError, AttributeError, IndexError, RuntimeError)):
        eval(expression, dict(names))
