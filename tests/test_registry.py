"""Rules that hold for every public function, and for every kernel."""

import inspect
import pathlib
import re
import types

import jax
import pytest

import jaxdali
from jaxdali import _cpu, fn
from jaxdali._core import ffi as _ffi
from jaxdali._core.calls import functions as CALLS

ROOT = pathlib.Path(__file__).parent.parent


def functions(module: types.ModuleType, prefix: str = "") -> dict:
    """The operators of a module and its public submodules, by dotted name."""
    found = {}
    for name, x in vars(module).items():
        if name.startswith("_"):
            continue
        if inspect.ismodule(x) and x.__name__.startswith(f"{module.__name__}."):
            found |= functions(x, f"{prefix}{name}.")
        # A package is an index of operators; a module also holds helpers, which don't take the name of a node.
        elif inspect.isfunction(x) and (hasattr(module, "__path__") or "name" in inspect.signature(x).parameters):
            found[prefix + name] = x
    return found


FN = functions(fn)


def test_index():
    assert {"cast", "shapes", "resize", "readers.file", "decoders.image"} <= set(FN)


@pytest.mark.parametrize("name", FN)
def test_signature(name):
    """Inputs by position, everything else by name; nothing is passed through; defaults are immutable."""
    for p in inspect.signature(FN[name]).parameters.values():
        assert p.kind != p.VAR_KEYWORD, p
        # an operator's inputs come first and have no default, or None where the input may be left out
        assert p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) or p.default in (p.empty, None), p
        assert p.default is p.empty or p.default is None or isinstance(p.default, (bool, int, float, str, tuple)), p


@pytest.mark.parametrize("name", FN)
def test_docstring(name):
    """Every argument is documented, under its name."""
    text = inspect.getdoc(FN[name]) or ""
    assert re.match(r"\S.*\.\n", text + "\n"), "a one-line summary that ends with a full stop"
    parameters = inspect.signature(FN[name]).parameters
    assert "Args:" in text or not parameters
    missing = [p for p in parameters if not re.search(rf"^ .*\b{p}\b.*", text, re.M)]
    assert not missing


def test_files_can_call_every_function():
    """And nothing else than these and what Python's operators on DataNodes do."""
    assert {name: f for name, f in CALLS.items() if name in FN} == FN
    assert CALLS.keys() - FN.keys() == {"arithmetic", "subscript", "copy", "constant"}


def test_public_names():
    for name in ("pipeline_def", "Pipeline", "DataNode", "fn", "types", "math", "show_config"):
        assert hasattr(jaxdali, name)


def test_kernels_are_registered():
    kernels = re.findall(r"^JAXDALI_KERNEL(?:_CUDA)?\((\w+)\)", (ROOT / "ffi" / "ops.def").read_text(), re.M)
    assert kernels
    assert set(_cpu.targets()) == {f"jaxdali_{k}" for k in kernels}
    for kernel in kernels:
        call = jax.ffi.ffi_call(f"jaxdali_{kernel}", jax.ShapeDtypeStruct((1,), "uint8"))
        text = jax.jit(call).lower().as_text()
        assert f"jaxdali_{kernel}" in text


def test_cuda_module():
    """Where it was built it imports, with or without a GPU, and has its kernels."""
    kernels = set(re.findall(r"^JAXDALI_KERNEL_CUDA\((\w+)\)", (ROOT / "ffi" / "ops.def").read_text(), re.M))
    assert _ffi.CUDA.split(":")[0] in ("loaded", "not built", "not used")
    assert _ffi.CUDA_KERNELS in (kernels, set())
