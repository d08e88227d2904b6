"""autoserialize, for files of Triton's servers."""

import numpy as np
import pytest

from jaxdali import Pipeline, fn, pipeline_def
from jaxdali.plugin.triton import autoserialize


def test_autoserialize_returns_the_definition():
    @autoserialize
    @pipeline_def(batch_size=2, num_threads=1)
    def define(value=3):
        return fn.external_source(name="DALI_INPUT_0") * value

    pipe = Pipeline.deserialize(define(value=4).serialize())
    pipe.feed_input("DALI_INPUT_0", np.int32([1, 2]))
    assert pipe.run()[0].as_array().tolist() == [4, 8]
    with pytest.raises(TypeError, match="autoserialize: only a function decorated with @pipeline_def"):
        autoserialize(lambda: 1)
