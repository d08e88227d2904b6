"""Decoders of a GPU that make only the part of an image that a window reads (the pass `narrowed`). CPU devices stand in
for GPUs with emulated kernels; `fuse=False` is the reference, to the bit.
"""

import re
from collections.abc import Callable
from typing import Any

import emulated
import numpy as np
import pytest
import shardings
from images import encode, picture, png

from jaxdali import SampleError, extend, fn, pipeline_def, types
from jaxdali._core import ffi as _ffi
from jaxdali._program.sharding import Shards
from jaxdali.fn._decode import decode as _decode
from jaxdali.fn._decode import headers, info_rows
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function


def photos() -> list[np.ndarray]:
    """Photos of all kinds that decoders treat differently: orientations, subsampling, coefficients, pixels."""
    files = [encode(picture(90 + 7 * o, 130, seed=o), "JPEG", quality=90, orientation=o) for o in range(1, 9)]
    files += [encode(picture(64, 210, seed=k), "JPEG", quality=80, subsampling=k) for k in (0, 1, 2)]
    files += [
        encode(picture(175, 161), "JPEG", progressive=True),
        encode(picture(80, 70, 1), "JPEG"),
        png(picture(77, 95)),
    ]
    files += [
        encode(picture(66, 70), "JPEG") + b"behind the end",
        encode(picture(150, 220), "BMP"),
        encode(picture(500, 310), "JPEG"),
    ]
    return [np.frombuffer(f, np.uint8) for f in files]


FILES = photos()


class Decoded:
    """The work of the decoders in programs.

    Attributes:
      pixels: the number of decoded pixels of each batch.
    """

    def __init__(self):
        self.pixels: list[int] = []


@pytest.fixture(autouse=True)
def decoded(monkeypatch) -> Decoded:
    emulated.required()
    for name, function in emulated.functions().items():
        monkeypatch.setattr(_ffi, name, function)
    monkeypatch.setattr(Shards, "accelerator", property(lambda self: True))
    work, setup = Decoded(), _decode.DecodeImage.setup

    def spied(self, ctx, payload, info, tables):
        shapes = info_rows.output_shapes(info.data, self.output_type, self.adjust_orientation)
        work.pixels.append(int(shapes[:, :2].prod(axis=1)[ctx.present].sum()))
        return setup(self, ctx, payload, info, tables)

    monkeypatch.setattr(_decode.DecodeImage, "setup", spied)
    return work


def outputs(define: Callable[[], Any], files=FILES, n=2, **options: Any) -> tuple[list[np.ndarray], str]:
    """Returns the samples of all outputs of n batches, and the text of the program."""
    headers._refused = headers._Refused()  # as in a new process
    options = {"batch_size": len(files), "num_threads": 2, "seed": 3, "prefetch_queue_depth": 1, **options}
    pipe = pipeline_def(define, **options)()
    samples = [np.array(x) for _ in range(n) for output in pipe.run() for x in output.as_cpu()]
    text = pipe.lower(0).as_text()
    pipe.close()
    return samples, text


def source(files=FILES):
    return fn.external_source(lambda: files)


def decode(files=FILES, **options: Any):
    return fn.decoders.image(source(files), device="mixed", **options)


def coin():
    return fn.random.uniform(range=(0.0, 1.0))


def calls(text: str) -> list[str]:
    return sorted(re.findall(r"@jaxdali_emulated_(\w+)\(", text))


