"""Checkpoints: an iterator that is restored from one returns the same batches as the original, bit for bit."""

import contextlib
import copy
import json
import os
import re
import warnings

import numpy as np
import pytest
import shardings
from pipelines import step

from jaxdali import fn, pipeline_def
from jaxdali._pipeline.checkpoint import from_bytes, records_and_position
from jaxdali._pipeline.checks import signed
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator, peekable_data_iterator

N = 23


@pytest.fixture(scope="module")
def files(files):
    return files[:N]


def definition(files, num_shards=1, shard_id=0, order=None):
    data, _ = fn.readers.file(files=files, name="reader", num_shards=num_shards, shard_id=shard_id, **(order or {}))
    return data, fn.random.uniform(range=[0.0, 1.0]), fn.random.coin_flip()


def make(files, shards=1, policy="FILL", auto_reset=False, mask_name=None, **order):
    """Returns a function that makes iterators."""
    factory = data_iterator(
        definition,
        ["x", "u", "c"],
        reader_name="reader",
        auto_reset=auto_reset,
        last_batch_policy=LastBatchPolicy[policy],
        sharding=shardings.of_batch(shards) if shards > 1 else None,
        mask_name=mask_name,
    )

    def iterator(batch_size=2, checkpoints=None, **kwargs):
        options = {"num_threads": 2, "enable_checkpointing": True, "checkpoints": checkpoints}
        return factory(files, batch_size=batch_size * shards, **options, **kwargs, order=order)

    return iterator


def forward(it, steps):
    return [(len(it), it.size, step(it)) for _ in range(steps)]


def warned_of_states():
    return pytest.warns(UserWarning, match="after the first epoch can't go on with another number of shards")


def ids(batch):
    return np.asarray(batch["x"]).ravel().tolist()


@pytest.mark.parametrize(
    ("shards", "policy", "options"),
    [
        (1, "FILL", {}),
        (1, "FILL", {"random_shuffle": True, "auto_reset": True}),
        (1, "DROP", {"random_shuffle": True}),
        (1, "DROP", {"pad_last_batch": True}),
        (1, "PARTIAL", {"mask_name": "mask", "random_shuffle": True}),
        (2, "FILL", {"random_shuffle": True, "stick_to_shard": True}),
        (2, "FILL", {"pad_last_batch": True, "random_shuffle": True}),
        (2, "DROP", {"shuffle_after_epoch": True, "auto_reset": True}),
        (2, "PARTIAL", {"mask_name": "mask"}),
        (4, "FILL", {"random_shuffle": True}),
        (4, "DROP", {"random_shuffle": True, "pad_last_batch": True}),
    ],
)
def test_continuation_is_identical(files, shards, policy, options):
    iterator = make(files, shards, policy, **options)
    with (
        iterator(batch_size=3) as it,
        warned_of_states() if (shards, policy) == (2, "DROP") else contextlib.nullcontext(),
    ):
        checkpoints, states, steps = [it.checkpoints()], [it.get_state()], []
        for _ in range(18):  # at least two epochs
            steps += forward(it, 1)
            checkpoints.append(it.checkpoints())
            states.append(it.get_state())
        steps += forward(it, 18)
        assert sum(s[2] is None for s in steps) >= 2
        assert len(checkpoints[0]) == shards
        for i in (0, 1, 4, 9, 17):
            with iterator(
                batch_size=3, checkpoints=checkpoints[i], prefetch_queue_depth=1 + i % 3, seed=99
            ) as restored:
                assert restored.checkpoints() == checkpoints[i]
                assert forward(restored, 12) == steps[i : i + 12]
            it.set_state(json.loads(json.dumps(states[i])))
            assert it.get_state() == states[i]
            assert forward(it, 12) == steps[i : i + 12]


