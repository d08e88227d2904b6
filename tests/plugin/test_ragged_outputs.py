"""Ragged outputs of JAX iterators: lists of arrays, and padded ones with their lengths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxdali
from jaxdali import fn, types
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator, peekable_data_iterator
from jaxdali.plugin.jax.fn import jax_function

COUNT = 22
LENGTHS = [(7 * i) % 12 for i in range(COUNT)]  # some are 0
BOXES = [np.arange(4 * n, dtype=np.float32).reshape(n, 4) + 100 * i for i, n in enumerate(LENGTHS)]


@pytest.fixture
def files(tmp_path):
    for i, boxes in enumerate(BOXES):
        np.save(tmp_path / f"{i:02}.npy", boxes)
    return [str(tmp_path / f"{i:02}.npy") for i in range(COUNT)]


def definition(files, dtype=None, device="cpu", **order):
    def define(num_shards=1, shard_id=0):
        x = fn.readers.numpy(files=files, name="r", num_shards=num_shards, shard_id=shard_id, **order)
        if device == "gpu":
            x = x.gpu() * 1  # made in a program
        x = x if dtype is None else fn.cast(x, dtype=dtype)
        return x, fn.shapes(x)[0]

    return define


def iterator(files, make=data_iterator, dtype=None, device="cpu", order=None, batch_size=4, pipeline=None, **options):
    define = definition(files, dtype, device, **(order or {}))
    make_iterator = make(define, ["boxes", "length"], reader_name="r", **options)
    return make_iterator(batch_size=batch_size, num_threads=1, seed=1, **(pipeline or {}))


def padded(i, limit=12, fill=0):
    expected = np.full((limit, 4), fill, np.float32)
    expected[: LENGTHS[i]] = BOXES[i]
    return expected


def check(batch, indices, limit=12, dtype=np.float32):
    boxes, lengths = batch["boxes"]
    assert boxes.dtype == dtype
    assert lengths.dtype == jnp.int32
    for k, i in enumerate(indices):
        np.testing.assert_array_equal(
            np.asarray(boxes[k], np.float32), padded(i, limit).astype(dtype).astype(np.float32)
        )
        assert lengths[k] == batch["length"].reshape(-1)[k] == LENGTHS[i]


def mesh(n):
    return Mesh(np.array(jax.devices()[:n]), ("data",))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("make", [data_iterator, peekable_data_iterator])
def test_padded_compiles_once(files, make, device):
    compiled = []

    @jax.jit
    def step(boxes, lengths):
        compiled.append(boxes.shape)
        return jnp.where(jnp.arange(12)[None] < lengths[:, None], boxes.sum(-1), 0).sum(1)

    it = iterator(files, make, device=device, ragged={"boxes": 12})
    spec = it.element_spec["boxes"]
    assert [tuple(s.shape) for s in spec] == [(4, 12, 4), (4,)]
    for number, batch in zip(range(5), it):
        indices = range(4 * number, 4 * number + 4)
        check(batch, indices)
        np.testing.assert_allclose(step(*batch["boxes"]), [BOXES[i].sum() for i in indices])
    assert len(compiled) == 1


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("make", [data_iterator, peekable_data_iterator])
def test_list(files, make, device):
    it = iterator(files, make, device=device, ragged={"boxes": None})
    for number, batch in zip(range(5), it):
        assert isinstance(batch["boxes"], list)
        assert len(batch["boxes"]) == 4
        for k, x in enumerate(batch["boxes"]):
            assert isinstance(x, jax.Array)
            np.testing.assert_array_equal(x, BOXES[4 * number + k])


@pytest.mark.parametrize("dtype", [types.BFLOAT16, types.FLOAT16, types.UINT8, types.INT64, types.BOOL])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_types(files, dtype, device):
    numpy = np.dtype(types.to_numpy_type(dtype))
    with np.errstate(all="ignore"):
        clipped = [np.minimum(x, 255) if dtype == types.UINT8 else x for x in BOXES]
    want = [x.astype(numpy) for x in clipped]
    dense = next(iterator(files, dtype=dtype, device=device, ragged={"boxes": 12}))["boxes"]
    listed = next(iterator(files, dtype=dtype, device=device, ragged={"boxes": None}))["boxes"]
    for i in range(4):
        assert listed[i].dtype == dense[0].dtype == jax.dtypes.canonicalize_dtype(numpy)
        np.testing.assert_array_equal(np.asarray(listed[i]), want[i].astype(listed[i].dtype))
        np.testing.assert_array_equal(np.asarray(dense[0][i, : LENGTHS[i]]), want[i].astype(listed[i].dtype))


@pytest.mark.parametrize("shards", [1, 2, 8])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_on_shards(files, shards, device):
    sharding = NamedSharding(mesh(shards), PartitionSpec("data"))
    order = {"pad_last_batch": True}
    for limits in (12, None):
        it = iterator(files, device=device, order=order, batch_size=8, sharding=sharding, ragged={"boxes": limits})
        per_shard, read = 8 // shards, {}
        for batch in it:
            if limits is None:
                assert len(batch["boxes"]) == 8
                rows = [np.asarray(x) for x in batch["boxes"]]
                assert [x.devices() for x in batch["boxes"]] == [{jax.devices()[k // per_shard]} for k in range(8)]
            else:
                boxes, lengths = batch["boxes"]
                assert boxes.sharding == sharding
                assert lengths.sharding.is_equivalent_to(sharding, 1)
                assert boxes.shape == (8, 12, 4)
                rows = [np.asarray(x)[:n] for x, n in zip(boxes, np.asarray(lengths), strict=True)]
            for x, n in zip(rows, np.asarray(batch["length"]).reshape(-1), strict=True):
                assert len(x) == n
                if n:
                    i = int(x[0, 0]) // 100
                    np.testing.assert_array_equal(x, BOXES[i])
                    read[i] = True
        assert sorted(read) == [i for i in range(COUNT) if LENGTHS[i]]


def test_sharding_of_several_axes_and_by_name(files):
    grid = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    by_name = {
        "boxes": NamedSharding(grid, PartitionSpec("data", None, "model")),
        "length": NamedSharding(grid, PartitionSpec("data")),
    }
    batch = next(iterator(files, batch_size=4, order={"pad_last_batch": True}, sharding=by_name, ragged={"boxes": 12}))
    boxes, lengths = batch["boxes"]
    assert boxes.sharding == by_name["boxes"]
    assert lengths.sharding == by_name["length"]
    for shard in boxes.addressable_shards:
        assert shard.data.shape == (1, 12, 2)


def test_devices_stack_the_shards(files):
    batch = next(
        iterator(files, batch_size=4, order={"pad_last_batch": True}, devices=jax.devices()[:2], ragged={"boxes": 12})
    )
    boxes, lengths = batch["boxes"]
    assert boxes.shape == (2, 2, 12, 4)
    np.testing.assert_array_equal(lengths, batch["length"].reshape(2, 2))
    np.testing.assert_array_equal(boxes[1, 0], padded(COUNT // 2))


@pytest.mark.parametrize("shards", [None, 2])
def test_several_pipelines(files, shards):
    sharding = None if shards is None else NamedSharding(mesh(2), PartitionSpec("data"))
    for limits in (12, None):
        pipelines = [
            jaxdali.pipeline_def(definition(files, pad_last_batch=True))(
                batch_size=3, num_threads=1, device_id=i, seed=1, num_shards=2, shard_id=i
            )
            for i in range(2)
        ]
        it = DALIGenericIterator(
            pipelines, ["boxes", "length"], reader_name="r", sharding=sharding, ragged={"boxes": limits}
        )
        batch, indices = next(it), [0, 1, 2, 11, 12, 13]
        if limits is None:
            for x, i in zip(batch["boxes"], indices, strict=True):
                np.testing.assert_array_equal(x, BOXES[i])
        else:
            boxes, lengths = batch["boxes"]
            assert boxes.shape == ((6, 12, 4) if shards else (2, 3, 12, 4))
            np.testing.assert_array_equal(np.asarray(lengths).ravel(), [LENGTHS[i] for i in indices])
            np.testing.assert_array_equal(np.asarray(boxes).reshape(6, 12, 4)[4], padded(12))


@pytest.mark.parametrize("limits", [12, None])
def test_masks(files, limits):
    """Missing samples have length 0, or are empty: those behind the end, and one of a missing file."""
    files_with_gap = [*files[:9], files[0] + "x", *files[10:]]

    @jaxdali.pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def define():
        return fn.readers.numpy(files=files_with_gap, name="r", on_error="skip")

    options = {"last_batch_policy": LastBatchPolicy.PARTIAL, "mask_name": "mask"}
    it = DALIGenericIterator(define(), ["boxes"], reader_name="r", ragged={"boxes": limits}, **options)
    batches = list(it)
    assert len(batches) == 6
    masks = [np.asarray(b["mask"]).tolist() for b in batches]
    assert masks[2] == [True, False, True, True]
    assert masks[5] == [True, True, False, False]
    for number, batch in enumerate(batches):
        for k in range(4):
            if masks[number][k]:
                boxes = batch["boxes"][k] if limits is None else batch["boxes"][0][k, : batch["boxes"][1][k]]
                np.testing.assert_array_equal(boxes, BOXES[4 * number + k])
    if limits is None:
        assert batches[2]["boxes"][1].size == 0
    else:
        assert batches[2]["boxes"][1][1] == 0
        assert not np.asarray(batches[2]["boxes"][0][1]).any()


def test_short_batches_of_sources():
    """Without a mask nothing is padded: the last batch is smaller."""
    batches = [[BOXES[1], BOXES[2], BOXES[3]], [BOXES[4]]]

    @jaxdali.pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def define():
        return fn.external_source(batches, batch=True, cycle="quiet")

    (first, last), (all_listed, last_listed) = (
        [b["boxes"] for b, _ in zip(DALIGenericIterator(define(), ["boxes"], ragged={"boxes": r}), range(2))]
        for r in (12, None)
    )
    assert [x.shape for x in (*first, *last)] == [(3, 12, 4), (3,), (1, 12, 4), (1,)]
    assert (len(all_listed), len(last_listed)) == (3, 1)
    np.testing.assert_array_equal(last_listed[0], BOXES[4])


def test_fill(files):
    boxes, _ = next(iterator(files, ragged={"boxes": 15}, ragged_fill=-1.5))["boxes"]
    for i in range(4):
        np.testing.assert_array_equal(boxes[i], padded(i, 15, -1.5))
    boxes, _ = next(iterator(files, ragged={"boxes": [15]}, ragged_fill={"boxes": 7}))["boxes"]
    np.testing.assert_array_equal(boxes[0], np.full((15, 4), 7))
    it = iterator(files, dtype=types.UINT8, ragged={"boxes": 15}, ragged_fill=-1, prepare_first_batch=False)
    with pytest.raises(
        jaxdali.OperatorError,
        match=r"cast .*the output 'boxes', of type uint8, can't be padded with -1, its ragged_fill",
    ):
        next(it)


def test_several_limits():
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, 99, (2 + i, 9 - 2 * i, 3)).astype(np.int32) for i in range(4)]

    @jaxdali.pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def define():
        return fn.external_source(lambda: samples, batch=True)

    masks, lengths = next(DALIGenericIterator(define(), ["masks"], ragged={"masks": (5, 9)}))["masks"]
    assert masks.shape == (4, 5, 9, 3)
    np.testing.assert_array_equal(lengths, [x.shape[:2] for x in samples])
    for mask, x in zip(np.asarray(masks), samples, strict=True):
        expected = np.zeros((5, 9, 3))
        expected[: x.shape[0], : x.shape[1]] = x
        np.testing.assert_array_equal(mask, expected)
    with pytest.raises(jaxdali.DifferentShapes, match=r"'masks'.*along the axes 0, 1 .*ragged={'masks': \(N, N\)}"):
        next(DALIGenericIterator(define(), ["masks"], ragged={"masks": 5}, prepare_first_batch=False))
    with pytest.raises(
        jaxdali.OperatorError, match=r"ragged\['masks'\] has 4 limits, but the samples of this output have 3 axes"
    ):
        next(DALIGenericIterator(define(), ["masks"], ragged={"masks": (5, 9, 3, 1)}, prepare_first_batch=False))


def test_samples_of_one_shape_and_empty_ones():
    batches = [
        np.zeros((2, 0, 4), np.float32),
        np.ones((2, 3, 4), np.float32),
        [np.zeros((0, 4), np.float32), np.ones((2, 4), np.float32)],
    ]

    @jaxdali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def define():
        return fn.external_source(batches, batch=True, cycle="quiet")

    outputs = [b["x"] for b, _ in zip(DALIGenericIterator(define(), ["x"], ragged={"x": 3}), range(3))]
    assert [x.shape for x, _ in outputs] == [(2, 3, 4)] * 3
    assert [n.tolist() for _, n in outputs] == [[0, 0], [3, 3], [0, 2]]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_longer_sample(files, device):
    it = iterator(files, device=device, ragged={"boxes": 9}, prepare_first_batch=False)
    next(it)
    long = next(i for i, n in enumerate(LENGTHS) if n > 9)
    assert long == 5
    with pytest.raises(jaxdali.SampleError) as e:
        next(it)
    for part in (
        "sample 1 of the batch",
        files[long],
        "output 'boxes'",
        f"{LENGTHS[long]} elements",
        "the limit 9",
        "created at",
    ):
        assert part in str(e.value)


def test_checkpoints_go_on(files):
    options = {"order": {"random_shuffle": True}, "pipeline": {"enable_checkpointing": True}}
    it = iterator(files, ragged={"boxes": 12}, **options)
    next(it)
    state, expected = it.get_state(), [next(it) for _ in range(3)]
    for form in (12, None):  # the form is not part of the state
        resumed = iterator(files, ragged={"boxes": form}, **options)
        resumed.set_state(state)
        for batch in expected:
            boxes = next(resumed)["boxes"]
            for k, n in enumerate(np.asarray(batch["boxes"][1])):
                np.testing.assert_array_equal(boxes[k] if form is None else boxes[0][k, :n], batch["boxes"][0][k, :n])


@pytest.mark.parametrize(
    ("ragged", "fill", "error", "message"),
    [
        ({"box": 3}, 0, ValueError, r"ragged\['box'\]: there is no such name in output_map, \['boxes', 'length'\]"),
        ({"boxes": 0}, 0, ValueError, "must be positive, got 0"),
        ({"boxes": ()}, 0, ValueError, r"must be positive, got \(\)"),
        ({"boxes": 2.5}, 0, TypeError, "must be a whole number, a tuple of them, or None, got 2.5"),
        (["boxes"], 0, TypeError, "ragged must be a dict"),
        ({"boxes": 3}, {"length": 1}, ValueError, r"ragged_fill\['length'\]: ragged has no limit"),
        ({"boxes": 3}, "0", TypeError, "ragged_fill must be a number"),
    ],
)
def test_arguments(files, ragged, fill, error, message):
    with pytest.raises(error, match=message):
        iterator(files, ragged=ragged, ragged_fill=fill)


def test_different_shapes_name_it(files):
    with pytest.raises(
        jaxdali.DifferentShapes, match=r"ragged={'boxes': N} pads.*ragged={'boxes': None} it returns a list"
    ):
        iterator(files)


def test_of_functions_and_branches():
    """Arrays of an eager function, a value of branches, and the same output twice."""

    def doubled(x):
        return jnp.asarray(2 * np.asarray(x))  # can't be traced

    @jaxdali.pipeline_def(batch_size=4, num_threads=1, device_id=None, enable_conditionals=True)
    def define():
        x = fn.external_source(lambda: [BOXES[i] for i in range(1, 5)], batch=True)
        flag = fn.external_source(lambda: np.array([1, 0, 1, 0], np.bool_), batch=True)
        y = x[:1] if flag else x + 1
        dense = jax_function(doubled, preserve=True)(fn.pad(x, axes=[0], shape=[12]))
        return x, y, dense, x

    forms = {"x": 12, "y": 12, "dense": 14, "again": None}
    batch = next(DALIGenericIterator(define(), ["x", "y", "dense", "again"], ragged=forms))
    for k in range(4):
        x = BOXES[k + 1]
        y = x[:1] if k % 2 == 0 else x + 1
        np.testing.assert_array_equal(batch["x"][0][k], padded(k + 1))
        assert batch["y"][1][k] == len(y)
        np.testing.assert_array_equal(batch["y"][0][k, : len(y)], y)
        np.testing.assert_array_equal(batch["dense"][0][k], 2 * padded(k + 1, 14))
        assert batch["dense"][1][k] == 12
        np.testing.assert_array_equal(batch["again"][k], x)
