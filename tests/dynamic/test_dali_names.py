"""`jaxdali.experimental.dynamic`: DALI's names for dynamic mode. The list of names is that of DALI 2.4."""

import concurrent.futures
import importlib
import operator
import pickle

import jax
import numpy as np
import places
import pytest

import jaxdali.dynamic as jd
import jaxdali.experimental.dynamic as ndd
from jaxdali import fn, math, types
from jaxdali._core.names import DALI_OPERATORS

# Names of DALI without a meaning here, or not implemented yet.
MISSING = {"ThreadPool", "optical_flow", "pytorch", "stream"}
MISSING |= {"experimental.readers"}
MISSING |= {"set_current_stream", "set_default_stream", "Stream.handle"}
MISSING |= {f"EvalContext.{x}" for x in ("cache_results", "cached_results", "cuda_stream", "thread_pool", "device_id")}


def test_names():
    def exists(module, name):
        for part in name.split("."):
            module = getattr(module, part, None)
        return module is not None

    names = (places.DATA / "dali_dynamic_names.txt").read_text().split()
    missing = {x for x in names if not exists(ndd, x) and not any(x.startswith(f"{m}.") or x == m for m in MISSING)}
    operators = {x for x in missing if x in DALI_OPERATORS and not exists(fn, x)}  # those that jaxdali lacks everywhere
    assert not missing - operators
    with pytest.raises(
        AttributeError,
        match=r"experimental\.dynamic\.set_current_stream of DALI is not in jaxdali: XLA manages streams",
    ):
        ndd.set_current_stream
    with pytest.raises(AttributeError, match="did you mean 'rotate'"):
        ndd.rotat
    assert importlib.import_module("jaxdali.experimental.dynamic.readers").File is ndd.readers.File


def test_batches_and_tensors():
    batch = ndd.batch([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert (batch.dtype, batch.shape, batch.batch_size, batch.ndim) == (ndd.int32, [(3,)] * 3, 3, 1)
    assert isinstance(batch.tensors[1], ndd.Tensor)
    assert [t.tolist() for t in batch.tensors] == batch.numpy().tolist()
    assert batch.select([0, 2]).numpy().tolist() == [[1, 2, 3], [7, 8, 9]]
    assert batch.select(1).tolist() == [4, 5, 6]
    assert batch.select(slice(1, None)).batch_size == 2
    for equal_batch in (
        batch.cpu(),
        batch.gpu(),
        batch.to_device("cpu", force_copy=True),
        batch.evaluate(),
        (1 + batch) - 1,
        batch.slice[:],
        ndd.as_batch(batch),
    ):
        assert isinstance(equal_batch, ndd.Batch)
        np.testing.assert_array_equal(equal_batch.numpy(), batch.numpy())
    assert ndd.batch(batch, dtype=ndd.float32).dtype == ndd.float32
    assert ndd.Batch.broadcast([1, 2], 3).numpy().tolist() == [[1, 2]] * 3
    ragged = ndd.as_batch([[1.0, 2.0], [3.0]])
    assert ragged.dtype == ndd.float32
    assert ndd.as_tensor(ragged, pad=True).tolist() == [[1, 2], [3, 0]]
    image = ndd.tensor([[[1], [2]], [[3], [4]]], layout="HWC", dtype=ndd.uint8)
    assert (image.dtype, image.layout, image.device, image.item(3)) == (ndd.uint8, "HWC", ndd.Device("cpu"), 4)
    assert ndd.rotate(image, angle=90).shape == (2, 2, 1)
    assert (ndd.type_id(ndd.float16), ndd.dtype(types.UINT8), ndd.dtype("int64")) == (
        types.FLOAT16,
        ndd.uint8,
        ndd.int64,
    )
    assert ndd.math.sqrt(ndd.batch([4.0, 9.0])).numpy().tolist() == [2, 3]


def test_torch():
    torch = pytest.importorskip("torch")
    assert torch.equal(ndd.batch([[1, 2], [3, 4]]).torch(), torch.tensor([[1, 2], [3, 4]], dtype=torch.int32))
    assert torch.equal(ndd.tensor([1.0, 2.0]).torch(), torch.tensor([1.0, 2.0]))


def test_the_default_generator():
    """Each thread has its own generator; `set_seed` restarts it."""

    def draw():
        return ndd.random.uniform(range=(0, 1), batch_size=4).numpy().tolist(), ndd.noise.gaussian(
            ndd.batch([[0.0]] * 2)
        ).numpy().tolist()

    def seeded(seed):
        ndd.random.set_seed(seed)
        return draw()

    assert seeded(1) == seeded(1)
    assert seeded(1) != draw()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        expected = seeded(7)
        ndd.random.set_seed(7)
        pool.submit(seeded, 8).result()
        assert draw() == expected
    rng = ndd.random.RNG(seed=5)
    first = ndd.random.uniform(batch_size=2, rng=rng).numpy().tolist()
    clone, state = rng.clone(), rng.state
    second = ndd.random.uniform(batch_size=2, rng=rng).numpy().tolist()
    assert first != second
    assert second == ndd.random.uniform(batch_size=2, rng=clone).numpy().tolist()
    assert second == ndd.random.uniform(batch_size=2, rng=ndd.random.RNG(state=str(state))).numpy().tolist()
    later = ndd.random.RNG(5)
    later.advance(1)
    assert second == ndd.random.uniform(batch_size=2, rng=later).numpy().tolist()
    assert isinstance(ndd.random.uniform(range=(0, 1)), ndd.Tensor)


def test_drawn_number_for_a_batch():
    """As in DALI, and also where JAX traces."""
    images = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), np.uint8)

    def run(x, key):
        rotated = ndd.rotate(ndd.batch(x), angle=2 * ndd.random.uniform(range=(0, 30), key=key), keep_size=True)
        return ndd.flip(rotated, horizontal=ndd.random.coin_flip(probability=1.0, key=key)).jax()

    key = jax.random.key(2)
    angle = 2 * float(jd.random.uniform(range=(0, 30), key=key))
    expected = jd.rotate(images, angle=angle, keep_size=True).numpy()[:, :, ::-1]
    for compiled in (run, jax.jit(run)):
        np.testing.assert_array_equal(compiled(images, key), expected)


