"""jaxdali.extend: its names, its headers, and kernels that don't belong to the package. Whole operators:
test_contributing.py.
"""

import inspect
import pathlib
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxdali import Pipeline, extend, fn, pipeline_def

HEADERS = ("extension", "kernel", "launch", "binding", "batch", "status", "convert", "samples", "thread_pool")


def test_every_name_is_there_and_documented():
    public = {n for n in vars(extend) if not n.startswith("_")} - {"annotations", "jax", "pathlib"}
    assert public == set(extend.__all__)
    for name in extend.__all__:
        x = getattr(extend, name)
        if inspect.isclass(x) or inspect.isfunction(x):
            assert x.__doc__, name


def test_the_headers_need_no_others():
    """They include only each other, headers of XLA, and headers of the compiler."""
    root = pathlib.Path(extend.include_dir())
    pending, included = [f"ffi/common/{h}.h" for h in HEADERS], set()
    while pending:
        header = pending.pop()
        if header not in included and not header.startswith("xla/"):
            included.add(header)
            pending += re.findall(r'#include "([^"]+)"', (root / header).read_text())
    assert len(included) > len(HEADERS)
    assert all(h.startswith("ffi/common/") for h in included)


def test_a_compilers_arguments():
    out = subprocess.run(
        [sys.executable, "-m", "jaxdali.extend"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert out == [f"-I{extend.include_dir()}", "-isystem", jax.ffi.include_dir()]


# --- operators ----------------------------------------------------------------------------------------------------


def test_an_operators_name_is_its_own():
    """An operator with the name of another one would change its checks. The same file may be run again."""

    def flip(input, /, *, device=None):
        """Mirrors."""

    assert callable(fn.flip)  # loads it
    with pytest.raises(ValueError, match=r"there is already an operator 'flip', of jaxdali\.fn\._image\.flip"):
        extend.operator_function("flip")(flip)
    for _ in range(2):
        extend.operator_function("my.flip")(flip)


def test_serialized_pipeline_with_an_own_operator():
    @extend.operator_function("my.twice")
    def twice(input: extend.Input, /, *, device: str | None = None, name: str | None = None) -> extend.DataNode:
        """Doubles."""
        return input + input  # pyright: ignore[reportOperatorIssue, reportReturnType]

    @pipeline_def(batch_size=1, num_threads=1)
    def define():
        return twice(fn.cast(np.int32([1, 2]), dtype=np.int64))

    text = define().serialize()
    assert b"my.twice" in text
    assert np.asarray(Pipeline.deserialize(text).run()[0][0]).tolist() == [2, 4]


# --- kernels ------------------------------------------------------------------------------------------------------

WITHOUT_KERNEL = "int answer(void) { return 42; }"
OF_ANOTHER_VERSION = "int jaxdali_connect(void* run) { return -1; } void* jaxdali_mine(void* frame) { return 0; }"


def library(folder, source):
    """A shared library of a C source."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc)")
    path = folder / "mine.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-xc", "-", "-o", path], input=source, text=True, check=True)
    return path


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (WITHOUT_KERNEL, "not a library with the kernel 'mine'"),
        (OF_ANOTHER_VERSION, "headers of version -1.*compile again"),
    ],
)
def test_libraries_without_a_valid_kernel(tmp_path, source, message):
    with pytest.raises(ValueError, match=message):
        extend.register_kernel("mine", library(tmp_path, source))


def test_names_and_platforms_of_kernels(tmp_path):
    with pytest.raises(ValueError, match="'resize' for the platform 'cpu' already, of jaxdali itself"):
        extend.register_kernel("resize", tmp_path / "mine.so")
    with pytest.raises(ValueError, match="platform must be 'cpu' or 'CUDA', got 'gpu'"):
        extend.register_kernel("mine", tmp_path / "mine.so", platform="gpu")
    with pytest.raises(OSError, match="no_such_file"):
        extend.register_kernel("mine", tmp_path / "no_such_file.so")
