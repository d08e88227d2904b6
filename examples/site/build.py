"""Builds the site into build/site/html. Guides and examples are run; the pages of operators with their pictures, the
pages of examples, parts of the reference and the guides' notebooks are made. Warnings are errors.

    python examples/site/build.py [--jobs 2]

Needs jaxdali installed with its examples' packages, and `pip install --group site`.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import notebooks

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = ROOT / "build" / "site"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Builds the site into build/site/html.")
    parser.add_argument("--jobs", default="2", help="processes of Sphinx")
    jobs = parser.parse_args(arguments).jobs
    shutil.rmtree(TARGET, ignore_errors=True)
    sources = TARGET / "sources"
    shutil.copytree(HERE, sources, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copy(HERE / "conf.py", sources)
    shutil.copy(ROOT / "examples" / "getting_started.jpg", sources)
    for folder in ("examples", "tests"):  # guides run as in the repository's root
        (sources / "guides" / folder).symlink_to(ROOT / folder)
    recipes(sources / "guides" / "recipes")

    import example_pages
    import figures
    import operator_pages
    import reference_pages

    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):  # dump_image writes files
        operator_pages.write(sources / "operators")
    example_pages.write(sources / "examples")
    reference_pages.write(sources)
    architecture(sources)
    measurements(sources)
    downloads(sources, figures.substitutions())
    sphinx = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "--jobs",
        jobs,
        "--builder",
        "html",
    ]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # guides call python
    code = subprocess.run(
        [*sphinx, str(sources), str(TARGET / "html")], cwd=ROOT, env={**os.environ, "PATH": path}
    ).returncode
    if code == 0:
        (TARGET / "html" / "llms.txt").write_text(index_of(sources, figures.substitutions()))
        print(f"built {TARGET / 'html' / 'index.html'}")
    return code


def downloads(sources: pathlib.Path, substitutions: dict[str, str]) -> None:
    """Makes the guides' notebooks, and links each below its guide's title."""
    for name in notebooks.write(sources / "guides", sources / "notebooks", substitutions):
        guide = sources / "guides" / f"{name}.md"
        link = f"{{download}}`Download this guide as a notebook <../notebooks/{name}.ipynb>`"
        guide.write_text(re.sub(r"^(# .+)$", rf"\1\n\n{link}", guide.read_text(), count=1, flags=re.MULTILINE))


def recipes(folder: pathlib.Path) -> None:
    """Writes the files that CONTRIBUTING.md shows: an operator, a kernel, a reader."""
    folder.mkdir()
    for name, code in re.findall(
        r"This is `(.+?)`:\n\n```\w+\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    ):
        (folder / name).write_text(code)


def architecture(sources: pathlib.Path) -> None:
    """The package's architecture, and the titled notes of its code, as pages."""
    text = (ROOT / "jaxdali" / "README.md").read_text()
    (sources / "reference" / "architecture.md").write_text(without_links(text))
    lines = [
        "# Notes in the code\n",
        "Reasons that concern several places stand once, at one of them, and are cited by their title.\n",
    ]
    for path in sorted((ROOT / "jaxdali").rglob("*.py")):
        for title, body in re.findall(r"^# Note \[(.+?)\]\n((?:#.*\n)+)", path.read_text(), re.MULTILINE):
            lines += [f"## {title}\n", f"`{path.relative_to(ROOT)}`\n", re.sub(r"^# ?", "", body, flags=re.MULTILINE)]
    (sources / "reference" / "notes.md").write_text("\n".join(lines))


def measurements(sources: pathlib.Path) -> None:
    """The record of all measurements as a page."""
    text = (ROOT / "tests" / "benchmarks" / "RESULTS.md").read_text()
    (sources / "measurements.md").write_text(without_links(text))


def without_links(text: str) -> str:
    """Markdown in which links to files of the repository are their text."""
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)", r"\1", text)


def index_of(sources: pathlib.Path, substitutions: dict[str, str]) -> str:
    """`llms.txt`: each page with its first paragraph, for programs that read the site."""
    lines = ["# jaxdali\n", "> Input pipelines for JAX with the API of NVIDIA DALI: read, decode, augment and batch.\n"]
    folders = (
        ("Start", ["install.md", "loaders.md", "performance.md"]),
        ("Guides", ["guides/*.md"]),
        ("Examples", ["examples/*.md"]),
        ("Reference", ["reference/*.md", "reference/commands/*.md", "glossary.md", "measurements.md"]),
        ("Operators", ["operators/*.md"]),
    )
    for heading, patterns in folders:
        pages = [path for pattern in patterns for path in sorted(sources.glob(pattern))]
        pages = [path for path in pages if "{toctree}" not in path.read_text()]  # those only list others
        lines += [f"## {heading}\n", *(entry(path, sources) for path in pages), ""]
    return notebooks.substitute("\n".join(lines), substitutions)


def entry(path: pathlib.Path, sources: pathlib.Path) -> str:
    """The line of `llms.txt` for a page: its title, and its first paragraph without links."""
    text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)  # code, directives
    title, _, body = text.partition("# ")[2].partition("\n")
    first = next((p.strip() for p in re.split(r"\n\s*\n", body) if p.strip() and p.strip()[0] not in "#<!(|:*{"), "")
    first = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return f"- [{title}]({path.relative_to(sources).with_suffix('.html')}): {first}".replace("\\", "")


if __name__ == "__main__":
    sys.exit(main())