def compared(define: Callable[[], Any], decoded: Decoded, **options: Any) -> tuple[float, list[str], list[np.ndarray]]:
    """Compares the samples with those of images that are decoded whole. Returns the part of the pixels that is decoded,
    the native calls, and the samples.
    """
    whole, plain = outputs(define, fuse=False, **options)
    count = len(decoded.pixels)
    narrow, text = outputs(define, **options)
    assert len(decoded.pixels) == 2 * count
    assert len(whole) == len(narrow) > 0
    for i, (a, b) in enumerate(zip(narrow, whole, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), i
        np.testing.assert_array_equal(a, b, err_msg=str(i))
    assert "decode" in calls(plain)
    return sum(decoded.pixels[count:]) / sum(decoded.pixels[:count]), calls(text), narrow


# --- windows that are the part that is decoded -----------------------------------------------------------------------

CROPS = {
    "of one size": lambda x: fn.crop(x, crop=(32, 30), crop_pos_x=coin(), crop_pos_y=coin()),
    "in a corner": lambda x: fn.crop(x, crop=(33, 31), crop_pos_x=1.0, crop_pos_y=0.0, rounding="truncate"),
    "of any size": lambda x: fn.crop(
        x, crop_h=fn.random.uniform(range=(20.0, 60.0)), crop_w=fn.random.uniform(range=(20.0, 60.0)), crop_pos_x=coin()
    ),
    "of all rows": lambda x: fn.crop(x, crop=(0, 30), crop_pos_x=coin()),
    "cut to the image": lambda x: fn.crop(x, crop=(100, 40), out_of_bounds_policy="trim_to_shape"),
    "slice": lambda x: fn.slice(x, start=(3, 5), shape=(40, 41), axis_names="HW"),
}


@pytest.mark.parametrize(
    "options", [{}, {"adjust_orientation": False}, {"output_type": types.GRAY}, {"output_type": types.ANY_DATA}]
)
@pytest.mark.parametrize("crop", CROPS)
def test_only_the_crop_is_decoded(decoded, crop, options):
    part, native, samples = compared(lambda: CROPS[crop](decode(**options)), decoded)
    assert native == ["decode"]
    assert sum(decoded.pixels[2:]) == sum(x.shape[0] * x.shape[1] for x in samples)
    assert part < 0.6


def test_a_crop_of_one_size_is_dense(decoded):
    """If a crop has one size, the images are dense, so the program does not depend on their sizes."""
    _, text = outputs(lambda: CROPS["of one size"](decode()))
    (line,) = [line for line in text.splitlines() if "@jaxdali_emulated_decode(" in line]
    assert f"tensor<{len(FILES)}x32x30x3xui8>" in line


def test_operators_after_a_crop_read_it(decoded):
    def define():
        small = fn.resize(fn.crop(decode(dtype=types.UINT8), crop=(40, 50), crop_pos_x=coin()), size=(20, 24))
        return fn.crop_mirror_normalize(small, mirror=fn.random.coin_flip(), mean=[1.0, 2.0, 3.0]), fn.crop(
            decode(), crop=(9, 8)
        )

    part, native, _ = compared(define, decoded)
    assert native == ["chain", "decode", "decode"]
    assert part < 0.2


# --- windows of the part that is decoded -----------------------------------------------------------------------------


def box(data):
    """Anchors and extents of windows, as fed labels."""
    rng = np.random.default_rng(4)
    anchors = rng.uniform(-0.2, 0.9, (len(FILES), 2)).astype(np.float32)
    return fn.external_source(lambda: list(anchors)), fn.external_source(lambda: list(data))


WINDOWS = {
    "normalised": lambda x: fn.crop_mirror_normalize(
        x, crop=(32, 30), crop_pos_x=coin(), crop_pos_y=coin(), mirror=fn.random.coin_flip(), mean=[20.0, 30.0, 40.0], std=[1.0, 2.0, 4.0]
    ),
    "mirrored, with fill": lambda x: fn.crop_mirror_normalize(
        x,
        crop=(140, 31),
        crop_pos_x=coin(),
        mirror=1,
        out_of_bounds_policy="pad",
        fill_values=[1.0, 2.0, 3.0],
        pad_output=True,
        output_layout="HWC",
        dtype=types.FLOAT16,
    ),
    "converted": lambda x: fn.crop(x, crop=(20, 30), dtype=types.FLOAT),
    "with fill around": lambda x: fn.crop(x, crop=(150, 40), crop_pos_y=coin(), out_of_bounds_policy="pad", fill_values=7.0),
    "fractions": lambda x: fn.slice(x, rel_start=(0.1, 0.3), rel_end=(0.6, 0.9), axis_names="HW"),
    "of channels, too": lambda x: fn.slice(x, start=(3, 4, 1), end=(40, 30, 3), axes=(0, 1, 2)),
    "boxes": lambda x: fn.slice(x, *box(np.full((len(FILES), 2), 0.4, np.float32)), out_of_bounds_policy="pad", fill_values=9.0),
    "boxes in pixels": lambda x: fn.slice(
        x, box(0 * FILES[0][:0])[0], *[fn.external_source(lambda: [np.float32([30, 20])] * len(FILES))], normalized_shape=False,
        out_of_bounds_policy="trim_to_shape",
    ),
    "empty": lambda x: fn.slice(x, start=(5, 7), end=(5, 20), axis_names="HW"),
    "beside the image": lambda x: fn.slice(x, start=(-30, 1000), shape=(20, 10), axis_names="HW", out_of_bounds_policy="pad"),
    "on both sides": lambda x: fn.slice(x, start=(-5, 10), end=(1000, 20), axis_names="HW", out_of_bounds_policy="pad", fill_values=3.0),
    "subscript": lambda x: x[10:50:3, 40:20:-2],
    "a row": lambda x: x[13, 4:50],
}  # fmt: skip


@pytest.mark.parametrize(
    "options", [{}, {"adjust_orientation": False}, {"output_type": types.YCbCr, "dtype": types.INT16}]
)
@pytest.mark.parametrize("window", WINDOWS)
def test_only_the_window_is_decoded(decoded, window, options):
    part, native, _ = compared(lambda: WINDOWS[window](decode(**options)), decoded)
    assert native == ["decode", "window"]
    assert part < 0.6


def test_empty_window_decodes_one_pixel(decoded):
    compared(lambda: WINDOWS["beside the image"](decode()), decoded, n=1)
    assert decoded.pixels[1] == len(FILES)


# --- images that others read, too ------------------------------------------------------------------------------------


def by_device(images):
    """A crop at a position that a program computes."""
    return fn.crop(images, crop=(8, 9), crop_pos_x=fn.reductions.mean(fn.resize(decode(), size=(8, 8))) / 256.0)


WHOLE = {
    "an output": lambda x: (x, fn.crop(x, crop=(8, 9))),
    "two windows": lambda x: (fn.crop(x, crop=(8, 9)), fn.crop(x, crop=(8, 9), crop_pos_x=0.0)),
    "another reader": lambda x: (fn.crop(x, crop=(8, 9)), fn.resize(x, size=(10, 10))),
    "its size is read": lambda x: (fn.crop(x, crop=(8, 9)), fn.shapes(x)),
    "arguments from its size": lambda x: fn.crop(x, crop_h=fn.cast(fn.shapes(x)[0], dtype=types.FLOAT) / 2.0, crop_w=8),
    "arguments from the program": by_device,
    "all of it is read": lambda x: fn.crop_mirror_normalize(x, mirror=1),
    "no window": lambda x: fn.flip(x),
    "a function": lambda x: jax_function(lambda a: a, jit=False)(fn.resize(x, size=(20, 20))),
}


@pytest.mark.parametrize("reader", WHOLE)
def test_images_with_other_readers_are_decoded_whole(decoded, reader):
    assert compared(lambda: WHOLE[reader](decode()), decoded)[0] == 1


@pytest.mark.parametrize("options", [{"cache": "100MB"}, {"on_error": "replace"}])
def test_decoders_of_whole_images(decoded, options):
    assert compared(lambda: fn.crop(decode(**options), crop=(8, 9)), decoded)[0] == 1


def test_decoders_of_windows_are_not_narrowed(decoded):
    def define():
        return fn.crop(fn.decoders.image_crop(source(), crop=(40, 50), device="mixed"), crop=(9, 10), crop_pos_x=coin())

    part, native, _ = compared(define, decoded)
    assert (part, native) == (1, ["decode", "window"])


def test_replaced_samples(decoded):
    """Each replaced sample is its own window of the image that replaces it."""
    files = [FILES[0], FILES[4][:700], FILES[5], np.frombuffer(b"nothing", np.uint8)]
    compared(
        lambda: fn.crop(decode(files, on_error="replace"), crop=(30, 31), crop_pos_x=coin()), decoded, files=files, n=1
    )


def test_registered_decoders_wait_for_the_first_batch(decoded):
    extend.register_decoder(
        lambda data: data.startswith(b"\x93NUMPY"), lambda data: np.zeros((1, 1, 3), np.uint8), name="npy"
    )
    try:
        assert compared(lambda: fn.crop(decode(), crop=(8, 9)), decoded)[0] == 1
    finally:
        extend.unregister_decoder("npy")


# --- batches ---------------------------------------------------------------------------------------------------------


def test_branches(decoded):
    """If a window is in a branch, whole images are decoded, unless the decoder is in the same branch."""

    def inside():
        if fn.random.coin_flip(dtype=types.INT32, seed=4):
            images = fn.crop(decode(), crop=(40, 30), crop_pos_x=coin())
        else:
            images = fn.crop(decode(), crop=(20, 30), crop_pos_x=0.0)
        return images

    def outside():
        images = decode()
        if fn.random.coin_flip(dtype=types.INT32, seed=4):
            images = fn.crop(images, crop=(40, 30))
        return images

    def alone():
        images, boxed = decode(), fn.random.coin_flip(dtype=types.INT32, seed=4)
        if boxed:
            small = fn.crop(images, crop=(40, 30))
        else:
            small = fn.crop(decode(), crop=(20, 30))
        return small

    options = {"enable_conditionals": True}
    for define, low, high in ((inside, 0, 0.3), (outside, 1, 1), (alone, 0.3, 1)):
        decoded.pixels.clear()
        assert low <= compared(define, decoded, **options)[0] <= high


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_epochs_over_shards_with_a_short_batch(decoded, tmp_path, devices):
    files = [str(tmp_path / f"{i:02}.jpg") for i in range(len(FILES))]
    for path, data in zip(files, FILES, strict=True):
        data.tofile(path)
    options = {
        "sharding": shardings.of_batch(devices),
        "last_batch_policy": LastBatchPolicy.PARTIAL,
        "mask_name": "mask",
    }

    @data_iterator(output_map=["crops", "windows", "labels"], reader_name="reader", **options)
    def define(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            files=files, name="reader", random_shuffle=True, num_shards=num_shards, shard_id=shard_id
        )
        crops = fn.crop(fn.decoders.image(jpegs, device="mixed"), crop=(32, 30), crop_pos_x=coin())
        return (
            crops,
            fn.crop_mirror_normalize(fn.decoders.image(jpegs, device="mixed"), crop=(20, 21), crop_pos_y=coin()),
            labels,
        )

    epochs, pixels = [], []
    for fuse in (False, True):
        decoded.pixels.clear()
        with define(batch_size=6, seed=2, fuse=fuse, prefetch_queue_depth=1) as it:
            epochs.append([{k: np.asarray(v) for k, v in batch.items()} for batch in it])
        pixels.append(sum(decoded.pixels) / len(decoded.pixels))
    assert len(epochs[0]) == len(epochs[1]) == 3
    for a, b in zip(*epochs, strict=True):
        is_valid = a["mask"].astype(bool)
        for name in a:
            np.testing.assert_array_equal(a[name][is_valid], b[name][is_valid])
    assert pixels[1] < pixels[0] / 4


def test_an_eager_function_binds_later_steps(decoded):
    """The plan grows with the first batch, but the decision for the decoder stays."""

    def define():
        return jax_function(lambda x: x + 1, jit=False)(fn.crop(decode(), crop=(8, 9), crop_pos_x=coin())) * 2

    part, _, _ = compared(define, decoded, n=3)
    assert part < 0.02


# --- samples that fail -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (lambda x: fn.crop(x, crop=(70, 8)), r"crop .*created at .*-3 \.\.\. 67.*reaches outside the sample, of shape \(64, 210"),
        (lambda x: fn.slice(x, start=(0, 60), shape=(8, 50), axis_names="HW"), r"slice .*created at .*60 \.\.\. 110.*reaches outside"),
        (lambda x: fn.crop_mirror_normalize(x, crop=(70, 8)), r"crop_mirror_normalize .*created at .*reaches outside"),
        (lambda x: fn.crop(x, crop=(8, 8), crop_pos_x=fn.external_source(lambda: [np.float32(2)] * len(FILES))),
         r"crop .*created at .*crop_pos_x must be"),
        (lambda x: fn.slice(x, start=(9, 9), end=(3, 12), axis_names="HW"), r"slice .*created at .*the end must not be before the start"),
    ],
)  # fmt: skip
def test_window_outside_is_error_of_the_window(window, reason, fuse):
    with pytest.raises(SampleError, match=reason):
        outputs(lambda: window(decode()), fuse=fuse)


