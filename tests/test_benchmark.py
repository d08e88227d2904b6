"""jaxdali.benchmark: its measurements, sentences and drawings. No test depends on the speed of the machine."""

import collections
import html.parser
import re
import shutil

import places
import pytest

from jaxdali._batch.meter import Measured
from jaxdali._core.system import available_cpus
from jaxdali.benchmark import _measure, _page, _report
from jaxdali.benchmark.__main__ import main
from jaxdali.benchmark._definitions import find_images, imagenet_train, of_user

pytestmark = pytest.mark.filterwarnings("ignore:.*gave no data for epoch")  # the benchmark says so itself


@pytest.fixture(autouse=True)
def no_other_work(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))


QUICK = ["--seconds", "0.01", "--rounds", "1", "--threads", "1,2", "--batch-sizes", "2,3"]


def make_run(num_threads=1, batch_size=4, speed=100.0, waited=0.9, rows=(), longest=1.0, batches=2):
    return _measure.Run(num_threads, batch_size, speed, 0.001, 1.0, waited, longest, rows, batches, ())


def test_a_folder_of_any_depth(tmp_path, capsys, monkeypatch):
    """Images are found in folders of any depth. Files that can't be decoded are named."""
    monkeypatch.setattr(_report, "_MIN_SHARE", 0.0)  # on a busy machine an operator's share of two images can be tiny
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    photos = sorted(places.PHOTOS.glob("*/*_0.jpg"))[:3]
    shutil.copy(photos[0], tmp_path / "x.JPG")
    shutil.copy(photos[1], deep / "y.jpeg")
    (tmp_path / "notes.txt").write_text("no image")
    assert find_images(tmp_path) == [str(tmp_path / "x.JPG"), str(deep / "y.jpeg")]
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nno more")
    assert main([str(tmp_path), *QUICK]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert [r[:2] for r in rows[rows.index(["num_threads", "batch_size", "images/s", "CPU", "ms/image", "busy", "cores"]) + 2 :][:3]] == [
        ["1", "3"], ["2", "3"], [rows[-2][1].removeprefix("num_threads=").rstrip(","), "2"],
    ]  # fmt: skip
    assert {("read", "reader"), ("program", "resize"), ("program", "decoders.image_random_crop")} <= {
        tuple(r[:2]) for r in rows
    }
    assert rows[-1] == ["Not", "decoded:", "1", "files,", str(tmp_path / "broken.png")]


class Page(html.parser.HTMLParser):
    """A parsed page: its texts, tables, numbers of elements in drawings, and external resources."""

    def __init__(self, text):
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.drawings: list[collections.Counter[str]] = []
        self.external_resources: list[str] = []
        self.texts: list[str] = []
        self.open_tags: list[str] = []
        self.feed(text)
        assert not self.open_tags

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open_tags.append(tag)
        self.external_resources += [
            v for k, v in attrs if k in ("src", "href", "data") or tag in ("script", "link", "iframe")
        ]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag == "svg":
            self.drawings.append(collections.Counter())
        elif "svg" in self.open_tags:
            self.drawings[-1][tag] += 1

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        if self.open_tags and self.open_tags[-1] in ("td", "th"):
            self.tables[-1][-1].append(data)
        self.texts.append(data.strip())


def test_the_report_is_one_page(tmp_path, capsys, monkeypatch):
    """The page has the tables and sentences that are printed, and plots of them. It needs no other file."""
    monkeypatch.setattr(_report, "_MIN_SHARE", 0.0)
    folder = tmp_path / "<photos> & more"
    folder.mkdir()
    shutil.copy(min(places.PHOTOS.glob("*/*_0.jpg")), folder)
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nno more")
    path = tmp_path / "report.html"
    assert main([str(folder), *QUICK, "--html", str(path)]) == 0
    out = capsys.readouterr().out
    page = Page(path.read_text())
    assert not page.external_resources
    assert "http" not in path.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
    printed = [re.split(r"  +", line.strip()) for line in out.splitlines()]
    speeds, costs = page.tables
    assert [len(speeds), speeds[0][0]] == [4, "num_threads"]
    assert all(row in printed for row in [*speeds, *costs])
    for line in out.splitlines():
        if line.startswith(("Bound by", "What helps", "Recommended", "Not decoded", str(folder))):
            assert line in page.texts
    by_threads, by_batch, of_a_batch = page.drawings
    assert (by_threads["circle"], by_batch["circle"], of_a_batch["rect"]) == (2, 2, len(costs) - 1)


def test_a_plot_shows_all_points():
    """Both plots of throughput have one axis, which begins at 0 and has room for the best point of either."""
    by_threads = [make_run(1, speed=100.0), make_run(2, speed=150.0)]
    by_batch = [make_run(2, 4, 150.0), make_run(2, 8, 900.0)]
    costs = [_measure.Cost("read", "reader", 0.1, "storage")]
    drawings = _page.pipeline_plots(by_threads, by_batch, by_batch[1], costs).split("</svg>")
    for drawing in drawings[:2]:
        assert re.findall(r'text-anchor="end">(\d+)</text>', drawing) == ["0", "200", "400", "600", "800", "1000"]
        grid = [float(y) for y in re.findall(r'<line .*y1="([\d.]+)"', drawing)]
        points = [float(y) for y in re.findall(r'<circle .*cy="([\d.]+)"', drawing)]
        assert len(points) == 2
        assert min(grid) < min(points) < max(points) < max(grid)


def test_a_pipeline_of_ones_own(tmp_path, capsys):
    """A decorated definition that gets the folder, and a plain function with a source that ends."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom jaxdali import fn, pipeline_def\n"
        "@pipeline_def(seed=1)\n"
        "def small(folder):\n"
        "    return fn.resize(fn.decoders.image(fn.readers.file(file_root=folder)[0]), size=(8, 8), name='shrink')\n"
        "def numbers():\n"
        "    return fn.cast(fn.external_source([np.zeros((3, 2), np.uint8)] * 4), dtype=np.float32)\n"
    )
    assert main([str(places.PHOTOS), *QUICK, "--pipeline", f"{tmp_path / 'mine.py'}:small"]) == 0
    out = capsys.readouterr().out
    assert f"pipeline: {tmp_path / 'mine.py'}:small" in out
    assert "Recommended: num_threads=" in out
    run = _measure.measure(of_user(f"{tmp_path / 'mine.py'}:numbers", "unused"), 1, 3, 0.01, 0.0, lambda n: None)
    assert run.batches == 1  # of four batches, three are for warming up
    assert {m.stage for m in run.rows} >= {"read", "host", "wait"}


def test_the_consumer_works_from_the_first_batch(monkeypatch):
    """The consumer sleeps in warm-up, too, so batches are ahead when the measurement begins, as in a long run."""
    sleeps = []
    monkeypatch.setattr(_measure.time, "sleep", sleeps.append)
    make = imagenet_train([str(f) for f in sorted(places.PHOTOS.glob("*/*.jpg"))[:4]])
    run = _measure.measure(make, 1, 2, 0.01, 0.25, lambda n: None)
    assert sleeps.count(0.25) == 3 + run.batches


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not there"),
        (["file.txt"], "file.txt is no folder"),
        (["empty"], r"empty: no images \(\.bmp .*\); it has no files"),
        (["texts"], r"texts: no images .*; it has files, 2 with \.txt, 1 with no suffix"),
        ([".", "--pipeline", "define"], "must be MODULE:FUNCTION"),
        ([".", "--pipeline", "no_such_module_at_all:f"], "can't import no_such_module_at_all: ModuleNotFoundError"),
        ([".", "--pipeline", "bad.py:f"], r"can't import bad\.py: SyntaxError"),
        ([".", "--pipeline", "mine.py:absent"], r"mine\.py has no function 'absent'"),
        ([".", "--pipeline", "mine.py:two"], "one parameter without a default, .* got a, b"),
        ([".", "--pipeline", "mine.py:nothing"], "external_source: there are no data"),
        ([".", "--pipeline", "mine.py:few"], "too few batches of 3"),
        ([".", "--pipeline", "mine.py:wrong"], r"resize.*size"),
    ],
)
def test_errors_name_the_mistake(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "texts"):
        (tmp_path / name).mkdir()
    for name in ("file.txt", "texts/a.txt", "texts/b.txt", "texts/c"):
        (tmp_path / name).write_text("")
    (tmp_path / "bad.py").write_text("def f(:\n")
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom jaxdali import fn\ndef two(a, b): pass\ndef nothing(): return fn.external_source([])\n"
        "def few(): return fn.external_source([np.zeros((2, 3))])\n"
        "def wrong(): return fn.resize(fn.external_source([[0]]), size='large')\n"
    )
    assert main([*arguments, *QUICK]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error


def test_costs_of_a_batch():
    """The meter measured two batches. Times of the profile, inside the program, are cut to the program's time."""
    rows = [
        Measured("read", "files", 0.2, 2),
        Measured("host", "__decoders.image_1", 0.02, 2),
        Measured("setup", "__resize_3", 0.01, 2),
        Measured("launch", "0: decoders.image resize", 1.0, 2),
        Measured("check", "0: decoders.image resize", 0.2, 2),
        Measured("wait", "user", 5.0, 2),
    ]
    costs = _measure.costs(make_run(rows=rows), {"decoders.image": 0.3, "resize": 0.1})
    assert [(c.stage, c.operator, round(c.seconds, 9), c.kind) for c in costs] == [
        ("program", "decoders.image", 0.3, "decode"),
        ("launch", "dispatch", 0.2, "Python"),
        ("read", "files", 0.1, "storage"),
        ("program", "resize", 0.1, "operator"),
        ("host", "decoders.image", 0.01, "decode"),
        ("setup", "resize", 0.005, "Python"),
    ]
    assert [c.seconds for c in _measure.costs(make_run(rows=rows[3:4]), {"resize": 2.0})] == [0.5, 0.0]
    assert [(c.operator, c.kind) for c in _measure.costs(make_run(rows=rows[3:4]), {})] == [("programs", "operator")]


@pytest.mark.parametrize(
    ("costs", "waited", "bound"),
    [
        ([("read", "r", 3.0, "storage"), ("program", "resize", 1.0, "operator")], 0.9, ("storage", "", 0.75)),
        ([("program", "decoders.image", 2.0, "decode"), ("host", "decoders.image", 1.0, "decode"), ("program", "x", 1.0, "operator")],
         0.9, ("decode", "", 0.75)),
        ([("program", "rotate", 3.0, "operator"), ("program", "resize", 1.0, "operator")], 0.9, ("operator", "rotate", 0.75)),
        ([("setup", "a", 2.0, "Python"), ("launch", "dispatch", 1.0, "Python"), ("read", "r", 1.0, "storage")], 0.9, ("Python", "", 0.75)),
        ([("read", "r", 3.0, "storage")], 0.01, ("consumer", "", 0.99)),
    ],
)  # fmt: skip
def test_bound_of_a_pipeline(costs, waited, bound):
    actual = _measure.bound_of(make_run(waited=waited), [_measure.Cost(*c) for c in costs])
    assert actual == _measure.Bound(*bound)
    assert next(_report.verdict(make_run(), [_measure.Cost(*c) for c in costs], actual, 2)).startswith("Bound by: ")


def test_a_busy_machine(tmp_path, capsys, monkeypatch):
    shutil.copy(min(places.PHOTOS.glob("*/*_0.jpg")), tmp_path)
    for load, advised in ((available_cpus() * 9.0, False), (0.0, True)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert main([str(tmp_path), *QUICK]) == 0
        out = capsys.readouterr().out
        assert ("The machine has other work" in out) == ("measure again" in out) == (not advised)
        assert ("What helps: " in out) == ("Recommended: " in out) == advised
        assert "Bound by: " in out


def test_recommended_settings():
    """The fewest threads within 5 % of the fastest run, and a depth that hides the longest batch."""
    runs = [
        make_run(1, speed=50),
        make_run(2, speed=96),
        make_run(4, speed=100),
        make_run(2, batch_size=2, speed=95),
        make_run(8, speed=99),
    ]
    assert _measure.recommended(runs) is runs[3]
    assert [_measure.recommended_depth(make_run(longest=x)) for x in (1.0, 2.4, 3.9, 50.0)] == [2, 2, 4, 8]


def test_tables_are_aligned():
    """Costs below a hundredth of a batch's time are summed up in one row."""
    costs = [_measure.Cost("host", "x", 0.3, "operator"), _measure.Cost("read", "reader", 0.0985, "storage")]
    costs += [_measure.Cost("setup", f"x{i}", 0.0005, "Python") for i in range(3)]
    _, rows = _report.where_time_goes(make_run(batch_size=8), costs)
    assert list(_report.table(rows, 2)) == [
        "stage  operator  ms/batch  us/image  share",
        "-----  --------  --------  --------  -----",
        "host   x           300.00     37500    75%",
        "read   reader       98.50     12312    25%",
        "       3 more        1.50       188     0%",
    ]
    *_, last = _report.table(_report.speeds([make_run(16, 256, 12345.6)]), 0)
    assert last == "         16         256     12346          1.00         1.0"


@pytest.mark.parametrize(("decoder", "advised"), [("decoders.image", True), ("decoders.image_random_crop", False)])
def test_advice_fits_the_decoder(decoder, advised):
    costs = [_measure.Cost("program", decoder, 1.0, "decode")]
    lines = list(_report.verdict(make_run(), costs, _measure.Bound("decode", "", 1.0), 2))
    assert ("decoders.image_random_crop" in lines[1]) is advised
