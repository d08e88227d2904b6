"""readers.source: the items of data sets in Python, read here or by processes."""

import collections
import dataclasses
import datetime
import gc
import glob
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import counts
import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from map_style import Ends, Exits, Slow, Squares, Unloadable, Waits

from jaxdali import SampleError, fn, pipeline_def
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

PARTIAL = LastBatchPolicy.PARTIAL


def pipeline(dataset, batch_size=4, **arguments):
    @pipeline_def(batch_size=batch_size, num_threads=2, prefetch_queue_depth=1, seed=5)
    def definition():
        x = fn.readers.source(dataset, name="reader", **arguments)
        return tuple(x.values()) if isinstance(x, dict) else x

    return definition()


def rows(batch):
    return [tuple(np.asarray(x).tolist() for x in row) for row in zip(*batch)]


def left_over():
    """Shared memory that this process still maps, or has open."""
    gc.collect()
    open_files = [os.readlink(f) for f in glob.glob("/proc/self/fd/*") if os.path.lexists(f)]
    return [x for x in [*pathlib.Path("/proc/self/maps").read_text().splitlines(), *open_files] if "memfd:jaxdali" in x]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("order", [{}, {"shuffle": "global"}, {"random_shuffle": True}])
def test_processes_change_nothing(order, large):
    batches = []
    for workers in (0, 1, 3):
        pipe = pipeline(Squares(large=large), num_workers=workers, **order)
        batches.append([rows(pipe.run()) for _ in range(12)])
        pipe.close()
    assert batches[0] == batches[1] == batches[2]
    counts = collections.Counter(label for batch in batches[0][:10] for _, label, _ in batch)
    assert counts == dict.fromkeys((i * i for i in range(40)), 1)
    image, label, text = batches[0][0][0]
    i = int(label**0.5)
    assert np.array_equal(image, np.full((1 + i % 3, 6000 if large else 2, 3), i))
    assert bytes(text) == b"number %d" % i
    del pipe
    assert not left_over()


def test_forms_of_items():
    torch = pytest.importorskip("torch")
    items = [(np.float16([i, 2]), True, 0.5, b"\x00x", "ä", [1, 2, i], torch.full((2,), i)) for i in range(4)]
    pipe = pipeline(items)
    batch = pipe.run()
    expected = zip(
        *[
            [a, b, c, np.frombuffer(d, np.uint8), np.frombuffer(e.encode(), np.uint8), f, g.numpy()]
            for a, b, c, d, e, f, g in items
        ]
    )
    for output, column in zip(batch, expected):
        for x, y in zip(output, column):
            np.testing.assert_array_equal(np.asarray(x), y)
            assert np.asarray(x).dtype == np.asarray(y).dtype
    assert pipe.reader_meta("reader")["epoch_size"] == 4
    pipe.close()
    mapping = pipeline([collections.UserDict(a=i, b=b"x") for i in range(4)])
    assert np.asarray(mapping.run()[0].as_array()).tolist() == [0, 1, 2, 3]
    mapping.close()
    single = pipeline(list(range(8)))
    assert np.asarray(single.run()[0].as_array()).tolist() == [0, 1, 2, 3]
    single.close()


def test_arrays(tmp_path):
    np.save(tmp_path / "images.npy", np.random.default_rng(0).integers(0, 256, (10, 3, 4, 5), np.uint8))
    images = np.load(tmp_path / "images.npy", mmap_mode="r").transpose(0, 2, 3, 1)
    native = {"image": images, "label": [i * i for i in range(10)]}
    for columns in (native, native | {"weight": np.arange(10, dtype=">f4")[::-1]}):
        pipe = pipeline(columns, batch_size=5, shuffle="global", metadata=["index"], layout={"image": "HWC"})
        *outputs, index = pipe.run()
        for output, values in zip(outputs, columns.values(), strict=True):
            np.testing.assert_array_equal(output.as_array(), np.asarray(values)[[*index]])
        assert outputs[0].layout() == "HWC"
        assert sorted([*index, *pipe.run()[-1]]) == [*range(10)]
        pipe.close()


