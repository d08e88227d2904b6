"""`jit`, and functions of values within programs that JAX traces."""

import collections
import contextlib
import importlib.util
import os
import pickle
import re
import runpy
import subprocess
import sys

import counts
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import places
import pytest
import shardings
from jax.experimental import serialize_executable
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from photos_of_values import FILES, images, photo

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import SampleError, fn, types
from jaxdali._core import ffi as _ffi
from jaxdali._program import program
from jaxdali.auto_aug import rand_augment
from jaxdali.dynamic import _lowered

KEY = jax.random.key(7)


def augment(jpegs, key, size=(24, 24)):
    images = jd.resize(jd.decoders.image_random_crop(jpegs, key=key), size=size)
    mirror = jd.random.coin_flip(key=jd.random.fold_in(key, 1), batch_size=len(images))
    return {
        "image": jd.crop_mirror_normalize(images, mirror=mirror, mean=[1.0, 2, 3], std=[4.0, 5, 6]),
        "mirror": mirror,
    }


# --- jit --------------------------------------------------------------------------------------------------------------


def test_jit_changes_no_number():
    compiled, plain = jd.jit(augment)(FILES, KEY), augment(FILES, KEY)
    assert compiled.keys() == plain.keys()
    for name in plain:
        np.testing.assert_array_equal(compiled[name].numpy(), plain[name].numpy())
    crop = lambda jpegs, key: jd.resize(jd.decoders.image_random_crop(jpegs, key=key), size=(24, 24))
    np.testing.assert_array_equal(jd.jit(crop)(FILES[0], KEY), jd.jit(crop)(FILES[:1], KEY)[0])


def test_python_values_are_static():
    traced = []

    @jd.jit
    def resized(x, size, angle):
        traced.append(size)
        return jd.resize(jd.rotate(x, angle=angle, keep_size=True), size=size)

    for size, angle in (((8, 8), 0.0), ((8, 8), 10.0), ((9, 8), 10.0)):
        result = resized(images(), size, np.full(4, angle))
        expected = jd.resize(jd.rotate(images(), angle=angle, keep_size=True), size=size)
        np.testing.assert_array_equal(result.numpy(), expected.numpy())
    assert len(set(traced)) == 2
    assert len(traced) <= 4


def test_jit_with_conditionals():
    @jd.jit(enable_conditionals=True)
    def flipped(x, condition):
        if condition > 0.5:
            x = jd.flip(x)
        else:
            x = jd.flip(x, horizontal=0, vertical=1)
        return x

    flipped_images = flipped([s[: 9 + i] for i, s in enumerate(images())], np.array([0.0, 1, 1, 0]))
    for i, (a, b) in enumerate(zip(flipped_images, images())):
        np.testing.assert_array_equal(a, b[: 9 + i, ::-1] if i in (1, 2) else b[: 9 + i][::-1])
    with pytest.raises(TypeError, match="enable_conditionals=True"):
        jd.jit(lambda x, w: jd.flip(x) if w > 0.5 else x)(images(), np.zeros(4))


def test_few_programs_for_images_of_any_size():
    rng = np.random.default_rng(0)
    files = [photo(int(h), int(w)) for h, w in np.clip(rng.normal((96, 128), (24, 32), (64, 2)), 16, 250)]
    run = jd.jit(lambda x: jd.resize(jd.decoders.image(x), size=(16, 16)))
    num_programs = len(program._programs)
    for _ in range(100):
        run([files[i] for i in rng.integers(0, len(files), 8)])
    assert len(program._programs) - num_programs <= 6


def test_jit_takes_only_its_own_keys():
    with pytest.raises(ValueError, match="key must be one of the keys that the function was called with"):
        jd.jit(lambda x: jd.random_resized_crop(x, size=8, key=KEY))(images())
    halves = jd.jit(lambda x, key: [jd.random_resized_crop(x, size=8, key=k) for k in jd.random.split(key)])(
        images(), KEY
    )
    for half, key in zip(halves, jax.random.split(KEY)):
        np.testing.assert_array_equal(half.numpy(), jd.random_resized_crop(images(), size=8, key=key).numpy())


