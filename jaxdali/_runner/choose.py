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
      depth: number of batches made ahead, if any are.
      ahead: number of batches whose sources are read ahead, for sources that belong to the thread that takes batches.
      by_user: whether batches are made only on the user's request, for example because the user's code supplies the
        data of each.
    """
    if executor.must_run_in_callers_thread:
        # Collectives of a function over several processes must start in the order of users' steps, so no batch is made
        # before it is wanted.
        return Synchronous(executor, state, depth=1)
    if by_user:
        return Synchronous(executor, state, depth=depth)
    return Prefetch(executor, state, depth=depth, ahead=ahead)