def test_arrays_of_a_zip_and_of_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    np.savez(tmp_path / "arrays.npz", x=np.arange(12).reshape(4, 3))
    weights = torch.arange(8.0, requires_grad=True).reshape(4, 2)
    rounded = weights.to(torch.bfloat16)
    with np.load(tmp_path / "arrays.npz") as arrays:
        pipe = pipeline(arrays, shape={"x": (None,)})
    assert [x.tolist() for x in map(np.asarray, pipe.run()[0])] == np.arange(12).reshape(4, 3).tolist()
    pipe.close()
    pipe = pipeline({"weight": weights, "rounded": rounded, "rows": [*weights], "number": range(4)})
    outputs = [np.asarray(x.as_array()).astype(np.float32).tolist() for x in pipe.run()]
    assert outputs == [weights.tolist(), weights.tolist(), weights.tolist(), [0, 1, 2, 3]]
    pipe.close()


def test_metadata_of_arrays_are_copies():
    notes = np.zeros((4, 2))
    pipe = pipeline({"x": np.arange(4), "note": notes}, metadata=["note"])
    for row in pipe.run()[1]:
        row += 1
    assert not notes.any()
    pipe.close()


def test_lists_beside_arrays():
    files, texts = [b"one\0", b"", b"three"], ["a", "bc", "d"]
    columns = {"file": files, "text": texts, "boxes": [np.zeros((n, 4)) for n in range(3)], "id": np.arange(3)}
    pipe = pipeline(columns, batch_size=3, metadata=["text"])
    file_bytes, boxes, numbers, captions = pipe.run()
    assert [bytes(np.asarray(x)) for x in file_bytes] == files
    assert [np.asarray(x).shape for x in boxes] == [(0, 4), (1, 4), (2, 4)]
    assert np.asarray(numbers.as_array()).tolist() == [0, 1, 2]
    assert [*captions] == texts
    pipe.close()


def test_shards_of_arrays():
    sharding = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec("batch"))

    @data_iterator(output_map=["x", "i"], reader_name="rows", sharding=sharding)
    def iterator(num_shards=1, shard_id=0):
        row = fn.readers.source(
            {"x": np.arange(24.0), "i": [*range(24)]},
            metadata=["i"],
            name="rows",
            shuffle="global",
            num_shards=num_shards,
            shard_id=shard_id,
        )
        return row["x"], row["i"]

    batches = iterator(batch_size=8, seed=3)
    first, state, second = next(batches), batches.get_state(), next(batches)
    third = next(batches)
    assert sorted(x for batch in (first, second, third) for x in batch["x"].tolist()) == [*range(24)]
    assert all(batch["x"].tolist() == [*batch["i"]] for batch in (first, second, third))
    batches.set_state(state)
    assert next(batches)["x"].tolist() == second["x"].tolist()


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        ({"x": np.zeros(3), "y": np.zeros(4)}, r"equally many rows, got \{'x': 3, 'y': 4\}"),
        ({"train": Squares()}, "key .train. has a Squares"),
        ({"x": "text"}, "key 'x' has a str"),
        ({"x": np.float32(3)}, "key 'x' has a float32"),
        ({}, "is empty"),
        ({"x": np.zeros((0, 3))}, "is empty"),
        (
            (np.zeros((5, 4, 4, 3), np.uint8), np.zeros(5, np.int32)),
            "a tuple of arrays with 5 rows each.*give a dictionary",
        ),
    ],
)
def test_wrong_arrays(dataset, reason):
    with pytest.raises((ValueError, TypeError), match=reason):
        pipeline(dataset)


def test_tables_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.5, 2.5, 3.5], "name": ["a", "b", "c"]})
    with pytest.raises(ValueError, match=r"a DataFrame has columns, not items, by its keys: dict\(frame\) gives them"):
        pipeline(frame)
    pipe = pipeline(dict(frame), batch_size=3, metadata=["name"])
    numbers, names = pipe.run()
    assert (numbers.as_array().tolist(), [*names]) == ([1.5, 2.5, 3.5], ["a", "b", "c"])
    pipe.close()


def test_processes_for_arrays():
    with pytest.raises(ValueError, match="num_workers is for data sets whose items take work in Python"):
        pipeline({"x": np.zeros(3)}, num_workers=2)


class Undecoded:
    """Grain's and Hugging Face's protocol: `__len__`, and `__getitem__` of NumPy's integers, too; images are bytes and
    a path.
    """

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return {"image": {"bytes": b"image%d" % i if i < 3 else None, "path": f"{i}.jpg"}, "label": int(i)}


