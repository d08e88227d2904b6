"""jaxdali.port without options: reads scripts and reports names of DALI that jaxdali lacks."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
from images import encode, picture

from jaxdali import port
from jaxdali._pipeline.pipeline import internals_of

pytestmark = pytest.mark.same_with_any_jax

SCRIPT = """\
import nvidia.dali as dali
import nvidia.dali.types as types
import numpy as np
from nvidia.dali import Pipeline, fn, pipeline_def as make
from nvidia.dali.plugin.tomorrow import Iterator

decode = fn.decoders.image
raise SystemExit("a script is not run")

class Old(Pipeline):
    def __init__(self, n):
        super(Old, self).__init__(n, 2, 0, seed=1, colour=3)

    def define_graph(self, fn=None):
        return fn.whatever(1)  # a parameter, not the module

@make(batch_size=4, wrong=1)
def pipe(path, k=1):
    x, _ = fn.readers.file(file_root=path, nope=1)
    x = decode(x, device="mixed", unknown=2)
    y = fn.tomorrow(x).gpu()
    np.fromfile(path, nope=1)
    return fn.resize(x, size=(1, 2), interp_type=types.INTERP_LINEAR), dali.fn.noise.cosmic(y), types.DALIImageType.RGB, types.PURPLE

p = pipe("x", k=2, num_threads=3, batch=3)
p.build()
p.teleport()
p.own_attribute = 3
with Pipeline(1, 1, None) as other:
    other.set_outputs(*[fn.tomorrow(x) for x in range(3)])
