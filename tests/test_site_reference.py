"""The site's reference, without Sphinx: each public name is on a page, and the generated parts have what they are made
of.
"""

import importlib
import importlib.util
import inspect
import pathlib
import pkgutil
import re
import shutil
import sys
import types
from collections.abc import Iterator
from typing import Any

import places
import pytest

import jaxdali
from jaxdali._core.foreign import FOREIGN

pytestmark = pytest.mark.same_with_any_jax

SITE = places.EXAMPLES / "site"
UNLISTED = {  # public modules whose names need not be on a page of the reference, nor those of their submodules
    "jaxdali.experimental.dynamic": "has DALI's names for those of `jaxdali.dynamic`; dynamic.md and its help list them",
    "jaxdali.fn": "operators have pages of their own; tests/test_site.py looks for them",
    "jaxdali.index": "a command line, which reference/commands describes",
    "jaxdali.ops": "has the operators as classes, which their pages name",
    "jaxdali.plugin.mxnet": "raises an error that says what to use",
    "jaxdali.plugin.paddle": "raises an error that says what to use",
    "jaxdali.plugin.tf": "raises an error that says what to use",
    "jaxdali.port": "a command line, which reference/commands describes",
}
SHORT = {  # as pages write them in code
    "jd": "jaxdali.dynamic",
    "types": "jaxdali.types",
    "tfrecord": "jaxdali.tfrecord",
    "extend": "jaxdali.extend",
    "augmentations": "jaxdali.auto_aug.augmentations",
}
EXTRAS = {
    "jaxdali.plugin.grain": "grain",
    "jaxdali.plugin.jax.colocated": "cloudpickle",
    "jaxdali.plugin.pytorch": "torch",
    "jaxdali.ray": "ray",
}


def public_modules(package: str, folder: pathlib.Path) -> Iterator[str]:
    """The names of a package and of the public modules in it, without those in `UNLISTED`. Imports none."""
    yield package
    for _, name, is_package in pkgutil.iter_modules([str(folder)], f"{package}."):
        leaf = name.rpartition(".")[2]
        if not leaf.startswith("_") and name not in UNLISTED:
            yield from public_modules(name, folder / leaf) if is_package else [name]


MODULES = [*public_modules("jaxdali", pathlib.Path(jaxdali.__file__).parent)]


def lacks_package(name: str) -> bool:
    """Whether a module needs a package that is not installed."""
    return any(name.startswith(module) and not importlib.util.find_spec(package) for module, package in EXTRAS.items())


def contents(name: str) -> dict[str, Any]:
    """The exports of a module, or else all that jaxdali defines in it. Submodules have contents of their own."""
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [
        x for x in dir(module) if x[0] != "_" and getattr(getattr(module, x), "__module__", "").startswith("jaxdali")
    ]
    return {x: getattr(module, x) for x in names if not isinstance(getattr(module, x), types.ModuleType)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder of the pages with their generated parts."""
    for package in ("lz4", "matplotlib", "scipy.io"):  # of the operators' pictures, which `operator_pages` imports
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(SITE / "reference", folder / "reference")
    (folder / "guides").mkdir()
    sys.path.insert(0, str(SITE))
    try:
        import reference_pages  # pyright: ignore[reportMissingImports]

        reference_pages.write(folder)
    finally:
        sys.path.pop(0)
    return folder


@pytest.fixture(scope="module")
def documented(pages) -> set[str]:
    """The names that are documented: by autodoc, as Python objects, or in code of a list or table."""
    text = "\n".join(path.read_text() for path in (pages / "reference").glob("*.md"))
    names = set(re.findall(r"^\.\. (?:auto|py:)\w+:: ([\w.]+)", text, re.MULTILINE))
    for module in re.findall(r"^\.\. automodule:: ([\w.]+)\n   :members:", text, re.MULTILINE):
        # Other values have no docstrings, so autodoc leaves them out.
        names |= {
            f"{module}.{name}"
            for name, value in contents(module).items()
            if inspect.isclass(value) or inspect.isroutine(value)
        }
    in_code = (name.partition(".") for name in re.findall(r"`([\w.]+)`", text))
    return names | {f"{SHORT.get(first, first)}.{attribute}" for first, _, attribute in in_code}


@pytest.fixture(scope="module")
def ids_of_documented(documented) -> set[int]:
    """The ids of all objects that are documented. Other modules may have them, too, under DALI's names."""
    values = [
        (f"{name}.{x}", value) for name in MODULES if not lacks_package(name) for x, value in contents(name).items()
    ]
    return {id(value) for name, value in values if name in documented and not isinstance(value, int | str)}


@pytest.mark.parametrize("name", MODULES)
def test_each_public_name_is_on_a_page(documented, ids_of_documented, name):
    if lacks_package(name):
        pytest.skip("needs a package that is not installed")
    missing = {x: value for x, value in contents(name).items() if f"{name}.{x}" not in documented}
    assert not [x for x, value in missing.items() if id(value) not in ids_of_documented]


def test_documented_names_exist(pages):
    for path in (pages / "reference").glob("*.md"):
        for name in re.findall(r"^\.\. auto(?:class|exception|function):: ([\w.]+)", path.read_text(), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            if not module.startswith(tuple(EXTRAS)):
                assert hasattr(importlib.import_module(module), attribute), (path, name)


def test_names_of_other_libraries_have_rows(pages):
    sections = re.split(r"^## ", (pages / "guides" / "names.md").read_text(), flags=re.MULTILINE)
    by_title = {section.partition("\n")[0]: section for section in sections[1:]}
    assert set(by_title) == {"What differs in pixels", *(row.library for row in FOREIGN)}
    for row in FOREIGN:
        assert f"\n| `{row.name}` | " in by_title[row.library], row


def test_code_in_answers_has_backticks():
    for row in FOREIGN:
        prose = re.sub("`.+?`", "", row.markdown)
        assert not re.search(r"`|\w\(|[=_]|[a-z]\.[a-z]", prose), row


def test_rows_of_names_have_links_and_code(pages):
    text = (pages / "guides" / "names.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert rows["hflip"] == "[`fn.flip(x)`](../operators/flip.md)"
    assert rows["ksize"] == "`window_size`"
    assert rows["RandomApply"].startswith("an `if` on [`fn.random.coin_flip(probability=...)`](../operators/random")
    assert "[`jaxdali.math.clamp(x, low, high)`](../reference/math.md)" in rows["clip"]
    for target in set(re.findall(r"\.\./operators/([\w.]+)\.md", text)):
        assert f"fn.{target}" in text