@pytest.mark.parametrize("fuse", [True, False])
def test_bad_file_is_error_of_the_decoder(fuse):
    files = [FILES[0], np.frombuffer(b"no image", np.uint8), FILES[9][: len(FILES[9]) // 2]]
    with pytest.raises(SampleError, match=r"decoders\.image .*sample 1"):
        outputs(lambda: fn.crop(decode(files), crop=(20, 20)), files, fuse=fuse)
    with pytest.raises(SampleError, match=r"decoders\.image .*sample 1.*truncated"):
        outputs(lambda: fn.crop(decode(files[::2]), crop=(20, 20), crop_pos_y=1.0), files[::2], fuse=fuse)


def test_missing_rows_below_the_window_are_ignored():
    """Missing rows below the window are no error, as on the CPU and with `decoders.image_crop`."""
    files = [FILES[0], FILES[9][: len(FILES[9]) * 3 // 4]]
    actual, _ = outputs(lambda: fn.crop(decode(files), crop=(20, 21), crop_pos_y=0.0), files, n=1)
    expected, _ = outputs(
        lambda: fn.decoders.image_crop(source(files), crop=(20, 21), crop_pos_y=0.0, device="mixed"), files, n=1
    )
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_refused_images_are_repaired_alone(decoded):
    """The host decodes the same part. Here bits are missing above the windows, so that libjpeg has too few for the last
    rows.
    """
    damaged = bytearray(FILES[16])
    position = damaged.index(b"\xff\xda") + 1000
    del damaged[position : position + 900]
    files = [FILES[0], np.frombuffer(bytes(damaged), np.uint8), FILES[2]]
    options = {"crop": (20, 30), "crop_pos_y": 1.0}
    for window in (lambda x: fn.crop(x, **options), lambda x: fn.crop_mirror_normalize(x, **options)):
        decoded.pixels.clear()
        compared(lambda window=window: window(decode(files)), decoded, files=files, n=1)
        assert len(decoded.pixels) == 4  # for each pipeline the batch, and the refused image
