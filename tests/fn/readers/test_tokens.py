"""readers.tokens: packing, against definitions of its own; resuming, shards and errors."""

import collections

import jax
import numpy as np
import pytest
import riegeli
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxdali
from jaxdali import fn, pipeline_def, types
from jaxdali._data.packing import pack
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

rng = np.random.default_rng(0)
LENGTH = 16
SIZES = [int(n) for n in rng.choice([0, 1, 3, 5, 8, 11, 16, 17, 40], 90)]
DOCUMENTS = [np.arange(n) + 100 * (i + 1) for i, n in enumerate(SIZES)]


def first_fit(pieces, length, bins=64):
    """Lists instead of arrays: the first open sequence with room; without one the fullest is closed, the first of
    several.
    """
    opened, closed = [], []
    for piece in pieces:
        place = next((b for b in opened if sum(map(len, b)) + len(piece) <= length), None)
        if place is None:
            if len(opened) == bins:
                fullest = max(opened, key=lambda b: sum(map(len, b)))
                closed.append(opened.pop(next(i for i, b in enumerate(opened) if b is fullest)))
            opened.append(place := [])
        place.append(piece)
    return closed + opened


def expected(packing, documents, length=LENGTH):
    """Sequences, as lists of segments."""
    if packing == "concatenate":
        flat = [(i, x) for i, d in enumerate(documents) for x in d.tolist()]
        sequences = [flat[k : k + length] for k in range(0, len(flat), length)]
        return [[[x for i, x in s if i == j] for j in dict.fromkeys(i for i, _ in s)] for s in sequences]
    pieces = [d[k : k + length].tolist() for d in documents for k in range(0, len(d), length)]
    if packing == "none":
        return pieces
    if packing == "first_fit":
        return first_fit(pieces, length)
    sequences = [[]]
    for piece in pieces:
        if sum(map(len, sequences[-1])) + len(piece) > length:
            sequences.append([])
        sequences[-1].append(piece)
    return sequences


def rows(segments, length=LENGTH, pad=0):
    """Tokens, segments and positions of a sequence."""
    tokens = [x for s in segments for x in s]
    ids = [k + 1 for k, s in enumerate(segments) for _ in s]
    places = [p for s in segments for p in range(len(s))]
    empty = length - len(tokens)
    return tokens + [pad] * empty, ids + [0] * empty, places + [0] * empty


def write(folder, dtype=np.int32, documents=DOCUMENTS, **options):
    half = len(documents) // 2
    for name, part in (("a", documents[:half]), ("b", documents[half:])):
        riegeli.array_record(folder / f"{name}.array_record", [d.astype(dtype).tobytes() for d in part], **options)
    return f"{folder}/*.array_record"


def read(path, batches, batch_size=3, threads=1, **arguments):
    @pipeline_def(batch_size=batch_size, num_threads=threads, device_id=None)
    def define():
        return tuple(fn.readers.tokens(path=path, **{"length": LENGTH, **arguments}))

    pipe = define()
    return [tuple(x.as_array() for x in pipe.run()) for _ in range(batches)]


@pytest.mark.parametrize("options", [{}, {"group": 3}, {"group": 4, "zstd": True}, {"zstd": True}], ids=str)
@pytest.mark.parametrize("packing", ["first_fit", "sequential", "concatenate"])
def test_packing(tmp_path, packing, options):
    if options.get("zstd"):
        pytest.importorskip("zstandard")
    sequences = expected(packing, DOCUMENTS)
    for threads in (1, 3):
        batches = read(write(tmp_path, **options), -(-len(sequences) // 3), threads=threads, packing=packing, pad_id=-7)
        outputs = [np.concatenate([b[k] for b in batches])[: len(sequences)] for k in range(3)]
        for k in range(3):
            np.testing.assert_array_equal(outputs[k], [rows(s, pad=-7)[k] for s in sequences])


@pytest.mark.parametrize("packing", ["first_fit", "sequential", "concatenate"])
@pytest.mark.parametrize("length", [1, 7, 64, 1000])
def test_pack_has_each_token_once(packing, length):
    sizes = rng.integers(0, 150, 700)
    documents = [np.arange(n) + 1000 * i for i, n in enumerate(sizes.tolist())]
    pieces = pack(sizes, np.arange(len(sizes)), length, packing)
    sequences = [
        [documents[pieces.record[p]][pieces.begin[p] : pieces.begin[p] + pieces.size[p]].tolist() for p in range(a, b)]
        for a, b in zip(pieces.first[:-1].tolist(), pieces.first[1:].tolist(), strict=True)
    ]
    assert sequences == expected(packing, documents, length)
    assert sorted(x for s in sequences for piece in s for x in piece) == np.concatenate(documents).tolist()
    assert all(0 < sum(map(len, s)) <= length for s in sequences)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "uint32", "int64"])
