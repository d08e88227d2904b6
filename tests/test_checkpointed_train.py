"""The training program of the guide "Train a model", and that the guide shows the same code."""

import ast
import re
import subprocess
import sys

import jax
import numpy as np
import places
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image
from programs import load

from jaxdali import fn
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.jax import data_iterator

GUIDE = places.EXAMPLES / "site" / "guides" / "training.md"


def definitions(source):
    """The functions, classes and constants of a program, without their format, comments and types."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
    named = {node.name: ast.dump(node) for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return named | {ast.dump(node.targets[0]): ast.dump(node) for node in tree.body if isinstance(node, ast.Assign)}


def test_guide_has_the_code_of_the_example():
    """Whoever copies the guide's cells has the example's functions."""
    cells = "\n".join(re.findall(r"```\{code-cell\}\n(?::[^\n]*\n)*(.*?)```", GUIDE.read_text(), re.DOTALL))
    shown = definitions(cells)
    for name, code in definitions((places.EXAMPLES / "checkpointed_train.py").read_text()).items():
        if name != "main":
            assert shown[name] == code, f"{name} of examples/checkpointed_train.py differs from the guide's"


@pytest.fixture
def program():
    """The example as a module."""
    for package in ("flax", "optax", "orbax.checkpoint"):
        pytest.importorskip(package)
    return load("checkpointed_train")


@pytest.fixture
def photos(program, tmp_path):
    """168 photos to train on and 63 for validation."""
    program.make_photos(places.PHOTOS, tmp_path / "train", per_photo=8, seed=0)
    program.make_photos(places.PHOTOS, tmp_path / "val", per_photo=3, seed=1)
    return tmp_path


def test_a_stopped_run_continues(program, photos, tmp_path, capsys):
    """A run that is stopped after a checkpoint in the middle of an epoch has the losses of one that is not stopped."""
    with jax.numpy_dtype_promotion("standard"):  # optax relies on it
        whole = program.train(photos, tmp_path / "whole", steps=20)
        stopped = program.train(photos, tmp_path / "stopped", steps=13, save_every=4)
        resumed = program.train(photos, tmp_path / "stopped", steps=20)
    assert stopped == whole[:13]
    assert resumed == whole[12:]  # from the third of five batches of the epoch
    assert np.mean(whole[-5:]) < 0.7 * np.mean(whole[:5])
    printed = capsys.readouterr().out
    assert printed.count("continues after step 12\n") == 1
    assert re.findall(r"of (\d+) are right", printed) == ["63"] * 8  # every photo once, without the padding


def test_mean_and_deviation_of_photos(photos):
    """The guide's numbers are those of all pixels as Pillow decodes them."""
    (cell,) = re.findall(r"```\{code-cell\}\n(@data_iterator.*?)```", GUIDE.read_text(), re.DOTALL)
    names = {"data_iterator": data_iterator, "LastBatchPolicy": LastBatchPolicy, "fn": fn, "jax": jax, "np": np}
    names["photos"] = photos
    exec(cell, names)
    pixels = [np.asarray(Image.open(path)).reshape(-1, 3) for path in (photos / "train").rglob("*.jpg")]
    pixels = np.concatenate(pixels, dtype=np.float64)
    np.testing.assert_allclose([names["mean"], names["std"]], [pixels.mean(0), pixels.std(0)], rtol=1e-6)


def test_other_numbers_of_devices(program, tmp_path):
    """A state of the second epoch fits one device and all: the rest of the epoch are photos that were not seen, and the
    next epoch has all photos again.
    """
    for part in ("train", "val"):
        for i in range(168):  # the label of a photo is its number
            folder = tmp_path / part / f"{i:03}"
            folder.mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / "photo.jpg")

    def numbers(iterator, batches):
        """The photos of so many batches of 16."""
        return [int(label) for _ in range(batches) for label in np.asarray(next(iterator)["labels"])[:, 0]]

    state, first_numbers = None, []
    for devices in (4, 1, 8):
        sharding = NamedSharding(Mesh(jax.devices()[:devices], ("batch",)), PartitionSpec("batch"))
        iterator, val_iterator = program.make_iterators(tmp_path, sharding, 16)
        with iterator, val_iterator:
            assert len(iterator) == 10  # DROP leaves out 8 of the 168 photos
            if state is None:
                numbers(iterator, 10)
                first_numbers = numbers(iterator, 4)
                state = iterator.get_state()
            else:
                iterator.set_state(state)
            epoch, next_epoch = first_numbers + numbers(iterator, 6), numbers(iterator, 10)
            assert len(set(epoch)) == len(set(next_epoch)) == 160, f"{devices} devices"
            assert epoch != next_epoch
            assert next(iterator)["images"].sharding.is_equivalent_to(sharding, 4)


@pytest.mark.slow
def test_example(tmp_path):
    """The program as a user starts it: it stops halfway and continues."""
    command = [sys.executable, str(places.EXAMPLES / "checkpointed_train.py")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "continues after step 20\nstep 21:" in run.stdout
    assert "of 84 are right" in run.stdout