def test_operators_of_pipelines_draw_from_the_key():
    """In a function of `jit` two draws differ, the same key draws the same, and other draws of its key don't change."""
    run = jd.jit(lambda key: (fn.random.uniform(), fn.random.uniform(), jd.random.uniform(key=key, batch_size=4)))
    draws = [[x.numpy() for x in run(key)] for key in (KEY, KEY, jax.random.key(8))]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.unique([draws[0], draws[2]]).size == 24
    np.testing.assert_array_equal(draws[0][2], jd.random.uniform(key=KEY, batch_size=4).numpy())
    # A sample with its own key does not depend on its batch.
    add = jd.jit(lambda x, key: fn.noise.gaussian(x, stddev=9.0))
    keys = jax.random.split(KEY, 4)
    np.testing.assert_array_equal(add(images(), keys).numpy()[:2], add(images()[:2], keys[:2]).numpy())
    for arguments, reason in (((images(),), "needs a key"), ((images(), KEY, KEY), "has 2 keys")):
        with pytest.raises(
            ValueError, match=rf"random\.uniform: .* {reason}.* such as jax\.random\.key.*test_programs"
        ):
            jd.jit(lambda *_: fn.random.uniform())(*arguments)


def test_draws_of_nested_functions():
    """A function of `jit` within another one draws from the key that it is called with, as by itself."""
    add = jd.jit(lambda x, key: fn.noise.gaussian(x, stddev=9.0))
    nested = jd.jit(lambda x, key: [fn.random.uniform(), *(add(x, k) for k in (key, *jd.random.split(key)))])
    for result, key in zip(nested(images(), KEY)[1:], (KEY, *jax.random.split(KEY)), strict=True):
        np.testing.assert_array_equal(result.numpy(), add(images(), key).numpy())


def test_draws_of_equal_seeds():
    """They are equal, as in pipelines: the crop of an image and that of its mask. They change with the key."""
    crop = jd.jit(lambda x, key: [fn.random_resized_crop(x, size=(8, 8), seed=s) for s in (3, 3, 4)])
    first, second, third = (x.numpy() for x in crop(images(), KEY))
    np.testing.assert_array_equal(first, second)
    assert (first != third).any()
    assert (first != crop(images(), jax.random.key(8))[0].numpy()).any()
    seeded = jd.jit(lambda x: fn.random.uniform(seed=7))
    np.testing.assert_array_equal(seeded(images()).numpy(), seeded(images()).numpy())


def test_draws_of_several_keys():
    keys = jax.random.split(KEY, 4)
    numbers = jd.jit(lambda key: fn.random.uniform())(keys).numpy()
    assert numbers.shape == (4,)
    np.testing.assert_array_equal(jd.jit(lambda key: fn.random.uniform())(keys[1:]).numpy(), numbers[1:])


def test_augmentations_draw_from_the_key():
    run = jd.jit(lambda x, key: rand_augment.rand_augment(x, n=1, m=9), enable_conditionals=True)
    batches = [run(images(), key).numpy() for key in (KEY, KEY, jax.random.key(8))]
    np.testing.assert_array_equal(batches[0], batches[1])
    assert (batches[0] != batches[2]).any()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (
            lambda x, key: jax.random.split(key),
            r"jd\.random\.split and jd\.random\.fold_in make further keys of it \(at ",
        ),
        (
            lambda x, key: jax.random.uniform(key),
            r"jd\.random\.split and jd\.random\.fold_in make further keys of it \(at ",
        ),
        (lambda x, key: jnp.mean(x), r"take arrays, but a batch has no values .* or do it with the result \(at "),
    ],
)
def test_functions_of_jax_name_a_remedy(function, says):
    with pytest.raises(TypeError, match=f"{says}.*test_programs"):
        jd.jit(function)(images(), KEY)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, jd.batch])
def test_arguments_from_outside_of_a_program(convert):
    angle = convert(np.arange(4, dtype=np.float32))
    with pytest.raises(
        ValueError, match="rotate: argument angle has values that the compiled function is not called with: pass them"
    ):
        jd.jit(lambda x: jd.rotate(x, angle=angle))(images())


def test_values_from_outside_of_a_program():
    with pytest.raises(ValueError, match="cat: an input has values that the compiled function is not called with"):
        jd.jit(lambda x: jd.cat(x, jd.batch(images())))(images())
    # An array that is the same for all samples is static.
    normalized = jd.jit(lambda x: jd.crop_mirror_normalize(x, mean=np.array([1.0, 2, 3]), std=[4.0, 5, 6]))(images())
    np.testing.assert_array_equal(
        normalized.numpy(), jd.crop_mirror_normalize(images(), mean=[1.0, 2, 3], std=[4.0, 5, 6]).numpy()
    )