"""
MISSING = [
    "5: plugin.tomorrow.Iterator",
    "12: Pipeline.__init__(colour=)",
    "17: pipeline_def(wrong=)",
    "19: fn.readers.file(nope=)",
    "20: fn.decoders.image(unknown=)",
    "21: fn.tomorrow",
    "23: fn.noise.cosmic",
    "23: types.PURPLE",
    "25: pipeline_def(batch=)",
    "27: Pipeline.teleport",
    "30: fn.tomorrow",
]


def run(capsys, *arguments):
    code = port.main([str(a) for a in arguments])
    return code, capsys.readouterr().out.splitlines()


def test_lines(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    code, out = run(capsys, path, "--lines")
    assert code == 1
    assert [line.removeprefix(f"{path}:") for line in out] == MISSING


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        (
            "import nvidia.dali\nx = nvidia.dali.fn.tomorrow(1)\nnvidia.dali.fn.resize(1)\nnvidia.other.x()",
            ["2: fn.tomorrow"],
        ),
        (
            "from nvidia import dali as d\nd.fn.tomorrow(1)\nd.Pipeline(1, foo=2)",
            ["2: fn.tomorrow", "3: Pipeline(foo=)"],
        ),
        ("from nvidia.dali.fn import *\nresize(1, sise=2)\nprint(1)", ["2: fn.resize(sise=)"]),
        ("import nvidia.dali.tomorrow.morning as m\nm.f()", ["1: tomorrow.morning", "2: tomorrow.morning.f"]),
        ("from nvidia.dali.fn import resize\ndef f(resize):\n  resize(1, x=2)\nresize(1, x=2)", ["4: fn.resize(x=)"]),
        ("from nvidia.dali import fn\nfn = None\nfn.tomorrow()", []),
        (
            "from nvidia.dali import ops\nr = ops.Resize(size=1, sise=2)\no = [ops.Tomorrow]",
            ["2: ops.Resize(sise=)", "3: ops.Tomorrow"],
        ),
        (
            "import nvidia.dali.plugin.pytorch as p\np.DALIGenericIterator, p.LastBatchPolicy.PARTIAL\np.Tomorrow",
            ["3: plugin.pytorch.Tomorrow"],
        ),
        (
            "from nvidia.dali.plugin.pytorch import fn, TorchPythonFunction\nimport nvidia.dali.plugin.pytorch.fn as other\n"
            "fn.torch_python_function(1, function=len)\nTorchPythonFunction(len)\nother.torch_python_function\nother.pytorch",
            # Without PyTorch, the names of the module are unknown.
            ["6: plugin.pytorch.fn.pytorch"] if importlib.util.find_spec("torch") else [],
        ),
        (
            "from nvidia.dali.plugin.jax import data_iterator as d\n@d(output_map=[], colour=1)\ndef f(a): pass\nf(a=1, b=2, batch_size=3)",
            ["2: plugin.jax.data_iterator(colour=)", "4: data_iterator(b=)"],
        ),
        ("import other.dali.fn as fn\nfn.tomorrow()  # nvidia", []),
        (
            "from nvidia.dali.pipeline import _pipeline_def_experimental as d\n@d(batch_size=4, colour=1)\ndef f(a): pass\n"
            "p = f(a=1, num_threads=2)\np._prefetch()\np._teleport()",
            ["2: pipeline._pipeline_def_experimental(colour=)", "6: Pipeline._teleport"],
        ),
    ],
)
def test_ways_to_name(script, missing, tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(script)
    code, out = run(capsys, path, "--lines")
    assert [line.removeprefix(f"{path}:") for line in out] == missing
    assert code == bool(missing)


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        (
            "import importlib\nd = importlib.import_module('nvidia.dali')\nd.fn.tomorrow(1)\nd.fn.resize(1, sise=1)",
            [3, 4],
        ),
        ("from importlib import import_module as im\nfn = import_module('nvidia.dali.fn')\nfn.tomorrow()", [3]),
        (
            "d = __import__('nvidia.dali', fromlist=['fn'])\nd.fn.tomorrow()\nn = __import__('nvidia.dali')\nn.dali.fn.x()",
            [2],
        ),
        ("fn = lazy_import('nvidia.dali.fn')\nfn.tomorrow()", [2]),
        ("def get():\n  from nvidia.dali import fn as F\n  return F\nget().tomorrow()\nx = get()\nx.later()", [4, 6]),
        (
            "def get():\n  try:\n    import nvidia.dali as d\n  except E:\n    class d:\n      fn = 3\n  return d\nget().fn.tomorrow()",
            [8],
        ),
        ("try:\n  from nvidia.dali import fn\nexcept ImportError:\n  fn = None\nfn.tomorrow()", [5]),
        ("if x:\n  from nvidia.dali import fn\nelse:\n  fn = None\nfn.tomorrow()", [5]),
        (
            "class A:\n  def f(self):\n    self.fn.tomorrow()\n  def __init__(self):\n    from nvidia.dali import fn\n    self.fn = fn",
            [],
        ),
        (
            "class A:\n  def __init__(self):\n    from nvidia.dali import fn\n    self.fn = fn\n  def f(self):\n    self.fn.tomorrow()",
            [6],
        ),
        ("from nvidia import dali\nclass A:\n  fn = dali.fn\n  def f(self):\n    self.fn.tomorrow()", [5]),
        (
            "from nvidia.dali import fn, types\nm = {'fn': fn, 'types': types}\nm['fn'].tomorrow(m['types'].PURPLE)",
            [3, 3],
        ),
        ("from nvidia.dali import fn\nm = {}\nm['fn'] = fn\nc.fn = fn\nm['fn'].tomorrow()\nc.fn.later()", [5, 6]),
        (
            "from types import SimpleNamespace as N\nfrom nvidia.dali import fn\nn = N(fn=fn)\nm = dict(f=fn)\nm['f'].later()",
            [5],
        ),
        (
            "from nvidia import dali\nfn, t = dali.fn, dali.types\nfn.resize(1, dtype=t.PURPLE)\nf = getattr(fn, 'tomorrow')\nf()",
            [3, 5],
        ),
        ("def f():\n  fn.tomorrow()\ndef g():\n  global fn\n  from nvidia.dali import fn\ng()", []),
        ("def g():\n  global fn\n  from nvidia.dali import fn\ndef f():\n  fn.tomorrow()", [5]),
        ("def f():\n  fn.tomorrow()\nfrom nvidia.dali import fn", [2]),
        ("from nvidia.dali import fn\ndef f(of, x):\n  return of.tomorrow(x)\nf(fn, 1)\nf(of=fn, x=2)", [3]),
        ("from nvidia.dali import fn\ndef f(x, of=fn):\n  return of.tomorrow(x)", [3]),
        ("from nvidia.dali import fn\nfn.resize(1, **{'size': 1, 'sise': 2})", [2]),
        (
            "from .mine import fn as F, make, own\nF.tomorrow()\nmake().later()\nown.resize()\nown(batch_size=1, bath=2)",
            [2, 3, 5],
        ),
        ("import mine\nmine.fn.tomorrow()\nfrom mine import *\nfn.later()", [2, 4]),
    ],
)
def test_ways_around_names(script, missing, tmp_path, capsys):
    """Names of DALI that are passed through functions, attributes, collections and other files."""
    (tmp_path / "mine.py").write_text(
        "from nvidia.dali import fn, pipeline_def\ndef make():\n  return fn\n@pipeline_def\ndef own(path):\n  pass\n"
    )
    path = tmp_path / "script.py"
    path.write_text(f"{script}\n# dali")
    code, out = run(capsys, path, "--lines")
    assert [int(line.removeprefix(f"{path}:").partition(":")[0]) for line in out] == missing
    assert code == bool(missing)


def test_uses_out_of_sight(tmp_path, capsys):
    """Lines whose uses of DALI can't be known are reported, with the reason."""
    path = tmp_path / "script.py"
    path.write_text(
        "import importlib\nfrom nvidia.dali import fn, ops\nfrom other.tools import dali_reader\n"
        "f = getattr(fn, name)\nimportlib.import_module('nvidia.dali.' + name)\nexec('import nvidia.dali')\n"
        "helper(fn)\nfn.resize(1, **options)\nvars(fn)[name]\nprint(fn)\ngetattr(x, name)\n"
    )
    code, out = run(capsys, path)
    assert code == 0
    assert out[0] == "not seen"
    assert [int(line.split()[0]) for line in out[1:8]] == [3, 4, 5, 6, 7, 8, 9]
    for line, words in zip(
        out[1:8],
        ("dali_reader of other.tools", "getattr", "import_module", "exec", "helper", "**options", "dictionary"),
    ):
        assert words in line
    assert out[8:] == ["", "1 of 1 names work."]
    path.write_text("from jaxdali import fn\nfrom jaxdali.plugin.jax import data_iterator")
    code, out = run(capsys, path)
    assert (code, out) == (0, ["It does not use DALI."])
    path.write_text("from other import try_import_dali\ndali = try_import_dali()\ndali.fn.resize(1)")
    code, out = run(capsys, path)
    assert (code, out[-1]) == (0, "It does not use DALI, as far as that is seen.")


