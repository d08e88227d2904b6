"""Likely mistakes in pipeline definitions: what errors and warnings say to do."""

import inspect
import pathlib
import warnings

import jax
import numpy as np
import pytest
from PIL import Image

import jaxdali
from jaxdali import Pipeline, fn, pipeline_def, types
from jaxdali.plugin.jax import data_iterator

CHW = np.zeros((2, 3, 20, 20), np.uint8)
HWC = np.zeros((2, 20, 20, 3), np.uint8)


def made(define, batches=1):
    pipeline = pipeline_def(define, batch_size=2, num_threads=1, device_id=None)()
    pipeline.build()
    return [pipeline.run() for _ in range(batches)]


def warned(define):
    """The texts of the warnings of a definition, which are at its line, and of three batches."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made(define, batches=3)
    assert {(w.filename, w.lineno) for w in caught} <= {(__file__, inspect.getsourcelines(define)[1])}
    return [str(w.message) for w in caught]


class Photos:
    """A data set as torchvision makes it."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return CHW[0]


def test_channels_first_without_a_layout():
    (text,) = warned(lambda: fn.resize(fn.external_source(lambda: CHW), size=(8, 8)))
    assert 'fn.reshape(x, layout="CHW") says so, and fn.transpose(x, perm=[1, 2, 0]) makes HWC' in text
    assert warned(lambda: fn.resize(fn.readers.source(Photos()), size=(8, 8))) == [text]
    assert not warned(lambda: fn.resize(fn.external_source(lambda: CHW, layout="CHW"), size=(8, 8)))
    assert not warned(lambda: fn.resize(fn.readers.source(Photos(), layout="CHW"), size=(8, 8)))
    assert not warned(
        lambda: fn.flip(fn.resize(fn.reshape(fn.external_source(lambda: CHW), layout="CHW"), size=(8, 8)))
    )
    assert not warned(lambda: fn.resize(fn.external_source(lambda: HWC), size=(8, 8)))


def test_statistics_of_unit_images_for_bytes():
    statistics = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    images = {"source": lambda: HWC, "layout": "HWC"}
    (text,) = warned(lambda: fn.crop_mirror_normalize(fn.external_source(**images), **statistics))
    assert "mean [123.675, 116.28, 103.53], std [58.395, 57.12, 57.375]" in text
    assert not warned(lambda: fn.crop_mirror_normalize(fn.external_source(**images), scale=1 / 255, **statistics))
    assert not warned(lambda: fn.crop_mirror_normalize(fn.external_source(**images) / 255.0, **statistics))
    tensors = {"mean": np.full((1, 1, 3), 0.5, np.float32), "stddev": np.full((1, 1, 3), 0.25, np.float32)}
    assert len(warned(lambda: fn.normalize(fn.external_source(**images), **tensors))) == 1
    assert not warned(lambda: fn.normalize(fn.external_source(**images)))


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (
            lambda x: fn.rotate(x, angle=(-20, 20)),
            r"got \(-20, 20\); fn\.random\.uniform\(range=\(low, high\)\) is a random",
        ),
        (lambda x: fn.rotate(x, angle=["a", "b"]), r"got \['a', 'b'\] \(called"),
        (
            lambda x: fn.gaussian_blur(x, sigma=(1, 2, 3)),
            "must have 1 or 2 numbers per sample, got 3$",
        ),  # it takes lists
        (lambda x: fn.flip(x, horizontal=0.5), r"got 0\.5; fn\.random\.coin_flip\(probability=0\.5\) is 1 for some"),
        (lambda x: fn.flip(x, horizontal=1.5), r"got 1\.5 \(called"),
        (lambda x: fn.crop(x, crop=32), r"must be a list of 2 or 3 .*got 32; crop=\(32, 32\) is \(height, width\)"),
        (lambda x: fn.readers.file(files=pathlib.Path().glob("*")), r"got a generator; files=list\(\.\.\.\)"),
        (lambda x: fn.readers.file(files=["a"], labels=["cat"]), r"got \['cat'\]; names of classes become numbers"),
        (
            lambda x: fn.readers.file(files=["a"], labels=[[0.5]]),
            r'; fn\.readers\.source\(\{"path": files, "label": labels\}\) takes .* floats, and fn\.io\.file\.read',
        ),
    ],
)
def test_values_with_another_meaning(call, advice):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=advice):
        made(lambda: call(fn.external_source(lambda: HWC, layout="HWC")))


def test_outputs_in_one_variable(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"no image")
    advice = r"readers\.file has 2 outputs, and the call is for each of them: take them apart, files, labels = fn\.readers\.file\(\.\.\.\)"
    for operator in (fn.decoders.image, lambda x: fn.resize(x, size=(8, 8)), fn.flip):
        with pytest.raises((ValueError, TypeError), match=advice):
            made(lambda operator=operator: tuple(operator(fn.readers.file(files=[str(path)]))))
    # When it runs.
    with pytest.raises(RuntimeError, match=r"external_source has 2 outputs, .* a, b = fn\.external_source"):
        made(
            lambda: tuple(
                fn.decoders.image(fn.external_source(lambda: [np.zeros((2, 9), np.uint8)] * 2, num_outputs=2))
            )
        )
    with pytest.raises(
        TypeError, match=r"decoders\.audio has 2 outputs; take them apart, audio, rate = fn\.decoders\.audio"
    ):
        made(lambda: (fn.decoders.audio(fn.readers.file(files=[str(path)])[0]), 1))


def test_outputs_by_name():
    with pytest.raises(
        TypeError, match=r"got a dict: return its values, x, y, and name them by output_map=\['x', 'y'\]"
    ):
        made(lambda: {"x": fn.random.uniform(), "y": fn.random.uniform()})


