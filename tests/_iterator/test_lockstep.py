"""Several runners in lockstep, with stand-ins for runners."""

import pytest

from jaxdali._iterator.lockstep import Lockstep


class Runner:
    """A runner whose batches are numbers. An exception among them is raised."""

    def __init__(self, *items):
        self.items, self.num_begun, self.num_restarts = list(items), 0, 0

    def begin_batches(self):
        self.num_begun += 1

    def wait(self):
        return bool(self.items)

    @property
    def at_end(self):
        return not self.items

    def get(self):
        item = self.items.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    def restart(self):
        self.num_restarts += 1


def test_all_are_taken_when_one_fails():
    runners = [Runner(1, 2), Runner(ValueError("b"), 3), Runner(KeyError("c"), 4)]
    lockstep = Lockstep(runners)
    with pytest.raises(ValueError, match="b"):
        lockstep.get()
    assert lockstep.get() == [2, 3, 4]
    assert lockstep.at_end == [True] * 3


def test_errors_of_dropped_batches_are_ignored():
    a, b = Runner(ValueError(), 1), Runner(0, 2)
    lockstep = Lockstep([a, b])
    lockstep.drop()
    assert lockstep.wait()
    assert lockstep.get() == [1, 2]
    assert not lockstep.wait()


def test_all_begin_and_restart():
    runners = [Runner(1)]
    lockstep = Lockstep(runners)
    runners.append(Runner())  # the owner of the list may change it
    lockstep.begin_batches()
    lockstep.restart()
    assert [(r.num_begun, r.num_restarts) for r in runners] == [(1, 1), (1, 1)]
    assert lockstep.at_end == [False, True]
