"""Wrong arguments of the JAX iterators, and their messages."""

import functools
import inspect

import jax
import numpy as np
import pytest
import shardings
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pipelines import file_contents

from jaxdali import fn, pipeline_def, types
from jaxdali._iterator.iterator_options import IteratorOptions
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator, peekable_data_iterator
from jaxdali.plugin.jax._placement import JaxOptions


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"output_map": ["x", "x"]}, ValueError, "distinct"),
        ({"output_map": ["x", "y"]}, IndexError, "output_map has 2 names"),
        ({"output_map": [3]}, TypeError, "output_map must be a list of names"),
        ({"sharding": "batch"}, TypeError, "Sharding"),
        ({"sharding": {"y": shardings.of_batch(1)}}, ValueError, r"names in output_map, \['x'\], got \['y'\]"),
        ({"sharding": {"x": 3}}, TypeError, r"sharding\['x'\]"),
        ({"sharding": shardings.of_batch(2)}, ValueError, "2 shards in this process, but there are 1 pipelines"),
        ({"last_batch_policy": LastBatchPolicy.PARTIAL}, ValueError, "PARTIAL only with mask_name"),
        ({"mask_name": "mask"}, ValueError, "for last_batch_policy=LastBatchPolicy.PARTIAL"),
        ({"mask_name": "x", "last_batch_policy": LastBatchPolicy.PARTIAL}, ValueError, "a name in output_map"),
        ({"mask_name": 3, "last_batch_policy": LastBatchPolicy.PARTIAL}, TypeError, "mask_name must be a string"),
        ({"pipelines": None}, ValueError, "at least one pipeline"),
        ({"pipelines": []}, IndexError, "at least one pipeline"),
        ({"pipelines": 3}, TypeError, "pipelines must be a Pipeline or a list of them, got int"),
        ({"output_map": "x"}, TypeError, r"output_map must be a list of names, such as \['x'\], got a string"),
        ({"output_map": 3}, TypeError, "output_map must be a list of names, got 3"),
        ({"size": "4", "reader_name": None}, TypeError, "size must be a whole number, got '4'"),
        ({"size": 2.5, "reader_name": None}, TypeError, r"size must be a whole number, got 2\.5"),
        ({"reader_name": 3}, TypeError, "reader_name must be a string, got 3"),
        (
            {"last_batch_padded": "no", "reader_name": None},
            TypeError,
            "last_batch_padded must be True or False, got 'no'",
        ),
        ({"prepare_first_batch": "no"}, TypeError, "prepare_first_batch must be True or False, got 'no'"),
        ({"pipelines": [3]}, TypeError, "Pipeline objects, got int"),
        ({"pipelines": [{}, {"batch_size": 3}]}, ValueError, r"one batch size, got \[2, 3\]"),
        ({"auto_reset": 1}, ValueError, "auto_reset"),
        ({"auto_reset": 0}, ValueError, "auto_reset"),
        ({"auto_reset": "maybe"}, ValueError, "auto_reset must be .* got 'maybe'"),
        ({"last_batch_policy": "FILL"}, ValueError, "LastBatchPolicy"),
        ({"last_batch_policy": 1}, ValueError, "LastBatchPolicy"),
        ({"size": 0, "reader_name": None}, ValueError, "size"),
        ({"pipelines": [{}, {}], "reader_name": None}, ValueError, "with several pipelines or shards pass reader_name"),
        ({"size": 4}, ValueError, "can't be given together"),
        ({"last_batch_padded": True}, ValueError, "can't be given together"),
        ({"reader_name": "nobody"}, RuntimeError, "no reader named 'nobody'"),
        ({"pipelines": [{}, {"files": 5}]}, ValueError, r"same epoch_size, got \[6, 5\]"),
        ({"pipelines": [{}, {"num_shards": 2}]}, ValueError, "same number_of_shards"),
        ({"pipelines": [{}, {"pad": True}]}, ValueError, "same pad_last_batch"),
        ({"pipelines": [{}, {"stick": True}]}, ValueError, "same stick_to_shard"),
        (
            {"pipelines": [{"batch_size": 7}], "last_batch_policy": LastBatchPolicy.DROP},
            RuntimeError,
            "an epoch of 6 does not fill a batch of 7 samples, and LastBatchPolicy.DROP drops it; FILL repeats samples",
        ),
        (
            {"pipelines": [{"batch_size": 4, "num_shards": 2}], "last_batch_policy": LastBatchPolicy.DROP},
            RuntimeError,
            "no data in the pipeline: a shard of 3 does not fill a batch of 4 samples",
        ),
    ],
    ids=lambda x: "" if isinstance(x, (type, str)) else "-".join(f"{k}={v}"[:40] for k, v in x.items()),
)
def test_wrong_arguments(files, options, error, text, own_threads):
    arguments = {"output_map": ["x"], "reader_name": "reader", "pipelines": [{}], **options}
    pipes = arguments["pipelines"]
    if isinstance(pipes, list) and pipes and isinstance(pipes[0], dict):
        pipes = [{"batch_size": 2, "files": 6, **p} for p in pipes]
        arguments["pipelines"] = [pipeline_def(file_contents)(**{**p, "files": files[: p["files"]]}) for p in pipes]
    with pytest.raises(error, match=text):
        DALIGenericIterator(**arguments)
    assert not own_threads("jaxdali-produce", "jaxdali-check")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("jax", "DALIGenericIterator"),
        ("jax.colocated", "data_iterator"),
        ("pytorch", "DALIGenericIterator"),
        ("pytorch", "DALIClassificationIterator"),
        ("pytorch", "DALIRaggedIterator"),
    ],
)
def test_signatures_repeat_the_options(module, name):
    function = getattr(pytest.importorskip(f"jaxdali.plugin.{module}", exc_type=ImportError), name)
    options = JaxOptions if module.startswith("jax") else IteratorOptions
    declared = inspect.signature(options).parameters
    repeated = {n: p for n, p in inspect.signature(function).parameters.items() if n in declared}
    assert {"size", "repeat"} <= repeated.keys()
    for n, p in repeated.items():
        assert p.annotation == declared[n].annotation
        assert p.default == declared[n].default or (n == "output_map" and p.default is p.empty)