def test_batch_size_within_a_program():
    """`batch_size` works as in a single call, and is refused if the values have another number of samples."""
    draw = jd.jit(lambda key: [jd.random.uniform(batch_size=6, key=key), jd.zeros(shape=[2], batch_size=6)])
    for key in (KEY, jax.random.key(8)):
        drawn, zeros = draw(key)
        np.testing.assert_array_equal(drawn.numpy(), jd.random.uniform(batch_size=6, key=key).numpy())
        assert zeros.shapes == [(2,)] * 6
    assert len(jd.jit(lambda key: jd.random.uniform(batch_size=1, key=key))(KEY)) == 1
    assert jd.jit(lambda key: jd.random.uniform(key=key))(KEY).shape == ()
    with pytest.raises(ValueError, match=r"uniform: batch_size=3 does not fit a program of 4 samples"):
        jd.jit(lambda x, key: x + jd.random.uniform(batch_size=3, key=key))(images(), KEY)
    with pytest.raises(ValueError, match=r"uniform: batch_size=3 does not fit a program of 2 samples"):
        jd.jit(lambda key: [jd.random.uniform(batch_size=n, key=key) for n in (2, 3)])(KEY)


def test_compilations_over_a_thousand_batches(monkeypatch):
    """The photos have the distribution of sizes of the benchmark's, scaled by 1/4."""
    rng = np.random.default_rng(0)
    shapes, frequencies = zip(*runpy.run_path(str(places.ROOT / "tests" / "benchmarks" / "photos.py"))["SHAPES"])
    files = []
    for i in range(200):
        width, height = shapes[rng.choice(len(shapes), p=frequencies)]
        if rng.random() < 0.5:
            width, height = (max(160, round(x * float(np.exp(rng.normal(0, 0.15))))) for x in (width, height))
        files.append(photo(height // 4, width // 4, i))

    @jd.jit
    def run(jpegs, key):
        x = jd.random_resized_crop(jd.decoders.image(jpegs), size=(16, 16), key=key)
        return jd.crop_mirror_normalize(x, mirror=jd.random.coin_flip(key=key, batch_size=len(x)))

    # An empty cache, as programs of other tests might be dropped from it meanwhile.
    monkeypatch.setattr(program, "_programs", collections.OrderedDict())
    for i in range(1000):
        run([files[k] for k in rng.integers(0, len(files), 8)], jax.random.fold_in(KEY, i))
    assert 1 <= len(program._programs) <= 12


# --- within jax.jit ---------------------------------------------------------------------------------------------------

FUNCTIONS = {
    "static": lambda x: jd.crop_mirror_normalize(jd.resize(x, size=(10, 12)), mean=[1.0, 2, 3], std=[4.0, 5, 6]),
    "per_sample": lambda x: jd.rotate(x, angle=jnp.arange(8.0) * 10, keep_size=True),
    "random": lambda x: jd.random_resized_crop(x, size=(8, 8), key=KEY),
    "pointwise": lambda x: jd.cast(jd.brightness(x, brightness=1.5), dtype=types.FLOAT),
    "jit": lambda x: jd.jit(lambda x: jd.flip(jd.resize(x, size=(6, 6))))(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_jax_jit(name):
    function, x = FUNCTIONS[name], images((8, 20, 30, 3))
    result = jax.jit(function)(x)
    assert (type(result), result.layout) == (jd.Batch, function(x).layout)
    np.testing.assert_array_equal(np.asarray(result), function(x).numpy())


@pytest.mark.parametrize("name", ["static", "per_sample", "random"])
def test_each_device_computes_its_part(name):
    function, x = FUNCTIONS[name], images((8, 20, 30, 3))
    sharding = shardings.of_batch(4)
    compiled = jax.jit(function).lower(jax.device_put(x, sharding)).compile()
    assert "all-gather" not in compiled.as_text()
    result = compiled(jax.device_put(x, sharding))
    assert result.jax().sharding.is_equivalent_to(sharding, 4)
    np.testing.assert_array_equal(np.asarray(result), function(x).numpy())


CONSTANTS = {
    "key": lambda: jd.random.uniform(key=KEY, batch_size=4).jax(),
    "image": lambda: jd.resize(images(), size=(6, 6)).jax(),
    "files": lambda: jd.jit(lambda x: jd.resize(jd.decoders.image(x), size=(6, 6)))(FILES).jax(),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_programs(name):
    """A call without a traced value runs while JAX traces, as `jax.random.uniform` does with a key from outside."""
    function = CONSTANTS[name]
    expected = np.asarray(function())
    np.testing.assert_array_equal(jax.jit(lambda y: function() + y)(jnp.zeros((), expected.dtype)), expected)
    np.testing.assert_array_equal(jax.lax.scan(lambda c, _: (c, function()), 0, length=2)[1][1], expected)
    assert jax.eval_shape(function).shape == expected.shape
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
    with jax.set_mesh(mesh):
        np.testing.assert_array_equal(jax.jit(function)(), expected)


def test_generators_are_made_while_jax_traces():
    rng, equal_rng = jd.random.RNG(3), jd.random.RNG(3)
    draw = lambda rng: jd.random.uniform(rng=rng, batch_size=3).jax()
    np.testing.assert_array_equal(jax.jit(lambda: draw(rng))(), draw(equal_rng))
    np.testing.assert_array_equal(draw(rng), draw(equal_rng))


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sharded_batches_outside_of_jax_jit(name, axis_type):
    """Results have the sharding that they have in `jax.jit`, also under the mesh."""
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(axis_type,), devices=jax.devices()[:4])
    x = jax.device_put(images((8, 20, 30, 3)), NamedSharding(mesh, PartitionSpec("batch")))
    expected = jax.jit(lambda x: FUNCTIONS[name](x).jax())(x)
    for set_mesh in (contextlib.nullcontext, jax.set_mesh):  # `jax.set_mesh` sets the mesh when it is called
        with set_mesh(mesh):
            result = FUNCTIONS[name](x).jax()
        assert result.sharding.is_equivalent_to(expected.sharding, result.ndim)
        np.testing.assert_array_equal(result, expected)


UNCOMMITTED = {
    "static": lambda x: jd.resize(x, size=(8, 8)),
    "random": lambda x: jd.random_resized_crop(x, size=(8, 8), key=KEY),
    "chained": lambda x: jd.flip(jd.rotate(x, angle=np.arange(4.0), keep_size=True)),
    "jit": lambda x: jd.jit(lambda x, key: jd.random_resized_crop(x, size=(8, 8), key=key))(x, KEY),
    "wide": lambda x: jd.cast(jd.random_resized_crop(x, size=(8, 8), key=KEY), dtype=types.INT64),
}


@pytest.mark.parametrize("name", UNCOMMITTED)
def test_results_are_as_free_as_inputs(name):
    """JAX may move a result to any device, as it may an array of NumPy, if no input was committed."""
    weight = jax.device_put(jnp.ones((), int), NamedSharding(shardings.of_batch(4).mesh, PartitionSpec()))
    batch = UNCOMMITTED[name](images())
    result = batch.jax()
    for x in (result, batch):
        product = jax.jit(lambda w, x: w * jnp.asarray(x).astype(int))(weight, x)
        np.testing.assert_array_equal(product, batch.numpy())
        assert product.sharding.device_set == weight.sharding.device_set
    with jax.default_device(jax.devices()[2]):
        assert (result + result).devices() == (jnp.asarray(images()) + 1).devices()
    if name != "wide":
        assert np.shares_memory(np.asarray(result), batch.numpy())
    assert UNCOMMITTED[name](jax.device_put(images(), jax.devices()[0])).jax().committed


def test_sharded_batches_without_a_program():
    x = jax.device_put(images((8, 20, 30, 3)), shardings.of_batch(4))
    with pytest.raises(ValueError, match=r"rotate: .*can be a part of jax\.jit.* depends on values: .*device_get"):
        jd.rotate(x, angle=np.arange(8.0))
    assert len(jd.rotate(jax.device_get(x), angle=np.arange(8.0))) == 8
    with pytest.raises(
        ValueError, match=r"cat: .*can be a part of jax\.jit.* one of its batches is ragged.*device_get"
    ):
        jd.cat([images()[0], images()[0, 1:]] * 4, x)
    matrix = jd.transforms.rotation(angle=30.0)
    assert jd.warp_affine(x, matrix).jax().sharding == x.sharding
    line = test_sharded_batches_without_a_program.__code__.co_firstlineno + 13
    with pytest.raises(SampleError, match=rf"test_programs.py:{line}\): sample 3: argument matrix must be finite"):
        jd.warp_affine(x, matrix=np.where(np.arange(8)[:, None] == 3, np.nan, np.eye(2, 3).ravel()))


EXPLICIT = {
    **FUNCTIONS,
    "draws": lambda x: jd.noise.shot(x, factor=10.0, key=KEY),
    "looks_up": lambda x: jd.lookup_table(x, keys=[1, 2], values=[3, 4]),
    "permutes": lambda x: jd.permute_batch(x, indices=list(range(7, -1, -1))),
}


@pytest.mark.parametrize("name", EXPLICIT)
def test_explicit_shardings(name):
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:4])
    function, x = EXPLICIT[name], images((8, 20, 30, 3))
    result = jax.jit(function)(jax.device_put(x, NamedSharding(mesh, PartitionSpec("batch"))))
    np.testing.assert_array_equal(np.asarray(result), function(x).numpy())


@pytest.mark.parametrize("other_axis", [AxisType.Auto, AxisType.Explicit])
def test_explicit_shardings_of_keys(other_axis):
    """Keys alone say where the samples are."""
    mesh = jax.make_mesh(
        (2, 2), ("batch", "model"), axis_types=(AxisType.Explicit, other_axis), devices=jax.devices()[:4]
    )
    draw = lambda keys: jd.random.uniform(range=(0.0, 1.0), key=keys).jax()
    keys = jax.random.split(KEY, 8)
    expected = draw(keys)
    sharded_keys = jax.device_put(keys, NamedSharding(mesh, PartitionSpec("batch")))
    with jax.set_mesh(mesh):
        for result in (jax.jit(draw)(sharded_keys), draw(sharded_keys)):
            assert jax.typeof(result).sharding.spec == PartitionSpec("batch")
            np.testing.assert_array_equal(result, expected)
        x = jax.device_put(images((8, 20, 30, 3)), NamedSharding(mesh, PartitionSpec("batch")))
        flipped = jax.jit(lambda x, keys: jd.flip(x, horizontal=jd.random.coin_flip(key=keys)).jax())(x, sharded_keys)
    np.testing.assert_array_equal(flipped, jd.flip(np.asarray(x), horizontal=jd.random.coin_flip(key=keys)).numpy())


def test_explicit_shardings_of_arguments():
    """The host reads those of a function that mixes samples."""
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:4])
    x, order = images((8, 20, 30, 3)), np.arange(8, dtype=np.int32)[::-1]
    with jax.set_mesh(mesh):
        pasted = jax.jit(lambda x, i: jd.multi_paste(x, in_ids=i, output_size=(20, 30)).jax())(
            *jax.device_put((x, order[:, None]), NamedSharding(mesh, PartitionSpec("batch")))
        )
    np.testing.assert_array_equal(pasted, x[order])


