"""The JAX iterators: epochs, options, lifetime."""

import copy
import inspect
import pathlib
import re

import counts
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shardings
from epochs import EPOCHS_OF_THREE_SHARDS
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from pipelines import file_contents

from jaxdali import fn, pipeline_def, plugin, types
from jaxdali._pipeline import lease as lease_module
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator

DIGITS = "0123456789ABCDEF"


def epochs(it, n, shards=1):
    """The samples of n epochs, as texts like "12 34|56 7A": a digit for each sample, "|" between shards."""
    texts = []
    for _ in range(n):
        batches = [np.asarray(b["x"]).reshape(shards, -1) for b in it]
        texts.append("|".join(" ".join("".join(DIGITS[x] for x in b[s]) for b in batches) for s in range(shards)))
    return texts


@pytest.mark.parametrize(
    ("policy", "pad", "want"),
    [
        ("FILL", True, ["12 34 56 77"] * 3),
        ("FILL", False, ["12 34 56 71", "23 45 67", "12 34 56 71"]),
        ("DROP", True, ["12 34 56"] * 3),
        ("DROP", False, ["12 34 56", "23 45 67", "34 56 71"]),
    ],
)
@pytest.mark.parametrize("sharding", [None, shardings.of_batch(1)], ids=["", "sharding"])
def test_seven_samples_in_batches_of_two(files, policy, pad, want, sharding):
    policy = LastBatchPolicy[policy]
    with data_iterator(file_contents, ["x"], reader_name="reader", last_batch_policy=policy, sharding=sharding)(
        files[:7], batch_size=2, pad=pad
    ) as it:
        assert epochs(it, 3) == want
    with (
        pytest.warns(UserWarning, match="reader_name"),
        data_iterator(file_contents, ["x"], size=7, last_batch_padded=pad, last_batch_policy=policy)(
            files[:7], batch_size=2, pad=pad
        ) as it,
    ):
        assert epochs(it, 3) == want


def test_fewer_samples_than_shards():
    """The ways out that the message names."""
    shards = len(jax.devices())

    def few(num_shards=1, shard_id=0):
        return fn.readers.source({"x": np.arange(3)}, name="few", num_shards=num_shards, shard_id=shard_id)["x"]

    def beside(num_shards=1, shard_id=0):
        rows = fn.readers.source({"x": np.arange(64)}, name="reader", num_shards=num_shards, shard_id=shard_id)["x"]
        return rows, fn.readers.source({"x": np.arange(3)}, shuffle="global", seed=shard_id)["x"]

    with pytest.raises(RuntimeError, match=rf"3 samples for {shards} shards.*fewer devices.*without num_shards.*seed"):
        data_iterator(few, ["x"], reader_name="few", sharding=shardings.of_batch(shards))(batch_size=shards)
    options = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}
    it = data_iterator(few, ["x"], reader_name="few", sharding=shardings.of_batch(2), **options)(batch_size=4)
    assert sorted(np.concatenate([np.asarray(b["x"])[np.asarray(b["mask"])] for b in it])) == [0, 1, 2]
    it = data_iterator(beside, ["x", "y"], reader_name="reader", sharding=shardings.of_batch(shards))(
        batch_size=6 * shards
    )
    orders = np.asarray(next(it)["y"]).reshape(shards, 2, 3)
    assert (np.sort(orders) == np.arange(3)).all()
    assert len({tuple(x.ravel()) for x in orders}) > 1


