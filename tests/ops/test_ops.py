"""The class API returns the same as the functions."""

import importlib
import inspect
import pkgutil

import numpy as np
import places
import pytest

from jaxdali import Pipeline, fn, ops, types
from jaxdali._core.names import members


@pytest.fixture
def sample_photos():
    return sorted(map(str, places.PHOTOS.rglob("*.jpg")))


class Simple(Pipeline):
    """A pipeline in the style of widely copied loaders."""

    def __init__(self, files, **kwargs):
        super().__init__(seed=12, **kwargs)
        self.input = ops.readers.File(files=files, random_shuffle=True)
        self.decode = ops.decoders.Image(device="mixed", output_type=types.RGB)
        self.resize = ops.Resize(device="gpu", resize_x=32)
        self.rotate = ops.Rotate(device="gpu")
        self.coin = ops.random.CoinFlip(probability=0.5)
        self.cast = ops.Cast(dtype=types.INT32)

    def define_graph(self):
        jpegs, labels = self.input(name="Reader")
        images = self.resize(self.decode(jpegs), resize_y=24)
        return self.rotate(images, angle=self.coin() * 90.0), self.cast(labels)


def by_functions(files):
    jpegs, labels = fn.readers.file(files=files, random_shuffle=True, name="Reader")
    images = fn.resize(fn.decoders.image(jpegs, device="mixed"), resize_x=32, resize_y=24)
    return fn.rotate(images, angle=fn.random.coin_flip(probability=0.5) * 90.0), fn.cast(labels, dtype=types.INT32)


def test_a_pipeline_subclass(sample_photos):
    pipe = Simple(sample_photos, batch_size=4, num_threads=1)
    images, labels = pipe.run()
    with Pipeline(batch_size=4, num_threads=1, seed=12) as expected:
        expected.set_outputs(*by_functions(sample_photos))
    for actual, expected_output in zip((images, labels), expected.run(), strict=True):
        for i in range(4):
            np.testing.assert_array_equal(np.asarray(actual.as_cpu().at(i)), np.asarray(expected_output.as_cpu().at(i)))
    assert pipe.epoch_size("Reader") == len(sample_photos)


def test_fed_in_iter_setup():
    class Fed(Pipeline):
        def __init__(self):
            super().__init__(batch_size=2, num_threads=1)
            self.source = ops.ExternalSource()
            self.count = 0

        def define_graph(self):
            self.data = self.source()
            return self.data * 2

        def iter_setup(self):
            self.count += 1
            self.feed_input(self.data, np.full((2, 3), self.count, np.int32))

    pipe = Fed()
    assert [int(np.asarray(pipe.run()[0].as_cpu().at(0))[0]) for _ in range(3)] == [2, 4, 6]


def test_compose_moves_to_the_device():
    pipe = Pipeline(batch_size=1, num_threads=1)
    with pipe:
        image = ops.ExternalSource(lambda: [np.zeros((4, 6, 3), np.uint8)])()
        both = ops.Compose(
            [ops.Resize(size=(2, 2)), lambda x: x + 1, ops.Rotate(device="gpu", angle=90.0, keep_size=True)]
        )
        out = both(image)
        assert out.device == "gpu"
        pipe.set_outputs(out)
    assert np.asarray(pipe.run()[0].as_cpu().at(0)).shape == (2, 2, 3)


def test_python_function_by_position():
    with Pipeline(batch_size=1, num_threads=1) as pipe:
        x = ops.ExternalSource(lambda: [np.arange(3)])()
        pipe.set_outputs(ops.PythonFunction(np.sum)(x), *ops.PythonFunction(lambda xs: (xs, xs), 2, "cpu", True)(x))
    assert [np.asarray(out[0]).tolist() for out in pipe.run()] == [3, [0, 1, 2], [0, 1, 2]]


def test_arguments_stand_in_one_place():
    with Pipeline(batch_size=1):
        with pytest.raises(TypeError, match=r"ops\.Resize: got an unexpected argument 'sise'; did you mean 'size'"):
            ops.Resize(sise=3)
        with pytest.raises(ValueError, match="Resize: the argument 'size' was given to the constructor"):
            ops.Resize(size=(2, 2))(np.zeros((1, 1, 3), np.uint8), size=(3, 3))


def test_none_is_not_given():
    """None counts as not passed, both in the constructor and in the call."""
    pipe = Pipeline(batch_size=1, num_threads=1)
    with pipe:
        x = fn.external_source(lambda: [np.zeros((4, 5, 1), np.uint8)], layout="HWC")
        size = fn.constant(idata=[2, 3])
        pipe.set_outputs(
            ops.Resize(size=[3, 2])(x, size=None, name=None),
            ops.Resize(size=None)(x, size=size),
            ops.Resize(size=None, resize_x=None)(x, size=None, resize_x=10.0),
            ops.Erase(fill_value=None, anchor=[0, 0], shape=[4, 5])(x, fill_value=fn.constant(fdata=7.0)),
        )
        with pytest.raises(ValueError, match="Resize: the argument 'size' was given to the constructor already"):
            ops.Resize(size=[3, 2])(x, size=size)
    a, b, c, d = (np.asarray(out[0]) for out in pipe.run())
    assert (a.shape, b.shape, c.shape, d.min()) == ((3, 2, 1), (2, 3, 1), (8, 10, 1), 7)


def test_every_function_has_its_class():
    for group in ["", *(f".{m.name}" for m in pkgutil.iter_modules(fn.__path__) if m.name[0] != "_")]:
        functions = importlib.import_module(f"jaxdali.fn{group}")
        classes = importlib.import_module(f"jaxdali.ops{group}")
        function_names = {k for k, f in members(functions).items() if inspect.isfunction(f)}
        operator_classes = [getattr(classes, name) for name in dir(classes) if inspect.isclass(getattr(classes, name))]
        assert function_names == {c.function.__name__ for c in operator_classes if c is not ops.Compose}
    assert (ops.decoders.Image.__name__, ops.random.CoinFlip.__module__) == ("Image", "jaxdali.ops.random")


def test_a_missing_class_names_the_closest():
    with pytest.raises(AttributeError, match=r"jaxdali\.ops has no class 'Resise'; did you mean 'Resize'\?"):
        ops.Resise
