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
    return subprocess.run(
        ["readelf", *arguments, "--wide", str(path)], capture_output=True, text=True, check=True
    ).stdout


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
file(WRITE "${CMAKE_BINARY_DIR}/fortify" "${JAXDALI_FORTIFY}")
"""


def configure_codecs(folder, *options, broken=()):
    """Compiles played codecs in `folder`/build, some of which are no C."""
    tarballs = []
    for kind, name in (
        ("JPEG", "jpeg"),
        ("PNG", "png16"),
        ("ZLIB", "z"),
        ("DEFLATE", "deflate"),
        ("WEBP", "webpdecoder"),
    ):
        source = folder / name
        source.mkdir()
        (source / f"{name}.c").write_text("?" if kind in broken else SOURCE.replace("NAME", name))
        (source / "CMakeLists.txt").write_text(LISTS.replace("NAME", name))
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(source, name)
        tarballs.append(f"-DJAXDALI_{kind}_TARBALL={folder / name}.tar.gz")
    (folder / "CMakeLists.txt").write_text(PROJECT.replace("CODECS", f'"{places.ROOT / "ffi" / "codecs.cmake"}"'))
    return cmake("-S", folder, "-B", folder / "build", "-DJAXDALI_BUNDLED_CODECS=ON", *tarballs, *options)


@needs_cmake
def test_codecs_without_a_compiler_are_left_out(tmp_path):
    configured = configure_codecs(tmp_path, broken=("PNG", "WEBP"))
    assert configured.returncode == 0, configured.stderr
    for library in ("libpng", "libwebp"):
        lines = [
            line
            for line in configured.stderr.splitlines()
            if line.startswith(f"-- Without {library} (it does not compile")
        ]
        assert len(lines) == 1, configured.stderr
        assert f"apt install {library}-dev" in lines[0]


@needs_cmake
@pytest.mark.parametrize(("broken", "options"), [("JPEG", ()), ("DEFLATE", ("-DJAXDALI_REQUIRE_CODECS=ON",))])
def test_missing_required_codecs_are_an_error(broken, options, tmp_path):
    configured = configure_codecs(tmp_path, *options, broken=(broken,))
    assert configured.returncode != 0
    assert "it does not compile" in " ".join(configured.stderr.split())


@needs_readelf
@needs_cmake
def test_bundled_codecs_are_hardened_as_well(tmp_path):
    configured = configure_codecs(tmp_path)
    assert configured.returncode == 0, configured.stderr
    build = tmp_path / "build"
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
def test_missing_stable_abi_is_an_error(tmp_path):
    """A wheel's tag promises what scikit-build asks for; nanobind builds an ordinary module instead without a word."""
    pytest.importorskip("nanobind")
    if not (places.ROOT / "CMakeLists.txt").exists():
        pytest.skip("there are no sources")
    configured = cmake(
        "-S", places.ROOT, "-B", tmp_path, f"-DPython_EXECUTABLE={sys.executable}", "-DJAXDALI_CUDA=OFF",
        "-DSKBUILD_SABI_COMPONENT=Development.SABIModule",
    )  # fmt: skip
    assert configured.returncode != 0
    assert "stable ABI" in " ".join(configured.stderr.split())
