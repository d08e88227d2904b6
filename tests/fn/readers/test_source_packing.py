"""readers.source: whole items packed into sequences, against a definition of its own; resuming, shards and errors."""

import collections

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import SampleError, fn, pipeline_def
from jaxdali._data.packing import pack, pack_whole
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

rng = np.random.default_rng(7)
LIMITS = (32, 6)


def make_item(i):
    """Some tokens, 0 to 2 files in a list, a file, a number and a box."""
    files = [bytes([i % 256, k] * int(rng.integers(1, 5))) for k in range(int(rng.integers(0, 3)))]
    return {
        "tokens": 1000 * i + np.arange(int(rng.integers(0, 13))),
        "files": files,
        "photo": b"photo %d" % i,
        "number": i,
        "box": np.full((2, 3), i, np.float32),
    }


ITEMS = [make_item(i) for i in range(300)]
LENGTHS = np.array([[len(item["tokens"]), len(item["files"]) + 1] for item in ITEMS])
PACKED = {"lengths": LENGTHS, "length": LIMITS, "packing": "first_fit", "layout": {"files": "F*", "box": "NC"}}


def planned(lengths, limits, packing, order=None, bins=64):
    """The items of each sequence, by lists: first fit closes the sequence that is fullest in one of the limits."""

    def used(sequence):
        return [sum(lengths[i][j] for i in sequence) for j in range(len(limits))]

    def has_room(sequence, i):
        return all(u + n <= limit for u, n, limit in zip(used(sequence), lengths[i], limits))

    opened, closed = [], []
    for i in range(len(lengths)) if order is None else order:
        candidates = opened if packing == "first_fit" else opened[-1:]
        sequence = next((s for s in candidates if has_room(s, i)), None)
        if sequence is None:
            if packing == "first_fit" and len(opened) == bins:
                fullness = [max(u / limit for u, limit in zip(used(s), limits)) for s in opened]
                closed.append(opened.pop(fullness.index(max(fullness))))
            opened.append(sequence := [])
        sequence.append(i)
    return closed + opened


def check_sample(sample, items, pad):
    """Whether a sequence has the values of its items."""
    tokens = np.concatenate([ITEMS[i]["tokens"] for i in items])
    num_padding = LIMITS[0] - len(tokens)
    places = [np.arange(len(ITEMS[i]["tokens"])) for i in items]
    segments = [np.full(len(p), k + 1) for k, p in enumerate(places)]
    np.testing.assert_array_equal(sample["tokens"], np.pad(tokens, (0, num_padding), constant_values=pad))
    np.testing.assert_array_equal(sample["tokens_segment_ids"], np.pad(np.concatenate(segments), (0, num_padding)))
    np.testing.assert_array_equal(sample["tokens_positions"], np.pad(np.concatenate(places), (0, num_padding)))
    files = [(file, k + 1) for k, i in enumerate(items) for file in ITEMS[i]["files"]]
    assert [bytes(row).rstrip(b"\0") for row in sample["files"]] == [file.rstrip(b"\0") for file, _ in files]
    assert sample["files_segment_ids"].tolist() == [k for _, k in files]
    assert [bytes(row).rstrip(b"\0") for row in sample["photo"]] == [b"photo %d" % i for i in items]
    assert sample["number"].tolist() == items
    np.testing.assert_array_equal(sample["box"], np.stack([ITEMS[i]["box"] for i in items]))