@pytest.mark.parametrize("axes", [AxisType.Auto, AxisType.Explicit])
def test_steps_of_a_scan_move_no_rows(axes):
    """The recipe of examples/site/guides/several_hosts.md, and what it warns of."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(axes,), devices=jax.devices()[:4])

    def rows(num_shards, shard_id):
        return fn.readers.source(
            {"x": np.arange(96, dtype=np.float32).reshape(24, 4)}, name="r", num_shards=num_shards, shard_id=shard_id
        )["x"]

    sharding = NamedSharding(mesh, PartitionSpec("data"))
    x = next(data_iterator(rows, ["x"], reader_name="r", sharding=sharding)(batch_size=24))["x"]

    def parts(x):
        return jnp.moveaxis(x.reshape(-1, 3, *x.shape[1:]), 1, 0)

    def scan(split):
        return jax.jit(lambda x: jax.lax.scan(lambda state, part: (state, part * 2), 0, split(x))[1])

    with jax.set_mesh(mesh):
        program = scan(parts)
        assert not re.search("all-gather|all-to-all|permute", program.lower(x).compile().as_text())
        assert (np.asarray(program(x)) == 2 * np.asarray(x).reshape(8, 3, 4).transpose(1, 0, 2)).all()
        if axes is AxisType.Auto:
            assert "all-gather" in scan(lambda x: x.reshape(3, 8, 4)).lower(x).compile().as_text()


@pytest.mark.parametrize(("policy", "pad", "stick", "want"), EPOCHS_OF_THREE_SHARDS)
def test_three_shards(files, policy, pad, stick, want):
    options = {"reader_name": "reader", "last_batch_policy": LastBatchPolicy[policy]}
    for shard in range(3):
        with data_iterator(file_contents, ["x"], **options)(files[:10], 3, shard, pad, stick, batch_size=2) as it:
            assert epochs(it, 3) == want[shard]
    if policy == "FILL" and not pad:  # in one iterator, all shards have as many steps as the longest
        return
    with data_iterator(file_contents, ["x"], **options, sharding=shardings.of_batch(3))(
        files[:10], batch_size=6, pad=pad, stick=stick
    ) as it:
        assert epochs(it, 3, 3) == ["|".join(shard[e] for shard in want) for e in range(3)]


def test_option_of_the_decorator(files):
    iterator = data_iterator(file_contents, ["x"], reader_name="reader")
    with pytest.raises(
        TypeError, match=r"sharding is an argument of the decorator: @data_iterator\(\.\.\., sharding=\.\.\.\)"
    ):
        iterator(files, batch_size=2, sharding=shardings.of_batch(2))


@pytest.mark.parametrize(
    ("policy", "pad", "want"),
    [
        ("FILL", False, ["12 34 56|67 89 AB", "78 9A B1|12 34 56", "23 45 67|78 9A B1", "89 AB|23 45"]),
        ("FILL", True, ["12 34 55|67 89 AB", "67 89 AB|12 34 55", "12 34 55|67 89 AB"]),
        ("DROP", False, ["12 34|67 89", "78 9A|12 34", "23 45|78 9A", "89 AB|23 45"]),
        ("DROP", True, ["12 34|67 89", "67 89|12 34"]),
    ],
)
@pytest.mark.parametrize("form", ["pipelines", "sharding", "devices"])
def test_two_shards_in_one_iterator(files, policy, pad, want, form):
    options = {"reader_name": "reader", "last_batch_policy": LastBatchPolicy[policy]}
    if form == "pipelines":
        pipes = [pipeline_def(file_contents)(files[:11], 2, i, pad, batch_size=2) for i in range(2)]
        it = DALIGenericIterator(pipes, ["x"], **options)
    else:
        placement = {"devices": jax.devices()[:2]} if form == "devices" else {"sharding": shardings.of_batch(2)}
        it = data_iterator(file_contents, ["x"], **options, **placement)(files[:11], batch_size=4, pad=pad)
    with it:
        assert next(it)["x"].shape == ((4, 1) if form == "sharding" else (2, 2, 1))
        texts = epochs(it, len(want), 2)
        assert [w.split("|")[0][3:] for w in want[:1]] == [texts[0].split("|")[0]]
        assert texts[1:] == want[1:]


def test_shuffle_after_epoch(files):
    def shuffled(num_shards=1, shard_id=0):
        return fn.readers.file(
            files=files, name="reader", num_shards=num_shards, shard_id=shard_id, shuffle_after_epoch=True
        )[0]

    with data_iterator(shuffled, ["x"], reader_name="reader", sharding=shardings.of_batch(2))(batch_size=8) as it:
        batches_by_epoch = [[np.ravel(b["x"]).reshape(2, 4) for b in it] for _ in range(2)]
    with data_iterator(shuffled, ["x"], reader_name="reader")(batch_size=4, seed=5) as it:
        one_shard = [[x for b in it for x in np.ravel(b["x"]).tolist()] for _ in range(2)]
    two_shards = [[x for s in range(2) for b in epoch for x in b[s].tolist()] for epoch in batches_by_epoch]
    assert two_shards == one_shard  # the order does not depend on the seed and the number of shards
    assert two_shards[0] != two_shards[1]
    assert sorted(two_shards[0]) == sorted(two_shards[1]) == list(range(1, 33))


def test_length_and_size(files):
    with data_iterator(file_contents, ["x"], reader_name="reader")(files[:7], batch_size=2) as it:
        lengths = []
        for _ in range(3):
            lengths.append((len(it), it.size, sum(1 for _ in it)))
            it.reset()
    assert lengths == [(4, 8, 4), (3, 6, 3), (4, 8, 4)]


@pytest.mark.one_device
def test_next_and_for_and_reset(files, caplog):
    with data_iterator(file_contents, ["x"], reader_name="reader")(files[:6], batch_size=2) as it:
        assert iter(it) is it
        assert it.next()["x"].tolist() == [[1], [2]]
        it.reset()
        assert "before the end of the epoch is ignored; the epoch continues in the middle of epoch" in caplog.text
        assert [b["x"][0, 0].item() for b in it] == [3, 5]  # a loop takes the rest of the epoch
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(it)
        assert [b["x"][0, 0].item() for b in it] == [1, 3, 5]


@pytest.mark.one_device
@pytest.mark.parametrize("auto_reset", [True, "yes", "True"])
def test_auto_reset(files, auto_reset):
    with data_iterator(file_contents, ["x"], reader_name="reader", auto_reset=auto_reset)(
        files[:4], batch_size=2
    ) as it:
        for _ in range(3):
            assert [next(it)["x"][0, 0].item() for _ in range(2)] == [1, 3]
            with pytest.raises(StopIteration):
                next(it)


@pytest.mark.one_device
def test_reset_before_an_epoch_is_silent(files, caplog):
    """Nothing is ignored: an epoch begins. Programs call it before each epoch, although `auto_reset` has done so."""
    with data_iterator(file_contents, ["x"], reader_name="reader", auto_reset=True)(files[:4], batch_size=2) as it:
        for _ in range(2):
            it.reset()
            assert [next(it)["x"][0, 0].item() for _ in range(2)] == [1, 3]
            with pytest.raises(StopIteration):
                next(it)
    assert not caplog.text


def test_end_of_a_source(files):
    @pipeline_def(batch_size=2)
    def three():
        def source(info):
            if info.iteration == 3:
                raise StopIteration
            return np.int32(info.idx_in_epoch + 100 * info.epoch_idx)

        return fn.external_source(source=source, batch=False)

    with DALIGenericIterator(three(), ["x"]) as it:
        assert len(it) == 0
        assert it.size == -1
        assert [[b["x"].tolist() for b in it] for _ in range(2)] == [
            [[0, 1], [2, 3], [4, 5]],
            [[100, 101], [102, 103], [104, 105]],
        ]


@pytest.mark.parametrize("num_shards", [1, 2, 8])
def test_shuffled_shards_equal_one_shard(files, num_shards):
    """Each sample is read once in an epoch, and has the same random numbers with any number of shards."""

    @data_iterator(
        output_map=["x", "r"],
        reader_name="reader",
        sharding=shardings.of_batch(num_shards),
    )
    def shuffled(num_shards=1, shard_id=0):
        return file_contents(files, num_shards, shard_id, shuffle=True), fn.random.uniform(range=(0.0, 1.0))

    with shuffled(batch_size=8, seed=3) as it:
        all_epochs = [
            {int(x): float(r) for b in it for x, r in zip(np.asarray(b["x"]).ravel(), np.asarray(b["r"]))}
            for _ in range(2)
        ]
    for drawn in all_epochs:
        assert sorted(drawn) == list(range(1, 33))
    assert all(all_epochs[0][k] != all_epochs[1][k] for k in all_epochs[0])
    with data_iterator(
        lambda: (file_contents(files, shuffle=True), fn.random.uniform(range=(0.0, 1.0))),
        ["x", "r"],
        reader_name="reader",
    )(batch_size=4, seed=3) as it:
        unsharded = {int(x): float(r) for b in it for x, r in zip(np.asarray(b["x"]).ravel(), np.asarray(b["r"]))}
    assert unsharded == all_epochs[0]


@pytest.mark.one_device
def test_several_pipelines_are_stacked_or_sharded(files):
    def pipes(devices):
        return [
            pipeline_def(file_contents)(files[:8], num_shards=2, shard_id=i, batch_size=2, device_id=d)
            for i, d in enumerate(devices)
        ]

    with DALIGenericIterator(pipes([0, 0]), ["x"], reader_name="reader") as it:
        assert next(it)["x"].tolist() == [[[1], [2]], [[5], [6]]]
    with DALIGenericIterator(pipes([0, 1]), ["x"], reader_name="reader") as it:
        x = next(it)["x"]
        assert [s.device.id for s in x.addressable_shards] == [0, 1]
        assert x[1].tolist() == [[5], [6]]
    sharding = shardings.of_batch(2)
    with DALIGenericIterator(pipes([0, 1]), ["x"], reader_name="reader", sharding=sharding) as it:
        x = next(it)["x"]
        assert x.sharding == sharding
        assert x.ravel().tolist() == [1, 2, 5, 6]
        assert len(it) == 2


def test_plugins_use_pipelines_by_lease_only():
    """The contents of a pipeline are in `PipelineInternals`, which only the packages below the plugins use."""
    assert "internals_of" in inspect.getsource(lease_module)
    for path in pathlib.Path(plugin.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "internals_of" not in text, path
        assert "_Pipeline__" not in text, path


@pytest.mark.parametrize("num_samples", [0, 1])
def test_no_first_batch(num_samples):
    @pipeline_def(batch_size=2)
    def nothing():
        return fn.external_source(source=iter([np.int32(0)] * num_samples), batch=False, dtype=types.INT32, ndim=0)

    with pytest.raises(
        RuntimeError, match=f"no data in the pipeline: its source ended after {num_samples} of the 2 samples"
    ):
        DALIGenericIterator(nothing(), ["x"])
    with DALIGenericIterator(nothing(), ["x"], prepare_first_batch=False) as it, pytest.raises(StopIteration):
        next(it)


def test_size_is_for_all_pipelines_together(files):
    pipes = [pipeline_def(file_contents)(files[:8], 2, i, batch_size=2) for i in range(2)]
    with pytest.warns(UserWarning, match="reader_name"):
        it = DALIGenericIterator(pipes, ["x"], size=6)
    with it:
        assert (len(it), it.size, it.batch_size) == (2, 6, 2)
        assert epochs(it, 2, 2) == ["12 34|56 78", "56|12"]  # the first epoch read two more than its 6


@pytest.mark.one_device
def test_kept_and_donated_batches(files):
    make = data_iterator(lambda: fn.cast(file_contents(files), dtype=types.FLOAT).gpu(), ["x"], reader_name="reader")
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    with make(batch_size=4) as it:
        arrays = [b["x"] for b in it]
        copies = [np.array(k) for k in arrays]
        for b in it:
            double(b["x"])
        np.testing.assert_array_equal(arrays, copies)
        assert np.ravel(copies).tolist() == list(range(1, 33))


def test_users_jax_settings(files):
    """Settings of the user's thread don't affect how batches are made, except for x64 types of the outputs."""
    make = data_iterator(
        lambda: (file_contents(files), fn.random.uniform(range=(0.0, 1.0), dtype=types.FLOAT64).gpu()),
        ["x", "r"],
        reader_name="reader",
    )
    with jax.transfer_guard("disallow"), make(batch_size=4) as it:
        for _ in range(3):
            batch = next(it)
    assert batch["r"].dtype == np.float32
    with jax.disable_jit(), make(batch_size=4) as it:
        assert next(it)["x"].shape == (4, 1)
    with jax.enable_x64(True), make(batch_size=4) as it:
        assert next(it)["r"].dtype == np.float64


@pytest.mark.one_device
def test_train_and_eval_iterators_alive_at_once(files):
    make = data_iterator(file_contents, ["x"], reader_name="reader")
    with make(files[:8], batch_size=2) as train, make(files[8:12], batch_size=2) as evaluate:
        for _ in range(2):
            for i, b in enumerate(train):
                assert b["x"][0, 0] == 2 * i + 1
                if i == 1:
                    assert [e["x"][0, 0].item() for e in evaluate] == [9, 11]


def test_batches_are_made_ahead(files):
    """The queue fills while the user works."""
    iterations = []

    @pipeline_def(batch_size=1, prefetch_queue_depth=3)
    def slow():
        def source(info):
            iterations.append(info.iteration)
            return np.int32(info.iteration)

        return fn.external_source(source=source, batch=False)

    with DALIGenericIterator(slow(), ["x"]) as it:
        next(it)
        assert counts.until(lambda: len(it._stream.lease.runners[0]._finished_items) == 3)
        iterations_read = copy.copy(iterations)
    assert len(iterations_read) == 4  # 3 in the queue, and the one that was taken


def test_element_spec(files):
    sharding = shardings.of_batch(4)

    def define(num_shards=1, shard_id=0):
        images = fn.external_source(source=lambda: [np.zeros((5, 6, 3), np.uint8)] * (8 // num_shards), layout="HWC")
        return file_contents(files, num_shards, shard_id), fn.resize(images, size=(2, 3)), images

    for placement in (None, sharding):
        with data_iterator(define, ["x", "small", "ragged"], reader_name="reader", sharding=placement)(
            batch_size=8
        ) as it:
            spec = it.element_spec
            batch = next(it)
            assert spec == {
                name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in batch.items()
            }
            assert np.ravel(batch["x"]).min() == 1  # nothing was taken
    single_output = pipeline_def(lambda: define()[0])
    with DALIGenericIterator([single_output(batch_size=8) for _ in range(2)], ["x"], reader_name="reader") as it:
        assert it.element_spec["x"].shape == (2, 8, 1)


def test_element_spec_at_the_end():
    @pipeline_def(batch_size=1)
    def one():
        return fn.external_source(source=[np.zeros((1, 2), np.uint8)])

    with DALIGenericIterator(one(), ["x"]) as it:
        next(it)
        with pytest.raises(RuntimeError, match="the data have ended"):
            it.element_spec


def test_profiles_name_stages_and_operators(files, tmp_path):
    def define():
        images = fn.external_source(source=lambda: [np.zeros((5, 6, 3), np.uint8)] * 4, layout="HWC")
        return file_contents(files), fn.random.uniform(range=(0.0, 1.0)), fn.resize(images, size=(2, 3))

    make = data_iterator(define, ["x", "r", "small"], reader_name="reader")
    with jax.profiler.trace(str(tmp_path)), make(batch_size=4) as it:
        for batch in it:
            jax.block_until_ready(batch)
    profile = b"".join(f.read_bytes() for f in tmp_path.rglob("*.xplane.pb"))
    for name in (
        b"read readers.file",
        b"read external_source",
        b"host random.uniform",
        b"setup resize",
        b"launch resize",
        b"check resize",
    ):
        assert b"jaxdali " + name in profile


@pytest.mark.filterwarnings("ignore:.*changes no epoch")
@pytest.mark.parametrize("is_early", [False, True])
def test_subclasses_may_set_names(is_early):
    """Names that DALI's iterators have as plain attributes, or lack."""
    names = ("batch_size", "pipelines", "num_batches", "statistics", "_num_gpus", "_last_batch_policy")
    names += ("_size", "_counter", "_first_batch", "_reader_name")

    class Subclass(DALIGenericIterator):
        def __init__(self, *args, **options):
            if not is_early:
                super().__init__(*args, **options)
            for name in names:
                setattr(self, name, name)
            if is_early:
                super().__init__(*args, **options)

    definition = pipeline_def(lambda: fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False))
    pipes = [definition(batch_size=2, num_threads=1) for _ in range(2)]
    with Subclass(pipes, ["x"], size=8, last_batch_policy=LastBatchPolicy.DROP) as it:
        # DALI's constructor replaces those that it sets, too.
        replaced = {"batch_size": 2, "_num_gpus": 2, "_last_batch_policy": LastBatchPolicy.DROP} if is_early else {}
        replaced |= {"_size": 8, "_counter": 0, "_first_batch": None, "_reader_name": None} if is_early else {}
        assert {n: getattr(it, n) for n in names} == {n: n for n in names} | replaced
        assert len(it) == 2
        assert "2 samples of each of 2 pipelines" in repr(it)
        assert "int32[2, 2]" in repr(it)
        assert [np.asarray(batch["x"]).tolist() for batch in it] == [[[0, 1], [0, 1]], [[2, 3], [2, 3]]]


