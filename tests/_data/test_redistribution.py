"""Continuing with another number of shards: each sample is still read once in an epoch."""

import collections
import dataclasses
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxdali._data.epoch import EpochCounter, EpochPlan
from jaxdali._data.shuffle import Groups
from jaxdali._data.walk import Walk


class Shards:
    """All shards of an iterator, and its counter."""

    def __init__(self, walk, S, B, policy):
        self.B, self.policy = B, policy
        self.walks = [dataclasses.replace(walk, num_shards=S, shard_id=i) for i in range(S)]
        self.cursors = [w.initial() for w in self.walks]
        self.counter = EpochCounter(EpochPlan.of_readers([w.meta() for w in self.walks], B, policy))

    def read(self):
        """(epoch, position) of the valid samples of the next batch of all shards, and of all of them."""
        valid, everything = [], []
        for i, n in enumerate(self.counter.advance()):
            _, epoch, position, self.cursors[i] = self.walks[i].take(self.cursors[i], self.B, self.B)
            samples = list(zip(epoch.tolist(), position.tolist()))
            valid += samples[:n]
            everything += samples
        return valid, everything

    def reset(self):
        for _ in range(self.counter.reset()):
            for i, w in enumerate(self.walks):
                self.cursors[i] = w.take(self.cursors[i], self.B, self.B)[3]

    def resharded(self, S, B, shard):
        """Continues on S shards, from the state of one shard."""
        new = Shards(self.walks[0], S, B, self.policy)
        old = EpochCounter(self.counter.plan)
        old.set_state(json.loads(json.dumps(self.counter.get_state())))
        ended, cursor = old.is_over, json.loads(json.dumps(self.cursors[shard]))
        for _ in range(old.settle()):
            cursor = self.walks[shard].take(cursor, self.B, self.B)[3]
        new.cursors = [w.redistributed(cursor, len(self.walks), shard) for w in new.walks]
        new.counter.redistribute(old, new.walks[0], new.cursors[0], (self.walks[shard], cursor), ended)
        return new