@pytest.mark.parametrize("names", [["a.jpg"], "a.jpg", [pathlib.Path("a.jpg")], pathlib.Path("a.jpg")])
def test_names_of_files(names):
    with pytest.raises(TypeError, match=r"fn\.readers\.file\(files=\.\.\.\) reads files \(called at"):
        made(lambda: fn.decoders.image(names))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda x: fn.crop(x, crop=(4, 5, 3)), "crop"),
        (lambda x: fn.crop(x, crop_d=4, crop_h=5, crop_w=3), "crop_d"),
        (lambda x: fn.crop_mirror_normalize(x, crop=(4, 5), crop_pos_z=0.1), "crop_pos_z"),
        (lambda x: fn.flip(x, depthwise=1), "depthwise"),
        (lambda x: fn.rotate(x, angle=10.0, axis=(0, 0, 1)), "axis"),
    ],
)
def test_depths_of_images(call, argument):
    with pytest.warns(UserWarning, match=rf'argument {argument} is for volumes.*fn\.reshape\(x, layout="DHW"\) says'):
        made(lambda: call(fn.external_source(lambda: HWC)))
    made(lambda: call(fn.external_source(lambda: HWC, layout="HWC")))


@pytest.mark.parametrize("as_data", [list, lambda names: {"path": names}], ids=["list", "dictionary"])
def test_data_set_of_names(tmp_path, as_data):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"abc")

    def define():
        texts = fn.readers.source(as_data([str(path)]))
        return fn.io.file.read(texts["path"] if isinstance(texts, dict) else texts)

    assert bytes(made(define)[0][0].at(0)) == b"abc"


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)], ids=["typed", "numbers"])
def test_keys_are_no_seeds(key):
    def define(num_shards=1, shard_id=0):
        return fn.random.uniform()

    for call in (
        lambda: Pipeline(batch_size=2, num_threads=1, seed=key),
        lambda: pipeline_def(define)(batch_size=2, num_threads=1, seed=key),
        lambda: pipeline_def(define, seed=key)(batch_size=2, num_threads=1),
        lambda: data_iterator(define, ["x"], size=4)(batch_size=2, num_threads=1, seed=key),
        lambda: data_iterator(define, ["x"], size=4, devices=jax.devices()[:2])(batch_size=2, num_threads=1, seed=key),
        lambda: fn.random.uniform(seed=key),
        lambda: fn.random_resized_crop(fn.external_source(lambda: HWC), size=8, seed=key),
        lambda: fn.readers.file(files=["a"], shuffle_after_epoch_seed=key),
    ):
        with pytest.raises(
            TypeError,
            match=r"got a key of jax\.random; a seed is a number, \w*seed=0 in place of jax\.random\.key\(0\)",
        ):
            call()


@pytest.mark.parametrize("value", [Image.Resampling.BILINEAR, "bilinear"])
def test_enums_of_other_libraries(value):
    with pytest.raises(TypeError, match=r"it is types\.INTERP_LINEAR here"):
        made(lambda: fn.resize(fn.external_source(lambda: HWC), size=(8, 8), interp_type=value))
    with pytest.raises(TypeError, match="numbers of other enums mean something else"):
        made(lambda: fn.resize(fn.external_source(lambda: HWC), size=(8, 8), interp_type=types.UINT8))
    with pytest.raises(TypeError, match="whose number means something else"):
        types.Constant(1, Image.Resampling.BILINEAR)
    with pytest.raises(ValueError, match=r"output_type must be one of types\.RGB, .*, got <Resampling\.BILINEAR: 2>"):
        jaxdali.decode_jpeg(b"", output_type=Image.Resampling.BILINEAR)


def test_windows_larger_than_images():
    with pytest.raises(RuntimeError, match='out_of_bounds_policy="pad" fills what is outside'):
        made(lambda: fn.crop(fn.external_source(lambda: HWC), crop=(30, 30)))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: made(lambda: fn.readers.file(file_root="a", shuffle=True)[0]), TypeError, "True; random_shuffle=True"),
        (lambda: made(lambda: fn.random.choice(["a", "b"])), TypeError, "got list of str "),
        (lambda: made(lambda: fn.random.choice([1, None])), TypeError, "got list of NoneType and int "),
        (
            lambda: data_iterator(output_map=["x"], last_batch_policy="drop"),
            TypeError,
            r"got 'drop'; it is jaxdali\.plugin\.base_iterator\.LastBatchPolicy\.DROP here",
        ),
        (
            lambda: made(lambda: fn.external_source(lambda: np.zeros((2, 3)))[:, 0]),
            ValueError,
            "2 indices for 1-D data: they are of each sample",
        ),
        (
            lambda: made(lambda: fn.cat(fn.random.uniform(shape=[2]), fn.random.choice(3, shape=[2]))),
            ValueError,
            r"input 1 is 1-D int32; fn\.cast converts them",
        ),
        (
            lambda: made(lambda: fn.decoders.image(fn.external_source(lambda: HWC, layout="HWC"))),
            TypeError,
            "3-D uint8 of layout HWC; these are pixels, which need no decoder",
        ),
    ],
)
def test_remedies(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_deviation_of_zero():
    images = {"source": lambda: HWC, "layout": "HWC"}
    assert not warned(lambda: fn.crop_mirror_normalize(fn.external_source(**images), std=0))
    (text,) = warned(lambda: fn.crop_mirror_normalize(fn.external_source(**images), mean=0.5, std=0))
    assert text.endswith("for these they are mean [127.5]")
