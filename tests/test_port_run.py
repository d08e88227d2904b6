"""python -m jaxdali.port --run: runs a script as `python SCRIPT` does, with nvidia.dali as an alias of jaxdali."""

import os
import subprocess
import sys

import pytest

from jaxdali import port

pytestmark = pytest.mark.same_with_any_jax

COMMON = """\
import sys
import nvidia.dali
import nvidia.dali.fn as fn
import nvidia.dali.ops.random as random_classes
from nvidia.dali import Pipeline, __version__, pipeline_def, types
from nvidia.dali.fn import readers
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia import dali
import jaxdali
"""


def run(folder, *arguments, **environment):
    command = [sys.executable, "-m", "jaxdali.port", "--run", *arguments]
    # conftest.py sets PYTHONSAFEPATH, with which a script does not find modules beside it.
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120, env={**environ, **environment}
    )


def test_names(tmp_path):
    """All ways of importing give jaxdali's own objects, and a version number of DALI. jaxdali itself does not change."""
    (tmp_path / "s.py").write_text(
        COMMON + "assert fn is nvidia.dali.fn is dali.fn is jaxdali.fn and readers is jaxdali.fn.readers\n"
        "assert random_classes.CoinFlip is jaxdali.ops.random.CoinFlip and Pipeline is dali.pipeline.Pipeline is jaxdali.Pipeline\n"
        "assert int(__version__.split('.')[0]) >= 1 and fn.__spec__.name == fn.__name__ == 'jaxdali.fn'\n"
        "dali.own = 3\nassert not hasattr(jaxdali, 'own')\n"
        "@pipeline_def(batch_size=2, num_threads=1, device_id=None)\ndef pipe():\n    return fn.full(7.0, shape=[2])\n"
        "print(pipe().run()[0].as_array().tolist())\n"
    )
    process = run(tmp_path, "s.py")
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == "[[7.0, 7.0], [7.0, 7.0]]\n"


@pytest.mark.parametrize("module", [False, True])
def test_as_python_runs_it(module, tmp_path):
    """Arguments, name, exit status and exceptions are those of Python. Child processes of every kind find nvidia.dali."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").write_text("import nvidia.dali.fn as fn\nNAME = fn.__name__\n")
    text = """\
import multiprocessing, os, subprocess, sys
{beside}

def child(queue):
    from nvidia.dali import fn
    queue.put(fn.__name__)

if __name__ == "__main__":
    print(sys.argv[1:], os.path.basename(sys.argv[0]), beside.NAME)
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(queue.get(timeout=60))
        process.join()
    print(subprocess.check_output([sys.executable, "-c", "import nvidia.dali.types as t; print(t.__name__)"], text=True).strip())
    sys.stdout.flush()
    raise SystemExit(7) if sys.argv[1:] else KeyError("own")
"""
    (tmp_path / "sub" / "s.py").write_text(text.format(beside="from . import beside" if module else "import beside"))
    script = ["-m", "sub.s"] if module else ["sub/s.py"]
    process = run(tmp_path, *script, "--lines", "--run", "-x")
    assert process.returncode == 7, process.stderr
    assert process.stdout.splitlines() == [
        "['--lines', '--run', '-x'] s.py jaxdali.fn",
        "jaxdali.fn",
        "jaxdali.fn",
        "jaxdali.types",
    ]
    process = run(tmp_path, *script)
    assert process.returncode == 1
    frames = [line.strip() for line in process.stderr.splitlines() if line.startswith("  File") and "runpy" not in line]
    assert len(frames) == 1
    assert process.stderr.endswith("KeyError: 'own'\n")


def test_missing_modules(tmp_path):
    """An import of a missing module raises ImportError, which scripts may catch. Other modules of `nvidia` are found."""
    elsewhere = tmp_path / "elsewhere" / "nvidia"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").write_text("")
    (elsewhere / "other.py").write_text("x = 3")
    (tmp_path / "s.py").write_text(
        "import importlib, nvidia.other\nprint(nvidia.other.x)\n"
        "for name in ('tomorrow', 'fn.tomorrow', 'experimental.eager'):\n"
        "    try:\n        importlib.import_module(f'nvidia.dali.{name}')\n"
        "    except ImportError as e:\n        print(e)\n"
    )
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(elsewhere.parent)]))
    process = run(tmp_path, "s.py", PYTHONPATH=path)
    assert (process.returncode, process.stderr) == (0, "")
    first, second, third, fourth = process.stdout.splitlines()
    assert (first, second, third) == (
        "3",
        "No module named 'nvidia.dali.tomorrow'",
        "No module named 'nvidia.dali.fn.tomorrow'",
    )
    assert fourth.startswith("nvidia.dali.experimental.eager is not in jaxdali: ")


def test_wrong_arguments(tmp_path):
    process = run(tmp_path)
    assert process.returncode == 2
    assert "which script?" in process.stderr
    process = run(tmp_path, "nowhere.py")
    assert process.returncode == 2
    assert "can't open file" in process.stderr


# --- --batches ------------------------------------------------------------------------------------------------------

DEFINITION = """\
import sys
import jax
import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.jax import DALIGenericIterator, data_iterator

