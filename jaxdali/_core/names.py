"""Public names: the contents of the public modules, and messages about unknown names."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .tracebacks import boundary

if TYPE_CHECKING:
    from .foreign import Use

# Names in `fn` that have no equivalent among the functions of values, in `jaxdali.dynamic`.
ONLY_IN_PIPELINES = ("external_source", "inputs", "readers", "_conditional")

F = TypeVar("F", bound=Callable[..., Any])

# Words in function names that DALI's classes do not capitalize regularly.
_WORDS = {
    "bbox": "BBox",
    "coco": "COCO",
    "dl": "DL",
    "mfcc": "MFCC",
    "mxnet": "MXNet",
    "rms": "RMS",
    "roi": "ROI",
    "ssd": "SSD",
    "tfds": "TFDS",
    "tfrecord": "TFRecord",
}


def class_name(function: str) -> str:
    """The name of a function's class: ``"random_bbox_crop"`` -> ``"RandomBBoxCrop"``."""
    return "".join(_WORDS.get(word, word[:1].upper() + word[1:]) for word in function.split("_"))


# The operators of DALI 2.4, `nvidia.dali.fn`.
DALI_OPERATORS = """
audio_decoder audio_resample batch_permutation bb_flip bbox_paste bbox_rotate box_encoder brightness brightness_contrast caffe2_reader
caffe_reader cast cast_like cat clahe coco_reader coin_flip color_space_conversion color_twist constant contrast coord_flip
coord_transform copy crop crop_mirror_normalize debayer decoders.audio decoders.image decoders.image_crop decoders.image_random_crop
decoders.image_slice decoders.inflate decoders.numpy decoders.video dl_tensor_python_function dump_image element_extract equalize erase
expand_dims experimental.audio_resample experimental.debayer experimental.decoders.image experimental.decoders.image_crop
experimental.decoders.image_random_crop experimental.decoders.image_slice experimental.decoders.video experimental.dilate
experimental.equalize experimental.erode experimental.filter experimental.inflate experimental.inputs.video experimental.median_blur
experimental.peek_image_shape experimental.readers.fits experimental.readers.video experimental.remap experimental.resize
experimental.tensor_resize experimental.warp_perspective external_source fast_resize_crop_mirror file_reader filter flip full full_like
gaussian_blur get_property grid_mask hsv hue image_decoder image_decoder_crop image_decoder_random_crop image_decoder_slice io.file.read
jitter jpeg_compression_distortion laplacian lookup_table mel_filter_bank mfcc multi_paste mxnet_reader nemo_asr_reader noise.gaussian
noise.salt_and_pepper noise.shot nonsilent_region normal_distribution normalize numpy_reader one_hot ones ones_like optical_flow pad
paste peek_image_shape per_frame permute_batch power_spectrum preemphasis_filter python_function random.beta random.choice
random.coin_flip random.normal random.uniform random_bbox_crop random_crop_generator random_resized_crop readers.caffe readers.caffe2
readers.coco readers.file readers.mxnet readers.nemo_asr readers.numpy readers.sequence readers.tfrecord readers.video
readers.video_resize readers.webdataset reductions.max reductions.mean reductions.mean_square reductions.min reductions.rms
reductions.std_dev reductions.sum reductions.variance reinterpret reshape resize resize_crop_mirror roi_random_crop rotate saturation
segmentation.random_mask_pixel segmentation.random_object_bbox segmentation.select_masks sequence_reader sequence_rearrange shapes slice
spectrogram sphere squeeze ssd_random_crop stack tensor_resize tfrecord_reader to_decibels transform_translation transforms.combine
transforms.crop transforms.rotation transforms.scale transforms.shear transforms.translation transpose uniform video_reader
video_reader_resize warp_affine water zeros zeros_like
""".split()

