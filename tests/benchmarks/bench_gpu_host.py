"""CPU time of the host for a pipeline on a GPU, without one: CPU devices play GPUs, and kernels are replaced by
nothing.

python tests/benchmarks/bench_gpu_host.py PHOTOS [--batch-size 256] [--batches 100] [--gpus 8]

Bytes are read, headers parsed, tables and operands made, and programs launched, as for a GPU; XLA's copy to the GPU is
missing. There is one native thread, so that the parts include what it does.
"""

import argparse
import collections
import functools
import pathlib
import time

import jax
import jax.numpy as jnp


def replace_kernels():
    """CPU devices play GPUs, whose kernels write nothing."""
    from jaxdali._core import ffi
    from jaxdali._core.ragged import Ragged
    from jaxdali._program.sharding import Shards

    def nothing(kernel, ctx, image, spec, out, *params, **options):
        shape = (ctx.B, *spec.shape) if out is None else (out.capacity,)
        data = jax.ffi.ffi_call("jaxdali_empty", jax.ShapeDtypeStruct(shape, spec.dtype))()
        return (data if out is None else Ragged(data, out.offsets, out.shapes)), jnp.zeros((ctx.B,), jnp.int32)

    ffi.call = nothing
    ffi.kernels_on = lambda device: frozenset(("decode", "resize", "window"))
    Shards.accelerator = property(lambda self: True)
    jax.lax.platform_dependent = lambda *args, default, **platforms: default(*args)


def timed(of, name: str, times: dict[str, list[float]], label: str):
    """Adds up the CPU time of each call of a function, in the thread that calls it."""
    function = getattr(of, name)

    @functools.wraps(function)
    def call(*args, **options):
        start = time.thread_time()
        try:
            return function(*args, **options)
        finally:
            times[label].append(time.thread_time() - start)

    setattr(of, name, call)


def measure(define, batch_size: int, batches: int, times: dict[str, list[float]]) -> tuple[list[float], int]:
    """CPU seconds of the process for each batch, and how many programs were compiled."""
    from jaxdali._program import program

    num_programs, seconds = len(program._programs), []
    with define(batch_size=batch_size, num_threads=1, seed=0) as iterator:
        for _ in range(20):
            next(iterator)
        times.clear()
        for _ in range(batches):
            start = time.process_time()
            next(iterator)
            seconds.append(time.process_time() - start)
    return seconds, len(program._programs) - num_programs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=pathlib.Path)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--gpus", type=int, default=1, help="that one process has; each gets a batch of this size")
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", args.gpus)
    mesh = jax.make_mesh((args.gpus,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch")) if args.gpus > 1 else None
    args.batch_size *= args.gpus
    replace_kernels()
    from jaxdali import _cpu, fn
    from jaxdali._batch.executor import Executor
    from jaxdali.fn._decode.headers import ImageHeaders
    from jaxdali.plugin.jax import data_iterator

    photos = sorted(str(f) for f in args.photos.glob("**/*.jpg"))
    files = photos * -(-args.batch_size * (args.batches + 100) // len(photos))  # no epoch ends while time is taken

    @data_iterator(output_map=["x", "label"], reader_name="reader", sharding=sharding)
    def resize(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            files=files, random_shuffle=True, num_shards=num_shards, shard_id=shard_id, name="reader"
        )
        return fn.resize(fn.decoders.image(jpegs, device="mixed"), size=(224, 224)), labels.gpu()

    @data_iterator(output_map=["x", "label"], reader_name="reader", sharding=sharding)
    def train(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            files=files, random_shuffle=True, num_shards=num_shards, shard_id=shard_id, name="reader"
        )
        images = fn.resize(fn.decoders.image_random_crop(jpegs, device="mixed"), size=(224, 224))
        normal = fn.crop_mirror_normalize(
            images, mirror=fn.random.coin_flip(), mean=[124.0, 116.0, 104.0], std=[58.0, 57.0, 57.0]
        )
        return normal, labels.gpu()

    @data_iterator(output_map=["x", "label"], reader_name="reader", sharding=sharding)
    def crop(num_shards=1, shard_id=0):
        jpegs, labels = fn.readers.file(
            files=files, random_shuffle=True, num_shards=num_shards, shard_id=shard_id, name="reader"
        )
        images = fn.decoders.image(jpegs, device="mixed")
        return fn.crop(images, crop=(160, 160), crop_pos_x=fn.random.uniform(range=(0.0, 1.0))), labels.gpu()

    times: dict[str, list[float]] = collections.defaultdict(list)
    parts = {
        "open files": (_cpu, "file_sizes"),
        "read files": (_cpu, "read_files"),
        "parse headers": (_cpu, "parse_headers"),
        "make tables": (_cpu, "make_jpeg_tables"),
        "headers, tables and what surrounds them": (ImageHeaders, "run"),
        "the host pass, with these": (Executor, "prepare"),
        "operands and dispatch": (Executor, "dispatch"),
    }
    for label, (owner, name) in parts.items():
        timed(owner, name, times, label)
    print("| us of CPU time per image | median | least |\n|---|--:|--:|")
    for define in (resize, train, crop):
        seconds, programs = measure(define, args.batch_size, args.batches, times)
        mean = 1e6 * sum(seconds) / len(seconds) / args.batch_size
        print(f"| **{define.__name__}**, {programs} programs, mean {mean:.1f} | {numbers(seconds, args.batch_size)} |")
        reading = [sum(t) for t in zip(times["open files"], times["read files"])]
        print(
            f"| all but opening and reading files | {numbers([t - r for t, r in zip(seconds, reading)], args.batch_size)} |"
        )
        sums = [sum(t) for t in zip(times["the host pass, with these"], times["operands and dispatch"])]
        print(f"| everything between reading and the end of the launch | {numbers(sums, args.batch_size)} |")
        for label in parts:
            print(f"| {label} | {numbers(times[label], args.batch_size)} |")


def numbers(seconds: list[float], batch_size: int) -> str:
    per_image = sorted(1e6 * s / batch_size for s in seconds)
    return f"{per_image[len(per_image) // 2]:.1f} | {per_image[0]:.1f}"


if __name__ == "__main__":
    main()
