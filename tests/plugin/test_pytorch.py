"""The iterators for PyTorch: epochs, memory, types, errors."""

import contextlib
import ctypes
import functools
import importlib
import json
import os
import subprocess
import sys
import types as python_types
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import places
import pytest
from epochs import EPOCHS_IN_TORCH
from PIL import Image

from jaxdali import backend_impl, fn, pipeline_def, types
from jaxdali.backend import TensorCPU, TensorGPU, TensorListCPU
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import fn as jax_fn

torch = pytest.importorskip("torch")

from jaxdali.plugin.pytorch import (  # noqa: E402 - it needs torch
    DALIClassificationIterator,
    DALIGenericIterator,
    _iterator,
    _memory,
    feed_ndarray,
    torch_utils,
)

LINE = r"\(created at .*test_pytorch\.py:\d+\)"


@pipeline_def(batch_size=2, num_threads=1)
def numbers(files, num_shards=1, shard_id=0, pad=False):
    data, labels = fn.readers.file(
        files=files, name="reader", num_shards=num_shards, shard_id=shard_id, pad_last_batch=pad
    )
    return data, labels


@pipeline_def(batch_size=2, num_threads=1)
def supplied(source, define=lambda x: x, cycle=None):
    """A pipeline that applies `define` to the batches of a source."""
    return define(fn.external_source(source=source, cycle=cycle))


def counted(i):
    """Batch `i`, with rows that are large enough for a buffer of their own."""
    return np.arange(2 * 1000, dtype=np.float32).reshape(2, 10, 100) + 10_000 * i


def pictures(i):
    return counted(i).reshape(2, 10, 20, 5)


def text(epoch):
    """The samples of an epoch as text, ``"12|45 3|67"``: spaces between batches, bars between pipelines."""
    return " ".join("|".join("".join(str(x) for x in d["data"].flatten().tolist()) for d in batch) for batch in epoch)


@pytest.mark.parametrize(("shards", "policy", "pad", "sized_by", "want"), EPOCHS_IN_TORCH)
def test_seven_samples_in_batches_of_two(files, shards, policy, pad, sized_by, want):
    pipes = [numbers(files[:7], shards, i, pad) for i in range(shards)]
    counted_by = {"reader_name": "reader"} if sized_by == "reader" else {"size": 7, "last_batch_padded": pad}
    with pytest.warns(UserWarning, match="reader_name") if sized_by == "size" else contextlib.nullcontext():
        it = DALIClassificationIterator(pipes, **counted_by, last_batch_policy=LastBatchPolicy[policy])
    with it:
        lengths, texts = [], []
        for _ in range(3):
            lengths.append(len(it))
            texts.append(text(it))
            it.reset()
    assert texts == want
    if sized_by == "reader" or policy != "FILL":
        assert lengths == [len(epoch.split()) for epoch in want]


def test_a_batch_is_a_list_of_dicts(files):
    with DALIClassificationIterator(numbers(files, pad=True), reader_name="reader", auto_reset=True) as it:
        (batch,) = it.next()
        assert list(batch) == ["data", "label"]
        assert (batch["label"].dtype, batch["label"].shape) == (torch.int32, (2, 1))
        assert (len(it), it.size, it.batch_size) == (16, 32, 2)
        assert sum(1 for _ in it) == 15
        assert [b[0]["label"][0].item() for b in it] == list(range(0, 32, 2))


def test_built_pipeline(files):
    pipe = numbers(files[:4])
    pipe.build()
    assert pipe.epoch_size("reader") == 4
    with DALIClassificationIterator(pipe, reader_name="reader") as it:
        assert text(it) == "12 34"
    with pytest.raises(RuntimeError, match="in use already"):
        DALIClassificationIterator(pipe, reader_name="reader")


