"""Figures in the documents: speed, times, threads, batches in flight. Each equals the one in RESULTS.md or in the code.

A figure that no phrase of this file has is an error, so a new one gets a phrase here, or goes to RESULTS.md alone. The
site's pages read most figures by examples/site/figures.py.
"""

import functools
import re
import runpy

import places
import pytest

from jaxdali._batch import executor
from jaxdali.fn.readers import _parquet

pytestmark = pytest.mark.same_with_any_jax

RESULTS = "tests/benchmarks/RESULTS.md"
DOCUMENTS = [
    "README.md",
    "jaxdali/README.md",
    "jaxdali/plugin/README.md",
    *(str(path.relative_to(places.ROOT)) for path in sorted((places.EXAMPLES / "site").rglob("*.md"))),
]
NUMBER = "(?:[0-9][0-9.,]*|two|three|four|five|six|seven|eight|nine|ten|half)"
UNITS = "ms|us|s|seconds|minutes|images/s|photos/s|samples/s|(?:images|photos) (?:a|per) second|of ideal|MB|GB|threads|cores"
FIGURE = re.compile(
    rf"\b{NUMBER}(?: (?:to|or|and) {NUMBER})? (?:{UNITS})(?![\w-])"
    rf"|\b{NUMBER} (?:%|times) (?:as (?:fast|much|long)|of|faster|less|more|slower)\b|\btwice as (?:fast|much|long)\b|\b{NUMBER} of DALI's",
    re.IGNORECASE,
)

# How it was measured, in the words of the documents and of RESULTS.md.
CONDITIONS = {
    "two cores of an AMD EPYC": "two cores of an Intel Xeon (AVX-512) or of an AMD EPYC",
    "16 cores of an Intel Xeon": "16 cores of an Intel Xeon",
    "two threads": "with two threads or worker processes",
    "clips of 10 seconds": "Clips of 10 seconds",
    "about 200 MB": "JAX and its first program take 200 MB",
}


@functools.cache
def site_figures():
    """Functions of examples/site/figures.py."""
    return runpy.run_path(str(places.EXAMPLES / "site" / "figures.py"))


def cell(title: str, row: str, column: str) -> str:
    """A cell of the table with this column below a heading of RESULTS.md."""
    return site_figures()["read_cell"](site_figures()["read_table"](title, column), row, column)


def phrases() -> dict[str, list[str]]:
    """The phrases with figures that each document has."""
    efficiencies = {row[0]: row[2] for row in site_figures()["read_table"]("Many cores, simulated", "cores")[1:]}
    well_used = max(
        int(n) for n, efficiency in efficiencies.items() if n.isdigit() and float(efficiency.split()[0]) > 0.9
    )
    words = dict(enumerate("zero one two three four five six seven eight nine ten".split()))
    install, tests, one_gpu, all_gpus = (
        cell("Installation and tests", row, "minutes")
        for row in (
            "the first command",
            "the second command",
            "CUDA kernels for one GPU",
            "CUDA kernels for all GPUs",
        )
    )
    row = "`train`: random crop to 224x224, mirror, normalise; 4 threads"
    rows = (row, "the same, 8 threads", "the same, 15 threads")
    columns = ("H100", "H200")
    images = sorted(
        (cell("Images per second", r, c) for r in rows for c in columns), key=lambda x: int(x.replace(",", ""))
    )
    many, max_dispatched = executor.MANY_THREADS, executor.max_dispatched_on_cpu(10**6)
    fewest = words[executor.max_dispatched_on_cpu(1)]
    return {
        "README.md": [
            f"about {install} minutes on two cores",
            f"about {tests} minutes",
            f"above {well_used} cores",
            f"simulated: speed grows with the cores, up to {well_used} cores",
            f"one H100 or H200 decodes, crops and normalises {images[0]} to {images[-1]} photos/s",
        ],
        "jaxdali/README.md": [
            "two or three threads",
            "Each iterator has two threads, *produce* and *check*. A third one, *read*",
            f"at least {many} native threads",
            "Two batches are dispatched and unfinished at most; "
            f"on the CPU {fewest} to {words[max_dispatched]}, one more for every {many} native threads.",
        ],
        "examples/site/guides/several_hosts.md": [f"more than {well_used} cores", f"about {well_used} cores"],
        "examples/site/guides/speed.md": [f"Above {well_used} cores"],
        "examples/site/index.md": ["Two or three threads"],
        "examples/site/install.md": [
            f"about {install} minutes on two cores",
            f"about {tests} minutes on two cores",
            f"{one_gpu} minutes more",
            f"{all_gpus} minutes more",
        ],
        "examples/site/guides/huggingface.md": [f"more than {_parquet._CACHE_BYTES >> 20} MB"],
        "examples/site/performance.md": [f"about {well_used} cores"],
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_figures_equal_results(document):
    text = (places.ROOT / document).read_text()
    text = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = " ".join(text.split())
    for phrase in phrases().get(document, []):
        assert phrase in text, f"{document}: {RESULTS} or the code says {phrase!r}"
        text = text.replace(phrase, "")
    for condition in CONDITIONS:
        text = text.replace(condition, "")
    simulated = [row[0] for row in site_figures()["read_table"]("Many cores, simulated", "cores")[1:]]
    text = re.sub(rf"\b(?:{'|'.join(filter(str.isdigit, simulated))}) cores\b", "", text)
    assert not [figure[0] for figure in FIGURE.finditer(text)]


def test_conditions_equal_results():
    text = " ".join((places.ROOT / RESULTS).read_text().split())
    assert not [condition for condition in CONDITIONS.values() if condition not in text]


def test_tables_of_the_installation():
    """install.md is read in the repository, too, so its tables are plain Markdown."""
    figures, text = site_figures(), (places.EXAMPLES / "site" / "install.md").read_text()
    for table in (figures["extras_table"](), figures["versions_table"]()):
        assert f"\n\n{table}\n\n" in text, "copy what python examples/site/figures.py prints into install.md"
    assert f"Version {figures['version']()} is not released" in text
    assert f"Python {figures['python']()} or newer" in text
    assert "{{" not in text
