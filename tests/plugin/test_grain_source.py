"""`plugin.grain.source`: records of readers by their numbers, as Grain reads them."""

import gc
import io
import pathlib
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from data_sets import READERS, SIZE, DataSets, nodes_in
from PIL import Image

import jaxdali
from jaxdali import fn, pipeline_def

grain = pytest.importorskip("grain")
flags = pytest.importorskip("absl.flags")
from jaxdali.plugin.grain import source  # noqa: E402

LISTED = [name for name in READERS if name != "source"]


@pytest.fixture(scope="module", autouse=True)
def parsed_flags():
    """Grain's worker processes read flags of absl, which programs parse."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory):
    return DataSets(str(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """PNG files of different sizes, which decoders return exactly."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(12):
        path = folder / f"class {i % 2}" / f"{i:02}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (5 + i % 3, 7, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    return folder


def files_in(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.rglob("*.png"))


def leaves(element: Any) -> list[np.ndarray]:
    """The arrays of an element, in the order of the reader's outputs."""
    return (
        list(element.values())
        if isinstance(element, dict)
        else list(element)
        if isinstance(element, tuple)
        else [element]
    )


def piped(name: str, arguments: dict[str, Any]) -> list[list[np.ndarray]]:
    """The records of a reader as a pipeline gives them."""

    @pipeline_def(batch_size=SIZE, num_threads=1, prefetch_queue_depth=1)
    def pipeline():
        return tuple(nodes_in(getattr(fn.readers, name)(**arguments)))

    pipe = pipeline()
    outputs = pipe.run()
    records = [[np.asarray(x.at(i)) for x in outputs] for i in range(SIZE)]
    pipe.close()
    return records


def assert_equal(got: Any, expected: list[np.ndarray]):
    assert len(leaves(got)) == len(expected)
    for a, b in zip(leaves(got), expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LISTED)
def test_elements_equal_a_pipelines(data_sets, name):
    arguments = data_sets(name)
    records = piped(name, arguments)
    elements = source(getattr(fn.readers, name)(**arguments))
    assert isinstance(elements, grain.sources.RandomAccessDataSource)
    assert len(elements) == SIZE
    order = np.random.default_rng(0).permutation(SIZE)
    for i in order:
        assert_equal(elements[i], records[i])
    assert_equal(elements[-1], records[-1])
    for i in (SIZE, -SIZE - 1, np.int64(SIZE)):
        with pytest.raises(IndexError, match=f"record {i} of {SIZE}"):
            elements[i]
    for wrong in (1.0, None, "a", slice(2)):
        for get in (elements.__getitem__, lambda i: elements._getitems([i])):
            with pytest.raises(TypeError, match=r"plugin.grain.source: a record has an integer as its number, got "):
                get(wrong)
    # Another process gets the arguments only, and opens the list again.
    pickled = pickle.dumps(elements)
    elements.close()
    for got, i in zip(pickle.loads(pickled)._getitems(order.tolist()), order.tolist(), strict=True):
        assert_equal(got, records[i])
    assert_equal(elements[3], records[3])  # after `close`
    elements.close()


def test_elements_have_the_given_structure(photos):
    files, labels = fn.readers.file(file_root=photos, metadata=None)
    elements = source({"image": fn.decoders.image(files), "raw": (labels, files)})
    for i, path in enumerate(files_in(photos)):
        element = elements[i]
        np.testing.assert_array_equal(element["image"], np.asarray(Image.open(path)))
        assert element["raw"][0].tolist() == [int(path.parent.name[-1])]
        assert element["raw"][1].tobytes() == path.read_bytes()
    elements[0]["raw"][0][:] = 77  # an element is the caller's
    assert elements[0]["raw"][0].tolist() == [0]
    elements.close()


def test_metadata_are_python_objects(photos):
    files, _, name = fn.readers.file(file_root=photos, metadata="filename")
    elements = source({"image": fn.decoders.image(files), "name": name})
    path = files_in(photos)[5]
    assert elements[5]["name"] == str(path)
    np.testing.assert_array_equal(elements[5]["image"], np.asarray(Image.open(path)))
    elements.close()