def test_types(tmp_path, dtype):
    documents = [np.arange(1, n) for n in (5, 9, 3, 4)]
    batches = read(write(tmp_path, dtype, documents), 1, 1, dtype=dtype, packing="concatenate", length=12)
    np.testing.assert_array_equal(batches[0][0][0], np.concatenate(documents)[:12])
    assert {x.dtype for x in batches[0]} == {np.dtype(np.int32)}


def test_packing_seed(tmp_path):
    path = write(tmp_path)
    seed_1, seed_1_again, seed_2, unshuffled = (
        np.concatenate([b[0] for b in read(path, 20, packing_seed=s)]) for s in (1, 1, 2, None)
    )
    np.testing.assert_array_equal(seed_1, seed_1_again)
    assert len({x.tobytes() for x in (seed_1, seed_2, unshuffled)}) == 3


def make(path, shards=1, batch_size=4, **options):
    mesh = NamedSharding(Mesh(np.array(jax.devices()[:shards]), ("data",)), PartitionSpec("data"))
    names = ["tokens", "tokens_segment_ids", "tokens_positions"]

    @data_iterator(output_map=names, reader_name="tokens", sharding=mesh, **options)
    def define(num_shards=1, shard_id=0):
        shard = {"num_shards": num_shards, "shard_id": shard_id}
        return tuple(
            fn.readers.tokens(path=path, length=LENGTH, name="tokens", shuffle="global", pad_last_batch=True, **shard)
        )

    return define(batch_size=batch_size, num_threads=1, seed=5, enable_checkpointing=True)


@pytest.mark.parametrize("later_shards", [1, 2, 4])
def test_going_on_in_mid_epoch(tmp_path, later_shards):
    """With as many shards, the same batches follow; with another number, the rest of the epoch, each sequence once."""
    path = write(tmp_path)
    options = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}
    it = make(path, 2, **options)
    first_batches = [next(it) for _ in range(3)]
    checkpoints = it.checkpoints()
    resumed = make(path, later_shards, checkpoints=checkpoints, **options)
    last_batches = list(resumed)
    if later_shards == 2:
        for a, b in zip(list(it), last_batches, strict=True):
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])
    times = collections.Counter(
        tuple(row)
        for b in [*first_batches, *last_batches]
        for row, valid in zip(np.asarray(b["tokens"]).tolist(), np.asarray(b["mask"]), strict=True)
        if valid
    )
    assert times == collections.Counter(tuple(rows(s)[0]) for s in expected("first_fit", DOCUMENTS))


