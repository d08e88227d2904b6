"""`PipelineSettings`, and options that are made from them."""

import numpy as np
import pytest

from jaxdali import Pipeline, types
from jaxdali._batch.delivery import Delivery, RaggedForm
from jaxdali._core.system import available_cpus
from jaxdali._pipeline.pipeline_settings import PipelineSettings
from jaxdali._plan.run_options import RunOptions


def test_settings_are_converted_once():
    s = PipelineSettings(
        batch_size=np.int32(4),
        num_threads=-1,
        seed=-5,
        prefetch_queue_depth={"cpu_size": 2, "gpu_size": 3},
        output_dtype=types.UINT8,
    )
    assert (type(s.batch_size), s.batch_size, s.threads, s.seed, s.depth) == (int, 4, available_cpus(), None, 3)
    assert s.output_requirements == {"output_dtype": np.dtype(np.uint8), "output_ndim": None, "output_layout": None}
    assert s.non_defaults.keys() == {"batch_size", "prefetch_queue_depth", "output_dtype"}
    assert PipelineSettings(**s.non_defaults) == PipelineSettings(**s.serialized) == s


def test_arguments_required_only_to_run():
    with pytest.raises(ValueError, match="none was given"):
        PipelineSettings().check_to_run()
    for number in (0, 10**6):
        with pytest.raises(ValueError, match=f"num_threads must be a whole number in 1 ... 4096, got {number}"):
            PipelineSettings(batch_size=1, num_threads=number).check_to_run()
    PipelineSettings(batch_size=1).check_to_run()


def test_each_draws_a_seed_of_its_own():
    assert Pipeline().seed != Pipeline().seed
    assert Pipeline(seed=3).seed == 3


@pytest.mark.parametrize(
    ("construct", "error", "text"),
    [
        (lambda: Pipeline(batch_size=[4]), TypeError, r"batch_size must be one value, got \[4\]"),
        (lambda: Pipeline(output_ndim=[1, -1]), ValueError, "output_ndim must be a whole number at least 0, or a list"),
        (
            lambda: Pipeline(prefetch_queue_depth={"cpu_size": 1, "gpu_size": 2.5}),
            TypeError,
            "'gpu_size': a whole number",
        ),
        (
            lambda: RunOptions(batch_size=0, num_threads=1),
            ValueError,
            "batch_size must be a whole number at least 1, got 0",
        ),
        (lambda: Delivery(stacked="no"), TypeError, "stacked must be True or False, got 'no'"),
        (lambda: Delivery(shardings=["batch"]), TypeError, "shardings must be a list of Shardings or None"),
        (lambda: Delivery(finish=3), TypeError, "finish must be a function, got 3"),
        (lambda: Delivery(ragged=(None, 40)), TypeError, "ragged must be a list of RaggedForms or None"),
        (
            lambda: Delivery(as_sample_lists=(0, 1), ragged=(None, RaggedForm((4,)))),
            ValueError,
            r"outputs \[1\] can't have two forms",
        ),
    ],
)
def test_options_are_checked_by_their_annotations(construct, error, text):
    with pytest.raises(error, match=text):
        construct()
