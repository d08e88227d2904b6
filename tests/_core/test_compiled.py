"""The compiled module, in a process that imports the package again."""

import os
import pathlib
import subprocess
import sys

import jaxdali


def test_import_anew_after_removal(tmp_path):
    """The compiled module can be loaded once in a process. What was made before the removal works, too."""
    program = """
import sys
import numpy as np

def numbers():
    from jaxdali import _cpu, fn, pipeline_def
    assert _cpu is sys.modules["jaxdali._cpu"]
    return pipeline_def(lambda: fn.external_source(lambda i: np.full((2, 3), i)) + 1)(batch_size=2)

first = numbers()
first.run()
for _ in range(2):
    for name in [name for name in sys.modules if name.startswith("jaxdali")]:
        del sys.modules[name]
    print(numbers().run()[0].as_array().tolist())
print(first.run()[0].as_array().tolist())
"""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(jaxdali.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.stdout.split("\n")[:3] == ["[[1, 1, 1], [1, 1, 1]]"] * 2 + ["[[2, 2, 2], [2, 2, 2]]"], run.stderr
