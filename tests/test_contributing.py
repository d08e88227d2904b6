"""The recipes of CONTRIBUTING.md, run as they stand there."""

import importlib.util
import pathlib
import re
import sys

import numpy as np
import pytest

from jaxdali import SampleError, pipeline_def
from jaxdali.plugin.jax import data_iterator

TEXT = (pathlib.Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()


@pytest.fixture
def recipe(request, tmp_path):
    """The module that the first Python block after a heading is."""
    code = re.search(rf"^## {request.param}\n.*?^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert code is not None
    path = tmp_path / "recipe.py"
    path.write_text(code[1])
    spec = importlib.util.spec_from_file_location("recipe_of_contributing", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("recipe", ["A reader"], indirect=True)
def test_a_reader(recipe, tmp_path):
    """A list of records is enough for shuffling, shards, epochs and checkpoints."""
    path = tmp_path / "x.txt"
    path.write_text("".join(f"line {i}\n" for i in range(10)))

    @data_iterator(output_map=["line"], reader_name="reader")
    def define(num_shards=1, shard_id=0):
        order = {"num_shards": num_shards, "shard_id": shard_id, "pad_last_batch": True, "random_shuffle": True}
        return recipe.lines(path=path, name="reader", **order)

    iterator = define(batch_size=2, seed=1)

    def rest():
        return [bytes(np.asarray(x)).decode() for batch in iterator for x in batch["line"]]

    first = [bytes(np.asarray(x)).decode() for x in next(iterator)["line"]]
    state = iterator.get_state()
    after = rest()
    assert sorted(first + after) == [f"line {i}" for i in range(10)]
    assert first + after != sorted(first + after)
    iterator.reset()
    iterator.set_state(state)
    assert rest() == after


@pytest.mark.parametrize("recipe", ["A reader"], indirect=True)
def test_a_readers_errors(recipe, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("a\n\nc\n")

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline(shard_id=0):
        return recipe.lines(path=path, shard_id=shard_id)

    pipe = pipeline()
    assert bytes(np.asarray(pipe.run()[0][0])) == b"a"
    with pytest.raises(SampleError, match=r"readers.lines.*x.txt:2.*the line is empty"):
        pipe.run()
    assert bytes(np.asarray(pipe.run()[0][0])) == b"c"
    with pytest.raises(ValueError, match="shard_id must be"):
        pipeline(shard_id=1).build()