@pytest.mark.parametrize("auto_reset", [False, True])
def test_at_the_end_of_an_epoch(files, auto_reset):
    iterator = make(files, auto_reset=auto_reset)
    with iterator(batch_size=4) as it:
        for _ in range(len(it)):
            next(it)
        before_stop = it.checkpoints()
        with pytest.raises(StopIteration):
            next(it)
        after_stop = it.checkpoints()
        assert (before_stop == after_stop) == (not auto_reset)
        with iterator(batch_size=4, checkpoints=before_stop) as restored:
            with pytest.raises(StopIteration):
                next(restored)
            restored.reset()
            it.reset()
            assert step(restored) == step(it)


def test_loop_continues_a_restored_epoch(files, caplog):
    """A loop after `set_state` gets no warning, unlike one after batches that were taken before it."""
    iterator = make(files)
    with iterator(batch_size=4) as it:
        next(it)
        checkpoints, state = it.checkpoints(), it.get_state()
        remaining = [b["x"].tolist() for b in iterator(batch_size=4, checkpoints=checkpoints)]
        assert len(remaining) == len(it) - 1
        next(it)
        it.set_state(state)
        assert [b["x"].tolist() for b in it] == remaining
        assert not caplog.text
        assert len(list(it)) == len(it)  # the next epoch
        it.set_state(state)
        next(it)
        assert len(list(it)) == len(it) - 2
        assert "this loop continues in the middle of epoch" in caplog.text


def test_taking_a_checkpoint_changes_nothing(files):
    iterator = make(files, 2, random_shuffle=True)
    with iterator(seed=5) as a, iterator(seed=5) as b:
        for _ in range(20):
            assert a.checkpoints() == a.checkpoints() == [p.checkpoint() for p in a.pipelines]
            a.get_state()["pipelines"][0]["sources"].clear()
            assert step(a) == step(b)


def test_small_and_independent_of_prefetched_batches(files):
    iterator = make(files, 2)
    with iterator(seed=1, prefetch_queue_depth=1) as a, iterator(seed=1, prefetch_queue_depth=8) as b:
        for _ in range(3):
            assert step(a) == step(b)
        assert a.checkpoints() == b.checkpoints()
        assert max(map(len, a.checkpoints())) < 700, "bytes of a checkpoint"
        assert len(json.dumps(a.get_state())) < 1300, "bytes of a state"


def test_another_batch_size_continues_at_the_sample(files):
    iterator = make(files, random_shuffle=True)
    with iterator(batch_size=3) as it:
        for _ in range(3):
            next(it)
        state = it.checkpoints()
        remaining = list(it)
    with iterator(batch_size=2, checkpoints=state) as restored:
        resumed = list(restored)
        assert len(resumed) == 7
    for name in "xu":
        expected = np.concatenate([np.asarray(b[name]).ravel() for b in remaining])[:14]
        assert np.concatenate([np.asarray(b[name]).ravel() for b in resumed])[:14].tolist() == expected.tolist()


