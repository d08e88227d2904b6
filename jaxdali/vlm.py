"""The numbers with which vision-language models prepare images, for `fn.sizes`, `fn.resize` and `fn.patchify`.

  >>> import numpy as np
  >>> from jaxdali import vlm
  >>> qwen = vlm.processors["qwen2-vl"]
  >>> shapes = np.array([[480, 640, 3], [3000, 4000, 3]])  # height, width and channels, as of fn.peek_image_shape
  >>> qwen.size(shapes).tolist()
  [[476, 644], [2996, 4004]]
  >>> qwen.tokens(shapes).tolist()
  [391, 15301]

Other numbers are those of a changed copy, such as a smaller budget:

  >>> import dataclasses
  >>> dataclasses.replace(qwen, max_pixels=1_003_520).tokens(shapes).tolist()
  [391, 1230]
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import fn
from ._core import names
from ._core.building import is_node
from ._core.errors import ArgumentError, ArgumentTypeError
from ._core.values import Spec
from .fn._image.resize import CONVENTIONS
from .fn.sizes._longest_side import LongestSide
from .fn.sizes._padded_tiles import PaddedTiles
from .fn.sizes._patch_budget import PatchBudget
from .fn.sizes._rule import SizeRule, check_shapes
from .fn.sizes._smart_resize import SmartResize
from .fn.sizes._tiles import Tiles
from .fn.sizes._token_budget import TokenBudget
from .types import INTERP_CUBIC, INTERP_LINEAR, DALIInterpType

# Of each rule: its operator, and the numbers that it needs.
_RULES: dict[str, tuple[type[SizeRule] | None, tuple[str, ...]]] = {
    "smart_resize": (SmartResize, ("min_pixels", "max_pixels")),
    "patch_budget": (PatchBudget, ("max_patches",)),
    "token_budget": (TokenBudget, ("max_tokens",)),
    "longest_side": (LongestSide, ("longest_side",)),
    "tiles": (Tiles, ("tile_size", "min_tiles", "max_tiles")),
    "padded_tiles": (PaddedTiles, ("tile_size", "max_tiles")),
    "square": (None, ("side",)),
}
_COUNTS = ("patch_size", "merge_size", "pool_size", "temporal_patch_size")
_OPTIONAL = {"smart_resize": ("min_side",)}
_NUMBERS = {n for _, numbers in _RULES.values() for n in numbers} | {n for x in _OPTIONAL.values() for n in x}

_MAX_SIDE = 1 << 24  # the largest of `fn.resize`
_LARGEST, _SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)
_KINDS = dict.fromkeys(("rule", "source", "patch_layout", "convention"), (str,)) | {"thumbnail": (bool, np.bool_)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageProcessor:
    """The numbers with which a model prepares images. `dataclasses.replace` makes a copy with other ones.

    A pipeline that decodes, resizes and cuts an image into patches::

        p = vlm.processors["qwen2-vl"]
        size = p.size(fn.peek_image_shape(encoded))
        images = fn.resize(fn.decoders.image(encoded), size=size, **p.resize)
        patches, segments, positions, grid = fn.patchify(images, **p.patches)

    `fn.decoders.image_patches` does the last three steps in one call, with the arguments ``size=size, **p.resize,
    **p.patches``, unless the processor's `canvas` differs from its `size`.

    A thumbnail counts in `num_patches` and `tokens`, but it is an image of its own: an image of several tiles comes
    twice in a sample, the second time with the size of one tile::

        p = vlm.processors["internvl3"]
        size = p.size(jd.peek_image_shape([file]).numpy()[0])
        sizes = np.array([size, [p.tile_size, p.tile_size]])  # if size is one tile, the file comes once
        jd.decoders.image_patches([[file, file]], size=sizes[None], length=13 * 1024, **p.resize, **p.patches)

    Attributes:
      rule: the operator of `fn.sizes` that tells the size, or "square", for one size of all images.
      source: a URL, where the numbers are from.
      patch_size: the side of a patch in pixels.
      merge_size: the side of the blocks of patches by which patches are ordered, in patches; 1: they are in rows.
      pool_size: the side of the square of patches that becomes one token of the language model, in patches. Often it is
        `merge_size`, but InternVL orders patches by tiles of 32 and makes a token of 2 x 2.
      temporal_patch_size: the frames in a patch; an image is repeated for all.
      patch_layout: the order of the numbers in a patch, with F, the frames, if there are several.
      mean: the mean of each channel that is subtracted, where the largest value is 1.
      std: the standard deviation of each channel, by which the rest is divided.
      interp_type: the filter with which images are resized.
      convention: the library whose pixels `fn.resize` makes, to the bit. "pillow" is that of the classes of
        transformers whose names end in Pil, "torchvision" that of the others, which AutoImageProcessor takes where
        torchvision is installed. On 64 photos the two differ by less than 0.25 grey levels on average, in single values
        by up to 2 with a linear filter and 14 with a cubic one.
      thumbnail: whether an image of several tiles is followed by the whole image, resized to one tile.
      min_pixels: the least number of pixels, of the rule "smart_resize"; None in all other rules. Likewise:
      max_pixels: the largest number of pixels, of "smart_resize".
      min_side: the side to which smaller images are enlarged first, of "smart_resize"; None: they are not.
      max_patches: the largest number of patches, of "patch_budget".
      max_tokens: the largest number of tokens, of "token_budget".
      longest_side: the longest side in pixels, of "longest_side".
      tile_size: the side of a tile in pixels, of "tiles" and "padded_tiles".
      min_tiles: the least number of tiles, of "tiles".
      max_tiles: the largest number of tiles, of "tiles" and "padded_tiles".
      side: the side of all images in pixels, of "square".

    Raises:
      ArgumentError: a number that the rule needs is missing, or one that it has no use for is given; a number or a name
        is not valid; sizes of the rule can't be divided into blocks of `merge_size` or `pool_size` patches.
    """

    rule: Literal["smart_resize", "patch_budget", "token_budget", "longest_side", "tiles", "padded_tiles", "square"]
    source: str
    patch_size: int
    merge_size: int = 1
    pool_size: int = 1
    temporal_patch_size: int = 1
    patch_layout: str = "CHW"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    interp_type: DALIInterpType = INTERP_CUBIC
    convention: str = "pillow"
    thumbnail: bool = False
    min_pixels: int | None = None
    max_pixels: int | None = None
    min_side: int | None = None
    max_patches: int | None = None
    max_tokens: int | None = None
    longest_side: int | None = None
    tile_size: int | None = None
    min_tiles: int | None = None
    max_tiles: int | None = None
    side: int | None = None

    def __post_init__(self):
        for name, kinds in _KINDS.items():
            if not isinstance(value := getattr(self, name), kinds):
                raise ArgumentError(f"ImageProcessor: {name} must be a {kinds[0].__name__}, got {value!r}")
        if self.rule not in _RULES:
            raise ArgumentError(f"ImageProcessor: rule must be one of {', '.join(_RULES)}, got {self.rule!r}")
        needed = _RULES[self.rule][1]
        for name in (*_COUNTS, *sorted(_NUMBERS)):
            number = getattr(self, name)
            if number is None and name in (*_COUNTS, *needed):
                raise ArgumentError(f"ImageProcessor: the rule {self.rule!r} needs {name}")
            if number is None:
                continue
            if name not in (*_COUNTS, *needed, *_OPTIONAL.get(self.rule, ())):
                raise ArgumentError(
                    f"ImageProcessor: the rule {self.rule!r} has no {name}, its numbers are {', '.join(needed)}"
                )
            if not isinstance(number, Integral) or number < 1:
                raise ArgumentError(f"ImageProcessor: {name} must be a whole number, at least 1, got {number!r}")
        if self.side is not None and self.side > _MAX_SIDE:
            raise ArgumentError(f"ImageProcessor: side must be at most {_MAX_SIDE}, got {self.side}")
        self._operator()
        self._check_patches()

    def _check_patches(self):
        """Raises ArgumentError if `fn.resize` or `fn.patchify` would refuse the arguments, or the sizes of the rule."""
        if self.convention not in CONVENTIONS:
            raise ArgumentError(
                f"ImageProcessor: convention must be one of {', '.join(CONVENTIONS)}, got {self.convention!r}"
            )
        axes = sorted("FHWC" if self.temporal_patch_size > 1 else "HWC")
        if sorted(self.patch_layout) not in (axes, sorted("FHWC")):
            raise ArgumentError(
                f"ImageProcessor: with temporal_patch_size={self.temporal_patch_size}, patch_layout must have the letters "
                f"{', '.join(axes)}, got {self.patch_layout!r}"
            )
        for name in ("mean", "std"):
            values = getattr(self, name)
            is_valid = isinstance(values, tuple) and values and all(isinstance(x, Real) for x in values)
            if not is_valid or not all(abs(x) <= _LARGEST for x in values):  # not NaN, either
                raise ArgumentError(f"ImageProcessor: {name} must be a tuple of finite numbers, got {values!r}")
        if len(self.mean) != len(self.std):
            raise ArgumentError(
                f"ImageProcessor: mean and std must have equally many numbers, got {self.mean} and {self.std}"
            )
        if not isinstance(self.interp_type, DALIInterpType):
            raise ArgumentError(f"ImageProcessor: interp_type must be a DALIInterpType, got {self.interp_type!r}")
        if min(self.std) < _SMALLEST:
            raise ArgumentError(f"ImageProcessor: std divides, so it must be above 0, got {self.std}")
        if self.side is not None:
            pixels, origin = self._square_canvas, "side"
        elif self.tile_size is not None:
            pixels, origin = self.tile_size, "tile_size"
        elif self.rule == "patch_budget":
            pixels, origin = self.patch_size, "patch_size"
        else:
            pixels, origin = self.patch_size * self.pool_size, "patch_size * pool_size"
        for name in ("merge_size", "pool_size"):
            block = self.patch_size * getattr(self, name)
            if pixels % block or not pixels:
                raise ArgumentError(
                    f"ImageProcessor: the rule {self.rule!r} makes sides of multiples of {pixels} pixels ({origin}), but "
                    f"patch_size={self.patch_size} and {name}={getattr(self, name)} need multiples of {block}: change "
                    f"{name}, or {origin.removeprefix('patch_size * ')}"
                )

    @property
    def resize(self) -> dict[str, Any]:
        """The arguments of `fn.resize`, besides `size`."""
        return {"interp_type": self.interp_type, "antialias": True, "convention": self.convention}

    @property
    def patches(self) -> dict[str, Any]:
        """The arguments of `fn.patchify`. There, `mean` and `std` are those of bytes, 255 times as large."""
        return {
            "patch_size": self.patch_size,
            "merge_size": self.merge_size,
            "temporal_patch_size": self.temporal_patch_size,
            "patch_layout": self.patch_layout,
            "mean": [255 * x for x in self.mean],
            "std": [255 * x for x in self.std],
        }

    def size(self, shapes: Any) -> Any:
        """Height and width that images are resized to.

        Args:
          shapes: integers whose last axis begins with height and width: a DataNode, as of `fn.peek_image_shape`, a
            batch of `jaxdali.dynamic`, as of `jd.peek_image_shape`, or an array of any number of axes. The `size` of an
            image of Pillow is (width, height) instead.

        Returns:
          For a DataNode a DataNode, for the argument `size` of `fn.resize`, and for a batch a batch; for the rule
          "square" an array ``i32[2]``, which all images share. For an array ``i32[..., 2]``.

        Raises:
          ArgumentError: `shapes` are not integers, or an array has an image that the rule can't serve.
          SampleError: a DataNode or a batch has such an image; it is raised when the sizes are computed.
        """
        return self._sizes(shapes)[0]

    def canvas(self, shapes: Any) -> Any:
        """Height and width of the part that is cut into patches, in the form of `size`.

        This is `size`, except for two rules. With "padded_tiles" images are padded to it, at the bottom and on the
        right. With "square" they are cropped to it, there, if `side` is no multiple of `patch_size`. One call does
        either: ``fn.slice(images, start=[0, 0], shape=canvas, axis_names="HW", out_of_bounds_policy="pad")``.
        """
        return self._sizes(shapes)[1]

    def num_patches(self, shapes: Any) -> np.ndarray:
        """The number of patches of each image, also of its thumbnail.

        Args:
          shapes: as of `size`, but no DataNode.

        Returns:
          Of an array ``i64[...]``; of a batch of N samples ``i64[N]``, for samples with several images ``[F, 3]`` their
          sums. 0 for an image that the rule can't serve, which is an error where it is resized.
        """
        if _is_batch(shapes) and shapes.ndim > 1:
            samples = [np.asarray(x) for x in shapes]
            counts = self.num_patches(np.concatenate(samples))
            return np.array([x.sum() for x in np.split(counts, np.cumsum([len(x) for x in samples])[:-1])])
        canvas = self._planned(shapes)[..., 2:].astype(np.int64)
        count = (canvas // self.patch_size).prod(axis=-1)
        if self.thumbnail and self.tile_size is not None:
            of_tile = (self.tile_size // self.patch_size) ** 2
            count += np.where(count > of_tile, of_tile, 0)
        return count

    def tokens(self, shapes: Any) -> np.ndarray:
        """The number of places that each image has in the language model, also its thumbnail.

        These are the tokens that patches become. Others that a model's text has around them, at the beginning and the
        end of an image or a row, are not counted.

        Args:
          shapes: as of `num_patches`.

        Returns:
          Integers of the shape of `num_patches`, which are divided by the square of `pool_size`.
        """
        return self.num_patches(shapes) // self.pool_size**2

    def _arguments(self) -> dict[str, Any]:
        """The arguments of the rule's operator."""
        numbers = {n: getattr(self, n) for n in _RULES[self.rule][1]}
        factor = self.patch_size * self.pool_size
        if self.rule == "smart_resize":
            return numbers | {"factor": factor, "min_side": self.min_side or 0}
        if self.rule == "longest_side":
            return {"size": self.longest_side, "patch_size": factor}
        if self.rule == "token_budget":
            return numbers | {"patch_size": self.patch_size, "pool_size": self.pool_size}
        if self.rule == "padded_tiles":
            return numbers | {"enlarge": False}
        return numbers | ({"patch_size": self.patch_size} if self.rule == "patch_budget" else {})

    def _operator(self) -> SizeRule | None:
        """The rule's operator; None for "square". Raises ArgumentError if its arguments contradict each other."""
        operator = _RULES[self.rule][0]
        return None if operator is None else operator(**self._arguments())

    def _sizes(self, shapes: Any) -> tuple[Any, Any]:
        """`size` and `canvas`."""
        if is_node(shapes) or _is_batch(shapes):
            if self.side is not None:
                return np.full(2, self.side, np.int32), np.full(2, self._square_canvas, np.int32)
            rules = fn.sizes if is_node(shapes) else sys.modules[_DYNAMIC].sizes
            sizes = getattr(rules, self.rule)(shapes, **self._arguments())
            size, canvas = sizes if isinstance(sizes, list) else (sizes, sizes)
            return size, canvas
        sizes = self._planned(shapes)
        failed = np.argwhere(sizes[..., 0] == 0)
        if len(failed):
            first = tuple(failed[0].tolist())
            operator = self._operator()
            shape = np.asarray(shapes)[first]
            reason = (
                operator.refusal(shape) if operator is not None else f"the image is empty, of shape {shape.tolist()}"
            )
            place = f"image {', '.join(map(str, first))}: " if first else ""
            count = f"; {len(failed)} images fail" if len(failed) > 1 else ""
            raise ArgumentError(f"{self.rule}: {place}{reason}{count}")
        return sizes[..., :2], sizes[..., 2:]

    @property
    def _square_canvas(self) -> int:
        """The side of the part of square images that whole patches cover."""
        assert self.side is not None
        return self.side // self.patch_size * self.patch_size

    def _planned(self, shapes: Any) -> np.ndarray:
        """Size and canvas for an array of shapes, ``i32[..., 4]``; 0 for images that can't be served."""
        if is_node(shapes):
            raise ArgumentTypeError(
                "the numbers of patches and tokens are known for arrays of shapes; in a pipeline, the output grid of "
                "fn.patchify has them"
            )
        try:
            shapes = np.asarray(shapes)
        except ValueError as e:  # rows of several lengths
            raise ArgumentError(
                "ImageProcessor: shapes are no array, as rows differ in length: give jd.peek_image_shape(files) of files, "
                "and jd.batch(shapes) of samples with several images"
            ) from e
        check_shapes(Spec(shapes.dtype, shapes.ndim, shapes.shape))
        rows = shapes.reshape(-1, shapes.shape[-1])
        operator = self._operator()
        if operator is not None:
            sizes = operator.sizes(rows)
        else:
            square = np.array([self.side, self.side, self._square_canvas, self._square_canvas], np.int32)
            sizes = np.where((rows[:, :2] >= 1).all(axis=1, keepdims=True), square, np.int32(0))
        # Without a canvas of its own, the size is the canvas.
        return sizes[:, np.arange(4) % sizes.shape[1]].reshape(*shapes.shape[:-1], 4)


