"""Loads and registers the native modules; `call` is the only user of `jax.ffi`."""

from __future__ import annotations

import concurrent.futures
import ctypes
import dataclasses
import functools
import importlib
import os
import pathlib
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from .. import _cpu
from .._version import __version__
from .context import LowerContext, Out
from .ragged import Ragged
from .system import has_nvidia_gpu
from .values import Spec

STATUS: dict[int, str] = _cpu.status_table()  # code -> text

for _name, _capsule in _cpu.targets().items():
    jax.ffi.register_ffi_target(_name, _capsule, platform="cpu")


_OURS = "jaxdali"  # the key of our CUDA module in `_loaders`; users' libraries have their paths
# By library: a function that loads its CUDA kernels into the GPU of a number, and returns an error message or "".
_loaders: dict[str, Callable[[int], str]] = {}
_oldest = 0.0  # compute capability of the oldest GPU that the CUDA module is compiled for
# The CUDA module's function that allocates page-locked memory, of (size, GPU); empty without that module.
_pinned: list[Callable[[int, int], np.ndarray | None]] = []
_loaded: set[tuple[str, int]] = set()  # (library, GPU) of the kernels that were loaded
# Guards `_loaders`, `_loaded`, `_kernels` and `_libraries` while they are changed, and lets one thread at a time load
# kernels into GPUs.
_loading = threading.Lock()


def _not_built() -> str:
    """Says why there is no CUDA module, and which command builds one, if any does."""
    reason = _cpu.build_info()["cuda_left_out"] or "its file is missing"
    root = pathlib.Path(__file__).parents[2]
    if reason == "the GPU is older than compute capability 8.0":  # says gpus.cmake; no command helps
        return f"not built: {reason}"
    if (root / "ffi" / "cuda.cmake").exists():  # an editable installation
        return f"not built: {reason}. With nvcc and a GPU: pip install --no-deps -C cmake.define.JAXDALI_CUDA=AUTO -e {root}"
    return f"not built: {reason}. With nvcc, in jaxdali's source folder: pip install ./ffi/cuda13"


def _may_use_gpus(platforms: str | None) -> bool:
    """Whether JAX looks for GPUs, by its setting `jax_platforms`."""
    return any(name in ("", "cuda", "gpu") for name in (platforms or "").split(","))


# The module that is built with this package, and that of the package which ffi/cuda13 makes.
_CUDA_MODULES = ("jaxdali._cuda", "jaxdali_cuda13._cuda")


def _load_cuda() -> tuple[str, frozenset[str]]:
    """Registers the CUDA kernels with JAX, if there is a module of them for this version and driver. Otherwise warns
    where a user would expect them.

    Returns:
      (the line that `show_config` prints, the kernels' names: none if they are not used).
    """
    global _oldest
    for module in _CUDA_MODULES:  # the first one that is installed is used
        try:
            cuda = importlib.import_module(module)
            break
        except ModuleNotFoundError as e:
            if e.name not in (module, module.partition(".")[0]):  # the module exists, but imports a missing one
                return f"failed to load: {e}", frozenset()
        except ImportError as e:
            return f"failed to load: {e}", frozenset()
    else:  # there is no module
        description = _not_built()
        if has_nvidia_gpu() and _may_use_gpus(getattr(jax.config, "jax_platforms", None)):
            problem = "This machine has an NVIDIA GPU, but jaxdali's native operators run on the CPU"
            warnings.warn(f"{problem}: the CUDA kernels are {description}", RuntimeWarning, stacklevel=2)
        return description, frozenset()
    info = cuda.build_info()  # among others, "architectures" such as "sm_80 sm_90"
    if (version := info.get("version", "unknown")) != __version__:
        own_module, _ = _CUDA_MODULES
        remedy = (
            f'pip install "jaxdali-cuda13=={__version__}"'
            if module != own_module
            else "install jaxdali again, which builds it"
        )
        problem = f"{module} is of version {version}, and jaxdali of {__version__}: {remedy}"
        warnings.warn(f"jaxdali does not use its CUDA kernels: {problem}", RuntimeWarning, stacklevel=2)
        return f"not used: {problem}", frozenset()
    if problem := cuda.driver_problem():
        return f"not used: {problem}", frozenset()
    for name, capsule in cuda.targets().items():
        jax.ffi.register_ffi_target(name, capsule, platform="CUDA")
    _loaders[_OURS] = cuda.load_kernels
    _pinned[:] = [cuda.pinned]
    _oldest = min(int(n) for n in re.findall(r"sm_(\d+)", info["architectures"])) / 10
    kernels = frozenset(name.removeprefix("jaxdali_") for name in cuda.targets())
    return f"loaded: {', '.join(sorted(kernels))} (CUDA {info['cuda']}, {info['architectures']})", kernels


