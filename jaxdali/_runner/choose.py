"""`runner_of`: the one place that chooses how the batches of an executor are made."""

from __future__ import annotations

from typing import Any

from .._batch.executor import Executor
from .prefetch import Prefetch
from .runner import Runner
from .synchronous import Synchronous


def runner_of(executor: Executor, state: dict[str, Any], depth: int, *, ahead: int, by_user: bool = False) -> Runner:
    """What makes the batches of an executor.

    Args:
      state: to start from.
      depth: batches made ahead, where any are.
      ahead: batches for which sources are asked that must be read in the thread that takes the batches.
      by_user: whether batches are made only when the user asks for them, as the user's code supplies the data of each, say.
    """
    if by_user or executor.must_run_in_callers_thread:
        return Synchronous(executor, state)
    return Prefetch(executor, state, depth=depth, ahead=ahead)