@pytest.mark.parametrize("batches_before", range(6))
@pytest.mark.parametrize(("shards", "new_shards"), [(4, 2), (2, 8), (1, 3), (3, 1)])
@pytest.mark.parametrize(
    "options", [{"random_shuffle": True, "pad_last_batch": True, "policy": "PARTIAL", "mask_name": "mask"}, {}]
)
def test_another_number_of_shards(files, shards, new_shards, batches_before, options):
    """Each sample has one valid copy in an epoch, by the mask or before the end of the first round. Its random numbers
    are those of the original number of shards.
    """
    draws = {}

    def take(it):
        batch = next(it)
        valid = np.asarray(batch["mask"]) if "mask" in batch else np.ones(len(batch["u"]), bool)
        for sample, draw in zip(np.asarray(batch["x"])[valid].ravel().tolist(), np.asarray(batch["u"])[valid].tolist()):
            draws.setdefault(sample, []).append(draw)

    with make(files, shards, **options)(batch_size=1, seed=3) as it:
        for _ in range(batches_before):
            take(it)
        state = it.get_state()
    with make(files, new_shards, **options)(batch_size=1) as it:
        it.set_state(state)
        assert it.pipelines[0].seed == 3
        steps = 0
        while True:
            try:
                take(it)
                steps += 1
            except StopIteration:
                break
        assert steps == -(-(N - batches_before * shards) // new_shards)
    first_draws = {sample: draw[0] for sample, draw in draws.items()}
    assert sorted(draws) == list(range(1, N + 1))
    assert sum(len(draw) > 1 for draw in draws.values()) <= (0 if options else new_shards)  # what filled the last batch
    with make(files, **options)(batch_size=1, seed=3) as it:
        draws_of_one_shard = {}
        for batch in it:
            draws_of_one_shard.setdefault(ids(batch)[0], np.asarray(batch["u"])[0].item())
    assert first_draws == draws_of_one_shard


def test_checkpoints_of_another_number_of_shards(files):
    with make(files, 4)(seed=3) as it:
        next(it)
        four = it.checkpoints()
    with make(files, 2)(checkpoints=four) as it:
        assert sorted(ids(next(it))) == [3, 4, 14, 15]
    with pytest.raises(RuntimeError, match="3 checkpoints, but 4 pipelines"):
        make(files, 4)(checkpoints=four[:3])


def test_one_process_determines_all_shards(files):
    with make(files, 4, random_shuffle=True)(seed=3) as it:
        for _ in range(8):
            step(it)
        state = it.get_state()
        full_state = copy.deepcopy(state)
        state["pipelines"] = state["pipelines"][2:3]
        expected = forward(it, 5)
        it.set_state(state)
        assert it.get_state() == full_state
        assert forward(it, 5) == expected


def test_impossible_redistribution_names_the_reason(files):
    with make(files, 2, "DROP")(batch_size=2) as it:
        for _ in range(9):
            step(it)
        with warned_of_states():
            state = it.get_state()
    with make(files, 4, "DROP")(batch_size=2) as it:
        first_ids = [ids(next(it)), None]
        with warned_of_states():
            state_before = it.get_state()
        with pytest.raises(
            RuntimeError, match=r"can't be divided.*pad_last_batch=True keeps them together; .*restart_epoch=True"
        ):
            it.set_state(state)
        assert it.get_state() == state_before  # it goes on where it was
        assert ids(next(it)) != first_ids


# --- epochs that begin anew -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shards", "policy", "batch_size", "pad", "warns"),
    [(2, "DROP", 2, False, True), (4, "DROP", 5, False, True), (23, "DROP", 1, False, False), (1, "DROP", 2, False, False),
     (2, "DROP", 2, True, False), (2, "FILL", 2, False, False)],
)  # fmt: skip
def test_the_warning_of_the_first_state(files, shards, policy, batch_size, pad, warns):
    factory = data_iterator(
        definition, ["x", "u", "c"], reader_name="reader", last_batch_policy=LastBatchPolicy[policy]
    )
    order = {"pad_last_batch": pad}
    if shards in (1, 2, 4):
        it = make(files, shards, policy, **order)(batch_size=batch_size)
    else:  # one of the processes
        it = factory(
            files, batch_size=batch_size, num_threads=1, num_shards=shards, order=order, enable_checkpointing=True
        )
    with it, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for state in (it.checkpoints, it.get_state, it.get_state):
            state()
    texts = [(str(w.message), w.filename) for w in caught]
    assert len(texts) == warns
    assert all("pad_last_batch=True to the reader 'reader'" in text and file == __file__ for text, file in texts)


@pytest.mark.parametrize("form", ["state", "checkpoints"])
# Into the second of epochs of five batches, at its end, and behind StopIteration.
@pytest.mark.parametrize("steps", [7, 10, 11, 12])
@pytest.mark.parametrize(
    ("shards", "policy", "options"), [(4, "FILL", {}), (1, "DROP", {}), (2, "PARTIAL", {"mask_name": "m"})]
)
def test_restarted_epochs(files, shards, policy, options, steps, form):
    order = {"random_shuffle": True, "seed": 8}
    with make(files, 2, "DROP", auto_reset=True, **order)(seed=3) as it, warned_of_states():
        for _ in range(steps):
            step(it)
        saved = it.get_state() if form == "state" else it.checkpoints()
    padded = make(files, shards, policy, auto_reset=True, pad_last_batch=True, **order, **options)
    with padded(batch_size=3, seed=3) as reference, padded(batch_size=3) as it:
        for _ in range(1 if steps < 11 else 2):
            while step(reference) is not None:
                pass
        it.set_state(saved, restart_epoch=True)
        assert forward(it, 9) == forward(reference, 9)


