"""Pipeline and pipeline_def: defining, building, running, properties."""

import copy
import gc
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest
from pipelines import counter, numbers, values

from jaxdali import Pipeline, fn, pipeline_def, types
from jaxdali._core.system import available_cpus
from jaxdali._pipeline.pipeline import internals_of
from jaxdali.plugin.jax import DALIGenericIterator


def test_three_ways_to_define():
    class Subclass(Pipeline):
        def define_graph(self):
            return fn.external_source(source=counter(), batch=False)

    set_inside = Pipeline(batch_size=3)
    with set_inside:
        set_inside.set_outputs(fn.external_source(source=counter(), batch=False))
    set_later = Pipeline(batch_size=3)
    with set_later:
        x = fn.external_source(source=counter(), batch=False)
    set_later.set_outputs(x, 7)
    for pipe in (numbers(), Subclass(batch_size=3), set_inside, set_later):
        assert values(pipe.run()) == [0, 1, 2]
        assert values(pipe.run()) == [3, 4, 5]
        pipe.close()


def test_neither_pipelines_nor_iterators_are_pickled():
    pipe = numbers()
    with pytest.raises(TypeError, match=r"a Pipeline can't be pickled.*serialize\(\)"):
        pickle.dumps(pipe)
    with (
        DALIGenericIterator(pipe, ["x"]) as it,
        pytest.raises(TypeError, match=r"DALIGenericIterator can't be pickled.*get_state\(\)"),
    ):
        copy.deepcopy(it)


def test_arguments_of_function_and_pipeline():
    pipe = numbers(offset=10, batch_size=2)
    assert (pipe.batch_size, pipe.max_batch_size, pipe.num_threads, pipe.seed, pipe.device_id) == (2, 2, 2, 1, None)
    assert values(pipe.run()) == [10, 11]

    @pipeline_def(batch_size=2)
    def takes_seed(seed):
        return types.Constant(seed)

    assert values(takes_seed(seed=7).run()) == [7, 7]
    assert takes_seed(seed=7).seed != 7  # the function's own argument, not the Pipeline's

    with pytest.raises(TypeError, match=r"\*\*kw"):
        pipeline_def(lambda **kw: 1)(batch_size=1)


def test_outputs_may_be_constants_and_nothing_else():
    @pipeline_def(batch_size=2)
    def constants():
        return 1, np.float64([1, 2]), types.Constant(3).uint8()

    a, b, c = constants().run()
    assert a.as_array().tolist() == [1, 1]
    assert b.as_array().tolist() == [[1, 2]] * 2
    assert c.as_array().dtype == np.uint8
    for bad, error in ((None, NotImplementedError), ("text", TypeError), (([1], "text"), TypeError)):
        with pytest.raises(error):
            pipeline_def(lambda bad=bad: bad)(batch_size=1).build()
    with pytest.raises(NotImplementedError):
        Pipeline(batch_size=1).build()


def test_end_of_data_and_reset():
    pipe = numbers(stop=2)
    for _ in range(3):
        assert values(pipe.run()) == [0, 1, 2]
        pipe.reset()  # too early: without effect
        assert values(pipe.run()) == [3, 4, 5]
        for _ in range(2):
            with pytest.raises(StopIteration):
                pipe.run()
        pipe.reset()
    pipe.close()


THREADS = ("jaxdali-produce", "jaxdali-check")  # the threads that make batches


@pytest.mark.parametrize(
    "options",
    [
        {"exec_pipelined": False, "exec_async": False},
        {"prefetch_queue_depth": 5},
        {"prefetch_queue_depth": {"cpu_size": 3, "gpu_size": 1}},
    ],
)
def test_execution_options_change_no_values(options, own_threads):
    pipe = numbers(**options)
    assert [values(pipe.run()) for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert len(own_threads(*THREADS)) == (0 if "exec_async" in options else 2)
    pipe.close()


@pytest.mark.parametrize("options", [{}, {"exec_pipelined": False}])
@pytest.mark.parametrize("runs", [0, 1])
def test_closed_pipelines_say_so(options, runs):
    pipe = numbers(**options)
    pipe.build()
    for _ in range(runs):
        pipe.run()
    for _ in range(2):
        pipe.close()
        with pytest.raises(RuntimeError, match="closed"):
            pipe.run()


def test_close_while_a_thread_waits_for_data(own_threads):
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.external_source(name="x", blocking=True))
    pipe.feed_input("x", np.int32([1]))
    it = DALIGenericIterator(pipe, ["x"])
    assert next(it)["x"].tolist() == [1]
    pipe.feed_input("x", np.int32([2]))
    assert next(it)["x"].tolist() == [2]
    assert len(own_threads(*THREADS)) == 2
    it.close()
    assert not own_threads(*THREADS)