def test_round_trips_between_host_and_program(tmp_path, capsys):
    """Values that a program makes and the host needs are reported, as the plan of the built pipeline has them."""
    path = tmp_path / "script.py"
    path.write_text(
        "from nvidia.dali import fn, ops, pipeline_def\n"
        "@pipeline_def(batch_size=2, num_threads=1, device_id=None)\n"
        "def define():\n"
        "    image = fn.decoders.image(fn.external_source(lambda: images), device='mixed')\n"
        "    small = fn.resize(image, size=[8, 8])\n"
        "    image = fn.brightness(small, brightness=fn.reductions.mean(small) / 128)\n"
        "    box = ops.segmentation.RandomObjectBBox()(small.gpu())[0]\n"
        "    angle = fn.random.uniform(range=(-1, 1))\n"
        "    matrix = fn.transforms.rotation(angle=angle)\n"
        "    return fn.rotate(image, angle=angle), box, fn.warp_affine(image, matrix=matrix), fn.flip(small, horizontal=1)\n"
    )
    code, out = run(capsys, path)
    assert (code, out[0], out[3]) == (0, "slower than need be", "")
    assert out[1].startswith(
        "  6  on the host, brightness needs for brightness= what reductions.mean (line 6) makes in the "
    )
    assert out[2].startswith(
        "  7  on the host, segmentation.random_object_bbox needs what resize (line 5) makes in the "
    )
    script = {"images": [np.frombuffer(encode(picture(20, 30), "JPEG"), np.uint8)] * 2}
    exec(compile(path.read_text().replace("nvidia.dali", "jaxdali"), path, "exec"), script)
    pipeline = script["define"]()
    pipeline.build()
    plan = internals_of(pipeline).session.executor.plan
    assert {step.node.op.name for step in plan.steps if plan.fetched(step)} == {
        "brightness",
        "segmentation.random_object_bbox",
    }
    pipeline.close()