def test_refusals_to_restart_an_epoch(files):
    with make(files, 2, "DROP", pad_last_batch=True)() as it:
        next(it)
        state = it.get_state()
    with (
        make(files, 4, "FILL")() as it,
        pytest.raises(RuntimeError, match=r"policy is 'FILL' here.*; set_state.*restart_epoch=True"),
    ):
        it.set_state(state)
    with (
        make(files[1:], 4, "DROP")() as it,
        pytest.raises(RuntimeError, match=r"reader can't begin the epoch .* anew: files is"),
    ):
        it.set_state(state, restart_epoch=True)
    with (
        make(files, 4, "DROP", shuffle="global")() as it,
        pytest.raises(RuntimeError, match="shuffle is 'global' here"),
    ):
        it.set_state(state, restart_epoch=True)
    with data_iterator(definition, ["x", "u", "c"])(files, batch_size=2, num_threads=1) as uncounted:
        with pytest.raises(RuntimeError, match="reader_name is None here"):
            uncounted.set_state(uncounted.get_state() | {"iterator": state["iterator"]}, restart_epoch=True)
        with pytest.raises(RuntimeError, match="needs an iterator with reader_name"):
            uncounted.set_state(uncounted.get_state(), restart_epoch=True)

    @data_iterator(output_map=["x", "y"], reader_name="reader")
    def fed():
        (data, *_), numbers = definition(files), fn.external_source(lambda: np.zeros((2, 1), np.int32), name="numbers")
        return data, numbers

    with (
        fed(batch_size=2, num_threads=1) as it,
        pytest.raises(RuntimeError, match=r"numbers can't .* anew: only a reader"),
    ):
        it.set_state(it.get_state(), restart_epoch=True)


# --- pipelines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [False, True])
def test_pipeline(files, tmp_path, ahead):
    @pipeline_def(batch_size=3, num_threads=2, enable_checkpointing=True, exec_pipelined=ahead)
    def define():
        return definition(files, order={"random_shuffle": True})

    def run(p):
        return [np.asarray(x.as_array()).tobytes() for x in p.run()]

    p = define()
    start = p.checkpoint()
    outputs = [run(p) for _ in range(10)]
    checkpoint = p.checkpoint(str(tmp_path / "checkpoint"))
    assert (tmp_path / "checkpoint").read_bytes() == checkpoint == p.checkpoint()
    from_start, from_data = define(checkpoint=start), define(checkpoint=checkpoint, prefetch_queue_depth=4)
    assert [run(from_start) for _ in range(10)] == outputs
    assert [run(from_start) for _ in range(5)] == [run(from_data) for _ in range(5)]
    assert from_start.seed == from_data.seed == p.seed
    assert from_start.is_restored_from_checkpoint
    assert not p.is_restored_from_checkpoint
    for x in (p, from_start, from_data):
        x.close()


def test_former_file_stays_on_errors(files, tmp_path):
    pipe = pipeline_def(lambda: definition(files))(batch_size=3, num_threads=1, enable_checkpointing=True)
    path, link, pipe_file = (tmp_path / name for name in ("state", "link", "pipe"))
    link.symlink_to(path)
    state = pipe.checkpoint(link)
    assert (path.read_bytes(), link.is_symlink()) == (state, True)
    os.mkfifo(pipe_file)
    with open(os.open(pipe_file, os.O_RDONLY | os.O_NONBLOCK), "rb") as f:
        pipe.checkpoint(pipe_file)
        assert f.read(len(state)) == state
    pipe.run()
    (tmp_path / "state.new").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        pipe.checkpoint(path)
    assert path.read_bytes() == state
    assert pipe.checkpoint(path) == path.read_bytes() != state
    pipe.close()


