"""The examples, run as a user runs them, and what the training example promises."""

import ast
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import unittest.mock

import jax
import numpy as np
import places
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image
from programs import load

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import _cpu, extend, fn, pipeline_def

NAMES = sorted(path.stem for path in places.EXAMPLES.glob("*.py"))
PACKAGES_OF_JAXDALI = {"PIL", "jax", "jaxdali", "numpy"}
DISTRIBUTIONS = {"orbax": "orbax-checkpoint"}  # where the module has another name


@pytest.fixture(scope="module")
def example_pages():
    return load("example_pages", places.EXAMPLES / "site")


def test_each_example_has_page_and_test(example_pages):
    assert sorted(example_pages.EXAMPLES) == NAMES
    tests = "".join(path.read_text() for path in (places.ROOT / "tests").rglob("test_*.py"))
    for name, example in example_pages.EXAMPLES.items():
        assert f"python examples/{name}.py" in example.command
        assert example.picture in example.command
        assert re.search(rf"load\(\"{name}\"\)|run_example\(\"{name}\"|\"{name}\.py\"", tests), name


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_of_examples(example_pages, name):
    """The first line is a sentence that says what the program shows; the rest has the command, and what to install."""
    tree = ast.parse((places.EXAMPLES / f"{name}.py").read_text())
    first, blank, *other_lines = (ast.get_docstring(tree) or "").split("\n")
    assert first[0].isupper()
    assert first.endswith(".")
    assert ". " not in first  # one sentence
    assert not blank
    assert any(line.startswith(f"    python examples/{name}.py") for line in other_lines)
    packages = example_pages.EXAMPLES[name].packages
    if packages:
        assert f"pip install {packages}" in "\n".join(other_lines)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {a.name for x in imports if isinstance(x, ast.Import) for a in x.names}
    modules |= {x.module for x in imports if isinstance(x, ast.ImportFrom) and x.module}
    top_modules = {m.partition(".")[0] for m in modules} - {*sys.stdlib_module_names, *NAMES} - PACKAGES_OF_JAXDALI
    needed = {DISTRIBUTIONS.get(module, module) for module in top_modules}
    assert needed <= {*re.findall(r"[\w-]+(?=[ \[]|$)", packages)}


@pytest.mark.parametrize("name", NAMES)
def test_pages_of_examples(example_pages, name):
    """A page shows the command that its cell runs, and the whole program."""
    page = example_pages.page(name, example_pages.EXAMPLES[name])
    blocks = dict(re.findall(r"^```(.+?)\n(.*?)```$", page, re.DOTALL | re.MULTILINE))
    assert [*blocks] == ["sh", "{code-cell}", f"{{literalinclude}} examples/{name}.py"]
    command, cell, options = blocks.values()
    assert options == ":language: python\n"  # no lines are left out
    with unittest.mock.patch("subprocess.run") as run:
        run.return_value = subprocess.CompletedProcess([], returncode=0, stdout="")
        exec(cell.removeprefix(":tags: [remove-input]\n"), {})
    (arguments,), _ = run.call_args
    assert re.sub(r"localhost:\d+", example_pages.ADDRESS, arguments[-1]) == command.removesuffix("\n")


def test_index_of_examples(example_pages, tmp_path):
    example_pages.write(tmp_path / "examples")
    written = {path.stem for path in (tmp_path / "examples").glob("*.md")}
    index = (tmp_path / "examples" / "index.md").read_text()
    assert sorted(re.findall(r"^\* \[\w+\.py\]\((\w+)\.md\): [A-Z].+\.$", index, re.MULTILINE)) == NAMES
    assert written == {*NAMES, "index"}


@pytest.mark.parametrize("command", ["echo first; false; echo second", "false | cat missing", "echo $missing"])
def test_pages_fail_where_a_command_fails(example_pages, command):
    with pytest.raises(AssertionError):
        exec(example_pages.cell(command), {})