def test_contexts():
    num_threads = ndd.get_num_threads()
    with ndd.EvalMode.eager, ndd.EvalContext(num_threads=3, device_id=0) as context:
        assert (ndd.get_num_threads(), ndd.EvalContext.current() is context) == (3, True)
    assert (ndd.get_num_threads(), ndd.EvalContext.current() is context) == (num_threads, False)
    for arguments in ({"device_id": 99}, {"thread_pool": object()}):
        with pytest.raises(ValueError, match=r"99|thread_pool"):
            ndd.EvalContext(**arguments)
    assert (str(ndd.Device("gpu:0")), ndd.device("gpu", 0)) == ("gpu:0", ndd.Device("gpu"))
    with pytest.raises(ValueError, match="a device is"):
        ndd.Device("tpu:x")


def test_a_program():
    """Files to a batch of normalized images, as in DALI's documents."""
    files = sorted(map(str, places.PHOTOS.glob("*/*_0.jpg")))[:4]
    reader = ndd.readers.File(files=files, labels=[3, 2, 1, 0])
    for jpegs, labels in reader.next_epoch(batch_size=4):
        images = ndd.decoders.image(jpegs, device="gpu")
        images = ndd.resize(images, size=(32, 32))
        images = ndd.crop_mirror_normalize(images, mean=[128.0], std=[64.0])
        assert isinstance(images, ndd.Batch)
        assert labels.numpy().ravel().tolist() == [3, 2, 1, 0]
        expected = jd.crop_mirror_normalize(
            jd.resize(jd.decoders.image(jpegs), size=(32, 32)), mean=[128.0], std=[64.0]
        )
        np.testing.assert_array_equal(images.numpy(), expected.numpy())
    np.testing.assert_array_equal(ndd.imread(files[1]), jd.decoders.image(jpegs)[1])
    assert ndd.imread(files, device="gpu").batch_size == 4
    other_reader = ndd.readers.File(files=files)
    other_reader.set_state(str(other_reader.get_state()))


def make_reader_and_rng():
    reader = ndd.readers.File(
        file_root=str(places.ROOT / "examples" / "images"), random_shuffle=True, enable_checkpointing=True, seed=3
    )
    return reader, ndd.random.RNG(seed=42)


def draw_next(batches, rng):
    _, labels = next(batches)
    return labels.numpy().ravel().tolist(), ndd.random.uniform(batch_size=4, rng=rng).numpy().tolist()


