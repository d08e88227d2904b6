"""random.key: a sample has the same key wherever it is read, and functions of JAX get typed keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn, ops, pipeline_def
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

MESH = Mesh(np.array(jax.devices()), ("batch",))


def sharding():
    return NamedSharding(MESH, PartitionSpec("batch"))


def keys_of(batch_size=4, batches=2, seed=1, key_seed=-1, device=None):
    @pipeline_def(batch_size=batch_size, num_threads=1, seed=seed)
    def definition():
        return fn.random.key(seed=key_seed, device=device)

    pipe = definition()
    keys = np.concatenate([pipe.run()[0].as_cpu().as_array() for _ in range(batches)])
    pipe.close()
    return keys


def typed(data):
    return jax.random.wrap_key_data(jnp.asarray(data), impl="threefry2x32")


def noise_of(keys):
    """The noise that the docstring's example adds, by the keys' data."""
    return np.asarray(jax.vmap(lambda key: jax.random.normal(key, (3, 2)))(typed(keys)))


def test_keys_depend_on_seed_and_sample_alone():
    keys = keys_of()
    assert (keys.dtype, keys.shape) == (np.uint32, (8, 2))
    np.testing.assert_array_equal(keys_of(batch_size=2, batches=4), keys)
    np.testing.assert_array_equal(keys_of(device="gpu"), keys)
    assert len({tuple(k) for k in [*keys.tolist(), *keys_of(seed=2).tolist()]}) == 16
    assert (keys_of(seed=1, key_seed=5) == keys_of(seed=2, key_seed=5)).all()


def test_words_are_uniform():
    bits = np.unpackbits(keys_of(batch_size=4000, batches=1).view(np.uint8), axis=1).astype(np.float64)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(bits))
    assert np.abs(np.corrcoef(bits.T) - np.eye(64)).max() < 5.5 / np.sqrt(len(bits))


@pytest.mark.parametrize(
    "options",
    [{}, {"jit": True}, {"jit": False}, {"device": "gpu"}, {"sharding": True}],
    ids=["traced", "jit", "eager", "device", "global"],
)
def test_functions_get_typed_keys(options):
    """The docstring's example, in each way to run the function."""
    place = sharding() if options.pop("sharding", False) else None

    def add_noise(images, keys):
        if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) or keys.shape != images.shape[:1]:
            # An assert, as pytest has it, names much of pytest, which would be searched for state.
            raise TypeError(f"{keys}")
        return jax.vmap(lambda image, key: image + jax.random.normal(key, image.shape))(images, keys)

    @data_iterator(output_map=["image", "noisy", "key"], sharding=sharding(), size=32)
    def make(shard_id=0, num_shards=1):
        image, key = fn.random.uniform(shape=(3, 2)), fn.random.key()
        if "device" in options:
            image, key = image.gpu(), key.gpu()
        return image, jax_function(add_noise, sharding=place, **options)(image, key), key

    it = make(batch_size=16, num_threads=2, seed=3)
    for batch in (next(it), next(it)):
        assert batch["key"].sharding == sharding()
        np.testing.assert_allclose(batch["noisy"] - batch["image"], noise_of(np.asarray(batch["key"])), atol=1e-6)
    it.close()


def test_outputs_are_key_data_for_jit():
    @data_iterator(output_map=["key"], sharding=sharding(), size=16)
    def make(shard_id=0, num_shards=1):
        return fn.random.key()

    @jax.jit
    def step(batch):
        return jax.vmap(lambda key: jax.random.normal(key, (3, 2)))(
            jax.random.wrap_key_data(batch["key"], impl="threefry2x32")
        )

    it = make(batch_size=8, num_threads=1, seed=1)
    batch = next(it)
    np.testing.assert_allclose(step(batch), noise_of(np.asarray(batch["key"])), rtol=1e-6)
    it.close()


def collected(files, batch_size, place, resume_after=None):
    """The key of each file in two epochs."""

    @data_iterator(output_map=["label", "key", "word"], reader_name="reader", sharding=place)
    def make(shard_id=0, num_shards=1):
        _, label = fn.readers.file(
            files=files, shard_id=shard_id, num_shards=num_shards, random_shuffle=True, name="reader"
        )
        key = fn.random.key()
        return label, key, jax_function(lambda keys: jax.vmap(jax.random.bits)(keys))(key)

    def fresh():
        return make(batch_size=batch_size, num_threads=2, seed=3, enable_checkpointing=True)

    it = fresh()
    epochs = []
    num_batches = 0
    for _ in range(2):
        key_by_label = {}
        while True:
            try:
                batch = jax.tree.map(np.asarray, next(it))
            except StopIteration:
                it.reset()
                break
            key_by_label |= {
                int(k): (*map(int, key), int(w)) for k, key, w in zip(batch["label"][:, 0], batch["key"], batch["word"])
            }
            num_batches += 1
            if num_batches == resume_after:
                saved = it.checkpoints()
                it.close()
                it = make(batch_size=batch_size, num_threads=2, seed=3, enable_checkpointing=True, checkpoints=saved)
        epochs.append(key_by_label)
    it.close()
    return epochs


def test_keys_do_not_depend_on_shards(tmp_path):
    files = [str(tmp_path / f"{i:02d}") for i in range(32)]
    for f in files:
        with open(f, "wb") as stream:
            stream.write(b"x")
    whole = collected(files, 4, None)
    assert [len(e) for e in whole] == [32, 32]
    assert len({k for e in whole for k in e.values()}) == 64
    words = np.asarray(jax.vmap(jax.random.bits)(typed(np.uint32([k[:2] for k in whole[0].values()]))))
    assert words.tolist() == [k[2] for k in whole[0].values()]
    assert collected(files, 16, sharding()) == whole
    assert collected(files, 4, None, resume_after=3) == whole


def test_keys_in_branches():
    """Functions get typed keys in branches, too, also of variables with a value from either side. A value computed from
    keys is no key any more.
    """

    @pipeline_def(batch_size=4, num_threads=1, seed=3, enable_conditionals=True)
    def definition():
        place = fn.external_source(source=lambda info: np.int32(info.idx_in_epoch), batch=False)
        first, second = fn.random.key(), fn.random.key()
        word = jax_function(lambda keys: jax.vmap(jax.random.bits)(keys))
        if place < 2:
            key = first
            in_branch = word(first)
        else:
            key = second
            in_branch = word(fn.copy(second))
        changed = jax_function(lambda x: x + x.dtype.type(1))(fn.cast(key, dtype="int64"))
        return first, second, in_branch, word(key), word(fn.permute_batch(key, indices=place)), key, changed

    pipe = definition()
    first, second, in_branch, merged, permuted, key, changed = (x.as_cpu().as_array() for x in pipe.run())
    pipe.close()
    want = np.where(np.arange(4)[:, None] < 2, first, second)
    np.testing.assert_array_equal(key, want)
    words = np.asarray(jax.vmap(jax.random.bits)(typed(want)))
    for actual in (in_branch, merged, permuted):
        np.testing.assert_array_equal(actual, words)
    np.testing.assert_array_equal(changed.astype(np.uint32), want + np.uint32(1))


def test_class():
    @pipeline_def(batch_size=4, num_threads=1, seed=1)
    def definition():
        return ops.random.Key(device="cpu")()

    pipe = definition()
    np.testing.assert_array_equal(pipe.run()[0].as_cpu().as_array(), keys_of(batches=1))
    pipe.close()
