"""Writes vlm_sizes.npz and vlm_processors.json: the sizes and the numbers of transformers' own image processors.

Needs transformers 5.24 with torch and torchvision: python vlm_sizes.py, in this folder. Arrays are [n, 2], height and
width; an image that a rule can't serve has zeros.
"""

import json

import numpy as np
import torch
from transformers.image_utils import SizeDict
from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor
from transformers.models.gemma4 import image_processing_gemma4 as gemma4
from transformers.models.glm4v import image_processing_glm4v as glm4v
from transformers.models.got_ocr2 import image_processing_got_ocr2 as got_ocr2
from transformers.models.llama4 import image_processing_llama4 as llama4
from transformers.models.pixtral import image_processing_pixtral as pixtral
from transformers.models.qwen2_vl import image_processing_qwen2_vl as qwen2_vl
from transformers.models.siglip.image_processing_siglip import SiglipImageProcessor
from transformers.models.siglip2 import image_processing_siglip2 as siglip2

rng = np.random.default_rng(45)
edges = [
    1,
    2,
    7,
    8,
    13,
    14,
    15,
    16,
    27,
    28,
    29,
    41,
    42,
    43,
    56,
    200,
    224,
    256,
    336,
    337,
    447,
    448,
    896,
    1024,
    1540,
    4096,
    30000,
]
random = np.exp(rng.uniform(np.log(4), np.log(12000), (400, 2))).astype(int)
usual = rng.integers(200, 3000, (300, 2))
chosen = rng.choice(edges, (300, 2))
squares = np.repeat([*edges, 100000], 2).reshape(-1, 2)
shapes = np.concatenate([random, usual, chosen, squares])
recorded = {"shapes": shapes}


def record(name, function, *arguments):
    """Records the numbers of a rule for each shape, zeros where it raises an error."""
    rows = []
    for h, w in shapes.tolist():
        try:
            rows.append([int(x) for x in function(h, w, *arguments)])
        except ValueError:
            rows.append(None)
    width = max(len(r) for r in rows if r)
    recorded[name] = np.int32([r or [0] * width for r in rows])


def llama(h, w, enlarge=False, tiles=16, tile=336):
    """Sizes of the image and of its canvas, by the steps of `Llama4ImageProcessor._preprocess`."""
    possible = torch.tensor(llama4.find_supported_resolutions(tiles, SizeDict(height=tile, width=tile)))
    canvas = llama4.get_best_fit((h, w), possible, resize_to_max_canvas=enlarge)
    target = canvas if enlarge else (min(max(h, tile), canvas[0]), min(max(w, tile), canvas[1]))
    size = llama4.get_max_res_without_distortion((h, w), target)
    return max(size[0], 1), max(size[1], 1), *canvas


def internvl(h, w, fewest=1, most=12, tile=448):
    columns, rows = got_ocr2.get_optimal_tiled_canvas((h, w), (tile, tile), fewest, most)
    return rows * tile, columns * tile