def source(n):
    return [np.full((2, 3), k + 0.5, np.float32) for k in range(n)]

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def pipe(n=5):
    return fn.external_source(source=source(n), batch=True, cycle="raise")
"""


def run_batches(folder, text, number=1, *arguments):
    """Runs a script with --batches. Returns the exit status, and the lines of stdout and stderr."""
    (folder / "s.py").write_text(DEFINITION + text)
    process = run(folder, "--batches", str(number), "s.py", *arguments)
    return process.returncode, process.stdout.splitlines(), process.stderr.splitlines()


def test_batches_of_epochs(tmp_path):
    """All loops of the first epoch run; the second epoch ends the script. A short epoch ends as it does without a limit."""
    status, lines, errors = run_batches(
        tmp_path,
        """
@data_iterator(output_map=["x", "y"])
def validation():
    x = fn.external_source(source=source(1), batch=True, cycle="raise")
    return x, fn.cast(x, dtype=types.INT32)
train = DALIGenericIterator(pipe(), ["x"])
val = validation(batch_size=2, num_threads=1, device_id=None)
DALIGenericIterator(pipe(), ["x"])
sum_donated = jax.jit(lambda x: x + 1, donate_argnums=0)
for epoch in range(90):
    for batch in train:
        print("train", batch["x"][0, 0], sum_donated(batch["x"])[0, 0])
    for batch in val:
        print("val", batch["x"][0, 0])
    train.reset()
    val.reset()
    print("end of epoch", epoch)
""",
        2,
    )
    assert (status, errors) == (0, [])
    assert lines == [
        "train 0.5 1.5",
        "train 1.5 2.5",
        "val 0.5",
        "end of epoch 0",
        "",
        "s.py:18: pipe, DALIGenericIterator: 2 batches",
        "  x  float32  (2, 3)  0.5 to 1.5",
        "",
        "s.py:19: validation, DALIGenericIterator: 1 batch",
        "  x  float32  (2, 3)  0.5 to 0.5",
        "  y  int32    (2, 3)  1 to 1",
        "",
        "s.py:20: pipe, DALIGenericIterator: no batch",
    ]


@pytest.mark.parametrize(
    "loop",
    [
        """
it = DALIGenericIterator(pipe(), ["x"])
def steps():
    while True:
        yield next(it)["x"]
for x in steps():
    print(x.sum())
""",
        """
p = pipe()
for step in range(100):
    print(p.run()[0].as_array().sum())
""",
        """
p = pipe()
p.schedule_run()
while True:
    print(p.outputs()[0].as_array().sum())
    p.schedule_run()
""",
        """
p = pipe(debug=True)
while True:
    try:
        print(p.run()[0].as_array().sum())
    except StopIteration:
        p.reset()
""",
    ],
    ids=["next", "run", "schedule_run", "caught"],
)
def test_batches_of_steps(loop, tmp_path):
    """The end of the data ends the script without an error if nobody expects it."""
    status, lines, errors = run_batches(tmp_path, loop)
    assert (status, errors, lines[0], len(lines)) == (0, [], "3.0", 4)
    assert lines[2].startswith("s.py:")
    assert lines[2].endswith(": 1 batch")
    assert lines[3].endswith("  float32  (2, 3)  0.5 to 0.5")


def test_batches_of_a_loading_thread(tmp_path):
    """The thread ends the script, but not before the main thread has used what the thread loaded. A job in the
    background ignores SIGINT.
    """
    status, lines, errors = run_batches(
        tmp_path,
        """
import queue, signal, threading, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
batches = queue.Queue()
it = DALIGenericIterator(pipe(), ["x"], auto_reset=True)
def load():
    while True:
        for batch in it:
            batches.put(batch)
threading.Thread(target=load, daemon=True).start()
while True:
    batch = batches.get()
    start = time.monotonic()
    while time.monotonic() < start + 4:
        pass
    print(batch["x"][0, 0])
""",
        2,
    )
    assert (status, errors, lines[:2], lines[3]) == (
        0,
        [],
        ["0.5", "1.5"],
        "s.py:17: pipe, DALIGenericIterator: 2 batches",
    )


def test_batches_of_a_prefetcher(tmp_path):
    """It asks for more batches than there are, while some are in its queue."""
    status, lines, errors = run_batches(
        tmp_path,
        """
import collections, itertools
def prefetched(iterator, size):
    batches = collections.deque(itertools.islice(iterator, size))
    while batches:
        yield batches.popleft()
        batches.extend(itertools.islice(iterator, 1))