@pytest.mark.parametrize("factory", [data_iterator, peekable_data_iterator])
def test_options_are_checked_early(factory):
    with pytest.raises(TypeError, match="size must be a whole number, got 'all'"):
        factory(output_map=["x"], size="all")


def test_warning_about_size_names_the_line(files):
    pipes = [pipeline_def(file_contents)(files[:4], batch_size=2) for _ in range(2)]
    with pytest.warns(UserWarning, match="size is given") as warned:
        DALIGenericIterator(pipes, ["x"], size=8).close()
        data_iterator(file_contents, ["x"], size=4)(files[:4], batch_size=2).close()
        data_iterator(file_contents, ["x"], size=4, sharding=shardings.of_batch(2))(files[:4], batch_size=2).close()
    assert [w.filename for w in warned] == [__file__] * 3


def test_size_of_sources_is_no_warning(files):
    """Only an unnamed reader, which `reader_name` could name, is one."""

    def define(has_reader=False):
        numbers = fn.external_source(lambda: np.zeros((2, 3), np.float32))
        return numbers + fn.cast(fn.readers.file(files=files)[1], dtype=types.FLOAT) if has_reader else numbers

    DALIGenericIterator(pipeline_def(define)(batch_size=2), ["x"], size=4).close()
    with pytest.warns(UserWarning, match="the pipeline has a reader: pass the reader's name= as reader_name"):
        DALIGenericIterator(pipeline_def(define)(True, batch_size=2), ["x"], size=4).close()


def test_fewer_names_than_outputs(files):
    def two(num_shards=1, shard_id=0):
        x = file_contents(files, num_shards, shard_id)
        return x, x * 2

    for sharding in (None, shardings.of_batch(2), {"x": shardings.of_batch(2)}):
        with pytest.warns(
            UserWarning, match=r"output_map has 1 of the pipeline's 2 outputs, \['x'\]: the others are left out"
        ) as warned:
            it = data_iterator(two, ["x"], reader_name="reader", sharding=sharding)(batch_size=2)
        assert [w.filename for w in warned] == [__file__]
        with it:
            assert list(next(it)) == ["x"]
    with pytest.raises(ValueError, match=r"output_map is empty, .* has 2 .*, as in output_map=\['images', 'labels'\]$"):
        data_iterator(two, reader_name="reader")(batch_size=2)
    with pytest.raises(IndexError, match=r"output_map has 3 names, \['x', 'y', 'z'\], but the pipeline has 2 output"):
        data_iterator(two, ["x", "y", "z"], reader_name="reader")(batch_size=2)