def test_bytes_of_undecoded_images():
    pipe = pipeline(Undecoded())
    with pytest.raises(SampleError, match=r"key 'image' has no bytes, but the path '3\.jpg'.* fn\.io\.file\.read"):
        pipe.run()
    pipe.close()
    pipe = pipeline(Undecoded(), on_error="replace")
    assert [bytes(np.asarray(x)) for x in pipe.run()[0]] == [b"image0", b"image1", b"image2", b"image0"]
    pipe.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_lists_of_files(workers):
    torch = pytest.importorskip("torch")
    pictures = [
        [],
        [b"a", b"", b"long"],
        [{"bytes": b"png", "path": "x.png"}],
        [bytearray(b"ab"), memoryview(b"c")],
        [np.uint8([1, 2]), np.uint8([3])],
        [torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([3], dtype=torch.uint8)],
    ]
    pipe = pipeline([{"pictures": x} for x in pictures], layout={"pictures": "F*"}, num_workers=workers, batch_size=6)
    (out,) = pipe.run()
    assert out.layout() == "F*"
    assert [np.asarray(x).tolist() for x in out] == [
        [],
        [[97, 0, 0, 0], [0] * 4, [*b"long"]],
        [[*b"png"]],
        [[*b"ab"], [*b"c\0"]],
        [[1, 2], [3, 0]],
        [[1, 2], [3, 0]],
    ]
    pipe.close()


def test_data_sets_stay_out_of_files():
    pipe = pipeline(Squares())
    text = r"readers.source \(created at .*test_source.py:\d+\) can't be serialized: input 0: a Squares object of the program .*definition"
    with pytest.raises(ValueError, match=text):
        pipe.serialize()
    pipe.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_failing_items(workers):
    pipe = pipeline(Squares(bad=(6,)), num_workers=workers)
    pipe.run()
    with pytest.raises(
        SampleError, match=r"(?s)readers\.source.*Squares\[6\]: LookupError: nothing at 6.*map_style\.py.*in _fail"
    ):
        pipe.run()
    assert [label for _, label, _ in rows(pipe.run())] == [64, 81, 100, 121]
    pipe.close()
    pipe = pipeline(Squares(bad=(6,)), num_workers=workers, on_error="skip")
    assert [label for _ in range(2) for _, label, _ in rows(pipe.run())] == [0, 1, 4, 9, 16, 25, 49]
    assert [(b.file, b.count) for b in pipe.bad_samples()] == [("Squares[6]", 1)]
    pipe.close()


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([{"a": 1}, {"b": 1}], r"list\[1\]: it has the keys \('b',\), the first item has the keys \('a',\)"),
        ([(1, 2), (1,)], r"list\[1\]: it has 1 values, the first item has 2 values"),
        ([{"a": 1}, {"a": 1.5}], r"list\[1\]: key 'a' is 0-D float64, in the first item it is 0-D int64"),
        ([{"a": [1]}, {"a": [[1]]}], r"list\[1\]: key 'a' is 2-D int64"),
        ([1, None], r"list\[1\]: TypeError: it must be an array, a number, a string or bytes, got None: leave it out"),
        (
            [{"a": np.zeros((2, 2, 3), np.uint8)}, {"a": np.zeros((2, 2), np.uint8)}],
            r"key 'a' is 2-D uint8.*image\.convert\(\"RGB\"\)",
        ),
    ],
)
def test_items_of_different_forms(items, text):
    pipe = pipeline(items, batch_size=2)
    with pytest.raises(SampleError, match=text):
        pipe.run()
    pipe.close()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None: leave it out"),
        ({"box": 1}, r"a dictionary with the keys \['box'\]: flatten it"),
        ([{"box": 1}], "a list of dictionaries: flatten it"),
        ([[1], [2, 3]], "entries differ in length"),
        (["a", "b"], "several strings"),
        (np.datetime64("2026-01-01"), "a date or time"),
        (datetime.date(2026, 1, 1), "a date or time"),
        (1j, "complex of dtype complex128"),
        (np.void(b"abc"), r"void of dtype \|V3: convert it"),
        (np.ones(3, np.longdouble), "ndarray of dtype float"),
    ],
)
def test_values_without_an_array(value, text):
    with pytest.raises(
        RuntimeError, match=rf"key 'k' must be an array.*got .*{text}.*; metadata=\['k'\] gives it as it is"
    ):
        pipeline([{"x": 1, "k": value}])
    with pytest.raises(
        RuntimeError, match=rf"value 1 must be an array.*got .*{text}.*; metadata=\[...\], for items that are dict"
    ):
        pipeline([(1, value)])
    pipe = pipeline([{"x": 1, "k": value}] * 4, metadata=["k"])
    assert pipe.run()[1] == [value] * 4
    pipe.close()