it = DALIGenericIterator(pipe(), ["x"])
for epoch in range(90):
    for batch in prefetched(it, 2):
        print(epoch, batch["x"][0, 0])
    it.reset()
    print("end of epoch", epoch)
""",
        3,
    )
    assert (status, errors, lines[:4]) == (0, [], ["0 0.5", "0 1.5", "0 2.5", "end of epoch 0"])
    assert lines[5] == "s.py:20: pipe, DALIGenericIterator: 3 batches"


def test_batches_keep_errors(tmp_path):
    text = """
p = pipe()
try:
    p.run()
    p.run()
except StopIteration as e:
    raise RuntimeError("too few") from e
sys.exit(7)
"""
    status, lines, errors = run_batches(tmp_path, text)
    assert (status, errors[-1]) == (1, "RuntimeError: too few")
    assert lines[1:] == ["s.py:16: pipe, Pipeline: 1 batch", "  output 0  float32  (2, 3)  0.5 to 0.5"]
    status, lines, errors = run_batches(tmp_path, text, 2)
    assert (status, lines[1], errors) == (7, "s.py:16: pipe, Pipeline: 2 batches", [])


def test_batches_of_programs_with_excepthooks(tmp_path):
    """They see errors, but not the end. A hook may call the one before, and be set late."""
    text = """
def hook(kind, *args, before=sys.excepthook):
    print("seen", kind.__name__)
    before(kind, *args)
sys.excepthook = hook
p = pipe()
try:
    p.run()
    p.run()
except StopIteration:
    sys.excepthook = lambda *args, before=sys.excepthook: before(*args)
try:
    p.run()
except StopIteration as e:
    if len(sys.argv) > 1:
        raise ValueError("own") from e
    raise
"""
    status, lines, errors = run_batches(tmp_path, text)
    assert (status, errors, lines[1]) == (0, [], "s.py:20: pipe, Pipeline: 1 batch")
    status, lines, errors = run_batches(tmp_path, text, 1, "error")
    assert (status, errors[-1], lines[0]) == (1, "ValueError: own", "seen ValueError")


def test_forms_of_outputs(tmp_path):
    """Peeking takes no batch."""
    status, lines, errors = run_batches(
        tmp_path,
        """
from nvidia.dali.plugin.jax.clu import peekable_data_iterator
files = [sys.argv[0]] * 2
@peekable_data_iterator(output_map=["list", "padded", "name"], ragged={"list": None, "padded": 4})
def forms():
    name = fn.readers.file(files=files, metadata=["filename"])[2]
    x = fn.external_source(source=[[np.arange(k + 1, dtype=np.int32) for k in (1, 2)]], batch=True, cycle=True)
    return x, x, name
it = forms(batch_size=2, num_threads=1, device_id=None)
print(it.peek()["list"] is not None, len(next(it)))
""",
    )
    assert (status, errors, lines[0]) == (0, [], "True 3")
    assert lines[2:] == [
        "s.py:21: forms, DALIGenericPeekableIterator: 1 batch",
        "  list    int32  ragged, 2 samples, the first (2,)  0 to 2",
        "  padded  int32  ragged, padded to (2, 4)           0 to 2",
        "  name    str    2 objects",
    ]


def test_batches_of_torch_in_children(tmp_path):
    """A class of the script, whose `next` calls ours, in a process that the script starts."""
    pytest.importorskip("torch")
    status, lines, errors = run_batches(
        tmp_path,
        """
import multiprocessing
def work():
    from nvidia.dali.plugin.pytorch import DALIGenericIterator
    class Own(DALIGenericIterator):
        def __next__(self):
            return super().__next__()[0]["x"]
    it = Own(pipe(), ["x"], auto_reset=True)
    for epoch in range(90):
        for x in it:
            print(epoch, tuple(x.shape), flush=True)
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
    sys.exit(process.exitcode + 3)
""",
    )
    assert (status, errors) == (3, [])
    assert lines == [
        "0 (2, 3)",
        "",
        "s.py:20: pipe, Own: 1 batch",
        "  x  float32  (2, 3)  0.5 to 0.5",
        "",
        "no iterator or pipeline was used in this process",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "--batches", "0", "s.py"], "argument --batches: must be a whole number from 1 on, got '0'"),
        (["--run", "--batches=s.py"], "argument --batches: must be a whole number from 1 on, got 's.py'"),
        (["--run", "--batches"], "argument --batches: expected one argument"),
        (["--run", "--batches", "1"], "--run: which script?"),
        (["--batches", "1", "s.py"], "--batches goes with --run"),
        (["--run", "--batch", "1", "s.py"], "--run --batch: there is no such option"),
    ],
)
def test_wrong_numbers_of_batches(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        port.main(arguments)
    assert capsys.readouterr().err.endswith(f"error: {message}\n")