def test_a_checkpoint_of_readers_and_generators(tmp_path):
    pattern = str(tmp_path / "at_{seq:03d}.json")
    reader, rng = make_reader_and_rng()
    checkpoint = ndd.checkpoint.Checkpoint()
    assert [checkpoint.register(reader, "reader"), checkpoint.register(rng), checkpoint.register(rng)] == [
        "reader",
        "__op_1",
        "__op_1",
    ]
    with pytest.raises(RuntimeError, match="empty"):
        checkpoint.save(pattern)
    with pytest.raises(FileNotFoundError, match="at_"):
        checkpoint.load(pattern)
    batches = reader.next_epoch(batch_size=4)
    for number in range(2):
        draw_next(batches, rng)
        checkpoint.collect()
        assert checkpoint.save(pattern) == str(tmp_path / f"at_00{number}.json")
    expected = draw_next(batches, rng)
    assert (checkpoint.is_complete, checkpoint.is_loaded) == (True, False)
    with pytest.raises(RuntimeError, match=r"call clear\(\) first"):
        checkpoint.register(ndd.random.RNG(1), "other")

    resumed, resumed_rng = make_reader_and_rng()
    loaded = ndd.checkpoint.Checkpoint()
    assert loaded.load(pattern) == str(tmp_path / "at_001.json")  # the last one
    with pytest.raises(KeyError, match="no state of 'nothing'"):
        loaded.register(resumed_rng, "nothing")
    with pytest.raises(TypeError, match="that of a File, but the object is a RNG"):
        loaded.register(resumed_rng, "reader")
    loaded.register(resumed, "reader")
    loaded.register(resumed_rng)
    assert draw_next(resumed.next_epoch(batch_size=4), resumed_rng) == expected

    late, generator = make_reader_and_rng()
    by_hand = ndd.checkpoint.Checkpoint()
    by_hand.register(late, "reader")
    by_hand.register(generator, "rng")
    by_hand.set_state("reader", loaded.get_state("reader"))
    by_hand.set_state("rng", loaded.get_state("__op_1"))
    by_hand.restore()
    assert draw_next(late.next_epoch(batch_size=4), generator) == expected


@pytest.mark.parametrize("text", ["", "{}", '{"version": 99, "states": {}}', '{"version": 1, "states": {"x": 3}}'])
def test_invalid_checkpoints(text):
    with pytest.raises(ValueError, match="checkpoint"):
        ndd.checkpoint.Checkpoint().deserialize(text)


def test_the_current_checkpoint():
    outside = ndd.checkpoint.current()
    assert ndd.checkpoint.current() is outside
    with ndd.EvalContext() as context:
        assert ndd.checkpoint.current() is context.checkpoint is not outside
    outside.register(ndd.random.RNG(1))
    outside.collect()
    with pytest.raises(ValueError, match="seq"):
        outside.save("at.json")
    outside.clear()
    assert outside.names == ()


def test_an_array_is_one_sample():
    """As in DALI; in `jaxdali.dynamic` it is a batch."""
    image = np.random.default_rng(1).integers(0, 256, (5, 6, 3), np.uint8)
    flipped = ndd.flip(image)
    assert isinstance(flipped, ndd.Tensor)
    np.testing.assert_array_equal(flipped, image[:, ::-1])
    assert ndd.resize(image, size=(2, 3)).shape == (2, 3, 3)


def test_misused_checkpoints(tmp_path):
    state, generator = ndd.checkpoint.Checkpoint(), ndd.random.RNG(1)
    with pytest.raises(RuntimeError, match=r"call collect\(\) first"):
        state.save(str(tmp_path / "{seq}.json"))
    with pytest.raises(TypeError, match="readers and generators"):
        state.register(object())
    for name in ("", "__op_3"):
        with pytest.raises(ValueError, match="must not be empty"):
            state.register(generator, name)
    state.register(generator, "a")
    with pytest.raises(RuntimeError, match="registered as 'a' already"):
        state.register(generator, "b")
    state.collect()
    with pytest.raises(RuntimeError, match=r"call clear\(\) first"):
        state.register(ndd.random.RNG(2), "b")
    for pattern in ("state.json", "{seq}/{seq}", "{name}{seq}", "{seq}/state"):
        with pytest.raises(ValueError, match="seq"):
            state.save(str(tmp_path / pattern))
    with pytest.raises(FileNotFoundError):
        state.load(str(tmp_path / "{seq}.json"))
    for pattern in (
        "",
        "[]",
        "{}",
        '{"version": 7, "states": {}}',
        '{"version": 1, "states": {"a": {"state": 1, "type": null}}}',
    ):
        with pytest.raises(ValueError, match="checkpoint"):
            state.deserialize(pattern)
    assert state.is_complete  # a wrong text changes nothing
    expected = state.get_state("a")
    generator.key()
    state.set_state("a", expected, ndd.random.RNG)
    state.restore()
    assert generator.get_state() == expected
    state.clear()
    assert (state.names, "a" in state, state.is_complete) == ((), False, False)


