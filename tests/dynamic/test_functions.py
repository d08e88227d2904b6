"""Functions of values: inputs and results, random numbers, threads, errors."""

import base64
import html
import io
import os
import pickle
import re
import subprocess
import sys
import threading

import counts
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from photos_of_values import FILES, images
from PIL import Image

import jaxdali.dynamic as jd
from jaxdali import SampleError, fn, math, pipeline_def, types

# --- inputs and results -----------------------------------------------------------------------------------------------


def test_files_become_a_ragged_batch():
    batch = jd.decoders.image(FILES)
    assert (len(batch), batch.dtype, batch.layout, batch.is_dense) == (5, np.uint8, "HWC", False)
    assert batch.shapes == [(60 + 4 * i, 80, 3) for i in range(5)]
    for sample, file in zip(batch, FILES):
        np.testing.assert_array_equal(sample, jd.decoders.image(file))


def test_resized_images_are_dense():
    """The number of channels of decoded images is known for all batches, and is kept from one call to the next."""
    decoded = jd.decoders.image(FILES)
    for batch in (
        decoded,
        decoded[1:4],
        decoded[[2, 0]],
        jax.tree.map(lambda x: x, decoded),
        pickle.loads(pickle.dumps(decoded)),
    ):
        resized = jd.resize(batch, size=(20, 24))
        assert (resized.is_dense, resized.numpy().shape) == (True, (len(batch), 20, 24, 3))
        np.testing.assert_array_equal(resized[0], jd.resize(jd.tensor(batch[0], layout="HWC"), size=(20, 24)))
    # Only the samples are pickled, not the unused rest of the program's buffer.
    assert len(pickle.dumps(decoded)) < 1.1 * sum(x.nbytes for x in decoded) + 2000


def test_one_sample_gives_one_sample():
    one = jd.decoders.image(FILES[0])
    assert (type(one), one.shape, one.layout) == (jd.Tensor, (60, 80, 3), "HWC")
    assert jd.resize(one, size=(30, 40)).shape == (30, 40, 3)
    assert jd.flip(jd.tensor(images()[0])).shape == (20, 30, 3)
    np.testing.assert_array_equal(jd.decoders.image(np.frombuffer(FILES[0], np.uint8)), one)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, list, jd.batch, lambda x: [jnp.asarray(s) for s in x]])
def test_arrays_of_all_kinds(convert):
    flipped = jd.flip(convert(images()), vertical=1)
    np.testing.assert_array_equal(flipped.numpy(), images()[:, ::-1, ::-1])
    assert (flipped.shapes, flipped.layout) == ([(20, 30, 3)] * 4, "HWC")


def test_torch_tensors_by_dlpack():
    torch = pytest.importorskip("torch")
    flipped = jd.flip(torch.from_numpy(images()))
    assert torch.equal(flipped.torch(), torch.from_numpy(images()[:, :, ::-1].copy()))
    ragged = jd.flip([torch.zeros(4, 5, 3, dtype=torch.uint8), torch.zeros(6, 5, 3, dtype=torch.uint8)])
    assert ragged.torch(pad=True)[0].shape == (2, 6, 5, 3)


@pytest.mark.parametrize("dense", [True, False])
def test_arguments_for_each_sample(dense):
    x = jd.batch(images() if dense else [s[: 10 + i] for i, s in enumerate(images())])
    angle = np.array([0.0, 90.0, 180.0, 30.0], np.float32)
    rotated = jd.rotate(x, angle=angle)
    for i in range(4):
        np.testing.assert_array_equal(rotated[i], jd.rotate(jd.tensor(x[i]), angle=float(angle[i])))
    for angles in (jd.batch(angle), jnp.asarray(angle)):
        for a, b in zip(jd.rotate(x, angle=angles), rotated):
            np.testing.assert_array_equal(a, b)


def test_arrays_as_arguments_for_all_samples():
    normalized = jd.crop_mirror_normalize(
        images(), mean=np.array([1.0, 2, 3]), std=[2.0, 2, 2], output_layout="HWC"
    ).numpy()
    np.testing.assert_allclose(normalized, (images() - np.array([1.0, 2, 3])) / 2, rtol=1e-6)
    sizes = np.array([[5, 6], [7, 8], [9, 10], [11, 12]])
    assert jd.resize(images(), size=sizes).shapes == [(5, 6, 3), (7, 8, 3), (9, 10, 3), (11, 12, 3)]


