"""DALI's API documents, name by name and example by example, with ``nvidia.dali`` read as ``jaxdali``.

The tutorial itself is examples/getting_started.py, which test_examples.py runs.
"""

# pyright: reportRedeclaration=false

import ctypes
import re
import runpy

import jax
import numpy as np
import places
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import Pipeline, backend, fn, pipeline_def, types
from jaxdali.plugin import jax as dax
from jaxdali.plugin.base_iterator import LastBatchPolicy

IMAGES = str(places.PHOTOS)


def test_speeds_in_documents_equal_the_results():
    draw = runpy.run_path(str(places.ROOT / "tests" / "benchmarks" / "draw_speed.py"))
    numbers = draw["numbers"]()
    assert numbers["jaxdali"].keys() == numbers["DALI 2.4"].keys() == draw["PIPELINES"].keys()
    advice = "run tests/benchmarks/draw_speed.py, and copy its table into the README"
    assert draw["PICTURE"].read_text() == draw["svg"](numbers), advice
    assert draw["table"](numbers) in (places.ROOT / "README.md").read_text(), advice
    assert draw["svg"](numbers).count("<rect") == 1 + len(numbers) * len(draw["PIPELINES"])


def test_notes_are_listed_and_cited():
    package = places.ROOT / "jaxdali"
    texts = {str(p.relative_to(package)): p.read_text() for p in package.rglob("*.py")}
    titles = [
        (title, path) for path, text in texts.items() for title in re.findall(r"^# Note \[(.+?)\]", text, re.MULTILINE)
    ]
    rows = re.findall(
        r"^\| (.+?) \| \[`(.+?)`\]",
        (package / "README.md").read_text().partition("| Note |")[2].partition("\n\n")[0],
        re.MULTILINE,
    )
    listed = [(title, path) for names, path in rows for title in names.split(", ")]
    assert len(listed) > 9
    assert {*listed} <= {*titles}
    assert len({title for title, _ in titles}) == len(titles)
    cited = {title: {path for path, text in texts.items() if f"Note [{title}]" in text} for title, _ in listed}
    assert not [title for title, path in listed if cited[title] <= {path}]
    unknown = {title for text in texts.values() for title in re.findall(r"Note \[(.+?)\]", text)} - {
        title for title, _ in titles
    }
    assert not unknown


# --- the JAX plugin -------------------------------------------------------------------------------------------------


@dax.fn.jax_function
def flip_batch(image_batch: jax.Array):
    return image_batch[:, :, ::-1, :]  # batch of HWC images


@dax.fn.jax_function
@jax.jit
@jax.vmap
def flip_image(image: jax.Array):
    return image[:, ::-1, :]  # HWC image


@dax.fn.jax_function(num_outputs=1, output_layouts="HWC")
def flip_with_options(image_batch: jax.Array):
    return image_batch[:, :, ::-1, :]


@pytest.mark.parametrize("flip_horizontal", [flip_batch, flip_image, flip_with_options])
def test_horizontal_flip(flip_horizontal):
    @pipeline_def(batch_size=4, device_id=0, num_threads=4)
    def pipeline():
        image, _ = fn.readers.file(file_root=IMAGES)
        image = fn.decoders.image(image, device="mixed", output_type=types.RGB)
        image = fn.resize(image, size=(244, 244))
        flipped = flip_horizontal(image)
        return image, flipped

    pipe = pipeline()
    image, flipped = (np.asarray(x.as_cpu().as_array()) for x in pipe.run())
    pipe.close()
    assert image.shape == (4, 244, 244, 3)
    assert image.std() > 30
    np.testing.assert_array_equal(flipped, image[:, :, ::-1])


def simple_pipeline():
    jpegs, labels = fn.readers.file(file_root=IMAGES, name="image_reader")
    images = fn.decoders.image(jpegs, device="mixed")
    images = fn.resize(images, resize_x=256, resize_y=256)
    return images, labels


