"""The recipes of CONTRIBUTING.md, run as they stand there: as files of a user's, outside of the package."""

import ast
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pipelines
import places
import pytest

from jaxdali import OperatorError, SampleError, fn, pipeline_def
from jaxdali.plugin.jax import data_iterator

TEXT = (places.ROOT / "CONTRIBUTING.md").read_text()
SHAPES = {"one size": [(7, 5, 3)] * 4, "sizes": [(3, 9, 3), (40, 30, 3), (1, 1, 1), (5, 2, 3)]}


@pytest.fixture(scope="module")
def recipe(request, tmp_path_factory):
    """The module that the recipe under a heading gives: its files written, its commands run."""
    section = re.search(rf"^### {request.param}\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S)
    assert section is not None
    folder = tmp_path_factory.mktemp("recipe")
    if "```sh" in section[1] and shutil.which("c++") is None:
        pytest.skip("no C++ compiler (c++)")
    module, end = "", 0
    for block in re.finditer(r"^```(\w+)\n(.*?)^```", section[1], re.M | re.S):
        if block[1] == "sh":
            path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
            subprocess.run(block[2], shell=True, check=True, cwd=folder, env={**os.environ, "PATH": path})
        else:
            file = re.findall(r"`(\w+\.(?:cc|py))`", section[1][end : block.start()])[-1]
            (folder / file).write_text(block[2])
            module = file
        end = block.end()
    imports = [n.module for n in ast.walk(ast.parse((folder / module).read_text())) if isinstance(n, ast.ImportFrom)]
    assert [m for m in imports if m and m.startswith("jaxdali")] == ["jaxdali.extend"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        recipe_module = importlib.import_module(pathlib.Path(module).stem)
    yield recipe_module
    del sys.modules[recipe_module.__name__]


def images(shapes):
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, s, np.uint8) for s in shapes]


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("on_device", [False, True], ids=["cpu", "device"])
@pytest.mark.parametrize("recipe", ["An operator in jnp"], indirect=True)
def test_an_operator_in_jnp(recipe, shapes, on_device):
    x = images(shapes)
    thresholds = np.array([100, 200, 0, 256], np.int32)
    per_sample, default = pipelines.run(
        lambda x, t: (recipe.solarize(x, threshold=t), recipe.solarize(x)), x, thresholds, on_device=False
    )
    (moved,) = pipelines.run(lambda x: recipe.solarize(x, threshold=30), x, on_device=on_device)
    for i, image in enumerate(x):
        np.testing.assert_array_equal(np.asarray(per_sample[i]), np.where(image < thresholds[i], image, 255 - image))
        np.testing.assert_array_equal(np.asarray(default[i]), np.where(image < 128, image, 255 - image))
        np.testing.assert_array_equal(np.asarray(moved[i]), np.where(image < 30, image, 255 - image))


@pytest.mark.parametrize("recipe", ["An operator in jnp"], indirect=True)
def test_an_operators_errors(recipe):
    """Name the operator and the line of the pipeline's definition, not one of the operator's file."""

    def define(**arguments):
        return pipeline_def(
            lambda: recipe.solarize(np.zeros((2, 2, 3), arguments.pop("dtype", np.uint8)), **arguments)
        )(batch_size=1)

    for arguments, message in [
        ({"threshold": 300}, "argument threshold must be a whole number in 0 ... 256"),
        ({"treshold": 3}, "did you mean 'threshold'"),
        ({"dtype": np.float32}, "the input must be uint8, got float32"),
    ]:
        with pytest.raises(
            (TypeError, ValueError), match=rf"my.solarize.*{message}|my.solarize[^:]*{re.escape(__file__)}.*{message}"
        ) as e:
            define(**arguments).build()
        assert f"{__file__}:" in str(e.value)


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("recipe", ["An operator with a kernel"], indirect=True)
def test_an_operator_with_a_kernel(recipe, shapes):
    x = images(shapes)
    thresholds = np.array([0.5, 200, 255, 17], np.float32)
    per_sample, default = pipelines.run(
        lambda x, t: (recipe.threshold(x, threshold=t), recipe.threshold(fn.flip(x))), x, thresholds
    )
    for i, image in enumerate(x):
        np.testing.assert_array_equal(np.asarray(per_sample[i]), np.where(image > thresholds[i], 255, 0))
        np.testing.assert_array_equal(np.asarray(default[i]), np.where(image[:, ::-1] > 127.5, 255, 0))


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
    remaining = rest()
    assert sorted(first + remaining) == [f"line {i}" for i in range(10)]
    assert first + remaining != sorted(first + remaining)
    iterator.reset()
    iterator.set_state(state)
    assert rest() == remaining


@pytest.mark.parametrize("recipe", ["A reader"], indirect=True)
def test_a_readers_errors(recipe, tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("a\n\nc\n")
    monkeypatch.setattr(recipe.Lines, "path", path, raising=False)  # a name that lists of users' have

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline(shard_id=0):
        return recipe.lines(path=path, shard_id=shard_id)

    pipe = pipeline()
    assert bytes(np.asarray(pipe.run()[0][0])) == b"a"
    with pytest.raises(SampleError, match=r"my.lines.*x.txt:2.*the line is empty"):
        pipe.run()
    assert bytes(np.asarray(pipe.run()[0][0])) == b"c"
    with pytest.raises(ValueError, match="shard_id must be"):
        pipeline(shard_id=1).build()
    path.unlink()
    with pytest.raises(OperatorError, match=r"my\.lines .*No such file") as e:
        pipeline().build()
    # Whose traceback is the user's own code; that of our readers is left out.
    assert isinstance(e.value.__cause__, FileNotFoundError)
    monkeypatch.delattr(recipe.ReadLines, "open")
    with pytest.raises(OperatorError) as e:
        pipeline().build()
    assert isinstance(e.value.__cause__, NotImplementedError)
