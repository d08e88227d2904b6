"""`plugin.grain.BatchTransform` and `SampleKey`: functions of `jaxdali.dynamic` in Grain."""

import gc
import io
import linecache
import pickle
import sys
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

import jaxdali
import jaxdali.dynamic as jd

grain = pytest.importorskip("grain")
cloudpickle = pytest.importorskip("cloudpickle")
flags = pytest.importorskip("absl.flags")
from jaxdali.plugin.grain import BatchTransform, SampleKey  # noqa: E402

# Worker processes can't import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

N = 13
BATCH = 4
SEED = 7


@pytest.fixture(scope="module", autouse=True)
def parsed_flags():
    """Grain's worker processes read flags of absl, which programs parse."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def png(i: int) -> bytes:
    """A file of its own size."""
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(i).integers(0, 256, (20 + i, 30 - i, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


FILES = [png(i) for i in range(N)]
SAMPLES = [{"image": data, "label": i, "box": np.float32([i, 2 * i])} for i, data in enumerate(FILES)]


@jd.jit
def augment(image: Any, key: Any) -> Any:
    crop_key, flip_key = jd.random.split(key)
    images = jd.resize(jd.decoders.image_random_crop(image, key=crop_key), size=(8, 8))
    return {"image": jd.flip(images, horizontal=jd.random.coin_flip(key=flip_key))}


def with_keys(image: Any, key: Any) -> Any:
    """A function that is not compiled, and returns its keys."""
    return {**augment(image, key), "key": key}


def with_settings(image: Any, key: Any) -> Any:
    """The same, the number of native threads, and the platforms that JAX looks for."""
    platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    return {**with_keys(image, key), "threads": jd.get_num_threads(), "platforms": platforms}


def augmented_alone(i: int, key: np.ndarray) -> np.ndarray:
    """Sample `i` alone, by functions that are evaluated one after another."""
    crop_key, flip_key = jax.random.split(jax.random.wrap_key_data(key))
    image = jd.resize(jd.decoders.image_random_crop([FILES[i]], key=crop_key[None]), size=(8, 8))
    return np.asarray(jd.flip(image, horizontal=jd.random.coin_flip(key=flip_key[None])))[0]


def key_of(generator: np.random.Generator) -> np.ndarray:
    return generator.integers(2**32, size=2, dtype=np.uint32)


def map_dataset(function: Any = with_keys) -> Any:
    """Two shuffled epochs, keyed by the place in them."""
    dataset = grain.MapDataset.source(SAMPLES).shuffle(seed=1).repeat(2)
    keyed = dataset.random_map(SampleKey(), seed=SEED)
    return keyed.batch(BATCH, batch_fn=BatchTransform(function))


def data_loader(worker_count: int, function: Any = with_keys) -> Any:
    sampler = grain.samplers.IndexSampler(N, grain.sharding.NoSharding(), shuffle=True, num_epochs=2, seed=SEED)
    batch = grain.transforms.Batch(BATCH, batch_fn=BatchTransform(function))
    return grain.DataLoader(
        data_source=SAMPLES, sampler=sampler, operations=[SampleKey(), batch], worker_count=worker_count
    )


def few_threads(dataset: Any) -> Any:
    return dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))


def rows(batches: Any) -> list[tuple[int, bytes, bytes]]:
    """Label, key and pixels of all samples, in the order of the batches."""
    return [
        (int(label), key.tobytes(), image.tobytes())
        for batch in batches
        for label, key, image in zip(batch["label"], batch["key"], batch["image"], strict=True)
    ]


def by_grains_rule(order: list[int], generator: Any) -> list[tuple[int, bytes, bytes]]:
    """The same, of samples that are worked on one by one. `generator`: that of an index."""
    keys = [key_of(generator(i)) for i in range(len(order))]
    return [(i, k.tobytes(), augmented_alone(i, k).tobytes()) for i, k in zip(order, keys, strict=True)]


def in_counter(i: int) -> np.random.Generator:
    """The generator of `MapDataset.random_map` for index i."""
    return np.random.Generator(np.random.Philox(SEED, counter=i << 192))


def in_key(i: int) -> np.random.Generator:
    """The generator of `IndexSampler` for index i."""
    return np.random.Generator(np.random.Philox(key=SEED + i))


@pytest.fixture(scope="module")
def map_rows():
    dataset = grain.MapDataset.source(SAMPLES).shuffle(seed=1).repeat(2)
    return by_grains_rule([dataset[i]["label"] for i in range(2 * N)], in_counter)


@pytest.fixture(scope="module")
def loader_rows():
    sampler = grain.samplers.IndexSampler(N, grain.sharding.NoSharding(), shuffle=True, num_epochs=2, seed=SEED)
    return by_grains_rule([sampler[i].record_key for i in range(2 * N)], in_key)


def test_map_dataset_draws_by_index(map_rows):
    dataset = map_dataset()
    assert rows(dataset) == map_rows
    assert rows(few_threads(dataset)) == map_rows
    assert len({key for _, key, _ in map_rows}) == 2 * N
    # A filter behind `SampleKey` changes no keys.
    keyed = grain.MapDataset.source(SAMPLES).shuffle(seed=1).repeat(2).random_map(SampleKey(), seed=SEED)
    filtered = keyed.filter(lambda sample: sample["label"] % 3 > 0).to_iter_dataset()
    batches = filtered.batch(BATCH, batch_fn=BatchTransform(with_keys))
    assert rows(batches) == [row for row in map_rows if row[0] % 3 > 0]
    threads = grain.experimental.multithread_prefetch(few_threads(dataset), num_threads=2, buffer_size=2)
    assert sorted(rows(threads)) == sorted(map_rows)


def test_iter_dataset_draws_by_count(map_rows):
    dataset = grain.MapDataset.source(SAMPLES).shuffle(seed=1).repeat(2).to_iter_dataset()
    dataset = dataset.random_map(SampleKey(), seed=SEED).batch(BATCH, batch_fn=BatchTransform(with_keys))
    assert rows(dataset) == map_rows


def test_data_loader_draws_by_index(loader_rows):
    assert rows(data_loader(0)) == loader_rows


def test_worker_processes_draw_the_same(loader_rows, monkeypatch):
    """Each worker batches its own records, in one native thread, and does not look for accelerators."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)  # workers inherit it
    batches = list(data_loader(2, with_settings))
    assert sorted(rows(batches)) == sorted(loader_rows)
    assert {(b["threads"], b["platforms"]) for b in batches} == {(1, "cpu")}
    before = jd.get_num_threads()
    pickle.loads(pickle.dumps(BatchTransform(with_settings)))  # in a process of the user
    assert jd.get_num_threads() == before
    gc.collect()


