"""What notebooks show of pipelines, iterators and statistics."""

import re
import xml.etree.ElementTree as ET

import places
import pytest

from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import data_iterator


def definition():
    jpegs, labels = fn.readers.file(file_root=str(places.PHOTOS), name="reader <1>")
    images = fn.crop_mirror_normalize(fn.resize(fn.decoders.image(jpegs), size=(32, 32)), mean=[1.0] * 3, std=[1.0] * 3)
    return images, labels, fn.random.uniform(range=(0.0, 1.0))


def boxes(svg):
    """The lines of text of each box, by the rectangle that they stand in; checks that they do."""
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    found = [(tuple(float(r.get(k)) for k in ("x", "y", "width", "height")), []) for r in root.iter(f"{space}rect")]
    for text in root.iter(f"{space}text"):
        x, y = float(text.get("x")), float(text.get("y"))
        (inside,) = [lines for (left, top, w, h), lines in found if left <= x <= left + w and top <= y <= top + h]
        inside.append(text.text)
    for i, ((x, y, w, h), _) in enumerate(found):
        assert 0 <= x
        assert x + w <= float(root.get("width"))
        assert y + h <= float(root.get("height"))
        for (x2, y2, w2, h2), _ in found[:i]:  # no box covers another
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    return [lines for _, lines in found], len([*root.iter(f"{space}path")])


def test_fused_steps_are_one_box():
    fused = {}
    for fuse in (True, False):
        pipeline = pipeline_def(definition)(batch_size=4, num_threads=1, fuse=fuse)
        assert pipeline._repr_html_() is None  # nothing is built for a look at it
        found, arrows = boxes(pipeline.show().svg)
        fused[fuse] = [lines for lines in found if "crop_mirror_normalize" in lines]
        assert ['readers.file "reader <1>"', "on the host"] in [lines[:2] for lines in found]
        assert ["output 0", "float32[4, 3, 32, 32]"] in found
        assert ["output 1", "int32[4, 1]"] in found
        assert arrows >= len(found) - 2
        assert "<svg" in pipeline._repr_html_()
        pipeline.close()
    (one,), (alone,) = fused[True], fused[False]
    assert one[-1].startswith("fused, in the program")
    assert one.index("resize") < one.index("crop_mirror_normalize")
    assert any("decoders.image" in line for line in one)
    assert alone == ["crop_mirror_normalize", one[-1].removeprefix("fused, ")]


def test_times_of_the_meter_stand_in_the_boxes(tmp_path):
    pipeline = pipeline_def(definition)(batch_size=4, num_threads=1, enable_statistics=True)
    pipeline.run()
    pipeline.show().save(tmp_path / "graph.svg")
    found, _ = boxes((tmp_path / "graph.svg").read_text())
    (reader,) = [lines for lines in found if lines[0].startswith("readers.file")]
    row = next(m for m in pipeline.statistics() if m.stage == "read")
    assert row.calls
    assert re.search(r"  \d+\.\d\d ms$", reader[0])
    pipeline.close()


def test_iterators_and_statistics():
    with data_iterator(definition, ["images", "labels", "u"], reader_name="reader <1>")(
        batch_size=4, num_threads=1, enable_statistics=True
    ) as iterator:
        next(iterator)
        page = iterator._repr_html_()
        assert page.startswith("<pre>DALIGenericIterator: epoch 0, 1 batches")
        found, _ = boxes(re.search(r"<svg.*</svg>", page, re.S)[0])
        assert [lines[0] for lines in found[-3:]] == ["images", "labels", "u"]
        table = iterator.statistics()._repr_html_()
        assert table.count("<tr>") == len(iterator.statistics()) + 1
        assert "reader &lt;1&gt;" in table
    assert iterator._repr_html_() is None


def test_a_debugged_pipeline_has_no_graph():
    pipeline = pipeline_def(definition)(batch_size=4, num_threads=1, debug=True)
    with pytest.raises(RuntimeError, match="debug=True"):
        pipeline.show()
