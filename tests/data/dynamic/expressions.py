"""Writes expressions.json: what real DALI's dynamic mode gives for each expression in it.

Needs NVIDIA DALI 2.4 (its CPU operators): python expressions.py. The expressions are a choice of about 10,000, most of them random, that
were compared in this way, and on which nothing is documented to differ.
"""

import json
import pathlib

import numpy as np
import nvidia.dali.experimental.dynamic as nd
from nvidia.dali import types

PATH = pathlib.Path(__file__).with_suffix(".json")


def value(made):
    """An input of the file as DALI's value."""
    samples = [np.array(x, made["dtype"]).reshape(s) for x, s in zip(made["data"], made["shapes"], strict=True)]
    return nd.batch(samples, layout=made["layout"]) if made["batch"] else nd.tensor(samples[0], layout=made["layout"])


def described(x):
    """A result as JSON."""
    if isinstance(x, (nd.Tensor, nd.Batch)):
        x.evaluate()
        arrays = [np.array(t) for t in (x.tensors.tolist() if isinstance(x, nd.Batch) else [x])]
        shapes = [list(a.shape) for a in arrays]
        return [type(x).__name__, str(x.dtype), x.layout, shapes, [a.ravel().tolist() for a in arrays]]
    if isinstance(x, (list, tuple)):
        return [type(x).__name__, *map(described, x)]
    return repr(x)


def result(expression, names):
    """The result of an expression, or None where DALI refuses it."""
    try:
        with nd.EvalMode.sync_cpu:
            return described(eval(expression, dict(names)))
    except Exception:
        return None


def main():
    table = json.loads(PATH.read_text())
    names = {"nd": nd, "np": np, "types": types, **{n: value(x) for n, x in table["inputs"].items()}}
    parts = {n: [json.dumps(n) + ": " + json.dumps(x) for n, x in table[n].items()] for n in ("inputs", "results")}
    parts["results"] = [f"{json.dumps(e)}: {json.dumps(result(e, names))}" for e in table["results"]]
    text = ",\n".join(f'"{n}": {{\n' + ",\n".join(lines) + "\n}" for n, lines in parts.items())
    PATH.write_text('{"about": "What NVIDIA DALI 2.4 gives on a CPU, see expressions.py; null: it refuses",\n' + text + "}\n")


if __name__ == "__main__":
    main()
