"""Describes this installation, for bug reports."""

from __future__ import annotations

import importlib.metadata
import platform


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _faster_with(*libraries: str) -> str:
    """The advice for a build that went on without some libraries."""
    return f"faster with {' and '.join(libraries)}: apt install {' '.join(f'{x}-dev' for x in libraries)}, and install again"


def show_config() -> None:
    """Prints versions, codecs, SIMD level, devices, and whether the CUDA module is built.

    Devices are shown if JAX has opened them. This function does not open them, so it may be called before
    `jax.distributed.initialize`.

    Example:
      >>> import jaxdali
      >>> jaxdali.show_config()  # doctest: +SKIP
      jaxdali       0.1.0 (Python 3.11.7, Linux x86_64)
      ...
    """
    import jax

    from .. import _cpu
    from .._core import ffi as _ffi
    from .._core.jax_settings import devices_are_open
    from .._version import __version__

    info = _cpu.build_info()
    pillow = f"Pillow {_version('Pillow')}"
    rows = {
        "jaxdali": f"{__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})",
        "built with": f"{info['compiler']}, XLA FFI API {info['ffi_api']}",
        "jax, jaxlib": f"{_version('jax')}, {_version('jaxlib')}",
        "numpy": _version("numpy"),
        "SIMD": info["simd"],
        "JPEG": info["jpeg"],
        "PNG": info["png"]
        if "libdeflate" in info["png"]
        else f"{info['png'] or pillow} ({_faster_with('libpng', 'libdeflate')})",
        "WebP": info["webp"] or f"{pillow} ({_faster_with('libwebp')})",
        "GIF, BMP, TIFF, PNM, JPEG 2000": pillow,
        "16-bit files, AVIF, JPEG XL": f"imagecodecs {_version('imagecodecs')} (extra: formats)",
        "HEIC": f"pillow-heif {_version('pillow-heif')} (extra: formats)",
        "CPU kernels": ", ".join(sorted(name.removeprefix("jaxdali_") for name in _cpu.targets())),
        "CUDA module": _ffi.CUDA,
        "devices": "not opened yet: call jax.devices() before",
    }
    if devices_are_open():
        rows["devices"] = f"{', '.join(map(str, jax.local_devices()))} (default backend: {jax.default_backend()})"
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")