def test_platform_of_lowering():
    """The program is made for the platform of the lowering, not for that of this process.

    A GPU lacks some kernels, and only a program on the CPU raises errors.
    """

    def flipped(x):
        return jd.jit(lambda x: jd.flip(jd.resize(jd.rotate(x, angle=30.0, keep_size=True), size=(6, 6))))(x)

    def targets(*platforms):
        lowered = (
            jax.jit(flipped).trace(jax.ShapeDtypeStruct((8, 20, 30, 3), np.uint8)).lower(lowering_platforms=platforms)
        )
        return set(re.findall(r"custom_call @jaxdali_(\w+)", lowered.as_text()))

    assert targets("cpu") == {"chain", "check"}
    assert targets("cuda") == {"warp", "chain"}
    assert targets("cpu", "cuda") == {"warp", "chain", "check"}
    line = flipped.__code__.co_firstlineno + 1
    with pytest.raises(
        jaxdali.ArgumentError, match=rf"jit of <lambda> \(called at .*test_programs.py:{line}\): .* no kernel for tpu"
    ):
        targets("tpu")
    plain = jax.jit(lambda x: jd.cast(x, dtype=types.INT32).jax().sum())
    assert "stablehlo" in plain.trace(jnp.ones((2, 3, 3, 3))).lower(lowering_platforms=("tpu",)).as_text()
    allowed = [jax.export.DisabledSafetyCheck.custom_call(f"jaxdali_{kernel}") for kernel in ("warp", "chain", "check")]
    x = images((8, 20, 30, 3))
    exported = jax.export.export(
        jax.jit(lambda x: flipped(x).jax()), platforms=("cpu", "cuda"), disabled_checks=allowed
    )(x)
    np.testing.assert_array_equal(exported.call(x), flipped(x).numpy())


