"""The native modules, which parse files from anywhere, are built so that a buffer overrun ends the process."""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import places
import pytest

from jaxdali import _cpu

pytestmark = pytest.mark.same_with_any_jax

CPU = pathlib.Path(_cpu.__file__)
MODULES = [CPU, *CPU.parent.glob("_cuda.*so")]
needs_readelf = pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")
FORTIFIED = re.compile(r"\b__(?!stack_)\w+_chk\b")  # __memcpy_chk, __longjmp_chk, ...


def readelf(path, *arguments):
    return subprocess.run(["readelf", *arguments, "--wide", str(path)], capture_output=True, text=True, check=True).stdout


def cmake(*arguments):
    return subprocess.run(["cmake", *map(str, arguments)], capture_output=True, text=True, timeout=300)


@needs_readelf
@pytest.mark.parametrize("module", MODULES, ids=lambda p: p.name)
def test_protection_of_native_modules(module):
    assert "__stack_chk_fail" in readelf(module, "--dyn-syms")
    assert "GNU_RELRO" in readelf(module, "--program-headers")
    assert "NOW" in readelf(module, "--dynamic")


@needs_readelf
def test_fortified_functions():
    assert FORTIFIED.search(readelf(CPU, "--dyn-syms"))


# A codec's library that copies an unknown number of bytes to an array on the stack.
SOURCE = """
#include <string.h>
void look(char*);
void NAME(const char* from, size_t n) { char to[64]; memcpy(to, from, n); look(to); }
"""
LISTS = """
cmake_minimum_required(VERSION 3.20)
project(NAME C)
add_library(NAME STATIC NAME.c)
install(TARGETS NAME DESTINATION ${CMAKE_INSTALL_LIBDIR})
"""
PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(codecs C CXX)
include(CODECS)
add_custom_target(all_codecs ALL DEPENDS jaxdali_libjpeg_external jaxdali_libpng_external jaxdali_zlib_external)
file(WRITE "${CMAKE_BINARY_DIR}/fortify" "${JAXDALI_FORTIFY}")
"""


@needs_readelf
@needs_cmake
def test_bundled_codecs_are_hardened_as_well(tmp_path):
    tarballs = []
    for kind, name in (("JPEG", "jpeg"), ("PNG", "png16"), ("ZLIB", "z"), ("DEFLATE", "deflate"), ("WEBP", "webpdecoder")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.c").write_text(SOURCE.replace("NAME", name))
        (folder / "CMakeLists.txt").write_text(LISTS.replace("NAME", name))
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(folder, name)
        tarballs.append(f"-DJAXDALI_{kind}_TARBALL={tmp_path / name}.tar.gz")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.replace("CODECS", f'"{places.ROOT / "ffi" / "codecs.cmake"}"'))
    build = tmp_path / "build"
    configured = cmake("-S", tmp_path, "-B", build, "-DJAXDALI_BUNDLED_CODECS=ON", *tarballs)
    assert configured.returncode == 0, configured.stderr
    built = cmake("--build", build)
    assert built.returncode == 0, built.stdout + built.stderr
    level = int((build / "fortify").read_text())
    assert level in (2, 3)
    for library in (
        "libjpeg/lib/libjpeg",
        "libpng/lib/libpng16",
        "zlib/lib/libz",
        "libdeflate/lib/libdeflate",
        "libwebp/lib/libwebpdecoder",
    ):
        symbols = readelf(build / "codecs" / f"jaxdali_{library}.a", "--symbols")
        assert "__stack_chk_fail" in symbols
        assert "__memcpy_chk" in symbols


@needs_cmake
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="nanobind has a stable ABI for this Python")
def test_a_stable_abi_that_nanobind_leaves_out_is_an_error(tmp_path):
    """A wheel's tag promises what scikit-build asks for; nanobind builds an ordinary module instead without a word."""
    pytest.importorskip("nanobind")
    if not (places.ROOT / "CMakeLists.txt").exists():
        pytest.skip("there are no sources")
    found = cmake(
        "-S", places.ROOT, "-B", tmp_path, f"-DPython_EXECUTABLE={sys.executable}", "-DJAXDALI_CUDA=OFF",
        "-DSKBUILD_SABI_COMPONENT=Development.SABIModule",
    )  # fmt: skip
    assert found.returncode != 0
    assert "stable ABI" in " ".join(found.stderr.split())
