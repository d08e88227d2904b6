"""Programs that set a mesh, with Explicit and with Auto axes, and forbid JAX to promote ranks."""

import images
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxdali.dynamic as jd
from jaxdali import fn, types
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator
from jaxdali.plugin.jax.fn import jax_function

DEVICES, N = 4, 8
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 12, 16, 3), np.uint8)
ROW = np.arange(4, dtype=np.float32)


@pytest.fixture(params=[AxisType.Explicit, AxisType.Auto], ids=["explicit", "auto"])
def mesh(request):
    """The mesh that is set."""
    set_mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(request.param,), devices=jax.devices()[:DEVICES])
    with jax.set_mesh(set_mesh), jax.numpy_rank_promotion("raise"):
        yield set_mesh


FUNCTIONS = {
    "native": lambda x: jd.crop_mirror_normalize(jd.resize(x, size=(8, 8)), mean=[1.0, 2.0, 3.0], std=[4.0]),
    "pointwise": lambda x: jd.batch(x) * 2 + 1,
    "per_sample": lambda x: jd.flip(x, horizontal=np.arange(N) % 2),
    "draws": lambda x: jd.random_resized_crop(x, size=(8, 8), key=jax.random.key(1)),
    "drawn": lambda x: jd.flip(x, horizontal=jd.random.coin_flip(key=jax.random.key(1), batch_size=N)),
    "keys": lambda x: jd.rotate(
        x, angle=jd.random.uniform(key=jax.random.split(jax.random.key(1), N), range=(-9.0, 9.0)), keep_size=True
    ),
    "jit": lambda x: jd.jit(lambda x: jd.cast(jd.flip(x), dtype=types.FLOAT) / 2)(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jitted_functions_keep_the_batch_axis(mesh, name):
    function = jax.jit(lambda x: FUNCTIONS[name](x).jax())
    x = jax.device_put(PIXELS, PartitionSpec("data"))
    result = function(x)
    assert result.sharding.spec[0] == "data"
    assert jax.typeof(result).sharding.spec[0] == ("data" if mesh.axis_types[0] is AxisType.Explicit else None)
    assert "all-gather" not in function.lower(x).compile().as_text()
    np.testing.assert_array_equal(np.asarray(result), FUNCTIONS[name](PIXELS).numpy())


def test_other_axes_of_explicit_arrays():
    """Resizing needs whole images, also on a mesh with two axes: if one axis cuts the images, or both cut the batch."""
    mesh = jax.make_mesh((2, 2), ("data", "model"), devices=jax.devices()[:4])
    expected = jd.resize(PIXELS, size=(8, 8)).numpy()
    with jax.set_mesh(mesh):
        for spec in (
            PartitionSpec("data", "model"),
            PartitionSpec(("data", "model")),
            PartitionSpec(None, "model"),
            PartitionSpec(),
        ):
            result = jax.jit(lambda x: jd.resize(x, size=(8, 8)).jax())(jax.device_put(PIXELS, spec))
            assert jax.typeof(result).sharding.spec == PartitionSpec(spec[0] if len(spec) else None, None, None, None)
            np.testing.assert_array_equal(np.asarray(result), expected)


AUTO_FIRST, EXPLICIT_FIRST = (AxisType.Auto, AxisType.Explicit), (AxisType.Explicit, AxisType.Auto)


@pytest.mark.parametrize(
    ("axis_types", "batch"),
    [
        *((types, axis) for types in (AUTO_FIRST, EXPLICIT_FIRST) for axis in ("data", "model")),
        (EXPLICIT_FIRST, ("data", "model")),
    ],
)
def test_explicit_beside_auto_axes(axis_types, batch):
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=axis_types, devices=jax.devices()[:4])
    with jax.set_mesh(mesh):
        x = jax.device_put(PIXELS, PartitionSpec(batch))
        for name in ("native", "pointwise", "draws"):
            function = jax.jit(lambda x, name=name: FUNCTIONS[name](x).jax())
            result = function(x)
            assert result.sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec(batch)), result.ndim)
            assert "all-gather" not in function.lower(x).compile().as_text()
            np.testing.assert_array_equal(np.asarray(result), FUNCTIONS[name](PIXELS).numpy())


def test_eager_functions(mesh):
    files = [images.encode(images.picture(12 + i, 16), "JPEG") for i in range(N)]
    decode = lambda files: jd.resize(jd.decoders.image(files), size=(8, 8))
    with jax.set_mesh(jax.sharding.Mesh(np.empty((), object), ())):
        want = decode(files).numpy()
    for batch in (decode(files), jd.jit(decode)(files)):
        np.testing.assert_array_equal(batch.numpy(), want)
        for value in (batch, batch.jax()):  # a program under the mesh takes it
            np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: jnp.asarray(x) + 1)(value)), want + 1)
    assert jd.resize(jax.device_put(PIXELS, PartitionSpec("data")), size=(8, 8)).jax().sharding.spec[0] == "data"


