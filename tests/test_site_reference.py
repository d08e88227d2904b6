"""The site's reference, without Sphinx: each public name is on a page, and the generated parts have what they are made
of.
"""

import importlib
import inspect
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import places
import pytest

from jaxdali._core.foreign import FOREIGN

SITE = places.EXAMPLES / "site"
MODULES = (
    "jaxdali",
    "jaxdali.auto_aug.augmentations",
    "jaxdali.auto_aug.auto_augment",
    "jaxdali.auto_aug.core",
    "jaxdali.auto_aug.rand_augment",
    "jaxdali.auto_aug.trivial_augment",
    "jaxdali.dynamic",
    "jaxdali.dynamic.random",
    "jaxdali.dynamic.readers",
    "jaxdali.math",
    "jaxdali.pipeline",
    "jaxdali.plugin.base_iterator",
    "jaxdali.plugin.jax",
    "jaxdali.plugin.jax.colocated",
    "jaxdali.plugin.jax.fn",
    "jaxdali.plugin.pytorch",
    "jaxdali.plugin.pytorch.fn",
    "jaxdali.ray",
    "jaxdali.tensors",
    "jaxdali.tfrecord",
    "jaxdali.types",
)
SHORT = {  # as pages write them in code
    "jd": "jaxdali.dynamic",
    "types": "jaxdali.types",
    "tfrecord": "jaxdali.tfrecord",
    "augmentations": "jaxdali.auto_aug.augmentations",
}
ELSEWHERE = {"jaxdali.pipeline": {"DataNode", "OperatorConcurrency", "Pipeline", "StreamPolicy", "pipeline_def"}}
EXTRAS = {"jaxdali.plugin.pytorch": "torch", "jaxdali.ray": "ray", "jaxdali.plugin.jax.colocated": "cloudpickle"}


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


def imported(name: str):
    """A module; skips the test if the package that it needs is not installed."""
    for module, package in EXTRAS.items():
        if name.startswith(module):
            pytest.importorskip(package)
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def documented(pages) -> set[str]:
    """The names that are documented: by autodoc, as Python objects, or in code of a list or table."""
    text = "\n".join(path.read_text() for path in (pages / "reference").glob("*.md"))
    names = set(re.findall(r"^\.\. (?:auto|py:)\w+:: ([\w.]+)", text, re.MULTILINE))
    for module in re.findall(r"^\.\. automodule:: ([\w.]+)\n   :members:", text, re.MULTILINE):
        names |= {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    in_code = (name.partition(".") for name in re.findall(r"`([\w.]+)`", text))
    return names | {f"{SHORT.get(first, first)}.{attribute}" for first, _, attribute in in_code}


@pytest.mark.parametrize("name", MODULES)
def test_each_public_name_is_on_a_page(documented, name):
    module = imported(name)
    public = {x for x in getattr(module, "__all__", dir(module)) if x[0] != "_"}
    public -= {x for x in public if inspect.ismodule(getattr(module, x)) or getattr(module, x) in (Any, TYPE_CHECKING)}
    assert public
    assert {f"{name}.{x}" for x in public - ELSEWHERE.get(name, set())} <= documented


def test_documented_names_exist(pages):
    for path in (pages / "reference").glob("*.md"):
        for name in re.findall(r"^\.\. auto(?:class|exception|function):: ([\w.]+)", path.read_text(), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            if not module.startswith(tuple(EXTRAS)):
                assert hasattr(importlib.import_module(module), attribute), (path, name)


def test_names_of_other_libraries_have_rows(pages):
    sections = re.split(r"^## ", (pages / "guides" / "names.md").read_text(), flags=re.MULTILINE)
    by_title = {section.partition("\n")[0]: section for section in sections[1:]}
    assert set(by_title) == {row.library for row in FOREIGN}
    for row in FOREIGN:
        assert f"\n| `{row.name}` | " in by_title[row.library], row


def test_rows_of_names_have_links_and_code(pages):
    text = (pages / "guides" / "names.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert rows["hflip"] == "[`fn.flip(x)`](../operators/flip.md)"
    assert rows["ksize"] == "`window_size`"
    assert rows["RandomApply"].startswith("an `if` on [`fn.random.coin_flip(probability=...)`](../operators/random")
    assert "[`jaxdali.math.clamp(x, low, high)`](../reference/math.md)" in rows["clip"]
    for target in set(re.findall(r"\.\./operators/([\w.]+)\.md", text)):
        assert f"fn.{target}" in text
