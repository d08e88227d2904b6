"""The native module in a locale with other rules for letters: there `I` is not the upper-case letter of `i`."""

import io
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

from jaxdali import _cpu

pytestmark = pytest.mark.same_with_any_jax

PROGRAM = """
import ctypes, sys
from jaxdali import _cpu
samples = _cpu.TarSamples([["id"]], True, _cpu.Missing.ERROR, False)
print(chr(ctypes.CDLL(None).toupper(ord("i"))), [info.name for info in _cpu.Info], repr(samples.scan(sys.argv[1].encode())))
"""


def test_turkish_letters(tmp_path):
    locale = ["localedef", "-i", "tr_TR", "-f", "UTF-8", tmp_path / "tr_TR.UTF-8"]
    if shutil.which("localedef") is None or subprocess.run(locale, capture_output=True).returncode != 0:
        pytest.skip("the sources of locales are not installed (the package `locales` on Debian)")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("sample.ID"), io.BytesIO())
    environment = {**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": "tr_TR.UTF-8"}
    command = [sys.executable, "-c", PROGRAM, tmp_path / "a.tar"]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert output == f"i {[info.name for info in _cpu.Info]} ''\n"
