"""Builds the site into build/site/html. Guides are run, operators' pages and pictures are made, and warnings are
errors.

    python examples/site/build.py [--jobs 2]

Needs jaxdali installed with its examples' packages, and `pip install --group site`.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
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

    sys.path.insert(0, str(HERE))
    import operator_pages

    operator_pages.write(sources / "operators")
    architecture(sources)
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
        (TARGET / "html" / "llms.txt").write_text(index_of(sources))
        print(f"built {TARGET / 'html' / 'index.html'}")
    return code


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
    text = re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)", r"\1", text)  # links to files of the repository
    (sources / "reference" / "architecture.md").write_text(text)
    lines = [
        "# Notes in the code\n",
        "Reasons that concern several places stand once, at one of them, and are cited by their title.\n",
    ]
    for path in sorted((ROOT / "jaxdali").rglob("*.py")):
        for title, body in re.findall(r"^# Note \[(.+?)\]\n((?:#.*\n)+)", path.read_text(), re.MULTILINE):
            lines += [f"## {title}\n", f"`{path.relative_to(ROOT)}`\n", re.sub(r"^# ?", "", body, flags=re.MULTILINE)]
    (sources / "reference" / "notes.md").write_text("\n".join(lines))


def index_of(sources: pathlib.Path) -> str:
    """`llms.txt`: each page with its first paragraph, for programs that read the site."""
    lines = ["# jaxdali\n", "> Input pipelines for JAX with the API of NVIDIA DALI: read, decode, augment and batch.\n"]
    for folder, heading in (("guides", "Guides"), ("reference", "Reference"), ("operators", "Operators")):
        pages = [path for path in sorted((sources / folder).glob("*.md")) if path.stem != "index"]
        pages += [sources / "glossary.md"] if folder == "reference" else []
        lines += [f"## {heading}\n", *(entry(path, sources) for path in pages), ""]
    return "\n".join(lines)


def entry(path: pathlib.Path, sources: pathlib.Path) -> str:
    """The line of `llms.txt` for a page: its title, and its first paragraph without links."""
    text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)  # code, directives
    title, _, rest = text.partition("# ")[2].partition("\n")
    first = next((p.strip() for p in re.split(r"\n\s*\n", rest) if p.strip() and p.strip()[0] not in "#<!(|:*"), "")
    first = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return f"- [{title}]({path.relative_to(sources).with_suffix('.html')}): {first}".replace("\\", "")


if __name__ == "__main__":
    sys.exit(main())
