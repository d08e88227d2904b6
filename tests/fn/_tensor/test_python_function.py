"""python_function and dump_image: the inputs of functions, and the use of their results."""

import jax
import numpy as np
import places
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image
from pipelines import run

from jaxdali import ArgumentError, OperatorError, fn, ops, pipeline_def
from jaxdali.plugin.jax import data_iterator

RAGGED = [np.arange(2 * n, dtype=np.uint8).reshape(n, 2) for n in (3, 70, 1)]


def samples(out):
    return [np.asarray(x) for x in out]


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_outputs(batch, on_device):
    argument_types = []

    def of_sample(x, y):
        argument_types.append(type(x))
        x += 1  # changes nothing but its own array
        return x.astype(np.float64)[::-1] * y, len(x)

    def of_batch(xs, ys):
        results = [of_sample(x, y) for x, y in zip(xs, ys, strict=True)]
        return [a for a, _ in results], [b for _, b in results]

    factor = [np.float32(f) for f in (1, 2, 3)]
    a, b, x = run(
        lambda x, f: (
            *fn.python_function(
                x,
                f,
                function=of_batch if batch else of_sample,
                num_outputs=2,
                batch_processing=batch,
                output_layouts=["HW"],
            ),
            x,
        ),
        RAGGED,
        factor,
        on_device=on_device,
    )
    assert argument_types == [np.ndarray] * 3
    assert (a.layout(), b.layout()) == ("HW", "")
    for output, n, unchanged, x0, f in zip(samples(a), samples(b), samples(x), RAGGED, factor, strict=True):
        assert output.dtype == np.float64
        np.testing.assert_array_equal(output, (x0 + 1)[::-1] * f)
        assert (n.shape, int(n)) == ((), len(x0))
        np.testing.assert_array_equal(unchanged, x0)


@pytest.mark.parametrize(
    ("layouts", "expected"),
    [("HW", ["HW", "HW"]), (["HW"], ["HW", ""]), (["HW", "CW"], ["HW", "CW"]), (None, ["", ""])],
)
def test_layouts(layouts, expected):
    outputs = run(
        lambda x: fn.python_function(x, function=lambda x: (x, x), num_outputs=2, output_layouts=layouts),
        RAGGED,
        layouts=["HW"],
    )
    assert [x.layout() for x in outputs] == expected


def test_results_go_on():
    """To the host, into programs and to other functions; batches may differ in shape."""
    calls = []

    @pipeline_def(batch_size=2, num_threads=1)
    def pipeline():
        x = fn.python_function(fn.random.uniform(), function=lambda u: np.full((len(calls) + 3, 2), u))
        fn.python_function(x, function=lambda x: calls.append(x.shape), num_outputs=0)
        y = fn.python_function(x.gpu() * 2, function=np.sum)
        return x, fn.cat(x.gpu(), x.gpu()) + 1, y * 1, x.shape()

    pipe = pipeline()
    for rows in (3, 5):
        x, y, total, shape = (samples(o.as_cpu()) for o in pipe.run())
        for i in range(2):
            assert x[i].shape == (rows, 2)
            np.testing.assert_allclose(y[i], np.concatenate([x[i], x[i]]) + 1, rtol=1e-6)
            np.testing.assert_allclose(total[i], 2 * x[i].sum(), rtol=1e-6)
            assert shape[i].tolist() == [rows, 2]
    pipe.close()
    assert calls[:4] == [(3, 2)] * 2 + [(5, 2)] * 2


def test_shards():
    """Each shard's definition has its own function."""
    sharding = NamedSharding(Mesh(jax.devices()[:2], "batch"), PartitionSpec("batch"))

    @data_iterator(output_map=["x"], reader_name="reader", sharding=sharding)
    def iterator(num_shards, shard_id):
        _, label = fn.readers.file(file_root=places.PHOTOS, num_shards=num_shards, shard_id=shard_id, name="reader")
        return fn.python_function(
            label.gpu(), batch_processing=True, function=lambda x: np.full((len(x), 1), shard_id, np.int32)
        )

    assert np.asarray(next(iter(iterator(batch_size=4)))["x"]).tolist() == [[0], [0], [1], [1]]


def test_short_batches():
    @pipeline_def(batch_size=8, num_threads=1)
    def pipeline():
        x = fn.external_source(lambda: RAGGED)
        return fn.python_function(x, function=lambda x: x * 2), fn.python_function(
            x, function=list, batch_processing=True
        )

    pipe = pipeline()
    twice, unchanged = (samples(o) for o in pipe.run())
    pipe.close()
    for doubled, listed, x in zip(twice, unchanged, RAGGED, strict=True):
        np.testing.assert_array_equal(doubled, x * 2)
        np.testing.assert_array_equal(listed, x)


@pytest.mark.parametrize(
    ("shapes", "expected"),  # DALI's
    [
        ([(1,)] * 3, [(4,)] * 3),
        ([()] * 3, [(4,)] * 3),
        ([(1, 1)] * 3, [(4,)] * 3),
        ([(1,), (2,), (1,)], [(1, 4), (2, 4), (1, 4)]),
        ([(2,), (1,), (1,)], [(2, 4), (1, 4), (1, 4)]),
    ],
)
def test_single_elements_as_scalars(shapes, expected):
    """The result of a function has no shape in the definition. Its first samples decide, as those of a source do."""

    @pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def define():
        number = fn.external_source(lambda i: np.arange(3) if i < 3 else None)
        x = fn.python_function(number, function=lambda n: np.full(shapes[n], n, np.int32))
        return fn.one_hot(x, num_classes=4), x

    pipe = define()
    for _ in range(2):
        hot, x = pipe.run()
        assert [h.shape for h in samples(hot)] == expected
        for h, number in zip(samples(hot), samples(x), strict=True):
            np.testing.assert_array_equal(h.reshape(-1, 4), np.eye(4, dtype=np.float32)[number.ravel()])
    pipe.close()


