"""The native modules, which parse files from anywhere, are built so that a buffer overrun ends the process."""

import pathlib
import shutil
import subprocess

import pytest

from jaxdali import _cpu

CPU = pathlib.Path(_cpu.__file__)
MODULES = [CPU, *CPU.parent.glob("_cuda.*so")]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
@pytest.mark.parametrize("module", MODULES, ids=lambda p: p.name)
def test_protection_of_native_modules(module):
    def readelf(*arguments):
        return subprocess.run(["readelf", *arguments, "--wide", str(module)], capture_output=True, text=True, check=True).stdout

    assert "__stack_chk_fail" in readelf("--dyn-syms")
    assert "GNU_RELRO" in readelf("--program-headers")
    assert "NOW" in readelf("--dynamic")