def test_repr_identifies_the_records(photos, tmp_path):
    program = (
        "import sys; from jaxdali import fn; from jaxdali.plugin.grain import source; "
        "print(source(fn.readers.file(files=sys.argv[1:])))"
    )
    paths = [str(path) for path in files_in(photos)]
    text = repr(source(fn.readers.file(files=paths)))
    other_process = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True)
    assert text == other_process.stdout.strip()
    assert str(photos) not in text
    assert text != repr(source(fn.readers.file(files=paths[::-1])))
    files, labels = fn.readers.file(files=paths)
    assert text != repr(source((fn.decoders.image(files), labels)))


def test_pickle_has_no_list(tmp_path):
    for i in range(2000):
        (tmp_path / f"a long name of a file {i}.jpg").write_bytes(b"x")
    elements = source(fn.readers.file(file_root=tmp_path.parent, dir_filters=tmp_path.name))
    assert len(elements) == 2000
    assert len(pickle.dumps(elements)) < 5000


def test_changed_files_are_found(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.jpg").write_bytes(b"x")
    elements = source(fn.readers.file(file_root=tmp_path))
    copy = pickle.loads(pickle.dumps(elements))
    (folder / "3.jpg").write_bytes(b"x")
    assert len(copy) == 3
    with pytest.raises(jaxdali.OperatorError, match=r"its records have changed .* 3 then, 4 now"):
        copy[0]


def test_errors_name_file_and_record(photos, tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path, original in zip(paths, files_in(photos)):
        path.write_bytes(original.read_bytes())
    files, _ = fn.readers.file(files=[str(path) for path in paths])
    raw, decoded = source(files), source(fn.decoders.image(files))
    paths[1].write_bytes(b"no image")
    paths[2].unlink()
    for elements, i, reason in ((raw, 2, "No such file"), (decoded, 2, "No such file"), (decoded, 1, "not an image")):
        with pytest.raises(jaxdali.SampleError, match=reason) as e:
            elements[i]
        assert str(paths[i]) in str(e.value)
        assert e.value.index == i
        assert pathlib.Path(__file__).name in e.value.where
    assert decoded[0].shape == (5, 7, 3)
    raw.close()
    decoded.close()


def refused(photos: pathlib.Path) -> dict[str, tuple[Any, str]]:
    """Arguments that `source` refuses: a function that makes each, and a part of the message."""
    files = lambda **arguments: fn.readers.file(file_root=photos, **arguments)
    cases: dict[str, tuple[Any, str]] = {
        f"{argument}": (
            lambda argument=argument, value=value: files(**{argument: value}),
            f"{argument}=.*Grain chooses",
        )
        for argument, value in {
            "random_shuffle": True,
            "shuffle_after_epoch": True,
            "shuffle": "global",
            "num_shards": 2,
            "stick_to_shard": True,
            "pad_last_batch": True,
            "initial_fill": 7,
            "seed": 5,
        }.items()
    }
    return cases | {
        "on_error": (lambda: files(on_error="skip"), "on_error='skip'"),
        "two readers": (lambda: (files()[0], files()[1]), "one reader, got readers.file .* and readers.file"),
        "no reader": (lambda: fn.constant(idata=[1]), "got no reader"),
        "external source": (
            lambda: fn.external_source(lambda i: np.zeros(1), batch=False),
            "external_source .* no list",
        ),
        "Python source": (lambda: fn.readers.source([1, 2]), "grain.MapDataset.source"),
        "packed source": (
            lambda: fn.readers.source([{"tokens": [1]}], lengths=[1], length=2, packing="first_fit")["tokens"],
            "its packing is for the iterators of jaxdali",
        ),
        "random": (lambda: fn.decoders.image_random_crop(files()[0]), "draws random numbers.*BatchTransform"),
        "array": (lambda: np.zeros(3), "takes what a reader .* got ndarray"),
    }


@pytest.mark.parametrize("case", refused(pathlib.Path()))
def test_refused_by_name(photos, case):
    make, message = refused(photos)[case]
    with pytest.raises((ValueError, TypeError), match=message) as e:
        source(make())
    assert pathlib.Path(__file__).name in str(e.value)


def test_nodes_of_a_pipeline_are_refused(photos):
    nodes = []

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline():
        nodes.append(fn.readers.file(file_root=photos))
        return tuple(nodes[0])

    pipeline().build()
    with pytest.raises(ValueError, match=r"readers.file is called in the definition of a pipeline"):
        source(nodes[0])


def test_missing_files_are_an_operators_error(tmp_path):
    with pytest.raises(jaxdali.OperatorError, match=r"readers.array_record .*nothing.array_record: No such file"):
        source(fn.readers.array_record(path=str(tmp_path / "nothing.array_record")))


def test_threads_read_at_once(photos, data_sets):
    files, labels = fn.readers.file(file_root=photos)
    decoded, raw = source((fn.decoders.image(files), labels)), source(fn.readers.webdataset(**data_sets("webdataset")))
    expected = [np.asarray(Image.open(path)) for path in files_in(photos)]
    members = [raw[i] for i in range(SIZE)]
    for elements, records in ((decoded, [(x,) for x in expected]), (raw, members)):
        order = np.random.default_rng(1).integers(0, len(elements), 200).tolist()
        with ThreadPoolExecutor(16) as threads:
            for i, element in zip(order, threads.map(elements.__getitem__, order), strict=True):
                np.testing.assert_array_equal(element[0], records[i][0])
        elements.close()


def loader(folder: pathlib.Path, worker_count: int, operations: Any = ()) -> Any:
    files, labels = fn.readers.file(file_root=folder)
    elements = source((fn.decoders.image(files), labels))
    sampler = grain.samplers.IndexSampler(
        len(elements), grain.sharding.ShardByJaxProcess(), shuffle=True, num_epochs=2, seed=3
    )
    return grain.DataLoader(data_source=elements, sampler=sampler, operations=operations, worker_count=worker_count)


def pixels(elements: Any) -> list[bytes]:
    return [np.asarray(image).tobytes() for image, label in elements]


def test_data_loader_reads_and_resumes(photos, tmp_path):
    everything = pixels(loader(photos, 0))
    expected = sorted(np.asarray(Image.open(path)).tobytes() for path in files_in(photos))
    assert sorted(everything) == sorted(2 * expected)
    iterator = iter(loader(photos, 0))
    assert pixels(next(iterator) for _ in range(5)) == everything[:5]
    state = iterator.get_state()
    resumed = iter(loader(photos, 0))  # of another source of the same files
    resumed.set_state(state)
    assert pixels(resumed) == everything[5:]
    (tmp_path / "a").mkdir()
    for i in range(12):
        (tmp_path / "a" / f"{i}.png").write_bytes(b"x")
    with pytest.raises(ValueError, match="DataSource in checkpoint does not match"):
        iter(loader(tmp_path, 0)).set_state(state)


def test_worker_processes_read_the_same(photos):
    """In the `DataLoader` and behind `mp_prefetch`."""
    everything = pixels(loader(photos, 0))
    assert pixels(loader(photos, 1)) == everything
    files, labels = fn.readers.file(file_root=photos)
    dataset = grain.MapDataset.source(source((files, labels))).seed(1).shuffle().to_iter_dataset()
    expected = [x.tobytes() for x, _ in dataset]
    got = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=1))
    assert [np.asarray(x).tobytes() for x, _ in got] == expected
    assert sorted(expected) == sorted(path.read_bytes() for path in files_in(photos))
    gc.collect()


def test_bytes_are_read_by_pillow(photos):
    files, _ = fn.readers.file(file_root=photos)
    data = source(files)[0]
    np.testing.assert_array_equal(Image.open(io.BytesIO(data)), Image.open(files_in(photos)[0]))
