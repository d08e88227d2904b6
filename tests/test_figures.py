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

RESULTS = "tests/benchmarks/RESULTS.md"
DOCUMENTS = [
    "README.md",
    "jaxdali/README.md",
    "jaxdali/plugin/README.md",
    *(str(path.relative_to(places.ROOT)) for path in sorted((places.EXAMPLES / "site").rglob("*.md"))),
]
NUMBER = "(?:[0-9][0-9.,]*|two|three|four|five|six|seven|eight|nine|ten|a quarter|half)"
UNITS = "ms|us|images/s|images a second|images per second|of ideal|native threads|threads|minutes"
FIGURE = re.compile(
    rf"\b{NUMBER}(?: (?:to|or|and) {NUMBER})? (?:{UNITS})\b|\b(?:above|about|more than) {NUMBER} cores\b"
)


@functools.cache
def site_figures():
    """Functions of examples/site/figures.py."""
    return runpy.run_path(str(places.EXAMPLES / "site" / "figures.py"))


def cell(title: str, row: str, column: str) -> str:
    """A cell of the table with this column below a heading of RESULTS.md."""
    return site_figures()["read_cell"](site_figures()["read_table"](title, column), row, column)


def cores(row: str, column: str) -> str:
    return cell("Many cores, simulated", row, column).split(" (")[0]


def phrases() -> dict[str, list[str]]:
    """The phrases with figures that each document has."""
    efficiencies = {row[0]: row[2] for row in site_figures()["read_table"]("Many cores, simulated", "cores")[1:]}
    well_used = max(
        int(n) for n, efficiency in efficiencies.items() if n.isdigit() and float(efficiency.split()[0]) > 0.9
    )
    words = dict(enumerate("zero one two three four five six seven eight nine ten".split()))
    ideal = f"{min(float(cores('32', 'efficiency')), 1.0):.1f} of ideal on 32 cores"
    install, tests = (
        cell("Installation and tests", row, "minutes") for row in ("the first command", "the second command")
    )
    images = re.findall(
        r"[\d,]+",
        cell("Images per second", "`train`: random crop to 224x224, mirror, normalise; 4 threads", "second, H100"),
    )[0]
    host = {
        devices: sorted(
            cell("The host's part, on CPU devices that play GPUs", "random crop, resize, normalise", devices).split(
                ", "
            )
        )
        for devices in ("one GPU", "eight GPUs")
    }
    many, max_dispatched = executor.MANY_THREADS, executor.max_dispatched_on_cpu(10**6)
    fewest = words[executor.max_dispatched_on_cpu(1)]
    warm = {n: cell("Many cores, simulated", n, "with 3.3 us an image (`--serial 3.3`)") for n in ("64", "128")}
    free = {n: cores(n, "without it") for n in ("64", "128")}
    return {
        "README.md": [
            f"about {install} minutes on two cores",
            f"about {tests} minutes",
            f"above {well_used} cores",
            f"simulated: {ideal}",
            f"one H100: up to {images} images/s",
        ],
        "jaxdali/README.md": [
            "two or three threads",
            "Each iterator has two threads, *produce* and *check*. A third one, *read*",
            f"at least {many} native threads",
            "Two batches are dispatched and unfinished at most; "
            f"on the CPU {fewest} to {words[max_dispatched]}, one more for every {many} native threads.",
        ],
        "jaxdali/plugin/README.md": [
            f"With eight GPUs the host takes {host['eight GPUs'][0]} us of CPU time for each image of ImageNet training, "
            f"with one GPU {' to '.join(host['one GPU'])}",
            f"up to {images} images a second in batches of 256",
            f"about {well_used} cores",
            f"reaches {ideal}, {cores('64', 'efficiency')} on 64 and {cores('128', 'efficiency')} on 128; "
            f"if the caches stay warm, {warm['64']} on 64 and {warm['128']} on 128.",
            f"it is {free['64']} on 64 and {free['128']} on 128",
            f"one process makes {cores('128', 'images/s')} images a second on 128 cores, "
            f"four processes of 32 make {cores('128, four processes of 32', 'images/s')}",
        ],
        "examples/site/guides/several_hosts.md": [f"more than {well_used} cores", f"about {well_used} cores"],
        "examples/site/guides/speed.md": [f"Above {well_used} cores"],
        "examples/site/index.md": ["Two or three threads"],
        # The second one is how RESULTS.md says it was measured.
        "examples/site/performance.md": [f"about {well_used} cores", "two threads"],
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_figures_equal_results(document):
    text = (places.ROOT / document).read_text()
    text = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = " ".join(text.split())
    for phrase in phrases().get(document, []):
        assert phrase in text, f"{document}: {RESULTS} or the code says {phrase!r}"
        text = text.replace(phrase, "")
    assert not FIGURE.findall(text)
