"""The public names of DALI 2.4."""

import functools
import importlib

import places
import pytest

from jaxdali import fn
from jaxdali._core.names import hint


def test_dali_functions_exist_or_have_replacements():
    """The file has all public names in DALI's module `fn`."""
    names = (places.DATA / "dali_fn_names.txt").read_text().split()
    assert len(names) > 150, "the file has all functions of DALI"
    missing = []
    for name in names:
        try:
            functools.reduce(getattr, name.split("."), fn)
        except AttributeError:
            missing.append(name)
            assert hint(f"fn.{name}"), name
    assert missing == ["experimental.readers.fits", "optical_flow", "video_reader_resize"]


def exists(name: str) -> bool:
    """Whether jaxdali has a public name of DALI. Those of its PyTorch plugin are searched in the files, because PyTorch
    may not be installed.
    """
    module, _, last = name.rpartition(".")
    if module.startswith("plugin.pytorch"):
        folder = places.ROOT / "jaxdali" / module.replace(".", "/")
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        return file.exists() and f" {last}" in file.read_text()
    try:
        return hasattr(importlib.import_module(f"jaxdali.{module}" if module else "jaxdali"), last)
    except ImportError:
        return False


@pytest.mark.parametrize(
    "module", sorted({name.rpartition(".")[0] for name in (places.DATA / "dali_public_names.txt").read_text().split()})
)
def test_dali_public_names_exist_or_have_replacements(module):
    """All classes, functions and values in DALI's public modules; those of `fn` are above."""
    names = [n for n in (places.DATA / "dali_public_names.txt").read_text().split() if n.rpartition(".")[0] == module]
    assert [n for n in names if not exists(n) and not hint(n)] == []
