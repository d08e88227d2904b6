"""Pipeline and pipeline_def: defining, building, running, properties."""

import gc
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

from jaxdali import Pipeline, fn, pipeline_def, types


def counter(stop=None):
    def source(info):
        if stop is not None and info.iteration == stop:
            raise StopIteration
        return np.int32(info.idx_in_epoch)

    return source


def values(outputs):
    return outputs[0].as_array().tolist()


@pipeline_def(batch_size=3, num_threads=2, seed=1)
def numbers(stop=None, offset=0):
    return fn.external_source(source=counter(stop), batch=False) + offset


def test_three_ways_to_define():
    class Subclass(Pipeline):
        def define_graph(self):
            return fn.external_source(source=counter(), batch=False)

    direct = Pipeline(batch_size=3)
    with direct:
        direct.set_outputs(fn.external_source(source=counter(), batch=False))
    for pipe in (numbers(), Subclass(batch_size=3), direct):
        assert values(pipe.run()) == [0, 1, 2]
        assert values(pipe.run()) == [3, 4, 5]
        pipe.close()


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
    for bad, error in ((None, NotImplementedError), ("text", TypeError), (([1], [2]), TypeError)):
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


@pytest.mark.parametrize(
    "options",
    [{"exec_pipelined": False, "exec_async": False}, {"prefetch_queue_depth": 5}, {"prefetch_queue_depth": {"cpu_size": 3, "gpu_size": 1}}],
)
def test_execution_options_change_no_values(options):
    pipe = numbers(**options)
    assert [values(pipe.run()) for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert len([t for t in threading.enumerate() if t.name.startswith("jaxdali")]) == (0 if "exec_async" in options else 2)
    pipe.close()


def test_feed_input():
    pipe = Pipeline(batch_size=2)
    with pipe:
        x = fn.external_source(name="x")
        pipe.set_outputs(x * 2)
    with pytest.raises(KeyError, match="nothing"):
        pipe.feed_input("nothing", [np.int32(1)])
    for i in range(3):
        pipe.feed_input("x" if i % 2 else x, np.int32([i, i + 1]))
        assert values(pipe.run()) == [2 * i, 2 * i + 2]
    with pytest.raises(IndexError):
        pipe.run()
    pipe.feed_input("x", np.int32([5]))  # a short batch
    assert values(pipe.run()) == [10]


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


def test_device_id_is_the_place_among_the_local_devices():
    @pipeline_def(batch_size=2)
    def on_device():
        return fn.external_source(source=lambda: np.ones((2, 4), np.float32)).gpu()

    for device_id in (0, 5):
        pipe = on_device(device_id=device_id)
        pipe.run()
        assert pipe.device == jax.devices()[device_id]
        assert pipe.lower().compile().input_shardings[0][0].device_set == {jax.devices()[device_id]}
    with jax.default_device(jax.devices()[3]):
        assert on_device().device == jax.devices()[3]


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


def test_no_thread_outlives_its_pipeline():
    before = threading.active_count()
    pipes = [numbers() for _ in range(3)]
    for p in pipes:
        p.run()
    assert threading.active_count() == before + 6
    pipes[0].close()
    del p, pipes
    gc.collect()
    assert threading.active_count() == before


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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert ("Traceback" in done.stderr) == (code == 1), done.stderr