CUDA, CUDA_KERNELS = _load_cuda()


_kernels = {"cpu": {name.removeprefix("jaxdali_") for name in _cpu.targets()}, "CUDA": set(CUDA_KERNELS)}  # by platform
_libraries: dict[tuple[str, str], str] = {}  # of the kernels that users registered, by platform and name


@dataclasses.dataclass(frozen=True)
class TargetDevice:
    """A device of a platform that this process does not have, for which a program is lowered."""

    platform: str


def is_cuda(device: jax.Device | TargetDevice) -> bool:
    """Whether a device is an NVIDIA GPU."""
    # AMD's platform is called "gpu" too.
    if isinstance(device, TargetDevice) or device.platform != "gpu":
        return device.platform == "cuda"
    return "cuda" in device.client.platform_version.lower()


def kernels_on(device: jax.Device | TargetDevice) -> frozenset[str]:
    """The native kernels that JAX programs on a device can call. Operators without one run on the CPU."""
    if device.platform == "cpu":
        return frozenset(_kernels["cpu"])
    if not is_cuda(device):
        return frozenset()
    if isinstance(device, TargetDevice):
        # Those of this version's CUDA module, which need not be installed on the machine that lowers the program.
        return frozenset(_kernels["CUDA"].union(_cpu.cuda_kernels()))
    return frozenset(_kernels["CUDA"] - (CUDA_KERNELS if why_no_kernels(device) else frozenset()))


def why_no_kernels(device: jax.Device | TargetDevice) -> str:
    """The reason why programs on an NVIDIA GPU can't call our kernels; "" if they can, and for other devices."""
    if not is_cuda(device) or isinstance(device, TargetDevice):
        return ""
    if not CUDA_KERNELS:
        return f"jaxdali's CUDA module is {CUDA}"
    capability = float(getattr(device, "compute_capability", _oldest))
    if capability < _oldest:
        return f"jaxdali's CUDA kernels are for compute capability {_oldest} and newer, and {device.device_kind} has {capability}"
    return ""


def load_kernels(devices: Iterable[jax.Device | TargetDevice]):
    """Loads all kernels into NVIDIA GPUs, the first time, into all of them at once.

    Otherwise CUDA would load each kernel at its first launch, after everything that runs on the GPU. An NCCL kernel may
    be waiting there for another GPU, which in turn waits for our launch: a deadlock.

    Args:
      devices: any devices. Those that are no NVIDIA GPUs, or too old for our kernels, are left out.

    Raises:
      RuntimeError: a GPU can't run them.
    """
    gpus = {d.local_hardware_id: d for d in devices if not isinstance(d, TargetDevice) and is_cuda(d)}
    with _loading:
        # (library, number of a GPU) of the kernels to load. Ours are left out where a GPU is too old for them.
        missing = [(library, i) for i in gpus for library in _loaders if (library, i) not in _loaded]
        missing = [(library, i) for library, i in missing if library != _OURS or not why_no_kernels(gpus[i])]
        if not missing:
            return
        with concurrent.futures.ThreadPoolExecutor(len(missing)) as threads:
            problems = list(threads.map(lambda library, i: _loaders[library](i), *zip(*missing)))
        for (library, i), problem in zip(missing, problems, strict=True):
            if problem:
                raise RuntimeError(f"the CUDA kernels of {library} can't be loaded into {gpus[i]}: {problem}")
            _loaded.add((library, i))