# Other names of DALI, also from versions before 1.0, that are not in jaxdali: `_INSTEAD` has advice for each.
_STREAMS = "XLA manages streams: leave it out"
_PYTORCH = "use plugin.jax (JAX arrays), plugin.pytorch (PyTorch tensors), or np.asarray of a batch of plugin.jax"
_EXTENSIONS = "custom operators are made with jaxdali.extend"
_LISTS = "python -m jaxdali.fn lists the operators, inspect.signature has the arguments of each"
_MEMORY = "XLA manages memory, see its XLA_PYTHON_CLIENT_PREALLOCATE and XLA_PYTHON_CLIENT_MEM_FRACTION"
_VERSIONS = "jaxdali.show_config() shows the versions of its libraries, jax.print_environment_info() those of CUDA"
_DEVICES = "use jax.devices() and jax.default_device"
_WORKERS = "workers are threads (py_num_workers) or processes of readers.source: they need no pool and no pickler"
_BASE_ITERATOR = "derive from DALIGenericIterator: its __next__ makes the batches, and it has no other methods for them"
_PINNED = "leave it out: XLA copies to the GPU from any memory"
_ON_HOST = (
    "its function gets NumPy arrays, wherever the inputs are: leave device out, and call .gpu() on the outputs, or use "
    "plugin.jax.fn.jax_function, whose function computes on the accelerator"
)
_FORMATTING = ("PipelineBatchAdapter", "PipelineTensorAdapter", "format_batch", "format_tensor")
_IMAGE = {"": "Image", "Crop": "ImageCrop", "RandomCrop": "ImageRandomCrop", "Slice": "ImageSlice"}
_INSTEAD = {
    "experimental.eager": "use experimental.dynamic, or jaxdali.dynamic",
    "experimental.torchvision": "use experimental.dynamic, or jaxdali.dynamic",
    "plugin.mxnet": f"{_PYTORCH}; mxnet.nd.from_dlpack takes PyTorch's through DLPack, mxnet.nd.array NumPy's",
    "plugin.numba": "use plugin.jax.fn.jax_function, or fn.python_function",
    "plugin.paddle": f"{_PYTORCH}; paddle.utils.dlpack.from_dlpack takes PyTorch's through DLPack, paddle.to_tensor NumPy's",
    "plugin.tf": "use plugin.jax; tf.data.Dataset.from_generator takes np.asarray of its batches (jaxdali/plugin/README.md has the lines), "
    "tf.experimental.dlpack.from_dlpack PyTorch's tensors",
    "plugin.pytorch.experimental": "workers are threads of one process: no process needs a proxy; use plugin.pytorch",
    "plugin.pytorch.loader_evaluator": "use python -m jaxdali.benchmark",
    "plugin_manager": _EXTENSIONS,
    **dict.fromkeys(("plugin.base_iterator._DaliBaseIterator", "plugin.pytorch._DaliBaseIterator"), _BASE_ITERATOR),
    **dict.fromkeys(("backend.TensorListCPU(is_pinned=)", "tensors.TensorListCPU(is_pinned=)"), _PINNED),
    **dict.fromkeys(("backend.TensorCPU(is_pinned=)", "tensors.TensorCPU(is_pinned=)"), _PINNED),
    **dict.fromkeys(("backend.LoadDirectory", "backend.LoadLibrary", "ops.Reload"), _EXTENSIONS),
    **dict.fromkeys(("ops.python_op_factory", "ops.register_cpu_op", "ops.register_gpu_op"), _EXTENSIONS),
    **dict.fromkeys(("ops.cpu_ops", "ops.gpu_ops", "ops.mixed_ops"), _LISTS),
    **{
        f"backend.{name}": _LISTS
        for name in ("GetSchema", "RegisteredCPUOps", "RegisteredGPUOps", "RegisteredMixedOps", "TryGetSchema")
    },
    **{f"backend.Preallocate{kind}Memory": _MEMORY for kind in ("Device", "Pinned")},
    **{f"backend.{name}": _MEMORY for name in ("ReleaseUnusedMemory", "RestrictPinnedMemUsage")},
    **{f"backend.SetHostBuffer{member}": _MEMORY for member in ("GrowthFactor", "ShrinkThreshold")},
    **{f"backend.{name}": _MEMORY for name in ("SetBufferGrowthFactor", "SetDeviceBufferGrowthFactor")},
    **{
        f"backend.Get{member}": _MEMORY
        for member in ("DeviceBufferGrowthFactor", "HostBufferGrowthFactor", "HostBufferShrinkThreshold")
    },
    **{
        f"backend.Get{member}Version": _VERSIONS
        for member in ("Cuda", "Cufft", "Npp", "Nvimgcodec", "Nvjpeg", "OpenCV")
    },
    **dict.fromkeys(
        ("backend.GetCUDACurrentDevice", "backend.SetCUDACurrentDevice", "backend.GetCUDADeviceCount"), _DEVICES
    ),
    **dict.fromkeys(("backend.GetCUDAStreamDevice", "backend.DLDeviceType", "backend.IsDriverInitialized"), _DEVICES),
    **dict.fromkeys(("backend.check_cuda_runtime", "backend.cuda_checked"), _DEVICES),
    **dict.fromkeys(
        ("backend.CUDAStreamSynchronize", "backend.Stream", "python_function_plugin.current_dali_stream"), _STREAMS
    ),
    **dict.fromkeys(("backend.GetSchemaAndTarget", "backend.OpSchema", "backend.OpSpec"), _LISTS),
    **dict.fromkeys(
        ("backend.Init", "backend.initialized", "backend.LoadDefaultPlugins"),
        "nothing has to be initialized: leave it out",
    ),
    **dict.fromkeys(("backend.Pipeline", "backend.PipelineDebug"), "use jaxdali.Pipeline"),
    **dict.fromkeys(("backend.GetCxx11AbiFlag", "sysconfig"), _EXTENSIONS),
    **dict.fromkeys(
        ("backend.CheckDLPackCapsule", "python_function_plugin"),
        "use from_dlpack of the framework that takes the array",
    ),
    **dict.fromkeys(("backend.SharedMem", "pipeline.WorkerPool", "reducers"), _WORKERS),
    **dict.fromkeys(("backend.ExternalContextCheckpoint",), "use Pipeline.checkpoint, or checkpoints() of an iterator"),
    "backend.deprecation_warning": "use warnings.warn",
    **{f"tensors.{name}": "use repr or str of a tensor" for name in _FORMATTING},
    "data_node.not_iterable": "an internal function of DALI: leave it out",
    **dict.fromkeys(
        ("external_source", "external_source.ExternalSource"), "use fn.external_source, or ops.ExternalSource"
    ),
    "ops.OpticalFlow": "it needs NVIDIA's hardware engine; use OpenCV in ops.PythonFunction, or a network in plugin.jax.fn.jax_function",
    "ops.VideoReaderResize": "use ops.readers.VideoResize",
    "types.dali_type_converters": "use types.to_numpy_type",
    "types.CUDAStream": _STREAMS,
    "types.PipelineAPIType": "a pipeline knows itself how it is used; Pipeline.enable_api_check(False) allows mixing",
    "fn.experimental.readers.fits": "use astropy in readers.source, or in a decoder of one's own (jaxdali.extend.register_decoder)",
    "fn.old_color_twist": "use fn.color_twist",
    **dict.fromkeys(("fn.python_function(device='gpu')", "ops.PythonFunction(device='gpu')"), _ON_HOST),
    "fn.optical_flow": "it needs NVIDIA's hardware engine; use OpenCV in fn.python_function, or a network in plugin.jax.fn.jax_function",
    "fn.video_reader_resize": "use fn.readers.video_resize",
    "ops.OldColorTwist": "use ops.ColorTwist",
    "ops.CropCastPermute": "use ops.CropMirrorNormalize",
    "ops.NormalizePermute": "use ops.CropMirrorNormalize",
    **{f"ops.HostDecoder{part}": f"use ops.decoders.{image}" for part, image in _IMAGE.items()},
    **{f"ops.nvJPEGDecoder{part}": f'use ops.decoders.{image}(device="mixed")' for part, image in _IMAGE.items()},
}