@pytest.mark.parametrize("number", [float, np.float32, jnp.float32])
def test_many_numbers_do_not_compile(number):
    """After the first ones, a number for all samples is passed as a value. Results are those of an equal value."""
    x, numbers = images(), [number(v) for v in np.linspace(1, 44, 20, dtype=np.float32)]
    rotate = lambda angle: jd.rotate(x, angle=angle, keep_size=True, fill_value=3.0)
    for v in numbers[:10]:
        rotate(v)
    with counts.compilations() as compiled:
        rotated = [rotate(v) for v in numbers[10:]]
    assert not compiled
    for v, batch in zip(numbers[10:], rotated):
        np.testing.assert_array_equal(batch.numpy(), rotate(np.full(4, v, np.float32)).numpy())


def test_many_numbers_change_nothing_else():
    """Shapes stay known, also for JAX, and errors are those of a constant."""
    for n in range(3, 17):
        assert jd.crop(images(), crop_w=n, crop_h=n, crop_pos_x=n / 20).is_dense
        start = 2 * n % 9, n % 5
        np.testing.assert_array_equal(
            jd.slice(images(), start=start, shape=(8, 8), axes=(0, 1)).numpy(),
            images()[:, start[0] : start[0] + 8, start[1] : start[1] + 8],
        )
        jd.crop(images(), crop=(4, 4), crop_pos_x=n / 20)
        jd.rotate([images()[0], images()[1, 1:]], angle=float(n))
        resized = jax.jit(lambda x: jd.resize(x, size=(n, n)).jax())(images())  # noqa: B023  it is called here
        assert resized.shape == (4, n, n, 3)
    assert jd.rotate(images(), angle=20.0).is_dense
    for position in (1.5, "left"):
        with pytest.raises(
            (TypeError, ValueError), match=rf"argument crop_pos_x must be a number .*, got '?{position}"
        ):
            jd.crop(images(), crop=(4, 4), crop_pos_x=position)
    for quality in range(40, 50):
        jd.jpeg_compression_distortion(images(), quality=np.float64(quality))
    with pytest.raises(TypeError, match="argument quality must be a whole number"):
        jd.jpeg_compression_distortion(images(), quality=np.float64(55.9))


def test_batches_of_different_lengths_are_refused():
    with pytest.raises(
        ValueError,
        match=r"rotate: inputs, and arguments with a value for each sample, must have the same number of samples, got 3 and 4",
    ):
        jd.rotate(images(), angle=np.zeros(3))


def test_values_for_all_samples_are_flat():
    with pytest.raises(ValueError, match=r"got 2 and 4; a single matrix is a flat list of numbers \("):
        jd.warp_affine(images(), matrix=np.eye(2, 3))
    with pytest.raises(ValueError, match=r"input 1, \(8, 9\), has one number for each sample, and .* by name \("):
        jd.resize(images(), (8, 9))


def test_batches_without_samples_are_refused():
    with pytest.raises(ValueError, match="flip: there is no sample in the batch"):
        jd.flip(images()[:0])
    with pytest.raises(ValueError, match="a batch without samples has no type"):
        jd.flip([])


def test_unhashable_functions_are_distinct():
    class Unhashable:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x):
            return x * self.factor

    for factor in range(2, 6):  # each function may get the address of the one before
        scaled = jd.python_function(images(), function=Unhashable(factor)).numpy()
        np.testing.assert_array_equal(scaled, images() * np.uint8(factor))


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_a_sequence_of_samples():
    batch = jd.decoders.image(FILES)
    assert [x.shape for x in batch[1:3]] == [(64, 80, 3), (68, 80, 3)]
    assert batch[-1].shape == (76, 80, 3)
    assert batch[[4, 0]].shapes == [(76, 80, 3), (60, 80, 3)]
    with pytest.raises(IndexError, match="sample 5 of a batch of 5"):
        batch[5]
    assert batch.slice[10:-10, 5:].shapes == [(40 + 4 * i, 75, 3) for i in range(5)]
    assert jd.batch(images()).slice[np.int64(2)].shapes == [(30, 3)] * 4
    assert "5 samples" in repr(batch)
    assert "HWC" in repr(batch)


def test_arithmetic_types_of_pipelines():
    x, y = jd.batch(images()), jd.batch([s[:9] for s in images()])
    np.testing.assert_array_equal((x / 2).numpy(), (images() / np.float32(2)).astype(np.float32))
    assert (x + 1).dtype == np.int32
    assert (2 * y - y).shapes == [(9, 30, 3)] * 4
    np.testing.assert_array_equal((x > 100).numpy(), images() > 100)
    np.testing.assert_array_equal((x == images()).numpy(), np.ones_like(images(), bool))
    np.testing.assert_allclose(math.sqrt(x).numpy(), np.sqrt(images().astype(np.float32)), rtol=1e-6)