def pinned_memory(device: jax.Device | TargetDevice, size: int) -> np.ndarray | None:
    """Page-locked memory ``u8[size]`` for a device. None: the device is no NVIDIA GPU with kernels, or there is no
    more such memory.
    """
    if not _pinned or isinstance(device, TargetDevice) or not is_cuda(device) or why_no_kernels(device):
        return None
    (allocate,) = _pinned
    return allocate(size, device.local_hardware_id)


def register_kernel(name: str, library: str | os.PathLike[str], *, platform: Literal["cpu", "CUDA"] = "cpu") -> None:
    """Registers a kernel from a user's library, for `NativeOperator.kernel` and `call`.

    The library stays loaded until the process ends, and must not be overwritten until then. Registering it again has no
    effect.

    Args:
      name: of the kernel, in ``JAXDALI_DEFINE_KERNEL(name, ...)``.
      library: path of a shared library (or of a nanobind module), compiled with ``ffi/common/extension.h``.
      platform: what it was compiled for: "cpu", or with ``-DJAXDALI_CUDA`` "CUDA". Every kernel needs one for the CPU.

    Raises:
      ValueError: another library has a kernel of this name; or this one has none, or was compiled with the headers of
        another version.
      OSError: the library can't be loaded.
    """
    if platform not in _kernels:
        raise ValueError(f"platform must be {' or '.join(map(repr, _kernels))}, got {platform!r}")
    path = os.path.abspath(library)
    with _loading:
        if name not in _kernels[platform]:
            _register(name, path, platform)
        elif path != (owner := _libraries.get((platform, name), "jaxdali itself")):
            raise ValueError(f"there is a kernel {name!r} for the platform {platform!r} already, of {owner}")


def _register(name: str, path: str, platform: str):
    """Loads a user's library and registers its kernel. See `register_kernel`."""
    loaded = ctypes.CDLL(path)
    try:
        handler, connect = loaded[f"jaxdali_{name}"], loaded.jaxdali_connect
    except AttributeError as e:
        raise ValueError(
            f"{path} is not a library with the kernel {name!r}, compiled with ffi/common/extension.h: {e}"
        ) from None
    # Gives the library the function that runs work on our thread pools, and gets the version of its headers.
    version = connect(ctypes.c_void_p(_cpu.run_on_pool()))
    if version != _cpu.EXTENSION_VERSION:
        raise ValueError(
            f"{path} was compiled with headers of version {version}, these are {_cpu.EXTENSION_VERSION}: compile again"
        )
    jax.ffi.register_ffi_target(f"jaxdali_{name}", jax.ffi.pycapsule(handler), platform=platform)
    if platform == "CUDA":
        _loaders[path] = _loader(loaded)
    _kernels[platform].add(name)
    _libraries[platform, name] = path


def _loader(library: ctypes.CDLL) -> Callable[[int], str]:
    """The function with which a library loads its CUDA kernels (`ffi/common/launch.h`).

    The function takes a GPU's number, and returns the error as text; "" if there is none. It does nothing for a library
    without such kernels.
    """
    try:
        load = library.jaxdali_load_kernels
    except AttributeError:
        return lambda device: ""
    load.restype, load.argtypes = ctypes.c_char_p, [ctypes.c_int]
    return lambda device: (load(device) or b"").decode()


@dataclasses.dataclass(frozen=True)
class KernelCall:
    """The operands and attributes of a native call besides its batch.

    Attributes:
      params: further operands, one row per sample.
      attrs: small static attributes (int, float, bool, str, or a tuple of int).
    """

    params: tuple[Any, ...]
    attrs: Mapping[str, Any]


def flat(x: Any) -> tuple[Any, Any, Any]:
    """A dense or ragged batch as the operands (data, offsets, shapes) of a native call."""
    if isinstance(x, Ragged):
        return x.data, x.offsets, x.shapes
    return x, jnp.zeros((0,), jnp.int32), jnp.zeros((0, x.ndim - 1), jnp.int32)


