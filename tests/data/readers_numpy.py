"""Writes readers_numpy.json: regions as real DALI cuts them. Needs NVIDIA DALI 2.4 (its CPU operators): python readers_numpy.py."""

import json
import pathlib
import random
import tempfile

import numpy as np
from nvidia.dali import Pipeline, fn

KINDS = {"roi_start": (-2, 4), "rel_roi_start": (-0.2, 0.6), "roi_end": (1, 9), "rel_roi_end": (0.3, 1.2)}
KINDS |= {"roi_shape": (1, 6), "rel_roi_shape": (0.2, 1.2)}


def arguments(rng):
    """Random arguments of a region of a 2-D array."""
    axes = rng.choice([None, None, [1, 0], [-1, 0], [1], [0]])
    names = [rng.choice(["", "roi_start", "rel_roi_start"]), rng.choice(list(KINDS)[2:])]
    draw = {True: lambda low, high: round(rng.uniform(low, high), rng.choice([1, 2, 6])), False: rng.randint}
    values = {n: [draw[n[:3] == "rel"](*KINDS[n]) for _ in axes or "xy"] for n in names if n}
    if rng.random() < 0.3:
        values = {n: x[0] for n, x in values.items()}
    policy = {"out_of_bounds_policy": rng.choice(["pad", "pad", "trim_to_shape", "error"]), "fill_value": rng.choice([0.0, -3.5, 2.5, 1e9])}
    return values | policy | ({} if axes is None else {"roi_axes": axes})


def cut(path, kwargs):
    """DALI's result, or None where it refuses."""
    pipeline = Pipeline(1, 1, None, prefetch_queue_depth=1)
    with pipeline:
        pipeline.set_outputs(fn.readers.numpy(files=path, **kwargs))
    try:
        return np.array(pipeline.run()[0][0]).tolist()
    except RuntimeError:
        return None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/x.npy"
        np.save(path, np.asfortranarray(np.arange(35, dtype=np.int16).reshape(5, 7)))
        rng = random.Random(0)
        cases = [[kwargs, cut(path, kwargs)] for kwargs in (arguments(rng) for _ in range(160))]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")
