"""The choice of the runner for an executor, and how many batches may be requested before the first is taken."""

import types

import pytest

from jaxdali._runner.choose import runner_of
from jaxdali._runner.prefetch import Prefetch
from jaxdali._runner.synchronous import Synchronous


@pytest.mark.parametrize(
    ("in_callers_thread", "by_user", "runner_type", "depth"),
    [
        (False, False, Prefetch, 3),
        (False, True, Synchronous, 3),
        (True, False, Synchronous, 1),
        (True, True, Synchronous, 1),
    ],
)
def test_the_runner(in_callers_thread, by_user, runner_type, depth):
    reader = types.SimpleNamespace(begins_in_caller=False)
    executor = types.SimpleNamespace(
        must_run_in_callers_thread=in_callers_thread,
        reader=reader,
        uses_reader_thread=False,
        max_dispatched=1,
        tuner=lambda depth: None,
    )
    runner = runner_of(executor, {}, 3, ahead=3, by_user=by_user)
    assert (type(runner), runner.depth) == (runner_type, depth)
