"""python -m jaxdali.port --run: runs a script as `python SCRIPT` does, with nvidia.dali as an alias of jaxdali."""

import os
import subprocess
import sys

import pytest

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