def test_separate_pipelines_of_one_iterator(files):
    @pipeline_def(batch_size=2, num_threads=2, enable_checkpointing=True)
    def define(shard_id):
        return definition(files, 2, shard_id, {"random_shuffle": True})

    def iterator(checkpoints=(None, None), seed=7):
        pipes = [define(shard_id=i, seed=seed + i, checkpoint=c) for i, c in enumerate(checkpoints)]
        return DALIGenericIterator(pipes, ["x", "u", "c"], reader_name="reader")

    with iterator() as it:
        forward(it, 9)
        checkpoints = it.checkpoints()
        expected = forward(it, 9)
        assert it.pipelines[1].checkpoint() == it.checkpoints()[1]
    with iterator(checkpoints, seed=100) as restored:
        assert forward(restored, 9) == expected
    with pytest.raises(RuntimeError, match="different moments"):
        iterator([checkpoints[0], restored.checkpoints()[1]])
    with pytest.raises(RuntimeError, match="some pipelines have a checkpoint"):
        iterator([checkpoints[0], None])


def test_size_and_no_reader(files):
    @pipeline_def(batch_size=2, num_threads=2, enable_checkpointing=True)
    def define(shard_id):
        return definition(files, 2, shard_id, {"random_shuffle": True})

    def iterator(checkpoints=(None, None)):
        pipes = [define(shard_id=i, checkpoint=c) for i, c in enumerate(checkpoints)]
        with pytest.warns(UserWarning, match="size is given"):
            return DALIGenericIterator(pipes, ["x", "u", "c"], size=22)

    with iterator() as it:
        forward(it, 9)
        checkpoints = it.checkpoints()
        expected = forward(it, 9)
    with iterator(checkpoints) as restored:
        assert forward(restored, 9) == expected
    with (
        pytest.raises(RuntimeError, match="size is 20 here and 22 in the checkpoint"),
        pytest.warns(UserWarning, match="size is given"),
    ):
        DALIGenericIterator(
            [define(shard_id=i, checkpoint=c) for i, c in enumerate(checkpoints)], ["x", "u", "c"], size=20
        )


# --- sources -----------------------------------------------------------------------------------------------------


def test_failed_batch_counts_as_taken(files):
    files = [*files[:4], files[4] + ".missing", *files[5:]]
    with make(files)() as it:
        for _ in range(2):
            next(it)
        state_before = it.get_state()
        with pytest.raises(RuntimeError, match="missing"):
            next(it)
        state_after = it.get_state()
        expected = step(it)
        it.set_state(state_after)
        assert step(it) == expected
        it.set_state(state_before)
        with pytest.raises(RuntimeError, match="missing"):
            next(it)


def test_without_a_source():
    factory = data_iterator(lambda: fn.random.uniform(range=[0.0, 1.0]), ["u"])
    with factory(batch_size=4, num_threads=1, enable_checkpointing=True) as it:
        next(it)
        next(it)
        checkpoints = it.checkpoints()
        expected = np.concatenate([np.asarray(next(it)["u"]) for _ in range(2)])
    with factory(batch_size=2, num_threads=1, enable_checkpointing=True, checkpoints=checkpoints) as it:
        assert np.concatenate([np.asarray(next(it)["u"]) for _ in range(4)]).tolist() == expected.tolist()


# --- peekable -------------------------------------------------------------------------------------------------------


def test_peeked_batch_is_not_taken(files):
    factory = peekable_data_iterator(definition, ["x", "u", "c"], reader_name="reader")
    with factory(files, batch_size=2, num_threads=1) as it:
        next(it)
        state_before = it.get_state()
        peeked = ids(it.peek())
        assert it.get_state() == state_before
        next(it)
        assert ids(it.peek()) != peeked
        it.set_state(state_before)
        assert ids(next(it)) == peeked


# --- errors ---------------------------------------------------------------------------------------------------------