def resumed(make: Any) -> list[Any]:
    """The rows of an iterator that continues after the second batch of another one."""
    iterator, other = iter(make()), iter(make())
    for _ in range(2):
        next(iterator)
    other.set_state(iterator.get_state())
    return rows(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: few_threads(map_dataset()),
        lambda: few_threads(map_dataset()).mp_prefetch(grain.MultiprocessingOptions(num_workers=1)),
    ],
    ids=["threads", "mp_prefetch"],
)
def test_resumed_map_dataset_continues(make, map_rows):
    assert resumed(make) == map_rows[2 * BATCH :]
    gc.collect()


def test_resumed_iter_dataset_continues(map_rows):
    dataset = grain.MapDataset.source(SAMPLES).shuffle(seed=1).repeat(2).to_iter_dataset()
    dataset = dataset.random_map(SampleKey(), seed=SEED).batch(BATCH, batch_fn=BatchTransform(with_keys))
    assert resumed(lambda: dataset) == map_rows[2 * BATCH :]


def test_resumed_data_loader_continues(loader_rows):
    assert resumed(lambda: data_loader(0)) == loader_rows[2 * BATCH :]


def test_keys_join_the_sample():
    rng = lambda: np.random.Generator(np.random.Philox(3))
    key = key_of(rng())
    assert SampleKey("k").random_map({"x": 1}, rng()).keys() == {"x", "k"}
    for sample, expected in (((1, 2), (1, 2, key)), (b"x", (b"x", key)), ({"x": 1}, {"x": 1, "key": key})):
        jax.tree.map(np.testing.assert_array_equal, SampleKey().random_map(sample, rng()), expected)
    with pytest.raises(ValueError, match="has an entry 'key': choose another name="):
        SampleKey().random_map({"key": 1}, rng())
    with pytest.raises(ValueError, match=r"has no seed: pass it one, as IndexSampler\(seed="):
        SampleKey().random_map(1, None)