def read(batches, dataset=ITEMS, batch_size=4, **arguments):
    """The samples of the first batches, as dictionaries; and layouts by name."""
    names = []

    @pipeline_def(batch_size=batch_size, num_threads=2, seed=5)
    def define():
        outputs = fn.readers.source(dataset, **{**PACKED, **arguments})
        names[:] = outputs
        return tuple(outputs.values())

    samples, layouts = [], {}
    pipe = define()
    for _ in range(batches):
        outputs = pipe.run()
        layouts = {n: x.layout() for n, x in zip(names, outputs) if not isinstance(x, list)}
        columns = [x if isinstance(x, list) else map(np.asarray, x) for x in outputs]
        samples += [dict(zip(names, row)) for row in zip(*columns, strict=True)]
    pipe.close()
    return samples, layouts


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("packing", ["first_fit", "sequential"])
def test_sequences_have_their_items(packing, workers):
    plan = planned(LENGTHS, LIMITS, packing)
    samples, layouts = read(-(-len(plan) // 4), packing=packing, num_workers=workers, pad_id=-7)
    assert sorted(i for items in plan for i in items) == list(range(300))
    for sample, items in zip(samples, plan, strict=False):
        check_sample(sample, items, pad=-7)
    assert {n: layouts[n] for n in ("tokens", "files", "photo", "number", "box")} == {
        "tokens": "",
        "files": "F*",
        "photo": "F*",
        "number": "F",
        "box": "FNC",
    }
    assert samples[0]["tokens"].dtype == samples[0]["files_segment_ids"].dtype == np.int32


@pytest.mark.parametrize("packing", ["first_fit", "sequential"])
@pytest.mark.parametrize("limits", [(50,), (50, 11), (40, 40, 90)])
def test_plans(packing, limits):
    sizes, order = rng.integers(0, 12, (2500, len(limits))), rng.permutation(2500)[:2400]
    pieces = pack_whole(sizes, order, limits, packing)
    sequences = [s.tolist() for s in np.split(pieces.record, pieces.first[1:-1])]
    assert sequences == planned(sizes.tolist(), limits, packing, order.tolist())
    assert all((sizes[s].sum(axis=0) <= limits).all() for s in sequences)
    if len(limits) == 1:  # as `readers.tokens` packs records that are not cut
        has_tokens = order[sizes[order, 0] > 0]
        whole, cut = pack_whole(sizes, has_tokens, limits, packing), pack(sizes[:, 0], order, limits[0], packing)
        for name in ("record", "begin", "size", "first"):
            np.testing.assert_array_equal(getattr(whole, name), getattr(cut, name))


def make(shards):
    mesh = NamedSharding(Mesh(np.array(jax.devices()[:shards]), ("data",)), PartitionSpec("data"))
    names = ["tokens", "tokens_segment_ids", "tokens_positions"]

    policy = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}

    @data_iterator(output_map=names, reader_name="items", sharding=mesh, **policy)
    def define(num_shards=1, shard_id=0):
        shard = {"num_shards": num_shards, "shard_id": shard_id, "pad_last_batch": True}
        outputs = fn.readers.source(ITEMS, **PACKED, packing_seed=3, shuffle="global", name="items", **shard)
        return tuple(outputs[name] for name in names)

    return define(batch_size=8, num_threads=1, seed=5)


@pytest.mark.parametrize("later_shards", [8, 4])
def test_going_on_in_mid_epoch(later_shards):
    """With as many shards, the same batches follow; with another number, the rest of the epoch, each item once."""
    it = make(8)
    first_batches = [next(it) for _ in range(3)]
    state = it.get_state()
    resumed = make(later_shards)
    resumed.set_state(state)
    last_batches = list(resumed)
    if later_shards == 8:
        for a, b in zip(list(it), last_batches, strict=True):
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])
    times = collections.Counter(
        token
        for b in [*first_batches, *last_batches]
        for row, ids in zip(np.asarray(b["tokens"])[b["mask"]], np.asarray(b["tokens_segment_ids"])[b["mask"]])
        for token in row[ids > 0].tolist()
    )
    assert times == collections.Counter(x for item in ITEMS for x in item["tokens"].tolist())


