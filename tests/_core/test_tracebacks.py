"""Tracebacks of errors have the user's frames only. JAXDALI_TRACEBACK=full adds those of the package."""

import os
import pathlib
import subprocess
import sys
import textwrap
import traceback
from typing import Literal, Unpack

import numpy as np
import pytest

import jaxdali
from jaxdali import dynamic, fn, ops, pipeline_def
from jaxdali.extend import DataNode, Elementwise, Hints, Input, operator_function
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator
from jaxdali.plugin.jax.fn import jax_function

PACKAGE = str(pathlib.Path(jaxdali.__file__).parent) + os.sep


@pytest.fixture(autouse=True)
def filtered(monkeypatch):
    monkeypatch.delenv("JAXDALI_TRACEBACK")


def fails(x):
    return {}["mine"]


def source():
    return fails(0)


class Mine(Elementwise):
    """A user operator."""

    name = "my.operator"

    def infer(self, *specs):
        return fails(specs)


@operator_function(Mine)
def mine(
    input: Input, /, *, device: Literal["cpu", "gpu"] | None = None, name: str | None = None, **hints: Unpack[Hints]
) -> DataNode:
    """Fails.

    Args:
      input: anything.
    """
    ...


def define(make, **arguments):
    return pipeline_def(make, batch_size=2, num_threads=1, device_id=None, **arguments)


def of_source(f, **arguments):
    return define(lambda: fn.external_source(f, **arguments))


def conditional():
    x = fn.external_source(lambda: np.arange(2))
    if x > 0:
        y = fn.resize(x, sise=3)
    else:
        y = x
    return y


def wrong_argument():
    return fn.resize(fn.external_source(lambda: np.zeros((2, 4, 4, 3), np.uint8)), sise=3)


# Functions that raise an error, and the functions of this file that must be in its traceback, innermost last.
ERRORS = {
    "operator in a definition": (lambda: define(wrong_argument)().run(), ["wrong_argument"]),
    "operator in an if": (lambda: define(conditional, enable_conditionals=True)().run(), ["conditional"]),
    "operator by itself": (lambda: fn.resize(np.zeros((2, 2, 3), np.uint8), sise=3), ["<lambda>"]),
    "function of values": (lambda: dynamic.resize(np.zeros((2, 2, 3), np.uint8), sise=3), ["<lambda>"]),
    "program of values": (lambda: dynamic.jit(fails)(np.zeros((2, 2, 3), np.uint8)), ["<lambda>", "fails"]),
    "decode_jpeg": (lambda: jaxdali.decode_jpeg(b"no image"), ["<lambda>"]),
    "show": (lambda: jaxdali.show(np.zeros((2, 3)), colums=3), ["<lambda>"]),
    "operator's class": (lambda: ops.Resize(size=3)(5, sise=3), ["<lambda>"]),
    "subscript": (lambda: fn.random.uniform()["a"], ["<lambda>"]),
    "truth": (lambda: bool(fn.random.uniform()), ["<lambda>"]),
    "pipeline's argument": (lambda: define(wrong_argument)(batch_sise=3), ["<lambda>"]),
    "source": (lambda: of_source(source)().run(), ["<lambda>", "fails"]),
    "source in a thread": (lambda: of_source(source, parallel=True)().run(), ["<lambda>", "fails"]),
    "Python function": (
        lambda: define(
            lambda: fn.python_function(fn.external_source(lambda: np.zeros((2, 3))), function=fails)
        )().run(),
        ["<lambda>", "fails"],
    ),
    "JAX function": (
        lambda: define(lambda: jax_function(fails)(fn.external_source(lambda: np.zeros((2, 3)))))().run(),
        ["<lambda>", "fails"],
    ),
    "own operator": (
        lambda: define(lambda: mine(fn.external_source(lambda: np.zeros((2, 3)))))().run(),
        ["<lambda>", "infer", "fails"],
    ),
    "missing file": (lambda: define(lambda: fn.readers.file(files=["/nowhere/x"])[0])().run(), ["<lambda>"]),
    "iterator's first batch": (lambda: DALIGenericIterator(of_source(source)(), ["x"]), ["<lambda>", "fails"]),
    "iterator's batch": (
        lambda: next(DALIGenericIterator(of_source(source)(), ["x"], prepare_first_batch=False)),
        ["<lambda>", "fails"],
    ),
    "data_iterator": (lambda: data_iterator(wrong_argument, ["x"])(batch_size=2), ["wrong_argument"]),
    "iterator's end": (
        lambda: [next(it) for it in [DALIGenericIterator(define(lambda: fn.random.uniform())(), ["x"], size=2)] * 2],
        ["<lambda>"],
    ),
    "pipeline's end": (lambda: of_source(iter(()))().run(), ["<lambda>"]),
    "batch": (lambda: dynamic.batch(np.zeros((2, 3)), layout="HWC"), ["<lambda>"]),
    "tensor": (lambda: dynamic.tensor(np.zeros((2, 3)), layout="HWC"), ["<lambda>"]),
    "name of an operator": (lambda: fn.to_tensor, ["<lambda>"]),
    "name in a module": (lambda: jaxdali.pipeline.nonsense, ["<lambda>"]),
    "name of a function of values": (lambda: dynamic.to_tensor, ["<lambda>"]),
    "name below the functions of values": (lambda: dynamic.reductions.nonsense, ["<lambda>"]),
    "name of a reader": (lambda: dynamic.readers.Nonsense, ["<lambda>"]),
    "name of a class": (lambda: ops.Nonsense, ["<lambda>"]),
    "name of a class of readers": (lambda: ops.readers.Nonsense, ["<lambda>"]),
    "name as in DALI": (lambda: jaxdali.experimental.dynamic.reductions.nonsense, ["<lambda>"]),
    "data_iterator's argument": (lambda: data_iterator(output_mop=["x"]), ["<lambda>"]),
}