def test_a_process_for_each_gpu(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(
        "import os\n"
        "from nvidia.dali.pipeline import Pipeline\n"
        "from nvidia.dali import pipeline_def\n"
        "class Train(Pipeline):\n"
        "    def __init__(self, batch_size, num_threads, device_id):\n"
        "        super().__init__(batch_size, num_threads, device_id)\n"
        "Train(8, 2, args.local_rank)\n"
        "@pipeline_def(num_threads=2)\n"
        "def define(): ...\n"
        "define(batch_size=8, device_id=int(os.environ['LOCAL_RANK']))\n"
        "define(batch_size=8, device_id=0)\n"
        "FSDP(model, device_id=torch.cuda.current_device())\n"  # the others are no pipelines, or no rank
        "train(loader, model, args.local_rank)\n"
        "define(batch_size=8, device_id=self.crank_angle)\n"
    )
    code, out = run(capsys, path)
    assert (code, out[0].partition(":")[0]) == (0, "a process for each GPU")
    assert "let CUDA_VISIBLE_DEVICES name the one of LOCAL_RANK, and then device_id=0" in out[0]
    assert out[1:4] == ["   7  device_id is args.local_rank", "  10  device_id is int(os.environ['LOCAL_RANK'])", ""]


def test_changing_shapes(tmp_path, capsys):
    text = """\
from nvidia.dali import fn
from nvidia.dali.plugin.jax import DALIGenericIterator as JaxIterator
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, DALIGenericIterator
JaxIterator(pipe, ["x"])
DALIGenericIterator(pipe, ["x"], dynamic_shape=True)
DALIGenericIterator(pipe, ["x"], **options)
DALIGenericIterator(pipe, ["x"])
DALIClassificationIterator(pipe)
"""
    path = tmp_path / "script.py"
    for call, remarked in (("fn.pad(x)", True), ("fn.pad(x, shape=[3])", False), ("fn.flip(x)", False)):
        path.write_text(f"{text}{call}\n")
        code, out = run(capsys, path)
        rows = [row for row in out if row.endswith("Iterator")]
        assert (code, rows) == (0, ["  7  DALIGenericIterator", "  8  DALIClassificationIterator"] if remarked else [])
        assert any("pass dynamic_shape=True" in row for row in out) == remarked


def test_last_batches_filled_by_dali(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(
        """\
from nvidia.dali.plugin.jax import DALIGenericIterator as JaxIterator
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, DALIGenericIterator, LastBatchPolicy
JaxIterator(pipe, ["x"], reader_name="r")
DALIGenericIterator(pipe, ["x"], reader_name="r", last_batch_policy=LastBatchPolicy.DROP)
DALIGenericIterator(pipe, ["x"], reader_name="r", fill_last_batch=False)
DALIGenericIterator(pipe, ["x"], size=100, reader_name=None, last_batch_policy=LastBatchPolicy.FILL)
DALIGenericIterator(pipe, ["x"], reader_name="r", last_batch_policy=LastBatchPolicy.FILL)
DALIClassificationIterator(pipe, reader_name="r")
DALIGenericIterator(pipe, ["x"], -1, "r", fill_last_batch=True)
"""
    )
    code, out = run(capsys, path)
    rows = [row for row in out if row.endswith("Iterator")]
    assert (code, rows) == (
        0,
        ["  7  DALIGenericIterator", "  8  DALIClassificationIterator", "  9  DALIGenericIterator"],
    )
    assert any("size= in place of reader_name fills it" in row for row in out)


def test_advice(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(
        "from nvidia.dali.plugin.base_iterator import _DaliBaseIterator\nfrom nvidia.dali.backend import TensorListCPU\n"
        "TensorListCPU([1], is_pinned=True)\n"
    )
    _, out = run(capsys, path)
    assert out[1].startswith("  1  plugin.base_iterator._DaliBaseIterator: derive from DALIGenericIterator")
    assert out[2] == "  3  backend.TensorListCPU(is_pinned=): leave it out: XLA copies to the GPU from any memory"


def test_devices_of_operators(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(
        "from nvidia.dali import fn, ops\nf = fn.python_function(1, function=len, device='gpu')\n"
        "ops.PythonFunction(function=len, device='gpu')\nops.PythonFunction(function=len, device='cpu')\n"
        "fn.resize(f, device='gpu')\nfn.resize(f, device='tpu')\nfn.flip(f, device=f)\n"
        "fn.external_source(device='gpu')\nfn.decoders.image(f, device='mixed')\nfn.flip(f, device=None)\n"
    )
    code, out = run(capsys, path, "--lines")
    missing = ["2: fn.python_function(device='gpu')", "3: ops.PythonFunction(device='gpu')"]
    assert (code, out) == (1, [f"{path}:{line}" for line in missing])
    _, out = run(capsys, path)
    assert "call .gpu() on the outputs, or use plugin.jax.fn.jax_function" in out[1]
    assert out[-1] == "6 of 6 names work; 2 arguments do not."


def test_direct_storage(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(
        "from nvidia.dali import fn\nfn.readers.numpy(file_root='x')\nfn.readers.numpy(file_root='x', device='gpu')\n"
    )
    code, out = run(capsys, path)
    assert (code, out[:2]) == (
        0,
        [
            "slower than need be",
            "  3  the files are read by the host, and the arrays copied: GPU Direct Storage is not used",
        ],
    )


def test_one_file(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(
        "from nvidia.dali import fn, types\nx = fn.tomorrow(types.RGB)\n\nfn.resize(x, sise=1)\nfn.resize(x)\n"
    )
    code, out = run(capsys, path)
    assert (code, out) == (
        1,
        [
            f"{path}: not here",
            "  2  fn.tomorrow",
            "  4  fn.resize(sise=)",
            "",
            "2 of 3 names work; 1 argument does not.",
        ],
    )
    path.write_text("from nvidia.dali import fn\nfn.resize(1)\n")
    assert run(capsys, path) == (0, ["1 of 1 names work."])
    path.write_text("import numpy\n")
    assert run(capsys, path) == (0, ["It does not use DALI."])


def test_imported_files(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import numpy, loader\nfrom package import models\nloader.Loader()\n")
    (tmp_path / "loader.py").write_text("from nvidia.dali import fn\nclass Loader:\n  x = fn.tomorrow(1)\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "models.py").write_text("import train\nfrom . import data\nfrom .broken import x\n")
    (tmp_path / "package" / "data.py").write_text("from nvidia.dali import fn\nfn.resize(1)\n")
    (tmp_path / "package" / "broken.py").write_text("from nvidia.dali import fn\nfn.(\n")
    sentence = "Imported files that use DALI, too, but are not read:"
    assert run(capsys, "train.py") == (0, ["It does not use DALI itself.", f"{sentence} loader.py, package/data.py."])
    code, out = run(capsys, "train.py", "loader.py")
    assert (code, out[-1]) == (1, f"{sentence} package/data.py.")
    assert sentence not in run(capsys, ".")[1][-1]
    assert run(capsys, "train.py", "--lines") == (0, [])


def test_imported_files_refused_by_python(tmp_path, capsys, monkeypatch):
    """They leave the report of the script as it is: an expression that is too deep, more dots than folders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        f"from nvidia.dali import fn\nimport deep, deeper\nfrom {'.' * 99} import q\nfn.resize(1)\n"
    )
    (tmp_path / "deep.py").write_text(f"from nvidia.dali import fn\nx = {'+'.join('a' * 4000)}\n")
    (tmp_path / "deeper.py").write_text(f"from nvidia.dali import fn\nx = {'-' * 100_000}1\n")
    assert run(capsys, "train.py") == (0, ["1 of 1 names work."])


def test_a_notebook(tmp_path, capsys):
    cells = [
        {"cell_type": "markdown", "source": ["from nvidia.dali import x"]},
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "from nvidia.dali import fn\n", "if True:\n", "    !ls"],
        },
        {"cell_type": "code", "source": ["%%bash\n", "not python"]},
        {"cell_type": "code", "source": ["x = 1\n", "fn.tomorrow(x)"]},
    ]
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert run(capsys, path, "--lines") == (1, [f"{path}:cell 4, line 2: fn.tomorrow"])


def test_a_folder(tmp_path, capsys, monkeypatch):
    """One row for each missing name, the most used first, with as many places as fit into the terminal's width."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for k in range(20):
        extra_use = "fn.later(1)\n" if k == 3 else ""
        (tmp_path / "sub" / f"{k:02d}.py").write_text(f"from nvidia.dali import fn\nfn.tomorrow(1)\n{extra_use}")
    (tmp_path / "good.py").write_text("from nvidia.dali import fn\nfn.resize(1)\n")
    (tmp_path / "other.py").write_text("import numpy\n")
    (tmp_path / "old.py").write_text("import nvidia.dali\nprint 1\n")
    (tmp_path / ".git" / "x.py").write_text("import nvidia.dali.x\n")
    code, out = run(capsys, ".")
    assert code == 1
    assert out[:3] == [
        "not here     files  lines  where",
        "fn.tomorrow     20     20  sub/00.py:2 and 19 more",
        "fn.later         1      1  sub/03.py:3",
    ]
    assert out[4].startswith("can't be read: old.py:2: ")
    assert out[5:] == ["21 of 23 files use DALI, 1 of them only what is here. 1 of 3 names work."]


def test_as_a_program(tmp_path):
    (tmp_path / "x.py").write_text(
        "import nvidia.dali.fn as fn\nfn.tomorrow()\nfrom nvidia.dali.plugin import tf\ntf.DALIDataset()\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "jaxdali.port", "x.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (1, "")
    assert process.stdout.splitlines()[:2] == ["x.py: not here", "  2  fn.tomorrow"]
    for line, start in zip(
        process.stdout.splitlines()[2:4],
        ("  3  plugin.tf: use plugin.jax", "  4  plugin.tf.DALIDataset: use plugin.jax"),
    ):
        assert line.startswith(start)
        assert "tf.data.Dataset.from_generator" in line
    assert process.stdout.endswith("\n\n0 of 3 names work.\n")