@pytest.mark.parametrize(
    "change",
    [
        {"packing": "sequential"},
        {"packing_seed": 1},
        {"length": (33, 6)},
        {"lengths": LENGTHS + [[0, 1]]},
        {"pad_id": 1},
        {"tokens": []},
    ],
    ids=lambda x: next(iter(x)),
)
def test_checkpoints_of_other_packing_are_refused(change):
    def pipe(change, **checkpoint):
        @pipeline_def(batch_size=2, num_threads=1, enable_checkpointing=True)
        def define():
            return fn.readers.source(ITEMS, **{**PACKED, **change})["number"]

        return define(**checkpoint)

    first = pipe({})
    first.run()
    with pytest.raises(RuntimeError, match=r"can.t continue from this checkpoint: files is .*first_fit to \(32, 6\)"):
        pipe(change, checkpoint=first.checkpoint()).run()


class Counted:
    """Counts reads; some items fail, or have another form than they should."""

    def __init__(self, changed=None):
        self.read, self.changed = [], changed or {}

    def __len__(self):
        return len(ITEMS)

    def __getitem__(self, i):
        self.read.append(i)
        if i in self.changed:
            return ITEMS[i] | self.changed[i]
        return ITEMS[i]


def test_items_are_read_with_their_sequence():
    dataset, plan = Counted(), planned(LENGTHS, LIMITS, "first_fit")
    samples, _ = read(1, dataset, batch_size=1, metadata=["index", "source_info"])
    assert dataset.read[: 1 + len(plan[0])] == [0, *plan[0]]
    assert samples[0]["index"] == 0
    assert samples[0]["source_info"] == f"Counted[{plan[0][0]}] and {len(plan[0]) - 1} more"


@pytest.mark.parametrize("workers", [0, 2])
def test_metadata_of_items_are_lists(workers):
    items = [item | {"name": f"item {i}"} for i, item in enumerate(ITEMS)]
    samples, _ = read(3, items, metadata=["name"], num_workers=workers)
    assert [s["name"] for s in samples] == [[f"item {i}" for i in s["number"]] for s in samples]


PLAN = planned(LENGTHS, LIMITS, "first_fit")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"tokens": np.arange(33)},
            r"key 'tokens' has 33 tokens and lengths says \d+: its sequence exceeds 32 tokens",
        ),
        ({"tokens": np.array([2**31])}, "key 'tokens' has tokens that do not fit into int32"),
        ({"box": np.zeros((1, 3), np.float32)}, r"key 'box' has the shape \(1, 3\), in .* \(2, 3\).*one shape.*'box'"),
        ({"number": 1.5}, "key 'number' is 0-D float64"),
    ],
)
def test_an_item_fails_its_sequence(value, message):
    bad = PLAN[1][1]
    dataset = Counted({bad: value})
    with pytest.raises(SampleError, match=rf"Counted\[{bad}\]: .*{message}"):
        read(1, dataset)
    samples, _ = read(1, dataset, on_error="replace")
    assert [s["number"].tolist() for s in samples] == [PLAN[0], PLAN[2], PLAN[2], PLAN[3]]