def windows(h, w, least=256, most=4, ratio=1.2):
    """Windows of pan and scan, up to four: of an image whose pixels are their own positions."""
    if h * w > 5_000_000:
        raise ValueError
    pixels = torch.arange(h * w).reshape(1, h, w)
    rows = []
    for window in Gemma3ImageProcessor().pan_and_scan_batched(pixels, least, most, ratio):
        position = int(window[0, 0, 0])
        rows.extend([position // w, position % w, *window.shape[1:]])
    return rows + [0] * (16 - len(rows))


record("smart_resize 28 3136 12845056", lambda h, w: qwen2_vl.smart_resize(h, w, 28, 3136, 12845056))
record("smart_resize 32 65536 16777216", lambda h, w: qwen2_vl.smart_resize(h, w, 32, 65536, 16777216))
record("smart_resize 28 50176 200704", lambda h, w: qwen2_vl.smart_resize(h, w, 28, 50176, 200704))
record("smart_resize 28 6272 4816896 28", lambda h, w: glm4v.smart_resize(2, h, w, 2, 28, 12544, 9633792))
for most in (1, 256, 1000):
    record(f"patch_budget 16 {most}", siglip2.get_image_size_for_max_num_patches, 16, most)
for most in (1, 70, 280):
    record(f"token_budget 16 3 {most}", gemma4.get_aspect_ratio_preserving_size, 16, 9 * most, 3)
for side, patch in ((1024, 16), (1540, 28), (100, 7)):
    record(
        f"longest_side {side} {patch}",
        lambda h, w, *numbers: pixtral.get_resize_output_image_size(
            np.zeros((1, h, w), bool), *numbers, "channels_first"
        ),
        side,
        patch,
    )
record("tiles 448 1 12", internvl)
record("tiles 384 3 6", lambda h, w: internvl(h, w, 3, 6, 384))
record("padded_tiles 336 16 0", llama)
record("padded_tiles 336 16 1", lambda h, w: llama(h, w, True))
record("padded_tiles 100 5 0", lambda h, w: llama(h, w, False, 5, 100))
record("pan_and_scan 256 4 1.2", windows)
record("pan_and_scan 50 3 1.7", lambda h, w: windows(h, w, 50, 3, 1.7))

# The numbers of each processor, made with those in the file that `source` names, and the patches of a few images.
hub = {
    "qwen2-vl": (qwen2_vl.Qwen2VLImageProcessor, {"min_pixels": 3136, "max_pixels": 12845056}),
    "qwen2.5-vl": (qwen2_vl.Qwen2VLImageProcessor, {"min_pixels": 3136, "max_pixels": 12845056}),
    "qwen3-vl": (
        qwen2_vl.Qwen2VLImageProcessor,
        {
            "size": {"shortest_edge": 65536, "longest_edge": 16777216},
            "patch_size": 16,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
        },
    ),
    "glm-4.1v": (glm4v.Glm4vImageProcessor, {"size": {"shortest_edge": 12544, "longest_edge": 9633792}}),
    "siglip2-naflex": (siglip2.Siglip2ImageProcessor, {}),
    "siglip-base-patch16-224": (SiglipImageProcessor, {}),
    "siglip-so400m-patch14-384": (SiglipImageProcessor, {"size": {"height": 384, "width": 384}}),
    "gemma-3": (Gemma3ImageProcessor, {"size": {"height": 896, "width": 896}}),
    "gemma-4": (gemma4.Gemma4ImageProcessor, {}),
    "paligemma-224": (SiglipImageProcessor, {}),
    "pixtral": (pixtral.PixtralImageProcessor, {}),
    "mistral-small-3.1": (pixtral.PixtralImageProcessor, {"size": {"longest_edge": 1540}, "patch_size": 28}),
    "internvl3": (
        got_ocr2.GotOcr2ImageProcessor,
        {
            "size": {"height": 448, "width": 448},
            "crop_to_patches": True,
            "image_mean": [0.485, 0.456, 0.406],
            "image_std": [0.229, 0.224, 0.225],
        },
    ),
    "llama-4": (llama4.Llama4ImageProcessor, {}),
}
images = [(480, 640), (700, 301), (40, 50), (64, 1280), (1500, 1100)]


GRIDS = ("image_grid_thw", "spatial_shapes", "aspect_ratios", "num_soft_tokens_per_image")


def outputs(name, processor, h, w):
    """The shape of what a processor returns for an image, and its grid if it has one."""
    out = processor([np.zeros((h, w, 3), np.uint8)], return_tensors="pt")
    grid = next((np.asarray(out[k][0]).tolist() for k in GRIDS if k in out), None)
    return {"image": [h, w], "shape": list(out["pixel_values"].shape), "grid": grid}


processors = {
    name: {
        "numbers": {
            k: v
            for k, v in processor.to_dict().items()
            if k
            in (
                *("image_mean", "image_std", "size", "patch_size", "merge_size", "temporal_patch_size", "resample"),
                *("min_patches", "max_patches", "max_num_patches", "max_soft_tokens", "pooling_kernel_size"),
            )
        },
        "outputs": [outputs(name, processor, h, w) for h, w in images],
    }
    for name, (kind, numbers) in hub.items()
    for processor in [kind(**numbers)]
}
defaults = Gemma3Processor.images_kwargs
processors["gemma-3"]["pan_and_scan"] = {k: v for k, v in defaults.items() if "pan_and_scan" in k}

np.savez_compressed("vlm_sizes.npz", **{k: v.astype(np.int32) for k, v in recorded.items()})
with open("vlm_processors.json", "w") as f:
    json.dump(processors, f, indent=1, default=list)
