"""The programs of `examples` as modules."""

import importlib.util
import pathlib
import sys
from types import ModuleType

import places


def load(name: str, folder: pathlib.Path = places.EXAMPLES) -> ModuleType:
    """The file `name`.py of a folder as a module, which others can import from now on."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