def test_tensors():
    torch = pytest.importorskip("torch")
    numbers = torch.arange(6.0).reshape(2, 3)
    sparse = pytest.raises(RuntimeError, match=r"key 'x' is a sparse tensor: x\.to_dense\(\)")
    with sparse:
        pipeline([{"x": numbers.to_sparse()}])
    for workers in (0, 1):
        items = [
            (
                numbers.clone().requires_grad_(),
                numbers.to(torch.bfloat16).T,
                [torch.tensor(1.0, requires_grad=True)] * 2,
            )
        ] * 4
        pipe = pipeline(items, num_workers=workers)
        for x, expected in zip(
            pipe.run(), (numbers.numpy(), numbers.numpy().T.astype("bfloat16"), np.ones(2, np.float32)), strict=True
        ):
            assert np.asarray(x[0]).dtype == expected.dtype
            np.testing.assert_array_equal(np.asarray(x[0]), expected)
        pipe.close()


class Endless:
    def __len__(self):
        return 1 << 63

    def __getitem__(self, i):
        return i


def test_wrong_arguments():
    for dataset, arguments, text in (
        (3, {}, r"needs __len__ and __getitem__, which a int does not have \(called"),
        ((i for i in range(3)), {}, "which a generator does not have; fn.external_source takes iterables"),
        ("labels.csv", {}, r"a str is no data set; .* dict\(pandas\.read_csv\(name\)\)"),
        ({"train": Undecoded()}, {}, r"give one of them, dataset\['train'\]"),
        ([], {}, "is empty"),
        (Endless(), {}, "the length of the data set Endless is wrong: cannot fit 'int' into an index-sized integer"),
        ([1], {"layout": "HW"}, "describes 2 dimensions, the value has 0"),
        ([np.zeros((2, 3))], {"shape": (2, 4)}, r"shape \(2, 4\) does not fit"),
        ([(1, 2)], {"layout": "H"}, "the items have 2 values: layout must be a list of 2"),
        ([{"a": 1}], {"layout": {"b": "H"}}, r"layout has the keys \['b'\]"),
        ([1, 2], {"weights": [1.0]}, "weights is for a sequence of data sets"),
        ([object()], {}, "item 0 .*can't be read: TypeError"),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=rf"readers\.source.*{text}"):
            pipeline(dataset, **arguments).run()
    pipe = pipeline([lambda: 1, 2][1:] * 4, num_workers=1)
    pipe.close()


def test_shape_and_layout_reach_the_program():
    pipe = pipeline([np.full((4, 6, 3), i, np.uint8) for i in range(4)], layout="HWC", shape=(None, None, 3))
    (out,) = pipe.run()
    assert (out.layout(), out.as_array().shape) == ("HWC", (4, 4, 6, 3))
    pipe.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_weights_mix_data_sets(workers):
    pipe = pipeline([list(range(6)), list(range(100, 112))], weights=(1, 1), batch_size=8, num_workers=workers)
    items = [int(np.asarray(x)) for _ in range(3) for x in pipe.run()[0]]
    assert sorted(x for x in items if x >= 100) == list(range(100, 112))
    assert sum(x < 100 for x in items) == 12
    pipe.close()


def test_unpicklable_data_sets(monkeypatch):
    data: Any = Squares()
    for data.f, packages, text in (
        (
            threading.Lock(),
            {},
            "it can't be: TypeError: cannot pickle '_thread.lock' object; leave out in __getstate__",
        ),
        (threading.Lock(), {"cloudpickle": None}, "cannot pickle '_thread.lock' object; leave out in __getstate__"),
        (
            lambda: 1,
            {"cloudpickle": None},
            "it can't be: .*lambda.*; define its class and functions in a module .*, or pip install cloud",
        ),
    ):
        for name, module in packages.items():
            monkeypatch.setitem(sys.modules, name, module)
        pipe = pipeline(data, num_workers=2)
        for _ in range(2):
            with pytest.raises(
                RuntimeError,
                match=rf"(?s)num_workers=2 needs the data set Squares to be pickled.*{text}.*readers\.source",
            ):
                pipe.run()
        pipe.close()