def definition(num_shards=1, shard_id=0):
    x = fn.external_source(lambda i: [PIXELS[i, 0, :4, 0].astype(np.float32)] * (N // num_shards))
    return x, fn.copy(x)


def batch_of(sharding, defined=definition, names=("x", "y")):
    return next(data_iterator(defined, output_map=list(names), size=N, sharding=sharding)(batch_size=N))


def test_bare_partition_specs(mesh):
    data = PartitionSpec("data")
    for sharding in (data, {"x": data, "y": PartitionSpec(("data",))}):
        for x in batch_of(sharding).values():
            reference = jax.device_put(np.asarray(x), data)
            assert x.sharding == reference.sharding
            assert jax.typeof(x) == jax.typeof(reference)
    assert DALIGenericIterator.loaded_shards(data) == list(range(DEVICES))
    assert jd.batch(PIXELS).to(data).jax().sharding == NamedSharding(mesh, data)
    flipped = jax.jit(lambda x: jd.flip(jd.batch(x).to(data)).jax())(PIXELS)
    np.testing.assert_array_equal(np.asarray(flipped), PIXELS[:, :, ::-1])


def test_meshes_of_bare_partition_specs():
    make = data_iterator(definition, output_map=["x", "y"], size=N, sharding=PartitionSpec("data"))
    refused = r"sharding=.*'data'.* names axes of a mesh, but no mesh is set: call jax.set_mesh\(mesh\) before, or pass .*NamedSharding"
    with pytest.raises(ValueError, match=refused):
        make(batch_size=N)
    with pytest.raises(ValueError, match=refused.replace("sharding=", "Batch.to: device=")):
        jd.batch(PIXELS).to(PartitionSpec("data"))
    with jax.set_mesh(jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])):
        assert len(next(make(batch_size=N))["x"].sharding.device_set) == 2


@pytest.mark.parametrize("jit", [None, True, False])
@pytest.mark.parametrize("sharded", [False, True])
def test_constants_of_jax_functions(mesh, jit, sharded):
    """Constants may be arrays that the function makes while it is called, or arrays on the mesh."""
    row = jnp.asarray(ROW)
    key = jax.random.key(0)

    def function(x):
        noise = jax.random.uniform(key, (1, 4)) + jnp.where(row > 1, row, 0)[None]
        return x + row[None] + jnp.asarray(ROW)[None] * jnp.arange(4.0)[None] + noise

    def defined(num_shards=1, shard_id=0):
        x, _ = definition(num_shards, shard_id)
        return x, jax_function(function, jit=jit)(x)

    batch = batch_of(NamedSharding(mesh, PartitionSpec("data")) if sharded else None, defined)
    want = (
        np.asarray(batch["x"])
        + ROW
        + ROW * ROW
        + np.where(ROW > 1, ROW, 0)
        + np.asarray(jax.random.uniform(key, (1, 4)))
    )
    np.testing.assert_allclose(np.asarray(batch["y"]), want, rtol=1e-6)


@pytest.mark.parametrize("over", [None, PartitionSpec("data")])
def test_jax_functions_see_the_mesh(mesh, over):
    def function(x):
        try:
            jnp.add(x, jnp.zeros(4))
        except ValueError:  # the rank is not promoted
            return x * jax.sharding.get_abstract_mesh().shape["data"]
        return x

    def defined(num_shards=1, shard_id=0):
        x, _ = definition(num_shards, shard_id)
        return x, jax_function(function, sharding=over)(x)

    batch = batch_of(PartitionSpec("data"), defined)
    np.testing.assert_array_equal(np.asarray(batch["y"]), np.asarray(batch["x"]) * DEVICES)


def test_jax_functions_with_bare_specs(mesh):
    spec = PartitionSpec("data")
    explicit = mesh.axis_types[0] is AxisType.Explicit

    def doubled(x):
        return (jax.sharding.reshard if explicit else jax.lax.with_sharding_constraint)(x, spec) * 2

    batch = batch_of(None, lambda: [(x := definition()[0]), jax_function(doubled)(x)])
    np.testing.assert_array_equal(np.asarray(batch["y"]), np.asarray(batch["x"]) * 2)


def test_sources_see_the_mesh(mesh):
    meshes = []

    def source(i):
        meshes.append(jax.sharding.get_mesh())
        return [np.asarray(jnp.ones(4))] * N

    batch_of(None, lambda: fn.external_source(source), ["x"])
    assert set(meshes) == {mesh}


def test_programs_of_other_settings():
    """Operators may broadcast although the user forbids JAX to promote ranks."""
    with jax.numpy_rank_promotion("raise"):
        x = jd.normalize(jd.cast(PIXELS, dtype=types.FLOAT), axes=[0, 1])
        strict = [
            jd.gaussian_blur(PIXELS, window_size=5),
            x * np.float32(2) + jd.reductions.mean(x, axes=[0, 1], keep_dims=True),
        ]
    x = jd.normalize(jd.cast(PIXELS, dtype=types.FLOAT), axes=[0, 1])
    free = [
        jd.gaussian_blur(PIXELS, window_size=5),
        x * np.float32(2) + jd.reductions.mean(x, axes=[0, 1], keep_dims=True),
    ]
    for a, b in zip(strict, free, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
