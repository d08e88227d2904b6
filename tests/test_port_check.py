"""python -m jaxdali.port --check: trials of the pipelines of a file with made-up data and arguments."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.same_with_any_jax

HEAD = "from nvidia.dali import Pipeline, fn, ops, pipeline_def, types\n"


def check(path, *options):
    command = [sys.executable, "-m", "jaxdali.port", "--check", *options, str(path)]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False, timeout=300)


def try_pipelines(path, text, *options):
    """Returns the exit status, the text about each definition, by name (line, result, details), and the whole output."""
    path.write_text(text if path.suffix == ".ipynb" else HEAD + text)
    process = check(path, *options)
    assert process.stderr == ""
    names, texts = [], {}
    for line in process.stdout.splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3 and words[2].startswith(("runs", "FAILS", "not tried")) and not line.startswith("     " * 2):
            names.append(words[1])
            texts[words[1]] = f"{words[0]} {words[2]}"
        elif names and line.startswith("     "):
            texts[names[-1]] += f" {line.strip()}"
    return process.returncode, texts, process.stdout


def test_readers(tmp_path):
    """Each reader gets made-up data of its kind. All ways to define a pipeline are found. A module is imported once."""
    code, texts, out = try_pipelines(
        tmp_path / "script.py",
        """
import nvidia.dali.tfrecord as tfrec
from nvidia.dali.plugin.base_iterator import LastBatchPolicy

@pipeline_def
def train(data_dir, crop, size, dali_cpu=False, is_training=True):
    jpegs, labels = fn.readers.file(file_root=data_dir + "/train", name="Reader")
    images = fn.decoders.image_random_crop(jpegs, device="cpu" if dali_cpu else "mixed")
    return fn.resize(images, size=[size, crop]), labels.gpu()