def test_closures_and_classes_of_functions():
    pytest.importorskip("cloudpickle")
    offset = 100

    @dataclasses.dataclass
    class Note:
        number: int

    class Local(Squares):
        def __getitem__(self, i):
            return {"x": (lambda: i + offset)(), "note": Note(i)}

    pipe = pipeline(Local(), num_workers=2, metadata=["note"])
    x, notes = pipe.run()
    assert np.asarray(x.as_array()).tolist() == [100, 101, 102, 103]
    assert notes == [Note(i) for i in range(4)]  # of this process's class
    pipe.close()


TYPED = """
import sys, traceback
import numpy as np
from jaxdali import fn, pipeline_def
sys.modules.update({packages})

if __name__ == "__main__":  # so that the class is not there in a process that imports the script
    class Typed:
        def __len__(self):
            return 8
        def __getitem__(self, i):
            return np.int32(i * i)

    @pipeline_def(batch_size=4, num_threads=1)
    def definition():
        return fn.readers.source(Typed(), num_workers=1)

    try:
        print(np.asarray(definition().run()[0].as_array()).tolist())
    except RuntimeError as e:
        print(" ".join("".join(traceback.format_exception_only(e)).split()))
"""


@pytest.mark.parametrize(("form", "installed"), [("file", True), ("-", True), ("-c", False)])
def test_classes_of_an_interpreter(tmp_path, form, installed):
    script = TYPED.format(packages={} if installed else {"cloudpickle": None})
    (tmp_path / "script.py").write_text(script)
    command = {"file": [str(tmp_path / "script.py")], "-": ["-"], "-c": ["-c", script]}[form]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(fn.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, *command], input=script, capture_output=True, text=True, timeout=300, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    if installed:
        pytest.importorskip("cloudpickle")
        assert done.stdout == "[0, 1, 4, 9]\n"
    else:
        advice = "define its class and functions in a module that is imported, or pip install cloudpickle"
        assert f"the data set Typed can't be loaded in another process, for num_workers=1 ({advice}): " in done.stdout
        assert re.search(r"AttributeError: .*'Typed'.* in readers\.source \(created at .*:\d+\)", done.stdout)


def test_processes_without_a_start(caplog):
    pipe = pipeline(Unloadable(), num_workers=3)
    for _ in range(3):
        with pytest.raises(
            RuntimeError,
            match=r"(?s)the data set Unloadable can't be loaded in another process.*no such disk.*readers\.s",
        ):
            pipe.run()
    assert not multiprocessing.active_children()  # nothing tries again
    pipe.close()
    assert caplog.messages == []


@pytest.mark.parametrize("wait", [0.0, 0.05, 0.2, 2.0])
def test_close_during_the_start_of_processes(wait, caplog):
    pipe = pipeline(Slow(), num_workers=3)
    pipe.build()
    errors = []

    def run():
        try:
            pipe.run()
        except RuntimeError as e:
            errors.append(str(e))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(wait)
    pipe.close()
    thread.join(20)
    assert "closed" in errors[0]
    assert not multiprocessing.active_children()
    assert caplog.messages == []


def test_killed_processes_are_named():
    pipe = pipeline(Ends(), num_workers=2, batch_size=2)
    with pytest.raises(
        RuntimeError,
        match=r"a process that reads the data set Ends \(num_workers=2\) ended by SIGKILL.*while it read item",
    ):
        _ = [pipe.run() for _ in range(4)]
    pipe.close()
    assert not left_over()


