"""Writes vlm.npz: 64 photos as the image processors of transformers prepare them, with Pillow and with torchvision.

Needs transformers 5.24, torch, torchvision and Pillow 13, on a CPU with AVX2: python vlm.py, in this folder.

vlm.npz holds
  files, ends: the encoded photos, one after another, and where each ends;
  about: JSON: "photos", their names; "versions"; "processors", the arguments of each;
  shapes: int32 [64, 2], height and width of the photos as transformers' load_image reads them, and
  pixels: uint32 [64], CRC-32 of these pixels [height, width, 3];
  fractions: where values are sampled: the flattened value number floor(fraction * number of values).
Of each processor NAME:
  NAME/grid: int32 [64, n], the numbers that it returns besides pixels; 0 where it refuses the photo;
and of each NAME with each LIBRARY, "pillow" or "torchvision":
  NAME/LIBRARY/counts: int32 [64], the number of values; 0 where the processor refuses the photo;
  NAME/LIBRARY/levels: uint8 [64, samples], sampled values before these are rescaled and normalized, grey levels;
  NAME/LIBRARY/sums: uint32 [64], CRC-32 of all levels as uint8;
  NAME/LIBRARY/values: float32 [64, 32], the first samples as the processor returns them.
"""

import base64
import importlib.metadata
import io
import json
import math
import pathlib
import warnings
import zlib

import numpy as np
import torch
import transformers
from PIL import Image, ImageOps
from transformers.image_utils import load_image

PHOTOS = sorted((pathlib.Path(__file__).parents[2] / "examples" / "images").glob("*/*.jpg"))