def raised(action):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        action()
    return caught.value


def chain(e):
    while e is not None:
        yield e
        e = e.__cause__ or (None if e.__suppress_context__ else e.__context__)


def frames(e):
    """Frames of the exception and of all its causes, the innermost last."""
    return [frame for x in reversed(list(chain(e))) for frame, _ in traceback.walk_tb(x.__traceback__)]


@pytest.mark.parametrize("kind", ERRORS)
def test_frames_inside_the_package_are_not_shown(kind, monkeypatch):
    action, expected = ERRORS[kind]
    error = raised(action)
    shown = frames(error)
    assert not [f.f_code.co_filename for f in shown if f.f_code.co_filename.startswith(PACKAGE)]
    assert not [
        f
        for f in shown
        if f.f_globals.get("__name__", "").startswith(("malt", "concurrent", "threading", "contextlib"))
    ]
    names = [f.f_code.co_name for f in shown if f.f_code.co_filename == __file__]
    assert set(expected) <= set(names)
    assert names[0] == "raised" or "fails" in names
    monkeypatch.setenv("JAXDALI_TRACEBACK", "full")  # checked when it is raised
    full = raised(action)
    assert [f for f in frames(full) if f.f_code.co_filename.startswith(PACKAGE)]
    assert (type(full), len(list(chain(full)))) == (type(error), len(list(chain(error))))


def test_the_cause_stays():
    error = raised(ERRORS["Python function"][0])
    assert isinstance(error, jaxdali.OperatorError)
    (cause,) = [x for x in chain(error) if isinstance(x, KeyError)]
    assert traceback.extract_tb(cause.__traceback__)[-1].line == 'return {}["mine"]'


def test_suppressed_context_is_dropped():
    """A suppressed context is never shown, and its text may have credentials."""

    def source():
        try:
            fails(0)
        except KeyError:
            raise ValueError("without it") from None

    with pytest.raises(ValueError, match="without it") as e:
        of_source(source)().run()
    assert (e.value.__cause__, e.value.__context__) == (None, None)


def test_errors_read_by_the_package_keep_frames():
    """The package finds the operator and the user's line for a message in the frames, also if it has called the user's
    function itself.
    """
    error = raised(ERRORS["operator in a definition"][0])
    assert "resize: got an unexpected argument 'sise'; did you mean 'size'?" in str(error)
    assert f"{__file__}:" in str(error)


def test_printed_traceback(tmp_path):
    program = """
        from jaxdali import fn, pipeline_def

        @pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def pipeline():
            files, _ = fn.readers.file(files=["/nowhere/x.jpg"])
            return fn.decoders.image(files, outputs=3)

        pipeline()
    """
    (tmp_path / "p.py").write_text(textwrap.dedent(program))
    env = {k: v for k, v in os.environ.items() if k != "JAXDALI_TRACEBACK"}

    def lines(**more):
        printed = subprocess.run(
            [sys.executable, tmp_path / "p.py"], env={**env, **more}, capture_output=True, text=True
        ).stderr.splitlines()
        return [line.split('"')[1] for line in printed if line.startswith("  File ")]

    assert lines() == [str(tmp_path / "p.py")] * 2
    full = lines(JAXDALI_TRACEBACK="full")
    assert len(full) > 4
    assert [f for f in full if not f.startswith(PACKAGE)] == [str(tmp_path / "p.py")] * 2


def test_errors_without_a_working_directory(tmp_path):
    """A relative name such as "<string>", of code in no file, can't be made absolute there."""
    program = """
import os, sys
os.rmdir(os.getcwd())
from jaxdali import fn, pipeline_def
try:
    pipeline_def(lambda: fn.readers.file(files=["/none.jpg"])[0])(batch_size=1).run()
except RuntimeError as e:
    print(e)
"""
    (tmp_path / "gone").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(PACKAGE).parent)}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "gone", env=environment, capture_output=True, text=True
    )
    assert "/none.jpg: No such file or directory" in run.stdout, run.stderr
