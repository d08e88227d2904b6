"""jaxdali.show: any batch of images as a picture."""

import io

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image

import jaxdali
import jaxdali.backend
from jaxdali import Pipeline, fn, pipeline_def

pytest.importorskip("matplotlib")

N = 8
RED = np.zeros((N, 20, 30, 3), np.uint8)
RED[..., 0] = 200
RED[:, :10] = 0  # black above, red below
LABELS = np.arange(N)[:, None]


def colours(picture):
    """The colours in the middle of the upper and of the lower half of each image that matplotlib draws."""
    colours_of_images = []
    for axes in picture.figure.axes:
        for image in axes.images:
            x = np.asarray(image.get_array())
            colours_of_images.append([x[len(x) // 4, 0].tolist(), x[-len(x) // 4, 0].tolist()])
    return colours_of_images


def titles(picture):
    return [a.get_title() for a in picture.figure.axes if a.images]


FORMS = {
    "uint8 HWC": RED,
    "CHW": np.moveaxis(RED, -1, 1),
    "0 .. 1": RED / np.float32(255),
    "0 .. 255": RED.astype(np.float16),
    "jax": jax.numpy.asarray(RED),
    "ragged": [RED[0, :, : 10 + i] for i in range(N)],
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    picture = jaxdali.show(FORMS[form])
    np.testing.assert_allclose(colours(picture), [[[0, 0, 0], [200 / 255, 0, 0]]] * N, atol=1e-3)
    with Image.open(io.BytesIO(picture._repr_png_())) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert {(0, 0, 0), (200, 0, 0)} <= {tuple(p) for p in np.unique(pixels, axis=0).tolist()}
    assert repr(picture).startswith("<picture of 8 images;")


def test_sharded():
    sharding = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec("batch"))
    batch = {"images": jax.device_put(RED, sharding), "labels": jax.device_put(LABELS, sharding)}
    picture = jaxdali.show(batch, classes=["zero", "one"])
    assert titles(picture) == ["zero", "one", *"234567"]
    np.testing.assert_allclose(colours(picture)[N - 1], [[0, 0, 0], [200 / 255, 0, 0]], atol=1e-6)


def test_gray_and_normalised():
    """Images with one channel or none are gray. Values outside of 0 .. 255 are scaled from the smallest to the largest."""
    gray = RED[..., :1]
    assert colours(jaxdali.show(gray)) == colours(jaxdali.show(gray[..., 0]))
    np.testing.assert_allclose(colours(jaxdali.show((gray - 100.0) / 50)), [[0, 1]] * N, atol=1e-6)
    assert colours(jaxdali.show(gray > 0)) == [[0, 1]] * N
    assert colours(jaxdali.show(np.where(gray > 0, np.nan, -1.0)))[0][0] == 0


def test_a_pipelines_batch():
    """Lists of tensors, one for each output; images of different sizes; several outputs of images are rows."""

    @pipeline_def(batch_size=N, num_threads=1)
    def pipeline():
        images = fn.external_source(source=[FORMS["ragged"]], cycle=True, layout="HWC")
        return images, images[:10], fn.external_source(source=[list(LABELS / 2)], cycle=True)

    picture = jaxdali.show(pipeline().run(), columns=3)
    assert titles(picture) == ["0", "0.5", "1", "", "", ""]
    assert [np.asarray(i.get_array()).shape for a in picture.figure.axes for i in a.images][2:4] == [
        (20, 12, 3),
        (10, 10, 3),
    ]
    assert repr(picture).startswith("<picture of 3 of 8 images of 0, 1;")


def test_labels_and_limits(tmp_path):
    picture = jaxdali.show(RED, labels=list("abcdefgh"), most=5, columns=2)
    assert titles(picture) == list("abcde")
    picture.save(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        assert image.width < image.height
    assert titles(jaxdali.show({"x": RED, "y": LABELS, "z": LABELS * 2}))[1] == "y 1\nz 2"
    assert titles(jaxdali.show({"x": RED, "y": LABELS, "z": LABELS * 2}, labels="z"))[1] == "2"


def test_errors():
    with pytest.raises(ValueError, match=r"no images in the batch: labels: 8 samples of shape \[1\] and type int64"):
        jaxdali.show({"labels": LABELS})
    with Pipeline(batch_size=1) as pipeline:
        pipeline.set_outputs(fn.external_source(lambda: RED[:1]))
    for wrong, advice in (
        ("x.jpg", r"got str: a JPEG file is shown by jaxdali\.show\(\[jaxdali\.decode_jpeg"),
        (pipeline, r"got Pipeline: jaxdali\.show\(pipeline\.run\(\)\)"),
        (iter([RED]), r"got list_iterator: jaxdali\.show\(next\(iterator\)\)"),
        (None, "got NoneType$"),
    ):
        with pytest.raises(TypeError, match=f"takes a batch, .*{advice}"):
            jaxdali.show(wrong)
    with pytest.raises(ValueError, match="8 images and 2 labels"):
        jaxdali.show(RED, labels=[1, 2])
    with pytest.raises(ValueError, match="no output 'name'"):
        jaxdali.show({"images": RED}, labels="name")


def rectangles(picture):
    return [
        [np.round([p.get_x(), p.get_y(), p.get_width(), p.get_height()], 3).tolist() for p in a.patches]
        for a in picture.figure.axes
    ]


def test_boxes():
    """Relative ones and pixels, in both forms; padding is left out."""
    batch = {
        "images": RED[:2],
        "boxes": np.float32([[[0.1, 0.2, 0.4, 0.5], [-1, -1, -1, -1]], [[0, 0, 1, 1], [0.5, 0.5, 0.75, 1]]]),
    }
    expected = [[[2.5, 3.5, 9, 6]], [[-0.5, -0.5, 30, 20], [14.5, 9.5, 7.5, 10]]]
    assert rectangles(jaxdali.show(batch, boxes="boxes", ltrb=True)) == expected
    pixels = [np.array([[3, 4, 9, 6]]), np.array([[0, 0, 30, 20], [15, 10, 7, 10]])]
    assert rectangles(jaxdali.show(RED[:2], boxes=pixels)) == [
        [[2.5, 3.5, 9, 6]],
        [[-0.5, -0.5, 30, 20], [14.5, 9.5, 7, 10]],
    ]
    with pytest.raises(ValueError, match="2 images and 1 arrays of boxes"):
        jaxdali.show(RED[:2], boxes=pixels[:1])
    with pytest.raises(ValueError, match=r"\[n, 4\] for each image, got \[2, 2\]"):
        jaxdali.show(RED[:2], boxes=[np.zeros((2, 2))] * 2)
    with pytest.raises(ValueError, match="no output 'boxs' for the boxes"):
        jaxdali.show(batch, boxes="boxs")


def test_labels_of_boxes_and_of_images():
    boxes = [np.array([[3, 4, 9, 6], [0, 0, 5, 5]]), np.zeros((0, 4))]
    batch = {
        "images": RED[:2],
        "boxes": boxes,
        "kinds": [np.int32([1, 0]), np.zeros(0, np.int32)],
        "labels": LABELS[:2],
    }
    picture = jaxdali.show(batch, boxes="boxes", labels="kinds", classes=["cat", "dog"])
    assert [[t.get_text() for t in a.texts] for a in picture.figure.axes] == [["dog", "cat"], []]
    assert titles(picture) == ["", ""]
    assert titles(jaxdali.show(batch, boxes="boxes", labels="labels")) == ["0", "1"]


def test_notebook_shows_results_of_run():
    pipeline = pipeline_def(lambda: fn.external_source(source=lambda: RED, batch=True, layout="HWC"))(
        batch_size=N, num_threads=1
    )
    (batch,) = pipeline.run()
    for shown in (batch, batch.as_cpu()):
        page = shown._repr_html_()
        assert page.count("<img") == N
        assert "TensorList" in page
    pipeline.close()
    assert jaxdali.backend.TensorListCPU(np.zeros((3, 5)))._repr_html_() is None


def test_a_notebook_shows_a_batch_with_metadata():
    from jaxdali._iterator.batch import BatchWithMetadata

    page = BatchWithMetadata(
        {"images": RED, "names": ["<a>"] * N, "x": LABELS}.items(), frozenset({"names"})
    )._repr_html_()
    assert page.count("<img") == N
    assert "&lt;a&gt;" in page
