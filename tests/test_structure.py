"""How the package's modules hang together, read from their sources."""

import ast
import graphlib
import itertools
import pathlib

import places
import pytest

from jaxdali.fn import _deprecated
from jaxdali.fn.__main__ import operators
from jaxdali.fn.experimental import _deprecated as experimental

pytestmark = pytest.mark.same_with_any_jax

PACKAGE = places.ROOT / "jaxdali"
MODULES = {  # the compiled module by its stub
    ".".join(("jaxdali", *p.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): p
    for p in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi"))
}


def imported_by(name: str, path: pathlib.Path) -> set[str]:
    """The modules of the package that a module imports: when it is loaded, in functions, and for type checkers."""
    parts = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = (
                ".".join((*parts[: len(parts) + 1 - node.level], *filter(None, [node.module])))
                if node.level
                else node.module
            )
            found |= {f"{origin}.{a.name}" if f"{origin}.{a.name}" in MODULES else origin for a in node.names}
    return found & (MODULES.keys() - {name})


def test_no_circle_of_imports():
    """At no level: not of modules, not in functions, not under TYPE_CHECKING."""
    imports = {name: imported_by(name, path) for name, path in MODULES.items()}
    assert imports["jaxdali._batch.executor"] >= {"jaxdali._batch.launch", "jaxdali._core.graph"}  # they are found
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as e:
        pytest.fail(f"a circle of imports: {' <- '.join(e.args[1])}")


BELOW = {  # of each package those that it may import
    "_core": {"_data"},
    "_data": {"_core"},
    "fn": {"_core", "_data"},
    "_plan": {"_core", "_data"},
    "_program": {"_core", "_data", "_plan"},
    "_batch": {"_core", "_data", "_plan", "_program"},
    "_runner": {"_core", "_data", "_plan", "_program", "_batch"},
    "_pipeline": {"_core", "_data", "fn", "_plan", "_program", "_batch", "_runner"},
    "_iterator": {"_core", "_data", "_plan", "_program", "_batch", "_runner", "_pipeline"},
    "auto_aug": {"_core", "fn", "_pipeline"},
    "plugin": {"_core", "_data", "fn", "_plan", "_program", "_batch", "_runner", "_pipeline", "_iterator"},
    "dynamic": {"_core", "_data", "fn", "_plan", "_program", "_batch", "_runner", "_pipeline"},
    "experimental": {"_core", "dynamic", "fn"},
    "benchmark": {"_core", "fn", "_plan", "_program", "_batch", "_runner", "_pipeline"},
}


def package(module: str) -> str:
    return (*module.split("."), "")[1]


@pytest.mark.parametrize("name", BELOW)
def test_packages_know_those_below(name):
    above = {
        (m, i)
        for m, p in MODULES.items()
        if package(m) == name
        for i in imported_by(m, p)
        if package(i) in BELOW.keys() - {name}
    }
    assert above
    assert {(m, i) for m, i in above if package(i) not in BELOW[name]} == set()


FAMILIES = "jaxdali.fn._families"


def test_families_know_no_operator():
    """They and the functions beside them are below all operators, which import them."""
    above = {
        (m, i)
        for m, p in MODULES.items()
        if m.startswith(FAMILIES)
        for i in imported_by(m, p)
        if i.startswith("jaxdali.fn.")
    }
    assert {(m, i) for m, i in above if not i.startswith(FAMILIES)} == set()
    assert (f"{FAMILIES}.warp", f"{FAMILIES}.conversion") in above


def test_the_folder_of_an_operator_is_its_public_path():
    """`fn.random.uniform` in `fn/random`; those of `fn` itself in a folder with a private name, or beside them."""
    aliases = {f"experimental.{name}" for name in vars(experimental)} | {*vars(_deprecated)}
    for name, operator in operators().items():
        if name not in aliases and not (operator.__doc__ or "").startswith("Deprecated name"):
            public = itertools.takewhile(
                lambda part: part[0] != "_", operator.__module__.removeprefix("jaxdali.fn.").split(".")
            )
            assert [*public] == name.split(".")[:-1], (name, operator.__module__)
