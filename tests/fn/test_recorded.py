"""Small cases with what NVIDIA DALI gave for them, or the class of the exception that it raised
(tests/data/recorded.json).
"""

import builtins
import json

import numpy as np
import places
import pytest
from pipelines import run

from jaxdali import fn, types

CASES = json.loads((places.DATA / "recorded.json").read_text())["cases"]


def _array(a):
    return np.array([float(x) if isinstance(x, str) else x for x in a["data"]]).astype(a["dtype"]).reshape(a["shape"])


@pytest.mark.filterwarnings("ignore:.*it is dtype now:DeprecationWarning")
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "program"])
@pytest.mark.parametrize("case", CASES, ids=[c["expr"] for c in CASES])
def test_as_dali(case, on_device):
    names = [*case["inputs"]] or ["unused"]
    inputs = [[_array(a) for a in x["samples"]] for x in case["inputs"].values()] or [[np.zeros(1)]]

    def define(*nodes):
        values = dict(zip(names, nodes, strict=True))
        if on_device and not case["expr"].startswith(("fn.transforms", "fn.random_bbox_crop")) and "x" in values:
            values["x"] = values["x"].gpu()
        return eval(case["expr"], {"fn": fn, "types": types, "np": np, **values})

    layouts = [x["layout"] for x in case["inputs"].values()] or [""]
    if "raises" in case:
        with pytest.raises(getattr(builtins, case["raises"])):
            run(define, *inputs, layouts=layouts)
        return
    for actual, want in zip(run(define, *inputs, layouts=layouts), case["outputs"], strict=True):
        assert (actual.layout(), len(actual)) == (want["layout"], len(want["samples"]))
        for g, w in zip(actual, want["samples"], strict=True):
            assert (str(np.array(g).dtype), list(np.array(g).shape)) == (w["dtype"], w["shape"])
            tolerance = {"rtol": 2e-5, "atol": 2e-5} if "float" in w["dtype"] else {"rtol": 0}
            np.testing.assert_allclose(np.array(g).astype(float), _array(w).astype(float), **tolerance)