def test_not_enabled(files):
    factory = data_iterator(definition, ["x", "u", "c"], reader_name="reader")
    with factory(files, batch_size=2, num_threads=1) as it:
        with pytest.raises(ValueError, match="enable_checkpointing=True"):
            it.checkpoints()
        with pytest.raises(RuntimeError, match="enable_checkpointing=True"):
            it.pipelines[0].checkpoint()
        it.set_state(it.get_state())  # always there
    with make(files)() as it:
        checkpoints = it.checkpoints()
    with pytest.raises(RuntimeError, match="enable_checkpointing=True"):
        factory(files, batch_size=2, num_threads=1, checkpoints=checkpoints)
    for none in (None, []):
        factory(files, batch_size=2, num_threads=1, checkpoints=none).close()

    @pipeline_def(batch_size=2, num_threads=1)
    def define():
        return definition(files)

    with pytest.raises(ValueError, match=r"enable_checkpointing must be the same.*\[True, False\]"):
        DALIGenericIterator([define(enable_checkpointing=True), define()], ["x", "u", "c"], reader_name="reader")


@pytest.mark.parametrize(
    "data", [b"", b"junk", b"\xff\x00", b"{}", b"[]", b'{"format":"jaxdali checkpoint","version":1}']
)
def test_invalid_bytes(files, data):
    with pytest.raises(RuntimeError, match="not a checkpoint of jaxdali, or it is damaged"):
        make(files)(checkpoints=[data])


def test_states_whose_lists_became_dictionaries():
    """As flax makes them; the message names the way out."""
    serialization = pytest.importorskip("flax.serialization")
    make_iterator = data_iterator(lambda: fn.readers.source(list(range(8)), name="r"), ["x"], reader_name="r")
    it, resumed = (make_iterator(batch_size=2) for _ in range(2))
    next(it)
    data = serialization.to_bytes(it.get_state())
    with pytest.raises(
        RuntimeError, match=r"lists have become dictionaries.*from_bytes\(iterator.get_state\(\), data\)"
    ):
        resumed.set_state(serialization.msgpack_restore(data))
    resumed.set_state(serialization.from_bytes(resumed.get_state(), data))
    assert int(next(resumed)["x"][0]) == 2


def test_damaged_states(files):
    with make(files)() as it:
        state = it.get_state()
        for damage in (
            lambda s: s.pop("pipelines"),
            lambda s: s["pipelines"].clear(),
            lambda s: s["pipelines"][0].pop("seed"),
            lambda s: s["pipelines"][0]["sources"]["reader"].pop("cursor"),
            lambda s: s["iterator"]["counter"].pop("taken"),
        ):
            bad = copy.deepcopy(state)
            damage(bad)
            with pytest.raises(RuntimeError, match="not a checkpoint"):
                it.set_state(bad)
        with pytest.raises(RuntimeError, match="version 2"):
            it.set_state({**state, "version": 2})
        it.set_state(state)
    with pytest.raises(RuntimeError, match="closed"):
        it.set_state(state)
    with pytest.raises(TypeError, match="must be a list of bytes"):
        make(files)(checkpoints=[5])


def test_errors_name_the_difference(files):
    external_source_iterator = data_iterator(lambda: fn.external_source(source=lambda: np.zeros(2, np.int32)), ["x"])

    def state(*args, **kwargs):
        with make(*args, **kwargs)() as it:
            return it.get_state()

    with make(files)() as it:
        for other_state, text in [
            (state(files, random_shuffle=True), "random_shuffle is False here and True in the checkpoint"),
            (state(files, pad_last_batch=True), "pad_last_batch is False here and True"),
            (state(files[1:]), "files is .* here and .* in the checkpoint; size is 23 here and 22"),
            (state(files, initial_fill=5), "initial_fill is 1024 here and 5"),
            (state(files, policy="DROP"), "policy is 'FILL' here and 'DROP'"),
            (state(files, seed=3), "seed is None here and 3"),
        ]:
            with pytest.raises(RuntimeError, match=text):
                it.set_state(other_state)
    with (
        external_source_iterator(batch_size=2, num_threads=1) as unnamed,
        pytest.raises(RuntimeError, match="another iterator: reader_name is None here and 'reader'"),
    ):
        unnamed.set_state(it.get_state())
    with data_iterator(definition, ["x", "u", "c"])(files, batch_size=2, num_threads=1) as uncounted:
        with (
            external_source_iterator(batch_size=2, num_threads=1) as unnamed,
            pytest.raises(RuntimeError, match=r"the sources \['reader'\], this pipeline \['__external_source_0"),
        ):
            unnamed.set_state(uncounted.get_state())


