"""Explains why the compiled module does not load. It is imported before everything else."""

import importlib
import importlib.util
import os
import pathlib
import sys

# A process can load the module once: when nanobind registers its types again, it ends the process. So the module also
# has a second name, for programs that remove this package from sys.modules and import it anew.
_SECOND_NAME = "_jaxdali_cpu"
_PACKAGE = __name__.partition(".")[0]
_IDENTITY = "_file_when_loaded"  # an attribute of the module


def _identity() -> tuple[str, int, int] | None:
    """The path, time and size of the file that an import of the module loads now; None if there is none."""
    spec = importlib.util.find_spec(f"{_PACKAGE}._cpu")
    if spec is None or spec.origin is None:
        return None
    file = os.stat(spec.origin)
    return os.path.realpath(spec.origin), file.st_mtime_ns, file.st_size


if _SECOND_NAME in sys.modules and vars(sys.modules[_SECOND_NAME]).get(_IDENTITY) != _identity():
    raise ImportError(
        f"this process has loaded the compiled module of another installation or version of jaxdali than the one in "
        f"{pathlib.Path(__file__).parents[1]}, and can't load a second one: restart Python"
    )
try:
    if _SECOND_NAME in sys.modules:
        sys.modules[f"{_PACKAGE}._cpu"] = vars(sys.modules[_PACKAGE])["_cpu"] = sys.modules[_SECOND_NAME]
    else:
        # The error of `from .. import _cpu` would speak of a circular import.
        sys.modules[_SECOND_NAME] = importlib.import_module(f"{_PACKAGE}._cpu")
        vars(sys.modules[_SECOND_NAME])[_IDENTITY] = _identity()
except ImportError as e:
    folder = pathlib.Path(__file__).parents[1]
    modules = sorted(p.name for p in folder.glob("_cpu*.so"))
    if modules:
        version = "{}.{}".format(*sys.version_info)
        reason = f"{', '.join(modules)} in {folder} is built for another Python than this one ({version}), or for another machine ({e})"
        remedy = "install jaxdali again with this Python"
    else:
        reason = f"there is none in {folder}, which is the source folder, not the installed package"
        remedy = "install with `pip install -e .`, which makes both the same, or run Python from another folder"
    raise ImportError(f"jaxdali's compiled module does not load: {reason}; {remedy}") from e
