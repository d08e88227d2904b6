"""The first four minutes on a GPU: whether the kernels load and run, whether pixels are right, and how fast pipelines
are.

    python tests/gpu/first.py [--dry-run] [STAGE ...]

Each stage is a process of its own, which a failure of another one cannot spoil. It prints each result as soon as it is
known; the results are also in $OUT/first.md (or build/gpu/first.md). A stage of pipelines that fails runs again without
XLA's CUDA graphs, and then without its fusion of slices into native calls, so that the culprit is known at once.

The stages that measure run one after the other: `device`, `decode`, `tutorial`, `train`, `beside`. The others run at
the same time after
them: `warps` and `windows` (all kernels but the decoder), `epochs`, `graphs`, `torch`, `run`, `functions`, `stateful`.
A stage has the seconds that STAGES says and those that the stages before it left over. After END seconds everything
ends.

Modules and packages that tests/gpu/carry.sh collected are unpacked where they are missing. PYTHONPATH may be set or
not.

--dry-run   on CPU devices and small, to see that the script works; it needs jax, NumPy, Pillow and the package's
modules
"""

import contextlib
import hashlib
import importlib.util
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from typing import ClassVar

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent
STAGES = {"device": 55, "decode": 25, "tutorial": 25, "train": 40, "beside": 15}  # seconds
# What is left until END, 60 to 70 s.
TOGETHER = ("warps", "windows", "epochs", "graphs", "torch", "run", "functions", "stateful")
END = 230
OTHERWISE = {
    "without CUDA graphs": "--xla_gpu_enable_command_buffer=",
    "without slices fused into calls": "--xla_gpu_enable_dynamic_slice_fusion=false",
}
DRY = "--dry-run" in sys.argv
FILES, BATCH = (24, 8) if DRY else (512, 256)
THREADS = (2,) if DRY else (8, 4, 15)
start = float(os.environ.get("FIRST_START") or time.time())


def say(*text):
    print(f"[{time.time() - start:6.1f} s]", *text, flush=True)


def files():
    import gpu_photos

    return [str(path) for path in gpu_photos.make(FILES)]


def gpu():
    import jax

    return jax.devices("cpu" if DRY else "cuda")[0]


def cpu():
    import jax

    return jax.devices("cpu")[0]


def on_one(device):
    """A sharding with a mesh of one device."""
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    return NamedSharding(Mesh(np.array([device]), ("batch",)), PartitionSpec("batch"))


# --- pipelines


def tutorial_pipeline(names, num_shards=1, shard_id=0):
    from jaxdali import fn

    jpegs, labels = fn.readers.file(
        files=names, labels=list(range(len(names))), num_shards=num_shards, shard_id=shard_id, name="reader"
    )
    images = fn.resize(fn.decoders.image(jpegs, device="mixed"), resize_x=256, resize_y=256)
    return fn.rotate(images, angle=fn.random.uniform(range=(-30.0, 30.0)), fill_value=0, keep_size=True), labels.gpu()


def train_pipeline(names, num_shards=1, shard_id=0):
    from jaxdali import fn

    labels = list(range(len(names)))
    jpegs, labels = fn.readers.file(
        files=names, labels=labels, random_shuffle=True, num_shards=num_shards, shard_id=shard_id, name="reader"
    )
    images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(224, 224))
    numbers = {"mean": [124.0, 116.0, 104.0], "std": [58.0, 57.0, 57.0]}
    return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), output_layout="HWC", **numbers), labels.gpu()


def iterator(define, device, names, batch=BATCH, **options):
    from jaxdali.plugin.jax import data_iterator

    decorated = data_iterator(define, ["images", "labels"], sharding=on_one(device), reader_name="reader")
    return decorated(names, batch_size=batch, seed=1, **options)


# --- stages


def device():
    say("photos:", len(files()))
    import jax

    say("import jax", jax.__version__)
    d = gpu()
    say("device:", d.device_kind, "of", jax.devices())
    import jax.numpy as jnp

    say("first program:", float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((64, 64), device=d))))
    import jaxdali
    from jaxdali._core import ffi

    say("import jaxdali")
    begin = time.perf_counter()
    ffi.load_kernels([d])
    say(f"LOADED: all kernels in {time.perf_counter() - begin:.2f} s")
    jaxdali.show_config()


