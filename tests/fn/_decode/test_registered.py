"""Formats that users register with the decoders of images."""

import io
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import extend, fn, pipeline_def, types
from jaxdali.plugin.jax import data_iterator


def encoded(array):
    """A file of the format that the tests register: NumPy's."""
    file = io.BytesIO()
    np.save(file, array)
    return np.frombuffer(file.getvalue(), np.uint8)


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return np.frombuffer(file.getvalue(), np.uint8)


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(0, 100, shape).astype(dtype)
        if np.dtype(dtype).kind == "f"
        else rng.integers(0, 120, shape).astype(dtype)
    )


# The header of a .npy file is a Python literal: before CPython 3.11.8 two threads that parse one may fail
# (python/cpython#106905).
_parsing = threading.Lock()


def decoded(data):
    with _parsing:
        return np.load(io.BytesIO(data))


@pytest.fixture(autouse=True)
def registered():
    extend.register_decoder(lambda data: data.startswith(b"\x93NUMPY"), decoded, name="npy")
    yield
    extend.unregister_decoder("npy")


def run(define, *batches, **arguments):
    """The outputs of a pipeline for each of some batches."""
    batches_left = iter(batches)

    @pipeline_def(
        batch_size=max(map(len, batches)), num_threads=2, device_id=None, seed=1, exec_pipelined=False, exec_async=False
    )
    def pipeline():
        return define(fn.external_source(lambda: next(batches_left), **arguments))

    pipe = pipeline()
    pipe.build()
    return [pipe.run() for _ in batches]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64", "float16", "bool"])
@pytest.mark.parametrize("shape", [(7, 9), (7, 9, 1), (5, 6, 3), (4, 5, 6, 1), (2, 3, 4, 7)])
def test_arrays_keep_type_and_values(shape, dtype):
    arrays = [numbers((shape[0] + i, *shape[1:]), dtype, i) for i in range(3)]
    [[images]] = run(fn.decoders.image, [encoded(a) for a in arrays])
    assert images.layout() == ("DHWC" if len(shape) == 4 else "HWC")
    for x, a in zip(images, arrays, strict=True):
        np.testing.assert_array_equal(np.asarray(x), a if a.ndim > 2 else a[..., None])
        assert np.asarray(x).dtype == dtype


def test_other_types_are_rounded_and_saturated():
    [[images]] = run(lambda x: fn.decoders.image(x, dtype=types.INT8), [encoded(np.float32([[[1.5, -300, 7.4]]]))])
    assert np.asarray(images[0]).tolist() == [[[2, -128, 7]]]


def test_images_of_other_formats_beside_them():
    """Other formats are decoded as usual, if a registered format is in the first batch, and if it comes later."""
    image, photo = numbers((5, 6, 3), np.uint8), numbers((8, 9, 3), np.uint8, 1)
    batch, plain = [png(photo), encoded(image)], [png(photo), png(photo)]
    for batches in ([batch, plain], [plain, batch], [plain, plain]):
        for samples, [images] in zip(batches, run(fn.decoders.image, *batches), strict=True):
            np.testing.assert_array_equal(np.asarray(images[0]), photo)
            np.testing.assert_array_equal(np.asarray(images[1]), image if samples is batch else photo)


def test_deep_images_are_scaled_after_others():
    deep = np.uint16([[[0], [65535], [257 * 100]]])
    _, [images] = run(
        lambda x: fn.decoders.image(x, output_type=types.GRAY), [png(numbers((4, 4), np.uint8))], [encoded(deep)]
    )
    assert np.asarray(images[0]).reshape(-1).tolist() == [0, 255, 100]


@pytest.mark.parametrize("shape", [(20, 30, 2), (3, 20, 30, 1)])
def test_windows(shape):
    """Of each slice of a volume, where the decoder of windows has them in an image of that size."""
    volumes = [numbers(shape, np.int16, i) for i in range(4)]
    photos = [png(numbers((*shape[-3:-1], 3), np.uint8)) for _ in volumes]
    for define in (
        lambda x: fn.decoders.image_crop(x, crop=(8, 10), crop_pos_x=0.25, crop_pos_y=1.0),
        lambda x: fn.decoders.image_slice(x, start=(2, 3), shape=(5, 6), axes=(0, 1)),
        lambda x: fn.decoders.image_random_crop(x, seed=3, random_area=(0.2, 0.5)),
    ):
        [[windows]] = run(define, [encoded(v) for v in volumes])
        [[photo]] = run(define, photos)
        for x, p, v in zip(windows, photo, volumes, strict=True):
            x, (h, w) = np.asarray(x), np.asarray(p).shape[:2]
            assert x.shape == (*shape[:-3], h, w, shape[-1])
            places = [
                (r, c)
                for r in range(21 - h)
                for c in range(31 - w)
                if np.array_equal(v[..., r : r + h, c : c + w, :], x)
            ]
            assert places
            if (h, w) == (8, 10):
                assert places == [(12, 5)]
    with pytest.raises(jaxdali.SampleError, match=r"image_slice"):
        run(lambda x: fn.decoders.image_slice(x, start=(2, 3), shape=(50, 6), axes=(0, 1)), [encoded(volumes[0])])


