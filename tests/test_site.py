"""The site's pages of operators, without Sphinx; `.ci/site` builds the site."""

import re
import sys

import places
import pytest

from jaxdali import fn
from jaxdali._core.declaration import Range
from jaxdali.fn.__main__ import group


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


def test_a_page_says_what_is_known(pages, tmp_path):
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
    reader = operator_pages.page("readers.file", fn.readers.file, tmp_path)
    assert "random_shuffle` gives another order" in reader
    assert not (tmp_path / "readers.file.png").exists()


def test_ranges_and_differences_are_those_of_the_declaration(pages, tmp_path):
    operator_pages, _ = pages
    page = operator_pages.page("random_resized_crop", fn.random_resized_crop, tmp_path)
    (attempts,) = re.findall(r"<tr><td><code>num_attempts</code><br>.*", page)
    assert f"a whole number {Range(1)}" in attempts
    assert "The same seed gives other numbers" in page
    assert "DALI does not have this operator" in operator_pages.page("random.key", fn.random.key, tmp_path)
