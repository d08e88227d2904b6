"""readers.coco: annotations that are damaged, older arguments and forms; the rest is among tests/reader_cases.py."""

import json
import os
import sys
from typing import Any

import numpy as np
import pytest
import reader_cases
from damaged import labels

from jaxdali import fn, pipeline_def


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers")
    reader_cases.prepare(folder)
    return folder


def test_other_annotations_are_refused(folder, tmp_path):
    def read_of(**arguments):
        return lambda: fn.readers.coco(file_root=folder / "images", **arguments)[0]

    for text, message in (
        ("{", "x does not have the form of COCO's annotations: JSONDecodeError"),
        ("{}", "KeyError: 'images'"),
        ('{"images": [{"id": 1, "file_name": "a", "width": 1, "height": 1}], "annotations": [{"bbox": 3}]}', "TypeError"),
        ('{"images": [{"id": 1, "file_name": "a", "width": 1, "height": 1}], "annotations": '
         '[{"bbox": [0, 0, 1, 1], "image_id": 1, "category_id": 9}]}', "annotation 0 is of category 9, which is not among the categories"),
        ('{"images": []}', "no image is left"),
    ):  # fmt: skip
        (tmp_path / "x").write_text(text)
        with pytest.raises(RuntimeError, match=message):
            labels(read_of(annotations_file=tmp_path / "x"))
    with pytest.raises(RuntimeError, match=r"can't read annotations_file .*none: No such file"):
        labels(read_of(annotations_file=tmp_path / "none"))
    with pytest.raises(ValueError, match="one of annotations_file and preprocessed_annotations"):
        labels(read_of())
    with pytest.raises(ValueError, match="ratio can't be used with preprocessed_annotations"):
        labels(read_of(preprocessed_annotations=tmp_path, ratio=True))
    (tmp_path / "filenames.dat").write_text("a.jpg\n")
    (tmp_path / "boxes.dat").write_bytes(b"\x08\0\0\0")
    with pytest.raises(RuntimeError, match=r"boxes.dat has 4 bytes, which differs from what it declares"):
        labels(read_of(preprocessed_annotations=tmp_path))


def test_the_older_form_of_polygons(folder):
    @pipeline_def(batch_size=4)
    def pipeline(old):
        name = "masks" if old else "polygon_masks"
        return fn.readers.coco(file_root=folder / "images", annotations_file=folder / "coco.json", **{name: True})[3]

    (old,), (new,) = pipeline(True).run(), pipeline(False).run()
    assert [(np.asarray(new[i]) * [1, 2, 2]).tolist() for i in range(4)] == [
        np.asarray(old[i]).tolist() for i in range(4)
    ]


def test_deprecated_arguments_of_coco(folder, tmp_path):
    def read_of(**arguments):
        return lambda: fn.readers.coco(file_root=folder / "images", **arguments)[-1]

    file = {"annotations_file": folder / "coco.json"}
    with pytest.warns(UserWarning, match="save_img_ids is deprecated: it is image_ids now"):
        assert labels(read_of(**file, save_img_ids=True, images=[]), 4)[0] == [[3], [5], [7], [9]]
    with pytest.warns(
        UserWarning, match=r"dump_meta_files(_path)? is deprecated: it is save_preprocessed_annotations(_dir)? now"
    ):
        expected = labels(read_of(**file, dump_meta_files=True, dump_meta_files_path=tmp_path), 4)[0]
    with pytest.warns(UserWarning, match="meta_files_path is deprecated: it is preprocessed_annotations now"):
        assert labels(read_of(meta_files_path=tmp_path), 4)[0] == expected
    with pytest.raises(ValueError, match="save_img_ids is the deprecated name of image_ids: pass one of them"):
        labels(read_of(**file, save_img_ids=True, image_ids=True))


def test_masks_without_pixels_are_errors(folder, tmp_path, monkeypatch):
    def read_of(**arguments):
        return lambda: fn.readers.coco(file_root=folder / "images", pixelwise_masks=True, **arguments)[3]

    with pytest.raises(ValueError, match=r"polygon_masks, pixelwise_masks and masks .* can't be given together"):
        labels(read_of(annotations_file=folder / "coco.json", polygon_masks=True))
    with pytest.raises(ValueError, match="pixelwise_masks can't be used with preprocessed_annotations"):
        labels(read_of(preprocessed_annotations=tmp_path))
    document = json.loads((folder / "coco.json").read_text())
    document["annotations"][1]["segmentation"]["size"] = [8, 6]
    (tmp_path / "x.json").write_text(json.dumps(document))
    classes, errors, _ = labels(read_of(annotations_file=tmp_path / "x.json"), 2)
    assert classes == [None, [0] * 16]
    assert r"its masks are for images of size [8, 6], not [6, 8]" in errors[0]
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    with pytest.raises(ImportError, match=r'pixelwise_masks .*pip install "jaxdali\[coco\]"'):
        labels(read_of(annotations_file=folder / "coco.json"))