def test_end_of_a_source(files):
    """Batches may be short only at the end of a source."""
    batches = [np.array([1, 2], np.int32), np.array([3], np.int32)]
    with DALIGenericIterator(supplied(batches, cycle="raise"), ["x"]) as it:
        assert [[b[0]["x"].tolist() for b in it] for _ in range(2)] == [[[1, 2], [3]]] * 2
        assert (len(it), it.size) == (0, -1)
    with DALIGenericIterator(supplied(batches, cycle="raise"), ["x"], size=3) as it:
        next(it)
        with pytest.raises(ValueError, match="gave 1 of 2 samples"):
            next(it)


# --- memory ---------------------------------------------------------------------------------------------------------


def outputs_of_all_kinds(x):
    doubled = x * 2  # in the program; x itself is made on the host
    resized = fn.resize(x, size=(5, 5))  # of static shape: the array is the program's own
    compiled = jax_fn.jax_function(lambda x: x + 1)(doubled)  # for each shape there is
    return x, doubled, resized, compiled, fn.cast(doubled, dtype=types.FLOAT64), fn.random.uniform(range=(0.0, 1.0))


@pytest.mark.parametrize(
    ("define", "outputs"), [(outputs_of_all_kinds, 6), (lambda x: x, 1)], ids=["programs", "no program"]
)
def test_tensors_share_memory_of_arrays(define, outputs, monkeypatch):
    arrays = []
    convert = _iterator._TensorMaker.__call__
    monkeypatch.setattr(
        _iterator._TensorMaker,
        "__call__",
        lambda self, graph, outputs_of_batch: arrays.append(outputs_of_batch) or convert(self, graph, outputs_of_batch),
    )
    with DALIGenericIterator(supplied(pictures, define), list("abcdef")[:outputs]) as it:
        for i in range(3):
            (batch,) = next(it)
            assert [t.data_ptr() for t in batch.values()] == [a.unsafe_buffer_pointer() for a in arrays[i]]


def test_tensors_may_be_kept_and_changed():
    """Memory is reused only when nothing refers to it, and changes of a tensor affect no other one."""
    with DALIGenericIterator(supplied(counted, lambda x: (x, x * 2, x)), ["x", "doubled", "again"]) as it:
        batches = []
        for i in range(12):
            (batch,) = next(it)
            for t in batch.values():
                t.add_(0.25)  # changes the batch that is the last one at this time
            batches.append(batch)
            if i % 4 == 3:
                batches[i - 1] = None
    del it
    for i, batch in enumerate(batches):
        if batch is not None:
            for name, factor in (("x", 1), ("doubled", 2), ("again", 1)):
                np.testing.assert_array_equal(batch[name].numpy(), factor * counted(i) + np.float32(0.25))
            assert len({t.data_ptr() for t in batch.values()}) == 3


def test_arrays_of_user_functions_stay():
    table = jnp.zeros((2, 3), jnp.float32)
    inputs = []

    @jax_fn.jax_function(jit=False)
    def constant(x):
        inputs.append(x)
        return table

    with DALIGenericIterator(
        supplied(counted, lambda x: (constant(x * 2), x * 2, fn.cast(x, dtype=types.FLOAT))), list("abc")
    ) as it:
        for _ in range(3):
            for t in next(it)[0].values():
                t.fill_(7)
    assert not table.any()
    for i, x in enumerate(inputs):
        np.testing.assert_array_equal(x, 2 * counted(i))


def test_arrays_stay_when_compilation_ends():
    """A function is compiled until a new shape shows that a variable of it has changed; then its arrays are its own."""
    tables = [jnp.full((2, n), 7.0, jnp.float32) for n in (3, 4, 5)]
    lengths, state = (3, 4, 3, 3, 3, 3, 5, 3, 4, 5), {"shared": False}

    @jax_fn.jax_function
    def look_up(x):
        table = tables[x.shape[1] - 3]
        return table if state["shared"] else table * 1

    def source():
        for i, n in enumerate(lengths):
            state["shared"] = i >= 4  # the batches of the first two shapes are complete then
            yield np.ones((2, n), np.float32)

    with DALIGenericIterator(
        supplied(source, look_up, prefetch_queue_depth=1), ["x"], dynamic_shape=True, prepare_first_batch=False
    ) as it:
        for n in lengths:
            (batch,) = next(it)
            assert (batch["x"] == torch.full((2, n), 7.0)).all()
            batch["x"].zero_()
    assert all((table == 7).all() for table in tables)