def test_long_items():
    lengths = LENGTHS.copy()
    lengths[[5, 8], 1] = 7
    message = r"list\[5\] has 7, more than 6 in column 1 of lengths"
    with pytest.raises(ValueError, match=rf"readers\.source: {message}: items stay whole; .*on_error=\"skip\""):
        read(1, lengths=lengths)
    order = [i for i in range(300) if i not in (5, 8)]
    plan = planned(lengths, LIMITS, "first_fit", order)
    with pytest.warns(UserWarning, match=rf"2 of 300 items are left out, as they are too long: {message}; a larger"):
        samples, _ = read(len(plan) // 4, lengths=lengths, on_error="skip")
    assert [s["number"].tolist() for s in samples] == plan[: len(samples)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": None}, 'packing="first_fit" needs length, and lengths'),
        ({"length": None}, 'packing="first_fit" needs length, and lengths'),
        ({"length": 0}, "length must be"),
        ({"length": 32}, "lengths has 2 columns, and length 1 limit"),
        ({"lengths": LENGTHS[1:]}, r"integers of shape \(300, 2\).*got shape \(299, 2\)"),
        ({"lengths": LENGTHS * 1.0}, "got shape .* of float64"),
        ({"lengths": -LENGTHS}, "must not be negative"),
        ({"lengths": np.full((300, 2), 2**63, np.uint64)}, "must fit into int64"),
        ({"lengths": [[1, 2], [3]] * 150}, "equally many numbers"),
        ({"packing": "none"}, 'length is for packing="first_fit" or "sequential"'),
        ({"packing": "none", "length": None}, "given together"),
        (
            {"packing": "none", "length": None, "lengths": None, "packing_seed": 1},
            'packing_seed is for packing="first_fit"',
        ),
        ({"packing": "concatenate"}, "packing must be one of"),
        ({"group_by_length": 4}, 'group_by_length is for packing="none"'),
        ({"tokens": "text"}, r"tokens has 'text'; the items have the keys .*tokens=\[\]"),
        ({"tokens": ["tokens", "box"]}, "tokens has 'box', which must be 1-D integers, got 2-D float32"),
        ({"pad_id": 2**31}, "pad_id must be an int32"),
        ({"dataset": [1] * 300, "layout": None}, "packing is for items that are dictionaries"),
        ({"dataset": [x | {"files_segment_ids": 1} for x in ITEMS]}, "the key 'files_segment_ids', which packing"),
        ({"dataset": [ITEMS[:100], ITEMS[100:]], "weights": (1, 1)}, "weights mixes single items"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises((ValueError, TypeError), match=rf"readers\.source: .*{message}"):
        read(1, **arguments)


def test_rows_of_other_data():
    with pytest.raises(
        SampleError, match=r"key 'files' has the shape .*layout=\{'files': \"F\*\"\} if its rows are files"
    ):
        read(1, [x | {"files": np.zeros((i % 3, 2), np.uint8)} for i, x in enumerate(ITEMS)], layout=None)


@pytest.mark.parametrize("tokens", [[[], [1, 2], [3]], [[1, 2], np.int16([3]), []], [[], [], []]])
def test_empty_lists_have_no_type(tokens):
    items = [{"tokens": x} for x in tokens]
    samples, _ = read(1, items, batch_size=1, lengths=[2] * 3, length=8, layout=None)
    expected = [n for x in tokens for n in x]
    assert samples[0]["tokens"].tolist() == expected + [0] * (8 - len(expected))
    assert samples[0]["tokens_segment_ids"].tolist()[: len(expected)] == [k + 1 for k in range(3) for _ in tokens[k]]


@pytest.mark.parametrize(
    ("values", "layout", "message"),
    [
        ([[], [b"a"]], None, r"layout=\{'image': 'F\*'\} says that it is lists of files"),
        ([[b"a"], []], None, r"layout=\{'image': 'F\*'\} says that it is lists of files"),
        ([np.zeros((4, 5, 3), np.uint8), np.zeros((4, 6, 3), np.uint8)], None, r"datasets\.Image\(decode=False\)"),
        ([np.zeros((4, 5, 3), np.uint8)] * 2, "F*", r"F\* is for files, lists of bytes"),
    ],
)
def test_images_in_place_of_files(values, layout, message):
    items = [{"tokens": [1], "image": x} for x in values]
    with pytest.raises((SampleError, ValueError), match=message):
        read(1, items, batch_size=1, lengths=[1] * 2, length=8, layout=layout and {"image": layout})


def test_packing_without_tokens():
    samples, _ = read(
        2, tokens=[], lengths=LENGTHS[:, 1], length=6, dataset=[{"x": i} for i in range(300)], layout=None
    )
    assert [s["x"].tolist() for s in samples] == planned(LENGTHS[:, 1:], (6,), "first_fit")[:8]
