"""Shows DALI's tutorial "Getting started with JAX and DALI", step by step, with jaxdali.

    python examples/getting_started.py [IMAGE_DIR] [--output getting_started.png]

It needs matplotlib and rich: pip install matplotlib rich

IMAGE_DIR holds one folder of images per class; without it, the photos beside this script are used.
Every step of the tutorial runs in its order and prints what it got; the batches are drawn into one
picture in the end.
"""

# pyright: reportRedeclaration=false
# As in the tutorial, each step defines its own function of the same name.

import argparse
import pathlib
import time

import jax
import matplotlib as mpl
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn
from jaxdali.pipeline import pipeline_def
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator

mpl.use("Agg")  # draws into a file, so it works without a screen
import matplotlib.pyplot as plt

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("image_dir", nargs="?", default=str(pathlib.Path(__file__).parent / "images"))
parser.add_argument("--output", default="getting_started.png", help="the picture that is written")
args = parser.parse_args()
image_dir = args.image_dir

# Without a GPU, JAX shows the CPU as 8 devices, so that there is something to shard over.
jax.config.update("jax_num_cpu_devices", 8)


def title(text):
    print(f"\n== {text}")


# --------------------------------------------------------------------------------------------------
title("Quick start")


@data_iterator(output_map=["images", "labels"], reader_name="image_reader")
def iterator_fn():
    jpegs, labels = fn.readers.file(file_root=image_dir, name="image_reader")
    images = fn.decoders.image(jpegs, device="mixed")
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels


start = time.perf_counter()
iterator = iterator_fn(batch_size=8)
batch = next(iterator)  # batch of data ready to be used by JAX
images = batch["images"]
print(
    f"first batch after {time.perf_counter() - start:.2f} s: images {images.shape} {images.dtype}"
)

# --------------------------------------------------------------------------------------------------
title("Running DALI with JAX")


def simple_pipeline():
    jpegs, labels = fn.readers.file(file_root=image_dir, name="image_reader")
    images = fn.decoders.image(jpegs)
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels


# A second function of this name, as in the tutorial.
iterator_fn = data_iterator(  # pyright: ignore[reportAssignmentType]
    simple_pipeline, output_map=["images", "labels"], reader_name="image_reader"
)
iterator = iterator_fn(batch_size=1)

output = next(iterator)
print(output.keys())
print(type(output["images"]))
print(output["images"].shape)
print(type(output["labels"]))
print(output["labels"].shape)
print(f"Label = {output['labels'][0]}")

output = next(iterator)
print(f"Label = {output['labels'][0]}")


# The same as a decorator.
@data_iterator(output_map=["images", "labels"], reader_name="image_reader")
def iterator_fn():
    jpegs, labels = fn.readers.file(file_root=image_dir, name="image_reader")
    images = fn.decoders.image(jpegs)
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels


iterator = iterator_fn(batch_size=1)
print(f"Iterator size: {len(iterator)}")
print("batches:", *(batch_id for batch_id, batch in enumerate(iterator)))

# --------------------------------------------------------------------------------------------------
title("Batching")

iterator = iterator_fn(batch_size=8)
batch = next(iterator)
print(type(batch["images"]))
print(batch["images"].shape)
print(type(batch["labels"]))
print(batch["labels"].shape)
in_order = batch["images"]

# --------------------------------------------------------------------------------------------------
title("GPU acceleration")
print(f"Images backing device: {batch['images'].devices()}")


@data_iterator(output_map=["images", "labels"], reader_name="image_reader")
def iterator_fn():
    jpegs, labels = fn.readers.file(file_root=image_dir, name="image_reader")
    images = fn.decoders.image(jpegs)
    images = images.gpu()  # "gpu" is the accelerator that JAX has; without one, the CPU device
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels


iterator = iterator_fn(batch_size=8)
batch = next(iterator)
print(f"Images backing device: {batch['images'].devices()}")

if len(jax.local_devices()) > 1:
    iterator = iterator_fn(batch_size=1, device_id=1)
    batch = next(iterator)
    print(f"Images backing device with device_id=1: {batch['images'].devices()}")

# --------------------------------------------------------------------------------------------------
title("Hardware accelerated decoding")


@data_iterator(output_map=["images", "labels"], reader_name="image_reader")
def iterator_fn():
    jpegs, labels = fn.readers.file(file_root=image_dir, name="image_reader")
    images = fn.decoders.image(jpegs, device="mixed")
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels


iterator = iterator_fn(batch_size=8)
batch = next(iterator)
print(f"Images backing device: {batch['images'].devices()}")
print(f"Labels backing device: {batch['labels'].devices()}")

# --------------------------------------------------------------------------------------------------
title("Random shuffling")


@data_iterator(output_map=["images", "labels"], reader_name="image_reader")
def iterator_fn():
    jpegs, labels = fn.readers.file(file_root=image_dir, name="image_reader", random_shuffle=True)
    images = fn.decoders.image(jpegs, device="mixed")
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels


iterator = iterator_fn(batch_size=8, seed=0)
batch = next(iterator)
print(f"Labels: {batch['labels'].ravel()}")
shuffled = batch["images"]

# --------------------------------------------------------------------------------------------------
title("Augmentations")


@data_iterator(output_map=["images", "labels"], reader_name="image_reader")
def iterator_fn():
    jpegs, labels = fn.readers.file(file_root=image_dir, name="image_reader", random_shuffle=True)
    images = fn.decoders.image(jpegs, device="mixed")
    angle = fn.random.uniform(range=(-10.0, 10.0))
    images = fn.rotate(images, angle=angle, fill_value=0)
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels


iterator = iterator_fn(batch_size=8, seed=0)
batch = next(iterator)
print(f"Rotated images: {batch['images'].shape}")
rotated = batch["images"]

# --------------------------------------------------------------------------------------------------
title("Multiple devices")

mesh = Mesh(jax.devices()[:2], axis_names=("batch",))
sharding = NamedSharding(mesh, PartitionSpec("batch"))
print(sharding)


@data_iterator(output_map=["images", "labels"], reader_name="image_reader", sharding=sharding)
def iterator_fn(num_shards=1, shard_id=0):
    jpegs, labels = fn.readers.file(
        file_root=image_dir,
        name="image_reader",
        num_shards=num_shards,
        shard_id=shard_id,
    )
    images = fn.decoders.image(jpegs, device="mixed")
    angle = fn.random.uniform(range=(-10.0, 10.0))
    images = fn.rotate(images, angle=angle, fill_value=0)
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels.gpu()


iterator = iterator_fn(batch_size=8)
batch = next(iterator)
images = batch["images"]
print(f"Images shape: {images.shape}")
print(f"Images backing device: {images.devices()}")
print(f"Images sharding: {images.sharding.spec}")
assert images.sharding == sharding
assert batch["labels"].sharding == sharding
jax.debug.visualize_array_sharding(images.ravel())
for i, shard in enumerate(images.addressable_shards):
    rows = shard.index[0]
    print(f"Shard {i} device: {shard.device}, shape: {shard.data.shape}, batch rows: {rows}")
sharded = images

# --------------------------------------------------------------------------------------------------
title("num_threads performance considerations")


def run_iterator(iterator, epoch_num=3):
    for _epoch in range(epoch_num):
        for _batch in iterator:
            pass


for num_threads in (1, 8):
    iterator = iterator_fn(batch_size=64, num_threads=num_threads)
    start = time.perf_counter()
    run_iterator(iterator)
    print(f"num_threads={num_threads}: {1e3 * (time.perf_counter() - start):.0f} ms")

# --------------------------------------------------------------------------------------------------
title("data_iterator decorator internals")
print(type(iterator))


@pipeline_def
def simple_pipeline():
    jpegs, labels = fn.readers.file(file_root=image_dir, name="image_reader")
    images = fn.decoders.image(jpegs, device="mixed")
    images = fn.resize(images, resize_x=256, resize_y=256)

    return images, labels


pipeline = simple_pipeline(batch_size=8, num_threads=1, device_id=0)
print(type(pipeline))

iterator = DALIGenericIterator(
    pipeline, output_map=["images", "labels"], reader_name="image_reader"
)
print(type(iterator))
batch = next(iterator)
print(f"Images backing device: {batch['images'].devices()}")
print(f"Labels backing device: {batch['labels'].devices()}")

# --------------------------------------------------------------------------------------------------
title("The picture")

rows = {"in order": in_order, "shuffled": shuffled, "rotated": rotated, "sharded": sharded}
figure, axes = plt.subplots(len(rows), 8, figsize=(16, 2.1 * len(rows)), layout="constrained")
for row, (name, images) in zip(axes, rows.items(), strict=True):
    row[0].set_title(name, loc="left")
    for axis, image in zip(row, np.asarray(images), strict=True):
        axis.imshow(image)
        axis.axis("off")
figure.savefig(args.output, dpi=60)
print(f"wrote {args.output}")
