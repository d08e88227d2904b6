"""Shards of a batch: its slices, the devices that hold them, and the assembly of global arrays."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxdali import fn
from jaxdali._program.sharding import Shards, assemble
from jaxdali.plugin.jax import data_iterator

P = PartitionSpec
DEVICES = jax.devices()


def sharding(shape, names, spec):
    return NamedSharding(Mesh(np.array(DEVICES).reshape(shape), names), spec)


@pytest.mark.parametrize(
    ("where", "slices"),
    [
        (sharding((8,), ("batch",), P("batch")), [[i] for i in range(8)]),
        (sharding((1, 8), ("batch", "model"), P("batch")), [list(range(8))]),
        (sharding((4, 2), ("batch", "model"), P("batch")), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (sharding((4, 2), ("batch", "model"), P("model")), [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (sharding((4, 2), ("data", "fsdp"), P(("data", "fsdp"))), [[i] for i in range(8)]),
        (sharding((4, 2), ("data", "fsdp"), P(("fsdp", "data"))), [[0], [2], [4], [6], [1], [3], [5], [7]]),
        (sharding((8,), ("x",), P()), [list(range(8))]),
        (sharding((8,), ("x",), P(None, "x")), [list(range(8))]),
        (SingleDeviceSharding(DEVICES[3]), [[3]]),
    ],
)
def test_shards_are_the_distinct_batch_slices(where, slices):
    shards = Shards.of(where, 16)
    assert shards.num == len(slices)
    assert shards.ids == tuple(range(len(slices)))
    assert [[d.id for d in ds] for ds in shards.devices] == slices


def test_reversed_mesh_keeps_first_slice_in_place():
    reversed_sharding = NamedSharding(Mesh(np.array(DEVICES[::-1]), ("batch",)), P("batch"))
    assert [d[0].id for d in Shards.of(reversed_sharding, 8).devices] == list(range(8))[::-1]


def test_indivisible_batch_names_both_numbers():
    with pytest.raises(ValueError, match=r"batch_size=12 .* 8 shards"):
        Shards.of(sharding((8,), ("batch",), P("batch")), 12)


@pytest.mark.parametrize(
    "where",
    [
        sharding((8,), ("batch",), P("batch")),
        sharding((4, 2), ("batch", "model"), P("batch")),
        sharding((4, 2), ("batch", "model"), P("batch", "model")),
        sharding((4, 2), ("a", "b"), P(("b", "a"))),
        sharding((8,), ("x",), P()),
        sharding((8,), ("x",), P(None, "x")),
    ],
)
def test_assemble_equals_device_put(where):
    x = np.arange(16 * 8 * 3).reshape(16, 8, 3).astype(np.int32)
    shards = Shards.of(where, 16)
    actual = assemble(np.split(x, shards.num), shards, where)
    expected = jax.device_put(x, where)
    assert actual.sharding == where
    for g, w in zip(actual.addressable_shards, expected.addressable_shards, strict=True):
        assert g.device == w.device
        np.testing.assert_array_equal(g.data, w.data)


IMAGES = [np.random.default_rng(i).integers(0, 255, (8 + i % 5, 9 + i % 3, 3), np.uint8) for i in range(32)]


def definition(num_shards=1, shard_id=0):
    per_shard = len(IMAGES) // num_shards
    images = fn.external_source(
        source=lambda i: IMAGES[shard_id * per_shard + i.idx_in_epoch % per_shard], batch=False, layout="HWC"
    )
    numbers = fn.external_source(
        source=lambda i: np.int64(shard_id * per_shard + i.idx_in_epoch % per_shard), batch=False
    )
    return fn.resize(images, size=(8, 8)), numbers.gpu(), numbers


@pytest.mark.parametrize(
    "where",
    [
        sharding((8,), ("batch",), P("batch")),
        jax.sharding.NamedSharding(jax.make_mesh((8,), ("batch",)), P("batch")),
        NamedSharding(Mesh(np.array(DEVICES[::-1]), ("batch",)), P("batch")),
        NamedSharding(Mesh(np.array(DEVICES[:4]), ("batch",)), P("batch")),
        sharding((4, 2), ("batch", "model"), P("batch")),
        sharding((4, 2), ("a", "b"), P(("b", "a"))),
        sharding((8,), ("x",), P()),
    ],
    ids=["mesh", "make_mesh", "reversed", "4 of 8", "replicas", "permuted", "replicated"],
)
def test_outputs_have_the_requested_sharding(where):
    shards = Shards.of(where, 16)
    make = data_iterator(definition, ["images", "numbers", "host"], size=32, sharding=where)
    with make(batch_size=16) as it:
        batch = next(it)
    for x in batch.values():
        assert x.sharding == where
    per_shard, B = 32 // shards.num, 16 // shards.num
    want = np.concatenate([np.arange(s * per_shard, s * per_shard + B) for s in range(shards.num)])
    np.testing.assert_array_equal(batch["numbers"], want)
    np.testing.assert_array_equal(batch["host"], want)
    assert batch["images"].shape == (16, 8, 8, 3)


def test_inner_axes_are_cut_on_the_device(monkeypatch):
    """Arrays on devices are passed on without a copy through the host."""
    model_sharding = sharding((4, 2), ("batch", "model"), P("batch", None, "model"))
    shards = Shards.of(model_sharding, 8)
    whole = np.arange(8 * 3 * 4).reshape(8, 3, 4)
    parts = [jax.device_put(whole[2 * s : 2 * s + 2], d) for s, d in enumerate(shards.primaries)]
    kinds = []
    monkeypatch.setattr(
        jax, "device_put", lambda x, device, put=jax.device_put: kinds.append(type(x)) or put(x, device)
    )
    result = assemble(parts, shards, model_sharding)
    assert len(kinds) == 8
    assert np.ndarray not in kinds
    assert result.sharding == model_sharding
    np.testing.assert_array_equal(result, whole)


def test_devices_give_a_leading_axis():
    devices = DEVICES[2:4]
    with data_iterator(definition, ["images", "numbers", "host"], size=32, devices=devices)(batch_size=8) as it:
        batch = next(it)
    assert batch["images"].shape == (2, 4, 8, 8, 3)
    assert [s.device for s in batch["images"].addressable_shards] == devices
    np.testing.assert_array_equal(batch["host"], [[0, 1, 2, 3], [16, 17, 18, 19]])


MESH = Mesh(np.array(DEVICES).reshape(4, 2), ("data", "model"))


def test_a_sharding_for_each_output():
    shardings = {
        "images": NamedSharding(MESH, P("data", "model")),
        "numbers": NamedSharding(MESH, P("data")),
        "host": NamedSharding(Mesh(np.array(DEVICES[:4][::-1]), ("x",)), P("x")),
    }
    with data_iterator(definition, list(shardings), size=32, sharding=shardings)(batch_size=16) as it:
        batch = next(it)
    for name, x in batch.items():
        assert x.sharding == shardings[name]
    expected = np.concatenate([np.arange(8 * s, 8 * s + 4) for s in range(4)])
    np.testing.assert_array_equal(batch["numbers"], expected)
    np.testing.assert_array_equal(batch["host"], expected)
    assert {s.data.shape for s in batch["images"].addressable_shards} == {(4, 4, 8, 3)}


def test_one_output_on_two_shardings():
    def twice(num_shards=1, shard_id=0):
        x = definition(num_shards, shard_id)[1]
        return x, x

    shardings = {"a": NamedSharding(MESH, P("data")), "b": NamedSharding(Mesh(np.array(DEVICES[4:]), ("x",)), P("x"))}
    with data_iterator(twice, ["a", "b"], size=32, sharding=shardings)(batch_size=16) as it:
        batch = next(it)
    assert batch["a"].sharding == shardings["a"]
    assert batch["b"].sharding == shardings["b"]
    np.testing.assert_array_equal(batch["a"], batch["b"])


def test_shardings_of_outputs_must_agree():
    shardings = {
        "images": NamedSharding(MESH, P("data")),
        "numbers": NamedSharding(MESH, P()),
        "host": NamedSharding(MESH, P("data")),
    }
    with pytest.raises(ValueError, match=r"same slices: 'images' into 4, .* but 'numbers' into 1"):
        data_iterator(definition, list(shardings), size=32, sharding=shardings)(batch_size=16)
    del shardings["numbers"]
    with pytest.raises(ValueError, match="names in output_map"):
        data_iterator(definition, ["images", "numbers", "host"], size=32, sharding=shardings)(batch_size=16)


@pytest.mark.parametrize(
    ("where", "num"),
    [
        (sharding((1, 8), ("batch", "model"), P("batch")), 1),
        (sharding((4, 2), ("batch", "model"), P("batch")), 4),
        (sharding((8,), ("x",), P()), 1),
        (sharding((8,), ("x",), P(None, "x")), 1),
    ],
    ids=["1x8", "4x2", "replicated", "other axis"],
)
def test_replicas_are_computed_once(where, num):
    """The program has a row for each slice, not for each device."""
    with data_iterator(
        lambda num_shards, shard_id: definition(num_shards, shard_id)[0], ["images"], size=32, sharding=where
    )(batch_size=16) as it:
        images = next(it)["images"]
        operands = jax.tree.leaves(it.lower().args_info)
    assert {x.shape[0] for x in operands} == {num}
    assert images.sharding == where
    data_of_slice = {}
    for s in images.addressable_shards:
        np.testing.assert_array_equal(data_of_slice.setdefault(str(s.index), s.data), s.data)


def test_random_numbers_do_not_depend_on_sharding():
    def draw(num_shards=1, shard_id=0):
        x = fn.external_source(source=lambda i: np.int32(i.idx_in_batch + shard_id * (8 // num_shards)), batch=False)
        return x, fn.random.uniform(range=(0.0, 1.0)).gpu()

    draws = []
    for n in (1, 2, 8):
        with data_iterator(
            draw, ["x", "r"], size=24, sharding=NamedSharding(Mesh(np.array(DEVICES[:n]), ("b",)), P("b"))
        )(batch_size=8, seed=4) as it:
            draws.append([dict(zip(b["x"].tolist(), b["r"].tolist())) for b in it])
    assert draws[0] == draws[1] == draws[2]
    assert len({r for batch in draws[0] for r in batch.values()}) == 24


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (NamedSharding(MESH, P("data", "model")), r"batch of \[1\], does not fit"),
        (NamedSharding(MESH, P("data", None, None)), "names 3 axes"),
        (sharding((8,), ("data",), P("data", None, None)), "names 3 axes"),
    ],
    ids=["indivisible", "rank", "rank, written by the program"],
)
def test_sharding_must_fit_the_output(where, text):
    def column(num_shards=1, shard_id=0):
        return fn.external_source(source=lambda: np.zeros((16 // num_shards, 1), np.int32)).gpu()

    with pytest.raises((ValueError, RuntimeError), match=text):
        data_iterator(column, ["x"], size=32, sharding=where)(batch_size=16)


def test_message_says_how_outputs_get_own_shardings():
    with pytest.raises(
        RuntimeError,
        match=r"batch of numbers, does not fit .*own: sharding=\{'images': ..., 'numbers': ..., 'host': ...\}",
    ):
        next(
            data_iterator(
                definition,
                ["images", "numbers", "host"],
                size=32,
                sharding=NamedSharding(MESH, P("data", None, "model")),
            )(batch_size=16)
        )
