"""The plan of a pipeline, which runs, as opposed to the graph, which the user wrote."""

import dataclasses
import re
import threading

import counts
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdali import fn, newaxis, pipeline_def, types
from jaxdali._batch.executor import Executor
from jaxdali._core.graph import Graph
from jaxdali._core.jax_settings import own_settings
from jaxdali._pipeline.pipeline import internals_of
from jaxdali._plan.passes import bypass_identities, drop_dead, simplified
from jaxdali._plan.plan import make_plan
from jaxdali._plan.run_options import RunOptions
from jaxdali.plugin.jax.fn import jax_function


def dump(graph: Graph):
    """The contents of a graph."""
    return [(n.id, n.op, n.stage, n.device, n.name, tuple((x.node, x.index) for x in n.inputs)) for n in graph.nodes]


def planned(make):
    """Returns the names of the steps that run, and the outputs, for the input 1, 2, 3 on the host."""

    @pipeline_def(batch_size=3)
    def pipeline():
        return make(fn.external_source(lambda: np.arange(1, 4, dtype=np.int32)))

    pipe = pipeline()
    outputs = [x.as_cpu().as_array().tolist() for x in pipe.run()]
    names = [s.op.name for s in internals_of(pipe).session.executor.plan.steps]
    pipe.close()
    return names, outputs


def test_running_leaves_the_graph_as_it_was(tmp_path):
    @pipeline_def(batch_size=2, seed=1)
    def pipeline():
        size = fn.external_source(name="size")
        x = fn.random.uniform(shape=size)  # its rank is learnt from the first batch
        return fn.resize(fn.cast(x, dtype=types.FLOAT).gpu()[:, :, newaxis], size=(4, 4)), size

    pipe = pipeline()
    graph, contents = internals_of(pipe).graph, dump(internals_of(pipe).graph)
    text = pipe.serialize()
    pipe.save_graph_to_dot_file(str(tmp_path / "before"))
    for _ in range(2):
        pipe.feed_input("size", np.array([[3, 5], [2, 4]]))
        images, _ = pipe.run()
    pipe.save_graph_to_dot_file(str(tmp_path / "after"))
    assert images.shape() == [(4, 4, 1)] * 2
    assert internals_of(pipe).graph is graph
    assert dump(graph) == contents
    assert pipe.serialize() == text
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()
    pipe.close()


def test_two_executors_of_a_graph_share_nodes():
    calls = []

    @jax_function(jit=False)
    def doubled(x):
        calls.append(x.shape)
        return x * 2

    @pipeline_def(batch_size=2)
    def pipeline():
        return doubled(fn.external_source(lambda: np.ones((2, 3), np.float32)).gpu() + 1.0) + 1.0

    pipe = pipeline()
    contents = dump(internals_of(pipe).graph)
    arguments = internals_of(pipe).device, RunOptions(batch_size=2, num_threads=1)
    for executor in [Executor.of_values(internals_of(pipe).graph, *arguments) for _ in range(2)]:
        with own_settings():
            executor.build()
            batch = executor.check(executor.launch(executor.reader.read(executor.reader.initial_state)))
        np.testing.assert_array_equal(batch.outputs[0].sample(1), [5, 5, 5])
        executor.close()
    assert dump(internals_of(pipe).graph) == contents
    assert calls == [(2, 3)] * 2


def test_identities_are_bypassed_and_dropped():
    names, outputs = planned(lambda x: (+fn.cast(x, dtype=types.INT32), fn.cast(x, dtype=types.INT64)))
    assert names == ["external_source", "cast"]
    assert outputs == [[1, 2, 3], [1, 2, 3]]
    names, outputs = planned(lambda x: fn.cast(x, dtype=types.INT32, device="gpu"))  # it moves the value
    assert names == ["external_source", "cast"]
    assert outputs == [[1, 2, 3]]


def test_error_behind_eager_function_names_its_step():
    """A step behind an eager function is bound after the first batch. Its error then names this step, like an error
    while the pipeline is built.
    """

    @pipeline_def(batch_size=2, num_threads=1, enable_conditionals=True)
    def definition():
        x = fn.python_function(fn.external_source(lambda: np.zeros((2, 3), np.uint8)), function=lambda x: x)
        if x:
            y = x
        else:
            y = x + 1
        return y

    with pytest.raises(RuntimeError) as e:
        definition().run()
    assert re.fullmatch(
        r"if \(created at \S+test_plan.py:\d+\): what it asks must be a number for each sample, got 1-D .*",
        str(e.value),
    )
    assert isinstance(e.value, TypeError)
    assert e.value.__cause__ is None


def test_identities_behind_an_eager_function():
    names, outputs = planned(
        lambda x: fn.cast(jax_function(lambda a: jnp.abs(-a), jit=False)(x), dtype=types.INT32) + 1
    )
    assert names == ["external_source", "jax_function", "arithmetic"]
    assert outputs == [[2, 3, 4]]


def test_passes_are_functions_of_plans():
    x = fn.external_source(name="x")
    plan = make_plan(Graph.collect([], (x, fn.random.uniform())))
    assert bypass_identities(plan) is plan
    assert drop_dead(plan) is plan
    shorter = dataclasses.replace(plan, outputs=plan.outputs[:1])
    assert [s.op.name for s in drop_dead(shorter).steps] == ["external_source"]
    assert [s.op.name for s in shorter.steps] == ["external_source", "random.uniform"]
    sink = dataclasses.replace(shorter, sinks=plan.outputs[1:])
    assert drop_dead(sink) is sink


def test_diamonds_are_walked_once():
    """Each line of the definition doubles the number of paths to the source, so no code may follow all paths."""
    done = threading.Event()

    def build_and_simplify():
        x = source = fn.external_source(name="x", dtype=types.FLOAT, ndim=0).gpu()
        for _ in range(200):
            y = x * 0.5
            x = x + y
        assert x.device == "gpu"
        assert x.node.source is source.node.source
        simplified(make_plan(Graph.collect([], (x,))))
        done.set()

    threading.Thread(target=build_and_simplify, daemon=True).start()
    assert done.wait(20)


def test_failed_source_leaves_no_threads(tmp_path):
    @pipeline_def(batch_size=1, num_threads=8)
    def pipeline():
        return fn.readers.file(file_root=str(tmp_path / "missing"))

    began = counts.kernel_threads()
    for _ in range(4):
        with pytest.raises(RuntimeError, match="can't list file_root"):
            pipeline().build()
    assert began() < 8


def test_a_first_batch_of_empty_samples():
    sizes = iter([0, 3])

    @pipeline_def(batch_size=2)
    def pipeline():
        return (
            fn.external_source(
                lambda: [np.ones(n, np.int32) for n in [next(sizes)] * 2], dtype=types.INT32, ndim=1
            ).gpu()
            + 1
        )

    pipe = pipeline(prefetch_queue_depth=1, exec_pipelined=False)
    assert [pipe.run()[0].shape() for _ in range(2)] == [[(0,)] * 2, [(3,)] * 2]
    pipe.close()
