"""Functions of values beside pipelines, DALI's dynamic mode, Pillow and torchvision: microseconds a call, and CPU
milliseconds an image.

    python tests/benchmarks/bench_functions.py [--data DIR] [--dali-python VENV/bin/python] [--peers-python
    VENV/bin/python] [--rounds 10]

``flip`` is one call on uint8 ``[4, 8, 8, 3]``, a `jax.Array` or DALI's batch, waited for. ``photos`` are 64 JPEGs,
decoded, resized to 224x224 and flipped: by a pipeline, by functions one after the other, by one function of `jd.jit`,
in a Grain `MapDataset` of threads, by DALI's dynamic mode, and by Pillow and torchvision sample by sample. All of them
have the files' bytes in memory.

Each contender is a process that stays, and they take turns, round by round, so that what else happens on the machine
hits them alike. Of ``flip`` the time is the least of a round's slices; of ``photos`` CPU time of all threads. Reported
are medians over the rounds, and the medians of the ratios of each round. Contenders whose packages an interpreter can't
import are left out, and named.
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIZE, BATCH, THREADS = 224, 64, 2


def flip_by_functions() -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    import jaxdali.dynamic as jd

    x = jnp.asarray(np.zeros((4, 8, 8, 3), np.uint8))
    return lambda: jax.block_until_ready(jd.flip(x))


def flip_by_dali() -> Callable[[], Any]:
    import nvidia.dali.experimental.dynamic as ndd

    x = ndd.as_batch(np.zeros((4, 8, 8, 3), np.uint8))
    return lambda: ndd.flip(x).evaluate()


def photos_by_a_pipeline(files: list[bytes]) -> Callable[[], Any]:
    import jax

    from jaxdali import fn, pipeline_def
    from jaxdali.plugin.jax import DALIGenericIterator

    arrays = [np.frombuffer(f, np.uint8) for f in files]

    @pipeline_def(batch_size=len(files), num_threads=THREADS, device_id=None)
    def define():
        images = fn.decoders.image(fn.external_source(lambda: arrays, batch=True))
        return fn.flip(fn.resize(images, size=(SIZE, SIZE)))

    iterator = DALIGenericIterator([define()], ["images"])
    return lambda: jax.block_until_ready(next(iterator)["images"])


def augmented(files: Any) -> Any:
    import jaxdali.dynamic as jd

    return jd.flip(jd.resize(jd.decoders.image(files), size=(SIZE, SIZE)))


def photos_by_functions(files: list[bytes]) -> Callable[[], Any]:
    import jax

    import jaxdali.dynamic as jd

    jd.set_num_threads(THREADS)
    return lambda: jax.block_until_ready(augmented(files))


def photos_by_jit(files: list[bytes]) -> Callable[[], Any]:
    import jax

    import jaxdali.dynamic as jd

    jd.set_num_threads(THREADS)
    compiled = jd.jit(augmented)
    return lambda: jax.block_until_ready(compiled(files))


def photos_by_grain(files: list[bytes]) -> Callable[[], Any]:
    import grain

    import jaxdali.dynamic as jd

    jd.set_num_threads(THREADS)
    compiled = jd.jit(augmented)
    batches = (
        grain.MapDataset.source(files).repeat().batch(BATCH, batch_fn=list).map(lambda batch: compiled(batch).jax())
    )
    iterator = iter(batches.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * THREADS)))
    return lambda: next(iterator)


def photos_by_dali(files: list[bytes]) -> Callable[[], Any]:
    import nvidia.dali.experimental.dynamic as ndd

    ndd.set_num_threads(THREADS)
    arrays = [np.frombuffer(f, np.uint8) for f in files]

    def run() -> Any:
        images = ndd.decoders.image(ndd.as_batch(arrays), device="cpu")
        return ndd.flip(ndd.resize(images, size=(SIZE, SIZE))).evaluate()

    return run


def photos_by_pillow(files: list[bytes]) -> Callable[[], Any]:
    import io

    from PIL import Image

    def one(file: bytes) -> np.ndarray:
        image = Image.open(io.BytesIO(file)).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        return np.asarray(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT))

    return lambda: np.stack([one(f) for f in files])


def photos_by_torchvision(files: list[bytes]) -> Callable[[], Any]:
    import io

    import torch
    from PIL import Image
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    transform = v2.Compose([v2.PILToTensor(), v2.Resize((SIZE, SIZE), antialias=True), v2.RandomHorizontalFlip(1.0)])
    return lambda: torch.stack([transform(Image.open(io.BytesIO(f)).convert("RGB")) for f in files])


FLIPS = {"jaxdali": flip_by_functions, "DALI's dynamic mode": flip_by_dali}
PHOTOS = {
    "pipeline": photos_by_a_pipeline,
    "functions": photos_by_functions,
    "jd.jit": photos_by_jit,
    "jd.jit in Grain": photos_by_grain,
    "DALI's dynamic mode": photos_by_dali,
    "Pillow": photos_by_pillow,
    "torchvision": photos_by_torchvision,
}
NEEDED = {"DALI's dynamic mode": "nvidia.dali", "jd.jit in Grain": "grain", "torchvision": "torchvision"}


def serve(what: str, name: str, folder: str):
    """A contender: runs a slice for each line that it reads, and prints what it took."""
    if what == "flip":
        run = FLIPS[name]()
    else:
        paths = sorted(pathlib.Path(folder).glob("*/*.jpg"))[:BATCH]
        run = PHOTOS[name]([p.read_bytes() for p in paths])
    for _ in range(500 if what == "flip" else 4):
        run()
    print("ready", flush=True)
    for _ in sys.stdin:
        if what == "flip":
            took = []
            for _ in range(20):
                start = time.perf_counter()
                for _ in range(25):
                    run()
                took.append((time.perf_counter() - start) / 25 * 1e6)
            print(json.dumps(min(took)), flush=True)
            continue
        start = time.process_time()
        for _ in range(4):
            run()
        time.sleep(0.3)  # what is made ahead is finished: as many batches as were taken
        print(json.dumps((time.process_time() - start) / (4 * BATCH) * 1e3), flush=True)


def measured(what: str, names: dict[str, str], folder: str, rounds: int) -> dict[str, list[float]]:
    """For each contender, a number for each round. names: the contenders, with the interpreters that run them."""
    contenders = {}
    for name, python in names.items():
        command = [python, __file__, "--serve", what, name, "--data", folder]
        contenders[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rounds_by_name: dict[str, list[float]] = {name: [] for name in names}
    try:
        for process in contenders.values():
            while (line := process.stdout.readline()) and line != "ready\n":
                pass
        for r in range(rounds):
            order = list(contenders.items())
            for name, process in order[r % len(order) :] + order[: r % len(order)]:
                process.stdin.write("\n")
                process.stdin.flush()
                rounds_by_name[name].append(json.loads(process.stdout.readline()))
    finally:
        for process in contenders.values():
            process.kill()
            process.wait()
    return rounds_by_name


def interpreter(name: str, dali: str | None, peers: str) -> str | None:
    """The Python that has what a contender needs."""
    python = dali if name == "DALI's dynamic mode" else peers
    module = NEEDED.get(name)
    if python is None:
        return None
    if module is None:
        return python
    imported = subprocess.run([python, "-c", f"import {module}"], capture_output=True)
    return python if imported.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="")
    parser.add_argument("--dali-python")
    parser.add_argument(
        "--peers-python",
        default=sys.executable,
        help="has jaxdali, and where they are to be measured grain and torchvision",
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--serve", nargs=2)
    args = parser.parse_args()
    if args.serve:
        serve(*args.serve, args.data)
        return
    with tempfile.TemporaryDirectory() as folder:
        if not args.data:
            spec = importlib.util.spec_from_file_location("photos", pathlib.Path(__file__).with_name("photos.py"))
            assert spec is not None
            assert spec.loader is not None
            photos = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(photos)
            photos.make_photos(pathlib.Path(folder), n=BATCH)
        for task, programs, unit in (("flip", FLIPS, "us a call"), ("photos", PHOTOS, "CPU ms an image")):
            names = {
                name: python for name in programs if (python := interpreter(name, args.dali_python, args.peers_python))
            }
            times = measured(task, names, args.data or folder, args.rounds)
            first = "DALI's dynamic mode" if task == "flip" else "pipeline"
            print(f"\n{task}, {unit}, and relative to {first}")
            for name, numbers in times.items():
                ratio = (
                    statistics.median(a / b for a, b in zip(numbers, times[first])) if first in times else float("nan")
                )
                print(f"| {name} | {statistics.median(numbers):.3g} | {ratio:.2f} |")
            for name in programs.keys() - names.keys():
                print(f"{name}: left out, as its package is missing")


if __name__ == "__main__":
    main()