# Names that users look for in `jaxdali` or `jaxdali.fn` but are in another public module, and that module.
_ELSEWHERE = {
    **dict.fromkeys(
        "DALIGenericIterator DALIGenericPeekableIterator data_iterator peekable_data_iterator".split(), "plugin.jax"
    ),
    "jax_function": "plugin.jax.fn",
    "LastBatchPolicy": "plugin.base_iterator",
    **dict.fromkeys(
        "auto_contrast color contrast_by_area cutout identity invert pixel_shear_x pixel_shear_y posterize sharpness shear_x shear_y "
        "solarize solarize_add translate_x translate_x_no_shape translate_y translate_y_no_shape".split(),
        "auto_aug.augmentations",
    ),
    **dict.fromkeys("auto_augment auto_augment_image_net".split(), "auto_aug.auto_augment"),
    "rand_augment": "auto_aug.rand_augment",
    "trivial_augment_wide": "auto_aug.trivial_augment",
}


def index(
    module: str, contents: Mapping[str, Any], names: str = ""
) -> tuple[list[str], Callable[[], list[str]], Callable[[str], ModuleType]]:
    """(``__all__``, ``__dir__``, ``__getattr__``) for a public module. Its ``__getattr__`` imports a public submodule
    when it is first used, and raises AttributeError with advice for other names.

    Args:
      module: the module's name.
      contents: the module's globals, at the end of the module.
      names: public names, separated by blanks. Default: all names without a leading underscore, for a module that is an
        index.
    """

    def show() -> list[str]:
        # Submodules are imported later, too.
        return sorted(names.split() or (name for name in contents if not name.startswith("_")))

    def missing(name: str) -> ModuleType:
        """The submodule of this name. Raises AttributeError if there is none."""
        if name.startswith("_"):
            raise AttributeError(instead(module, name) or f"module {module!r} has no attribute {name!r}", name=name)
        message = instead(module, name)
        if not message and "__path__" in contents and importlib.util.find_spec(f"{module}.{name}"):
            try:
                return importlib.import_module(f"{module}.{name}")
            except ImportError as e:  # so that `hasattr` is False if an optional package is missing
                raise AttributeError(f"{module}.{name} can't be imported: {e}", name=name) from e
        # With a name but no object, Python does not add a suggestion of its own.
        raise AttributeError(message or _missing(module, name), name=name)

    return show(), show, boundary(missing)