def test_arguments_are_columns():
    calls: list[Any] = []

    def function(data: Any, box: Any, label: Any, views: Any) -> Any:
        calls.append((data, box, label, views))
        return {"label": label + 1, "data": data}

    samples = [
        {"data": np.arange(5), "box": np.zeros(i), "label": i, "views": {"a": b"x" * i, "b": np.uint32([i, 1])}, "rest": (i, [0.5])}
        for i in range(3)
    ]  # fmt: skip
    batch = BatchTransform(function)(samples)
    (data, box, label, views) = calls[0]
    assert all(x is sample["data"] for x, sample in zip(data, samples, strict=True))
    assert [x.shape for x in box] == [(0,), (1,), (2,)]
    assert label.tolist() == [0, 1, 2]
    assert views["a"] == [b"", b"x", b"xx"]
    np.testing.assert_array_equal(views["b"], [[0, 1], [1, 1], [2, 1]])  # as keys
    assert batch.keys() == {"label", "data", "rest"}
    assert batch["label"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(batch["data"], np.stack([x["data"] for x in samples]))  # returned as it came
    assert batch["rest"][0].tolist() == [0, 1, 2]
    assert batch["rest"][1][0].tolist() == [0.5] * 3


@pytest.mark.parametrize("jit", [lambda f: f, jd.jit])
def test_tuples_and_single_values(jit):
    def of_tuples(files: Any, labels: Any) -> Any:
        return jd.resize(jd.decoders.image(files), size=(8, 8)), labels

    expected = [
        np.asarray(jd.resize(jd.decoders.image([np.frombuffer(data, np.uint8)]), size=(8, 8)))[0] for data in FILES[:3]
    ]
    batch = BatchTransform(jit(of_tuples))([(FILES[i], np.int32([i])) for i in range(3)])
    np.testing.assert_array_equal(batch[0], expected)
    assert batch[1].tolist() == [[0], [1], [2]]
    single = BatchTransform(jit(lambda files: jd.resize(jd.decoders.image(files), size=(8, 8))))
    for images in (single(FILES[:3]), batch[0]):
        assert type(images) is np.ndarray
        np.testing.assert_array_equal(images, expected)


def test_transforms_compose():
    """As a `Map`, of lists of samples and of batches that Grain has stacked; by `apply`."""
    scale = BatchTransform(lambda box: {"box": 2 * np.asarray(box)})
    boxes = [{"box": x["box"], "label": x["label"]} for x in SAMPLES[:4]]
    expected = [[2.0 * i, 4.0 * i] for i in range(4)]
    dataset = grain.MapDataset.source(boxes)
    for batches in (
        dataset.batch(4, batch_fn=list).map(scale),
        dataset.batch(4).map(scale),
        dataset.apply([grain.transforms.Batch(4, batch_fn=scale)]),
        dataset.to_iter_dataset().apply([grain.transforms.Batch(4), scale]),
    ):
        (batch,) = batches
        assert batch["box"].tolist() == expected
        assert batch["label"].tolist() == [0, 1, 2, 3]
    assert "BatchTransform(with_keys)" in repr(BatchTransform(with_keys))


def test_misuse_is_named():
    def error(function: Any, samples: Any, kind: Any = TypeError) -> str:
        with pytest.raises(kind, match=r"plugin\.grain\.BatchTransform") as e:
            BatchTransform(function)(samples)
        return str(e.value)

    message = error(with_keys, SAMPLES[:2])
    assert "of with_keys: the samples have no entry 'key'" in message
    assert "SampleKey() before the batch" in message
    assert "SampleKey" not in error(lambda picture: picture, SAMPLES[:2])
    assert "must return a dictionary of entries, as the samples have others, ['box', 'label']: got Batch" in error(
        lambda image: jd.resize(jd.decoders.image(image), size=(4, 4)), SAMPLES[:2]
    )
    message = error(lambda image: {"image": jd.decoders.image(image)}, SAMPLES[:2], ValueError)
    assert "the samples of the result['image'] differ in shape, [(20, 30, 3), (21, 29, 3)]" in message
    message = error(lambda label: {}, [{"x": np.zeros(i), "label": i} for i in range(2)], ValueError)
    assert "the entry 'x', which is no parameter of the function, can't be stacked" in message
    assert "must have one structure" in error(lambda x: x, [{"x": 1}, {"y": 1}], ValueError)
    assert "the list of samples is empty" in error(lambda x: x, [], ValueError)
    error(3, SAMPLES)
    with pytest.raises(TypeError, match="SampleKey: name must be a str, got int"):
        SampleKey(3)  # pyright: ignore[reportArgumentType]


def test_failed_samples_are_described():
    samples = [{**x, "name": f"file {i}"} for i, x in enumerate(SAMPLES)]
    samples[2]["image"] = b"no image"
    images = BatchTransform(lambda image: {"image": jd.resize(jd.decoders.image(image), size=(4, 4))})
    with pytest.raises(jaxdali.SampleError) as e:
        images(samples)
    assert e.value.index == 2
    (note,) = e.value.__notes__
    assert "sample 2 of the batch has ['label'] = 2, ['name'] = 'file 2'" in note


def test_errors_name_the_users_line():
    """The line in a plain function, or that of `BatchTransform` of one program; in threads and in other processes."""

    @jd.jit
    def decode(image: Any) -> Any:
        return {"image": jd.decoders.image(image)}

    plain, program = BatchTransform(lambda image: {"image": jd.decoders.image(image)}), BatchTransform(decode)
    # By value, as from a program or a notebook.
    others = [cloudpickle.loads(cloudpickle.dumps(transform)) for transform in (plain, program)]
    codes = ["jd.decoders.image(image)", "BatchTransform(decode)"]
    for transform, code in zip((plain, program, *others), 2 * codes, strict=True):
        dataset = grain.MapDataset.source([{"image": b"no image"}]).batch(1, batch_fn=transform)
        with pytest.raises(jaxdali.SampleError) as e:
            list(few_threads(dataset))
        path, _, line = e.value.where.rpartition(":")
        assert path == __file__
        assert code in linecache.getline(path, int(line))
        assert f"(called at {e.value.where})" in str(e.value)
