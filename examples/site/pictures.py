"""The example of each operator, and its picture: values before and after, made by running the example."""

from __future__ import annotations

import ast
import functools
import pathlib
import warnings
from typing import Any

import matplotlib.figure
import numpy as np
import scipy.signal
from PIL import Image

import jaxdali
from jaxdali import fn, tfrecord, types
from jaxdali._tensors.thumbnails import as_images, pixels_of, scale_of

ROOT = pathlib.Path(__file__).parents[2]
PHOTOS = ROOT / "examples" / "images"
VIDEO = ROOT / "tests" / "data" / "video"
RATE = 16000
SAMPLES = 3  # of an example whose results differ

# An expression each; its names are those of `inputs`.
EXAMPLES = {
    "audio_resample": "fn.audio_resample(sound, in_rate=16000, out_rate=8000, antialias=True)",
    "mel_filter_bank": "fn.mel_filter_bank(spectrum, nfilter=64, sample_rate=16000)",
    "mfcc": "fn.mfcc(mel, n_mfcc=20)",
    "nonsilent_region": "fn.nonsilent_region(sound, cutoff_db=-30)",
    "power_spectrum": "fn.power_spectrum(sound)",
    "preemphasis_filter": "fn.preemphasis_filter(sound, preemph_coeff=0.97)",
    "spectrogram": "fn.spectrogram(sound, nfft=512, window_length=400, window_step=160)",
    "to_decibels": "fn.to_decibels(spectrum, cutoff_db=-80)",
    "bb_flip": "fn.bb_flip(boxes, ltrb=True, horizontal=1)",
    "bbox_paste": "fn.bbox_paste(boxes, ltrb=True, ratio=1.5, paste_x=0.3, paste_y=0.7)",
    "bbox_rotate": "fn.bbox_rotate(boxes, labels, angle=20, input_shape=[256, 256], bbox_layout='xyXY', shape_layout='HW')",
    "box_encoder": "fn.box_encoder(boxes, labels, anchors=[0.1, 0.1, 0.5, 0.5, 0.4, 0.4, 0.9, 0.9, 0.6, 0.0, 1.0, 0.3])",
    "random_bbox_crop": "fn.random_bbox_crop(boxes, labels, bbox_layout='xyXY', thresholds=[0.3], aspect_ratio=[0.5, 2.0])",
    "roi_random_crop": "fn.roi_random_crop(photo, crop_shape=[120, 120], roi_start=[40, 60], roi_shape=[80, 80])",
    "ssd_random_crop": "fn.ssd_random_crop(photo, boxes, labels)",
    "parse_example": (
        "fn.parse_example(example, features={'image': tfrecord.FixedLenFeature((), tfrecord.string), "
        "'label': tfrecord.FixedLenFeature((), tfrecord.int64)})"
    ),
    "parse_tensor": "fn.parse_tensor(tensor)",
    "peek_image_shape": "fn.peek_image_shape(jpeg)",
    "decoders.audio": "fn.decoders.audio(wav)",
    "decoders.image": "fn.decoders.image(jpeg)",
    "decoders.image_crop": "fn.decoders.image_crop(jpeg, crop=(160, 160))",
    "decoders.image_patches": "fn.decoders.image_patches(jpeg, size=(64, 96), patch_size=16, length=32)",
    "decoders.image_random_crop": "fn.decoders.image_random_crop(jpeg, random_area=(0.1, 0.6))",
    "decoders.image_slice": "fn.decoders.image_slice(jpeg, start=[40, 60], shape=[120, 160], axis_names='HW')",
    "decoders.inflate": "fn.decoders.inflate(compressed, shape=[256, 256, 3], layout='HWC')",
    "decoders.numpy": "fn.decoders.numpy(npy)",
    "decoders.video": "fn.decoders.video(mp4)",
    "experimental.dilate": "fn.experimental.dilate(photo, mask_size=[9, 9])",
    "experimental.erode": "fn.experimental.erode(photo, mask_size=[9, 9])",
    "experimental.median_blur": "fn.experimental.median_blur(photo, window_size=[9, 9])",
    "experimental.remap": "fn.experimental.remap(photo, map_x, map_y)",
    "experimental.resize": "fn.experimental.resize(photo, resize_x=160, resize_y=96)",
    "experimental.warp_perspective": (
        "fn.experimental.warp_perspective(photo, matrix=[1, 0.2, 0, 0.1, 1, 0, 0.001, 0.0005, 1], size=(256, 256), fill_value=0)"
    ),
    "brightness": "fn.brightness(photo, brightness=1.6)",
    "brightness_contrast": "fn.brightness_contrast(photo, brightness=1.2, contrast=1.5)",
    "clahe": "fn.clahe(photo, tiles_x=8, tiles_y=8, clip_limit=3.0)",
    "color_space_conversion": "fn.color_space_conversion(photo, image_type=types.RGB, output_type=types.YCbCr)",
    "color_twist": "fn.color_twist(photo, hue=60, saturation=1.5, contrast=1.2)",
    "contrast": "fn.contrast(photo, contrast=2.0)",
    "crop": "fn.crop(photo, crop=(160, 120))",
    "crop_mirror_normalize": (
        "fn.crop_mirror_normalize(photo, crop=(200, 200), mirror=1, mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4])"
    ),
    "debayer": "fn.debayer(mosaic, blue_position=[1, 1])",
    "equalize": "fn.equalize(dark)",
    "erase": "fn.erase(photo, anchor=[60, 80], shape=[90, 90], axis_names='HW', fill_value=[118, 185, 0])",
    "fast_resize_crop_mirror": "fn.fast_resize_crop_mirror(photo, resize_shorter=200, crop=(160, 160), mirror=1)",
    "filter": "fn.filter(photo, emboss)",
    "flip": "fn.flip(photo, horizontal=1)",
    "gaussian_blur": "fn.gaussian_blur(photo, sigma=4.0)",
    "grid_mask": "fn.grid_mask(photo, tile=48, ratio=0.5, angle=0.4)",
    "hsv": "fn.hsv(photo, hue=120, saturation=1.3, value=0.9)",
    "hue": "fn.hue(photo, hue=120)",
    "jitter": "fn.jitter(photo, nDegree=9)",
    "jpeg_compression_distortion": "fn.jpeg_compression_distortion(photo, quality=5)",
    "laplacian": "fn.laplacian(photo, window_size=5, dtype=types.FLOAT)",
    "patchify": "fn.patchify(photo, patch_size=64, merge_size=2, length=20)",
    "multi_paste": (
        "fn.multi_paste(photo, in_ids=[0, 1], shapes=[[128, 256], [128, 256]], out_anchors=[[128, 0], [0, 0]], output_size=(256, 256))"
    ),
    "pad": "fn.pad(photo, axis_names='HW', shape=[320, 300], fill_value=90)",
    "paste": "fn.paste(photo, ratio=1.6, paste_x=0.2, paste_y=0.8, fill_value=(90, 90, 90))",
    "random_crop_generator": "fn.random_crop_generator(shape)",
    "random_resized_crop": "fn.random_resized_crop(photo, size=(160, 160))",
    "resize": "fn.resize(photo, size=(96, 160))",
    "resize_crop_mirror": "fn.resize_crop_mirror(photo, resize_shorter=200, crop=(160, 160), mirror=1)",
    "rotate": "fn.rotate(photo, angle=30, fill_value=0)",
    "saturation": "fn.saturation(photo, saturation=2.5)",
    "slice": "fn.slice(photo, start=[60, 40], shape=[120, 160], axis_names='HW')",
    "sphere": "fn.sphere(photo)",
    "tensor_resize": "fn.tensor_resize(photo, sizes=[96, 160, 3])",
    "warp_affine": "fn.warp_affine(photo, matrix=[1, 0.3, -40, 0, 1, 0], fill_value=0)",
    "water": "fn.water(photo, ampl_x=8, ampl_y=8)",
    "io.file.read": "fn.decoders.image(fn.io.file.read(path))",
    "noise.gaussian": "fn.noise.gaussian(photo, stddev=30)",
    "noise.salt_and_pepper": "fn.noise.salt_and_pepper(photo, prob=0.1)",
    "noise.shot": "fn.noise.shot(photo, factor=20)",
    "random.beta": "fn.random.beta(alpha=2.0, beta=5.0, shape=[10000])",
    "random.choice": "fn.random.choice(4, p=[0.1, 0.2, 0.3, 0.4], shape=[10000])",
    "random.coin_flip": "fn.random.coin_flip(probability=0.3, shape=[10000])",
    "random.key": "fn.random.key()",
    "random.normal": "fn.random.normal(mean=1.0, stddev=0.5, shape=[10000])",
    "random.uniform": "fn.random.uniform(range=(-1.0, 1.0), shape=[10000])",
    **{
        f"reductions.{x}": f"fn.reductions.{x}(photo, axes=[2])"
        for x in ("max", "mean", "mean_square", "min", "rms", "sum")
    },
    "reductions.std_dev": "fn.reductions.std_dev(photo, fn.reductions.mean(photo, axes=[2], keep_dims=True), axes=[2])",
    "reductions.variance": "fn.reductions.variance(photo, fn.reductions.mean(photo, axes=[2], keep_dims=True), axes=[2])",
    "segmentation.random_mask_pixel": "fn.segmentation.random_mask_pixel(mask, foreground=1)",
    "segmentation.random_object_bbox": "fn.segmentation.random_object_bbox(mask, ignore_class=True, foreground_prob=1.0)",
    "segmentation.select_masks": "fn.segmentation.select_masks(mask_ids, polygons, vertices)",
    "sizes.longest_side": "fn.sizes.longest_side(shape, size=256, patch_size=16)",
    "sizes.padded_tiles": "fn.sizes.padded_tiles(shape, tile_size=336, max_tiles=16)",
    "sizes.pan_and_scan": "fn.sizes.pan_and_scan(shape, min_crop_size=64, min_ratio=1.0)",
    "sizes.patch_budget": "fn.sizes.patch_budget(shape, patch_size=16, max_patches=256)",
    "sizes.smart_resize": "fn.sizes.smart_resize(shape, factor=28, min_pixels=3136, max_pixels=50176)",
    "sizes.token_budget": "fn.sizes.token_budget(shape, patch_size=16, pool_size=3, max_tokens=70)",
    "sizes.tiles": "fn.sizes.tiles(shape, tile_size=448, max_tiles=12)",
    "external_source": "photo",
    "batch_permutation": "fn.batch_permutation()",
    "cast": "fn.cast(photo, dtype=types.FLOAT)",
    "cast_like": "fn.cast_like(photo, matrix)",
    "cat": "fn.cat(photo, photo, axis=1)",
    "constant": "fn.constant(idata=[1, 2, 3, 4, 5, 6], shape=[2, 3])",
    "coord_flip": "fn.coord_flip(points, flip_x=1, flip_y=0)",
    "coord_transform": "fn.coord_transform(points, M=[0.7, -0.7, 0.7, 0.7], T=[0.5, -0.2])",
    "copy": "fn.copy(photo)",
    "element_extract": "fn.element_extract(frames, element_map=[1])",
    "expand_dims": "fn.expand_dims(matrix, axes=[0])",
    "full": "fn.full(7, shape=[2, 3])",
    "full_like": "fn.full_like(matrix, 7)",
    "get_property": "fn.get_property(photo, key='layout')",
    "lookup_table": "fn.lookup_table(class_map, keys=[0, 1], values=[40, 200], default_value=0)",
    "normalize": "fn.normalize(photo, axis_names='HW')",
    "one_hot": "fn.one_hot(label, num_classes=5)",
    "ones": "fn.ones(shape=[2, 3])",
    "ones_like": "fn.ones_like(matrix)",
    "per_frame": "fn.rotate(frames, angle=fn.per_frame(angles), keep_size=True)",
    "permute_batch": "fn.permute_batch(photo, indices=[2, 0, 1])",
    "python_function": "fn.python_function(photo, function=lambda x: 255 - x)",
    "dl_tensor_python_function": "fn.dl_tensor_python_function(matrix, function=lambda x: x)",
    "reinterpret": "fn.reinterpret(matrix, dtype=types.INT32)",
    "reshape": "fn.reshape(matrix, shape=[3, 2])",
    "sequence_rearrange": "fn.sequence_rearrange(frames, new_order=[2, 1, 0])",
    "shapes": "fn.shapes(photo)",
    "squeeze": "fn.squeeze(mask, axes=[2])",
    "stack": "fn.stack(matrix, matrix)",
    "transpose": "fn.transpose(photo, perm=[1, 0, 2])",
    "zeros": "fn.zeros(shape=[2, 3])",
    "zeros_like": "fn.zeros_like(matrix)",
    "dump_image": "fn.dump_image(photo, suffix='page')",
    "transforms.combine": "fn.transforms.combine(matrix, fn.transforms.rotation(angle=30))",
    "transforms.crop": "fn.transforms.crop(from_start=[0, 0], from_end=[1, 1], to_start=[0.2, 0.2], to_end=[0.8, 0.8])",
    "transforms.rotation": "fn.transforms.rotation(angle=30)",
    "transforms.scale": "fn.transforms.scale(scale=[1.5, 0.8])",
    "transforms.shear": "fn.transforms.shear(shear=[0.3, 0.0])",
    "transforms.translation": "fn.transforms.translation(offset=[0.3, 0.1])",
}