def test_a_batch_has_no_truth_value():
    """As in NumPy: if the number of samples were the truth value, each comparison would be true."""
    with pytest.raises(ValueError, match="a batch of 4 samples has no truth value"):
        bool(jd.batch(images()) > 300)
    assert bool(jd.batch([2.0]) > 1)
    assert not jd.batch([2.0]) > 3


def test_arguments_of_pipelines_are_refused():
    with pytest.raises(TypeError, match=r"uniform: argument 'seed' is for pipelines; pass key=.*test_functions\.py"):
        jd.random.uniform(batch_size=2, seed=3, key=jax.random.key(0))
    with pytest.raises(TypeError, match="flip: argument 'name' is for pipelines"):
        jd.flip(images(), name="flipped")


def test_padding_to_one_array():
    batch = jd.decoders.image(FILES)
    with pytest.raises(ValueError, match="the samples differ in shape"):
        batch.jax()
    array, shapes = batch.jax(pad=True)
    assert (array.shape, shapes.dtype, shapes.tolist()) == (
        (5, 76, 80, 3),
        np.int32,
        [[60 + 4 * i, 80, 3] for i in range(5)],
    )
    np.testing.assert_array_equal(array[0, :60], batch[0])
    assert not np.asarray(array[0, 60:]).any()


def test_dense_batches_by_dlpack():
    """DLPack works for dense batches. A ragged batch with one shape, and read-only memory, are copied."""
    equal = jd.batch(list(images()))
    for batch in (jd.flip(jd.flip(images())), equal, jd.batch(np.asarray(jnp.asarray(images())))):
        for module in (np, jnp):
            np.testing.assert_array_equal(module.from_dlpack(batch), images())
    with pytest.raises(ValueError, match="the samples differ in shape"):
        np.from_dlpack(jd.decoders.image(FILES))


def test_devices_by_name():
    for batch in (jd.batch(images(), layout="HWC"), jd.decoders.image(FILES)):
        for device in ("cpu", "cpu:1", jax.devices()[1]):
            moved = batch.to(device)
            assert moved.device == (jax.devices()[0] if device == "cpu" else jax.devices()[1])
            assert (moved.layout, moved.shapes) == ("HWC", batch.shapes)
            for a, b in zip(moved, batch):
                np.testing.assert_array_equal(a, b)


def test_pictures_in_notebooks():
    def pictures(batch):
        page = batch._repr_html_()
        assert html.escape(repr(batch)) in page
        opened = [
            Image.open(io.BytesIO(base64.b64decode(data)))
            for data in re.findall(r'src="data:image/png;base64,([^"]*)"', page)
        ]
        return page, [np.asarray(x) for x in opened]

    decoded = jd.decoders.image(FILES)
    for a, b in zip(pictures(decoded)[1], decoded, strict=True):  # they are small enough not to be scaled
        np.testing.assert_array_equal(a, b)
    page, shown = pictures(jd.batch(np.zeros((40, 8, 9, 1), np.uint8)))
    assert (len(shown), "and 8 more" in page) == (32, True)
    planes = jd.batch(np.moveaxis(images(), -1, 1) / np.float32(255), layout="CHW")
    np.testing.assert_array_equal(pictures(planes)[1], images())
    assert max(pictures(jd.batch(np.zeros((1, 300, 1000, 3), np.uint8)))[1][0].shape) == 128
    for batch in (jd.batch(FILES), jd.batch(np.zeros(3)), decoded[:0], jd.batch(np.zeros((2, 3, 4, 5, 6)))):
        assert batch._repr_html_() is None


def test_a_batch_is_a_pytree():
    for batch in (jd.batch(images(), layout="HWC"), jd.decoders.image(FILES)):
        leaves, tree = jax.tree.flatten(batch)
        rebuilt = jax.tree.unflatten(tree, leaves)
        assert (rebuilt.shapes, rebuilt.layout) == (batch.shapes, "HWC")
        on_device = jax.device_put(batch, jax.devices()[0])
        for a, b in zip(on_device, batch):
            np.testing.assert_array_equal(a, b)
        assert jd.resize(on_device, size=(8, 8)).shapes == [(8, 8, 3)] * len(batch)
    doubled = jax.jit(lambda b: jax.tree.map(lambda x: 2 * x, b))(jd.batch(images().astype(np.float32)))
    np.testing.assert_array_equal(doubled.numpy(), 2 * images().astype(np.float32))