def decode():
    """256 JPEGs beside the CPU's pixels; the time of the call and of each of its kernels."""
    import bench_decode
    import jax
    import measuring
    import numpy as np

    from jaxdali import _cpu
    from jaxdali._core import ffi

    encoded = [pathlib.Path(f).read_bytes() for f in files()[:BATCH]]
    pool = _cpu.pool_create(8)
    d = gpu()
    ffi.load_kernels([d])
    with jax.default_device(d):
        batch = bench_decode.Batch(encoded, "decode", not DRY, pool)
        begin = time.perf_counter()
        pixels, status = jax.block_until_ready(batch.decode(*jax.device_put(batch.operands, d)))
        refused = np.flatnonzero(np.asarray(status))
        say(f"decode: compiled and run in {time.perf_counter() - begin:.2f} s; refused: {refused.tolist()}")
        images = batch.images(pixels)
    with jax.default_device(cpu()):
        reference = bench_decode.Batch(encoded, "decode", False, pool)
        expected = reference.images(reference.decode(*reference.operands)[0])
    wrong = [i for i, (x, y) in enumerate(zip(images, expected, strict=True)) if not np.array_equal(x, y)]
    say(f"DECODE: pixels of {len(wrong)} of {len(encoded)} files differ from the CPU's", wrong[:8])
    for i in wrong[:3]:
        x, y = images[i], expected[i]
        row, column = np.argwhere((x != y).any(-1))[0]
        say(
            f"   file {i}, {x.shape}: {np.mean(x != y):.2%} differ, first at {row, column}: {x[row, column]} != {y[row, column]}"
        )
    with jax.default_device(d):
        copies = [jax.device_put(batch.operands, d) for _ in range(4)]
        ways = {
            "on the device": lambda: [batch.decode(*operands)[1] for operands in copies],
            "with the transfer": lambda: [batch.decode(*jax.device_put(batch.operands, d))[1] for _ in copies],
        }
        for name, run in ways.items():
            seconds = measuring.median(lambda run=run: jax.block_until_ready(run()), 10) / len(copies)
            say(f"decode {name}: {seconds * 1e3:.3f} ms for {len(encoded)}, {len(encoded) / seconds:,.0f} images/s")
        say_kernels(lambda: jax.block_until_ready(batch.decode(*copies[0])))
    assert not wrong
    assert not refused.size


def say_kernels(run, calls=5):
    """Milliseconds of each kernel that a call runs, as the profiler sees them."""
    import measuring

    if DRY:
        return
    try:
        times = measuring.kernel_times(run, calls)
    except Exception as e:
        say(f"no times of kernels: {type(e).__name__}: {e}")
        return
    for name, ms in times:
        say(f"   {ms:8.4f} ms  {name[:150]}")
    say(f"   {sum(ms for _, ms in times):8.4f} ms  in all")


def tutorial():
    """Decoding, a resize and a rotation in one program."""
    import numpy as np

    begin = time.perf_counter()
    with iterator(tutorial_pipeline, gpu(), files()) as it:
        batch = next(it)
        images, labels = np.asarray(batch["images"], np.int32), np.asarray(batch["labels"])
        say(f"tutorial: first batch after {time.perf_counter() - begin:.2f} s, on {batch['images'].sharding}")
    with iterator(tutorial_pipeline, cpu(), files()) as it:
        expected = next(it)
    difference = np.abs(images - np.asarray(expected["images"], np.int32))
    are_equal = np.array_equal(labels, np.asarray(expected["labels"]))
    labelled = "labels equal" if are_equal else "labels DIFFER"
    say(
        f"TUTORIAL: largest difference from the CPU {difference.max()}, {np.mean(difference > 0):.3%} differ; {labelled}"
    )
    speed("tutorial", tutorial_pipeline, THREADS[0])
    assert difference.max() <= 2, "wrong pixels"
    assert are_equal