def call(
    kernel: str,
    ctx: LowerContext,
    image: Any,
    spec: Spec,
    out: Out | None,
    *params: Any,
    scratch: int = 0,
    into: Any = None,
    **attrs: Any,
) -> tuple[Any, Any]:
    """Calls a native kernel on the batch of one shard.

    Args:
      kernel: the kernel's name; the target is ``jaxdali_<kernel>``.
      ctx: the context of the operator's `lower`, which has the control operand. It gets the call's time if times are
        measured.
      image: the batch, dense ``[B, ...]`` or `Ragged`.
      spec: of the output.
      out: layout of a ragged output, None if `spec.shape` is static.
      *params: further operands, one row per sample.
      into: the one of `params` whose memory becomes the output's. What the kernel does not write keeps its value.
      scratch: bytes of working memory that the kernel needs. XLA plans it with the rest of the program's memory.
      **attrs: small static attributes (int, float, bool, str, or a tuple of int).

    Returns:
      (output, status ``i32[B]``).
    """
    result, layout = _result(ctx.B, spec, out)
    operands = (*flat(image), *layout, ctx.control, *params)
    # The output, which is result 0, gets the memory of operand i.
    aliases = {i: 0 for i, x in enumerate(operands) if x is into and x.size} if into is not None else None
    data, status, memory = _native(kernel, ctx.B, result, operands, attrs, scratch, aliases)
    if ctx.times is not None:
        ctx.times.append(_time(memory))
    return (data if out is None else Ragged(data, out.offsets, out.shapes)), status


def call_chain(
    image: Any, stages: Sequence[tuple[str, LowerContext, KernelCall]], kernel: str = "chain", rows: int | None = None
) -> tuple[Any, list[Any]]:
    """Calls several native kernels as one. For each sample, a kernel gets the result of the previous kernel
    (ffi/chain/chain.h).

    Args:
      image: the batch of the first kernel, as in `call`.
      stages: kernel, context and operands of each stage. Intermediate values have no memory; only their shapes are
        operands.
      kernel: the target is ``jaxdali_<kernel>``.
      rows: of the result, which is dense, where the last stage is "patchify" with places (ffi/patchify/patchify.h).
        None: a row for each sample.

    Returns:
      (result of the last stage, status ``i32[B]`` of each stage).
    """
    *inner_stages, (_, last, _) = stages  # each stage has one output
    B, spec, out = last.B, last.spec, last.out[0]
    result, layout = _result(B if rows is None else rows, spec, out)
    # For each intermediate value, an array without samples that tells its type and static shape, and its shapes if it
    # is ragged.
    inner_operands: list[Any] = []
    for _, ctx, _ in inner_stages:
        out_of_stage = ctx.out[0]
        shapes = jnp.zeros((0, ctx.spec.ndim), jnp.int32) if out_of_stage is None else out_of_stage.shapes
        inner_operands += [jnp.zeros((0, *(ctx.spec.shape or ())), ctx.spec.dtype), shapes]
    operands = (*flat(image), *layout, last.control, *inner_operands, *(p for _, _, c in stages for p in c.params))
    # Attributes begin with the number of their stage: "0_interp".
    attrs = {f"{k}_{name}": v for k, (_, _, c) in enumerate(stages) for name, v in c.attrs.items()}
    attrs |= {"kernels": " ".join(name for name, _, _ in stages), "timed": last.times is not None}
    data, status, memory = _native(kernel, B, result, operands, attrs)
    for k, (_, ctx, _) in enumerate(stages):
        if ctx.times is not None:
            ctx.times.append(_time(memory, k))
    # A sample's status is the number of the failed stage * factor + the status code. It is not negative.
    factor = np.int32(_cpu.STATUSES_OF_STAGE)
    stage, code = jax.lax.div(status, factor), jax.lax.rem(status, factor)
    codes = [jnp.where(stage == k, code, 0) for k in range(len(stages))]
    return (data if out is None else Ragged(data, out.offsets, out.shapes)), codes