def test_far_vertices_of_masks_are_errors(folder, tmp_path):
    mask = pytest.importorskip("pycocotools.mask")

    def outputs_of(outline):
        annotation = {"id": 0, "image_id": 0, "category_id": 1, "bbox": [1, 1, 3, 3], "segmentation": [outline]}
        document = {
            "images": [{"id": 0, "file_name": "b.jpg", "width": 10, "height": 8}],
            "categories": [{"id": 1}],
            "annotations": [annotation],
        }
        (tmp_path / "far.json").write_text(json.dumps(document))
        return labels(
            lambda: fn.readers.coco(
                file_root=folder / "images", annotations_file=tmp_path / "far.json", pixelwise_masks=True
            )[3]
        )

    for outline in ([1, 1, 3, -5000, 30000, 30], [1, 1, 3, 1e5, 3, 3], [-9000, -9000, 9000, 0, 0, 9000]):
        expected = mask.decode(mask.merge(mask.frPyObjects([outline], 8, 10)))
        (classes,), _, _ = outputs_of(outline)
        assert any(classes)
        assert classes == expected.ravel().tolist()
    # For these pycocotools takes gigabytes, and does not check whether it gets them.
    for outline in (
        [1, 1, 3, 1, 3, float("nan")],
        [1, 1, float("inf"), 1, 3, float("-inf")],
        [1, 1, 3, 1, 3, -1e8],
        [1e9, 1e9] * 3,
        [0, 0, 1e5, 1] * 50,
    ):
        _, errors, _ = outputs_of(outline)
        assert "the outlines of its masks are" in errors[0], outline


def test_both_parsers_read_the_same(folder, tmp_path, monkeypatch):
    pytest.importorskip("msgspec")
    document = json.loads((folder / "coco.json").read_text())
    document["annotations"][0]["iscrowd"] = True

    def read() -> list[list[Any]]:
        (tmp_path / "x.json").write_text(json.dumps(document | {"licenses": [{"id": None}]}))
        return batch()

    def batch() -> list[list[Any]]:
        @pipeline_def(batch_size=4, num_threads=1)
        def pipeline():
            masks = {"polygon_masks": True, "image_ids": True, "include_iscrowd": False}
            return tuple(fn.readers.coco(file_root=folder / "images", annotations_file=tmp_path / "x.json", **masks))

        return [[np.asarray(x).tolist() for x in output] for output in pipeline().run()]

    with monkeypatch.context() as without:
        without.setattr("jaxdali.fn.readers._annotations.json", None)
        fast = read()
        with_mark = "\ufeff" + (tmp_path / "x.json").read_text()
        (tmp_path / "x.json").write_text(with_mark)
        assert batch() == fast
    document["annotations"][0]["image_id"] += 0.0  # which msgspec refuses
    assert read() == fast
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert read() == fast


def test_boxes_of_another_form(folder, tmp_path):
    for box, message in (
        ([1, 2, 3], "bbox of annotation 2 has 3 numbers, not 4"),
        ([1, 2, 3, 4, 5], "has 5 numbers"),
        ([1, 2, 3, None], "bbox of annotation 2 has elements that are not numbers"),
    ):
        document = json.loads((folder / "coco.json").read_text())
        document["annotations"][2]["bbox"] = box
        (tmp_path / "x.json").write_text(json.dumps(document))
        with pytest.raises(RuntimeError, match=rf"x.json does not have the form of COCO's annotations: .*{message}"):
            labels(lambda: fn.readers.coco(file_root=folder / "images", annotations_file=tmp_path / "x.json")[0])


def test_mixed_preprocessed_annotations_are_refused(folder, tmp_path):
    def read_of(**arguments):
        return lambda: fn.readers.coco(file_root=folder / "images", **arguments)[-1]

    save = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": tmp_path, "image_ids": True}
    labels(read_of(annotations_file=folder / "coco.json", **save))
    for name in ("boxes", "original_ids"):
        content = (tmp_path / f"{name}.dat").read_bytes()
        count = int.from_bytes(content[:4], "little") - 1
        (tmp_path / f"{name}.dat").write_bytes(count.to_bytes(4, "little") + content[4:-4])
        with pytest.raises(
            RuntimeError, match=f"{name}.dat does not match the other files: they belong to different annotations"
        ):
            labels(read_of(preprocessed_annotations=tmp_path, image_ids=True))
        (tmp_path / f"{name}.dat").write_bytes(content)
    with pytest.raises(ValueError, match="size_threshold can't be used with preprocessed_annotations"):
        labels(read_of(preprocessed_annotations=tmp_path, size_threshold=2.0))


def test_preprocessed_annotations_may_be_far_away(folder, tmp_path):
    def boxes(**arguments):
        return labels(lambda: fn.readers.coco(file_root=folder / "images", polygon_masks=True, **arguments)[1])[0]

    remote = pytest.importorskip("fsspec").filesystem("memory")
    save = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": tmp_path}
    expected = boxes(annotations_file=folder / "coco.json", **save)
    for file in tmp_path.iterdir():
        remote.pipe_file(f"/annotations/{file.name}", file.read_bytes())
    assert boxes(preprocessed_annotations="memory://annotations") == expected


def test_names_in_other_encodings_are_saved(tmp_path):
    name = os.fsdecode(b"\xff\xc3\xa4.jpg")
    (tmp_path / name).write_bytes(b"image")
    document = {"images": [{"id": 1, "file_name": name, "width": 1, "height": 1}]}
    (tmp_path / "x.json").write_text(json.dumps(document))
    save = {"save_preprocessed_annotations": True, "save_preprocessed_annotations_dir": tmp_path}
    labels(lambda: fn.readers.coco(file_root=tmp_path, annotations_file=tmp_path / "x.json", **save)[0])
    assert (tmp_path / "filenames.dat").read_bytes() == b"\xff\xc3\xa4.jpg\n"
    assert labels(lambda: fn.readers.coco(file_root=tmp_path, preprocessed_annotations=tmp_path)[0])[0] == [[*b"image"]]
