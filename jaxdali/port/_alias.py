"""Runs programs in which `nvidia.dali` is an alias of jaxdali."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from .._core.names import hint

DALI = "nvidia.dali"
VERSION = "2.4.0"  # the version of DALI whose names jaxdali has; scripts compare it
FOLDER = pathlib.Path(__file__).with_name("_path")
_BATCHES = "JAXDALI_PORT_BATCHES"  # the variable that tells a process, and its children, their number of batches


def run(program: Sequence[str], num_batches: int | None = None) -> NoReturn:
    """Replaces this process by ``python SCRIPT args...`` or ``python -m MODULE args...``, which differs only in that
    `nvidia.dali` is jaxdali, in its children, too.

    Args:
      num_batches: the number of batches that each iterator and pipeline gives, see `_limit.Limit`; None: all.
    """
    # Python's own options stand before the first `-m`.
    options = sys.orig_argv[1 : sys.orig_argv.index("-m")] if "-m" in sys.orig_argv else []
    if sys.flags.ignore_environment:
        sys.exit(
            "python -m jaxdali.port --run: Python's options -E and -I can't be used with it, as they ignore PYTHONPATH"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    path = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    if num_batches is not None:
        environment[_BATCHES] = str(num_batches)
    os.execve(sys.executable, [sys.executable, *options, *program], environment)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of `nvidia.dali`: the modules of this package, not copies of them."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`. None: it is no module of DALI, or jaxdali has none of this name."""
        if not fullname.startswith(f"{DALI}."):
            return None
        name = fullname.removeprefix(f"{DALI}.")
        # For a module with a `hint`, `create_module` raises an error that tells it.
        if (
            f"jaxdali.{name}" not in sys.modules
            and not hint(name)
            and importlib.util.find_spec(f"jaxdali.{name}") is None
        ):
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Imports the module of jaxdali. Raises ModuleNotFoundError with the `hint` for a module that it lacks."""
        name = spec.name.removeprefix(f"{DALI}.")
        try:
            module = importlib.import_module(f"jaxdali.{name}")
        except ModuleNotFoundError as e:
            if (e.name or "").startswith("jaxdali.") and hint(name):
                raise ModuleNotFoundError(f"{spec.name} is not in jaxdali: {hint(name)}", name=spec.name) from None
            raise
        spec.loader_state = module.__spec__  # importing replaces it; `exec_module` puts it back
        return module

    def exec_module(self, module: types.ModuleType):
        state = module.__spec__
        if state is not None and state.loader is self:
            module.__spec__ = state.loader_state  # importing a module by another name does not change it


def install():
    """Makes `nvidia.dali` an alias of this package in this process, and limits its batches as `run` was told."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    if num_batches := os.environ.get(_BATCHES):
        from ._limit import Limit  # it imports what a script may not need

        Limit(int(num_batches)).install()
