"""The arithmetic of shards and epochs: DALI 2.4.0's tables, and a brute-force model."""

import ast
import dataclasses
import inspect
import json

import numpy as np
import pytest
from epochs import EPOCHS_OF_THREE_SHARDS
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdali._data.epoch as epoch_module
import jaxdali._data.shuffle as shuffle_module
import jaxdali._data.walk as walk_module
from jaxdali._data.epoch import EpochCounter, EpochPlan
from jaxdali._data.shuffle import Groups, ShufflePurpose, buffer_order, permutation, raw
from jaxdali._data.walk import Walk


class Iterator:
    """An iterator over pipelines with one reader each, and its counter. The data are the numbers 1..N."""

    def __init__(self, N, B, *, S=1, shards=None, pad=False, stick=False, policy="FILL", size=None, padded=False):
        self.B = B
        self.walks = [
            Walk(size=N, num_shards=S, shard_id=i, pad_last_batch=pad, stick_to_shard=stick) for i in shards or range(S)
        ]
        self.cursors = [w.initial() for w in self.walks]
        if size is None:
            self.plan = EpochPlan.of_readers([w.meta() for w in self.walks], B, policy)
        else:
            self.plan = EpochPlan.of_size(size, len(self.walks), B, padded, policy)
        self.counter = EpochCounter(self.plan)
        self.lengths = []

    def read(self):
        batch = []
        for p, w in enumerate(self.walks):
            index, _, _, self.cursors[p] = w.take(self.cursors[p], self.B, self.B)
            batch.append((index + 1).tolist())
        return batch

    def epoch(self):
        self.lengths.append((self.counter.size, self.counter.length))
        batches = []
        while not self.counter.is_over:
            batch, valid = self.read(), self.counter.advance()
            batches.append([b[:v] for b, v in zip(batch, valid)] if self.plan.policy == "PARTIAL" else batch)
        for _ in range(self.counter.reset()):
            self.read()
        return batches

    def texts(self, epochs):
        """Epochs as "12 34|56 77": a digit per sample ("A" is 10), pipelines apart by "|"."""
        return [
            "|".join(" ".join("".join("0123456789AB"[x] for x in b[p]) for b in e) for p in range(len(self.walks)))
            for e in (self.epoch() for _ in range(epochs))
        ]


def test_sizes_and_lengths():
    for kwargs, expected in [
        ({"pad": True}, [(7, 4), (7, 4), (7, 4)]),
        ({}, [(8, 4), (6, 3), (8, 4)]),
        ({"policy": "DROP"}, [(7, 3), (7, 3), (7, 3)]),
        ({"size": 7}, [(7, 4), (7, 4), (7, 4)]),
        ({"size": 7, "policy": "DROP"}, [(7, 3), (7, 3), (7, 3)]),
    ]:
        it = Iterator(7, 2, **kwargs)
        it.texts(3)
        assert it.lengths == expected, kwargs
    assert EpochCounter(EpochPlan.of_size(100, 8, 4, False, "FILL")).length == 4
    assert EpochCounter(EpochPlan.of_size(100, 8, 4, False, "DROP")).length == 3


@pytest.mark.parametrize("by_size", [False, True])
@pytest.mark.parametrize(
    ("policy", "pad", "expected"),
    [
        ("FILL", True, ["12 34 56 77"] * 4),
        ("FILL", False, ["12 34 56 71", "23 45 67", "12 34 56 71", "23 45 67"]),
        ("DROP", True, ["12 34 56"] * 4),
        ("DROP", False, ["12 34 56", "23 45 67", "34 56 71", "45 67 12"]),
        ("PARTIAL", True, ["12 34 56 7"] * 4),
        ("PARTIAL", False, ["12 34 56 7", "23 45 67 1", "34 56 71 2"]),
    ],
)
def test_policy_and_padding(by_size, policy, pad, expected):
    options = {"size": 7, "padded": pad} if by_size else {}
    assert Iterator(7, 2, pad=pad, policy=policy, **options).texts(len(expected)) == expected