# --- random numbers ---------------------------------------------------------------------------------------------------


def test_keys_fix_samples_in_any_batch():
    key, keys = jax.random.key(5), jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(5), jnp.arange(4))
    whole = jd.random_resized_crop(images(), size=(8, 8), key=key)
    np.testing.assert_array_equal(jd.random_resized_crop(images(), size=(8, 8), key=keys).numpy(), whole.numpy())
    parts = [jd.random_resized_crop(images()[i : i + 2], size=(8, 8), key=keys[i : i + 2]).numpy() for i in (0, 2)]
    np.testing.assert_array_equal(np.concatenate(parts), whole.numpy())
    old = jax.random.PRNGKey(5)
    np.testing.assert_array_equal(jd.random_resized_crop(images(), size=(8, 8), key=old).numpy(), whole.numpy())
    assert (jd.random_resized_crop(images(), size=(8, 8), key=jax.random.key(6)).numpy() != whole.numpy()).any()


def test_random_numbers_are_well_distributed():
    x = jd.random.uniform(range=(0.0, 1.0), batch_size=4000, key=jax.random.key(0)).numpy()
    assert abs(x.mean() - 0.5) < 0.02
    assert abs(x.std() - 12**-0.5) < 0.01
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 0.06
    assert len(np.unique(x)) > 3990


def test_generator_gives_a_key_per_call():
    rng, equal_rng = jd.random.RNG(3), jd.random.RNG(3)
    numbers = [jd.random.uniform(batch_size=3, rng=rng).numpy() for _ in range(2)]
    assert (numbers[0] != numbers[1]).any()
    np.testing.assert_array_equal(numbers, [jd.random.uniform(batch_size=3, rng=equal_rng).numpy() for _ in range(2)])


def test_random_operators_need_a_key():
    with pytest.raises(
        ValueError, match=r"random_resized_crop: it draws random numbers: pass key=jax\.random\.key.*test_functions\.py"
    ):
        jd.random_resized_crop(images(), size=8)
    with pytest.raises(ValueError, match="there are 3 keys for 4 samples"):
        jd.random_resized_crop(images(), size=8, key=jax.random.split(jax.random.key(0), 3))
    with pytest.raises(TypeError, match=r"key must be a jax\.random\.key"):
        jd.random_resized_crop(images(), size=8, key=7)
    with pytest.raises(ValueError, match="key and rng can't be given together"):
        jd.random_resized_crop(images(), size=8, key=jax.random.key(0), rng=jd.random.RNG(0))


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_name_sample_operator_and_line():
    with pytest.raises(SampleError, match=r"decoders\.image .*test_functions\.py:(\d+)\): sample 1: ") as first:
        jd.decoders.image([FILES[0], b"no image" * 20])
    with pytest.raises(SampleError) as second:
        jd.decoders.image([FILES[0], b"no image" * 20])
    assert first.value.where != second.value.where  # although it is compiled once
    with pytest.raises(ValueError, match=r"resize.*interp_type"):
        jd.resize(images(), size=8, interp_type=99)
    # The class of an array has its attributes, and an array is compared element by element.
    with pytest.raises(
        TypeError, match=r"brightness: argument brightness must be .*, got the class float32 \(called at"
    ):
        jd.brightness(images(), brightness=np.float32)
    with pytest.raises(TypeError, match=r"flip: argument device must be .*, got the array \[\] \(called at"):
        jd.flip(images(), device=np.array([]))
    with pytest.raises(AttributeError, match="did you mean 'resize'"):
        jd.resise


def test_failed_samples_are_replaced():
    files = [FILES[0], b"no image" * 20, FILES[2]]
    with pytest.raises(SampleError, match="sample 1: ") as failed:
        jd.decoders.image(files)
    assert failed.value.index == 1
    for compile in (lambda f: f, jd.jit):
        with pytest.warns(UserWarning, match="a sample that failed was replaced: the data are not an image"):
            black = compile(lambda x: jd.decoders.image(x, on_error="replace", replace_shape=(5, 6, 3)))(files)
        assert black.shapes == [(60, 80, 3), (5, 6, 3), (68, 80, 3)]
        assert not black[1].any()
        with pytest.warns(UserWarning, match="a sample that failed was replaced"):
            replaced = compile(lambda x: jd.decoders.image(x, on_error="replace"))(files)
        np.testing.assert_array_equal(replaced[1], jd.decoders.image(FILES[2]))
        np.testing.assert_array_equal(replaced[0], jd.decoders.image(FILES[0]))