STORED = """
import os, pickle, sys
import jax.export
import numpy as np
from jax.experimental import serialize_executable
import jaxdali.dynamic as jd
x, compiled, exported = pickle.loads(sys.stdin.buffer.read())
if sys.argv[1] == "set":
    jd.set_num_threads(1)
functions = [serialize_executable.deserialize_and_load(*compiled)]
if exported is not None:
    functions.append(jax.export.deserialize(exported).call)
print([np.asarray(f(x)).tolist() for f in functions], flush=True)
if sys.argv[1] == "fork":
    pid = os.fork()
    if pid == 0:
        try:
            jd.set_num_threads(1)
            jd.flip(x)
        except RuntimeError as e:
            print(e, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("mode", ["plain", "set", "fork"])
def test_stored_programs_in_another_process(mode):
    """They run before any function is called there."""
    function = jax.jit(lambda x: jd.flip(jd.resize(jd.rotate(x, angle=30.0, keep_size=True), size=(6, 6))).jax())
    x, exported = images((4, 20, 30, 3)), None
    if importlib.util.find_spec("flatbuffers"):
        kernels = "warp", "resize", "window", "check"
        allowed = [jax.export.DisabledSafetyCheck.custom_call(f"jaxdali_{kernel}") for kernel in kernels]
        exported = bytes(jax.export.export(function, disabled_checks=allowed)(x).serialize())
    compiled = serialize_executable.serialize(function.lower(x).compile())
    process = subprocess.run(
        [sys.executable, "-c", STORED, mode],
        input=pickle.dumps((x, compiled, exported)),
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    results, *other_lines = process.stdout.decode().splitlines() or [process.stderr.decode()]
    assert results == str([np.asarray(function(x)).tolist()] * (1 if exported is None else 2)), results[-1000:]
    assert ("had run JAX" in "".join(other_lines)) == (mode == "fork")


def test_message_for_symbolic_shapes():
    batch, height = jax.export.symbolic_shape("batch, height")
    for shape in ((batch, 20, 30, 3), (4, height, 30, 3)):
        for function in (jd.resize, jd.jit(jd.resize)):
            with pytest.raises(TypeError, match=r"an array \[\w+, \w+, 30, 3\] has symbolic .* one program for each"):
                jax.export.export(jax.jit(lambda x, function=function: function(x, size=(6, 6)).jax()))(
                    jax.ShapeDtypeStruct(shape, np.uint8)
                )


@pytest.mark.parametrize("jitted", [True, False])
def test_evaluation_part_by_part(jitted):
    """Without `jax.jit`, JAX calls each function in turn. Nothing is compiled the second time."""
    scaled = jax.checkpoint(lambda scale, x: (jd.resize(x, size=(6, 6)).jax().astype(jnp.float32) * scale).sum())
    x = images((8, 20, 30, 3))
    expected = float(jd.resize(x, size=(6, 6)).numpy().sum(dtype=np.float64))
    with contextlib.nullcontext() if jitted else jax.disable_jit():
        for _ in range(2):
            with counts.compilations() as compiled:
                assert float(scaled(1.0, x)) == pytest.approx(expected, rel=1e-6)
                assert float(jax.grad(scaled)(1.0, x)) == pytest.approx(expected, rel=1e-6)
    assert not compiled


def test_axis_of_vmap():
    for function in (lambda x: jd.resize(x, size=(6, 6)).jax(), jax.jit(lambda x: jd.resize(x, size=(6, 6)).jax())):
        with pytest.raises(
            jaxdali.ArgumentError, match=r"resize: functions work on batches, so jax\.vmap can't add an axis"
        ):
            jax.vmap(function)(images((2, 4, 20, 30, 3)))


def test_loading_of_kernels_into_all_gpus(monkeypatch):
    """Kernels are loaded before the program runs, see `load_kernels`."""
    loaded, resized = [], jax.jit(lambda x: jd.resize(x, size=(6, 6)))
    monkeypatch.setattr(_lowered, "local_devices", lambda platform: [f"{platform}:{i}" for i in range(8)])
    monkeypatch.setattr(_ffi, "load_kernels", lambda devices: loaded.extend(d for d in devices if isinstance(d, str)))
    resized.trace(images((8, 20, 30, 3))).lower(lowering_platforms=("cuda",))
    assert loaded == [f"cuda:{i}" for i in range(8)]


def test_within_shard_map():
    sharding = shardings.of_batch(4)
    spec = PartitionSpec("batch")
    mapped = jax.jit(jax.shard_map(FUNCTIONS["static"], mesh=sharding.mesh, in_specs=spec, out_specs=spec))
    x = images((8, 20, 30, 3))
    np.testing.assert_array_equal(np.asarray(mapped(jax.device_put(x, sharding))), FUNCTIONS["static"](x).numpy())


def test_traced_arguments_and_keys():
    @jax.jit
    def step(x, angle, key):
        x = jd.rotate(x, angle=angle, keep_size=True)
        return jnp.mean(
            jd.random_resized_crop(x, size=(8, 8), key=jax.random.fold_in(key, 3)).jax().astype(jnp.float32)
        )

    angle = np.arange(4) * 20.0
    expected = jd.random_resized_crop(
        jd.rotate(images(), angle=angle, keep_size=True), size=(8, 8), key=jax.random.fold_in(KEY, 3)
    )
    assert float(step(images(), angle, KEY)) == pytest.approx(expected.numpy().astype(np.float32).mean(), rel=1e-6)
    drawn = jax.jit(lambda key: jd.random.uniform(batch_size=5, key=key))(KEY)
    np.testing.assert_array_equal(np.asarray(drawn), jd.random.uniform(batch_size=5, key=KEY).numpy())


MATRICES = {
    "position": lambda x, angle, offset: jd.warp_affine(
        x, jnp.tile(jnp.eye(2, 3), (len(x), 1, 1)) + angle[:, None, None]
    ),
    "chain": lambda x, angle, offset: jd.warp_affine(
        x, jd.transforms.translation(jd.transforms.rotation(angle=angle), offset=offset)
    ),
    "combination": lambda x, angle, offset: jd.warp_affine(
        x, matrix=jd.transforms.combine(jd.transforms.rotation(angle=angle), jd.transforms.translation(offset=offset))
    ),
}


@pytest.mark.parametrize("name", MATRICES)
def test_inputs_read_by_the_host(name):
    """Also of several devices, with `jax.jit` and without."""
    arguments = images(), np.arange(4, dtype=np.float32) / 9, np.ones((4, 2), np.float32)
    expected = MATRICES[name](*arguments).numpy()
    on_devices = jax.device_put(arguments, shardings.of_batch(4))
    for compiled, values in ((jax.jit, arguments), (jax.jit, on_devices), (lambda f: f, on_devices)):
        np.testing.assert_array_equal(compiled(MATRICES[name])(*values).jax(), expected)


def test_arguments_without_zero_in_range():
    """Zeros stand for the numbers while a program is made, and must not be checked."""

    def run(x, quality, sigma):
        x = jd.jpeg_compression_distortion(jd.batch(x, layout="HWC"), quality=quality)
        return jd.gaussian_blur(x, sigma=sigma, window_size=5)

    arguments = images(), np.array([1, 50, 80, 100], np.int32), np.array([[0.5], [1], [2], [3]], np.float32)
    np.testing.assert_array_equal(np.asarray(jax.jit(run)(*arguments)), run(*arguments).numpy())


def test_messages_for_untraceable_functions():
    with pytest.raises(
        ValueError, match=r"rotate: it can't be part of a program that JAX traces: the shape .* depends on values"
    ):
        jax.jit(lambda x: jd.rotate(x, angle=jnp.arange(4.0)))(images())
    with pytest.raises(ValueError, match=r"crop: it can't be part of a program that JAX traces: .* reaches outside"):
        jax.jit(lambda x: jd.crop(x, crop=(50, 50)))(images())
    with pytest.raises(Exception, match="depends on the values of a batch"):
        jax.block_until_ready(
            jax.jit(lambda x, s: jd.gaussian_blur(x, sigma=s))(images(), jnp.array([[0.5], [1], [2], [3]]))
        )
    with pytest.raises(TypeError, match="argument sigma takes a list of numbers for all samples"):
        jax.jit(lambda x, s: jd.gaussian_blur(x, sigma=s))(images(), jnp.ones(4))
    with pytest.raises(TypeError, match="not a list"):
        jax.jit(lambda x: jd.flip([x[0], x[1]]))(images())
    with pytest.raises(Exception, match="probability must be"):
        jax.block_until_ready(jax.jit(lambda p, k: jd.random.coin_flip(probability=p, key=k))(jnp.full(3, 2.0), KEY))


@pytest.mark.parametrize("sharded", [False, True])
def test_failed_sample_fails_the_program(sharded):
    """The caller can't check the samples inside a program, so the program itself fails, and names the line of the call."""

    def run(end):
        function = jax.jit(
            lambda x: jd.flip(jd.resize(x, size=(4, 4), roi_start=[0.0, 0.0], roi_end=[end, end])).jax() + 1
        )
        x = images((8, 8, 8, 3))
        return np.asarray(function(jax.device_put(x, shardings.of_batch(4)) if sharded else x))

    np.testing.assert_array_equal(run(8.0), jd.flip(jd.resize(images((8, 8, 8, 3)), size=(4, 4))).numpy() + 1)
    with pytest.raises(SampleError, match=r"resize .*sample 0: the image is too large"):
        jd.resize(images((8, 8, 8, 3)), size=(4, 4), roi_start=[0.0, 0.0], roi_end=[1e12, 1e12])
    sample_text = r"sample 0 of the \d on its device" if sharded else "sample 0"
    with pytest.raises(
        jax.errors.JaxRuntimeError,
        match=rf"resize \(called at .*test_programs.py:\d+\): {sample_text}: the image is too large",
    ):
        run(1e12)