def test_size_smaller_than_data_or_batch():
    assert Iterator(9, 2, size=4).texts(3) == ["12 34", "56 78", "91 23"]
    assert Iterator(3, 5).texts(1) == ["12312"]
    assert Iterator(3, 5, pad=True).texts(2) == ["12333"] * 2
    assert Iterator(3, 5, policy="DROP").counter.length == 0
    assert Iterator(3, 5, policy="DROP").counter.is_over


@pytest.mark.parametrize(("policy", "pad", "stick", "expected"), EPOCHS_OF_THREE_SHARDS)
def test_one_shard_of_three(policy, pad, stick, expected):
    for shard in range(3):
        assert Iterator(10, 2, S=3, shards=[shard], policy=policy, pad=pad, stick=stick).texts(3) == expected[shard], (
            shard
        )


def test_several_pipelines():
    def epochs(n, **kwargs):
        return Iterator(11, 2, S=2, **kwargs).texts(n)

    assert epochs(4) == ["12 34 56|67 89 AB", "78 9A B1|12 34 56", "23 45 67|78 9A B1", "89 AB|23 45"]
    assert epochs(3, pad=True) == ["12 34 55|67 89 AB", "67 89 AB|12 34 55", "12 34 55|67 89 AB"]
    assert epochs(4, policy="DROP") == ["12 34|67 89", "78 9A|12 34", "23 45|78 9A", "89 AB|23 45"]
    assert epochs(2, policy="DROP", pad=True) == ["12 34|67 89", "67 89|12 34"]


def test_partial_cuts_each_pipeline_to_its_shard():
    assert Iterator(7, 2, S=2, policy="PARTIAL", pad=True).epoch() == [[[1, 2], [4, 5]], [[3], [6, 7]]]
    assert Iterator(20, 2, S=2, size=5, policy="PARTIAL").epoch() == [[[1, 2], [11, 12]], [[3], []]]


@settings(deadline=None)
@given(
    N=st.integers(1, 30),
    S=st.integers(1, 5),
    stick=st.booleans(),
    first=st.integers(0, 9),
    taken=st.integers(0, 2000),
)
def test_epochs_read_ahead_against_brute_force(N, S, stick, first, taken):
    """A batch that is much larger than its shard reads several epochs, which `reset` passes over."""
    N, taken = max(N, S), taken + N

    def sizes(number):
        shards = [i if stick else (i + number) % S for i in range(S)]
        return [N * (i + 1) // S - N * i // S for i in shards]

    counter = Iterator(N, 7, S=S, stick=stick).counter
    counter.set_state({"round": first, "taken": taken, "ahead": [0] * S})
    counter.reset()
    ahead, number = [taken - n for n in sizes(first)], first + 1
    while any(ahead) and all(n <= m for n, m in zip(sizes(number), ahead, strict=True)):
        ahead, number = [m - n for n, m in zip(sizes(number), ahead, strict=True)], number + 1
    assert counter.get_state() == {"round": number, "taken": 0, "ahead": ahead}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ahead": [0, 2**31]}, r"counter.ahead\[1\] is 2147483648, expected 0 ... 8"),
        ({"ahead": [-1, 0]}, r"counter.ahead\[0\] is -1"),
        ({"taken": 2**31}, "counter.taken is 2147483648"),
        ({"parts": {"3": [2**40, 2**40]}}, r"counter.parts\[3\] is .*expected equal parts of 11 samples for 2 shards"),
        ({"parts": {"3": [1]}}, r"counter.parts\[3\] is \[1\]"),
        ({"parts": {"5": [1, 2]}}, "counter.parts has epoch 5"),
    ],
)
def test_impossible_counters_name_the_entry(changes, text):
    counter = Iterator(11, 2, S=2).counter
    counter.set_state({"round": 2, "taken": 2, "ahead": [0, 0]})
    with pytest.raises(ValueError, match=text):
        counter.set_state({"round": 2, "taken": 2, "ahead": [0, 0], **changes})