@pytest.mark.parametrize("kind", ["callable", "generator", "index"])
def test_build_before_an_iterator_loses_nothing(kind, own_threads):
    """DALI's older examples do this. Questions about readers also come before the iterator."""
    items = iter(range(100))

    def generator():
        while True:
            yield np.full(2, next(items), np.int32)

    sources = {
        "callable": lambda: np.full(2, next(items), np.int32),
        "generator": generator(),
        "index": lambda i: np.full(2, i, np.int32),
    }
    pipe = pipeline_def(lambda: fn.external_source(source=sources[kind]))(batch_size=2)
    pipe.build()
    assert pipe.epoch_size() == {}
    assert not own_threads()
    with DALIGenericIterator(pipe, ["x"]) as it:
        assert [next(it)["x"].tolist() for _ in range(3)] == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(RuntimeError, match="in use"):
        DALIGenericIterator(pipe, ["x"])


def test_properties():
    pipe = numbers()
    assert (pipe.exec_pipelined, pipe.exec_async, pipe.prefetch_queue_depth) == (True, True, 2)
    assert (pipe.set_affinity, pipe.max_streams, pipe.default_cuda_stream_priority, pipe.num_outputs) == (
        False,
        -1,
        0,
        1,
    )
    arguments = {
        "exec_pipelined": False,
        "exec_async": False,
        "prefetch_queue_depth": 1,
        "set_affinity": True,
        "max_streams": 3,
        "default_cuda_stream_priority": -1,
        "device_id": 3,
    }
    pipe = numbers(**arguments, bytes_per_sample=1000)
    assert {k: getattr(pipe, k) for k in arguments} == arguments
    pipe = numbers(seed=-1, device_id=-1, num_threads=-1, max_streams=-1)
    assert pipe.seed >= 0
    assert (pipe.device_id, pipe.num_threads) == (None, available_cpus())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": -1}, ValueError, "batch_size"),
        ({"num_threads": 0}, ValueError, "num_threads"),
        ({"prefetch_queue_depth": 0}, ValueError, "prefetch_queue_depth"),
        ({"prefetch_queue_depth": {"cpu_size": 0, "gpu_size": 1}}, ValueError, "prefetch_queue_depth"),
        ({"prefetch_queue_depth": {"cpu_size": 2, "gpu_size": 2}, "exec_async": False}, ValueError, "exec_async"),
        ({"device_id": 99}, ValueError, "device_id=99"),
        ({"output_ndim": -1}, ValueError, "output_ndim"),
    ],
)
def test_arguments_out_of_range_fail_at_build(options, error, message):
    for use in (lambda p: p.build(), lambda p: DALIGenericIterator(p, ["x"])):
        with pytest.raises(error, match=message):
            use(numbers(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": "2"},
        {"num_threads": 1.5},
        {"prefetch_queue_depth": "two"},
        {"prefetch_queue_depth": {"cpu_size": None, "gpu_size": 1}},
        {"seed": "x"},
        {"output_dtype": "text"},
        {"output_ndim": "1"},
        {"unknown": 1},
    ],
)
def test_arguments_of_wrong_types_fail_at_once(options):
    with pytest.raises(TypeError):
        numbers(**options)
    with pytest.raises(ValueError, match="cpu_size"):
        numbers(prefetch_queue_depth={"cpu_size": 1})


def test_names_are_taken_once():
    with pytest.raises(RuntimeError, match="'x' is taken"):
        pipeline_def(lambda: (fn.external_source(name="x"), fn.external_source(name="x")))(batch_size=1).build()


def test_epoch_size_and_reader_meta(tmp_path):
    for i in range(7):
        (tmp_path / f"{i}.jpg").write_bytes(b"x")
    files = [str(tmp_path / f"{i}.jpg") for i in range(7)]

    @pipeline_def(batch_size=2)
    def pipe():
        a, _ = fn.readers.file(files=files, name="a", num_shards=2, shard_id=1, pad_last_batch=True)
        b, _ = fn.readers.file(files=files[:3], name="b", stick_to_shard=True)
        return a, b

    p = pipe()
    assert p.epoch_size() == {"a": 8, "b": 3}
    assert p.epoch_size("a") == 8
    assert p.reader_meta("a") == {
        "epoch_size": 7,
        "epoch_size_padded": 8,
        "number_of_shards": 2,
        "shard_id": 1,
        "pad_last_batch": 1,
        "stick_to_shard": 0,
    }
    assert p.reader_meta()["b"]["stick_to_shard"] == 1
    for method in (p.epoch_size, p.reader_meta):
        with pytest.raises(RuntimeError, match=r"no reader named 'c' in the pipeline; there are \['a', 'b'\]$"):
            method("c")


