"""Writes evaluation.npz: checksums of a hundred photos as other libraries prepare them for evaluation, and a resized array of floats.

Needs torch, torchvision, timm, transformers, clean-fid and pillow, on a CPU with AVX2: python evaluation.py, in this folder.
"""

import importlib.metadata
import json
import pathlib
import sys
import zlib

import cleanfid.resize
import numpy as np
import torch
from PIL import Image
from timm.data import create_transform
from torchvision import transforms
from torchvision.transforms.v2 import functional
from transformers import CLIPImageProcessor, ViTImageProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import sample_photos


def torchvision(size, interpolation="bilinear", max_size=None):
    """Of PIL images: Resize(size) and CenterCrop(224)."""
    mode = transforms.InterpolationMode(interpolation)
    return transforms.Compose([transforms.Resize(size, mode, max_size=max_size), transforms.CenterCrop(224)])


def timm(**arguments):
    """Bytes of timm's evaluation transform."""
    transform = create_transform(**{"input_size": 224, **arguments}, is_training=False, use_prefetcher=True)
    return lambda image: transform(image).permute(1, 2, 0).numpy()


def adm(size):
    """ADM's crop: halved with means, resized with the cubic filter, and cut."""

    def transform(image):
        while min(image.size) >= 2 * size:
            image = image.resize([n // 2 for n in image.size], Image.BOX)
        scale = size / min(image.size)
        image = image.resize([round(n * scale) for n in image.size], Image.BICUBIC)
        x, y = ((n - size) // 2 for n in image.size)
        return image.crop((x, y, x + size, y + size))

    return transform


def clean_fid(library, quantize, filter):
    resizer = cleanfid.resize.make_resizer(library, quantize, filter, (299, 299))
    return lambda image: resizer(np.asarray(image))


def tensor(size, mode, antialias=True, max_size=None):
    """torchvision's resize of a tensor of bytes."""

    def transform(image):
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        mode_of = transforms.InterpolationMode(mode)
        return functional.resize(pixels, size, mode_of, max_size=max_size, antialias=antialias).permute(1, 2, 0).numpy()

    return transform


def processor(processor):
    """Bytes of an image processor, before it rescales and normalizes."""
    arguments = {"do_rescale": False, "do_normalize": False, "return_tensors": "np"}
    return lambda image: processor(image, **arguments)["pixel_values"][0].transpose(1, 2, 0)


TRANSFORMS = {
    "torchvision 256": torchvision(256),
    "torchvision 232": torchvision(232),
    "torchvision 256 bicubic": torchvision(256, "bicubic"),
    "torchvision 200 max_size": torchvision(200, max_size=300),
    "torchvision squashed": torchvision((256, 240)),
    "timm 0.875 bilinear": timm(crop_pct=0.875, interpolation="bilinear"),
    "timm 0.9 bicubic": timm(crop_pct=0.9, interpolation="bicubic"),
    "timm 0.95 bicubic": timm(crop_pct=0.95, interpolation="bicubic"),
    "timm 1.0 bicubic": timm(crop_pct=1.0, interpolation="bicubic"),
    "timm squash": timm(crop_pct=0.95, interpolation="bicubic", crop_mode="squash"),
    "timm border": timm(crop_pct=0.95, interpolation="bicubic", crop_mode="border"),
    "timm wide": timm(input_size=(3, 192, 256), crop_pct=0.9, interpolation="bicubic"),
    "adm 64": adm(64),
    "adm 256": adm(256),
    "clean-fid": clean_fid("PIL", False, "bicubic"),
    "clean-fid bytes": clean_fid("PIL", True, "bilinear"),
    "tensor bilinear": tensor([256], "bilinear"),
    "tensor bicubic": tensor([256], "bicubic"),
    "tensor bicubic max_size": tensor([256], "bicubic", max_size=333),
    "tensor lanczos": tensor([224, 224], "lanczos"),
    "tensor nearest": tensor([224], "nearest"),
    "tensor bilinear, not antialiased": tensor([224], "bilinear", False),
    "tensor bicubic, not antialiased": tensor([224], "bicubic", False),
    "clip torchvision": processor(CLIPImageProcessor()),
    "clip pillow": processor(CLIPImageProcessorPil()),
    "vit torchvision": processor(ViTImageProcessor()),
    "vit pillow": processor(ViTImageProcessorPil()),
}
FLOATS = [(name, True, *size) for name in ("bilinear", "bicubic", "lanczos", "nearest") for size in ((17, 40), (61, 9), (37, 13))]
FLOATS += [(name, False, *size) for name in ("bilinear", "bicubic") for size in ((17, 40), (61, 9), (37, 13))]


def main():
    photos = [Image.fromarray(photo) for photo in sample_photos.hundred_photos()]
    sums = {}
    for name, transform in TRANSFORMS.items():
        sums[name] = np.array([zlib.crc32(np.ascontiguousarray(transform(photo))) for photo in photos], np.uint32)
    floats = torch.from_numpy(np.array(photos[6])[:37, :26, :1] / np.float32(7) - 3).permute(2, 0, 1)
    results = {"floats": floats}
    for name, antialias, height, width in FLOATS:
        mode = transforms.InterpolationMode(name)
        results[f"float {name} {antialias} {height} {width}"] = functional.resize(floats, [height, width], mode, antialias=antialias)
    sums |= {name: result.permute(1, 2, 0).numpy() for name, result in results.items()}
    packages = ("torch", "torchvision", "timm", "transformers", "clean-fid", "pillow")
    versions = json.dumps({name: importlib.metadata.version(name) for name in packages})
    np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), versions=versions, **sums)


if __name__ == "__main__":
    main()