@pytest.mark.parametrize("use", [lambda x: x + 1, lambda x: jd.cast(x, dtype=types.FLOAT), lambda x: (jd.zeros(), x)])
def test_numbers_taken_for_keys(use):
    with pytest.raises(
        TypeError, match=r"an array uint32\[3, 4\] is taken for raw keys .*: pass other numbers as int32"
    ):
        jd.jit(use)(jnp.ones((3, 4), jnp.uint32))


def test_refused_results_name_function_and_line():
    @jd.jit
    def flipped(x, key):
        return {"x": jd.flip(x), "key": key}

    def call():
        return flipped(images(), KEY)

    line = call.__code__.co_firstlineno + 1
    with pytest.raises(TypeError, match=rf"^jit of flipped: .* a key in result\['key'\] .*test_programs.py:{line}\)$"):
        call()
    with pytest.raises(TypeError, match=r"jit of <lambda>: .*got int \(called at .*test_programs.py"):
        jd.jit(lambda x: 3)(images())


def test_refused_numbers_name_the_line():
    def turned(x, matrix):
        return jd.warp_affine(x, matrix=matrix)

    def turned_elsewhere(x, matrix):
        return jd.warp_affine(x, matrix=matrix)

    matrix = np.full((4, 2, 3), np.nan, np.float32)
    for function in (turned, turned_elsewhere):
        line = function.__code__.co_firstlineno + 1
        with pytest.raises(Exception, match=rf"test_programs.py:{line}\): sample 0: argument matrix must be finite"):
            jax.block_until_ready(jax.jit(function)(images(), matrix))


