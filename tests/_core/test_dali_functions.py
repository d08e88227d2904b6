"""The public names of DALI 2.4."""

import functools
import importlib

import places
import pytest

from jaxdali import fn
from jaxdali._core.names import hint


def test_each_function_of_dali_is_here_or_has_a_replacement():
    """The file has all public names in DALI's module `fn`."""
    names = (places.DATA / "dali_fn_names.txt").read_text().split()
    assert len(names) > 150
    lacking = []
    for name in names:
        try:
            functools.reduce(getattr, name.split("."), fn)
        except AttributeError:
            lacking.append(name)
            assert hint(f"fn.{name}"), name
    assert lacking == ["experimental.readers.fits", "optical_flow", "video_reader_resize"]


def found(name: str) -> bool:
    """Whether a public name of DALI is here. PyTorch's are looked for in the files, as PyTorch may not be installed."""
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
def test_each_public_name_is_here_or_has_a_replacement(module):
    """All classes, functions and values in DALI's public modules; those of `fn` are above."""
    names = [n for n in (places.DATA / "dali_public_names.txt").read_text().split() if n.rpartition(".")[0] == module]
    assert [n for n in names if not found(n) and not hint(n)] == []
