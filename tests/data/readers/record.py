"""Writes dali.json: what real DALI makes of tests/reader_cases.py. Run by a Python that has nvidia-dali, NumPy and lmdb."""

import json
import pathlib
import sys
import tempfile

import nvidia.dali
import nvidia.dali.tfrecord
from nvidia.dali import fn, pipeline_def  # noqa: F401

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
import reader_cases

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    reader_cases.prepare(folder)
    found = {
        case: [reader_cases.outputs(nvidia.dali, case, k, folder) for k in range(len(reader_cases.CASES[case].order))]
        for case in reader_cases.CASES
    }
lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(x, separators=(',', ':'))}" for case, x in found.items())
(HERE / "dali.json").write_text(f"{{\n{lines}\n}}\n")