def test_gpu_tensors_outlive_queued_kernels(monkeypatch):
    events = []

    def record_event():
        events.append(python_types.SimpleNamespace(done=False))
        events[-1].query = lambda e=events[-1]: e.done
        return events[-1]

    stream = python_types.SimpleNamespace(record_event=record_event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    keeper = _iterator._TensorKeeper(torch.device("cuda:0"))

    def held_tensors():
        return sorted(x for _, arrays in keeper._waiting for x in arrays) + keeper._last_batch

    for i in range(3):
        keeper.add(f"array {i}")  # pyright: ignore[reportArgumentType]
        keeper.end_batch()
    assert held_tensors() == ["array 0", "array 1", "array 2"]
    assert len(events) == 2  # the user may still queue something that reads the last batch
    events[0].done = True
    keeper.end_batch()
    assert held_tensors() == ["array 1", "array 2"]
    for e in events:
        e.done = True
    keeper.end_batch()
    assert not held_tensors()


# --- types ----------------------------------------------------------------------------------------------------------

DTYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split()


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", DTYPES)
def test_types_stay(name, x64):
    data = np.array([[0, 1], [3, 200]]).astype(name)
    with (
        jax.enable_x64(x64),
        DALIGenericIterator(supplied(lambda: data, lambda x: (x, x.gpu())), ["host", "program"]) as it,
    ):
        for t in next(it)[0].values():
            assert t.dtype == getattr(torch, name)
            np.testing.assert_array_equal(t.numpy(), data)


def test_bfloat16():
    with DALIGenericIterator(supplied(counted, jax_fn.jax_function(lambda x: x.astype(jnp.bfloat16))), ["x"]) as it:
        t = next(it)[0]["x"]
    assert t.dtype == torch.bfloat16
    assert torch.equal(t, torch.from_numpy(counted(0)).to(torch.bfloat16))


def test_unsupported_type():
    define = jax_fn.jax_function(lambda x: x.astype(jnp.int4))
    with pytest.raises(
        TypeError, match=rf"jax_function {LINE}: output 'x' is of type int4, which PyTorch .* does not support"
    ):
        DALIGenericIterator(supplied(counted, define), ["x"])


# --- shapes ---------------------------------------------------------------------------------------------------------


def growing(i):
    return np.zeros((2, min(i, 1) + 1, 3), np.uint8)


def test_static_shapes():
    with DALIGenericIterator(supplied(growing), ["x"]) as it:
        next(it)
        for _ in range(2):  # the shape of the first batch must stay
            with pytest.raises(
                RuntimeError,
                match=rf"external_source {LINE}.* output 'x' had the shape \(1, 3\) .* now it is \(2, 3\).*dynamic",
            ):
                next(it)


def test_dynamic_shapes():
    with DALIGenericIterator(supplied(growing), ["x"], dynamic_shape=True) as it:
        assert [tuple(next(it)[0]["x"].shape) for _ in range(3)] == [(2, 1, 3), (2, 2, 3), (2, 2, 3)]


def test_ragged_samples_are_refused():
    def ragged():
        return [np.zeros((1, 3), np.uint8), np.zeros((2, 3), np.uint8)]

    with pytest.raises(RuntimeError, match=rf"external_source {LINE}: the samples of output 0 .* differ in shape"):
        DALIGenericIterator(supplied(ragged), ["x"], dynamic_shape=True)


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DALIGenericIterator, DALIClassificationIterator])
@pytest.mark.parametrize(("fill", "want"), [(False, "12 3"), (True, "12 31")])
def test_fill_last_batch(files, kind, fill, want):
    names = [["data", "label"]] if kind is DALIGenericIterator else []
    with pytest.warns() as warned:
        it = kind(numbers(files[:3]), *names, size=3, fill_last_batch=fill, last_batch_policy=LastBatchPolicy.DROP)
    (ours,) = [w for w in warned if w.category is DeprecationWarning]
    assert "use last_batch_policy" in str(ours.message)
    assert ours.filename == __file__
    with it:
        assert text(it) == want


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"output_map": ["x"]}, IndexError, "1 names, .*has 2 outputs"),
        ({"output_map": ["x", "y", "z"]}, Exception, "3 names"),
        ({"output_map": ["x", "x"]}, ValueError, "distinct"),
        ({"pipelines": None}, ValueError, "at least one pipeline"),
        ({"last_batch_policy": "FILL"}, ValueError, "LastBatchPolicy"),
        ({"auto_reset": 1}, ValueError, "auto_reset"),
        ({"size": 0, "reader_name": None}, ValueError, "size"),
        ({"size": 3}, ValueError, "can't be given together"),
        ({"reader_name": "nobody"}, RuntimeError, "no reader named 'nobody'"),
    ],
)
def test_wrong_arguments(files, options, error, message):
    arguments = {"pipelines": numbers(files), "output_map": ["x", "y"], "reader_name": "reader", **options}
    with pytest.raises(error, match=message):
        DALIGenericIterator(**arguments)


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "jaxdali.plugin.pytorch")
    with pytest.raises(ImportError, match=r"pip install jaxdali\[torch\]"):
        importlib.import_module("jaxdali.plugin.pytorch")