def lazy_index(
    module: str, contents: dict[str, Any]
) -> tuple[list[str], Callable[[], list[str]], Callable[[str], Any]]:
    """(``__all__``, ``__dir__``, ``__getattr__``) as `index`, for a package whose names are in the stub `__init__.pyi`.
    The object of a name is imported when it is first used.

    Each line of the stub is ``from .module import name as name``; type checkers and editors read the same file.
    """
    stub = Path(contents["__file__"]).with_suffix(".pyi").read_text(encoding="utf-8")
    modules = {
        name: source_module
        for source_module, name in re.findall(r"^from (\.\S*) import (\w+) as \w+$", stub, re.MULTILINE)
    }
    _, _, missing = index(module, contents)

    def show() -> list[str]:
        # Submodules are imported later, too.
        return sorted(name for name in {*modules, *contents} if not name.startswith("_"))

    def get(name: str) -> Any:
        if name not in modules or modules[name] == ".":  # ".": a submodule
            return missing(name)
        # As a global of the module, which Python finds without `__getattr__` the next time.
        contents[name] = getattr(importlib.import_module(modules[name], module), name)
        return contents[name]

    return show(), show, boundary(get)


def members(module: ModuleType) -> dict[str, Any]:
    """The public names of a module and their objects. Imports all that have not been used yet."""
    return {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}


def foreign() -> ModuleType:
    """The module with the names of other libraries. It is large, so it is imported when the first name is missing."""
    from . import foreign

    return foreign


def _is_respelling(known_name: str, name: str) -> bool:
    """Whether a name is another spelling of a known name: ``"MelFilterBank"`` of ``"mel_filter_bank"``."""
    return foreign().squashed(known_name.rpartition(".")[2]) == foreign().squashed(name)


def _respelled(name: str, operators: Mapping[str, str]) -> str:
    """The operator whose name is another spelling of `name`, in any module of `fn`; "" if there is none.

    `operators`: as `_operators` returns them.
    """
    matches = sorted(
        (n for n in operators if _is_respelling(n, name)), key=lambda n: (n.startswith("experimental."), n)
    )
    return f"fn.{operators[matches[0]]}" if matches else ""


def did_you_mean(name: str, known_names: Iterable[str], use: Use | None = "name") -> str:
    """The end of a message about an unknown name: the replacement for a name of another library, or a similar known
    name; "" if there is neither.

    Args:
      name: the unknown name, with the modules in which the user looked for it: "random.gaussian".
      known_names: the names that exist.
      use: the place of the name: a "name" in a module, an "argument", or an attribute of a "DataNode", a "Batch", a
        "Tensor" or a "DALIGenericIterator"; None: no other library has such names.
    """
    known_names, leaf = list(known_names), name.rpartition(".")[2]  # the last part of a dotted name
    if use is not None and (answer := foreign().answer(name, use, known_names)):
        is_code = re.match(r"[\w.]+[(.]", answer) is not None  # else a sentence
        return (
            f"; instead: {answer}" if use in ("name", "argument") else f": use {answer}" if is_code else f": {answer}"
        )
    similar = [n for n in known_names if _is_respelling(n, leaf)] or difflib.get_close_matches(leaf, known_names, n=1)
    return f"; did you mean {similar[0]!r}?" if similar else ""