def result_of(f, x):
    """Returns (result, None), or (None, the text of the error)."""
    try:
        return f(x), None
    except RuntimeError as e:
        return None, str(e)


def flips(data, bits):
    """Yields (index, damaged bytes): with each bit flipped in turn, with a byte replaced or removed, and cut short."""
    for i in range(len(data)):
        for bit in bits:
            yield i, data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :]
    for i in range(0, len(data), 7):
        yield i, data[:i]
        yield i, data[:i] + b"0" + data[i + 1 :]
        yield i, data[:i] + data[i + 1 :]


def test_a_changed_bit_is_noticed(files):
    """A damaged checkpoint either raises an error that mentions the checkpoint, or is read as the same one."""
    with make(files, random_shuffle=True)() as it:
        for _ in range(3):
            step(it)
        (data,), state = it.checkpoints(), it.get_state()
    expected = from_bytes(data)
    for i, damaged in flips(data, range(8)):
        result, error = result_of(from_bytes, damaged)
        assert result == expected if error is None else "checkpoint" in error, i
    for i, damaged in flips(json.dumps(state).encode(), range(0, 8, 3)):
        with contextlib.suppress(ValueError):  # the state is the user's JSON, whose parser reports its own errors
            result, error = result_of(records_and_position, json.loads(damaged))
            assert result == records_and_position(state) if error is None else "checkpoint" in error, i


def mutations(x):
    """Yields copies of a value in which one element, at any depth, is replaced or removed."""
    replacements = [None, -1, 1 << 80, "x", [], {}, True, 1.5]
    for key in x if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ():
        for replacement in replacements:
            copied = copy.deepcopy(x)
            copied[key] = replacement
            yield copied
        copied = copy.deepcopy(x)
        del copied[key]
        yield copied
        for mutation in mutations(x[key]):
            copied = copy.deepcopy(x)
            copied[key] = mutation
            yield copied


def test_states_of_another_form_say_so(files):
    """States made by hand, with a right checksum, are either accepted or raise an error that mentions the checkpoint."""
    errors = 0
    with make(files, random_shuffle=True)() as it:
        step(it)
        state = it.get_state()
        plain = {"iterator": dict(state["iterator"]), "pipelines": [dict(r) for r in state["pipelines"]]}
        for part in (plain["iterator"], *plain["pipelines"]):
            del part["checksum"]
        for changed in mutations(plain):
            with contextlib.suppress(Exception):  # some mutations have no such entries
                changed["iterator"] = signed(changed["iterator"])
                changed["pipelines"] = [signed(r) for r in changed["pipelines"]]
            _, error = result_of(it.set_state, {"version": 1, **changed})
            errors += error is not None
            assert error is None or (
                "checkpoint" in error and not re.search("(Key|Attribute|Index|Type)Error", error)
            ), error
    assert errors > 100, "most mutations must be refused"


def test_errors_name_the_damaged_checkpoint(files):
    with make(files, 2)() as it:
        first, second = it.checkpoints()
        for state, kind in (([], "an empty list"), ((), "an empty tuple"), (first, "a bytes")):
            with pytest.raises(RuntimeError, match=rf"expected the dictionary of get_state\(\), .* this is {kind}$"):
                it.set_state(state)
    with pytest.raises(
        RuntimeError, match=r"checkpoints\[1\]: this is not a checkpoint.* damaged: the checksum of it is"
    ):
        make(files, 2)(checkpoints=[first, second.replace(b'"offset":0', b'"offset":8')])
    with pytest.raises(RuntimeError, match=r"checkpoints\[0\]: .*checksum of it is missing"):
        make(files, 2)(
            checkpoints=[json.dumps({k: v for k, v in json.loads(first).items() if k != "checksum"}).encode(), second]
        )