def test_reader_without_a_name():
    p = pipeline_def(lambda: fn.readers.file(files=[__file__])[0], batch_size=1)()
    with pytest.raises(RuntimeError, match=r"no reader named 'c' in the pipeline; give the reader name='c'$"):
        p.reader_meta("c")


@pytest.mark.parametrize("debug", [False, True])
def test_external_source_is_no_reader(debug):
    """Two reports about DALI pass the name of an external_source as that of a reader."""

    @pipeline_def(batch_size=2, debug=debug)
    def define(files):
        source = fn.external_source(lambda: np.zeros((2, 3), np.float32), name="Reader")
        return source, *(fn.readers.file(files=files, name="files") if files else ())

    for files, name, advice in (([], "Reader", True), ([], "other", True), ([__file__], "other", False)):
        pipe = define(files)
        pipe.run()
        assert sorted(pipe.reader_meta()) == ["files"] * len(files)
        with pytest.raises(RuntimeError, match=f"no reader named '{name}'") as e:
            pipe.reader_meta(name)
        assert ("external_source, is not a reader: leave out reader_name" in str(e.value)) == advice


def test_output_checks():
    numbers(output_dtype=types.INT32, output_ndim=0).build()
    with pytest.raises(RuntimeError, match="output_dtype"):
        numbers(output_dtype=types.FLOAT).build()
    with pytest.raises(RuntimeError, match="output_ndim"):
        numbers(output_ndim=[1]).build()
    with pytest.raises(ValueError, match="output_ndim"):
        numbers(output_ndim=-1).build()
    with pytest.raises(RuntimeError, match="entries"):
        numbers(output_ndim=[0, 0]).build()


def test_device_id_indexes_local_devices():
    @pipeline_def(batch_size=2)
    def on_device():
        return fn.external_source(source=lambda: np.ones((2, 4), np.float32)).gpu()

    for device_id in (0, 5):
        pipe = on_device(device_id=device_id)
        pipe.run()
        assert internals_of(pipe).device == jax.devices()[device_id]
        assert pipe.lower().compile().input_shardings[0][0].device_set == {jax.devices()[device_id]}
    with jax.default_device(jax.devices()[3]):
        assert internals_of(on_device()).device == jax.devices()[3]


def test_seed_decides_random_numbers():
    @pipeline_def(batch_size=4)
    def draw():
        return fn.random.uniform(range=(0.0, 1.0)), fn.random.uniform(range=(0.0, 1.0))

    def run(**options):
        return [o.as_array().tolist() for o in draw(**options).run()]

    a, b = run(seed=5)
    assert a != b
    assert run(seed=5) == [a, b]
    assert run(seed=6) != [a, b]
    assert run() != run()


def test_no_thread_outlives_its_pipeline(own_threads):
    pipes = [numbers() for _ in range(3)]
    for p in pipes:
        p.run()
    assert len(own_threads(*THREADS)) == 6
    pipes[0].close()
    del p, pipes
    gc.collect()
    assert not own_threads(*THREADS)


@pytest.mark.parametrize(("end", "code"), [("", 0), ("raise ValueError", 1), ("sys.exit(3)", 3)])
def test_script_ends_with_its_own_code(end, code):
    script = f"""
import sys, time
import numpy as np
from jaxdali import fn, pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator
@pipeline_def(batch_size=2)
def endless():
    return fn.resize(fn.external_source(source=lambda: [np.zeros((500, 500, 3), np.uint8)] * 2, layout="HWC"), size=(400, 400))
it = DALIGenericIterator(endless(), ["x"])
other = endless()
other.run()
next(it)
{end}
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert process.returncode == code, process.stderr
    assert ("Traceback" in process.stderr) == (code == 1), process.stderr


def test_flags_as_numbers():
    """DALI takes any number for the first arguments, by place: seed, exec_pipelined, prefetch_queue_depth, exec_async."""
    pipe = Pipeline(2, 1, None, 12, 12, 3, 5)
    assert (pipe.seed, pipe.exec_pipelined, pipe.prefetch_queue_depth, pipe.exec_async) == (12, True, 3, True)
    assert not Pipeline(2, 1, None, 12, 0).exec_pipelined


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"exec_pipelined": "False"}, "exec_pipelined must be True or False or a whole number, got 'False'"),
        ({"enable_checkpointing": 2}, "enable_checkpointing must be True or False, got 2"),
        ({"num_threads": 1.5}, "num_threads must be a whole number or 'auto', got 1.5"),
        ({"batch_size": float("inf")}, "batch_size must be a whole number, got inf"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
    ],
)
def test_arguments_are_checked_by_name(arguments, text):
    with pytest.raises(TypeError, match=text):
        Pipeline(**arguments)