def test_shards_resume_and_masks():
    @data_iterator(output_map=["x"], reader_name="reader", last_batch_policy=PARTIAL, mask_name="mask")
    def iterator(num_shards=1, shard_id=0):
        return fn.readers.source(
            list(range(21)), num_workers=1, name="reader", shuffle="global", num_shards=num_shards, shard_id=shard_id
        )

    def read_items(it, n=100):
        items = []
        for _, batch in zip(range(n), it):
            items += np.ravel(batch["x"])[np.ravel(batch["mask"])].tolist()
        return items

    with iterator(batch_size=4, seed=3) as it:
        whole = read_items(it)
    assert sorted(whole) == list(range(21))
    with iterator(batch_size=4, seed=3) as it:
        first = read_items(it, 2)
        state = it.get_state()
    with iterator(batch_size=4, seed=3) as it:
        it.set_state(state)
        assert first + read_items(it) == whole


SCRIPT = """
import sys, time
import numpy as np
from jaxdali import fn, pipeline_def
sys.path.insert(0, {folder!r})
from items import Items

if __name__ == "__main__":
    @pipeline_def(batch_size=4, num_threads=1)
    def definition():
        return fn.readers.source(Items(), num_workers=2)

    pipe = definition()
    print(np.asarray(pipe.run()[0].as_array()).sum())
"""
ITEMS = """
import sys
import numpy as np

class Items:
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return np.full(50_000, "jax" in sys.modules)  # whether the process has imported JAX
"""


@pytest.mark.parametrize("as_file", [False, True])
def test_processes_import_no_jax_and_end(tmp_path, as_file):
    (tmp_path / "items.py").write_text(ITEMS)
    script = SCRIPT.format(folder=str(tmp_path))
    if as_file:  # whose imports, JAX's too, each process repeats
        (tmp_path / "script.py").write_text(script)
    command = [str(tmp_path / "script.py")] if as_file else ["-c", script]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(pathlib.Path(fn.__file__).parents[2]), str(tmp_path)]),
    }
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "200000" if as_file else "0", "")
    assert counts.until(lambda: not [p for p in glob.glob("/proc/[0-9]*/cmdline") if str(tmp_path) in _text(p)])


def test_closed_processes_end_by_themselves(tmp_path):
    pipe = pipeline(Exits(tmp_path), num_workers=2, batch_size=2)
    pipe.run()
    pipe.close()
    assert list(tmp_path.iterdir())


def test_close_does_not_wait_for_an_item(caplog):
    pipe = pipeline(Waits(), num_workers=2)
    pipe.build()
    ended, processes = [], counts.processes()

    def run():
        with pytest.raises(RuntimeError, match="closed"):
            pipe.run()
        ended.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    assert counts.until(lambda: len(processes()) == 2, 60)
    time.sleep(1)
    begun = time.monotonic()
    pipe.close()
    assert time.monotonic() - begun < 20  # an item takes 100
    thread.join(20)
    assert (ended, caplog.messages, processes()) == ([True], [], [])


def _text(path):
    try:
        return pathlib.Path(path).read_bytes().decode("latin-1")
    except OSError:
        return ""


def test_nothing_is_left_when_it_is_collected():
    pipe = pipeline(Squares(large=True), num_workers=2)
    pipe.run()
    assert counts.until(left_over)  # what is read ahead
    del pipe
    assert not left_over()


ENDLESS = """
import numpy as np
from jaxdali import fn, pipeline_def
from items import Items

@pipeline_def(batch_size=4, num_threads=1)
def definition():
    return fn.readers.source(Items(), num_workers=2)

pipe = definition()
while True:
    pipe.run()
    print("a batch", flush=True)
"""


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_script_leaves_nothing(tmp_path, by):
    (tmp_path / "items.py").write_text(ITEMS)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(pathlib.Path(fn.__file__).parents[2]), str(tmp_path)]),
    }
    files_before = {*os.listdir("/dev/shm")}
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, env=environment) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == b"a batch\n"
        children = [
            c for t in glob.glob(f"/proc/{script.pid}/task/*/children") for c in pathlib.Path(t).read_text().split()
        ]
        assert children
        script.send_signal(by)
    assert counts.until(lambda: not any(os.path.exists(f"/proc/{c}") for c in children))
    assert not [name for name in {*os.listdir("/dev/shm")} - files_before if name.startswith(f"jaxdali-{script.pid}")]