@settings(max_examples=150, deadline=None)
@given(N=st.integers(1, 40), S=st.integers(1, 5), B=st.integers(1, 9), stick=st.booleans(), epochs=st.integers(1, 12))
def test_wrapping_epochs_against_brute_force(N, S, B, stick, epochs):
    """FILL without padding: at the end of epoch k, every reader has read its first k shards, and the slowest reader has
    read less than a batch more.
    """
    if N < S:
        return
    bounds = [N * i // S for i in range(S + 1)]
    it = Iterator(N, B, S=S, stick=stick)
    num_read, needs, num_epochs = 0, [0] * S, 0
    for _ in range(epochs):
        previous = num_read
        while all(n <= num_read for n in needs):  # skips the epochs that were read ahead entirely
            for s in range(S):
                shard = s if stick else (s + num_epochs) % S
                needs[s] += bounds[shard + 1] - bounds[shard]
            num_epochs += 1
        batches = it.epoch()
        num_read += len(batches) * B
        assert max(needs) <= num_read < max(needs) + B
        assert len(batches) == it.lengths[-1][1] == (num_read - previous) // B
        assert it.lengths[-1][0] == len(batches) * B


@settings(max_examples=100, deadline=None)
@given(
    N=st.integers(1, 40), S=st.integers(1, 5), B=st.integers(1, 9), stick=st.booleans(), pad=st.booleans(),
    shuffle=st.sampled_from(["no", "random", "after"]), fill=st.integers(1, 50), seed=st.integers(0, 99),
)  # fmt: skip
def test_walk_against_brute_force(N, S, B, stick, pad, shuffle, fill, seed):
    if N < S or (shuffle == "after" and stick):
        return
    options = {
        "stick_to_shard": stick,
        "pad_last_batch": pad,
        "random_shuffle": shuffle == "random",
        "shuffle_after_epoch": shuffle == "after",
        "shuffle": "global" if shuffle == "global" else None,
    }
    for shard in range(S):
        walk = Walk(size=N, num_shards=S, shard_id=shard, initial_fill=fill, seed=seed, **options)
        samples, cursor = [], walk.initial()
        for _ in range(3 * (N + B) // B + 1):
            index, epoch, position, cursor = walk.take(cursor, B, B)
            samples += list(zip(index.tolist(), epoch.tolist(), position.tolist()))
        start = 0
        for r in range(3):
            current_shard = shard if stick or shuffle == "after" else (shard + r) % S
            first, end = N * current_shard // S, N * (current_shard + 1) // S
            part = samples[start : start + end - first]
            assert sorted(p for _, _, p in part) == list(range(first, end))
            assert {e for _, e, _ in part} == {r}
            if shuffle == "no":
                assert [i for i, _, _ in part] == list(range(first, end))
            start += len(part)
            if pad:
                stop = start + -(-N // S) - len(part)
                stop += -stop % B
                assert set(samples[start:stop]) <= {part[-1]}
                start = stop


def _round(walk, number=0):
    index, _, position, _ = walk.take({"round": number, "offset": 0}, len(walk._round(number)[0]), 1)
    return index.tolist(), position.tolist()


def test_shuffled_shards_are_disjoint_for_all_seeds():
    walks = [Walk(size=30, num_shards=4, shard_id=i, random_shuffle=True, seed=i) for i in range(4)]
    for r in range(3):
        assert sorted(i for w in walks for i in _round(w, r)[0]) == list(range(30))
    assert sorted(_round(walks[0], 1)[0]) == sorted(_round(walks[1], 0)[0])  # shards move on
    assert _round(walks[0]) != _round(Walk(size=30, num_shards=4, shard_id=0, random_shuffle=True, seed=9))
    assert _round(walks[0], 4) != _round(walks[0], 0)  # the same shard an epoch later


def test_initial_fill_sizes_the_shuffle_buffer():
    n = 1000
    order = {
        fill: np.array(_round(Walk(size=n, random_shuffle=True, initial_fill=fill, seed=3))[1]) for fill in (1, 10, n)
    }
    assert order[1].tolist() == list(range(n))  # the list as shuffled
    early = np.arange(n) - order[10]
    assert early.min() == -9  # an entry can't come before it is in the buffer ...
    assert np.argsort(order[10])[:500].max() < 700  # ... and does not stay there
    assert abs(np.corrcoef(order[n], np.arange(n))[0, 1]) < 0.1


SIZES = np.array([7, 30, 1, 0, 12, 12, 90, 5, 5, 41, 3, 60, 8, 25, 2, 2, 17, 33])  # of groups


@pytest.mark.parametrize(
    "kwargs", [{"shuffle": "global"}, {"random_shuffle": True}, {"random_shuffle": True, "initial_fill": 10}]
)
@pytest.mark.parametrize("S", [1, 3])
@pytest.mark.parametrize("entries", [None, np.random.default_rng(0).permutation(SIZES.sum())])
def test_memory_of_shuffled_groups(kwargs, S, entries):
    groups = Groups(SIZES, SIZES * 10, 1000, entries)
    group = np.repeat(np.arange(len(SIZES)), SIZES)
    if entries is not None:
        group = group[np.argsort(entries)]
    rounds = []
    for number in range(2):
        samples, num_groups_read = [], 0
        for shard in range(S):
            index, position = _round(
                Walk(size=int(SIZES.sum()), groups=groups, num_shards=S, shard_id=shard, **kwargs), number
            )
            assert sorted(position) != position
            group_of_sample = group[index]
            first, last = (
                {g: k for k, g in reversed([*enumerate(group_of_sample)])},
                {g: k for k, g in enumerate(group_of_sample)},
            )
            for k in range(len(group_of_sample)):
                assert sum(10 * SIZES[g] for g in last if first[g] <= k <= last[g]) <= 1000
            num_groups_read += len(last)
            samples += zip(index, position)
        mixed = np.mean([len({*group[[i for i, _ in samples[k : k + 20]]]}) for k in range(len(samples) - 20)])
        assert mixed > 3  # 1.9 in order
        assert sorted(i for i, _ in samples) == sorted(p for _, p in samples) == list(range(SIZES.sum()))
        assert num_groups_read <= np.count_nonzero(SIZES) + S - 1
        rounds.append([i for i, _ in samples])
    assert rounds[0] != rounds[1]


def test_moves_of_shuffled_groups():
    walk = Walk(size=int(SIZES.sum()), groups=Groups(SIZES, SIZES * 10, 1000), random_shuffle=True, initial_fill=1)
    order = _round(walk)[0]
    assert _round(walk, 1)[0] == _round(dataclasses.replace(walk, seed=1))[0] == order
    places = {fill: np.argsort(_round(dataclasses.replace(walk, initial_fill=fill))[0]) for fill in (1, 11, 1000)}
    near, far = (np.abs(places[fill] - places[1]).mean() for fill in (11, 1000))
    assert 1 < near < 6 < 20 < far


def test_groups_too_large_for_the_buffer():
    """Such groups come one after another, each in random order."""
    groups = Groups(np.full(4, 50), np.full(4, 2000), 1000)
    index, _ = _round(Walk(size=200, groups=groups, shuffle="global"))
    parts = np.reshape(index, (4, 50))
    assert sorted(tuple(sorted(p)) for p in parts) == [tuple(range(k, k + 50)) for k in range(0, 200, 50)]
    assert all(sorted(p) != p.tolist() for p in parts)


def test_shuffle_buffer_against_a_loop():
    n, fill, seed = 200, 7, 5
    place = raw(seed, ShufflePurpose.BUFFER, 2, 1, n - fill) % np.uint64(fill)
    buffer, order = list(range(fill)), []
    for t, j in enumerate(place.astype(int)):
        order.append(buffer[j])
        buffer[j] = fill + t
    order += [buffer[j] for j in permutation(seed, ShufflePurpose.REST, 2, 1, fill)]
    assert buffer_order(n, fill, seed, 2, 1).tolist() == order


def test_global_shuffle_permutes_by_epoch_and_seed():
    walk = Walk(size=1000, shuffle="global", seed=5)
    orders = [_round(walk, r)[0] for r in range(3)]
    for order in orders:
        assert sorted(order) == list(range(1000))
        # Of the whole list: a third of its length on average.
        assert np.abs(np.array(order) - np.arange(1000)).mean() > 250
    assert len({*map(tuple, orders)}) == 3
    assert _round(dataclasses.replace(walk, seed=6))[0] != orders[0]
    for S in (2, 7):  # one order, however many shards share it
        shards = [dataclasses.replace(walk, num_shards=S, shard_id=i) for i in range(S)]
        assert [i for w in shards for i in _round(w, 2)[0]] == orders[2]


def test_shuffle_after_epoch():
    walks = [Walk(size=12, num_shards=2, shard_id=i, shuffle_after_epoch=True, seed=i) for i in range(2)]
    orders = []
    for r in range(3):
        parts = [_round(w, r)[0] for w in walks]
        orders.append(parts[0] + parts[1])
        assert sorted(orders[-1]) == list(range(12))
        # One order, however many shards share it.
        assert orders[-1] == _round(Walk(size=12, shuffle_after_epoch=True), r)[0]
    assert len(set(map(tuple, orders))) == 3
    assert _round(Walk(size=12, shuffle_after_epoch=True, shuffle_after_epoch_seed=1))[0] != orders[0]


def test_cursor_is_json_for_any_batch_size():
    walk = Walk(size=23, num_shards=2, shard_id=1, random_shuffle=True, seed=8)
    whole = walk.take(walk.initial(), 60, 60)
    cursor, parts = walk.initial(), []
    for n in (1, 7, 12, 20, 20):
        *part, cursor = walk.take(json.loads(json.dumps(cursor)), n, n)
        parts.append(part)
    for k in range(3):
        assert np.concatenate([p[k] for p in parts]).tolist() == whole[k].tolist()
    assert cursor == whole[3]


def test_state_of_the_counter():
    a, b = (Iterator(11, 2, S=3).counter for _ in range(2))
    for _ in range(40):
        b.set_state(json.loads(json.dumps(a.get_state())))
        assert (b.size, b.length, b.is_over, b.valid()) == (a.size, a.length, a.is_over, a.valid())
        if a.is_over:
            a.reset()
        else:
            a.advance()
    with pytest.raises(ValueError, match="2 shards"):
        a.set_state({"round": 0, "taken": 0, "ahead": [0, 0]})


def test_wrong_arguments():
    for kwargs, text in [
        ({"num_shards": 0}, "num_shards"),
        ({"shard_id": -1}, "shard_id"),
        ({"shard_id": 2, "num_shards": 2}, "shard_id"),
        ({"num_shards": 11}, "10 samples for 11 shards"),
        ({"initial_fill": 0}, "initial_fill"),
        ({"shuffle_after_epoch": True, "random_shuffle": True}, "random_shuffle"),
        ({"shuffle": "global", "random_shuffle": True}, "random_shuffle"),
        ({"shuffle": "global", "shuffle_after_epoch": True}, "shuffle_after_epoch"),
        ({"shuffle_after_epoch": True, "stick_to_shard": True}, "stick_to_shard"),
    ]:
        with pytest.raises(ValueError, match=text):
            Walk(size=10, **kwargs)
    metas = [Walk(size=10, num_shards=2, shard_id=0).meta(), Walk(size=9, num_shards=2, shard_id=1).meta()]
    with pytest.raises(ValueError, match="epoch_size"):
        EpochPlan.of_readers(metas, 2, "FILL")
    with pytest.raises(ValueError, match="policy"):
        EpochPlan.of_size(10, 1, 2, False, "fill")
    with pytest.raises(ValueError, match="size"):
        EpochPlan.of_size(0, 1, 2, False, "FILL")


@pytest.mark.parametrize("module", [epoch_module, shuffle_module, walk_module])
def test_the_module_needs_neither_jax_nor_files(module):
    tree = ast.parse(inspect.getsource(module))
    names = {
        n.module or "" if isinstance(n, ast.ImportFrom) else n.names[0].name
        for n in ast.walk(tree)
        if isinstance(n, (ast.Import, ast.ImportFrom))
    }
    assert names <= {
        "__future__",
        "collections.abc",
        "dataclasses",
        "enum",
        "_core.errors",
        "_cpu",
        "functools",
        "hashlib",
        "json",
        "numpy",
        "operator",
        "shuffle",
        "threading",
        "walk",
        "typing",
        "warnings",
    }