def test_volumes_in_a_program():
    """Crop, rotation by a half turn, and resize of volumes are those of NumPy."""
    volumes = [numbers((6, 20 + i, 30, 1), np.int16, i) for i in range(2)]

    def define(x):
        v = fn.crop(
            fn.decoders.image(x, device="mixed"), crop=(4, 10, 12), crop_pos_x=0.0, crop_pos_y=0.0, crop_pos_z=0.0
        )
        halved = fn.resize(v, resize_z=2, resize_y=5, resize_x=6, interp_type=types.INTERP_NN)
        return v, fn.rotate(v, angle=180.0, axis=(0, 0, 1), interp_type=types.INTERP_NN, keep_size=True), halved

    [(crop, turned, halved)] = run(define, [encoded(v) for v in volumes])
    for c, t, h, v in zip(crop, turned, halved, volumes, strict=True):
        part = v[:4, :10, :12]
        np.testing.assert_array_equal(np.asarray(c.as_cpu() if hasattr(c, "as_cpu") else c), part)
        np.testing.assert_array_equal(np.asarray(t), part[:, ::-1, ::-1])
        assert np.asarray(h).shape == (2, 5, 6, 1)
        assert np.isin(np.asarray(h), part).all()


@pytest.mark.parametrize("window", [False, True])
def test_errors_are_of_their_samples(tmp_path, window):
    good, volume = numbers((6, 6, 1), np.int16), numbers((6, 6, 6, 1), np.int16)
    bad = {
        "damaged": (encoded(good)[:-3], r"decoder 'npy' failed: ValueError"),
        "volume": (encoded(volume), r"int16\[6, 6, 6, 1\].*first batch are int16 with 3 axes"),
        "type": (encoded(good.astype(np.float32)), r"float32\[6, 6, 1\]"),
        "text": (encoded(np.array([["a"]])), r"values of type"),
        "axes": (encoded(np.zeros(3)), r"must return an array"),
        "unknown": (np.arange(50, dtype=np.uint8), r"not a supported|unknown|format"),
        "large": (encoded(np.zeros((200, 6, 1), np.int16)), r"too large: 200 x 6 pixels, max_pixels is 999"),
    }
    decode = (lambda x, **a: fn.decoders.image_crop(x, crop=(2, 2), **a)) if window else fn.decoders.image
    for name, (data, message) in bad.items():
        for i, content in enumerate((encoded(good), data, encoded(good + 1))):
            (tmp_path / f"{name}{i}").write_bytes(content.tobytes())

        @pipeline_def(batch_size=3, num_threads=2, device_id=None)
        def pipeline(on_error, name=name):
            x, _ = fn.readers.file(files=[str(tmp_path / f"{name}{i}") for i in range(3)])
            return decode(x, max_pixels=999, on_error=on_error)

        with pytest.raises(jaxdali.SampleError, match=rf"{name}1.*{message}"):
            pipeline("raise").run()
        pipe = pipeline("replace")
        [images] = pipe.run()
        [wrong] = pipe.bad_samples()
        assert wrong.file.endswith(f"{name}1")
        np.testing.assert_array_equal(np.asarray(images[1]), np.asarray(images[2]))


def test_damaged_images_become_black():
    good = numbers((6, 6, 1), np.int16)
    [[images]] = run(
        lambda x: fn.decoders.image(x, on_error="replace", replace_shape=(2, 3, 3)), [encoded(good), encoded(good)[:-3]]
    )
    assert np.asarray(images[1]).shape == (2, 3, 3)
    assert not np.asarray(images[1]).any()
    with pytest.raises((ValueError, RuntimeError), match="volumes"):
        run(lambda x: fn.decoders.image(x, on_error="replace", replace_shape=(2, 3, 3)), [encoded(good[None])])


def test_errors_of_decoders_say_anything():
    def decode(data):
        if data.endswith(b"unreadable"):
            raise ValueError("the scanner gave no good sample")
        return decoded(data)

    extend.register_decoder(lambda data: data.startswith(b"\x93NUMPY"), decode, name="npy")
    good = encoded(numbers((6, 6, 1), np.int16))
    bad = np.concatenate([good, np.frombuffer(b"unreadable", np.uint8)])
    [[images]] = run(lambda x: fn.decoders.image(x, on_error="replace"), [good, bad])
    np.testing.assert_array_equal(np.asarray(images[1]), np.asarray(images[0]))