# --- state ----------------------------------------------------------------------------------------------------------


def test_state(files):
    def make() -> Iterator:
        return DALIClassificationIterator(
            [numbers(files[:7], 2, i, pad=True) for i in range(2)], reader_name="reader", auto_reset=True
        )

    with make() as it, make() as resumed:
        next(it)
        resumed.set_state(json.loads(json.dumps(it.get_state())))
        for _ in range(3):
            assert text(it) == text(resumed)


@pytest.mark.parametrize("policy", ["FILL", "PARTIAL"])
def test_the_warning_of_the_first_state(files, policy):
    """Without padding, batches that are cut at the end of an epoch have read samples of the next one."""

    def make(shards) -> Iterator:
        pipes = [numbers(files[:7], shards, i, seed=1) for i in range(shards)]
        return DALIClassificationIterator(
            pipes, reader_name="reader", auto_reset=True, last_batch_policy=LastBatchPolicy[policy]
        )

    with make(2) as it, make(1) as one_shard:
        for _ in it:
            pass
        with pytest.warns(
            UserWarning,
            match="with last_batch_policy=PARTIAL and without padding, a state that is taken after the first",
        ):
            state = it.get_state()
        with pytest.raises(RuntimeError, match=r"can't be divided.*restart_epoch=True"):
            one_shard.set_state(state)
        one_shard.set_state(state, restart_epoch=True)
        assert sorted(int(x) for batch in one_shard for x in batch[0]["label"]) == sorted(range(7))


# --- feed_ndarray ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TensorCPU, TensorGPU])
@pytest.mark.parametrize("stream", [None, 0])
@pytest.mark.parametrize("name", ["uint8", "float32", "bfloat16"])
def test_feed_ndarray(kind, stream, name):
    data = jnp.arange(6, dtype=name).reshape(2, 3)
    source = kind(data if kind is TensorGPU else np.asarray(data))
    for target in (torch.zeros((2, 3), dtype=getattr(torch, name)), torch.zeros((3, 2), dtype=getattr(torch, name)).T):
        assert feed_ndarray(source, target, cuda_stream=stream) is target
        assert target.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert data.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_feed_ndarray_of_a_pipeline():
    outputs = supplied(counted).run()
    target = torch.zeros(2, 10, 100, requires_grad=True)
    feed_ndarray(outputs[0].as_tensor(), target)
    np.testing.assert_array_equal(target.detach().numpy(), counted(0))