def test_a_checkpoint_of_other_packing_is_refused(tmp_path):
    path = write(tmp_path)

    def pipe(length, **checkpoint):
        @pipeline_def(batch_size=2, num_threads=1, device_id=None, enable_checkpointing=True)
        def define():
            return tuple(fn.readers.tokens(path=path, length=length))

        return define(**checkpoint)

    first = pipe(16)
    first.run()
    with pytest.raises(
        RuntimeError, match=r"can.t continue from this checkpoint: files is .*first_fit of int32 to 8.* and .*to 16"
    ):
        pipe(8, checkpoint=first.checkpoint()).run()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"length": 0}, ValueError, "length must be"),
        ({"dtype": types.FLOAT}, TypeError, "dtype must be one of"),
        ({"packing": "best"}, ValueError, "packing must be one of 'first_fit', 'sequential', 'concatenate', 'none'"),
        (
            {"dtype": types.INT64},
            RuntimeError,
            r"a\.array_record, record \d+: its \d+ bytes are not a whole number of tokens of type int64",
        ),
    ],
)
def test_arguments(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        read(write(tmp_path, documents=[np.arange(3), np.arange(5)]), 1, **arguments)


def test_tokens_outside_of_int32(tmp_path):
    path = write(tmp_path, np.uint32, [np.array([1, 2]), np.array([3, 2**31])])
    with pytest.raises(
        jaxdali.SampleError, match=r"b\.array_record, record 0: its tokens are negative or do not fit into int32"
    ):
        read(path, 1, 1, dtype=types.UINT32)


def test_lengths_of_padded_records_are_few(tmp_path):
    """The recipe for batches without packing."""
    path = write(tmp_path, documents=[d for d in DOCUMENTS if len(d)])

    @data_iterator(output_map=["x"], reader_name="r")
    def define():
        tokens = fn.reinterpret(fn.readers.array_record(path=path, name="r"), dtype=types.INT32)
        return fn.pad(tokens, axes=[0], align=[24])

    lengths = {b["x"].shape[1] for b in define(batch_size=2, num_threads=1)}
    assert lengths == {24, 48}


@pytest.mark.parametrize("options", [{}, {"group": 3}], ids=str)
def test_unpacked_sequences(tmp_path, options):
    """Each record, or piece of a longer one, has its own length, however long they may be."""
    path, pieces = write(tmp_path, **options), expected("none", DOCUMENTS)
    samples = []

    @pipeline_def(batch_size=len(pieces) // 3, num_threads=1, device_id=None)
    def define():
        return tuple(fn.readers.tokens(path=path, length=LENGTH, packing="none", pad_id=7))

    pipe = define()
    for _ in range(3):
        samples += [tuple(np.asarray(x).tolist() for x in sample) for sample in zip(*pipe.run(), strict=True)]
    assert samples == [(p, [1] * len(p), list(range(len(p)))) for p in pieces[: len(samples)]]
    assert len(samples) > 0.9 * len(pieces)
    ((whole, _, _),) = read(path, 1, 1, length=2**40, packing="none")
    assert whole.tolist() == [next(d for d in DOCUMENTS if len(d)).tolist()]


@pytest.mark.parametrize("reader", ["array_record", "tokens"])
@pytest.mark.parametrize("options", [{}, {"zstd": True}, {"group": 3}], ids=str)
def test_batches_of_similar_lengths(tmp_path, reader, options):
    """Each record once, in runs of similar lengths; shards read parts of the list, and a checkpoint with other lengths
    is refused.
    """
    documents = [np.arange(n) for n in np.random.default_rng(3).permutation(240) + 1]
    path = write(tmp_path, documents=documents, **options)

    def make(shards=1, state=None, path=path, size=8):
        @pipeline_def(batch_size=8, num_threads=1, enable_checkpointing=True, checkpoint=state)
        def define(shard):
            arguments = {
                "group_by_length": size,
                "shuffle": "global",
                "seed": 5,
                "num_shards": shards,
                "shard_id": shard,
                "path": path,
            }
            if reader == "tokens":
                return fn.readers.tokens(length=1000, packing="none", **arguments)[0]
            return fn.readers.array_record(**arguments)

        return [define(shard) for shard in range(shards)]

    def lengths(pipe, batches):
        unit = 4 if reader == "array_record" else 1
        return [[len(np.asarray(x)) // unit for x in pipe.run()[0]] for _ in range(batches)]

    def check(batches):
        assert sorted(n for b in batches for n in b) == list(range(1, 241))
        # About 7 of 240, with two shards 14; more than 100 in any order.
        assert np.mean([np.ptp(b) for b in batches]) < 20
        assert abs(np.corrcoef([np.mean(b) for b in batches], np.arange(30))[0, 1]) < 0.6

    (pipe,) = make()
    first, next_batches = lengths(pipe, 30), lengths(pipe, 10)
    check(first)
    state = pipe.checkpoint()
    last_batches = lengths(pipe, 20)
    check(next_batches + last_batches)
    assert lengths(make(state=state)[0], 20) == last_batches
    check([b for pipe in make(2) for b in lengths(pipe, 15)])
    with pytest.raises(RuntimeError, match="group_by_length"):
        make(state=state, size=4)[0].run()
    (tmp_path / "other").mkdir()
    other_path = write(tmp_path / "other", documents=documents[::-1], **options)
    with pytest.raises(RuntimeError, match=r"can.t continue from this checkpoint"):
        make(state=state, path=other_path)[0].run()


def test_packed_sequences_are_not_grouped(tmp_path):
    with pytest.raises(
        ValueError, match=r'group_by_length is for packing="none": of packing="first_fit" all sequences have one length'
    ):
        read(write(tmp_path), 1, group_by_length=4)