def test_the_cache_and_threads():
    calls, threads = [], set()

    def decode(data):
        calls.append(1)
        threads.add(threading.current_thread().name)
        return decoded(data)

    extend.register_decoder(lambda data: data.startswith(b"\x93NUMPY"), decode, name="npy")
    batch = [encoded(numbers((4, 5, 1), np.int16, i)) for i in range(8)]
    first, second = run(lambda x: fn.decoders.image(x, cache="1MB"), batch, batch)
    for a, b in zip(first[0], second[0], strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert len(calls) == 8 + 1  # the first one tells the type
    assert any(name.startswith("jaxdali-decoder") for name in threads)


def test_later_decoders_are_asked_first():
    extend.register_decoder(
        lambda data: data[:4] == b"\x89PNG", lambda data: np.full((1, 2, 3), 7, np.uint8), name="other png"
    )
    try:
        [[images]] = run(fn.decoders.image, [png(numbers((4, 4, 3), np.uint8))])
        assert np.asarray(images[0]).tolist() == [[[7] * 3] * 2]
        extend.register_decoder(lambda data: 1 // 0, lambda data: None, name="other png")
        with pytest.raises(jaxdali.SampleError, match="'other png' failed: ZeroDivisionError"):
            run(fn.decoders.image, [encoded(numbers((2, 2), np.uint8))])
    finally:
        extend.unregister_decoder("other png")
    with pytest.raises(ValueError, match=r"'other png'.*npy"):
        extend.unregister_decoder("other png")
    with pytest.raises(TypeError, match="matches"):
        extend.register_decoder(b"PNG", print)


def test_shapes_and_frames(tmp_path):
    photo, image = numbers((5, 6, 3), np.uint8), numbers((7, 8, 1), np.int16)
    [[shapes]] = run(fn.peek_image_shape, [png(photo), encoded(image)])
    assert shapes.as_array().tolist() == [[5, 6, 3], [7, 8, 1]]
    with pytest.raises(jaxdali.SampleError, match="volume"):
        run(fn.peek_image_shape, [encoded(image[None])])
    (tmp_path / "video").mkdir()
    frames = [numbers((5, 6, 3), np.uint8, i) for i in range(3)]
    for i, frame in enumerate(frames):
        (tmp_path / "video" / f"{i}").write_bytes((png if i == 1 else encoded)(frame).tobytes())

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return fn.readers.sequence(file_root=str(tmp_path), sequence_length=3)

    np.testing.assert_array_equal(np.asarray(pipeline().run()[0][0]), np.stack(frames))


def test_functions_of_values():
    """A call is made for the types of its values, also after calls with other ones."""
    image, volume, photo = numbers((5, 6, 3), np.uint16), numbers((3, 4, 5, 1), np.int16), numbers((5, 6, 3), np.uint8)
    for _ in range(2):
        for data, expected in ((encoded(image), image), (png(photo), photo), (encoded(volume), volume)):
            np.testing.assert_array_equal(np.asarray(jd.decoders.image([data, data])[1]), expected)
            np.testing.assert_array_equal(np.asarray(jd.decoders.image(data)), expected)


def test_shards_and_epochs(tmp_path):
    arrays = [numbers((4, 6, 5, 1), np.int16, i) for i in range(8)]
    for i, a in enumerate(arrays):
        (tmp_path / f"{i}.npy").write_bytes(encoded(a).tobytes())
    on = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("data",)), PartitionSpec("data"))

    @data_iterator(output_map=["x", "i"], reader_name="r", sharding=on)
    def iterator(num_shards, shard_id):
        x, i = fn.readers.file(
            files=[str(tmp_path / f"{i}.npy") for i in range(8)], num_shards=num_shards, shard_id=shard_id, name="r"
        )
        return fn.decoders.image(x) + np.int16(1), i

    it = iterator(batch_size=4, num_threads=2)
    for batch in [*it, *it]:
        for x, i in zip(np.asarray(batch["x"]), batch["i"], strict=True):
            np.testing.assert_array_equal(x, arrays[int(i[0])] + 1)


def test_serialized_pipelines_name_them():
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return fn.decoders.image(fn.readers.file(files=["a"])[0])

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def without():
        return fn.readers.file(files=["a"])[0]

    text = pipeline().serialize()
    jaxdali.Pipeline.deserialize(text)
    assert b"npy" not in without().serialize()
    script = "import sys, jaxdali; jaxdali.Pipeline.deserialize(sys.stdin.buffer.read())"
    run = subprocess.run([sys.executable, "-W", "always", "-c", script], input=text, capture_output=True, timeout=100)
    assert run.returncode == 0, run.stderr
    assert b"not registered here: npy" in run.stderr


def test_branches():
    a, b = numbers((4, 5, 1), np.int16), numbers((4, 5, 1), np.int16, 1)

    @pipeline_def(batch_size=2, num_threads=1, device_id=None, enable_conditionals=True)
    def pipeline():
        x, flag = fn.external_source(lambda: ([encoded(a), encoded(b)], np.array([False, True])), num_outputs=2)
        if flag:
            y = fn.decoders.image(x)
        else:
            y = fn.decoders.image(x) * np.int16(2)
        return y

    [images] = pipeline().run()
    np.testing.assert_array_equal(np.asarray(images[0]), 2 * a)
    np.testing.assert_array_equal(np.asarray(images[1]), b)
