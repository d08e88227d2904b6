"""The site's pages of operators, without Sphinx; `.ci/site` builds the site."""

import re
import runpy
import shutil
import sys

import places
import pytest

from jaxdali import fn
from jaxdali._core.declaration import Range
from jaxdali.fn.__main__ import group

# That are not generated.
REFERENCE = {*(f"reference/{name}" for name in ("extend", "iterators", "pipeline", "storage")), "glossary"}


@pytest.fixture(scope="module")
def pages():
    for package in ("lz4", "matplotlib", "scipy.io"):
        pytest.importorskip(package)
    sys.path.insert(0, str(places.EXAMPLES / "site"))
    try:
        import operator_pages  # pyright: ignore[reportMissingImports]
        import pictures  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.pop(0)
    return operator_pages, pictures


def test_all_operators_but_readers_have_an_example(pages):
    operator_pages, pictures = pages
    sources = {n for n, f in operator_pages.documented().items() if group(n, f).endswith(("readers", "inputs"))}
    assert {*operator_pages.documented()} == {*pictures.EXAMPLES} | sources
    assert not {*pictures.EXAMPLES} & sources
    for name, example in pictures.EXAMPLES.items():
        assert f"fn.{name}(" in example or name == "external_source", example


def test_pages_of_operators(pages, tmp_path):
    operator_pages, _ = pages
    page = operator_pages.page("rotate", fn.rotate, tmp_path)
    assert (tmp_path / "rotate.png").stat().st_size > 10000
    angle = re.search(r"<tr><td><code>angle</code><br>.*", page)
    assert angle
    assert "required" in angle[0]
    assert "per frame" in angle[0]
    for text in (
        "CPU: native kernel `warp`",
        "CUDA: kernel `warp`",
        "`jaxdali.ops.Rotate`",
        "`jaxdali.dynamic.rotate`",
        "recorded from DALI",
    ):
        assert text in page, text
    resize = operator_pages.page("resize", fn.resize, tmp_path)
    assert len(re.findall(r'^\* "(dali|pillow|tensorflow)": ', resize, re.MULTILINE)) == 6  # a list stays one
    reader = operator_pages.page("readers.file", fn.readers.file, tmp_path)
    assert "random_shuffle` gives another order" in reader
    assert not (tmp_path / "readers.file.png").exists()


def test_pages_have_ranges_and_differences(pages, tmp_path):
    operator_pages, _ = pages
    page = operator_pages.page("random_resized_crop", fn.random_resized_crop, tmp_path)
    (attempts,) = re.findall(r"<tr><td><code>num_attempts</code><br>.*", page)
    assert f"a whole number {Range(1)}" in attempts
    assert "The same seed gives other numbers" in page
    assert "DALI does not have this operator" in operator_pages.page("random.key", fn.random.key, tmp_path)


def test_index_for_programs_describes_each_guide(tmp_path):
    site = places.EXAMPLES / "site"
    build = runpy.run_path(str(site / "build.py"))
    for folder in ("guides", "reference"):
        shutil.copytree(site / folder, tmp_path / folder)
    shutil.copy(site / "glossary.md", tmp_path)
    lines = re.findall(r"^- \[(.+?)\]\((.+?)\.html\): (.+)$", build["index_of"](tmp_path), re.MULTILINE)
    guides = [path.stem for path in (site / "guides").glob("*.md") if path.stem != "index"]
    listed = re.search(r"```\{toctree\}\n(.*?)```", (site / "guides" / "index.md").read_text(), re.DOTALL)
    assert listed
    assert sorted(listed[1].split()) == sorted(guides)
    assert {page for _, page, _ in lines} == {*(f"guides/{g}" for g in guides), *REFERENCE}
    for _, page, text in lines:
        assert not re.search(r"\]\(|```| = ", text), (page, text)  # neither links nor code
        assert text[0].isalpha() or text[0] == "`", (page, text)