walks = st.builds(
    lambda size, pad, shuffle, groups: Walk(
        size=size, pad_last_batch=pad, random_shuffle=shuffle == "random", shuffle_after_epoch=shuffle == "after",
        shuffle="global" if shuffle == "global" else None,
        groups=None if not groups or shuffle == "no" else
        Groups(np.array([size // 4, size // 2, size - size // 2 - size // 4]), np.full(3, 10), 20),
    ),
    size=st.integers(6, 40), pad=st.booleans(), shuffle=st.sampled_from(["no", "random", "after", "global"]), groups=st.booleans(),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@example(walk=Walk(size=6), S=1, B=1, batches=44, changes=[(5, 1, 2), (1, 1, 0)], shard=0)
@given(
    walk=walks, S=st.integers(1, 6), B=st.integers(1, 5), batches=st.integers(0, 60),
    changes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(0, 20)), min_size=1, max_size=3), shard=st.integers(0, 5),
)  # fmt: skip
def test_each_sample_is_read_once_per_epoch(walk, S, B, batches, changes, shard):
    shards = Shards(walk, S, B, "FILL")
    counts = collections.Counter()

    def advance(n):
        for _ in range(n):
            if shards.counter.is_over:
                shards.reset()
            valid, everything = shards.read()
            # Samples of the next epoch that fill up a batch count for that epoch. Padding does not count.
            counts.update(valid if walk.pad_last_batch else everything)

    advance(batches)
    for S, B, num_batches in changes:
        try:
            shards = shards.resharded(S, B, shard % len(shards.walks))
            reason = ""
        except ValueError as e:
            reason = str(e)
        # Only shards of unequal sizes without padding drift apart: if they stick, or are so small that a round has one
        # or two samples.
        if reason:
            assert "drifted" in reason
            assert walk.anew or walk.size < 3 * len(shards.walks)
            assert not walk.pad_last_batch
            return
        advance(num_batches)
    while not shards.counter.is_over:
        advance(1)
    # Shards of unequal size were up to a round ahead of the others before they were redistributed.
    last = max(max(c["round"], c.get("rest", {"start": -1})["start"] + 1) for c in shards.cursors)
    for epoch in range(min(c["round"] for c in shards.cursors)):
        assert [counts[epoch, p] for p in range(walk.size)] == [1] * walk.size
    assert all(n == 1 for n in counts.values())
    assert all(e <= last for e, _ in counts)


@settings(max_examples=100, deadline=None)
@given(
    walk=walks,
    stick=st.booleans(),
    S=st.integers(1, 6),
    B=st.integers(1, 5),
    batches=st.integers(0, 90),
    shard=st.integers(0, 5),
)
def test_one_cursor_determines_all_shards(walk, stick, S, B, batches, shard):
    walk = dataclasses.replace(walk, stick_to_shard=stick and not walk.anew)
    shards = Shards(walk, S, B, "FILL")
    for _ in range(batches):
        for i, w in enumerate(shards.walks):
            shards.cursors[i] = w.take(shards.cursors[i], B, B)[3]
    shard %= S
    assert [shards.walks[shard].cursor_of_shard(shards.cursors[shard], i) for i in range(S)] == shards.cursors


@pytest.mark.parametrize("pad", [False, True])
def test_a_finished_epoch_is_reset_first(pad):
    shards = Shards(Walk(size=11, pad_last_batch=pad), 2, 2, "FILL")
    while not shards.counter.is_over:
        shards.read()
    new = shards.resharded(3, 2, 0)
    assert new.counter.is_over
    new.reset()
    assert not new.counter.is_over
    assert {e for e, _ in new.read()[0]} == {1}


def test_drop_moves_away_from_the_readers_epochs():
    shards = Shards(Walk(size=11), 2, 2, "DROP")
    for _ in range(2):
        shards.read()
    shards.reset()
    shards.read()
    with pytest.raises(ValueError, match="pad_last_batch=True keeps them together"):
        shards.resharded(3, 2, 0)


def test_drop_with_padding():
    shards = Shards(Walk(size=11, pad_last_batch=True), 2, 2, "DROP")
    for _ in range(2):
        shards.read()
    new = shards.resharded(1, 2, 1)
    new.reset()
    samples = []
    while not new.counter.is_over:
        samples += new.read()[0]
    assert samples == [(1, p) for p in range(10)]


def test_sticking_shards_drift_apart():
    shards = Shards(Walk(size=7, stick_to_shard=True), 2, 3, "FILL")  # 3 and 4 samples
    for _ in range(20):
        if shards.counter.is_over:
            shards.reset()
        shards.read()
    with pytest.raises(ValueError, match="drifted apart"):
        shards.resharded(3, 2, 0)
    padded = Shards(Walk(size=7, stick_to_shard=True, pad_last_batch=True), 2, 2, "FILL")
    padded.read()
    new = padded.resharded(3, 1, 1)
    assert sorted(new.read()[0]) == [(0, 2), (0, 5), (0, 6)]
    assert new.counter.is_over


def test_another_batch_size_continues_at_same_sample():
    whole = Shards(Walk(size=23, random_shuffle=True), 2, 1, "FILL")
    expected = [sorted(whole.read()[1]) for _ in range(42)]
    samples, B, num_steps, epoch = [], 3, 0, 0
    shards = Shards(Walk(size=23, random_shuffle=True), 2, B, "FILL")
    for B, n in [(3, 2), (4, 1), (5, 2), (1, 2), (4, 2), (3, 4)]:
        new = Shards(shards.walks[0], 2, B, "FILL")
        new.cursors = shards.cursors
        new.counter.set_state(shards.counter.get_state())
        shards = new
        for _ in range(n):
            if shards.counter.is_over:
                assert sum(e == epoch for e, _ in samples) == 23
                assert sum(e > epoch for e, _ in samples) < 2 * B
                epoch += 1
                shards.reset()
            samples += shards.read()[1]
            num_steps += B
    assert sorted(samples) == sorted(s for step in expected[:num_steps] for s in step)