def speed(name, define, threads, seconds=4.0, step=None, profiled=False):
    """Seconds per batch of an iterator. `step`: what the user does with a batch. `profiled`: also says how long each
    kernel takes.
    """
    import jax

    names = files() * (2 if DRY else 100)
    with iterator(define, gpu(), names, num_threads=threads, prefetch_queue_depth=3) as it:
        batches = (batch for _ in itertools.count() for batch in it)  # of many epochs
        for _ in range(2 if DRY else 12):
            batch = next(batches)
        jax.block_until_ready(batch)
        begin = last = time.perf_counter()
        periods = []
        while last - begin < (0.3 if DRY else seconds):
            batch = next(batches)
            result = batch if step is None else step(batch)
            end = time.perf_counter()
            periods.append(end - last)
            last = end
        jax.block_until_ready(result)
        period = (time.perf_counter() - begin) / len(periods)
        longest = max(periods)
        median = sorted(periods)[len(periods) // 2]
        say(
            f"{name.upper()}: {BATCH / period:,.0f} images/s with {threads} threads, batches of {BATCH}: {period * 1e3:.2f} ms each, "
            f"median {median * 1e3:.2f}, longest {longest * 1e3:.1f} (number {periods.index(longest)} of {len(periods)})"
        )
        if profiled:
            say_kernels(lambda: jax.block_until_ready(next(batches)), 20)
    return period


def train():
    for threads in THREADS:
        speed("train", train_pipeline, threads, profiled=threads == THREADS[-1])


def beside():
    """The time that a training step loses beside the iterator."""
    import jax
    import jax.numpy as jnp

    size = 256 if DRY else 8192
    w = jax.device_put(jnp.ones((size, size), jnp.bfloat16), gpu())

    @jax.jit
    def step(x, w):
        y = jnp.resize(x.reshape(-1)[:size].astype(jnp.bfloat16), (size, size))
        for _ in range(4):
            y = (y @ w) * 1e-4
        return y.sum()

    x = jax.device_put(jnp.ones((BATCH, 224, 224, 3)), gpu())
    step(x, w).block_until_ready()
    for steps in (1, 10):  # of about 6 ms
        rounds = 2 if DRY else 200 // steps
        begin = time.perf_counter()
        for _ in range(rounds * steps):
            y = step(x, w)
        y.block_until_ready()
        step_seconds = (time.perf_counter() - begin) / rounds
        say(f"a step alone: {step_seconds * 1e3:.2f} ms")

        def several(batch, steps=steps):
            return [step(batch["images"], w) for _ in range(steps)][-1]

        both = speed("step and train", train_pipeline, THREADS[0], 2.0, several)
        say(
            f"BESIDE: a step of {step_seconds * 1e3:.2f} ms takes {both * 1e3:.2f} ms with the iterator, {both / step_seconds - 1:.1%} more"
        )


def kernels(names):
    """Ten batches of each kernel beside the CPU's; all that differ are listed."""
    import jax
    import kernels as cases
    import numpy as np

    from jaxdali._core import ffi

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    ffi.load_kernels([gpu()])
    different = 0
    for name in names:
        batches = list(cases.CASES[name](np.random.default_rng(0)))
        good, bad = 0, []
        for case in batches[:: max(1, len(batches) // (2 if DRY else 10))]:
            try:
                cases.assert_agree(case, cases.run(case, device=gpu()), cases.run(case, device=cpu()))
                good += 1
            except AssertionError as e:
                bad.append(" ".join(str(e).split())[:300])
            except Exception as e:
                say(f"KERNEL {name}: {case.note}: {type(e).__name__}: {str(e)[:300]}")
                os._exit(3)  # the context is of no use any more
        different += len(bad)
        say(f"KERNEL {name}: {good} good, {len(bad)} differ", *(f"\n    {text}" for text in bad))
    assert not different


def halves():
    import kernels as cases

    names = list(cases.CASES)
    return names[: len(names) // 2], names[len(names) // 2 :]


def warps():
    kernels(halves()[0])


def windows():
    kernels(halves()[1])


def graphs():
    """Five epochs of a pipeline, with and without CUDA graphs."""

    def start_digest(flags):
        return subprocess.Popen(
            [sys.executable, __file__, "--stage", "digest", *(["--dry-run"] * DRY)],
            env=os.environ | {"XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    processes = [start_digest(flags) for flags in ("", OTHERWISE["without CUDA graphs"])]
    outputs = [p.communicate() for p in processes]
    with_graphs, without = (
        [line for line in out.splitlines() if line.startswith("digest ")] or [err[-800:]] for out, err in outputs
    )
    equal = with_graphs == without and len(set(without)) == 1
    say(f"GRAPHS: {'equal' if equal else 'DIFFERENT'} in {len(without)} batches with and without CUDA graphs")
    if not equal:
        say("with graphs:", *with_graphs, "\nwithout:", *without)
    assert equal


def epochs():
    """Every batch of three epochs beside the CPU's: host buffers are used again and again while others are copied."""
    import numpy as np

    batches = []
    for d in (gpu(), cpu()):
        with iterator(unshuffled, d, files(), 8 if DRY else 32, num_threads=4, prefetch_queue_depth=3) as it:
            batches.append([np.asarray(b["images"], np.int32) for _ in range(3) for b in it])
    differences = [np.abs(a - b).max() for a, b in zip(*batches, strict=True)]
    say(f"EPOCHS: {len(differences)} batches, largest difference from the CPU {max(differences)}")
    assert max(differences) <= 2, differences


def unshuffled(names, num_shards=1, shard_id=0):
    from jaxdali import fn

    jpegs, labels = fn.readers.file(
        files=names, labels=list(range(len(names))), num_shards=num_shards, shard_id=shard_id, name="reader"
    )
    images = fn.rotate(fn.decoders.image(jpegs, device="mixed"), angle=9.0, fill_value=0)
    return fn.resize(images, size=(96, 128)), labels.gpu()


def digest():
    import numpy as np

    with iterator(unshuffled, gpu(), files()[:BATCH]) as it:
        for _ in range(5):
            for batch in it:
                print("digest", hashlib.sha256(np.asarray(batch["images"]).tobytes()).hexdigest()[:16])


def torch():
    """The PyTorch adapter: torch's kernels read what ours wrote."""
    if importlib.util.find_spec("torch") is None:
        say("no torch")
        return
    import numpy as np
    import torch as t

    from jaxdali import fn, pipeline_def
    from jaxdali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=8, num_threads=2, device_id=0)
    def define():
        jpegs, labels = fn.readers.file(files=files()[:64], labels=list(range(len(files()[:64]))), name="reader")
        return fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(64, 64)), labels.gpu()

    means, labels = [], []
    for batch in DALIGenericIterator(define(), ["images", "labels"], reader_name="reader"):
        images = batch[0]["images"]
        means += images.float().mean(dim=(1, 2, 3)).tolist()
        labels += batch[0]["labels"].flatten().tolist()
    with iterator(small, cpu(), files()[:64], 8) as it:
        expected = np.concatenate([np.asarray(b["images"], np.float32).mean(axis=(1, 2, 3)) for b in it])
    difference = np.abs(means - expected).max()
    say(
        f"TORCH {t.__version__}: {images.device}, {images.dtype}, {len(means)} images, means differ by {difference:.3f}"
    )
    assert labels == list(range(len(labels)))
    assert images.device.type == ("cpu" if DRY else "cuda")
    assert difference < 0.5


def small(names, num_shards=1, shard_id=0):
    from jaxdali import fn

    jpegs, labels = fn.readers.file(
        files=names, labels=list(range(len(names))), num_shards=num_shards, shard_id=shard_id, name="reader"
    )
    return fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(64, 64)), labels.gpu()


def run():
    """`Pipeline.run`: lists of images of different sizes, on the GPU and on the host."""
    import numpy as np
    from PIL import Image

    from jaxdali import fn, pipeline_def

    names = files()[:8]

    @pipeline_def(batch_size=8, num_threads=2, device_id=0)
    def define():
        jpegs, _ = fn.readers.file(files=names, labels=list(range(8)), name="reader")
        return fn.decoders.image(jpegs, device="mixed")

    pipe = define()
    pipe.build()
    (images,) = pipe.run()
    on_host = images.as_cpu()
    different = [
        i
        for i, name in enumerate(names)
        if not np.array_equal(on_host.at(i), np.asarray(Image.open(name).convert("RGB")))
    ]
    say(
        f"RUN: {type(images).__name__} of {type(images.at(3)).__name__}, {on_host.at(3).shape}; {len(different)} of 8 differ from Pillow's"
    )
    if not DRY:
        import torch as t

        tensor = t.from_dlpack(images.at(3))
        say(
            f"   by DLPack: {tensor.device}, {tuple(tensor.shape)}, equal: {np.array_equal(tensor.cpu().numpy(), on_host.at(3))}"
        )
        assert np.array_equal(tensor.cpu().numpy(), on_host.at(3))
    assert not different


def functions():
    """Functions of values in a user's jitted program, and by themselves."""
    import jax
    import numpy as np

    import jaxdali.dynamic as jd

    x = np.random.default_rng(0).integers(0, 256, (8, 60, 80, 3), np.uint8)
    resized = [jax.jit(lambda x: jd.resize(x, size=(32, 40)))(jax.device_put(x, d)) for d in (gpu(), cpu())]
    a, b = (np.stack([np.asarray(sample) for sample in y]).astype(np.int32) for y in resized)
    say(f"FUNCTIONS: jax.jit on {resized[0].device}, largest difference {np.abs(a - b).max()}")
    assert np.abs(a - b).max() <= 1
    encoded = [pathlib.Path(f).read_bytes() for f in files()[:8]]
    with jax.default_device(gpu()):
        decoded = jd.resize(jd.decoders.image(encoded, device="mixed"), size=(64, 64))
        c = np.stack([np.asarray(sample) for sample in decoded]).astype(np.int32)
    with jax.default_device(cpu()):
        expected = np.stack(
            [np.asarray(sample) for sample in jd.resize(jd.decoders.image(encoded), size=(64, 64))]
        ).astype(np.int32)
    say(f"FUNCTIONS: eager, largest difference {np.abs(c - expected).max()}")
    assert np.abs(c - expected).max() <= 1


def stateful():
    """A `jax_function` with state runs between two programs."""
    import numpy as np

    from jaxdali import fn
    from jaxdali.plugin.jax.fn import jax_function

    calls = []

    @jax_function
    def brightened(images):
        calls.append(len(images))
        return images + np.uint8(len(calls))

    def define(names, num_shards=1, shard_id=0):
        images, labels = small(names, num_shards, shard_id)
        return fn.rotate(brightened(images), angle=90.0, keep_size=True), labels

    batches = []
    for d in (gpu(), cpu()):
        calls.clear()
        with iterator(define, d, files()[:BATCH], 8) as it:
            batches.append(np.stack([np.asarray(b["images"], np.int32) for b in it]))
        say(f"stateful: {len(batches[-1])} batches, {len(calls)} calls on {d}")
    difference = np.abs(batches[0] - batches[1])
    difference = np.minimum(difference, 256 - difference)  # the function's sums wrap around
    say(f"STATEFUL: largest difference from the CPU {difference.max()}")
    assert difference.max() <= 2


# --- processes


def unpack():
    """Modules and packages that travelled here, where they are missing."""
    carry, site = ROOT / "build" / "carry", ROOT / "build" / "gpu" / "packages"
    if (carry / "modules.tar.xz").exists() and not any((ROOT / "jaxdali").glob("_cpu*.so")):
        tarfile.open(carry / "modules.tar.xz").extractall(ROOT, filter="data")
    modules = {"pillow": "PIL", "diastatic_malt": "malt", "pytest_xdist": "xdist"}
    for wheel in carry.glob("wheels/*.whl"):
        name = wheel.name.split("-")[0].lower()
        if importlib.util.find_spec(modules.get(name, name)) is None:
            zipfile.ZipFile(wheel).extractall(site)
    return site


class Stage:
    """A stage in a process of its own, whose lines are printed and reported as they come."""

    running: ClassVar[list["Stage"]] = []

    def __init__(self, name, seconds, report, how="", flags=""):
        self.name, self.how, self.report, self.seconds = name, how, report, max(1.0, seconds)
        self.begin, self.tail = time.time(), []
        command = [sys.executable, __file__, "--stage", name, *(["--dry-run"] * DRY)]
        env = os.environ | ({"XLA_FLAGS": flags} if flags else {})
        self.process = subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
        self.running.append(self)
        self.reading = threading.Thread(target=self.read)
        self.reading.start()

    def read(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.tail = [*self.tail[-40:], line]
            if line.startswith(("[", "   ", "digest")) or DRY:
                print(line, end="", flush=True)
            self.report(line)

    def kill(self):
        """Ends the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self):
        """The exit status."""
        try:
            code = self.process.wait(max(0.1, self.begin + self.seconds - time.time()))
        except subprocess.TimeoutExpired:
            code = f"over {self.seconds:.0f} s"
        self.kill()
        self.reading.join(5)
        result = "done" if code == 0 else f"FAILED ({code})"
        text = f"== {self.name}{self.how}: {result} in {time.time() - self.begin:.0f} s, {time.time() - start:.0f} s in all\n"
        if code:
            text = "".join(self.tail[-25:]) + text
        print(text, end="", flush=True)
        self.report(text)
        return code


def main():
    chosen = [a for a in sys.argv[1:] if a in (*STAGES, *TOGETHER)]
    if unknown := [a for a in sys.argv[1:] if a not in (*chosen, "--dry-run")]:
        raise SystemExit(f"no stage {' '.join(unknown)}; there are {' '.join((*STAGES, *TOGETHER))}")
    path = pathlib.Path(os.environ.get("OUT", "build/gpu")) / "first.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, failed = threading.Lock(), []
    with path.open("w") as file:

        def report(text):
            with lock:
                file.write(text)
                file.flush()

        def left():
            return END - (time.time() - start)

        def skip(name):
            text = f"== {name}: no time left\n"
            print(text, end="", flush=True)
            report(text)
            failed.append(name)

        files()
        planned = 0.0
        for name, seconds in STAGES.items():
            if chosen and name not in chosen:
                continue
            planned += seconds
            if left() < 5:
                skip(name)
                continue
            code = Stage(name, min(left(), max(seconds, planned - (time.time() - start))), report).wait()
            if code:
                failed.append(name)
            if code and name in ("tutorial", "train"):
                for variant, flags in OTHERWISE.items():
                    if left() > 5 and Stage(name, min(left(), seconds), report, f" {variant}", flags).wait() == 0:
                        os.environ["XLA_FLAGS"] = flags  # of the stages that follow
                        break
        remaining = [name for name in TOGETHER if not chosen or name in chosen]
        stages = [Stage(name, left(), report) for name in remaining if left() >= 5 or skip(name)]
        failed += [stage.name for stage in stages if stage.wait()]
        text = f"first.py: {time.time() - start:.0f} s; failed: {', '.join(failed) or 'nothing'}\n"
        print(text, end="", flush=True)
        report(text)
    return bool(failed)


if __name__ == "__main__":
    if "--stage" in sys.argv:
        sys.path[:0] = [str(HERE), str(ROOT / "tests"), str(ROOT / "tests" / "benchmarks")]
        name = sys.argv[sys.argv.index("--stage") + 1]
        sys.argv = sys.argv[:1]
        globals()[name]()
    else:
        site = unpack()
        built = any((ROOT / "jaxdali").glob("_cpu*.so"))  # otherwise the installed package is used
        folders = [str(site), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT)] * built + folders))
        os.environ |= {
            "PYTHONUNBUFFERED": "1",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "FIRST_START": str(start),
        }
        os.environ |= {"JAX_PLATFORMS": "cpu" if DRY else "cuda,cpu"}
        sys.path[:0] = [str(HERE), str(ROOT / "tests" / "benchmarks")]
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            sys.exit(main())
        finally:
            for stage in Stage.running:
                stage.kill()
