"""The site's pages of operators, lists of pages, notebooks and links, without Sphinx; `.ci/site` builds the site."""

import json
import re
import runpy
import shutil
import sys

import places
import pytest

from jaxdali import fn
from jaxdali._core.declaration import Range
from jaxdali.fn.__main__ import group

pytestmark = pytest.mark.same_with_any_jax

SITE = places.EXAMPLES / "site"


@pytest.fixture(scope="module")
def pages():
    for package in ("lz4", "matplotlib", "scipy.io"):
        pytest.importorskip(package)
    sys.path.insert(0, str(SITE))
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
    angle = re.search(r"<tr><td><code>angle</code><br> .*", page)
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
    (attempts,) = re.findall(r"<tr><td><code>num_attempts</code><br> .*", page)
    assert f"a whole number {Range(1)}" in attempts
    assert "The same seed gives other numbers" in page
    assert "DALI does not have this operator" in operator_pages.page("random.key", fn.random.key, tmp_path)


def load_script(file):
    """The names of a script, which imports from its own folder."""
    path = [*sys.path]
    try:
        return runpy.run_path(str(file))
    finally:
        sys.path[:] = path


def toctrees(page):
    """The entries of a page's toctrees."""
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines() if line.strip() and line[0] != ":"]
    return [re.sub(r".*<(.+)>", r"\1", line) for line in lines]


def test_each_page_is_in_one_toctree():
    listed = toctrees(SITE / "index.md")
    for folder in ("guides", "reference"):
        listed += [f"{folder}/{entry}" for entry in toctrees(SITE / folder / "index.md")]
    written = {str(path.relative_to(SITE).with_suffix("")) for path in SITE.rglob("*.md")} - {"index"}
    generated = {"examples/index", "guides/names", "operators/index", "reference/../measurements"}
    generated |= {"reference/architecture", "reference/notes"}
    commands = {page for page in written if page.startswith("reference/commands/")}
    assert commands
    assert sorted(listed) == sorted((written - commands) | generated | {"reference/commands/*"})


def test_each_guide_has_a_line():
    text = (SITE / "guides" / "index.md").read_text()
    described = re.findall(r"^\* \[.+?\]\((\w+)\.md\): .+\.$", text, re.MULTILINE)
    guides = {path.stem for path in (SITE / "guides").glob("*.md")} - {"index"} | {"names"}
    assert sorted(described) == sorted(guides)


def test_index_for_programs_describes_each_page(tmp_path):
    build = load_script(SITE / "build.py")
    shutil.copytree(SITE, tmp_path / "site", ignore=shutil.ignore_patterns("*.py"))
    text = build["index_of"](tmp_path / "site", {"version": "0.1.0"})
    lines = re.findall(r"^- \[(.+?)\]\((.+?)\.html\): (.+)$", text, re.MULTILINE)
    written = {path.relative_to(SITE).with_suffix("") for path in SITE.rglob("*.md")}
    lists = {"index", "guides/index", "reference/index"}
    assert {page for _, page, _ in lines} == {*map(str, written)} - lists
    for _, page, text in lines:
        assert not re.search(r"\]\(|```| = |\{\{", text), (page, text)  # neither links nor code nor names of figures
        assert text[0].isalpha() or text[0] in "`*", (page, text)


def test_each_guide_becomes_a_notebook(tmp_path):
    pytest.importorskip("matplotlib")  # of the figures
    substitutions = runpy.run_path(str(SITE / "figures.py"))["substitutions"]()
    notebooks = runpy.run_path(str(SITE / "notebooks.py"))
    build = load_script(SITE / "build.py")
    guides = tmp_path / "guides"
    shutil.copytree(SITE / "guides", guides)
    (guides / "examples").symlink_to(places.EXAMPLES)
    build["recipes"](guides / "recipes")
    names = notebooks["write"](guides, tmp_path / "notebooks", substitutions)
    with_cells = {path.stem for path in (SITE / "guides").glob("*.md") if "{code-cell}" in path.read_text()}
    assert {*names} == with_cells
    for name in names:
        content = json.loads((tmp_path / "notebooks" / f"{name}.ipynb").read_text())
        cells = content["cells"]
        assert "root of a checkout" in cells[0]["source"]
        source = (SITE / "guides" / f"{name}.md").read_text()
        written = source.count("{code-cell}") + source.count("{literalinclude} recipes/") + 1
        assert [cell["cell_type"] for cell in cells].count("code") == written, name
        for cell in cells:
            if cell["cell_type"] == "code":
                assert not re.match(r":\w+:|---", cell["source"]), (name, cell["source"])
            else:
                text = re.sub(r"^```.*?^```", "", cell["source"], flags=re.DOTALL | re.MULTILINE)
                assert not re.search(r"^:::|\{[\w-]+\}`|\]\((?!https?:)|\{\{", text, re.MULTILINE), (name, text)


def test_notebooks_show_included_files(tmp_path):
    convert = runpy.run_path(str(SITE / "notebooks.py"))["convert"]
    (tmp_path / "a.py").write_text("import x\n\ndef f():\n    pass\n\n# the end\n")
    guide = """---
file_format: mystnb
---
# A title

See [`f`](../reference/f.md), [x](https://example.org); {{ figure }}.

```{literalinclude} a.py
:language: python
:start-at: "def f"
:end-before: "# the"
```

```{code-cell}
:tags: [remove-stderr]
f()
```
"""
    cells = [cell["source"] for cell in convert(guide, tmp_path, {"figure": "12 ms"})["cells"]]
    assert '"A title"' in cells[0]
    assert "examples/images" in cells[1]
    assert cells[2:] == [
        "# A title\n\nSee `f`, [x](https://example.org); 12 ms.",
        "```python\ndef f():\n    pass\n```",
        "f()",
    ]


def test_pages_of_searches_exist(pages):
    operator_pages, _ = pages
    searches = runpy.run_path(str(places.ROOT / ".ci" / "look.py"))["SEARCHES"]
    generated = {"guides/names", *(f"operators/{name}" for name in operator_pages.documented())}
    for query, expected, _ in searches:
        for page in expected:
            assert page in generated or (SITE / f"{page}.md").exists(), (query, page)


def test_each_operator_is_in_one_group(pages):
    operator_pages, _ = pages
    groups = operator_pages.groups()
    assert sorted(n for _, _, names in groups.values() for n in names) == [*operator_pages.documented()]
    assert not {*groups} & {*operator_pages.documented()}  # pages have names of their own
    assert all(names for _, _, names in groups.values())


def test_links_have_texts():
    """MyST would show the title of the page for an empty text, but `llms.txt` and notebooks have no titles."""
    for path in SITE.rglob("*.md"):
        assert "[](" not in path.read_text(), path