def test_nodes_are_refused():
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def definition():
        return jd.flip(fn.external_source(lambda: images()[:2], batch=True))

    with pytest.raises(ValueError, match=r"in a pipeline definition, call jaxdali\.fn\.flip"):
        definition().build()


# --- threads and processes --------------------------------------------------------------------------------------------


def test_many_threads_call_at_once():
    expected = {n: jd.resize(jd.decoders.image(FILES[:n]), size=(16, 16)).numpy() for n in (1, 3, 5)}
    wrong_sizes = []

    def work(n):
        for _ in range(10):
            resized = jd.resize(jd.decoders.image(FILES[:n]), size=(16, 16)).numpy()
            if not np.array_equal(resized, expected[n]):
                wrong_sizes.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 3, 5) * 4]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong_sizes


def test_results_survive_later_calls():
    first = jd.decoders.image(FILES)
    copies = [np.array(x) for x in first]
    for _ in range(3):
        jd.decoders.image(FILES[::-1])
    for a, b in zip(first, copies):
        np.testing.assert_array_equal(a, b)


def test_number_of_threads():
    num_threads = jd.get_num_threads()
    try:
        jd.flip(images())
        jd.set_num_threads(1)
        assert jd.get_num_threads() == 1
        assert jd.flip(images()).shapes == [(20, 30, 3)] * 4  # compiled before
        assert jd.decoders.image(FILES).shapes[0] == (60, 80, 3)
        for wrong_number in (0, 10**5):
            with pytest.raises(ValueError, match="1 to 4096"):
                jd.set_num_threads(wrong_number)
    finally:
        jd.set_num_threads(num_threads)


FORK = """
import os, sys
import jax
import numpy as np
import jaxdali.dynamic as jd
x = np.zeros((2, 4, 5, 3), np.uint8)
values = x if sys.argv[2] == "dense" else jd.batch([x[0], x[1]])
if sys.argv[1] == "after":
    jd.flip(values)
elif sys.argv[1] == "jax":
    jax.device_put(1)
pid = os.fork()
if pid == 0:
    try:
        print(jd.flip(values).dtype, flush=True)
    except RuntimeError as e:
        print(e, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("form", ["ragged", "dense"])
@pytest.mark.parametrize(
    ("first_call", "message"),
    [
        ("after", "this process was forked from one that had called functions"),
        ("jax", "this process was forked from one that had run JAX"),
        ("before", "uint8"),
    ],
)
def test_after_a_fork(first_call, message, form):
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    process = subprocess.run(
        [sys.executable, "-c", FORK, first_call, form], capture_output=True, text=True, timeout=60, env=environment
    )
    assert message in process.stdout, process.stderr


def test_generators_and_keys_after_a_fork():
    """A generator runs no JAX before its first key is taken.

    Afterwards it raises an error in a fork instead of hanging.
    """
    code = """
import os, sys
import jax
import jaxdali.dynamic as jd
rng = jd.random.RNG(3)
if sys.argv[1] == "after":
    rng.key()
pid = os.fork()
if pid == 0:
    try:
        print(jax.random.key_data(rng.key()).tolist(), flush=True)
    except RuntimeError as e:
        print(e, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code, first_key], capture_output=True, text=True, timeout=60, env=environment
        ).stdout
        for first_key in ("before", "after")
    ]
    assert outputs[0].strip() == str(np.asarray(jax.random.key_data(jd.random.RNG(3).key())).tolist())
    assert "this process was forked from one that had" in outputs[1]


def test_pickled_values():
    """Batches, samples, generators and errors."""
    ragged = jd.decoders.image(FILES)
    for batch in (ragged, jd.batch(images(), layout="HWC"), jd.batch(jnp.asarray(images()), layout="HWC")):
        copy = pickle.loads(pickle.dumps(batch))
        assert (copy.layout, copy.shapes) == ("HWC", batch.shapes)
        for a, b in zip(copy, batch):
            np.testing.assert_array_equal(a, b)
    first_images = pickle.loads(pickle.dumps(ragged[0:1])), pickle.loads(pickle.dumps(jd.decoders.image(FILES[0])))
    assert (type(first_images[1]), first_images[1].layout) == (jd.Tensor, "HWC")
    np.testing.assert_array_equal(first_images[0][0], first_images[1])
    rng = jd.random.RNG(3)
    rng.key()
    with pytest.raises(SampleError) as error_info:
        jd.decoders.image([FILES[0], b"no image" * 20])
    error_copy = pickle.loads(pickle.dumps(error_info.value))
    assert (type(error_copy), str(error_copy), error_copy.index, error_copy.operator) == (
        SampleError,
        str(error_info.value),
        1,
        "decoders.image",
    )
    rng_copy = pickle.loads(pickle.dumps(rng))
    np.testing.assert_array_equal(jax.random.key_data(rng_copy.key()), jax.random.key_data(rng.key()))


