"""Images per second of a whole training pipeline on a GPU, with 4 CPU threads; see run.sh.

    python tests/gpu/bench_pipeline.py [--images 4096] [--batch 256] [--rounds 5] [--dry-run]

Files are read, a random window of each is decoded and resized to 224x224, flipped at random and normalised; batches are taken as fast
as they come. The files have about 500x375 pixels and 105 KB, and are in the page cache.
"""

import contextlib
import os
import pathlib
import resource
import statistics
import tempfile
import time

import jax
import jax.numpy as jnp
import measuring
from jax.sharding import SingleDeviceSharding
from photos import describe, make_photos

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

SHAPES = [((500, 375), 0.75), ((375, 500), 0.25)]
DIFFERENT = 512  # images; the rest are links to them
TARGET = 20_000
THREADS = 4


@jax_function
def flipped_and_normalised(images, flip):
    images = jnp.where(flip[:, None, None, None] != 0, images[:, :, ::-1], images).astype(jnp.float32)
    mean, deviation = (jnp.array(v, jnp.float32) for v in ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375]))
    return (images - mean) / deviation


def make_files(folder: pathlib.Path, n: int) -> pathlib.Path:
    make_photos(folder, min(n, DIFFERENT), 8, shapes=SHAPES, sigma=(12, 30))
    for i, path in enumerate(sorted(folder.rglob("*.jpg"))):
        for copy in range(i + DIFFERENT, n, DIFFERENT):
            os.link(path, path.with_name(f"{copy:06d}.jpg"))
    return folder


def define_iterator(folder: pathlib.Path, batch: int, device: jax.Device, decode_only: bool):
    @data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=SingleDeviceSharding(device))
    def define(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(file_root=str(folder), random_shuffle=True, num_shards=num_shards, shard_id=shard_id, name="reader")
        if decode_only:
            images = fn.decoders.image(jpegs, device="mixed")
            return fn.resize(images, size=(8, 8), interp_type=0), labels.gpu()  # something that all images have
        images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(224, 224))
        return flipped_and_normalised(images, fn.random.coin_flip().gpu()), labels.gpu()

    return define(batch_size=batch, num_threads=THREADS, seed=0, prefetch_queue_depth=3)


def measure(folder: pathlib.Path, n: int, batch: int, rounds: int, device: jax.Device, decode_only: bool) -> tuple[list[float], float]:
    """Images per second of each round, and CPU milliseconds per image."""
    speeds = []
    with contextlib.closing(define_iterator(folder, batch, device, decode_only)) as iterator:
        for _ in range(2):  # compiles, and sees the largest batches
            for _out in iterator:
                pass
        cpu = cpu_seconds()
        for _ in range(rounds):
            begin, images = time.perf_counter(), 0
            for out in iterator:
                images += out["images"].shape[0]
            jax.block_until_ready(out)
            speeds.append(images / (time.perf_counter() - begin))
        cpu = cpu_seconds() - cpu
    assert out["images"].shape[1:] == ((8, 8, 3) if decode_only else (224, 224, 3))
    assert bool(jnp.isfinite(out["images"].astype(jnp.float32)).all())
    return speeds, cpu / (rounds * n) * 1e3


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    args = measuring.arguments(__doc__, images=4096, batch=256, rounds=5)
    n, batch, rounds = (32, 8, 2) if args.dry_run else (args.images, args.batch, args.rounds)
    device = measuring.device(args.dry_run)
    with tempfile.TemporaryDirectory() as name:
        folder = make_files(pathlib.Path(name), n)
        print(f"\n{describe(folder)}; {THREADS} threads, batches of {batch}, {rounds} epochs after two; medians")
        rows = []
        for title, decode_only in (("decode alone", True), ("decode, random crop to 224, flip, normalise", False)):
            speeds, cpu = measure(folder, n, batch, rounds, device, decode_only)
            rows.append((title, f"{statistics.median(speeds):,.0f}", f"{min(speeds):,.0f}-{max(speeds):,.0f}", f"{cpu:.3f}"))
    measuring.table(("pipeline", f"images/s (target {TARGET:,})", "from-to", "CPU ms/image"), rows)


if __name__ == "__main__":
    main()
