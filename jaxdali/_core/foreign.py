"""A table of names of other libraries, with the names that jaxdali has instead. Messages about unknown names use it."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import re
from collections.abc import Collection, Mapping
from typing import Literal

Use = Literal["name", "argument", "DataNode", "Batch", "Tensor", "DALIGenericIterator"]


@dataclasses.dataclass(frozen=True)
class Foreign:
    """A name of another library.

    Attributes:
      name: as that library writes it. It begins with our module where users look for it, if the answer depends on the
        module: "random.gaussian".
      library: the library that has the name.
      markdown: the replacement, a part of a sentence, with code in backticks. Operators are written as those of
        `jaxdali.fn`.
      use: the place of the name: a "name" in a module, an "argument", or an attribute of a "DataNode", a "Batch", a
        "Tensor" or a "DALIGenericIterator".
      takes: for an argument: the answer is for functions that also have this argument; "": for any function.
    """

    name: str
    library: str
    markdown: str
    use: Use = "name"
    takes: str = ""

    @property
    def answer(self) -> str:
        """The replacement as messages have it. Only statements keep their backticks: they are words of English, too."""
        return re.sub("`(.+?)`", lambda code: code[0] if keyword.iskeyword(code[1]) else code[1], self.markdown)


_ALBUMENTATIONS, _AUDIO, _CV, _GRAIN, _JAX, _LOADER = (
    "albumentations",
    "torchaudio, librosa",
    "OpenCV",
    "Grain",
    "JAX",
    "torch DataLoader",
)
_NUMPY, _PILLOW, _TF, _TF_DATA, _TF_IMAGE = "NumPy", "Pillow", "TensorFlow", "tf.data", "tf.image"
_TORCH, _TRANSFORMERS, _VISION = "PyTorch", "Transformers", "torchvision"
_FORMATS = "Formats of data"

_BATCH_SIZE = "`batch_size=` of the pipeline"
_BLUR = "`fn.gaussian_blur(x, sigma=...)`"
_BOXES = "`fn.random_bbox_crop(boxes, labels)`, `fn.bb_flip` and `fn.bbox_rotate` change boxes"
_ARRAYS = '`fn.readers.source({"image": images, "label": labels})` reads the rows of arrays'
_CENTER = "`fn.crop(x, crop=...)` cuts from the centre"
_CHW = "`fn.transpose(x, perm=[2, 0, 1])` makes CHW of HWC"
_CLAMP = "`jaxdali.math.clamp(x, low, high)`"
_COMPOSE = (
    "operators are called one after the other, in a function under `jaxdali.pipeline_def` or `jaxdali.dynamic.jit`"
)
_CONSTANT = "`types.Constant(array)` is one value for all samples, `fn.external_source(source=...)` brings one for each"
_CROP_OR_PAD = '`fn.crop(x, crop=..., out_of_bounds_policy="pad")`'
_DATASET = "`fn.readers.source(dataset)` reads any object with `__len__` and `__getitem__`"
_DECODE = "`fn.decoders.image(x)` decodes all formats, `jaxdali.decode_jpeg(files)` without a pipeline"
_DROP = "`last_batch_policy=LastBatchPolicy.DROP` of the iterator, from `jaxdali.plugin.base_iterator`"
_ERASE = "`fn.erase(x, anchor=..., shape=...)`, with `fn.random.uniform(range=...)` for random places"
_FLIP = "`fn.flip(x, horizontal=fn.random.coin_flip(probability=0.5))`"
_FLIP_DOWN = "`fn.flip(x, horizontal=0, vertical=fn.random.coin_flip(probability=0.5))`"
_FLOATS = "`fn.crop_mirror_normalize(x, std=255.0)` makes floats of 0..1 in CHW; `fn.cast(x, dtype=types.FLOAT) / 255` keeps the layout"
_FOLDERS = "`fn.readers.file(file_root=...)` reads a folder for each class; the number of the folder is the label"
_FILES = "`fn.readers.file(files=...)` reads files, and `fn.decoders.image` decodes them"
_FUNCTION = "operators are called on the values; `jaxdali.plugin.jax.fn.jax_function` calls a function of JAX"
_GRAY = "`fn.color_space_conversion(x, image_type=types.RGB, output_type=types.GRAY)`"
_HUE = "the hue is in degrees, of YIQ instead of HSV"
_INTERPOLATION = "`interp_type=types.INTERP_LINEAR`, `types.INTERP_CUBIC`, ..."
_ITERATOR = "`jaxdali.plugin.jax.data_iterator(output_map=...)` of a pipeline with one of `fn.readers`"
_JITTER = (
    "`fn.color_twist(x, brightness=..., contrast=..., saturation=..., hue=...)`, each a number or "
    f"`fn.random.uniform(range=...)`; {_HUE}"
)
_KEYS = "`jax.random.key(seed)`, as `key=` of functions of `jaxdali.dynamic`; in a pipeline `fn.random.key()` gives each sample a key"
_LETTERBOX = '`fn.resize(x, size=..., mode="not_larger")`, then `fn.crop(x, crop=..., out_of_bounds_policy="pad")`'
_MASK = "`fn.erase(x, anchor=..., shape=..., axes=[0])` erases rows of a spectrogram, `axes=[1]` columns"
_MIX = "`fn.permute_batch(x, indices=fn.batch_permutation())` gives each image a partner, `fn.random.beta(alpha=..., beta=...)` a weight"
_MIXTURE = "`fn.readers.source([a, b], weights=[0.7, 0.3])` mixes data sets, and `weights=` of readers of containers their files"
_NN, _LINEAR, _CUBIC, _LANCZOS = (f"`types.INTERP_{x}`" for x in ("NN", "LINEAR", "CUBIC", "LANCZOS3"))
_PAIRS = "`fn.filter(x, kernel)`"
_PERMUTATION = "`fn.batch_permutation()` permutes the samples of a batch"
_PAD = "`fn.pad(x, axes=[0])` gives the samples of a batch one shape"
_PROCESSOR = (
    '`fn.resize(x, resize_shorter=..., interp_type=types.INTERP_CUBIC, convention="torchvision", '
    'size_convention="torchvision")`, then `fn.crop_mirror_normalize(x, crop=..., rounding="truncate", mean=..., std=...)`'
)
_RANDOM_CROP = "`fn.crop(x, crop=..., crop_pos_x=fn.random.uniform(range=[0.0, 1.0]), crop_pos_y=fn.random.uniform(range=[0.0, 1.0]))`"
_RANDOM_ROTATION = "`fn.rotate(x, angle=fn.random.uniform(range=[-10.0, 10.0]), keep_size=True, fill_value=0)`"
_READ = "`fn.readers.file(files=...)` reads files, `fn.decoders.image(x)` decodes them"
_RECORDS = "a sample of a reader stays one sample: `fn.readers.source(dataset)` takes a data set with an item for each"
_REMAP = "`fn.experimental.remap(x, mapx, mapy)`"
_RESIZED_CROP = (
    "`fn.random_resized_crop(x, size=...)`, or `fn.decoders.image_random_crop(x)`, which decodes only the window, and "
    "`fn.resize`"
)
_ROI = "`fn.resize(x, roi_start=..., roi_end=..., size=...)`"
_SHUFFLE = "`random_shuffle=True` of the reader"
_SHARDS = "`fn.readers.file(num_shards=..., shard_id=...)` and all other readers divide their samples"
_SOMETIMES = "an `if` on `fn.random.coin_flip(probability=...)`, in a pipeline with `enable_conditionals=True`"
_TABLE = "`fn.readers.source(columns)`, where `columns` is a dictionary with an array or a list for each column"
_TFRECORD = "`fn.readers.tfrecord(path=..., features=...)`"
_THREADS = "`num_threads=` of the pipeline: workers are threads, but for `fn.readers.source(num_workers=...)`"
_VIDEO = "`fn.readers.video(filenames=..., sequence_length=...)` reads and decodes files"
_WARP = (
    "`fn.warp_affine(x, matrix)`, with `fn.transforms.rotation`, `fn.transforms.scale`, `fn.transforms.shear` and "
    "`fn.transforms.translation`"
)

_NAMES: Mapping[str, Mapping[str, str]] = {
    _VISION: {
        "functional": "operators are functions, such as `fn.resize(x, size=...)`",
        "v2": "operators are functions, such as `fn.resize(x, size=...)`",
        "transforms": "operators are functions of `jaxdali.fn`, such as `fn.resize(x, size=...)`",
        "Normalize": "`fn.crop_mirror_normalize(x, mean=..., std=...)`, where both are those of 0..255; `fn.normalize(x)` "
        "computes them from each sample",
        "center_crop": _CENTER,
        "RandomCrop": _RANDOM_CROP,
        "resized_crop": _ROI,
        "RandomResizedCrop": _RESIZED_CROP,
        "FiveCrop": "`fn.crop(x, crop=..., crop_pos_x=..., crop_pos_y=...)`, once for each corner",
        "TenCrop": "`fn.crop(x, crop=..., crop_pos_x=..., crop_pos_y=...)`, once for each corner, and `fn.flip(x)`",
        "hflip": "`fn.flip(x)`",
        "vflip": "`fn.flip(x, horizontal=0, vertical=1)`",
        "horizontal_flip": f"`fn.flip(x)`; {_FLIP} flips some",
        "vertical_flip": f"`fn.flip(x, horizontal=0, vertical=1)`; {_FLIP_DOWN} flips some",
        "RandomHorizontalFlip": _FLIP,
        "RandomVerticalFlip": _FLIP_DOWN,
        "RandomRotation": _RANDOM_ROTATION,
        "RandomAffine": _WARP,
        "affine": _WARP,
        "RandomPerspective": "`fn.experimental.warp_perspective(x, matrix=...)`",
        "perspective": "`fn.experimental.warp_perspective(x, matrix=...)`",
        "ColorJitter": _JITTER,
        "RandomPhotometricDistort": _JITTER,
        "adjust_brightness": "`fn.brightness(x, brightness=...)`",
        "adjust_contrast": "`fn.contrast(x, contrast=...)`, about 128 or `contrast_center=...` instead of the mean of the image",
        "adjust_saturation": "`fn.saturation(x, saturation=...)`, a blend with grey as in torchvision, not a factor in HSV",
        "adjust_hue": f"`fn.hue(x, hue=...)`; {_HUE}",
        "Grayscale": _GRAY,
        "RandomGrayscale": "`fn.saturation(x, saturation=...)`, with 0 or 1 for each sample",
        "to_grayscale": _GRAY,
        "rgb_to_grayscale": _GRAY,
        "to_tensor": _FLOATS,
        "pil_to_tensor": _CHW,
        "PILToTensor": _CHW,
        "ToPILImage": "`PIL.Image.fromarray` takes a sample, an array `[height, width, channels]`",
        "ToImage": "decoders and readers make arrays: leave it out",
        "ConvertImageDtype": "`fn.cast(x, dtype=types.FLOAT) / 255`",
        "to_dtype": "`fn.cast(x, dtype=...)`, which does not scale",
        "RandomErasing": _ERASE,
        "posterize": "`jaxdali.auto_aug.augmentations.posterize`",
        "solarize": "`jaxdali.auto_aug.augmentations.solarize`",
        "adjust_sharpness": "`jaxdali.auto_aug.augmentations.sharpness`",
        "autocontrast": "`jaxdali.auto_aug.augmentations.auto_contrast`",
        "RandAugment": "`jaxdali.auto_aug.rand_augment.rand_augment`",
        "TrivialAugmentWide": "`jaxdali.auto_aug.trivial_augment.trivial_augment_wide`",
        "AutoAugment": "`jaxdali.auto_aug.auto_augment.auto_augment`",
        "ElasticTransform": _REMAP,
        "JPEG": "`fn.jpeg_compression_distortion(x, quality=...)`",
        "MixUp": _MIX,
        "CutMix": _MIX,
        "GaussianNoise": "`fn.noise.gaussian(x, stddev=...)`",
        "SanitizeBoundingBoxes": _BOXES,
        "RandomIoUCrop": "`fn.random_bbox_crop(boxes, labels)`",
        "RandomApply": _SOMETIMES,
        "RandomChoice": _SOMETIMES,
        "Compose": _COMPOSE,
        "decode_image": _DECODE,
        "read_image": _READ,
        "read_video": _VIDEO,
        "ImageFolder": _FOLDERS,
        "DatasetFolder": _FOLDERS,
        "CocoDetection": "`fn.readers.coco(file_root=..., annotations_file=...)`",
        "InterpolationMode": f"{_NN}, {_LINEAR}, {_CUBIC} and {_LANCZOS}",
    },
    _TF_IMAGE: {
        "central_crop": _CENTER,
        "stateless_random_crop": _RANDOM_CROP,
        "crop_to_bounding_box": '`fn.slice(x, start=..., shape=..., axis_names="HW")`',
        "crop_and_resize": _ROI,
        "sample_distorted_bounding_box": "`fn.random_resized_crop(x, size=...)`",
        "flip_left_right": "`fn.flip(x)`",
        "flip_up_down": "`fn.flip(x, horizontal=0, vertical=1)`",
        "random_flip_left_right": _FLIP,
        "stateless_random_flip_left_right": _FLIP,
        "random_flip_up_down": _FLIP_DOWN,
        "rot90": "`fn.rotate(x, angle=90.0)`",
        "random_brightness": "`fn.brightness(x, brightness_shift=fn.random.uniform(range=[-0.2, 0.2]))`",
        "random_contrast": "`fn.contrast(x, contrast=fn.random.uniform(range=[0.8, 1.2]))`, about 128 instead of the mean of each channel",
        "random_saturation": "`fn.saturation(x, saturation=fn.random.uniform(range=[0.8, 1.2]))`, a blend with grey, not a factor in HSV",
        "random_hue": f"`fn.hue(x, hue=fn.random.uniform(range=[-18.0, 18.0]))`; {_HUE}",
        "adjust_jpeg_quality": "`fn.jpeg_compression_distortion(x, quality=...)`",
        "random_jpeg_quality": "`fn.jpeg_compression_distortion(x, quality=...)`, one number for each sample",
        "per_image_standardization": "`fn.normalize(x)`",
        "resize_with_pad": _LETTERBOX,
        "resize_with_crop_or_pad": _CROP_OR_PAD,
        "pad_to_bounding_box": '`fn.pad(x, axes=[0, 1], shape=...)`, or `fn.crop(x, crop=..., out_of_bounds_policy="pad")`',
        "decode_jpeg": _DECODE,
        "decode_png": _DECODE,
        "decode_bmp": _DECODE,
        "decode_and_crop_jpeg": "`fn.decoders.image_slice(x, start=..., shape=...)`",
        "extract_jpeg_shape": "`fn.peek_image_shape(x)`",
        "rgb_to_hsv": "`fn.hsv(x, hue=..., saturation=..., value=...)` changes RGB; hue and saturation are those of YIQ",
        "rgb_to_yuv": "`fn.color_space_conversion(x, image_type=types.RGB, output_type=types.YCbCr)`",
        "sobel_edges": _PAIRS,
    },
    _TF: {
        "RandomFlip": _FLIP,
        "Rescaling": _FLOATS,
        "Normalization": "`fn.crop_mirror_normalize(x, mean=..., std=...)`, where both are those of 0..255",
        "image_dataset_from_directory": f"{_FOLDERS}. `fn.decoders.image` decodes them",
        "audio_dataset_from_directory": f"{_FOLDERS}. `fn.decoders.audio` decodes them",
        "decode_wav": "`fn.decoders.audio(x, sample_rate=...)`",
        "pad_sequences": _PAD,
        "to_categorical": "`fn.one_hot(x, num_classes=...)`",
        "load_img": _READ,
        "read_file": "`fn.readers.file(files=...)` reads files",
        "decode_raw": "`fn.reinterpret(x, dtype=...)`",
        "parse_sequence_example": "`fn.parse_example(records, features=..., sequence_features=...)`",
        "parse_single_example": f"`fn.parse_example(records, features=...)`; {_TFRECORD} reads and parses files",
        "numpy_function": "`fn.python_function(x, function=...)`",
        "py_function": "`fn.python_function(x, function=...)`",
    },
    _TF_DATA: {
        "TFRecordDataset": _TFRECORD,
        "sample_from_datasets": _MIXTURE,
        "choose_from_datasets": _MIXTURE,
        "from_tensor_slices": _ARRAYS,
        "from_generator": "`fn.external_source(source=...)`",
        "shuffle": _SHUFFLE,
        "batch": _BATCH_SIZE,
        "map": _FUNCTION,
        "interleave": "readers take many files, and read them in threads, `num_threads=` of the pipeline",
        "repeat": "each `for` over the iterator is an epoch, and `repeat=True` of the iterator makes them one",
        "prefetch": "`prefetch_queue_depth=` of the pipeline",
        "take": "`itertools.islice(iterator, n)` for n batches",
        "skip": "`iterator.set_state(state)` continues from the position of a `get_state()`",
        "zip": "two readers in one definition give their samples side by side, in one order if they have equal `seed=` "
        "and shuffling",
        "enumerate": '`metadata=["index"]` of the reader gives the number of each sample',
        "cache": "`fn.decoders.image(x, cache_size=...)` keeps decoded images, `jaxdali.Storage(cache_dir=...)` fetched files",
        "padded_batch": _PAD,
        "bucket_by_sequence_length": "`fn.readers.source(dataset, lengths=..., group_by_length=...)`, then "
        "`fn.pad(x, axes=[0], align=...)`",
        "ragged_batch": "`ragged=` of the iterator",
        "flat_map": _RECORDS,
        "unbatch": _RECORDS,
        "CsvDataset": _TABLE,
        "make_csv_dataset": _TABLE,
        "TextLineDataset": _DATASET,
        "AUTOTUNE": '`num_threads="auto"` and `prefetch_queue_depth="auto"` of the pipeline',
    },
    _TRANSFORMERS: {
        "load_image": _READ,
        "load_audio": "`fn.readers.file(files=...)` reads files, `fn.decoders.audio(x)` decodes them",
        "load_video": _VIDEO,
        "CLIPImageProcessor": _PROCESSOR,
        "ViTImageProcessor": _PROCESSOR,
        "AutoImageProcessor": _PROCESSOR,
        "shortest_edge": "`fn.resize(x, resize_shorter=...)`",
        "rescale": _FLOATS,
        "to_rgb": "`fn.decoders.image(x)` gives RGB, whatever the file has",
    },
    _ALBUMENTATIONS: {
        "Transpose": "`fn.transpose(x, perm=[1, 0, 2])`",
        "LongestMaxSize": "`fn.resize(x, resize_longer=...)`",
        "SmallestMaxSize": "`fn.resize(x, resize_shorter=...)`",
        "PadIfNeeded": _CROP_OR_PAD,
        "LetterBox": _LETTERBOX,
        "RandomScale": "`fn.resize(x, size=...)`, with a size for each sample",
        "ShiftScaleRotate": _WARP,
        "SafeRotate": "`fn.rotate(x, angle=fn.random.uniform(range=[-10.0, 10.0]), fill_value=0)`",
        "RandomRotate90": "`fn.rotate(x, angle=...)`, with a multiple of 90 for each sample",
        "RandomBrightnessContrast": "`fn.brightness_contrast(x, contrast=..., contrast_center=0.0, brightness_shift=...)`, with "
        "`fn.random.uniform(range=...)`; the contrast is a factor",
        "HueSaturationValue": f"`fn.hsv(x, hue=..., saturation=..., value=...)`; {_HUE}, the others are factors",
        "ToGray": _GRAY,
        "CoarseDropout": _ERASE,
        "Cutout": _ERASE,
        "GridDropout": "`fn.grid_mask(x)`",
        "ImageCompression": "`fn.jpeg_compression_distortion(x, quality=...)`",
        "GaussNoise": "`fn.noise.gaussian(x, stddev=...)`",
        "ISONoise": "`fn.noise.shot(x)`",
        "SaltAndPepper": "`fn.noise.salt_and_pepper(x)`",
        "MotionBlur": _PAIRS,
        "MedianBlur": "`fn.experimental.median_blur(x, window_size=...)`",
        "Blur": _BLUR,
        "GridDistortion": _REMAP,
        "OpticalDistortion": _REMAP,
        "BBoxSafeRandomCrop": "`fn.random_bbox_crop(boxes, labels)`",
        "RandomSizedBBoxSafeCrop": "`fn.random_bbox_crop(boxes, labels)`",
        "BboxParams": _BOXES,
        "ToFloat": "`fn.cast(x, dtype=types.FLOAT) / 255`",
        "ToTensorV2": _CHW,
        "OneOf": _SOMETIMES,
        "SomeOf": _SOMETIMES,
        "ReplayCompose": _COMPOSE,
    },
    _CV: {
        "imread": _READ,
        "imdecode": _DECODE,
        "cvtColor": "`fn.color_space_conversion(x, image_type=types.BGR, output_type=types.RGB)`",
        "warpAffine": "`fn.warp_affine(x, matrix)`",
        "warpPerspective": "`fn.experimental.warp_perspective(x, matrix=...)`",
        "copyMakeBorder": _CROP_OR_PAD,
        "INTER_LINEAR": _LINEAR,
        "INTER_CUBIC": _CUBIC,
        "INTER_NEAREST": _NN,
        "INTER_AREA": "`types.INTERP_AREA`",
    },
    _PILLOW: {"BILINEAR": _LINEAR, "BICUBIC": _CUBIC, "NEAREST": _NN, "LANCZOS": _LANCZOS, "fromarray": _CONSTANT},
    _LOADER: {
        "DataLoader": _ITERATOR,
        "Dataset": _DATASET,
        "IterableDataset": "`fn.external_source(source=...)` takes an iterable",
        "TensorDataset": _ARRAYS,
        "ConcatDataset": "`fn.readers.source(datasets, weights=...)`",
        "DistributedSampler": _SHARDS,
        "WeightedRandomSampler": "`fn.readers.source(datasets, weights=...)`",
    },
    _FORMATS: {
        **dict.fromkeys(
            ("decoders.jpeg", "decoders.png", "decoders.webp", "decoders.tiff", "decoders.bmp", "decoders.gif"),
            "`fn.decoders.image(x)` decodes all formats",
        ),
        **dict.fromkeys(
            ("decoders.wav", "decoders.mp3", "decoders.flac", "decoders.ogg"),
            "`fn.decoders.audio(x, sample_rate=...)` decodes WAV, FLAC, Ogg and MP3",
        ),
        "decoders.mp4": "`fn.decoders.video(x)`",
        **dict.fromkeys(("readers.image", "readers.images", "readers.jpeg", "readers.png", "readers.tiff"), _FILES),
        **dict.fromkeys(("readers.mnist", "readers.cifar", "readers.cifar10", "readers.cifar100"), _ARRAYS),
        "readers.npz": "`fn.readers.source(arrays)` reads the rows of `arrays = dict(numpy.load(path))`",
        **dict.fromkeys(
            ("readers.csv", "readers.tsv", "readers.json", "readers.jsonl"),
            _TABLE,
        ),
        **dict.fromkeys(("readers.hdf5", "readers.h5", "readers.zarr", "readers.lmdb", "readers.text"), _DATASET),
        **dict.fromkeys(
            ("decoders.nifti", "decoders.dicom"),
            "`jaxdali.extend.register_decoder` takes a decoder of one's own, as do the items of `fn.readers.source(dataset)`",
        ),
        "readers.arrow": "`fn.readers.parquet(path=...)` also reads files of Arrow",
        "readers.feather": "`fn.readers.parquet(path=...)` also reads files of Arrow",
        "readers.tar": "`fn.readers.webdataset(paths=...)`",
    },
    _GRAIN: {
        "mixture": _MIXTURE,
        "MapDataset": _DATASET,
        "IterDataset": _ITERATOR,
        "MapTransform": _FUNCTION,
        "RandomMapTransform": "`jaxdali.plugin.jax.fn.jax_function`, with `fn.random.key()` as an input",
        "RandomAccessDataSource": _DATASET,
        "ArrayRecordDataSource": "`fn.readers.array_record(path=...)`",
        "IndexSampler": '`fn.readers.file(shuffle="global", num_shards=..., shard_id=...)` and all other readers',
        "ShardOptions": _SHARDS,
        "ShardByJaxProcess": "`jaxdali.plugin.jax.data_iterator(sharding=...)` divides the samples among processes and devices",
        "ReadOptions": _THREADS,
    },
    _TORCH: {
        "uint8": "`types.UINT8`",
        "int8": "`types.INT8`",
        "uint16": "`types.UINT16`",
        "int16": "`types.INT16`",
        "uint32": "`types.UINT32`",
        "int32": "`types.INT32`",
        "uint64": "`types.UINT64`",
        "int64": "`types.INT64`",
        "long": "`types.INT64`",
        "float16": "`types.FLOAT16`",
        "half": "`types.FLOAT16`",
        "bfloat16": "`types.BFLOAT16`",
        "float32": "`types.FLOAT`",
        "float": "`types.FLOAT`",
        "float64": "`types.FLOAT64`",
        "double": "`types.FLOAT64`",
        "bool": "`types.BOOL`",
        "interpolate": "`fn.resize(x, size=...)`",
        "grid_sample": _REMAP,
        "permute": "`fn.transpose(x, perm=...)`",
        "concat": "`fn.cat(x, y, axis=...)`",
        "unsqueeze": "`fn.expand_dims(x, axes=...)`",
        "flatten": "`fn.reshape(x, shape=[-1])`",
        "view": "`fn.reshape(x, shape=...)`",
        "where": "`mask * x + (1 - mask) * y`, or an `if` in a pipeline with `enable_conditionals=True`",
        "clamp": _CLAMP,
        "bernoulli": "`fn.random.coin_flip(probability=...)`",
        "rand": "`fn.random.uniform(range=[0.0, 1.0])`",
        "randn": "`fn.random.normal(mean=0.0, stddev=1.0)`",
        "randint": "`fn.random.choice(n)` draws a whole number below `n`",
        "multinomial": "`fn.random.choice(values, p=...)`",
        "randperm": _PERMUTATION,
        "pad_sequence": _PAD,
        "manual_seed": "`seed=` of the pipeline, or `key=` of a function of `jaxdali.dynamic`",
        "from_numpy": _CONSTANT,
        "as_tensor": _CONSTANT,
    },
    _AUDIO: {
        "stft": "`fn.spectrogram(x, nfft=..., window_length=..., window_step=...)`",
        "MelSpectrogram": "`fn.spectrogram(x)`, then `fn.mel_filter_bank(x)` and `fn.to_decibels(x)`",
        "AmplitudeToDB": "`fn.to_decibels(x)`",
        "power_to_db": "`fn.to_decibels(x)`",
        "FrequencyMasking": _MASK,
        "TimeMasking": _MASK,
        "SpecAugment": _MASK,
        "load": "`fn.readers.file(files=...)` reads files; `fn.decoders.audio(x)`, `fn.decoders.image(x)` and "
        "`fn.decoders.numpy(x)` decode them",
        "Resample": "`fn.audio_resample(x, in_rate=..., out_rate=...)`",
    },
    _NUMPY: {
        "astype": "`fn.cast(x, dtype=...)`",
        "concatenate": "`fn.cat(x, y, axis=...)`",
        "swapaxes": "`fn.transpose(x, perm=...)`",
        "moveaxis": "`fn.transpose(x, perm=...)`",
        "clip": _CLAMP,
        "array": _CONSTANT,
        "asarray": _CONSTANT,
        "mean": "`fn.reductions.mean(x)`",
        "sum": "`fn.reductions.sum(x)`",
        "max": "`fn.reductions.max(x)`",
        "min": "`fn.reductions.min(x)`",
        "std": "`fn.reductions.std_dev(x)`",
        "var": "`fn.reductions.variance(x)`",
        "random.gaussian": "`fn.random.normal(mean=..., stddev=...)`",
        "integers": "`fn.random.choice(n)` draws a whole number below `n`",
        "binomial": "`fn.random.coin_flip(probability=...)`",
        "random.permutation": _PERMUTATION,
        "random.shuffle": _PERMUTATION,
        "random.random": "`fn.random.uniform(range=[0.0, 1.0])`",
    },
    _JAX: {
        "PRNGKey": _KEYS,
        "categorical": "`fn.random.choice(values, p=...)`",
        "truncated_normal": "`fn.random.normal(mean=..., stddev=...)`, then `jaxdali.math.clamp(x, low, high)`",
        "vmap": "operators work on batches: leave it out",
        "device_put": "`jaxdali.plugin.jax.data_iterator(sharding=...)` places batches",
        "pure_callback": "`fn.python_function(x, function=...)`",
    },
}

# By library and argument: answers, by another argument that the function takes; see `Foreign.takes`.
_ARGUMENTS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    _LOADER: {
        "num_workers": {
            "num_threads": "`num_threads`, as workers are threads; `fn.readers.source(num_workers=...)` starts processes",
            "output_map": _THREADS,
            "num_shards": _THREADS,
        },
        "drop_last": {
            "last_batch_policy": "`last_batch_policy=LastBatchPolicy.DROP`, from `jaxdali.plugin.base_iterator`",
            "num_threads": _DROP,
            "num_shards": _DROP,
        },
        "shuffle": {
            "num_threads": _SHUFFLE,
            "output_map": _SHUFFLE,
        },
        "sampler": dict.fromkeys(
            ("num_shards", "num_threads", "output_map"),
            '`fn.readers.file(shuffle="global", num_shards=..., shard_id=...)`',
        ),
        "batch_sampler": dict.fromkeys(("num_shards", "num_threads", "output_map"), _BATCH_SIZE),
        "batch_size": dict.fromkeys(("device", "output_map"), _BATCH_SIZE),
        "collate_fn": dict.fromkeys(
            ("num_threads", "output_map"),
            "pipelines make batches themselves; `fn.pad(x, axes=[0])` gives samples one shape: leave it out",
        ),
        "pin_memory": dict.fromkeys(
            ("num_threads", "output_map"), "leave it out: batches are moved while the next ones are made"
        ),
        "prefetch_factor": {
            "num_threads": "`prefetch_queue_depth`",
            "output_map": "`prefetch_queue_depth=` of the pipeline",
        },
        "persistent_workers": dict.fromkeys(
            ("num_threads", "output_map"), "leave it out: threads live as long as the pipeline"
        ),
        "worker_init_fn": dict.fromkeys(
            ("num_threads", "output_map"), "leave it out: workers are threads of this process"
        ),
        "multiprocessing_context": dict.fromkeys(
            ("num_threads", "output_map"), "leave it out: workers are threads of this process"
        ),
        "generator": {"seed": "`seed`, a number"},
    },
    _TF_DATA: {
        "num_parallel_calls": {"num_threads": "`num_threads`", "output_map": _THREADS, "num_shards": _THREADS},
        "drop_remainder": {
            "last_batch_policy": "`last_batch_policy=LastBatchPolicy.DROP`, from `jaxdali.plugin.base_iterator`",
            "num_threads": _DROP,
            "num_shards": _DROP,
        },
        "buffer_size": {
            "initial_fill": '`initial_fill`, with `random_shuffle=True`; `shuffle="global"` shuffles all samples',
            "num_threads": "`prefetch_queue_depth`",
        },
        "reshuffle_each_iteration": {"shuffle_after_epoch": "`shuffle_after_epoch`"},
        "filenames": {"files": "`files`", "path": "`path`"},
    },
    _GRAIN: {
        "worker_count": {
            "num_threads": "`num_threads`, as workers are threads",
            "output_map": _THREADS,
            "num_shards": _THREADS,
        },
        "worker_buffer_size": {
            "num_threads": "`prefetch_queue_depth`",
            "output_map": "`prefetch_queue_depth=` of the pipeline",
        },
        "shard_options": dict.fromkeys(("num_shards", "num_threads", "output_map"), _SHARDS),
        "num_epochs": dict.fromkeys(
            ("num_threads", "output_map"), "leave it out: each `for` over the iterator is an epoch"
        ),
        "read_options": dict.fromkeys(("num_threads", "output_map", "num_shards"), _THREADS),
        "shard_count": {"num_shards": "`num_shards`"},
        "shard_index": {"num_shards": "`shard_id`"},
    },
    _VISION: {
        "interpolation": {"interp_type": _INTERPOLATION, "interp": "`interp=types.INTERP_LINEAR`"},
        "top": {"crop_pos_y": "`crop_pos_y`, from 0 to 1; `fn.slice(x, start=..., shape=...)` cuts at pixels"},
        "left": {"crop_pos_x": "`crop_pos_x`, from 0 to 1; `fn.slice(x, start=..., shape=...)` cuts at pixels"},
        "degrees": {"angle": "`angle`, a number or `fn.random.uniform(range=[-10.0, 10.0])`"},
        "expand": {"keep_size": "`keep_size`, its opposite"},
        "center": {"keep_size": "`fn.warp_affine(x, matrix)`, with `fn.transforms.rotation(angle=..., center=...)`"},
        "antialias": {"interp_type": "leave it out: only `fn.resize` and its kin shrink with a filter"},
        "kernel_size": {"window_size": "`window_size`"},
        "brightness_factor": {"brightness": "`brightness`"},
        "contrast_factor": {"contrast": "`contrast`"},
        "saturation_factor": {"saturation": "`saturation`"},
        "hue_factor": {"hue": "`hue`, in degrees, of YIQ instead of HSV"},
        "output_size": {"crop": "`crop`", "size": "`size`"},
        "scale": {"random_area": "`random_area`"},
        "ratio": {"random_aspect_ratio": "`random_aspect_ratio`"},
        "padding": {"crop": '`out_of_bounds_policy="pad"`'},
        "fill": {"fill_value": "`fill_value`", "fill_values": "`fill_values`"},
        "inplace": {"": "leave it out: operators make new values"},
        "transform": dict.fromkeys(
            ("num_shards", "num_threads", "output_map"), "operators are called on what the reader gives"
        ),
        "root": {"file_root": "`file_root`"},
        "folder": {"file_root": "`file_root`"},
    },
    _TF_IMAGE: {
        "method": {"interp_type": _INTERPOLATION},
        "preserve_aspect_ratio": {"resize_shorter": '`mode="not_larger"`'},
        "target_height": {"crop": "`crop=[height, width]`", "size": "`size=[height, width]`"},
        "target_width": {"crop": "`crop=[height, width]`", "size": "`size=[height, width]`"},
        "channels": {"output_type": "`output_type=types.RGB` or `types.GRAY`"},
        "delta": {"brightness_shift": "`brightness_shift`", "hue": "`hue`, in degrees, of YIQ instead of HSV"},
        "area_range": {"random_area": "`random_area`"},
        "aspect_ratio_range": {"random_aspect_ratio": "`random_aspect_ratio`"},
        "depth": {"num_classes": "`num_classes`"},
        "minval": {"range": "`range=[low, high]`"},
        "maxval": {"range": "`range=[low, high]`"},
    },
    _ALBUMENTATIONS: {
        "p": {
            "probability": "`probability`",
            "horizontal": "`horizontal=fn.random.coin_flip(probability=...)`",
            "mirror": "`mirror=fn.random.coin_flip(probability=...)`",
            "": _SOMETIMES,
        },
        "limit": {"angle": "`angle`, a number or `fn.random.uniform(range=[-10.0, 10.0])`"},
        "blur_limit": {"window_size": "`window_size`"},
        "sigma_limit": {"sigma": "`sigma`"},
        "height": {"crop": "`crop=[height, width]`", "size": "`size=[height, width]`"},
        "width": {"crop": "`crop=[height, width]`", "size": "`size=[height, width]`"},
        "max_pixel_value": {"std": "leave it out: `mean` and `std` of bytes are of 0..255"},
        "value": {"fill_value": "`fill_value`", "fill_values": "`fill_values`"},
        "border_mode": {"border": "`border`", "fill_value": "`fill_value`, the value outside of the image"},
    },
    _TF: {
        "directory": {"file_root": "`file_root`"},
    },
    _TRANSFORMERS: {
        "path": {
            "filenames": "`filenames`, a list of files",
            "paths": "`paths`",
            "files": "`file_root` for a folder, `files` for a list of files",
            "file_root": "`file_root`",
        },
        "data_dir": {"file_root": "`file_root`"},
        "num_frames": {"sequence_length": "`sequence_length`"},
    },
    _PILLOW: {
        "resample": {"interp_type": _INTERPOLATION},
        "fillcolor": {"fill_value": "`fill_value`"},
    },
    _CV: {
        "dsize": {"size": "`size=[height, width]`"},
        "ksize": {"window_size": "`window_size`"},
        "borderValue": {"fill_value": "`fill_value`"},
    },
    _TORCH: {
        "dim": {"axes": "`axes`", "axis": "`axis`"},
        "dims": {"perm": "`perm`", "axes": "`axes`"},
        "keepdim": {"keep_dims": "`keep_dims`"},
        "std": {"stddev": "`stddev`"},
        "n_fft": {"nfft": "`nfft`"},
        "scale_factor": {"resize_shorter": "`size`, a number of pixels"},
        "align_corners": {"interp_type": "leave it out: pixels are areas, as with `align_corners=False`"},
        "non_blocking": {"": "leave it out: copies don't block"},
        "requires_grad": {"": "leave it out: values have no gradient"},
    },
    _AUDIO: {
        "hop_length": {"window_step": "`window_step`"},
        "win_length": {"window_length": "`window_length`"},
        "n_mels": {"nfilter": "`nfilter`"},
        "sr": {"sample_rate": "`sample_rate`"},
        "orig_freq": {"in_rate": "`in_rate`"},
        "new_freq": {"out_rate": "`out_rate`"},
    },
    _NUMPY: {
        "pad_width": {"fill_value": "`shape`, the extents afterwards"},
        "low": {"range": "`range=[low, high]`"},
        "high": {"range": "`range=[low, high]`"},
        "loc": {"stddev": "`mean`"},
        "scale": {"stddev": "`stddev`"},
        "keepdims": {"keep_dims": "`keep_dims`"},
        "axis": {"axes": "`axes`", "horizontal": "`horizontal=1`, or `horizontal=0` with `vertical=1`"},
        "axes": {"perm": "`perm`"},
        "constant_values": {"fill_value": "`fill_value`"},
        "a_min": {"": _CLAMP},
        "replace": {"p": "leave it out: samples are independent"},
    },
    _JAX: {
        "key": {"seed": "`seed`, a number; functions of `jaxdali.dynamic` take keys"},
        "rng": {"seed": "`seed`, a number; functions of `jaxdali.dynamic` take generators"},
    },
}

_NO_VALUE = "it stands for a batch that does not exist yet; what the iterator gives has values"
_RANK = "the number of dimensions is known when the pipeline runs; `x.shape()` is a value of the pipeline"
# Attributes of arrays for which there are operators: of a "DataNode" and of a "Batch".
_OPERATORS: Mapping[str, Mapping[str, str]] = {
    _TORCH: {
        "permute": "`fn.transpose(x, perm=...)`",
        "unsqueeze": "`fn.expand_dims(x, axes=...)`",
        "view": "`fn.reshape(x, shape=...)`",
        "half": "`fn.cast(x, dtype=types.FLOAT16)`",
        "float": "`fn.cast(x, dtype=types.FLOAT)`",
        "double": "`fn.cast(x, dtype=types.FLOAT64)`",
        "byte": "`fn.cast(x, dtype=types.UINT8)`",
        "int": "`fn.cast(x, dtype=types.INT32)`",
        "long": "`fn.cast(x, dtype=types.INT64)`",
        "bool": "`fn.cast(x, dtype=types.BOOL)`",
        "clamp": _CLAMP,
        "interpolate": "`fn.resize(x, size=...)`",
        "contiguous": "values are contiguous: leave it out",
        "detach": "values have no gradient: leave it out",
        "clone": "values don't change: leave it out",
    },
    _NUMPY: {
        "astype": "`fn.cast(x, dtype=...)`",
        "transpose": "`fn.transpose(x, perm=...)`",
        "swapaxes": "`fn.transpose(x, perm=...)`",
        "T": "`fn.transpose(x, perm=...)`",
        "reshape": "`fn.reshape(x, shape=...)`",
        "flatten": "`fn.reshape(x, shape=[-1])`",
        "ravel": "`fn.reshape(x, shape=[-1])`",
        "squeeze": "`fn.squeeze(x, axes=...)`",
        "clip": _CLAMP,
        "max": "`fn.reductions.max(x)`",
        "mean": "`fn.reductions.mean(x)`",
        "min": "`fn.reductions.min(x)`",
        "sum": "`fn.reductions.sum(x)`",
        "std": "`fn.reductions.std_dev(x)`",
        "var": "`fn.reductions.variance(x)`",
        "copy": "values don't change: leave it out",
    },
}
_ATTRIBUTES: Mapping[Use, Mapping[str, Mapping[str, str]]] = {
    "DataNode": {
        _TORCH: {
            "cuda": "`x.gpu()`, which moves it to the accelerator",
            "to": "`x.gpu()`, which moves it to the accelerator, or `fn.cast(x, dtype=...)` for another type",
            "dim": _RANK,
            "numpy": _NO_VALUE,
            "torch": _NO_VALUE,
            "requires_grad": "values have no gradient",
        },
        _NUMPY: {
            "dtype": "types are known when the pipeline runs; `fn.cast` and `fn.cast_like` set them (and `x.shape` is a method)",
            "ndim": _RANK,
            "size": _RANK,
            "item": _NO_VALUE,
            "tolist": _NO_VALUE,
        },
        _JAX: {
            "jax": _NO_VALUE,
            "block_until_ready": _NO_VALUE,
            "at": "values don't change: `fn.erase`, `fn.multi_paste` and `fn.cat` make others",
        },
        _TF_DATA: {
            "map": _FUNCTION,
            "batch": _BATCH_SIZE,
            "shuffle": _SHUFFLE,
            "prefetch": "`prefetch_queue_depth=` of the pipeline",
            "repeat": "each `for` over the iterator is an epoch: leave it out",
        },
    },
    "Batch": {
        _TORCH: {
            "cuda": '`x.to("gpu")`',
            "gpu": '`x.to("gpu")`',
            "cpu": '`x.to("cpu")`, or `x.numpy()` for an array',
            "dim": "`x.ndim`, of a sample",
            "pin_memory": "leave it out",
        },
        _NUMPY: {
            "shape": "`x.shapes` for the shape of each sample, `x.numpy().shape` for the array's",
            "size": "`len(x)` for the number of samples, `x.shapes` for their shapes",
            "item": "`x.numpy().item()`",
            "tolist": "`x.numpy().tolist()`, or `x.samples()` for a list of arrays",
        },
        _JAX: {"block_until_ready": "`x.jax().block_until_ready()`", "at": "`x.jax().at`"},
    },
    "DALIGenericIterator": {
        _LOADER: {"state_dict": "`get_state()`", "load_state_dict": "`set_state(state)`"},
        _TF_DATA: {
            "save": "`get_state()`, which JSON can hold",
            "restore": "`set_state(state)`",
            "map": _FUNCTION,
            "filter": "readers take a list without the samples, such as `files=`; no operator leaves samples out",
            "batch": _BATCH_SIZE,
            "shuffle": _SHUFFLE,
            "shard": "every reader divides its samples by `num_shards` and `shard_id`",
            "prefetch": "`prefetch_queue_depth=` of the pipeline",
            "repeat": "`repeat=True` of the iterator",
            "take": "`itertools.islice(iterator, n)` for n batches; with `reader_name`, "
            "`iterator.set_state(iterator.get_state(), restart_epoch=True)` then begins the epoch anew",
            "skip": "`next(iterator)` to pass over a batch, or `set_state(state)` to continue from the position of a `get_state()`",
            "as_numpy_iterator": "`jax.device_get(batch)`, which makes arrays of NumPy",
        },
    },
    "Tensor": {  # a NumPy array
        _TORCH: {
            "permute": "`x.transpose(...)`",
            "unsqueeze": "`x[None]`, or `numpy.expand_dims`",
            "cuda": "`jax.device_put(x)`, which moves it to the accelerator",
            "gpu": "`jax.device_put(x)`, which moves it to the accelerator",
            "to": "`jax.device_put(x, device)`, or `x.astype(dtype)`",
            "cpu": "it is on the host, an array of NumPy",
            "numpy": "it is an array of NumPy",
            "torch": "`torch.from_numpy(x)`",
            "dim": "`x.ndim`",
            "float": "`x.astype(numpy.float32)`",
            "clone": "`x.copy()`",
            "detach": "leave it out",
            "clamp": "`x.clip(...)`",
        },
    },
}


def _rows() -> list[Foreign]:
    """All rows of the table."""
    rows = [Foreign(name, library, markdown) for library, names in _NAMES.items() for name, markdown in names.items()]
    for library, names in _ARGUMENTS.items():
        rows += [
            Foreign(name, library, markdown, "argument", takes)
            for name, answers in names.items()
            for takes, markdown in answers.items()
        ]
    for use, libraries in _ATTRIBUTES.items():
        for library, names in libraries.items():
            rows += [Foreign(name, library, markdown, use) for name, markdown in names.items()]
    for library, names in _OPERATORS.items():
        rows += [
            Foreign(name, library, markdown, use) for name, markdown in names.items() for use in ("DataNode", "Batch")
        ]
    return rows


FOREIGN = tuple(_rows())


def squashed(name: str) -> str:
    """A form in which ``CenterCrop`` and ``center_crop`` are equal."""
    return name.replace("_", "").lower()


@functools.cache
def _index() -> Mapping[tuple[Use, str], list[Foreign]]:
    """The rows by use and `squashed` name."""
    index: dict[tuple[Use, str], list[Foreign]] = {}
    for row in FOREIGN:
        index.setdefault((row.use, squashed(row.name)), []).append(row)
    return index


def answer(name: str, use: Use = "name", takes: Collection[str] = ()) -> str:
    """The answer to a name of another library; "" if the table does not have it.

    Args:
      name: as the user wrote it, with or without modules before it.
      takes: for an argument: the arguments of the function.
    """
    while name:
        for row in _index().get((use, squashed(name)), ()):
            if not row.takes or row.takes in takes:
                return row.answer
        _, _, name = name.partition(".")  # without the first module: "a.b.name", "b.name", "name"
    return ""