def run_example(name, *arguments, timeout=300):
    """The output of an example, run as a user runs it."""
    command = [sys.executable, str(places.EXAMPLES / f"{name}.py"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_getting_started(tmp_path):
    """The tutorial runs from start to end, in a process of its own, and draws its batches."""
    pytest.importorskip("matplotlib")
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}  # it asks for its 8 CPU devices itself
    picture = tmp_path / "picture.png"
    command = [sys.executable, str(places.EXAMPLES / "getting_started.py"), "--output", str(picture)]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Iterator size: 21\nbatches: " + " ".join(map(str, range(21))) + "\n" in run.stdout
    if jax.default_backend() == "cpu":
        assert "Images backing device with device_id=1: {CpuDevice(id=1)}" in run.stdout
        first, second = re.findall(
            r"Shard . device: (\S+), shape: \(4, 256, 256, 3\), batch rows: slice\((\d), (\d), None\)", run.stdout
        )
        assert first[0] != second[0]
        assert [first[1:], second[1:]] == [("0", "4"), ("4", "8")]  # the first half on the first device
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape[0] > 300
    assert pixels.std() > 30  # photos, not a blank page


def test_augment_with_jax(tmp_path):
    """MixUp and colour jitter run, and the picture has a row of each."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    command = [sys.executable, str(places.EXAMPLES / "augment_with_jax.py"), "--output", str(picture)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "in one program: jaxdali_chain, stablehlo.dot_general" in run.stdout
    with Image.open(picture) as image:
        assert np.asarray(image.convert("RGB")).std() > 30


def readme_code(number):
    """A Python block of the README."""
    return re.findall(r"```python\n(.*?)```", (places.ROOT / "README.md").read_text(), re.DOTALL)[number]


def test_readme_example(monkeypatch, capsys):
    """The program trains, on batches of the sharding and the shapes that it prints."""
    monkeypatch.chdir(places.ROOT)
    space = {}
    exec(readme_code(0), space)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3  # the fullest of 8 shards of 21 photos, one of each in a batch
    assert all(line.startswith("(8, 64, 64, 3) float32 ") for line in printed)
    assert space["batch"]["images"].sharding == space["sharding"]
    # The first loss is that of seven classes that are equally likely.
    losses = [float(line.rsplit(" ", 1)[1]) for line in printed]
    assert losses[0] == pytest.approx(np.log(7), abs=1e-3)
    assert np.isfinite(losses).all()
    assert np.asarray(space["weights"]).any()


def test_readme_functions(monkeypatch):
    """README's function in `jd.jit` equals the same functions one after the other."""
    monkeypatch.chdir(places.ROOT)
    space = {}
    exec(readme_code(1), space)
    assert space["images"].shape == (21, 224, 224, 3)
    decoded = jd.decoders.image(space["jpegs"])
    expected = jd.random_resized_crop(decoded, size=(224, 224), key=jax.random.key(0))
    np.testing.assert_array_equal(space["images"], expected.jax())


def augment(images, key):
    """The function of the guide "Functions"."""
    images = jd.random_resized_crop(images, size=(224, 224), key=key)
    mirror = jd.random.coin_flip(key=jd.random.fold_in(key, 1), batch_size=len(images))
    return jd.flip(images, horizontal=mirror)


def test_functions_of_values_everywhere():
    """The guide's function eagerly, in `jd.jit`, in `jax.jit` and as a pipeline, whose first batch has these keys:
    equal bits.
    """
    x = np.random.default_rng(0).integers(0, 256, (6, 50, 60, 3), np.uint8)
    keys = np.stack([np.zeros(6, np.uint32), np.arange(6, dtype=np.uint32)], axis=1)
    coins = jd.random.coin_flip(key=jd.random.fold_in(keys, 1))
    assert {*coins.numpy().tolist()} == {0, 1}

    @pipeline_def(batch_size=6, num_threads=2, device_id=None, seed=0)
    def definition():
        images = fn.random_resized_crop(fn.external_source(lambda: list(x), layout="HWC"), size=(224, 224))
        return fn.flip(images, horizontal=fn.external_source(lambda: list(coins)))

    (want,) = definition(exec_pipelined=False, exec_async=False).run()
    for compiled in (augment, jd.jit(augment), jax.jit(augment)):
        np.testing.assert_array_equal(compiled(x, keys).jax(), np.asarray(want.as_array()))
        np.testing.assert_array_equal(compiled(x, jax.random.key(0)).jax(), augment(x, jax.random.key(0)).jax())


@pytest.fixture(scope="module")
def flax_train():
    for package in ("flax", "optax", "tqdm"):
        pytest.importorskip(package)
    return load("flax_train")


def test_flax_train(flax_train, tmp_path):
    """It learns, over all devices, and no batch is copied, moved or resharded on its way into the train step."""
    # optax relies on JAX's usual promotion.
    with jax.transfer_guard("disallow"), jax.numpy_dtype_promotion("standard"):
        result = flax_train.train(flax_train.make_dataset(tmp_path, per_photo=16), epochs=5, batch_size=32)
    assert len(jax.devices()) > 1
    images, labels = result.batch["images"], result.batch["labels"]
    assert len(images.sharding.device_set) == len(jax.devices())
    _params, _state, *of_batch = result.compiled.input_shardings[0]
    for sharding, array in zip(of_batch, (images, labels), strict=True):
        assert sharding.is_equivalent_to(array.sharding, array.ndim)
    assert np.isfinite(result.losses).all()
    assert np.mean(result.losses[-8:]) < 0.7 * np.mean(result.losses[:8])
    assert result.accuracy > 2 * result.chance


@pytest.mark.slow
def test_imagenet_train(flax_train, tmp_path):
    """Training, exact evaluation, and a checkpoint of model and iterator: a run that was stopped ends like one that was
    not.
    """
    pytest.importorskip("orbax.checkpoint")
    imagenet = load("imagenet_train")
    folders = (
        flax_train.make_dataset(tmp_path / "train", per_photo=2),
        flax_train.make_dataset(tmp_path / "val", per_photo=1, seed=1),
    )
    small = {"model": "tiny", "size": 32, "width": 4, "epochs": 2, "batch_size": 16, "threads": 2}
    with jax.numpy_dtype_promotion("standard"):
        whole = imagenet.train(*folders, **small)
        first = imagenet.train(*folders, **small, checkpoints=tmp_path / "saved", steps=4)
        second = imagenet.train(*folders, **small, checkpoints=tmp_path / "saved")
    assert whole["step"] == second["step"] == 6
    assert first["losses"] + second["losses"] == whole["losses"]
    assert second["accuracy"] == whole["accuracy"]


def test_mixup(tmp_path):
    """The labels' weights add up, and the picture has a row of each."""
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(places.EXAMPLES / "mixup.py"), "--output", str(tmp_path / "picture.png")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(f"add up to {[1.0] * 6}") == 2
    with Image.open(tmp_path / "picture.png") as image:
        assert np.asarray(image.convert("RGB")).std() > 30


@pytest.fixture
def language_model(monkeypatch):
    for package in ("flax", "optax"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(places.EXAMPLES))
    return load("language_model")


def test_language_model(language_model, tmp_path):
    """It learns; and what a document's tokens are predicted to be depends on nothing else in its sequence."""
    path = language_model.make_dataset(tmp_path, documents=200)
    with jax.numpy_dtype_promotion("standard"):
        result = language_model.train(path, epochs=3, length=64)
        assert np.mean(result.losses[-5:]) < 0.5 * result.losses[0]
        assert result.filled > 0.8
        segments, positions = (
            np.array([[1] * 20 + [2] * 30 + [0] * 14]),
            np.array([[*range(20), *range(30), *[0] * 14]]),
        )
        tokens = np.random.default_rng(0).integers(0, 256, (1, 64))
        changed = np.where(segments == 1, 7, tokens)
        first, second = (np.asarray(result.model(x, segments, positions)) for x in (tokens, changed))
        np.testing.assert_array_equal(first[0, 20:50], second[0, 20:50])
        assert np.abs(first[0, :20] - second[0, :20]).max() > 0.1
        single = np.asarray(result.model(tokens[:, 20:50], segments[:, 20:50], positions[:, 20:50]))
        np.testing.assert_allclose(first[:, 20:50], single, atol=1e-4)


@pytest.mark.slow
def test_vlm_train(tmp_path):
    """It learns what images show, and a resumed run has equal losses; a caption depends on its own image alone."""
    for package in ("flax", "optax", "orbax.checkpoint"):
        pytest.importorskip(package)
    vlm_train = load("vlm_train")
    dataset = vlm_train.make_dataset(items=300)
    with jax.numpy_dtype_promotion("standard"):  # optax relies on it
        losses = vlm_train.train(dataset, tmp_path / "whole", steps=100)
        first = vlm_train.train(dataset, tmp_path / "parts", steps=20)
        assert first + vlm_train.train(dataset, tmp_path / "parts", steps=40) == losses[:40]
    # A thing has four tokens, of which a model that sees no pixels guesses the colour and the shape.
    assert np.mean(losses[-10:]) < 0.9 * np.log(3 * 2) / 4

    sharding = NamedSharding(Mesh(jax.devices(), ("batch",)), PartitionSpec("batch"))
    with vlm_train.make_iterator(dataset, sharding, batch_size=8) as iterator:
        batch = {name: np.asarray(array) for name, array in next(iterator).items()}
    segments, patch_segments = batch["segments"], batch["patch_segments"]
    np.testing.assert_array_equal(segments.max(axis=1), patch_segments.max(axis=1))
    assert segments.max() > 2
    assert (patch_segments > 0).mean() > 0.8
    model = jax.jit(vlm_train.Model(vlm_train.nnx.Rngs(0)))
    changed = {**batch, "patches": np.where(patch_segments[..., None] == 2, 0, batch["patches"])}
    differing = (np.asarray(model(**batch)) != np.asarray(model(**changed))).any(axis=2)
    np.testing.assert_array_equal(differing, segments == 2)


def test_array_record_writer(tmp_path):
    """Its files are read, over the ends of blocks; its checksums are those of the native function; chunks are where the
    headers say.
    """
    writer = load("array_record_writer")
    rng = np.random.default_rng(0)
    for n in (*range(70), 1000):
        data = rng.bytes(n)
        assert writer._highway_hash(data) == _cpu.highway_hash(np.frombuffer(data, np.uint8)), n
    for sizes in (
        [0, 1, 5],
        [],
        [40_000] * 5,
        [65_536 - 24 - 40 - n for n in (0, 40, 41, 44, 45, 46)],
        [70_000, 3, 1],
        [200_000],
    ):
        records = [rng.bytes(n) for n in sizes]
        path = writer.write_array_record(tmp_path / "x.array_record", records)
        data = path.read_bytes()
        assert len(data) % 65_536 == 0
        for block in range(0, len(data), 65_536):
            checksum, back, ahead = struct.unpack_from("<QQQ", data, block)
            assert checksum == writer._highway_hash(data[block + 8 : block + 24])
            begin = block - back + (24 if (block - back) % 65_536 == 0 else 0)
            assert ahead > 0
            header = data[begin : begin + 40] if begin % 65_536 <= 65_536 - 40 else b""
            assert not header or struct.unpack_from("<Q", header)[0] == writer._highway_hash(header[8:40])
        if records:

            @pipeline_def(batch_size=len(records), num_threads=1, device_id=None)
            def define(path=str(path)):
                return fn.readers.array_record(path=path)

            (out,) = define().run()
            assert [np.asarray(x).tobytes() for x in out] == records

    photos = sorted(str(path) for path in places.PHOTOS.glob("cat/*.jpg"))
    printed = run_example("array_record_writer", str(tmp_path / "photos.array_record"), *photos)
    assert printed.startswith("photos.array_record has 3 records, of [")
    assert printed.endswith("a pipeline reads the same records\n")


def test_several_hosts_as_one_process(tmp_path):
    """A job that continues after its checkpoint; tests/plugin/test_hosts.py has several hosts, and one that is lost."""
    pytest.importorskip("orbax.checkpoint")
    outputs = []
    for epochs in ("1", "2"):
        with socket.socket() as s:
            s.bind(("localhost", 0))
            address = f"localhost:{s.getsockname()[1]}"
        process = ["--coordinator", address, "--num-processes", "1", "--process-id", "0"]
        options = ["--batch-size", "2", "--save-every", "1", "--epochs", epochs]
        folders = [str(places.PHOTOS / "cat"), str(tmp_path / "checkpoints")]
        outputs.append(run_example("several_hosts", *folders, *process, *options))
    assert "process 0 of 1: begins with step 0, 2 steps an epoch" in outputs[0]
    assert "process 0 of 1: begins with step 2, 2 steps an epoch" in outputs[1]
    for epoch, output in enumerate(outputs):
        numbers = re.findall(rf"epoch {epoch}, step \d, loss [\d.]+, photos \[([\d, ]*)\]", output)
        assert sorted(", ".join(numbers).split(", ")) == ["0", "1", "2"]


def test_torch_train(tmp_path):
    """It learns, and each held-out image counts once."""
    pytest.importorskip("torch")
    torch_train = load("torch_train")
    photos = torch_train.make_dataset(tmp_path, per_photo=12)
    losses, accuracy, chance = torch_train.train(photos, epochs=3)
    assert np.mean(losses[-4:]) < 0.7 * np.mean(losses[:4])
    assert accuracy > 2 * chance


def test_functions_in_grain():
    pytest.importorskip("grain")
    assert run_example("grain_map") == "10 batches of shape (4, 96, 96, 3), the last 7 again after a checkpoint\n"


@pytest.mark.slow
def test_training_in_grain_resumes_exactly(tmp_path, capsys):
    """A run on eight devices is killed. It continues with equal steps on eight, and with equal batches on four."""
    for package in ("grain", "flax", "optax", "orbax.checkpoint"):
        pytest.importorskip(package)

    def steps(printed):
        """The lines of the steps, without numbers. Losses depend on the number of devices in their last bits."""
        lines = re.findall(r"^step (\d+): (batch \w+), loss (.*)$", printed, re.MULTILINE)
        return {int(step): (batch, loss) for step, batch, loss in lines}

    def train(folder, *options):
        command = [sys.executable, str(places.EXAMPLES / "grain_train.py"), "--checkpoints", str(folder), *options]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return run.returncode, run.stdout, run.stderr

    killed, printed, errors = train(tmp_path / "killed", "--kill-at", "13")
    assert killed == -signal.SIGKILL, errors
    before = steps(printed)
    shutil.copytree(tmp_path / "killed", tmp_path / "copy")
    failed, on_four, errors = train(tmp_path / "copy", "--steps", "17", "--devices", "4")
    assert not failed, errors
    program = load("grain_train")
    with jax.numpy_dtype_promotion("standard"):  # optax relies on it
        program.train(tmp_path / "whole", steps=17)
        whole = capsys.readouterr().out
        program.train(tmp_path / "killed", steps=17)
        on_eight = capsys.readouterr().out
    assert before == {step: line for step, line in steps(whole).items() if step <= 13}
    for resumed in (on_eight, on_four):
        start = int(re.findall(r"^continues after step (5|10)$", resumed, re.MULTILINE)[0])
        assert min(steps(resumed)) == start + 1
    assert steps(on_eight) == {step: line for step, line in steps(whole).items() if step in steps(on_eight)}
    assert {k: batch for k, (batch, _) in steps(on_four).items()} == {
        k: batch for k, (batch, _) in steps(whole).items() if k in steps(on_four)
    }
    assert len({batch for batch, _ in steps(whole).values()}) == 17
    assert on_eight.splitlines()[-1] == whole.splitlines()[-1]
    assert on_eight.endswith(" of 21 photos are right\n")


def test_functions_in_a_hugging_face_data_set():
    pytest.importorskip("datasets")
    printed = run_example("huggingface_transform")
    assert re.findall(r"\((\d+), 96, 96, 3\) uint8", printed) == ["8", "8", "5"]
    assert "one row: (96, 96, 3) 0" in printed


def test_functions_in_workers_of_torch():
    """Spawned or forked, in whichever worker: each image is the same; and in the parent itself."""
    pytest.importorskip("torch")
    printed = {run_example("torch_collate", "--start", start) for start in ("spawn", "fork")}
    assert len(printed) == 1, printed
    assert "21 images" in printed.pop()


@pytest.mark.parametrize("before", ["jax.device_put(1)", "list(torch_collate.make_loader(None, workers=0))"])
def test_workers_of_torch_forked_too_late(before):
    """From a parent that has run JAX or a function: an error that says what to do, and no hang."""
    pytest.importorskip("torch")
    code = f"""
import sys
sys.path.insert(0, {str(places.EXAMPLES)!r})
import jax, torch_collate
import jaxdali.dynamic as jd
{before}
loader = torch_collate.DataLoader([1, 2], collate_fn=lambda x: jd.flip(torch_collate.torch.zeros(2, 3, 3)), num_workers=1,
                                  multiprocessing_context="fork")
try:
    list(loader)
except RuntimeError as e:
    print(e)
"""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert "this process was forked from one that had" in run.stdout, run.stdout + run.stderr
    assert 'DataLoader(multiprocessing_context="spawn")' in run.stdout


@pytest.mark.slow
def test_workers_of_ray():
    pytest.importorskip("ray")
    assert "3 batches of (7, 96, 96, 3), the same as without workers" in run_example("ray_workers")


@pytest.mark.slow
def test_training_in_ray():
    pytest.importorskip("pydantic")  # of ray[train]
    pytest.importorskip("ray.train.v2.jax")
    assert float(re.findall(r"loss (\d\.\d+) after 3 epochs in two processes", run_example("ray_train"))[0]) < 2.25


@pytest.mark.slow
def test_functions_in_ray():
    pytest.importorskip("ray.data")
    assert "21 images, the same in batches of 8 and of 5" in run_example("ray_map_batches")


def test_functions_in_a_train_step():
    for package in ("flax", "optax"):
        pytest.importorskip(package)
    first, last = map(float, re.findall(r"\d\.\d+", run_example("nnx_augment")))
    assert last < 0.5 * first


def test_speech(tmp_path):
    """From recordings to features: normalised, padded to multiples of 16 windows, and masked in training alone."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("soundfile")
    picture = tmp_path / "picture.png"
    command = [sys.executable, str(places.EXAMPLES / "speech.py"), "--output", str(picture)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(
        r"evaluation \{'features': \(4, 80, \d+\), 'text': \(4, 6\)\} \['tone 0', 'tone 1', 'tone 2', 'tone 3'\]",
        run.stdout,
    )
    with Image.open(picture) as image:
        assert np.asarray(image.convert("RGB")).std() > 30

    speech = load("speech")
    manifest = speech.recordings(tmp_path)
    features = [
        np.asarray(next(speech.speech(str(manifest), train, batch_size=4, seed=1))["features"])
        for train in (False, True)
    ]
    assert features[0].shape[2] % 16 == 0
    mean = features[0].sum(axis=2) / (features[0] != 0).sum(axis=2)
    np.testing.assert_allclose(mean, 0, atol=1e-3)
    masked = [(x == 0).mean() for x in features]
    assert masked[1] > masked[0] + 0.02


def test_video(tmp_path):
    """A clip is cropped in one place; cameras and states are of the same steps."""
    pytest.importorskip("av")
    video = load("video")
    picture = np.random.default_rng(0).integers(0, 2, (8, 8, 3)).astype(np.uint8).repeat(8, 0).repeat(8, 1) * 200
    video.write(tmp_path / "videos" / "still" / "a.mp4", np.stack([picture] * 24))
    batch = next(video.clips(str(tmp_path / "videos"), batch_size=5, seed=3))
    clips = np.asarray(batch["clips"])
    assert clips.shape == (5, 8, 32, 32, 3)
    assert np.abs(clips - clips[:, :1]).max() < 0.2  # nothing moves
    assert min(np.abs(clips[i] - clips[j]).mean() for i in range(5) for j in range(i)) > 0.3  # each is another part
    front, wrist, states = video.make_episodes(tmp_path)
    for _, steps in zip(range(3), video.robot(front, wrist, states, batch_size=4)):
        means = np.stack([np.asarray(steps[camera]).mean(axis=(2, 3, 4)) for camera in ("front", "wrist")], -1)
        np.testing.assert_allclose(means, np.asarray(steps["state"]), atol=2)


@pytest.mark.slow
def test_a_network_learns_from_videos(tmp_path):
    for package in ("av", "flax", "optax", "matplotlib"):
        pytest.importorskip(package)
    picture = tmp_path / "picture.png"
    command = [sys.executable, str(places.EXAMPLES / "video.py"), "--output", str(picture)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    first, last = map(float, re.findall(r"\d\.\d{3}", run.stdout))
    assert last < 0.7 * first
    with Image.open(picture) as image:
        assert np.asarray(image.convert("RGB")).std() > 30


def test_volumes_of_the_guide(monkeypatch):
    """Masks follow their scans, in which the organ is brighter than all else."""
    text = (places.EXAMPLES / "site" / "guides" / "volumes.md").read_text()
    monkeypatch.setattr(jaxdali, "show", lambda images: None)
    space = {}
    exec("".join(re.findall(r"```\{code-cell\}\n(?!:)(.*?)```", text, re.DOTALL)), space)
    scans, masks = (np.asarray(space["batch"][name]) for name in ("scans", "masks"))
    assert scans.shape == masks.shape == (4, 16, 24, 24, 1)
    assert 0.1 < masks.mean() < 0.5
    assert ((scans > 0.4) == (masks == 1)).mean() > 0.98


def test_medical_images(tmp_path):
    """DICOM and NIfTI through pipelines: the voxels are those that the libraries give, and the example runs."""
    nibabel, pydicom = pytest.importorskip("nibabel"), pytest.importorskip("pydicom")
    run = subprocess.run(
        [sys.executable, str(places.EXAMPLES / "medical.py")], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "slices (2, 64, 64, 1) float32 ['2.dcm', '3.dcm']" in run.stdout
    assert run.stdout.count("volumes (2, 8, 32, 32, 1) float32") == 2

    medical = load("medical")
    rng = np.random.default_rng(0)
    frames, voxels = (
        rng.integers(0, 4096, (3, 5, 6)).astype(np.uint16),
        rng.integers(-999, 999, (4, 5, 6)).astype(np.int16),
    )
    files = [
        [tmp_path / "a.dcm", tmp_path / "b.dcm"],
        [tmp_path / "c.dcm"],
        [tmp_path / "d.nii", tmp_path / "e.nii.gz"],
    ]
    for path, data in zip((*files[0], *files[1]), (frames[0], frames[1], frames), strict=True):
        medical.write_dicom(path, data)
        np.testing.assert_array_equal(pydicom.dcmread(path).pixel_array, data)
    for path in files[2]:
        medical.write_nifti(path, voxels)
    np.testing.assert_array_equal(np.asarray(nibabel.load(files[2][1]).dataobj).T, voxels)

    @pipeline_def(num_threads=2, device_id=None)
    def pipeline(paths):
        x = fn.decoders.image(fn.readers.file(files=[str(p) for p in paths])[0])
        return x, fn.flip(x, horizontal=1), fn.noise.gaussian(x, stddev=0.0)

    medical.register()
    try:
        for paths, expected in zip(files, ([*frames[:2]], [frames], [voxels, voxels]), strict=True):
            images, flipped, unchanged = pipeline(paths, batch_size=len(paths)).run()
            for x, f, s, want in zip(images, flipped, unchanged, expected, strict=True):
                np.testing.assert_array_equal(np.asarray(x)[..., 0], want)
                np.testing.assert_array_equal(np.asarray(f)[..., 0], want[..., ::-1])
                np.testing.assert_array_equal(np.asarray(s)[..., 0], want)
                assert np.asarray(x).dtype == want.dtype
    finally:
        for name in ("dicom", "nifti"):
            extend.unregister_decoder(name)