def grouped(lengths, num_shards=1, **arguments):
    """Iterators over items that are their own numbers, in batches of 8 of similar lengths."""

    @data_iterator(output_map=["x"], reader_name="r")
    def define(num_shards=1, shard_id=0):
        order = {
            "shuffle": "global",
            "pad_last_batch": True,
            "num_shards": num_shards,
            "shard_id": shard_id,
        } | arguments
        return fn.readers.source(
            list(range(len(lengths))), lengths=lengths, group_by_length=8, name="r", seed=3, **order
        )

    return define(batch_size=8)


def batches_of(iterator):
    return [np.asarray(batch["x"]).reshape(-1).tolist() for batch in iterator]


def test_batches_of_similar_lengths_waste_little_padding():
    """Every item once in an epoch, in new batches each time; a checkpoint goes on in the middle."""
    rng = np.random.default_rng(1)
    lengths = rng.lognormal(5, 0.7, 2000).astype(np.int64) + 1

    def waste(batches):
        padded = sum(len(b) * lengths[b].max() for b in batches)
        return 1 - sum(lengths[b].sum() for b in batches) / padded

    iterator = grouped(lengths)
    first = batches_of(iterator)
    iterator.reset()
    second = batches_of(iterator)
    for epoch in (first, second):
        assert sorted(i for batch in epoch for i in batch) == list(range(2000))
        assert waste(epoch) < 0.1 < 0.4 < waste(rng.permutation(2000).reshape(-1, 8).tolist())
        means = [lengths[b].mean() for b in epoch]
        # Batches come in random order, not short ones first.
        assert abs(np.corrcoef(means[:50], np.arange(50))[0, 1]) < 0.4
    assert {frozenset(b) for b in first} != {frozenset(b) for b in second}
    iterator.reset()
    first_batches = [np.asarray(next(iterator)["x"]).reshape(-1).tolist() for _ in range(70)]
    state = iterator.get_state()
    last_batches = batches_of(iterator)
    resumed = grouped(lengths)
    resumed.set_state(state)
    assert batches_of(resumed) == last_batches
    assert sorted(i for batch in first_batches + last_batches for i in batch) == list(range(2000))
    with pytest.raises(RuntimeError, match="in the checkpoint"):
        grouped(lengths[::-1].copy()).set_state(state)


@pytest.mark.parametrize("order", [{"shuffle": "global"}, {"random_shuffle": True}, {}])
def test_shards_of_similar_lengths_have_all_items(order):
    lengths = np.arange(100) % 13
    items = []
    for shard in range(3):

        @pipeline_def(batch_size=1, num_threads=1)
        def define(shard):
            arguments = {"num_shards": 3, "shard_id": shard, "seed": 5, **order}
            return fn.readers.source(list(range(100)), lengths=lengths, group_by_length=4, **arguments)

        pipe = define(shard)
        size = 100 * (shard + 1) // 3 - 100 * shard // 3
        shard_items = [np.asarray(pipe.run()[0][0]).item() for _ in range(size)]
        runs = [lengths[shard_items[k : k + 4]] for k in range(0, size - 3, 4)]
        assert np.mean([np.ptp(r) for r in runs]) < 3
        items += shard_items
    assert sorted(items) == list(range(100))


def test_lengths_are_one_for_each_item():
    for arguments, message in [
        ({"lengths": [1, 2]}, "given together"),
        ({"group_by_length": 2}, "given together"),
        ({"lengths": [1, 2], "group_by_length": 2}, "each of the 3 items"),
        ({"lengths": [1, 2, 3], "group_by_length": True}, "must be a whole number at least 0, got True"),
    ]:
        with pytest.raises(ValueError, match=rf"readers\.source: .*{message}"):
            pipeline_def(lambda: fn.readers.source([1, 2, 3], **arguments))(batch_size=1).build()  # noqa: B023


@pytest.mark.parametrize(("align", "warns"), [(16, False), (1, True)])
def test_aligned_padding_is_not_warned_of(align, warns):
    """Few shapes are what `align` is for."""

    @data_iterator(output_map=["x"], reader_name="r")
    def define():
        items = [np.zeros(n, np.float32) for n in range(1, 60)]
        return fn.pad(fn.readers.source(items, name="r"), axes=[0], align=align)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        shapes = {batch["x"].shape[1] for batch in define(batch_size=4)}
    assert len(shapes) > 3
    assert any("few shapes: fn.pad(x, align=64)" in str(w.message) for w in caught) == warns
