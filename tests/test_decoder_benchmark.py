"""jaxdali.benchmark --decoders: its measurements, sentences and drawings. No test depends on the speed of the machine."""

import html
import io
import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import places
import pytest
from PIL import Image

from jaxdali.benchmark import _comparison, _decoders, _page
from jaxdali.benchmark.__main__ import _arguments, main


def photo(size=(40, 30)):
    with Image.open(sorted(places.PHOTOS.glob("*/*_0.jpg"))[0]) as image:
        return image.convert("RGB").resize(size)


def saved(image, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return str(path)


@pytest.fixture
def folder(tmp_path):
    """Files of several formats, one that ends early, and one that is no image."""
    folder = tmp_path / "photos"
    for k in range(2):
        saved(photo(), folder / f"{k}.jpg", quality=75)
    saved(photo(), folder / "deep" / "best.JPG", quality=95)
    saved(photo((400, 300)), folder / "deep" / "progressive.jpg", quality=95, progressive=True)
    saved(photo(), folder / "a.png")
    saved(photo().convert("L"), folder / "gray.png")
    saved(photo(), folder / "lossless.webp", lossless=True)
    saved(photo(), folder / "lossy.webp", quality=60)
    png = io.BytesIO()
    photo((200, 150)).save(png, "PNG")
    (folder / "short.png").write_bytes(png.getvalue()[:9000])
    (folder / "text.jpg").write_text("no image")
    return folder


def test_files_by_format_size_and_quality(folder, tmp_path, capsys):
    path = tmp_path / "report.html"
    assert main(["--decoders", str(folder), "--rounds", "1", "--html", str(path)]) == 0
    out = capsys.readouterr().out
    headings = re.findall(r"^(.*): (\d+) files? of \d+ KB on average$", out, re.MULTILINE)
    assert headings == [
        ("JPEG, below 0.1 megapixels, quality 70 to 80", "2"),
        ("JPEG, below 0.1 megapixels, quality 90 and more", "1"),
        ("JPEG progressive, 0.1 to 0.5 megapixels, quality 90 and more", "1"),
        ("PNG, below 0.1 megapixels", "2"),
        ("PNG gray, below 0.1 megapixels", "1"),
        ("WebP lossless, below 0.1 megapixels", "1"),
        ("WebP lossy, below 0.1 megapixels", "1"),
    ]
    for block in out.split(" on average\n")[1:]:  # each has jaxdali's decoder and Pillow, with equal pixels
        rows = {
            line.split()[0]: line.split()[2:]
            for line in block.splitlines()
            if re.match(r"(jaxdali|Pillow)\S* \S+ +#", line)
        }
        assert set(rows) == {"jaxdali", "Pillow"}
        assert rows["Pillow"][3:5] == ["1.00", "0.00"]
        assert float(rows["jaxdali"][4]) < 0.01
    assert re.search(rf"jaxdali \S+ does not decode 1 file: {folder}/short.png \(.*truncated", out)
    assert f"Not measured: 1 file: {folder}/text.jpg (not an image that Pillow knows)" in out
    page = html.unescape(path.read_text())
    assert re.findall(r"<h2>(.*): (\d+) files? of \d+ KB on average</h2>", page) == headings
    assert {page.count(x) for x in ("<table>", "<svg", 'fill="#2a6fbb"')} == {len(headings)}
    assert f"<p>Not measured: 1 file: {folder}/text.jpg (not an image that Pillow knows)</p>" in page


def test_files_are_evenly_spaced(tmp_path, capsys):
    for k in range(10):
        saved(photo((8 + k, 8)), tmp_path / f"{k}.png")
    measured_paths = []
    classify_files = _decoders.classify_files
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            _decoders, "classify_files", lambda paths: (measured_paths.extend(paths), classify_files(paths))[1]
        )
        assert main(["--decoders", str(tmp_path), "--rounds", "1", "--files", "3"]) == 0
    assert measured_paths == [str(tmp_path / f"{k}.png") for k in (0, 3, 6)]
    assert "3 of 10 images" in capsys.readouterr().out


def test_quality_of_written_files(tmp_path):
    """All qualities with distinct tables are recognised. Below 3, most of libjpeg's values are limited to 255."""
    for quality in range(3, 101):
        file = io.BytesIO()
        photo((8, 8)).save(file, "JPEG", quality=quality)
        with Image.open(file) as image:
            assert _decoders.jpeg_quality(image) == quality