def unexpected(function: str, name: str, parameters: Iterable[str]) -> str:
    """The message about an unknown argument, with a similar name or the names of all arguments."""
    parameters = [n for n in parameters if n != "self"]
    advice = did_you_mean(name, parameters, "argument") or f"; it takes {', '.join(parameters) or 'none'}"
    return f"{function}: got an unexpected argument {name!r}{advice}"


def suggests_names(f: F, of_result: Collection[str] = ()) -> F:
    """Decorator for public functions and `__init__`: an unknown argument is a TypeError that suggests a similar
    name.

    Args:
      of_result: arguments of the function that `f` returns.
    """
    parameters = inspect.signature(f).parameters

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in parameters:
                message = unexpected(f.__qualname__.removesuffix(".__init__"), name, parameters)
                if name in of_result:
                    message = f"{message.partition(';')[0]}; pass it in the call of the function that it returns: iterator_fn({name}=...)"
                raise TypeError(message)
        return f(*args, **kwargs)

    return cast(F, boundary(checked))


def hint(name: str) -> str:
    """The replacement for a name of DALI, such as ``"plugin.tf"`` or a name in it, or for an argument, such as
    ``"ops.Name(argument=)"`` or ``"ops.Name(argument='value')"``; "" if there is no hint.
    """
    while name and name not in _INSTEAD:
        name = name.rpartition(".")[0]
    return _INSTEAD.get(name, "")


def instead(module: str, name: str) -> str:
    """The message for a module's unknown name that has a `hint`; "" if it has none."""
    full_name = f"{module}.{name}".removeprefix("jaxdali.")
    return f"{full_name} of DALI is not in jaxdali: {hint(full_name)}" if full_name in _INSTEAD else ""


def _missing(module: str, name: str) -> str:
    """The message for an unknown name of a public module."""
    if module in ("jaxdali", "jaxdali.fn") and name in _ELSEWHERE:
        return f"module {module!r} has no attribute {name!r}: from jaxdali.{_ELSEWHERE[name]} import {name}"
    _, is_fn, submodule = module.partition("jaxdali.fn")
    if not is_fn:
        return f"module {module!r} has no attribute {name!r}" + did_you_mean(name, dir(sys.modules[module]))
    full_name = f"{submodule}.{name}".removeprefix(".")
    # The operators of DALI in a submodule of this name.
    group = [n for n in DALI_OPERATORS if n.startswith(f"{full_name}.")]
    if group:
        return f"fn.{full_name} of DALI ({', '.join(n.removeprefix(full_name + '.') for n in group)}) is not in jaxdali"
    operators = _operators(sys.modules[module.removesuffix(submodule)])
    is_in_dali = full_name in DALI_OPERATORS
    # First another library's name or another spelling, then the operator with the most similar name.
    if not is_in_dali and (advice := foreign().answer(full_name) or _respelled(name, operators)):
        return f"there is no operator fn.{full_name}, neither here nor in DALI 2.4; instead: {advice}"
    name_of_words = {_words(n): n for n in operators}
    if is_in_dali:  # it is not misspelled, so only an operator with a word in common can be of help
        subject = set(_words(name).split()) - {"decoder", "reader"}
        name_of_words = {words: n for words, n in name_of_words.items() if subject & set(words.split())}
    similar = difflib.get_close_matches(_words(full_name), name_of_words, n=1, cutoff=0.65)
    suggestion = f"; the closest that is: fn.{operators[name_of_words[similar[0]]]}" if similar else ""
    if is_in_dali:
        return f"fn.{full_name} of DALI is not in jaxdali{suggestion}"
    return f"there is no operator fn.{full_name}, neither here nor in DALI 2.4{suggestion}"


def _words(name: str) -> str:
    """A normal form of names without word order and plural. It is equal for ``image_decoder`` and
    ``decoders.image``.
    """
    return " ".join(sorted(word.removesuffix("s") for word in re.split(r"[._]", name)))


def _operators(module: ModuleType, prefix: str = "") -> dict[str, str]:
    """The current name of each operator in a module and its submodules, by its name: ``"readers.file"`` of
    ``"file_reader"``, which is deprecated.
    """
    operators: dict[str, str] = {}
    for name, x in members(module).items():
        if isinstance(x, ModuleType):
            operators |= _operators(x, f"{prefix}{name}.")
        else:
            deprecated = re.match(r"Deprecated name of `fn\.([\w.]+)`", x.__doc__ or "")
            operators[prefix + name] = deprecated[1] if deprecated else prefix + name
    return operators
