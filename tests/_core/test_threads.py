"""Threads have names that profilers and `top -H` show."""

import pathlib

import numpy as np
import pytest

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").is_dir(), reason="there is no /proc")
def test_names_of_threads():
    @data_iterator(output_map=["x"])
    def iterator():
        images = fn.external_source(lambda info: np.zeros((9, 9, 3), np.uint8), batch=False, parallel=True)
        return fn.resize(images, size=(4, 4))

    with iterator(batch_size=2, num_threads=3, py_num_workers=2) as it:
        next(it)
        names = [p.read_text().strip() for p in pathlib.Path("/proc/self/task").glob("*/comm")]
    assert {"jaxdali-produce", "jaxdali-check", "jaxdali-source", "jaxdali-kernels"} <= {*names}
    assert names.count("jaxdali-kernels") >= 2