@pytest.mark.parametrize("make", [fn.python_function, lambda x, **options: ops.PythonFunction(**options)(x)])
def test_refused_accelerator(make):
    with pytest.raises(
        ArgumentError, match=r"must be 'cpu', got 'gpu'; .*\.gpu\(\) on the outputs, or use plugin\.jax"
    ):
        make(fn.random.uniform(), function=len, device="gpu")


def test_errors():
    def raises(x):
        raise KeyError("boo")

    for function, arguments, message in (
        (raises, {}, r"KeyError: 'boo'"),
        (lambda x: None, {}, "must return arrays of numbers, got NoneType"),
        (lambda x: (x, x), {}, "must return 1 output, got 2; num_outputs=2 takes"),
        (lambda x: x, {"num_outputs": 2}, "must return 2 outputs, got 1"),
        (
            lambda x: x if len(x) == 3 else x * 1.0,
            {},
            r"one type and number of dimensions in all samples, got .*float64.*uint8",
        ),
        (lambda x: x[:1], {"batch_processing": True}, "a list of 3 arrays, got 1"),
        (lambda x: x, {"output_layouts": "HWC"}, "output_layouts has .HWC. for output 0, which has 2 dimensions"),
    ):
        with pytest.raises(OperatorError, match=f"^python_function .*test_python_function.py.*{message}"):
            run(lambda x, f=function, m=arguments: fn.python_function(x, function=f, **m), RAGGED)
    with pytest.raises(ValueError, match=r"^python_function: output_layouts has 2 layouts, for 1 outputs"):
        fn.python_function(function=len, output_layouts=["H", "W"])
    with pytest.raises(RuntimeError, match=r"python_function .* can't be serialized: argument function"):
        pipeline_def(lambda: fn.python_function(function=lambda: 1))(batch_size=1).serialize()


@pytest.mark.parametrize("on_device", [False, True])
def test_dump_image(tmp_path, monkeypatch, on_device):
    monkeypatch.chdir(tmp_path)
    images = [np.random.default_rng(0).integers(0, 255, (h, 7, c)).astype(np.uint8) for h, c in ((3, 3), (5, 1))]

    def define(x):
        fn.dump_image(x, suffix="unused")
        return fn.dump_image(x, suffix="a")

    (out,) = run(define, images, on_device=on_device, layouts=("HWC",))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0-a-0.ppm", "0-unused-0.ppm", "1-a-0.ppm", "1-unused-0.ppm"]
    assert out.layout() == "HWC"
    for i, (passed_image, image) in enumerate(zip(samples(out), images, strict=True)):
        np.testing.assert_array_equal(passed_image, image)
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / f"{i}-a-0.ppm")).reshape(image.shape), image)
    with pytest.raises(
        OperatorError, match=r"^dump_image .*uint8 images HWC of 1 or 3 channels, got uint8 of shape \(3, 2\)"
    ):
        run(lambda x: fn.dump_image(x), RAGGED)


def test_dump_image_of_the_accelerator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (out,) = run(
        lambda x: fn.dump_image(x, device="gpu"), [np.full((2, 3, 1), 9, np.uint8)], on_device=True, layouts=("HWC",)
    )
    assert np.asarray(out[0]).max() == 9
    assert [p.name for p in tmp_path.iterdir()] == ["0--0.ppm"]


def array_of(capsule):
    class Exchanged:
        __dlpack__ = staticmethod(lambda **_: capsule)
        __dlpack_device__ = staticmethod(lambda: (1, 0))

    return np.from_dlpack(Exchanged())


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_capsules(batch, on_device):
    """A function may return its input, a new array, or anything with __dlpack__."""

    def of_sample(x):
        a = array_of(x)
        return (a * 2.0).__dlpack__(), a[::-1].copy()

    def of_batch(xs):
        return tuple(zip(*map(of_sample, xs), strict=True))

    function = of_batch if batch else of_sample
    a, b, c = run(
        lambda x: (
            *fn.dl_tensor_python_function(
                x, function=function, num_outputs=2, batch_processing=batch, output_layouts="HW"
            ),
            ops.DLTensorPythonFunction(lambda x: x)(x),
        ),
        RAGGED,
        on_device=on_device,
    )
    assert (a.layout(), b.layout()) == ("HW", "HW")
    for x, doubled, turned, unchanged in zip(RAGGED, samples(a), samples(b), samples(c), strict=True):
        np.testing.assert_array_equal(doubled, x * 2.0, strict=True)
        np.testing.assert_array_equal(turned, x[::-1], strict=True)
        np.testing.assert_array_equal(unchanged, x, strict=True)
    with pytest.raises(OperatorError, match="must return DLPack capsules, or objects with __dlpack__"):
        run(lambda x: fn.dl_tensor_python_function(x, function=lambda x: 3), RAGGED)