def test_gradients():
    x = images().astype(np.float32)
    grad = jax.grad(lambda x: jnp.sum(jd.batch(x) * 3.0))(x)  # functions of JAX accept a batch
    np.testing.assert_array_equal(np.asarray(grad), np.full(x.shape, 3.0))
    with pytest.raises(TypeError, match="rotate: native operators have no derivative"):
        jax.grad(lambda x: jnp.sum(jd.rotate(x, angle=10.0, keep_size=True)))(x)
    with pytest.raises(
        TypeError, match=r"transforms\.rotation: what the host reads, .* has no derivative: .*stop_gradient"
    ):
        jax.grad(lambda x: jnp.sum(jd.transforms.rotation(angle=x).jax()))(jnp.ones(3))
    w = jax.grad(lambda w: jnp.sum(w * jd.rotate(x, angle=10.0, keep_size=True)))(jnp.float32(1))
    assert np.isfinite(float(w))


@pytest.mark.parametrize("ragged", [False, True])
def test_conditionals_on_images_without_a_layout(ragged):
    """`flip` assumes a layout, which its result has; the other branch has none."""
    images = [np.random.default_rng(i).integers(0, 256, (4 + ragged * i, 5, 3), np.uint8) for i in range(4)]

    @jd.jit(enable_conditionals=True)
    def flipped(images, numbers):
        if numbers > 1:
            images = jd.flip(images)
        return images

    results = flipped(images if ragged else np.stack(images), np.arange(4))
    assert results.layout == "HWC"
    for i, image in enumerate(images):
        np.testing.assert_array_equal(results[i], image[:, ::-1] if i > 1 else image)


def test_advice_for_if_without_conditionals():
    with pytest.raises(TypeError, match=r"jaxdali.dynamic.jit with enable_conditionals=True"):
        jd.jit(lambda x, n: jd.flip(x) if n > 1 else x)(np.zeros((2, 4, 4, 3), np.uint8), np.arange(2))


def test_a_traced_number_for_all_samples():
    images = np.random.default_rng(1).integers(0, 256, (3, 8, 9, 3), np.uint8)
    rotated = jax.jit(lambda x, angle: jd.rotate(x, angle=angle, keep_size=True).jax())(images, 20.0)
    np.testing.assert_array_equal(rotated, jd.rotate(images, angle=20.0, keep_size=True).numpy())