def test_iterators_of_the_tutorial_are_the_same():
    """By decorator, by function, and by hand; positional arguments in the documents' order."""
    options = ["images", "labels"], -1, "image_reader", False, False, LastBatchPolicy.FILL, True
    decorated = dax.data_iterator(output_map=["images", "labels"], reader_name="image_reader")(simple_pipeline)
    called = dax.data_iterator(simple_pipeline, *options, None, None)
    pipeline = pipeline_def(simple_pipeline)(batch_size=8, num_threads=1, device_id=0)
    assert type(pipeline).__module__ + "." + type(pipeline).__qualname__ == "jaxdali.pipeline.Pipeline"
    by_hand = dax.DALIGenericIterator(pipeline, *options, None)
    assert (
        type(by_hand).__module__ + "." + type(by_hand).__qualname__ == "jaxdali.plugin.jax.iterator.DALIGenericIterator"
    )
    for iterator in (decorated(batch_size=8), called(batch_size=8, device_id=0, num_threads=2, seed=0), by_hand):
        with iterator:
            assert (type(iterator), len(iterator), iterator.size) == (dax.DALIGenericIterator, 3, 24)
            batch = iterator.next()
        assert list(batch) == ["images", "labels"]
        assert all(isinstance(x, jax.Array) for x in batch.values())
        assert (batch["images"].shape, batch["labels"].shape) == ((8, 256, 256, 3), (8, 1))
        assert batch["labels"].ravel().tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_checkpoints_of_the_decorator():
    """The document lists them among its arguments; DALI takes them in the function that it makes."""

    def definition():
        return fn.external_source(source=lambda info: np.int32(info.idx_in_epoch), batch=False), fn.random.uniform()

    options = {"output_map": ["x", "u"]}
    arguments = {"batch_size": 2, "num_threads": 1, "enable_checkpointing": True}
    with dax.data_iterator(definition, **options)(**arguments) as iterator:
        next(iterator)
        checkpoints = iterator.checkpoints()
        expected = next(iterator)
    for decorated, called in ({}, {"checkpoints": checkpoints}), ({"checkpoints": checkpoints}, {}):
        with dax.data_iterator(definition, **options, **decorated)(**arguments, **called) as iterator:
            batch = next(iterator)
        assert batch["x"].tolist() == expected["x"].tolist() == [2, 3]
        assert batch["u"].tolist() == expected["u"].tolist()
    with pytest.raises(TypeError, match="checkpoints was already given to data_iterator"):
        dax.data_iterator(definition, **options, checkpoints=checkpoints)(**arguments, checkpoints=checkpoints)