def test_checkpoints_of_dali(tmp_path):
    pattern = str(tmp_path / "of [a] run" / "{{a}}_{seq:03d}.{{b}}")
    first, second = ndd.random.RNG(1), ndd.random.RNG(2)
    state = ndd.checkpoint.Checkpoint()
    assert (state.register(first, "a"), state.register(second), "a" in state, len(state)) == ("a", "__op_1", True, 2)
    second.key()
    state.collect()
    assert state.register(first) == "a"  # it is registered already
    # The folder is made.
    assert [state.save(pattern) for _ in range(2)] == [pattern.format(seq=0), pattern.format(seq=1)]
    # The last file is found, also if the format of the numbers has changed.
    assert state.load(pattern.replace("03d", "d")) == pattern.format(seq=1)
    third, fourth = ndd.random.RNG(3), ndd.random.RNG(4)
    loaded = ndd.checkpoint.Checkpoint()
    loaded.load(pattern)
    loaded.register(third, "a")
    with pytest.raises(RuntimeError, match="no objects are registered for the states '__op_1'"):
        loaded.restore()
    loaded.register(fourth)
    assert [x.get_state() for x in (third, fourth)] == [x.get_state() for x in (first, second)]
    later, fifth = ndd.checkpoint.Checkpoint(), ndd.random.RNG(5)
    later.set_state("b", second.get_state())  # before its object is registered
    later.register(fifth, "b")
    assert fifth.get_state() == second.get_state()
    with pytest.raises(TypeError, match="'b' is a RNG, so a File can't take its place"):
        later.register(ndd.readers.File(files=["x"]), "b")


def test_blocks():
    assert ndd.EvalMode.default is ndd.EvalMode.eager
    with ndd.Device("gpu", device_id=0), ndd.Device("cpu"):
        assert ndd.flip(
            ndd.batch(np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3), layout="HWC")
        ).numpy().ravel().tolist() == [
            3,
            4,
            5,
            0,
            1,
            2,
        ]
    if len(jax.local_devices()) > 1:
        with (
            pytest.raises(ValueError, match=r"gpu:1: functions run on the device of their inputs"),
            ndd.Device("gpu:1"),
        ):
            pass


def test_constructors():
    sample = ndd.Tensor([[1, 2, 3]], dtype=ndd.float32, layout="XY", device="cpu")
    assert (type(sample), sample.dtype, sample.layout, sample.device) == (
        ndd.Tensor,
        ndd.float32,
        "XY",
        ndd.Device("cpu"),
    )
    samples = ndd.Batch([sample, np.ones((2, 3))], dtype=ndd.int32, layout="YX")
    assert (samples.dtype, samples.layout, samples.shape, samples.device) == (
        ndd.int32,
        "YX",
        [(1, 3), (2, 3)],
        ndd.Device("cpu"),
    )
    assert ndd.Batch(samples).tensors[0].tolist() == [[1, 2, 3]]


def test_modes():
    assert ndd.EvalMode.current() is ndd.EvalMode.eager
    with ndd.EvalMode.sync_cpu, ndd.EvalMode.deferred:
        assert ndd.EvalMode.current() is ndd.EvalMode.deferred


def test_mathematics_of_tensors():
    roots = ndd.math.sqrt(ndd.tensor([1.0, 4.0, 9.0]))
    assert (type(roots), roots.tolist()) == (ndd.Tensor, [1, 2, 3])
    assert ndd.math.clamp(ndd.tensor([1, 5]), 2, 3).tolist() == [2, 3]
    assert type(math.sqrt(jd.tensor(np.float32([4])))) is jd.Tensor