def encode(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def exif(orientation):
    tags = Image.Exif()
    tags[0x112] = orientation
    return tags


def drawing(height, width, channels):
    """Slopes, rings and a few hard edges: uint8 [height, width, channels], or [height, width] for one channel."""
    y, x = np.mgrid[:height, :width] + 0.5
    rings = np.hypot(y - height * 0.6, x - width * 0.3)
    planes = [
        255 * x / width,
        255 * y / height,
        127 + 120 * np.sin(rings / 5),
        255 - 255 * np.clip(rings / (rings.max() + 1) - 0.3, 0, 1),  # alpha: mostly opaque
    ]
    result = np.stack(planes[:channels] if channels != 2 else planes[2:], -1).astype(np.uint8)
    result[height // 4 : height // 3, width // 5 : width // 2, :3] //= 3
    return result[..., 0] if channels == 1 else result


def photos():
    """Names and files."""
    pictures = [Image.open(path).convert("RGB") for path in PHOTOS]

    def cut(number, height, width, scale=1.0):
        """A window of a sample photo, of this extent in pixels of the photo after scaling."""
        picture = pictures[number]
        picture = picture.resize([round(n * scale) for n in picture.size], Image.LANCZOS)
        picture = ImageOps.fit(picture, (max(picture.width, width), max(picture.height, height)))
        return picture.crop((0, 0, width, height))

    def drawn(height, width, channels=3):
        return Image.fromarray(drawing(height, width, channels))

    jpeg = lambda image, **options: encode(image, "JPEG", **{"quality": 85, **options})
    png = lambda image, **options: encode(image, "PNG", optimize=True, **options)
    few = drawn(90, 130).quantize(16)
    clear = drawn(61, 47, 4).quantize(32)  # a palette with alpha
    deep = Image.fromarray((np.linspace(0, 65535, 70 * 50).reshape(70, 50)).astype(np.uint16))
    yield "jpeg 4:2:0", jpeg(cut(0, 240, 320), subsampling="4:2:0")
    yield "jpeg 4:2:2", jpeg(cut(1, 200, 150), subsampling="4:2:2")
    yield "jpeg 4:4:4", jpeg(cut(2, 180, 240), subsampling="4:4:4")
    yield "jpeg progressive", jpeg(cut(3, 200, 300), progressive=True)
    yield "jpeg progressive 4:4:4", jpeg(cut(4, 131, 97), progressive=True, subsampling="4:4:4")
    yield "jpeg gray", jpeg(cut(5, 150, 200).convert("L"))
    yield "jpeg gray progressive", jpeg(cut(6, 97, 211).convert("L"), progressive=True)
    yield "jpeg low quality", jpeg(cut(7, 256, 256), quality=20)
    yield "jpeg high quality", jpeg(cut(8, 101, 103), quality=98)
    yield "jpeg restart", jpeg(cut(9, 120, 160), restart_marker_blocks=7)
    yield "jpeg cmyk", jpeg(cut(10, 90, 120).convert("CMYK"))
    yield "jpeg large", jpeg(cut(11, 400, 600, 1.6), quality=70)
    yield "jpeg tall", jpeg(cut(12, 600, 337, 1.5), quality=60)
    yield "jpeg square", jpeg(cut(13, 224, 224))
    yield "jpeg 384", jpeg(cut(14, 384, 384, 1.4), quality=60)
    yield "jpeg tiny", jpeg(cut(15, 20, 30, 0.1))
    for orientation in range(1, 9):
        photo = cut(15 + orientation % 6, 90 + orientation, 120, 0.5)
        yield f"jpeg exif {orientation}", jpeg(photo, exif=exif(orientation))
    yield "jpeg wide", jpeg(cut(16, 12, 900, 3))
    yield "jpeg high", jpeg(cut(17, 700, 17, 3))
    yield "jpeg wide gray", jpeg(drawn(4, 900, 1))  # more than 200 times as wide as high
    yield "jpeg 1x1", jpeg(drawn(1, 1))
    yield "jpeg 5x3", jpeg(drawn(5, 3))
    yield "png", png(drawn(120, 200))
    yield "png photo", png(cut(18, 64, 96, 0.3))
    yield "png gray", png(drawn(77, 101, 1))
    yield "png gray 16 bit", png(deep)
    yield "png palette", png(few)
    yield "png palette 4 bit", png(drawn(40, 60).quantize(7), bits=4)
    yield "png palette transparent", png(few, transparency=3)
    yield "png palette alpha", png(clear)
    yield "png gray transparent", png(drawn(50, 40, 1), transparency=127)
    yield "png color transparent", png(drawn(52, 44), transparency=(10, 20, 30))
    yield "png gray alpha", png(Image.fromarray(drawing(83, 59, 2), "LA"))
    yield "png alpha", png(drawn(97, 113, 4))
    yield "png 1 bit", png(drawn(100, 140, 1).convert("1"))
    yield "png 1x1", png(drawn(1, 1))
    yield "png 1x1 alpha", png(Image.new("RGBA", (1, 1), (200, 100, 50, 128)))
    yield "png 2x300", png(drawn(2, 300))
    yield "png 199x1", png(drawn(199, 1))
    yield "png 201x1", png(drawn(201, 1))
    yield "png 13x17", png(drawn(13, 17))
    yield "png exif", png(drawn(60, 90), exif=exif(6))
    yield "png 448", png(drawn(448, 448).quantize(24))
    yield "png 31x599", png(drawn(31, 599))
    yield "webp lossy", encode(cut(4, 150, 210), "WEBP", quality=80)
    yield "webp lossy alpha", encode(drawn(71, 93, 4), "WEBP", quality=70)
    yield "webp lossless", encode(drawn(80, 100), "WEBP", lossless=True)
    yield "webp lossless alpha", encode(drawn(81, 55, 4), "WEBP", lossless=True, exact=True)
    yield "webp photo", encode(cut(10, 300, 200), "WEBP", quality=70)
    yield "gif", encode(few, "GIF")
    yield "gif transparent", encode(few, "GIF", transparency=5)
    yield "gif frames", encode(few, "GIF", save_all=True, append_images=[drawn(90, 130).rotate(90).quantize(16)])
    yield "gif gray", encode(drawn(45, 65, 1), "GIF")
    yield "bmp", encode(drawn(50, 70), "BMP")
    yield "bmp palette", encode(few, "BMP")
    yield "bmp gray", encode(drawn(33, 29, 1), "BMP")
    yield "tiff", encode(drawn(55, 66), "TIFF", compression="tiff_lzw")


PROCESSORS = {  # the class without its ending, and its arguments
    "qwen2-vl": ("Qwen2VL", {"size": {"shortest_edge": 4 * 28 * 28, "longest_edge": 64 * 28 * 28}}),
    "qwen2-vl small": ("Qwen2VL", {"size": {"shortest_edge": 28 * 28, "longest_edge": 9 * 28 * 28}}),
    # The processor of Qwen2.5-VL is that of Qwen2-VL, and Qwen3-VL's differs in numbers.
    "qwen3-vl": (
        "Qwen2VL",
        {
            "patch_size": 16,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "size": {"shortest_edge": 4 * 32 * 32, "longest_edge": 48 * 32 * 32},
        },
    ),
    "siglip2": ("Siglip2", {"max_num_patches": 64}),
    "siglip": ("Siglip", {"size": {"height": 112, "width": 112}}),
    "gemma3": ("Gemma3", {"size": {"height": 112, "width": 112}}),
    "gemma3 windows": (
        "Gemma3",
        {
            "size": {"height": 56, "width": 56},
            "do_pan_and_scan": True,
            "pan_and_scan_min_crop_size": 32,
            "pan_and_scan_max_num_crops": 4,
            "pan_and_scan_min_ratio_to_activate": 1.2,
        },
    ),
    "pixtral": ("Pixtral", {"size": {"longest_edge": 160}}),
    # transformers takes this one for InternVL.
    "internvl": (
        "GotOcr2",
        {
            "size": {"height": 56, "width": 56},
            "image_mean": [0.485, 0.456, 0.406],
            "image_std": [0.229, 0.224, 0.225],
            "crop_to_patches": True,
            "max_patches": 6,
        },
    ),
    "llama4": ("Llama4", {"size": {"height": 56, "width": 56}, "max_patches": 8}),
}
ENDINGS = {"pillow": "ImageProcessorPil", "torchvision": "ImageProcessor"}  # of the classes of each library
SAMPLES, VALUES = 256, 32


def processor(name, library, **changes):
    """The image processor of transformers."""
    start, arguments = PROCESSORS[name]
    return getattr(transformers, start + ENDINGS[library])(**arguments, **changes)


NUMBERS = ("patch_size", "merge_size", "temporal_patch_size", "max_num_patches", "resample", "image_mean", "image_std")


def numbers_of(name):
    """The arguments of a processor, and its numbers that have defaults."""
    instance = processor(name, "torchvision")
    defaults = {key: getattr(instance, key) for key in NUMBERS if hasattr(instance, key)}
    return json.loads(json.dumps({**defaults, **PROCESSORS[name][1]}, default=int))


def of_one(image, processor):
    """Values of one photo in the processor's order, without padding, and the other numbers that it returns."""
    result = processor.preprocess([image], return_tensors="pt")
    values = result.pop("pixel_values").to(torch.float32).numpy()
    if "pixel_attention_mask" in result:
        values = values[:, : result.pop("pixel_attention_mask").sum()]
    return values, np.concatenate([np.ravel(numbers) for numbers in result.values()] or [np.array(values.shape[-2:])])


def record(name, library, photos, fractions):
    """Arrays of vlm.npz for this processor with this library."""
    processed = processor(name, library)
    as_levels = processor(name, library, do_rescale=False, do_normalize=False)
    mean, std = np.array(processed.image_mean)[:, None], np.array(processed.image_std)[:, None]
    results = {"grid": [], "counts": [], "levels": [], "sums": [], "values": []}
    for photo, image in photos.items():
        try:
            levels, grid = of_one(image, as_levels)
            values, _ = of_one(image, processed)
        except ValueError as error:
            print(name, library, photo, error)
            for numbers in results.values():
                numbers.append(np.zeros_like(numbers[-1]))
            continue
        # All values come from a level. SigLIP 2 has one mean, so its channels may be taken for others here.
        by_channel = levels.reshape(-1, 3, levels.shape[-1] // 3 if levels.ndim < 4 else levels[0, ..., 0, :, :].size)
        difference = np.abs((by_channel / 255 - mean) / std - values.reshape(by_channel.shape)).max()
        assert difference <= (1e-6 if name != "llama4" else 0.008), (name, difference)  # Llama 4 computes in bfloat16
        assert levels.shape == values.shape
        assert (levels == levels.astype(np.uint8)).all()
        levels = np.ascontiguousarray(levels, np.uint8).ravel()
        places = (fractions * levels.size).astype(int)
        results["grid"].append(grid.astype(np.int32))
        results["counts"].append(np.int32(levels.size))
        results["levels"].append(levels[places])
        results["sums"].append(np.uint32(zlib.crc32(levels)))
        results["values"].append(values.ravel()[places[:VALUES]].astype(np.float32))
    return {key: np.stack(numbers) for key, numbers in results.items()}


def main():
    warnings.simplefilter("ignore")  # of Pillow, about palettes with alpha
    files = dict(photos())
    assert len(files) == 64
    images = {name: load_image(base64.b64encode(file).decode()) for name, file in files.items()}
    pixels = [np.asarray(image) for image in images.values()]
    fractions = np.arange(1, SAMPLES + 1) * ((math.sqrt(5) - 1) / 2) % 1
    results = {
        "files": np.frombuffer(b"".join(files.values()), np.uint8),
        "ends": np.cumsum([len(file) for file in files.values()]),
        "shapes": np.array([x.shape[:2] for x in pixels], np.int32),
        "pixels": np.array([zlib.crc32(np.ascontiguousarray(x)) for x in pixels], np.uint32),
        "fractions": fractions,
    }
    for name in PROCESSORS:
        for library in ENDINGS if name != "llama4" else ("torchvision",):  # which has no other one
            for key, numbers in record(name, library, images, fractions).items():
                # Both libraries return the same grids.
                path = f"{name}/grid" if key == "grid" else f"{name}/{library}/{key}"
                assert (results.setdefault(path, numbers) == numbers).all(), path
    about = {
        "photos": list(files),
        "versions": {
            name: importlib.metadata.version(name) for name in ("transformers", "torch", "torchvision", "pillow")
        },
        "processors": {name: numbers_of(name) for name in PROCESSORS},
    }
    np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), about=json.dumps(about), **results)


if __name__ == "__main__":
    main()