def test_multiple_devices_of_the_tutorial():
    mesh = Mesh(jax.devices(), axis_names=("batch"))
    sharding = NamedSharding(mesh, PartitionSpec("batch"))

    @dax.data_iterator(
        output_map=["images", "labels"],
        reader_name="image_reader",
        sharding=sharding,
    )
    def iterator_fn(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            file_root=IMAGES,
            name="image_reader",
            num_shards=num_shards,
            shard_id=shard_id,
        )
        images = fn.decoders.image(jpegs, device="mixed")
        angle = fn.random.uniform(range=(-10.0, 10.0))
        images = fn.rotate(images, angle=angle, fill_value=0)
        images = fn.resize(images, resize_x=256, resize_y=256)
        return images, labels.gpu()

    with iterator_fn(batch_size=8) as iterator:
        batch = next(iterator)
    images = batch["images"]
    assert images.shape == (8, 256, 256, 3)
    assert images.sharding == batch["labels"].sharding == sharding
    assert images.devices() == set(jax.devices())
    assert [s.data.shape for s in images.addressable_shards] == [(8 // len(jax.devices()), 256, 256, 3)] * len(
        jax.devices()
    )
    jax.debug.visualize_array_sharding(images.ravel())


# --- the epoch of seven samples -------------------------------------------------------------------------------------

# As the documents write it: the last batch of the epoch [1, 2, 3, 4, 5, 6, 7], and the first one after it.
EXAMPLES = """
last_batch_policy = PARTIAL, last_batch_padded = True -> last batch = [7], next iteration will return [1, 2]
last_batch_policy = PARTIAL, last_batch_padded = False -> last batch = [7], next iteration will return [2, 3]
last_batch_policy = FILL, last_batch_padded = True -> last batch = [7, 7], next iteration will return [1, 2]
last_batch_policy = FILL, last_batch_padded = False -> last batch = [7, 1], next iteration will return [2, 3]
last_batch_policy = DROP, last_batch_padded = True -> last batch = [5, 6], next iteration will return [1, 2]
last_batch_policy = DROP, last_batch_padded = False -> last batch = [5, 6], next iteration will return [2, 3]
"""
EPOCHS = re.findall(
    r"= (\w+), last_batch_padded = (\w+) -> last batch = \[(.*)\], next iteration will return \[(.*)\]", EXAMPLES
)


@pipeline_def(batch_size=2, num_threads=1)
def seven(folder, padded):
    return fn.readers.file(file_root=folder, file_filters="*", name="reader", pad_last_batch=padded)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven files whose content is their number."""
    folder = tmp_path_factory.mktemp("seven")
    (folder / "class").mkdir()
    for i in range(1, 8):
        (folder / "class" / str(i)).write_bytes(bytes([i]))
    return str(folder)


@pytest.mark.filterwarnings("ignore:size is given")
@pytest.mark.parametrize("plugin", ["jax", "pytorch", "pytorch, reader"])
@pytest.mark.parametrize(("policy", "padded", "last", "following"), EPOCHS)
def test_epochs(folder, plugin, policy, padded, last, following):
    padded = padded == "True"
    options = {"size": 7, "last_batch_padded": padded, "last_batch_policy": LastBatchPolicy[policy]}
    if plugin == "jax" and policy == "PARTIAL":
        with pytest.raises(ValueError, match="PARTIAL"):
            dax.DALIGenericIterator(seven(folder, padded), ["data", "label"], **options)
        return
    if plugin == "jax":
        iterator = dax.DALIGenericIterator(seven(folder, padded), ["data", "label"], **options)
        epoch = lambda: [b["data"].ravel().tolist() for b in iterator]
    else:
        pytest.importorskip("torch")
        from jaxdali.plugin.pytorch import DALIClassificationIterator

        if "reader" in plugin:
            options = {"reader_name": "reader", "last_batch_policy": LastBatchPolicy[policy]}
            # The documents' rule for readers comes before their example.
            last = {"FILL": "7"}.get(policy, last)
        iterator = DALIClassificationIterator([seven(folder, padded)], **options)
        epoch = lambda: [b[0]["data"].ravel().tolist() for b in iterator]
    with iterator:
        first = epoch()
        iterator.reset()
        second = epoch()
    assert first[:3] == [[1, 2], [3, 4], [5, 6]]
    assert str(first[-1]) == f"[{last}]"
    assert str(second[0]) == f"[{following}]"


def test_classification_iterator(folder):
    """It is the generic one with two names."""
    pytest.importorskip("torch")
    from jaxdali.plugin.pytorch import DALIClassificationIterator, DALIGenericIterator

    with (
        DALIClassificationIterator(seven(folder, False), reader_name="reader") as first,
        DALIGenericIterator(seven(folder, False), ["data", "label"], reader_name="reader") as second,
    ):
        for a, b in zip(first, second, strict=True):
            assert [d.keys() for d in a] == [{"data": 0, "label": 0}.keys()]
            assert all(a[0][k].equal(b[0][k]) for k in a[0])


# --- pipelines and tensors ------------------------------------------------------------------------------------------


def test_pipeline_as_its_document_describes(folder, tmp_path):
    class Fed(Pipeline):
        def define_graph(self):
            self.data = fn.external_source()
            return [self.data * 2]

        def iter_setup(self):
            self.feed_input(ref=self.data, data=np.uint8([[1, 2], [3, 4]]), layout="C")

    pipe = Fed(2, 1, -1, -1, True, {"cpu_size": 1, "gpu_size": 2}, True, 0, False, -1, 0)
    pipe.build()
    pipe.enable_api_check(False)
    assert pipe.empty()
    pipe.schedule_run()
    assert not pipe.empty()
    (shared,) = pipe.share_outputs()
    pipe.release_outputs()
    pipe.schedule_run()
    for (x,) in (pipe.outputs(), pipe.run(), [shared]):
        assert x.as_cpu().as_array().tolist() == [[2, 4], [6, 8]]
    pipe.reset()
    pipe.close()

    pipe = seven(folder, False)
    assert (pipe.epoch_size(), pipe.epoch_size("reader"), pipe.batch_size, pipe.num_threads) == ({"reader": 7}, 7, 2, 1)
    pipe.save_graph_to_dot_file(str(tmp_path / "graph.dot"), True, True, True)
    assert "reader" in (tmp_path / "graph.dot").read_text()
    copy = Pipeline()
    copy.deserialize_and_build(pipe.serialize())
    assert copy.run()[0].as_cpu().as_array().tolist() == [[1], [2]]
    pipe.close()
    copy.close()


@pytest.mark.parametrize("cls", [backend.TensorListCPU, backend.TensorListGPU])
def test_tensors_as_their_document_describes(cls):
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4, 1)
    batch = cls(data if cls is backend.TensorListCPU else jax.device_put(data), "HWC")
    on_gpu = {} if cls is backend.TensorListCPU else {"cuda_stream": 0, "non_blocking": False}
    tensor = batch.as_tensor()
    assert batch.is_dense_tensor()
    assert (batch.layout(), tensor.layout(), tensor.shape(), tensor.dtype()) == ("HWC", "NHWC", [2, 3, 4, 1], "float32")
    for x in (batch, tensor):
        target = np.zeros_like(data)
        x.copy_to_external(ctypes.c_void_p(target.ctypes.data), **on_gpu)
        np.testing.assert_array_equal(target, data)
    tensor.squeeze()
    assert (tensor.shape(), tensor.layout()) == ([2, 3, 4], "NHW")
    assert batch.as_reshaped_tensor([4, 6]).shape() == [4, 6]
    np.testing.assert_array_equal(np.asarray(batch.at(1)), data[1])
    np.testing.assert_array_equal(batch.as_cpu().as_array(), data)
