"""Pictures of pipelines and iterators, and tables of statistics, as notebooks show them."""

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
    """Returns the lines of text of each box, and the number of arrows. Checks that texts are in boxes, and boxes apart."""
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    lines_by_box = [
        (tuple(float(r.get(k)) for k in ("x", "y", "width", "height")), []) for r in root.iter(f"{space}rect")
    ]
    for element in root.iter(f"{space}text"):
        x, y = float(element.get("x")), float(element.get("y"))
        (lines_of_box,) = [
            lines for (left, top, w, h), lines in lines_by_box if left <= x <= left + w and top <= y <= top + h
        ]
        lines_of_box.append(element.text)
    for i, ((x, y, w, h), _) in enumerate(lines_by_box):
        assert 0 <= x
        assert x + w <= float(root.get("width"))
        assert y + h <= float(root.get("height"))
        for (x2, y2, w2, h2), _ in lines_by_box[:i]:  # no box covers another
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    return [lines for _, lines in lines_by_box], len([*root.iter(f"{space}path")])


def test_fused_steps_are_one_box():
    lines_by_fuse = {}
    for fuse in (True, False):
        pipeline = pipeline_def(definition)(batch_size=4, num_threads=1, fuse=fuse)
        assert pipeline._repr_html_() is None  # displaying a pipeline does not build it
        box_lines, arrows = boxes(pipeline.show().svg)
        lines_by_fuse[fuse] = [lines for lines in box_lines if "crop_mirror_normalize" in lines]
        assert ['readers.file "reader <1>"', "on the host"] in [lines[:2] for lines in box_lines]
        assert ["output 0", "float32[4, 3, 32, 32]"] in box_lines
        assert ["output 1", "int32[4, 1]"] in box_lines
        assert arrows >= len(box_lines) - 2
        assert "<svg" in pipeline._repr_html_()
        pipeline.close()
    (fused_lines,), (unfused_lines,) = lines_by_fuse[True], lines_by_fuse[False]
    assert fused_lines[-1].startswith("fused, in the program")
    assert fused_lines.index("resize") < fused_lines.index("crop_mirror_normalize")
    assert any("decoders.image" in line for line in fused_lines)
    assert unfused_lines == ["crop_mirror_normalize", fused_lines[-1].removeprefix("fused, ")]


def test_boxes_show_times_of_the_meter(tmp_path):
    pipeline = pipeline_def(definition)(batch_size=4, num_threads=1, enable_statistics=True)
    pipeline.run()
    pipeline.show().save(tmp_path / "graph.svg")
    box_lines, _ = boxes((tmp_path / "graph.svg").read_text())
    (reader,) = [lines for lines in box_lines if lines[0].startswith("readers.file")]
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
        box_lines, _ = boxes(re.search(r"<svg.*</svg>", page, re.S)[0])
        assert [lines[0] for lines in box_lines[-3:]] == ["images", "labels", "u"]
        table = iterator.statistics()._repr_html_()
        assert table.count("<tr>") == len(iterator.statistics()) + 1
        assert "reader &lt;1&gt;" in table
    assert iterator._repr_html_() is None


def test_a_debugged_pipeline_has_no_graph():
    pipeline = pipeline_def(definition)(batch_size=4, num_threads=1, debug=True)
    with pytest.raises(RuntimeError, match="debug=True"):
        pipeline.show()