class Records(Pipeline):
    def __init__(self, batch_size, num_threads, device_id, path, index, args):
        super().__init__(batch_size, num_threads, device_id, seed=12)
        features = {"image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""), "label": tfrec.FixedLenFeature([3], tfrec.int64, -1)}
        self.read = ops.TFRecordReader(path=path, index_path=index, features=features)
        self.decode = ops.ImageDecoder(device="mixed")
        self.size = args.image_size

    def define_graph(self):
        read = self.read()
        return ops.Resize(size=[self.size, 20])(self.decode(read["image/encoded"])), read["label"]

class Inside:
    def __init__(self, annotations_file, num_shards):
        self.pipe = Pipeline(3, 1, 0)
        with self.pipe:
            jpegs, boxes, labels = fn.readers.coco(file_root="nowhere", annotations_file=annotations_file, ratio=num_shards > 0)
            self.pipe.set_outputs(boxes, labels)

def maker(files):
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def inner():
        return fn.readers.numpy(files=files)
    return inner()

with Pipeline(2, 1, None) as ready:
    ready.set_outputs(fn.external_source(name="fed", ndim=1, dtype=types.INT32))

own = train(data_dir="nowhere", crop=20, size=30, batch_size=2, num_threads=1, device_id=None)
own.build()

@pipeline_def
def listed(data_path):
    import os
    files = [os.path.join(data_path, c, f) for c in os.listdir(data_path) for f in os.listdir(os.path.join(data_path, c))]
    return fn.decoders.image(fn.readers.file(files=files)[0])

class Model:
    def __init__(self, image_size):
        self.size = image_size

    @pipeline_def
    def method(self, num_shards):
        return fn.ones(shape=[self.size]) + num_shards

    def make(self):
        @pipeline_def
        def hidden():
            return fn.ones(shape=[3])

@pipeline_def
def medical(labels_paths):
    labels = fn.reshape(fn.readers.numpy(files=labels_paths), layout="CDHW")
    return fn.segmentation.random_object_bbox(labels, background=0)[0]
""",
    )
    assert code == 3, out  # one is out of reach
    assert {k: v.split()[1] for k, v in texts.items()} == {
        **dict.fromkeys(
            ["ready", "train", "Records", "Inside", "maker", "own", "Model.method", "listed", "medical"], "runs"
        ),
        "hidden": "not",
    }
    assert texts["train"] == "7 runs uint8 (30, 20, 3), int32 (1,)"  # as it is called below
    assert texts["Records"] == "12 runs uint8 (224, 20, 3), int64 (3,)"
    assert texts["Inside"].startswith("24 runs float (1, 4) to (3, 4), int32 (1,) to (3,)")
    assert texts["own"] == "40 runs the file builds it itself"
    assert texts["ready"].endswith("runs int32 (10,)")
    assert texts["hidden"] == "59 not tried it is defined inside Model.make, which is not called"
    assert out.endswith("10 pipeline definitions: 9 run, 0 fail, 1 could not be tried.\n")


def test_causes_of_failures(tmp_path):
    """A failure of jaxdali is distinguished from those of the script, of made-up data, and of missing modules."""
    code, texts, out = try_pipelines(
        tmp_path / "script.py",
        """
import not_installed
from not_installed.part import Thing, deco
import nvidia.dali.plugin.mxnet as plugin

class Own(Thing):
    pass

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def missing():
    return fn.optical_flow(fn.external_source(name="x"))

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def wrong():
    x = fn.external_source(name="x", layout="HWC", ndim=3)
    return fn.resize(x, size=(1, 2, 3, 4))

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def own_fault(data_dir):
    return open(data_dir + "/labels.csv")

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def needs():
    return fn.ones(shape=[not_installed.number()])

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def of_elements():
    x = fn.external_source(name="x", layout="HWC", ndim=3)
    return fn.crop_mirror_normalize(x, mean=[255 * m for m in not_installed.MEAN])

class Two:
    @staticmethod
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def wrong():
        return fn.ones(shape=[2])

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def round_trip():
    x = fn.decoders.image(fn.external_source(name="x"))
    return fn.brightness(x, brightness=fn.reductions.mean(x) / 128.0)
""",
    )
    assert code == 1
    assert "not installed, so that nothing of it runs: not_installed\n" in out
    assert "plugin.mxnet" in out.partition("line")[0]
    assert texts["missing"].startswith("11 FAILS line 12: AttributeError: fn.optical_flow of DALI is not in jaxdali")
    assert texts["wrong"].startswith("15 FAILS line 17: resize")
    assert texts["own_fault"].startswith("20 not tried line 21: with made-up data: FileNotFoundError")
    assert "made up: data_dir=" in texts["own_fault"]
    assert texts["needs"].startswith(
        "24 not tried line 25: it needs not_installed.number(), of a module that is not installed"
    )
    assert texts["of_elements"].startswith(
        "28 not tried line 30: it needs not_installed.MEAN[0], of a module that is not installed"
    )
    assert texts["Two.wrong"] == "35 runs int32 (2,)"
    assert texts["round_trip"].startswith("39 runs uint8 (480, 640, 3) line 41: brightness needs on the host what ")
    assert out.endswith("7 pipeline definitions: 2 run, 2 fail, 3 could not be tried.\n")


def test_hangs_and_crashes(tmp_path):
    """Pipelines after one that hangs or crashes are tried, too. A hang in C is ended by killing the process."""
    code, texts, out = try_pipelines(
        tmp_path / "script.py",
        """
import ctypes, os, signal, time
@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def loops():
    while True: time.sleep(0.01)

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def crashes():
    ctypes.string_at(0)

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def hangs():
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True: time.sleep(0.01)

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def leaves():
    os._exit(5)

@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def good():
    return fn.ones(shape=[2])
""",
        "--timeout",
        "3",
    )
    assert code == 3
    assert texts["loops"] == "5 not tried line 6: it is still running after 3 s"
    assert texts["crashes"].startswith("9 not tried the process is ended by signal SIGSEGV")
    assert texts["leaves"].startswith("18 not tried the process ends with status 5")
    assert texts["good"] == "22 runs int32 (2,)"
    assert texts["hangs"] == "13 not tried it is still running after 3 s, and can't be interrupted"
    assert len(texts) == 5, out


def test_the_file_itself(tmp_path):
    """Files that use arguments, fail or exit when they are imported. Definitions before that point are tried."""
    cases = {
        "args": (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\nargs = p.parse_args()\nD = args.data + '/x'\n",
            "",
        ),
        "ends": ("raise SystemExit(3)", "it ends the program: SystemExit(3)"),
        "raises": ("raise KeyError('own')", "line 4: the script's own code, with made-up arguments: KeyError: 'own'"),
        "relative": ("from .beside import size\nassert size == 7", ""),
        "absolute": ("import beside\nassert beside.size == 7", ""),
        "tries": (
            "try:\n    import not_there\nexcept ImportError:\n    not_there = None\nassert not_there is None",
            "",
        ),
    }
    (tmp_path / "beside.py").write_text("size = 7")
    definition = "@pipeline_def(batch_size=2, num_threads=1, device_id=None)\ndef f(): return fn.ones(shape=[2])\n"
    for name, (text, _) in cases.items():
        (tmp_path / f"{name}.py").write_text(HEAD + definition + text)
    process = check(tmp_path)
    assert (process.returncode, process.stderr) == (3, "")
    report_of_file = {pathlib.Path(part.partition("\n")[0]).stem: part for part in process.stdout.split("\n\n")}
    for name, (_, words) in cases.items():
        assert re.search(r"3  f +runs\n +int32 \(2,\)", report_of_file[name])
        assert ("not tried" in report_of_file[name]) == bool(words)
        assert words in report_of_file[name]


def test_a_notebook(tmp_path):
    source = [
        f"{HEAD}%matplotlib inline\n",
        "@pipeline_def\n",
        "def f(file_list):\n",
        "    return fn.readers.file(file_list=file_list)[1]",
    ]
    cells = [{"cell_type": "markdown", "source": "x"}, {"cell_type": "code", "source": source}]
    code, _, out = try_pipelines(tmp_path / "book.ipynb", json.dumps({"cells": cells}))
    assert code == 0
    assert "cell 2, line 4  f         runs\n" in out


def test_nothing_to_try(tmp_path):
    (tmp_path / "x.py").write_text("from nvidia.dali import fn\ndef part(x):\n    return fn.resize(x, size=3)\n")
    process = check(tmp_path / "x.py")
    assert process.returncode == 3
    assert "it uses operators, but no pipeline definition is found in it\n" in process.stdout
    (tmp_path / "x.py").write_text("import numpy\n")
    process = check(tmp_path / "x.py")
    assert (process.returncode, process.stdout) == (0, "It does not use DALI.\n")
    (tmp_path / "x.py").write_text("import nvidia.dali\nprint 1\n")
    process = check(tmp_path / "x.py")
    assert process.returncode == 1
    assert process.stdout.startswith(f"can't be read: {tmp_path / 'x.py'}:2: ")


def test_sound(tmp_path):
    """If the script decodes sound, made-up files are sounds; manifests are made up, too."""
    pytest.importorskip("soundfile")
    code, texts, out = try_pipelines(
        tmp_path / "script.py",
        """
@pipeline_def(batch_size=2, num_threads=1, device_id=0)
def files():
    encoded, label = fn.readers.file(file_root="/nowhere", file_list="/nowhere/list.txt")
    audio, rate = fn.decoders.audio(encoded, downmix=True, sample_rate=16000)
    return fn.spectrogram(audio.gpu(), nfft=512), label

@pipeline_def(batch_size=2, num_threads=1, device_id=0)
def fed():
    audio, rate = fn.decoders.audio(fn.external_source(name="encoded"))
    return audio, rate

@pipeline_def(batch_size=2, num_threads=1, device_id=0)
def speech(manifest):
    audio, text = fn.readers.nemo_asr(manifest_filepaths=[manifest], read_sample_rate=False)
    return fn.mfcc(fn.mel_filter_bank(fn.spectrogram(audio)), n_mfcc=13), text
""",
    )
    assert code == 0, out
    assert {name: text.split()[1] for name, text in texts.items()} == {
        "files": "runs",
        "fed": "runs",
        "speech": "runs",
    }, out