def test_wrong_use_of_data_iterator(files):
    with pytest.raises(TypeError, match="data_iterator: multiple values for argument 'output_map'"):
        data_iterator(file_contents, ["x"], output_map=["x"])
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("b",)), PartitionSpec("b"))
    with pytest.raises(ValueError, match="sharding and devices can't be given together"):
        data_iterator(output_map=["x"], sharding=sharding, devices=jax.devices())
    for devices, error, text in [
        ([], ValueError, "must not be empty"),
        ([0, 1], TypeError, "JAX devices"),
        (jax.devices()[:1] * 2, ValueError, "distinct"),
    ]:
        with pytest.raises(error, match=text):
            data_iterator(file_contents, ["x"], reader_name="reader", devices=devices)(files, batch_size=2)
    make = data_iterator(file_contents, ["x"], reader_name="reader", sharding=sharding)
    with pytest.raises(TypeError, match="shard_id is filled in"):
        make(files, batch_size=8, shard_id=1)
    bound = functools.partial(file_contents, files)
    with pytest.raises(TypeError, match="file_contents: shard_id is filled in"):
        data_iterator(bound, ["x"], reader_name="reader", sharding=sharding)(batch_size=8, shard_id=1)
    with pytest.raises(TypeError, match="batch_size"):
        make(files)
    with pytest.raises(TypeError, match=r"batch_size must be a whole number, got 8\.0"):
        make(files, batch_size=8.0)
    with pytest.raises(ValueError, match=r"batch_size=12 .* 8 shards"):
        make(files, batch_size=12)
    with pytest.raises(TypeError, match="must take the argument 'num_shards'"):
        data_iterator(lambda: file_contents(files), ["x"], reader_name="reader", sharding=sharding)(batch_size=8)
    with pytest.raises(ValueError, match="distinct"):
        data_iterator(file_contents, ["x", "x"], reader_name="reader")(files, batch_size=2)


def test_warning_for_shards_with_equal_data(files):
    def define(num_shards, shard_id):
        shard = {"num_shards": num_shards, "shard_id": shard_id} if passed_on else {}
        return file_contents(files, **shard)

    make = data_iterator(define, ["x"], reader_name="reader", sharding=shardings.of_batch(2))
    passed_on = True
    make(batch_size=2).close()  # warnings are errors
    passed_on = False
    with pytest.warns(
        UserWarning, match="define: the reader 'reader' is the same for all 2 shards, which get the same data"
    ):
        make(batch_size=2).close()


def test_no_warning_for_chosen_data():
    def define(num_shards, shard_id):
        return fn.readers.source([np.int32(i) for i in range(shard_id, 4, num_shards)], name="reader")

    data_iterator(define, ["x"], reader_name="reader", sharding=shardings.of_batch(2))(batch_size=2).close()


def test_graphs_of_shards_must_agree(files):
    @data_iterator(output_map=["x"], reader_name="reader", sharding=shardings.of_batch(2))
    def differing(num_shards, shard_id):
        x = file_contents(files, num_shards, shard_id)
        return x + 1 if shard_id == 0 else x * 2

    with pytest.raises(RuntimeError, match="another graph for shard 1 than for shard 0"):
        differing(batch_size=2)


def test_a_pipeline_serves_one_master(files):
    pipe = pipeline_def(file_contents)(files, batch_size=2)
    with DALIGenericIterator(pipe, ["x"], reader_name="reader"):
        with pytest.raises(RuntimeError, match="used by an iterator"):
            pipe.run()
        with pytest.raises(RuntimeError, match="in use already"):
            DALIGenericIterator(pipe, ["x"], reader_name="reader")


@pytest.mark.parametrize("form", [lambda x: x, lambda x: {"x": x}], ids=["one", "dict"])
def test_shardings_without_arrays_are_refused(files, form):
    plain = shardings.of_batch(2)
    free = NamedSharding(plain.mesh, PartitionSpec(PartitionSpec.UNCONSTRAINED))
    pinned = plain.with_memory_kind("pinned_host")
    make_iterator = lambda sharding: data_iterator(file_contents, ["x"], reader_name="reader", sharding=form(sharding))
    with pytest.raises(ValueError, match=r"sharding.*UNCONSTRAINED.* leaves a choice to the compiler"):
        make_iterator(free)(files, batch_size=2)
    with pytest.raises(
        ValueError, match=r'memory_kind="pinned_host".*jax\.device_put\(batch, sharding\.with_memory_kind'
    ):
        make_iterator(pinned)(files, batch_size=2)
    with make_iterator(plain)(files, batch_size=2) as it:
        moved = jax.device_put(next(it), pinned)
        assert moved["x"].sharding.memory_kind == "pinned_host"


def test_sharding_of_more_axes_than_numbers_have():
    def numbers(num_shards, shard_id):
        return fn.readers.source(list(range(4)), name="r", num_shards=num_shards, shard_id=shard_id)

    two_axes = NamedSharding(shardings.of_batch(2).mesh, PartitionSpec("batch", None))
    with pytest.raises(RuntimeError, match="this output, a batch of numbers, does not fit its sharding"):
        next(data_iterator(numbers, ["x"], reader_name="r", sharding=two_axes)(batch_size=2))


def test_workers_exclude_loading_processes():
    class Workers:
        num_workers = 1

        def start(self, definition):
            raise AssertionError

    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with pytest.raises(ValueError, match="workers and loading_processes can't be given together"):
        data_iterator(output_map=["x"], workers=Workers(), loading_processes=[0], sharding=sharding)
