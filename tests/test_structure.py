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
    origins = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            origins |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = (
                ".".join((*parts[: len(parts) + 1 - node.level], *filter(None, [node.module])))
                if node.level
                else node.module
            )
            origins |= {f"{origin}.{a.name}" if f"{origin}.{a.name}" in MODULES else origin for a in node.names}
    return origins & (MODULES.keys() - {name})


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
    "_tensors": {"_core"},
    "_pipeline": {"_core", "_data", "fn", "_plan", "_program", "_batch", "_runner", "_tensors"},
    "_iterator": {"_core", "_data", "_plan", "_program", "_batch", "_runner", "_pipeline", "_tensors"},
    "auto_aug": {"_core", "fn", "_pipeline"},
    "ops": {"_core", "fn"},
    "plugin": {
        *("_core", "_data", "fn", "_plan", "_program", "_batch", "_runner", "_pipeline", "_iterator", "ops", "dynamic")
    },
    "dynamic": {"_core", "_data", "fn", "_plan", "_program", "_batch", "_runner", "_pipeline", "_tensors"},
    "experimental": {"_core", "dynamic", "fn"},
    "benchmark": {"_core", "fn", "_plan", "_program", "_batch", "_runner", "_pipeline"},
    "pack": {"_core", "_data", "fn", "_plan", "_batch", "_pipeline", "dynamic"},
    "port": {"_core", "_pipeline", "_iterator"},
}


def package(module: str) -> str:
    return (*module.split("."), "")[1]


@pytest.mark.parametrize("name", BELOW)
def test_packages_import_lower_packages_only(name):
    imports = {
        (m, i)
        for m, p in MODULES.items()
        if package(m) == name
        for i in imported_by(m, p)
        if package(i) in BELOW.keys() - {name}
    }
    assert imports
    assert {(m, i) for m, i in imports if package(i) not in BELOW[name]} == set()


def test_every_package_has_a_row():
    """So none can import what it likes. Modules at the top level are below or above all packages."""
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - BELOW.keys() == {"pipeline"}  # DALI's name for what is in `_pipeline`


FAMILIES = "jaxdali.fn._families"


def test_families_import_no_operator():
    """They and the functions beside them are below all operators, which import them."""
    imports = {
        (m, i)
        for m, p in MODULES.items()
        if m.startswith(FAMILIES)
        for i in imported_by(m, p)
        if i.startswith("jaxdali.fn.")
    }
    assert {(m, i) for m, i in imports if not i.startswith(FAMILIES)} == set()
    assert (f"{FAMILIES}.warp", f"{FAMILIES}.conversion") in imports


def test_operators_stand_at_their_public_path():
    """`fn.random.uniform` in `fn/random`; those of `fn` itself in a folder with a private name, or beside them."""
    aliases = {f"experimental.{name}" for name in vars(experimental)} | {*vars(_deprecated)}
    for name, operator in operators().items():
        if name not in aliases and not (operator.__doc__ or "").startswith("Deprecated name"):
            public = itertools.takewhile(
                lambda part: part[0] != "_", operator.__module__.removeprefix("jaxdali.fn.").split(".")
            )
            assert [*public] == name.split(".")[:-1], (name, operator.__module__)


TESTS = {
    f"{path.relative_to(places.ROOT)}: {node.name}"
    for path in (places.ROOT / "tests").rglob("test_*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}


def test_names_of_tests_are_short():
    """They name the thing and the expectation (CONTRIBUTING.md, Words)."""
    words = {test: test.rpartition(" ")[2].split("_")[1:] for test in TESTS}
    assert [test for test in TESTS if len(words[test]) > 7] == []
    assert [test for test in TESTS if {"what", "who", "which", "that", "those"} & {*words[test]}] == []


def test_docstrings_begin_with_a_noun_or_verb():
    beginnings = {
        f"{path.relative_to(places.ROOT)}:{node.body[0].lineno}": docstring.split()[0]
        for folder in ("jaxdali", "tests", "examples")
        for path in (places.ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (docstring := ast.get_docstring(node))
    }
    assert {k: v for k, v in beginnings.items() if v in ("What", "Who", "Which", "Those", "That")} == {}
