"""The interface for operators and readers outside the package; CONTRIBUTING.md has a recipe for each kind.

An operator is a class and a function: the class (`ProgramOperator`, `NativeOperator`, `HostOperator`, or of a family:
`Elementwise`, `Window`, `Warp`, `ColorMatrix`, `Separable`) says what happens to a batch; the function's signature
declares the arguments, which `operator_function` checks. A reader is a list of records: `Records` and `Reader`. A
native kernel is compiled with the headers of `include_dir`, and registered with `register_kernel`. `register_decoder`
adds a format to the decoders of images.

jaxdali's own operators are made of the same parts, so names here may change between versions; CHANGELOG.md says so.
Import it explicitly: ``import jaxdali.extend``.
"""

from __future__ import annotations

import pathlib

import jax

from . import _cpu
from ._core.arguments import Arguments, Values
from ._core.building import add
from ._core.context import BuildContext, HostContext, LowerContext, Out
from ._core.declaration import DType, Len, OneOf, Range
from ._core.ffi import call, register_kernel
from ._core.graph import DataNode
from ._core.operator import HostOperator, NativeOperator, Operator, ProgramOperator, Setup, SourceOperator
from ._core.operator_function import (
    Default,
    Hints,
    Input,
    InputPerFrame,
    ListOf,
    OneOrMore,
    PerFrame,
    PerSample,
    SeededHints,
    operator_function,
)
from ._core.ragged import ALIGNMENT, Packed, Ragged
from ._core.values import Spec, Value
from ._cpu import Status
from ._data.files import Files, Path
from ._data.list_source import ListSource
from ._data.ranges import Ranges
from ._data.records import Records
from ._data.source import SampleIds, Saved, Source
from ._data.storage import Storage
from ._data.walk import Order
from .fn._decode.registered import register_decoder, unregister_decoder
from .fn._families import (
    ColorMatrix,
    CropWindow,
    Elementwise,
    Part,
    Separable,
    Warp,
    Window,
    aligned,
    axes_of,
    convert,
    crop_sizes,
    crop_start,
    draw,
    fit,
    image_layout,
    samples_of_blocks,
    shapes_of,
    spec_of,
    uniforms,
)
from .fn._families.random_windows import random_windows
from .fn.readers._reader import (
    ContainerArguments,
    MixedArguments,
    Reader,
    ReaderArguments,
    ReaderHints,
    StoredArguments,
)

__all__ = [
    "ALIGNMENT",
    "Arguments",
    "BuildContext",
    "ColorMatrix",
    "ContainerArguments",
    "CropWindow",
    "DType",
    "DataNode",
    "Default",
    "Elementwise",
    "Files",
    "Hints",
    "HostContext",
    "HostOperator",
    "Input",
    "InputPerFrame",
    "Len",
    "ListOf",
    "ListSource",
    "LowerContext",
    "MixedArguments",
    "NativeOperator",
    "OneOf",
    "OneOrMore",
    "Operator",
    "Order",
    "Out",
    "Packed",
    "Part",
    "Path",
    "PerFrame",
    "PerSample",
    "ProgramOperator",
    "Ragged",
    "Range",
    "Ranges",
    "Reader",
    "ReaderArguments",
    "ReaderHints",
    "Records",
    "SampleIds",
    "Saved",
    "SeededHints",
    "Separable",
    "Setup",
    "Source",
    "SourceOperator",
    "Spec",
    "Status",
    "Storage",
    "StoredArguments",
    "Value",
    "Values",
    "Warp",
    "Window",
    "add",
    "aligned",
    "axes_of",
    "call",
    "convert",
    "crop_sizes",
    "crop_start",
    "draw",
    "fit",
    "image_layout",
    "include_dir",
    "operator_function",
    "random_windows",
    "register_decoder",
    "register_kernel",
    "samples_of_blocks",
    "shapes_of",
    "spec_of",
    "uniforms",
    "unregister_decoder",
]


def include_dir() -> str:
    """The folder with the headers for kernels, which are included as ``ffi/common/...``. They also need the headers of
    `jax.ffi.include_dir`.

    ``python -m jaxdali.extend`` prints both as a compiler's arguments.
    """
    installed = pathlib.Path(_cpu.__file__).parent / "include"
    # A build inside the source tree has no folder `include`: there the headers are in the tree.
    folder = installed if installed.is_dir() else pathlib.Path(__file__).parent.parent
    assert (folder / "ffi" / "common" / "extension.h").exists(), folder
    return str(folder)


if __name__ == "__main__":
    print(f"-I{include_dir()} -isystem {jax.ffi.include_dir()}")