def test_pickled_compiled_functions():
    """By value, as data loaders pickle functions; the other process compiles it again."""
    cloudpickle = pytest.importorskip("cloudpickle")
    compiled = jd.jit(lambda x, key: jd.flip(jd.random_resized_crop(x, size=(8, 8), key=key)))
    expected = compiled(images(), jax.random.key(0)).numpy()
    copy = cloudpickle.loads(cloudpickle.dumps(compiled))
    np.testing.assert_array_equal(copy(images(), jax.random.key(0)).numpy(), expected)


def test_threads_under_load():
    """Programs, errors and changes of the number of native threads at once: each call has the result that it has alone."""
    compiled = jd.jit(lambda x, key: jd.resize(jd.decoders.image_random_crop(x, key=key), size=(16, 16)))
    keys = list(jax.random.split(jax.random.key(1), 4))
    expected = [compiled(FILES[: i + 1], keys[i]).numpy() for i in range(4)]
    failures, num_threads, start = [], jd.get_num_threads(), threading.Barrier(9)

    def work(i):
        start.wait()
        for turn in range(12):
            if not np.array_equal(compiled(FILES[: i + 1], keys[i]).numpy(), expected[i]):
                failures.append(i)
            try:
                jd.decoders.image([*FILES[:i], b"no image"])
                failures.append("no error")
            except SampleError as e:
                if e.index != i or f"sample {i}:" not in str(e):
                    failures.append(e)
            dense = jd.flip(images((i + 1, 4, 5, 3)))
            if not np.array_equal(dense.numpy(), images((i + 1, 4, 5, 3))[:, :, ::-1]):
                failures.append((i, turn))

    def change():
        start.wait()
        for n in range(40):
            jd.set_num_threads(n % 4 + 1)

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1, 2, 3) * 2] + [threading.Thread(target=change)]
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        jd.set_num_threads(num_threads)
    assert not failures


def test_types_of_results():
    assert jd.cast(images(), dtype=types.FLOAT16).dtype == np.float16
    assert jd.random.coin_flip(batch_size=2, key=jax.random.key(0)).jax().dtype == np.int32
    assert jd.cast(images(), dtype=types.INT64).jax().dtype == np.int32  # unless JAX has 64-bit types


def test_lists_of_values_for_the_samples():
    images = np.random.default_rng(1).integers(0, 256, (3, 12, 10, 3), np.uint8)
    angles = [10.0, np.float32(20), jnp.float32(30)]
    expected = jd.rotate(images, angle=np.array([10, 20, 30], np.float32), keep_size=True)
    np.testing.assert_array_equal(jd.rotate(images, angle=angles, keep_size=True).numpy(), expected.numpy())
    sizes = [np.array([4, 5]), np.array([6, 7]), np.array([8, 9])]
    assert jd.resize(images, size=sizes).shapes == [(4, 5, 3), (6, 7, 3), (8, 9, 3)]
    with pytest.raises(ValueError, match="same number of samples, got 2 and 3"):
        jd.rotate(images, angle=[1.0, 2.0])


def test_vmap_is_refused():
    with pytest.raises(ValueError, match=r"functions work on batches, so jax\.vmap can't add an axis"):
        jax.vmap(lambda x: jd.flip(x).jax())(jnp.zeros((2, 3, 4, 4, 3), jnp.uint8))


def test_small_results_free_their_buffers():
    """A kept result would reserve a buffer as large as the program's, with room for photos."""
    images = [np.arange(h * 12, dtype=np.uint8).reshape(h, 4, 3) for h in (5, 6)]
    flipped = jd.flip(images)
    assert isinstance(flipped._data, np.ndarray)
    assert flipped._data.base is None or flipped._data.base.nbytes < 1000
    for x, y, z in zip(images, flipped, jd.flip(flipped), strict=True):  # which copies it into a large one
        np.testing.assert_array_equal(y, x[:, ::-1])
        np.testing.assert_array_equal(z, x)
