"""`runner_of`: the one place that chooses how the batches of an executor are made."""

from __future__ import annotations

from typing import Any

from .._batch.executor import Executor
from .prefetch import Prefetch
from .runner import Runner
from .synchronous import Synchronous


def runner_of(executor: Executor, state: dict[str, Any], depth: int, *, ahead: int, by_user: bool = False) -> Runner:
    """The runner for the batches of an executor.

    Args:
      state: the initial state.
      depth: batches made ahead, if any are.
      ahead: for how many batches the sources that belong to the thread that takes batches are read ahead.
      by_user: whether batches are made only on the user's request, for example because the user's code supplies the data of each.
    """
    if by_user or executor.must_run_in_callers_thread:
        return Synchronous(executor, state)
    return Prefetch(executor, state, depth=depth, ahead=ahead)