_DYNAMIC = f"{__package__}.dynamic"


def _is_batch(x: Any) -> bool:
    """Whether `x` is a batch of `jaxdali.dynamic`. That is not loaded for this question alone, as it takes long."""
    return _DYNAMIC in sys.modules and isinstance(x, sys.modules[_DYNAMIC].Batch)


_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HUB = "https://huggingface.co/{}/blob/main/preprocessor_config.json"
_QWEN = ImageProcessor(
    rule="smart_resize",
    source=_HUB.format("Qwen/Qwen2-VL-7B-Instruct"),
    patch_size=14,
    merge_size=2,
    pool_size=2,
    temporal_patch_size=2,
    patch_layout="CFHW",
    mean=_CLIP_MEAN,
    std=_CLIP_STD,
    min_pixels=56 * 56,
    max_pixels=28 * 28 * 16384,
)


class _Processors(dict[str, ImageProcessor]):
    def __missing__(self, name: str) -> ImageProcessor:
        near = difflib.get_close_matches(str(name), self, n=4, cutoff=0.4) or self
        raise KeyError(f"vlm.processors has no {name!r}; it has {', '.join(near)}")


_TABLE = _Processors(
    {
        "qwen2-vl": _QWEN,
        "qwen2.5-vl": dataclasses.replace(_QWEN, source=_HUB.format("Qwen/Qwen2.5-VL-7B-Instruct")),
        "qwen3-vl": dataclasses.replace(
            _QWEN,
            source=_HUB.format("Qwen/Qwen3-VL-8B-Instruct"),
            patch_size=16,
            mean=(0.5, 0.5, 0.5),
            std=(0.5, 0.5, 0.5),
            min_pixels=256 * 256,
            max_pixels=4096 * 4096,
        ),
        # The model's own limits are twice these, as they count the two frames of a patch.
        "glm-4.1v": dataclasses.replace(
            _QWEN,
            source=_HUB.format("zai-org/GLM-4.1V-9B-Thinking"),
            min_pixels=112 * 112 // 2,
            max_pixels=28 * 28 * 6144,
            min_side=28,
        ),
        "siglip2-naflex": ImageProcessor(
            rule="patch_budget",
            source=_HUB.format("google/siglip2-base-patch16-naflex"),
            patch_size=16,
            patch_layout="HWC",
            interp_type=INTERP_LINEAR,
            max_patches=256,
        ),
        "siglip-base-patch16-224": ImageProcessor(
            rule="square",
            source=_HUB.format("google/siglip-base-patch16-224"),
            patch_size=16,
            patch_layout="HWC",
            side=224,
        ),
        "siglip-so400m-patch14-384": ImageProcessor(
            rule="square",
            source=_HUB.format("google/siglip-so400m-patch14-384"),
            patch_size=14,
            patch_layout="HWC",
            side=384,
        ),
        "gemma-3": ImageProcessor(
            rule="square",
            source=_HUB.format("google/gemma-3-4b-it"),
            patch_size=14,
            pool_size=4,
            patch_layout="HWC",
            interp_type=INTERP_LINEAR,
            side=896,
        ),
        "gemma-4": ImageProcessor(
            rule="token_budget",
            source="https://huggingface.co/google/gemma-4-E4B-it/blob/main/processor_config.json",
            patch_size=16,
            pool_size=3,
            patch_layout="HWC",
            mean=(0.0, 0.0, 0.0),
            std=(1.0, 1.0, 1.0),
            max_tokens=280,
        ),
        "paligemma-224": ImageProcessor(
            rule="square",
            source=_HUB.format("google/paligemma-3b-pt-224"),
            patch_size=14,
            patch_layout="HWC",
            side=224,
        ),
        "pixtral": ImageProcessor(
            rule="longest_side",
            source=_HUB.format("mistral-community/pixtral-12b"),
            patch_size=16,
            mean=_CLIP_MEAN,
            std=_CLIP_STD,
            longest_side=1024,
        ),
        "mistral-small-3.1": ImageProcessor(
            rule="longest_side",
            source=_HUB.format("mistralai/Mistral-Small-3.1-24B-Instruct-2503"),
            patch_size=14,
            pool_size=2,
            mean=_CLIP_MEAN,
            std=_CLIP_STD,
            longest_side=1540,
        ),
        # Blocks as large as a tile: the patches of one tile follow those of another.
        "internvl3": ImageProcessor(
            rule="tiles",
            source=_HUB.format("OpenGVLab/InternVL3-8B-hf"),
            patch_size=14,
            merge_size=32,
            pool_size=2,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
            thumbnail=True,
            tile_size=448,
            min_tiles=1,
            max_tiles=12,
        ),
        # transformers has no class with Pillow for it. Its class computes in bfloat16 after the resize.
        "llama-4": ImageProcessor(
            rule="padded_tiles",
            source=_HUB.format("meta-llama/Llama-4-Scout-17B-16E-Instruct"),
            patch_size=14,
            merge_size=24,
            pool_size=2,
            interp_type=INTERP_LINEAR,
            convention="torchvision",
            thumbnail=True,
            tile_size=336,
            max_tiles=16,
        ),
    }
)

# The numbers of known models, by name.
processors: Mapping[str, ImageProcessor] = MappingProxyType(_TABLE)

if not TYPE_CHECKING:
    __all__, __dir__, __getattr__ = names.index(__name__, globals(), "ImageProcessor processors")