def _photo(name: str) -> np.ndarray:
    with Image.open(PHOTOS / name) as image:
        return np.asarray(image.convert("RGB").resize((256, 256)))


def _sound() -> np.ndarray:
    """Half a second of silence, a rising tone with overtones, and silence."""
    t = np.arange(RATE) / RATE
    tone = sum(np.sin(2 * np.pi * k * (200 * t + 400 * t**2)) / k for k in range(1, 8))
    quiet = np.random.default_rng(0).normal(0, 1e-3, RATE // 2)
    return np.concatenate([quiet, 0.2 * tone, quiet]).astype(np.float32)


def _field(number: int, data: bytes) -> bytes:
    """A field of a message of Protocol Buffers: its key, its size in groups of 7 bits, and its bytes."""
    size = [len(data) >> 7 * k & 127 for k in range(max(1, -(-len(data).bit_length() // 7)))]
    return bytes([number << 3 | 2, *(n | 128 for n in size[:-1]), size[-1]]) + data


@functools.cache
def inputs() -> dict[str, tuple[Any, str]]:
    """The values that examples begin with: a sample, or one for each of three, and its layout."""
    import io

    import lz4.block

    photo, sound = _photo("astronaut/astronaut_0.jpg"), _sound()
    y, x = np.mgrid[:256, :256].astype(np.float32)
    spectrum = np.abs(scipy.signal.stft(sound, RATE, nperseg=400, noverlap=240, nfft=512)[2]).astype(np.float32) ** 2
    npy, wav = io.BytesIO(), io.BytesIO()
    np.save(npy, photo)
    scipy.io.wavfile.write(wav, RATE, (sound * 32767).astype(np.int16))
    bayer = photo.copy()[..., 2]
    bayer[0::2, 1::2], bayer[1::2, 0::2], bayer[1::2, 1::2] = (
        photo[0::2, 1::2, 1],
        photo[1::2, 0::2, 1],
        photo[1::2, 1::2, 0],
    )
    disc = ((x - 100) ** 2 + (y - 120) ** 2 < 60**2).astype(np.int32)
    encoded = lambda b: (np.frombuffer(b, np.uint8), "")
    jpeg = (PHOTOS / "astronaut" / "astronaut_0.jpg").read_bytes()
    features = {b"image": _field(1, _field(1, jpeg)), b"label": _field(3, _field(1, b"\3"))}
    entries = (_field(1, _field(1, name) + _field(2, feature)) for name, feature in features.items())
    # A TensorProto of uint8 (4) and the shape [256, 256, 3].
    dims = b"".join(_field(2, b"\x08" + n) for n in (b"\x80\2", b"\x80\2", b"\3"))
    return {
        "photo": (photo, "HWC"),
        "dark": ((photo * 0.4).astype(np.uint8), "HWC"),
        "mosaic": (bayer[..., None], "HWC"),
        "mask": (disc[..., None], "HWC"),
        "class_map": (disc.astype(np.uint8), "HW"),
        "frames": (np.stack([photo, _photo("coffee/coffee_0.jpg"), _photo("cat/cat_0.jpg")]), "FHWC"),
        "angles": (np.array([0, 30, 60], np.float32), "F"),
        "jpeg": encoded(jpeg),
        "example": encoded(_field(1, b"".join(entries))),
        "tensor": encoded(b"\x08\4" + _field(2, dims) + _field(4, photo.tobytes())),
        "path": (np.frombuffer(str(PHOTOS / "astronaut" / "astronaut_0.jpg").encode(), np.uint8), ""),
        "npy": encoded(npy.getvalue()),
        "wav": encoded(wav.getvalue()),
        "mp4": encoded((VIDEO / "709.mp4").read_bytes()),
        "compressed": encoded(lz4.block.compress(photo.tobytes(), store_size=False)),
        "sound": (sound, ""),
        "spectrum": (spectrum, "ft"),
        "mel": (10 * np.log10(np.maximum(1e-8, spectrum[:128])), "ft"),
        "emboss": (np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32), "HW"),
        "map_x": (x + 12 * np.sin(y / 20), "HW"),
        "map_y": (y + 12 * np.cos(x / 20), "HW"),
        "boxes": (np.array([[0.1, 0.1, 0.5, 0.6], [0.45, 0.3, 0.9, 0.85]], np.float32), ""),
        "labels": (np.array([1, 2], np.int32), ""),
        "label": (np.array([3], np.int32), ""),
        "points": (np.array([[0.1, 0.2], [0.3, 0.8], [0.6, 0.4], [0.9, 0.7]], np.float32), ""),
        "matrix": (np.array([[1, 0, 0.5], [0, 1, 0.25]], np.float32), ""),
        "shape": (np.array([256, 256], np.int64), ""),
        "mask_ids": (np.array([1], np.int32), ""),
        "polygons": (np.array([[0, 0, 3], [1, 3, 7]], np.int32), ""),
        "vertices": (
            np.array([[0.1, 0.1], [0.4, 0.1], [0.2, 0.5], [0.5, 0.5], [0.9, 0.5], [0.9, 0.9], [0.5, 0.9]], np.float32),
            "",
        ),
    }


def uses(example: str) -> list[str]:
    """The inputs that an example names, in their order."""
    names = [n for n in ast.walk(ast.parse(example)) if isinstance(n, ast.Name)]
    names.sort(key=lambda n: n.col_offset)
    return list(dict.fromkeys(n.id for n in names if n.id in inputs()))


def pipeline_of(example: str, gpu: bool = False) -> jaxdali.Pipeline:
    """A pipeline of the example. `gpu`: its inputs are moved there first."""

    @jaxdali.pipeline_def(batch_size=SAMPLES, num_threads=1, device_id=None, seed=3, prefetch_queue_depth=1)
    def definition():
        names: dict[str, Any] = {"fn": fn, "types": types, "tfrecord": tfrecord}
        for name in uses(example):
            value, layout = inputs()[name]
            node: Any = fn.external_source(
                source=functools.partial(lambda v: [v] * SAMPLES, value), batch=True, layout=layout or None
            )
            names[name] = node.gpu() if gpu else node
        values = eval(example, names)
        values = tuple(values.values()) if isinstance(values, dict) else values
        return tuple(values) if isinstance(values, (list, tuple)) else values

    return definition()  # pyright: ignore[reportCallIssue]


def run(example: str) -> list[tuple[list[np.ndarray], str]]:
    """The outputs of an example: samples, and their layout. One sample if all are equal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = pipeline_of(example)
        outputs = [([np.asarray(s) for s in x.as_cpu()], x.layout()) for x in pipeline.run()]
        pipeline.close()
    alike = all(
        s.shape == samples[0].shape and np.array_equal(s, samples[0]) for samples, _ in outputs for s in samples
    )
    return [(samples[:1] if alike else samples, layout) for samples, layout in outputs]


def draw(name: str, example: str, file: pathlib.Path) -> str:
    """Draws the example's inputs and outputs into `file`; returns a description, which is the picture's alternative
    text.
    """
    inputs_shown = [(n, [inputs()[n][0]], inputs()[n][1]) for n in uses(example)]
    outputs_shown = [
        (f"output {i}" if i else "after", samples, layout) for i, (samples, layout) in enumerate(run(example))
    ]
    cells = [(title, s, layout) for title, samples, layout in (*inputs_shown, *outputs_shown) for s in samples]
    columns = min(4, len(cells))
    rows = -(-len(cells) // columns)
    figure = matplotlib.figure.Figure(figsize=(2.3 * columns, 2.3 * rows), layout="constrained")
    for place, (title, sample, layout) in enumerate(cells):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.set_title(f"{title}  {'x'.join(map(str, sample.shape))} {sample.dtype}", fontsize=7)
        axes.tick_params(labelsize=6)
        _draw(axes, sample, layout, title, name)
    figure.savefig(file, dpi=110)
    return f"{', '.join(n for n, *_ in inputs_shown) or 'nothing'} before, and the result of {name}"


def _draw(axes: Any, x: np.ndarray, layout: str, title: str, operator: str):
    """One value: pictures, sound as a spectrogram, boxes, points, a histogram, or numbers."""
    if layout and layout[0] == "F" and x.ndim == 4:
        x = np.concatenate(list(x[:3]), 1)
        layout = "HWC"
    if layout == "ft":
        power = x if x.min() < 0 else 10 * np.log10(np.maximum(x, 1e-8))
        axes.imshow(power, origin="lower", aspect="auto", interpolation="nearest")
    elif x.ndim >= 2 and sorted(x.shape)[-2] > 8 and (images := as_images([x], layout)):
        axes.imshow(
            pixels_of(images[0], (0, max(1, x.max())) if layout == "HW" else scale_of(images)),
            cmap="gray",
            vmin=0,
            vmax=1,
        )
        axes.set_axis_off()
    elif operator.startswith("random.") and x.size > 64:
        axes.hist(x.ravel(), bins=40)
    elif x.dtype == np.uint8 and x.ndim == 1 and x.size > 64:
        axes.text(
            0.5,
            0.5,
            f"{x.size} bytes\n{x[:6].tobytes().hex(' ')} ...",
            ha="center",
            va="center",
            fontsize=7,
            family="monospace",
        )
        axes.set_axis_off()
    elif x.size > 2000 and max(x.shape) == x.size and (operator != "power_spectrum" or title == "sound"):
        rate = RATE // 2 if (operator, title) == ("audio_resample", "after") else RATE
        axes.specgram(x.ravel() + 1e-9, NFFT=512, noverlap=352, Fs=rate)
    elif x.ndim == 1 and x.size > 64:
        axes.plot(x, linewidth=0.6)
    elif x.ndim == 2 and x.shape[1] == 4 and x.dtype.kind == "f":
        _boxes(axes, x)
    elif x.ndim == 2 and x.shape[1] == 2 and operator.startswith(("coord_", "segmentation.")):
        axes.scatter(x[:, 0], x[:, 1], c=np.arange(len(x)))
    elif x.shape == (2, 3) and operator.startswith("transforms."):
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], np.float32)
        axes.plot(*corners.T, ":", color="gray")
        axes.plot(*(corners @ x[:, :2].T + x[:, 2]).T)
        axes.set_aspect("equal")
    else:
        axes.text(
            0.5,
            0.5,
            np.array2string(x, precision=3, threshold=40),
            ha="center",
            va="center",
            fontsize=7,
            family="monospace",
        )
        axes.set_axis_off()


def _boxes(axes: Any, boxes: np.ndarray):
    from matplotlib.patches import Rectangle

    for i, (left, top, right, bottom) in enumerate(boxes):
        axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=f"C{i}", linewidth=2))
    axes.set(xlim=(0, 1), ylim=(1, 0))
    axes.set_aspect("equal")
