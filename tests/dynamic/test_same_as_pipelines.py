"""Every operator without random numbers, as a function of values and in a pipeline: equal bits, and equal errors."""

import functools
import os
import re

import golden
import numpy as np
import pytest

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import math, types

# Run only every n-th case of each operator, as test_golden.py does.
EVERY = int(os.environ.get("JAXDALI_GOLDEN_EVERY", "1"))
DRAWING = {"decoders.image_random_crop", "random_resized_crop", "random.uniform", "random.coin_flip", "random.normal"}
ONE_PROGRAM = {"chain"}  # cases of several operators, which XLA compiles together in a pipeline


def by_functions(case):
    """The samples of each output."""
    batches = {
        x["name"]: jd.batch([golden.load(s) for s in x["samples"]], layout=x.get("layout") or None) for x in case.inputs
    }

    def value(v):
        if isinstance(v, dict):
            return getattr(types, v["enum"]) if "enum" in v else batches[v["input"]]
        return [value(x) for x in v] if isinstance(v, list) else v

    if case.expr:  # subscripts of a batch select samples, so `.slice` is inserted
        expr = re.sub(r"\b([a-z])\[", r"\1.slice[", case.expr) if "subscript" in case.op else case.expr
        result = eval(expr, {"fn": jd, "types": types, "math": math, "np": np}, batches)
    else:
        size_argument = {} if case.inputs else {"batch_size": 1}
        function = functools.reduce(getattr, case.fn.split("."), jd)
        result = function(
            *(batches[a] for a in case.args), **{k: value(v) for k, v in case.kwargs.items()}, **size_argument
        )
    return [[np.asarray(s) for s in x.samples()] for x in (result if isinstance(result, (list, tuple)) else [result])]


def by_pipeline(case):
    return [[np.array(s) for s in x] for x in golden.run(case)]


def outcome(run, case):
    """Type, shape and bytes of all samples, or the class of the error."""
    try:
        return [[(s.dtype, s.shape, s.tobytes()) for s in output] for output in run(case)]
    except Exception as e:  # any error is an outcome
        return type(e)


@pytest.mark.parametrize("operator", [x for x in golden.operators() if x not in DRAWING | ONE_PROGRAM])
def test_operator(operator):
    different = [c.id for c in golden.cases(operator)[::EVERY] if outcome(by_functions, c) != outcome(by_pipeline, c)]
    assert not different


def test_all_operators_have_functions():
    def names(module, prefix=""):
        for name in dir(module):
            x = getattr(module, name)
            if type(x).__name__ == "module":
                yield from names(x, f"{prefix}{name}.")
            elif callable(x) and name != "external_source":
                yield prefix + name

    operators = {
        n for n in names(jaxdali.fn) if "readers." not in n and "inputs." not in n and not n.endswith("_reader")
    }
    deprecated = {
        n for n in operators if functools.reduce(getattr, n.split("."), jaxdali.fn).__module__.endswith("_deprecated")
    }
    assert operators - deprecated <= {*names(jd)}
