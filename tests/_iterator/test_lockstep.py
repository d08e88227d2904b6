"""Several runners as one, with runners that only play."""

import pytest

from jaxdali._iterator.lockstep import Lockstep


class Runner:
    """Gives a list of numbers; raises what is an exception among them."""

    def __init__(self, *items):
        self.items, self.asked, self.restarted = list(items), 0, 0

    def begin_batches(self):
        self.asked += 1

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
        self.restarted += 1


def test_all_are_taken_when_one_fails():
    runners = [Runner(1, 2), Runner(ValueError("b"), 3), Runner(KeyError("c"), 4)]
    together = Lockstep(runners)
    with pytest.raises(ValueError, match="b"):
        together.get()
    assert together.get() == [2, 3, 4]
    assert together.at_end == [True] * 3


def test_errors_of_dropped_batches_are_ignored():
    a, b = Runner(ValueError(), 1), Runner(0, 2)
    together = Lockstep([a, b])
    together.drop()
    assert together.wait()
    assert together.get() == [1, 2]
    assert not together.wait()


def test_all_begin_and_restart():
    runners = [Runner(1)]
    together = Lockstep(runners)
    runners.append(Runner())  # who made the list may put others into it
    together.begin_batches()
    together.restart()
    assert [(r.asked, r.restarted) for r in runners] == [(1, 1), (1, 1)]
    assert together.at_end == [False, True]