def _native(
    kernel: str,
    B: int,
    result: Any,
    operands: Sequence[Any],
    attrs: Mapping[str, Any],
    scratch: int = 0,
    aliases: Any = None,
) -> tuple[Any, Any, Any]:
    """Calls a kernel as a custom call of XLA.

    Args:
      B: the number of samples.
      result: type and shape of the output.
      operands, attrs: of the call, in the order of the kernel's binding.
      scratch: bytes of working memory besides `PLAN_BYTES` for each sample.
      aliases: by index of an operand, the index of the result that gets its memory; None: none does.

    Returns:
      (output, status ``i32[B]``, the working memory ``u8[bytes]`` as the kernel left it).
    """
    memory = jax.ShapeDtypeStruct((B * _cpu.PLAN_BYTES + scratch,), jnp.uint8)
    results = (result, jax.ShapeDtypeStruct((B,), jnp.int32), memory)
    # Operands without elements get one (`_with_elements`); this tells the kernel their indices, ranks and true shapes.
    empty = tuple(n for i, x in enumerate(operands) if x.size == 0 for n in (i, x.ndim, *x.shape))
    out, status, memory = jax.ffi.ffi_call(f"jaxdali_{kernel}", results, input_output_aliases=aliases)(
        *map(_with_elements, operands), **{k: _attribute(v) for k, v in {**attrs, "empty": empty}.items()}
    )
    return out, status, memory


def _time(memory: Any, stage: int = 0) -> Any:
    """The time of a call or of one of its stages, ``i32[]`` in units of 100 ns.

    On the CPU, the kernel writes it to the beginning of its working memory, 4 bytes for each stage
    (ffi/common/binding.h).
    """
    return jax.lax.bitcast_convert_type(memory[4 * stage : 4 * stage + 4], jnp.int32)


def checked(outputs: Sequence[Any], status: Any, steps: Sequence[str], samples: int) -> list[Any]:
    """The outputs of a program on the CPU, unchanged. The program fails when it runs if a sample failed.

    Args:
      outputs: the arrays.
      status: ``i32[N, steps]``, the status of each sample in each step.
      steps: the name of each column of `status` in the error.
      samples: the number of samples in the whole batch, of which a device may have a part.
    """
    # Operand 0 is `status`. The outputs follow, and pass through unchanged, so their readers wait for the check.
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs]
    aliases = {1 + i: i for i in range(len(outputs))}
    check = jax.ffi.ffi_call("jaxdali_check", results, input_output_aliases=aliases)
    return list(check(status, *outputs, steps="\n".join(steps), samples=np.int32(samples)))


def empty(struct: jax.ShapeDtypeStruct, device: jax.Device) -> jax.Array:
    """An uninitialised array of XLA on a CPU device."""
    return _empty(struct.shape, struct.dtype, device)()


def compile_empty(struct: jax.ShapeDtypeStruct, device: jax.Device):
    """Compiles the program that `empty` runs."""
    _empty(struct.shape, struct.dtype, device).lower().compile()


@functools.lru_cache(maxsize=64)
def _empty(shape: tuple[int, ...], dtype: np.dtype, device: jax.Device) -> jax.stages.Wrapped:
    allocate = jax.ffi.ffi_call("jaxdali_empty", jax.ShapeDtypeStruct(shape, dtype))
    return jax.jit(lambda: allocate(), out_shardings=jax.sharding.SingleDeviceSharding(device))


def _result(B: int, spec: Spec, out: Out | None) -> tuple[jax.ShapeDtypeStruct, tuple[Any, Any]]:
    """The type and shape of a call's result, and the operands that describe its layout: offsets and shapes. These are
    empty for a dense result, with `out` None.
    """
    if out is None:
        assert spec.shape is not None
        dense = jax.ShapeDtypeStruct((B, *spec.shape), spec.dtype)
        return dense, (jnp.zeros((0,), jnp.int32), jnp.zeros((0, spec.ndim), jnp.int32))
    return jax.ShapeDtypeStruct((out.capacity,), spec.dtype), (out.offsets, out.shapes)


def _with_elements(x: Any) -> Any:
    """An operand that has elements: one zero in place of none. Class Operands in ffi/common/binding.h says why."""
    return x if x.size else jnp.zeros((1,), x.dtype)


def _attribute(v: Any) -> Any:
    """An attribute as the NumPy value that XLA's FFI decodes to the type of the binding: 32 bits, 64 in a tuple."""
    if isinstance(v, bool):
        return np.bool_(v)
    if isinstance(v, int):
        return np.int32(v)
    if isinstance(v, float):
        return np.float32(v)
    if isinstance(v, tuple):
        return np.asarray(v, np.int64)
    return v