def test_a_loop_with_capture():
    """It has the results of a loop without capture."""
    sizes = ndd.capture.invariant({"size": (4, 5)})
    epochs = [make_reader_and_rng()[0].next_epoch(batch_size=4, capture=capture) for capture in (False, True)]
    for (jpegs, _), (captured_jpegs, _) in zip(*epochs, strict=True):
        plain, captured = (ndd.resize(ndd.decoders.image(x), size=sizes["size"]) for x in (jpegs, captured_jpegs))
        np.testing.assert_array_equal(plain.numpy(), captured.numpy())


def test_unknown_arguments_of_epochs():
    reader, _ = make_reader_and_rng()
    with pytest.raises(TypeError, match=r"^File\.next_epoch: .*'compile'; it takes batch_size, ctx, capture$"):
        reader.next_epoch(batch_size=4, compile=True)
    with pytest.raises(TypeError, match=r"^File\.__call__\(\) got an unexpected keyword argument 'compile'"):
        reader(compile=True)


def has_data(source, number):
    """Calls a source `number` times. Returns whether each call gives data."""
    results = []
    for _ in range(number):
        try:
            source()
            results.append(True)
        except StopIteration:
            results.append(False)
    return results


def test_external_source():
    """Types, shapes and the behaviour at the end are those of DALI."""
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    sample = ndd.ExternalSource(lambda: a, layout="XY", dtype=ndd.int32)()
    assert (type(sample), sample.dtype, sample.layout, sample.tolist()) == (ndd.Tensor, ndd.int32, "XY", a.tolist())
    assert ndd.ExternalSource(lambda: [a, a])().shape == (2, 2, 3)  # a list is one sample, too
    repeated = ndd.ExternalSource(lambda: a)(batch_size=3)
    assert (type(repeated), repeated.shape) == (ndd.Batch, [(2, 3)] * 3)
    pair = ndd.batch([a, a])
    assert ndd.ExternalSource(lambda: pair)(batch_size=2).numpy().tolist() == [a.tolist()] * 2
    first, second = ndd.ExternalSource(lambda: (a, a), 2, dtype=[ndd.int32, None], layout=["XY", "AB"])()
    assert (first.dtype, first.layout, second.dtype, second.layout) == (ndd.int32, "XY", ndd.float32, "AB")
    for cycle, expected in (
        (None, [True, True, False, False]),
        ("no", [True, True, False, False]),
        (True, [True] * 4),
        ("quiet", [True] * 4),
        ("raise", [True, True, False, True]),
    ):
        assert has_data(ndd.ExternalSource([a, a], cycle=cycle), 4) == expected
    assert [x.shape for x in ndd.ExternalSource([a, a]).captured(batch_size=2)] == [[(2, 3)] * 2] * 2
    for mistake, message in (
        (lambda: ndd.ExternalSource(3), "a function or an iterable, got int"),
        (lambda: ndd.ExternalSource([a], cycle="x"), "cycle must be"),
        (lambda: ndd.ExternalSource(lambda: a, cycle="quiet"), "cycle needs a source"),
        (lambda: ndd.ExternalSource(lambda: (a, a), 2, layout=["XY"]), "layout has 1 entries for 2"),
        (lambda: ndd.ExternalSource(lambda: (a, a), 3)(), "must give 3 outputs, got 2"),
        (lambda: ndd.ExternalSource(lambda: pair)(batch_size=3), "batches of 3 samples, got 2"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            mistake()


def test_element_types():
    """They are DALI's, and NumPy accepts them as dtypes."""
    assert (ndd.uint16.bits, ndd.uint16.bytes, ndd.uint16.exponent_bits, ndd.float32.exponent_bits) == (16, 2, None, 8)
    assert (ndd.float16.significand_bits, ndd.float64.type_id, str(ndd.int8)) == (10, types.FLOAT64, "i8")
    assert ndd.bool.kind is ndd.DType.Kind.bool
    assert [np.zeros(3, x).dtype for x in (ndd.uint8, ndd.float32)] == [np.uint8, np.float32]
    assert ndd.tensor([1], dtype=ndd.uint8).dtype == np.uint8 == ndd.dtype("u8") == np.dtype("uint8") != ndd.int8
    assert ndd.uint8 in {ndd.dtype(types.UINT8)}
    assert pickle.loads(pickle.dumps(ndd.bfloat16)) == ndd.DType(ndd.DType.Kind.float, 16, 8, 7)
    with pytest.raises(ValueError, match="'u9' is no element type; types are i8, i16"):
        ndd.dtype("u9")
    with pytest.raises(TypeError, match="tensors of InterpType are not in jaxdali"):
        ndd.tensor([1], dtype=ndd.InterpType)


def test_numpy_on_the_left():
    small = ndd.tensor(np.array([250, 255], np.uint8))
    for product, dtype, values in (
        (np.float32(2) * small, ndd.float32, [500, 510]),
        (np.int64(2) * small, ndd.int32, [500, 510]),  # a NumPy scalar counts as a Python number, as in DALI's batches
        (np.array([1, 2], np.uint16) * small, ndd.uint16, [250, 510]),
        (np.array([1, 2], np.uint8) - small, ndd.uint8, [7, 3]),
    ):
        assert (type(product), product.dtype, product.tolist()) == (ndd.Tensor, dtype, values)
    assert (np.int64(2) * ndd.batch([small])).dtype == ndd.int32
    summed = np.add(small, 1)  # a function of NumPy
    assert (type(summed), summed.tolist()) == (np.ndarray, [251, 0])
    alias = small
    alias += 1
    assert (alias.dtype, alias.tolist(), small.tolist()) == (ndd.int32, [251, 256], [250, 255])


def test_documented_differences():
    tensor = ndd.tensor(np.arange(6).reshape(2, 3), layout="XY")
    assert (ndd.tensor(np.float32([-3, -1])) < -2).tolist() == [True, False]
    assert np.isinf(ndd.math.rsqrt(ndd.tensor([0])).item())
    assert np.isnan(ndd.math.max(ndd.tensor(np.float32([np.nan])), 1).item())
    assert (tensor[:, None].shape, tensor[:, None].layout, len(tensor), bool(ndd.tensor(0))) == (
        (2, 1, 3),
        None,
        2,
        False,
    )
    assert [row.layout for row in tensor] == ["Y", "Y"]
    assert ndd.batch([tensor, tensor + 1]).select([1]).numpy().tolist() == [[[1, 2, 3], [4, 5, 6]]]
    with pytest.raises(ValueError, match="one layout, got 'XY' and 'YX'"):
        ndd.batch([tensor, ndd.tensor(tensor, layout="YX")])
    with pytest.raises(TypeError, match="eq: operands must be batches, tensors or numbers, got Tensor, NoneType"):
        operator.eq(tensor, None)
    with pytest.raises(
        TypeError, match=r"flip: a batch can't be a sample, or a part of one \(called at .*test_dali_names"
    ):
        ndd.flip([ndd.batch([tensor])])


def test_samples_of_a_batch():
    batch = ndd.batch([[1, 2, 3], [4, 5], [6]])
    selected = batch.tensors[[2, 0]]
    assert [t.tolist() for t in selected.tolist()] == [t.tolist() for t in selected.as_batch()] == [[6], [1, 2, 3]]
    assert [t.tolist() for t in batch.tensors[1:]] == [[4, 5], [6]]
    assert batch.slice[..., -1].numpy().tolist() == [3, 5, 6]
    with pytest.raises(ValueError, match="one Ellipsis"):
        batch.slice[..., ...]
    torch = pytest.importorskip("torch")
    assert torch.equal(batch.torch(pad=True), torch.tensor([[1, 2, 3], [4, 5, 0], [6, 0, 0]], dtype=torch.int32))
    with pytest.raises(ValueError, match="without a copy"):
        batch.torch(copy=False)


def test_copies():
    """`tensor` and `batch` copy an array; `as_tensor` and `as_batch` view it."""
    array = np.zeros((2, 3), np.uint8)
    copies_and_views = [ndd.tensor(array), ndd.batch(array), ndd.as_tensor(array), ndd.as_batch(array)]
    array[:] = 7
    assert [int(np.asarray(x).max()) for x in copies_and_views] == [0, 0, 7, 7]


def epochs(number, stops=(), batch_size=4, **arguments):
    """The labels of 14 files, by epoch and batch. `stops`: (epoch, batch) pairs after which a loop is left early."""
    reader = ndd.readers.File(
        files=sorted(map(str, places.PHOTOS.glob("*/*")))[:14], labels=list(range(14)), **arguments
    )
    labels_by_epoch = []
    for epoch in range(number):
        labels_by_epoch.append([])
        for i, (_, labels) in enumerate(reader.next_epoch(batch_size=batch_size)):
            labels_by_epoch[-1].append(np.asarray(labels).ravel().tolist())
            if (epoch, i) in stops:
                break
    return labels_by_epoch


def test_epochs_of_dali():
    """The lists were recorded from DALI."""
    shard = {"shard_id": 1, "num_shards": 3}
    assert epochs(3, **shard) == [[[4, 5, 6, 7], [8, 9, 10, 11]], [[12, 13, 0, 1], [2, 3, 4, 5]], [[6, 7, 8, 9]]]
    assert epochs(2, **shard, stick_to_shard=True) == [[[4, 5, 6, 7], [8, 4, 5, 6]], [[7, 8, 4, 5], [6, 7, 8, 4]]]
    assert epochs(2, **shard, pad_last_batch=True) == [
        [[4, 5, 6, 7], [8, 8, 8, 8]],
        [[9, 10, 11, 12], [13, 13, 13, 13]],
    ]
    assert epochs(2, batch_size=None, shard_id=2, num_shards=5) == [[[5], [6], [7]], [[8], [9], [10]]]
    whole = [[4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 0, 1], [2, 3, 4, 5]]
    assert epochs(2, stops=[(0, 0)]) == [[[0, 1, 2, 3]], whole]
    assert epochs(3, stops=[(0, 0), (1, 1)], **shard) == [
        [[4, 5, 6, 7]],
        [[8, 9, 10, 11], [12, 13, 0, 1]],
        [[2, 3, 4, 5], [6, 7, 8, 9]],
    ]


def test_state_between_epochs():
    """A reader that continues from it reads the next shard."""
    files = sorted(map(str, places.PHOTOS.glob("*/*")))[:5]

    def reader():
        return ndd.readers.File(files=files, labels=list(range(5)), num_shards=2)

    def labels(reader):
        return [int(np.asarray(label)[0]) for _, label in reader.next_epoch()]

    first, second = reader(), reader()
    assert labels(first) == [0, 1]
    second.set_state(str(first.get_state()))
    assert labels(second) == labels(first) == [2, 3, 4]
    with pytest.raises(ValueError, match=r"readers\.File: this is not the state of a reader: 'nothing'"):
        second.set_state("nothing")


def test_a_reader_after_its_state():
    files = sorted(map(str, places.PHOTOS.glob("*/*")))[:14]
    reader, other_reader = (ndd.readers.File(files=files, labels=list(range(14)), max_batch_size=4) for _ in range(2))
    assert reader(batch_size=4)[1].numpy().ravel().tolist() == [0, 1, 2, 3]
    other_reader.set_state(str(reader.get_state()))
    assert [x[1].numpy().ravel()[0] for x in other_reader.next_epoch(batch_size=4)] == [4, 8, 12, 2]
    with pytest.raises(ValueError, match=r"readers\.File: batch_size=5 exceeds max_batch_size=4"):
        reader(batch_size=5)


def test_tensors_as_arguments():
    """Each call uses the current value of the tensor. It is the same for all samples of a batch."""
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    for angle in (90.0, 180.0):
        expected = np.rot90(image, int(angle) // 90)
        for rotated in (
            ndd.rotate(image, angle=ndd.tensor(angle)),
            *ndd.rotate(ndd.batch([image] * 2), angle=ndd.tensor(angle)),
        ):
            assert isinstance(rotated, ndd.Tensor)
            np.testing.assert_array_equal(rotated, expected)
    video = ndd.tensor(np.stack([image[:, :2]] * 2), layout="FHWC")
    rotated_video = ndd.rotate(video, angle=ndd.per_frame(ndd.tensor([0.0, 180.0])))
    np.testing.assert_array_equal(rotated_video[1], image[::-1, 1::-1])
    square = np.float32([[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(ndd.warp_affine(ndd.batch([image] * 2), matrix=square).numpy(), [image] * 2)
    jitted = jd.jit(lambda x: ndd.math.sqrt(ndd.tensor(4) * ndd.flip(x)))(ndd.tensor(image))
    np.testing.assert_allclose(jitted, np.sqrt(4 * image[:, ::-1].astype(np.float32)), rtol=1e-6)


def test_refused_names():
    for name, instead in (
        ("pytorch", "torchdata"),
        ("ThreadPool", "one pool"),
        ("optical_flow", "engine"),
        ("stream", "XLA manages"),
    ):
        with pytest.raises(
            AttributeError, match=rf"experimental\.dynamic\.{name} of DALI is not in jaxdali: .*{instead}"
        ):
            getattr(ndd, name)
    with pytest.raises(AttributeError, match=r"experimental\.readers of DALI is not in jaxdali: use readers\.Video"):
        ndd.experimental.readers
    with pytest.raises(AttributeError, match=r"experimental\.dynamic\.readers' has no attribute 'file'.* 'File'\?"):
        ndd.readers.file  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(
        AttributeError, match=r"EvalContext\.cached_results of DALI is not in jaxdali: .*keep the results"
    ):
        ndd.EvalContext().cached_results


def test_current_devices():
    cpu = ndd.Device("cpu")
    assert (cpu.device_id, repr(cpu), cpu == ndd.Device.CPU, ndd.device(None)) == (
        None,
        "Device(device_type='cpu')",
        True,
        None,
    )
    with cpu:
        assert ndd.Device.current() == cpu
    assert ndd.Device.current().device_type == ("cpu" if jax.default_backend() == "cpu" else "gpu")
    for arguments in (("cpu", 0), ("cpu:0",), ("gpu", -1)):
        with pytest.raises(ValueError, match=r"number|numbered|a device is"):
            ndd.Device(*arguments)
    with pytest.raises(TypeError, match="by its name, got int"):
        ndd.device(3)


def test_paths_as_bytes():
    files = sorted(map(str, places.PHOTOS.glob("*/*_0.jpg")))[:2]
    paths = [np.frombuffer(f.encode(), np.uint8) for f in files]
    expected = ndd.imread(files)
    for images in (
        ndd.imread(ndd.batch(paths)),
        ndd.imread([ndd.tensor(paths[0]), files[1]]),
        [*map(ndd.imread, paths)],
    ):
        for a, b in zip(images, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_fractions_are_cut():
    """Also those of sizes in lists, which are arrays in DALI's dynamic mode."""
    image = ndd.tensor(np.zeros((7, 9, 1), np.uint8), layout="HWC")
    for size in ([3.7, 4.5], np.array([3.7, 4.5]), ndd.tensor([3.7, 4.5])):
        assert ndd.rotate(image, angle=0, size=size).shape == (3, 4, 1)
        assert ndd.warp_affine(image, matrix=[1, 0, 0, 0, 1, 0], size=size).shape == (3, 4, 1)
        assert jd.rotate([np.zeros((7, 9, 1), np.uint8)], angle=0, size=size).shapes == [
            (4, 5, 1) if isinstance(size, list) else (3, 4, 1)
        ]
    assert ndd.one_hot(ndd.tensor([0.7, 1.9]), num_classes=3).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_forms_of_arguments():
    """DALI accepts names of types, a matrix as rows, and one number in an array."""
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert ndd.cast([1.5, 300], dtype="u8").tolist() == [2, 255]
    assert ndd.ones(shape=[2], dtype="i8").dtype == ndd.int8
    rows, flat = (ndd.warp_affine(image, matrix=m) for m in ([[1.0, 0, 1], [0, 1.0, 0]], [1.0, 0, 1, 0, 1.0, 0]))
    np.testing.assert_array_equal(rows, flat)
    for turned in ndd.rotate(ndd.batch([image] * 2), angle=np.array([180.0])):
        np.testing.assert_array_equal(turned, image[::-1, ::-1])


def test_rows_for_samples():
    """As in DALI, an array is one value for all samples. The message says how to pass a row for each."""
    images = ndd.batch(np.zeros((4, 2, 2, 3), np.uint8), layout="HWC")
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    with pytest.raises(RuntimeError, match=r"got 12 for 3 channels; jd\.batch\(rows\) gives each sample a row$"):
        ndd.crop_mirror_normalize(images, mean=rows)
    with pytest.raises(RuntimeError, match=r"got 9 for 3 channels$"):
        ndd.crop_mirror_normalize(images, mean=rows[:3])
    normalized = ndd.crop_mirror_normalize(images, mean=ndd.batch(rows)).numpy()
    np.testing.assert_array_equal(normalized, np.broadcast_to(-rows[:, :, None, None], (4, 3, 2, 2)))