def test_decoders_are_compared(tmp_path):
    """Different pixels are counted, another size is a failure, and a decoder gets only files of its formats."""
    paths = [
        saved(photo(), tmp_path / "a.jpg"),
        saved(photo((50, 20)), tmp_path / "b.jpg"),
        saved(photo(), tmp_path / "c.png"),
    ]
    files, bad = _decoders.classify_files(paths)
    assert not bad
    beginnings = []

    def pillow(data):
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

    def only_jpeg(data):
        beginnings.append(data[:2])
        return pillow(data)

    decoders = [
        _decoders.LibraryDecoder("Pillow 1", pillow),
        _decoders.LibraryDecoder(
            "brighter", lambda data: np.clip(pillow(data).astype(int) + 1, 0, 255).astype(np.uint8)
        ),
        _decoders.LibraryDecoder("smaller", lambda data: pillow(data)[1:] if data[:2] == b"\xff\xd8" else pillow(data)),
        _decoders.LibraryDecoder("JPEG alone", only_jpeg, frozenset({"JPEG"})),
    ]
    ticks = []
    groups, failed = _decoders.compare(files, decoders, 2, ticks.append)
    assert sum(ticks) == 3 * 3
    assert set(beginnings) == {b"\xff\xd8"}
    assert [(str(g.category), len(g.files), sorted((r.decoder, r.decoded) for r in g.results)) for g in groups] == [
        ("JPEG, below 0.1 megapixels, quality 70 to 80", 2, [("JPEG alone", 2), ("Pillow 1", 2), ("brighter", 2)]),
        ("PNG, below 0.1 megapixels", 1, [("Pillow 1", 1), ("brighter", 1), ("smaller", 1)]),
    ]
    assert failed == {
        "Pillow 1": {}, "brighter": {}, "JPEG alone": {},
        "smaller": {paths[0]: "it gives uint8[29, 40, 3]", paths[1]: "it gives uint8[19, 50, 3]"},
    }  # fmt: skip
    results = {r.decoder: r for r in groups[0].results}
    assert 0.9 < results["brighter"].difference <= 1
    assert results["JPEG alone"].difference == 0
    assert results["Pillow 1"].speed == 1
    lines = list(_comparison.notes(failed, {}, {}, ["OpenCV"]))
    assert lines[1:] == [
        f"smaller does not decode 2 files: {paths[0]} (it gives uint8[29, 40, 3]), {paths[1]} (it gives uint8[19, 50, 3])",
        "Not installed: OpenCV",
    ]


def test_broken_libraries_are_named(monkeypatch, tmp_path, capsys):
    def broken(module):
        raise OSError("libx.so is missing\nand more")

    monkeypatch.setattr(
        _decoders, "_LIBRARIES", (("Broken", "json", broken), ("Absent", "no_such_module_at_all", broken))
    )
    saved(photo(), tmp_path / "a.jpg")
    assert main(["--decoders", str(tmp_path), "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert "Broken is installed but can't be used: libx.so is missing\n" in out
    assert "Not installed: Absent\n" in out


@pytest.mark.parametrize(("name", "module"), [(name, module) for name, module, _ in _decoders._LIBRARIES])
def test_the_pixels_of_each_library(name, module, tmp_path):
    """The installed libraries decode all their formats. Gray files become RGB."""
    with _decoders.installed() as (decoders, unusable):
        matching = [d for d in decoders if d.name.startswith(f"{name} ")]
        if not matching:
            pytest.skip(f"{name} is not installed" if name not in unusable else f"{name}: {unusable[name]}")
        pillow = next(d for d in decoders if d.name.startswith("Pillow "))
        for mode, suffix in (
            ("RGB", "jpg"),
            ("L", "jpg"),
            ("RGB", "png"),
            ("L", "png"),
            ("RGBA", "png"),
            ("P", "png"),
            ("RGB", "webp"),
        ):
            (file,), _ = _decoders.classify_files([saved(photo().convert(mode), tmp_path / f"{mode}.{suffix}")])
            if _decoders._accepts(matching[0], file):
                with open(file.path, "rb") as f:
                    data = f.read()
                pixels, expected = matching[0].decode(data), pillow.decode(data)
                assert pixels.shape == expected.shape, file.path
                assert np.abs(pixels.astype(int) - expected).mean() < 1, file.path


def test_bars_of_decoders():
    """The bars are in proportion, and jaxdali's is blue. Names are escaped."""
    results = [
        _decoders.DecoderResult("jaxdali 1", 0.001, 300.0, 3.0, 0.0, 4),
        _decoders.DecoderResult("a <b> & c", 0.002, 150.0, 1.5, math.nan, 4),
    ]
    root = ElementTree.fromstring(_page.decoder_plot(results))
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["megapixels/s in one thread", "jaxdali 1", "300", "a <b> & c", "150"]
    first, second = root.iter("{http://www.w3.org/2000/svg}rect")
    assert float(first.get("width", 0)) == 2 * float(second.get("width", 0))
    assert [first.get("fill"), second.get("fill")] == ["#2a6fbb", "#9aa5b1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decoders", ".", "--threads", "2"], "--decoders takes no --threads"),
        (["--decoders", ".", "--batch-sizes", "2"], "--decoders takes no --batch-sizes"),
        (["--decoders", ".", "--pipeline", "a:b"], "--decoders takes no --pipeline"),
        (["--decoders", ".", "--step-ms", "0"], "--decoders takes no --step-ms"),
        ([".", "--files", "3"], "without --decoders there is no --files"),
        (["--decoders", ".", "--files", "0"], "--files must be positive"),
    ],
)
def test_arguments_are_refused_by_name(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert re.search(message, capsys.readouterr().err)


def test_nothing_to_measure(tmp_path, capsys):
    (tmp_path / "a.jpg").write_text("no image")
    assert main(["--decoders", str(tmp_path)]) == 2
    assert "no image can be read" in capsys.readouterr().err
    assert main(["--decoders", str(tmp_path / "b")]) == 2
    assert "is not there" in capsys.readouterr().err


def test_defaults():
    decoders, pipelines = _arguments(["--decoders", "."])[1], _arguments(["."])[1]
    assert (decoders.rounds, decoders.files, decoders.html) == (5, 200, None)
    assert (pipelines.rounds, pipelines.seconds, pipelines.step_ms, pipelines.batch_sizes) == (
        2,
        2.0,
        0.0,
        [16, 64, 256],
    )