@pytest.mark.parametrize(
    ("source", "target", "error", "message"),
    [
        (
            TensorListCPU(np.zeros((2, 3), np.uint8)),
            torch.zeros((2, 3), dtype=torch.uint8),
            TypeError,
            "TensorListCPU; use as_tensor",
        ),
        (TensorCPU(np.zeros((2, 3), np.uint8)), np.zeros((2, 3), np.uint8), TypeError, "torch.Tensor, got ndarray"),
        (
            TensorCPU(np.zeros((2, 3), np.uint8)),
            torch.zeros((3, 2), dtype=torch.uint8),
            ValueError,
            r"\(2, 3\) .* \(3, 2\)",
        ),
        (TensorCPU(np.zeros((2, 3), np.uint8)), torch.zeros((2, 3)), TypeError, "uint8 .* torch.float32"),
    ],
)
def test_feed_ndarray_refuses(source, target, error, message):
    with pytest.raises(error, match=message):
        feed_ndarray(source, target)


def test_copies_of_feed_ndarray():
    """Many programs have a copy of an older `feed_ndarray` of DALI, with names of its modules."""
    assert backend_impl.TensorGPU is TensorGPU
    assert backend_impl.TensorListCPU is TensorListCPU
    for tensor in (x.as_tensor() for x in supplied(counted, define=lambda x: (x, x.gpu())).run()):
        target = torch.zeros(tensor.shape())
        address = ctypes.c_void_p(target.data_ptr())
        if isinstance(tensor, (backend_impl.TensorGPU, backend_impl.TensorListGPU)):
            tensor.copy_to_external(address, types._raw_cuda_stream(None))
        else:
            tensor.copy_to_external(address)
        for copy in (True, False):
            np.testing.assert_array_equal(torch_utils.to_torch_tensor(tensor, copy).numpy(), target.numpy())
    stream = python_types.SimpleNamespace(cuda_stream=5)
    assert types._raw_cuda_stream(stream) == types._raw_cuda_stream(5) == 5