def test_attributes_of_dali(files):
    """Their values are those of DALI 2.4, after the first batch."""
    make = data_iterator(file_contents, ["x"], reader_name="reader", last_batch_policy=LastBatchPolicy.DROP)
    with make(files[:7], batch_size=2, num_shards=2, pad=True) as it:
        next(it)
        assert (it._counter, it._size, it._size_no_pad, it._shards_num, it._reader_name) == (2, 3, 7, 2, "reader")
        assert it._last_batch_padded
    definition = pipeline_def(lambda: fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False))
    with DALIGenericIterator([definition(batch_size=2, num_threads=1) for _ in range(2)], ["x"], size=8) as it:
        assert it._counter == 0
        next(it)
        assert (it._counter, it._size, it._num_gpus) == (4, 8, 2)
        assert it._first_batch is it._reader_name is None
        assert not hasattr(it, "_shards_num")


def test_set_counter_goes_on_counting(files):
    """Until the epoch ends, also in a `reset` that sets it as DALI's does."""

    class Subclass(DALIGenericIterator):
        def reset(self):
            self._counter = self._counter % self._size
            super().reset()

    pipe = pipeline_def(file_contents)(files[:6], batch_size=2, num_threads=1)
    with Subclass(pipe, ["x"], reader_name="reader") as it:
        for _ in range(3):
            counts = [it._counter]
            while it._counter < it._size:
                next(it)
                counts.append(it._counter)
            assert counts == [0, 2, 4, 6]
            it.reset()
        it._counter = 100
        next(it)
        assert it._counter == 102
        it._counter = 0
        next(it)
        assert it._counter == 2


def test_setting_size_changes_no_epoch():
    class Early(DALIGenericIterator):
        def __init__(self, *args, **options):
            self.size = options["size"]
            super().__init__(*args, **options)

    definition = pipeline_def(lambda: fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False))
    with pytest.raises(AttributeError, match="Early: size can't be set, nor in DALI"):
        Early(definition(batch_size=2, num_threads=1), ["x"], size=8)
    with DALIGenericIterator(definition(batch_size=2, num_threads=1), ["x"], size=8) as it:
        it._size = 8
        with pytest.warns(UserWarning, match="_size = 6 changes no epoch: pass size=6 to the constructor"):
            it._size = 6
        assert (it._size, it.size, len(list(it))) == (6, 8, 4)
