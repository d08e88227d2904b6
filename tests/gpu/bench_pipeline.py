"""Images per second of a whole training pipeline on a GPU, with 4, 8 and 15 CPU threads; see run.sh.

    python tests/gpu/bench_pipeline.py [--images 4096] [--batch 256] [--rounds 5] [--dry-run]

Files are read, a random window of each is decoded and resized to 224x224, flipped at random and normalised; batches are
taken as fast as they come. The files are 512 photos of gpu_photos.py, which an epoch has several times, and are in the
page cache.
"""

import contextlib
import pathlib
import resource
import statistics
import time
from collections.abc import Sequence

import gpu_photos
import jax
import jax.numpy as jnp
import measuring
from jax.sharding import SingleDeviceSharding

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator

DIFFERENT = 512  # photos
TARGET = 20_000
NUMBERS = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
ALONE, TRAIN = "decode alone", "decode, random crop to 224, flip, normalise"


def define_iterator(files: Sequence[str], batch: int, device: jax.Device, threads: int, decode_only: bool):
    @data_iterator(output_map=["images", "labels"], reader_name="reader", sharding=SingleDeviceSharding(device))
    def define(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            files=files,
            labels=list(range(len(files))),
            random_shuffle=True,
            num_shards=num_shards,
            shard_id=shard_id,
            name="reader",
        )
        if decode_only:
            images = fn.decoders.image(jpegs, device="mixed")
            return fn.resize(images, size=(8, 8), interp_type=0), labels.gpu()  # something that all images have
        images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(224, 224))
        return fn.crop_mirror_normalize(
            images, mirror=fn.random.coin_flip(), output_layout="HWC", **NUMBERS
        ), labels.gpu()

    return define(batch_size=batch, num_threads=threads, seed=0, prefetch_queue_depth=3)


def measure(
    files: Sequence[str], batch: int, rounds: int, device: jax.Device, threads: int, decode_only: bool
) -> tuple[list[float], float]:
    """Images per second of each round, and CPU milliseconds per image."""
    speeds = []
    with contextlib.closing(define_iterator(files, batch, device, threads, decode_only)) as iterator:
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
    return speeds, cpu / (rounds * len(files)) * 1e3


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    args = measuring.arguments(__doc__, images=4096, batch=256, rounds=5)
    n, batch, rounds = (32, 8, 2) if args.dry_run else (args.images, args.batch, args.rounds)
    device = measuring.device(args.dry_run)
    different = gpu_photos.make(min(n, 16 if args.dry_run else DIFFERENT))
    files = [str(different[i % len(different)]) for i in range(n)]
    size = statistics.mean(pathlib.Path(f).stat().st_size for f in different)
    print(
        f"\n{len(different)} JPEGs of about 500x375, {size / 1e3:.0f} KB each, {n} in an epoch; batches of {batch}, ",
        end="",
    )
    print(f"{rounds} epochs after two; medians", flush=True)
    measuring.head(("pipeline", "threads", f"images/s (target {TARGET:,} with 4)", "from-to", "CPU ms/image"))
    for title, threads in ((TRAIN, 4), (TRAIN, 8), (TRAIN, 15), (ALONE, 4)):
        speeds, cpu = measure(files, batch, rounds, device, threads, title == ALONE)
        range_of = f"{min(speeds):,.0f}-{max(speeds):,.0f}"
        measuring.row((title, str(threads), f"{statistics.median(speeds):,.0f}", range_of, f"{cpu:.3f}"))


if __name__ == "__main__":
    main()