# --- example --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_example():
    script = places.EXAMPLES / "torch_train.py"
    run = subprocess.run([sys.executable, str(script), "--epochs", "4"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    first, last = (float(x) for x in run.stdout.split("loss ")[1].split("\n")[0].split(" -> "))
    assert last < 0.7 * first
    accuracy, chance = (float(x.split("%")[0]) for x in run.stdout.split("accuracy ")[1].split(", chance "))
    assert accuracy > 2 * chance


def test_batches_without_unreadable_files_are_shorter(tmp_path):
    paths = [tmp_path / f"{i}.jpg" for i in range(10)]
    for i, path in enumerate(paths):
        if i not in (1, 8):
            path.write_bytes(bytes([i]))

    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def pipeline():
        return fn.readers.file(files=paths, name="files", on_error="skip")[0]

    batches = [batch[0]["x"][:, 0].tolist() for batch in DALIGenericIterator(pipeline(), ["x"], reader_name="files")]
    assert batches == [[0, 2, 3], [4, 5, 6, 7], [9]]


@pytest.mark.parametrize("missing", [[0, 1], [2, 3]])
def test_batches_without_readable_samples(tmp_path, missing):
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        if i not in missing:
            Image.new("RGB", (3, 2)).save(path)

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline():
        return fn.decoders.image(fn.readers.file(files=paths, name="files", on_error="skip")[0])

    shapes = [tuple(batch[0]["x"].shape) for batch in DALIGenericIterator(pipeline(), ["x"], reader_name="files")]
    assert [shape[0] for shape in shapes] == [0 if i in missing else 2 for i in (0, 2)]
    assert (2, 2, 3, 3) in shapes


@pytest.mark.filterwarnings("ignore:size is given")
def test_pipelines_without_readable_samples_stay(tmp_path):
    """With `size`, only pipelines whose samples are all beyond it are left out of the list."""
    paths = [tmp_path / f"{i}.bin" for i in range(8)]
    for i, path in enumerate(paths):
        if i not in (2, 3):
            path.write_bytes(bytes([i]))

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline(shard):
        return fn.readers.file(files=paths, num_shards=2, shard_id=shard, on_error="skip")[0]

    batches = list(
        DALIGenericIterator([pipeline(0), pipeline(1)], ["x"], size=7, last_batch_policy=LastBatchPolicy.PARTIAL)
    )
    assert [[x["x"].reshape(-1).tolist() for x in batch] for batch in batches] == [[[0, 1], [4, 5]], [[], [6]]]


# --- memory of GPUs ---------------------------------------------------------------------------------------------------

MEMORY = """
import logging, os, sys
import numpy as np
logging.basicConfig(level=logging.INFO, format="%(message)s")
from jaxdali import fn, pipeline_def
if "adapter" in sys.argv:
    from jaxdali.plugin.pytorch import DALIGenericIterator
assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in os.environ

@pipeline_def(batch_size=2, num_threads=1, device_id=0)
def define():
    return fn.external_source(source=lambda i: np.full((2, 3), i, np.uint8))

pipe = define()
pipe.build()
if "adapter" in sys.argv:
    print(next(DALIGenericIterator(pipe, ["x"]))[0]["x"].shape)
print({k: v for k, v in os.environ.items() if "XLA_" in k and "MEM" in k or "PREALLOCATE" in k})
"""


@pytest.mark.parametrize(
    ("arguments", "environment", "want"),
    [
        (["adapter"], {}, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        (["adapter"], {"XLA_CLIENT_MEM_FRACTION": "0.3"}, {"XLA_CLIENT_MEM_FRACTION": "0.3"}),
        ([], {}, {}),  # JAX alone
    ],
)
def test_memory_of_gpus_beside_pytorch(arguments, environment, want):
    other_variables = {k: v for k, v in os.environ.items() if not k.startswith("XLA_")}
    process = subprocess.run(
        [sys.executable, "-c", MEMORY, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**other_variables, **environment},
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == str(want)
    assert process.stderr.count("JAX takes memory of GPUs as it needs it") == ("PREALLOCATE" in str(want))


def test_warning_about_memory_of_gpus(monkeypatch):
    for name in _memory._USER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    make = functools.partial(DALIGenericIterator, output_map=["x"])
    make(supplied(counted)).close()  # silent: on the CPU
    monkeypatch.setattr(_memory, "is_cuda", lambda device: True)
    with pytest.warns(
        UserWarning, match="three quarters of each GPU's memory.*XLA_PYTHON_CLIENT_PREALLOCATE=false"
    ) as warned:
        make(supplied(counted)).close()
        make(supplied(counted)).close()
    assert len(warned) == 1
    assert _memory.devices_are_open()
    monkeypatch.delattr("jax._src.xla_bridge.backends_are_initialized")  # as in another version of JAX
    assert not _memory.devices_are_open()


def test_subclasses_may_set_batch_size():
    class Subclass(DALIGenericIterator):
        def __init__(self, pipe, batch_size):
            super().__init__(pipe, ["x"], size=5, last_batch_policy=LastBatchPolicy.PARTIAL)
            self.batch_size = batch_size

    with Subclass(supplied(counted), 1) as it:
        assert it.batch_size == 1
        assert [len(batch[0]["x"]) for batch in it] == [2, 2, 1]


def test_subclasses_may_look_for_a_first_batch():
    """As many wrappers do: DALI's iterator holds the batch that its constructor makes."""

    class Subclass(DALIGenericIterator):
        def __next__(self):
            if self._first_batch is not None:
                batch = self._first_batch
                self._first_batch = None
                return batch
            return super().__next__()

    with Subclass(supplied(counted), ["x"], size=6) as it:
        batches = [batch[0]["x"].flatten().tolist() for batch in it]
    with DALIGenericIterator(supplied(counted), ["x"], size=6) as it:
        assert batches == [batch[0]["x"].flatten().tolist() for batch in it]
