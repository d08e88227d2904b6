"""Shows MixUp and CutMix inside a pipeline, as functions of JAX.

    python examples/mixup.py [IMAGE_DIR] [--output mixup.png]

It needs matplotlib: pip install matplotlib

IMAGE_DIR holds one folder of images per class; without it, the photos beside this script are used.
Each function sees its shard's batch and mixes every sample with the one before it; they are
compiled into the pipeline's program. Random numbers come from the pipeline (`fn.random`), so a
checkpoint brings them back.
"""

import argparse
import pathlib

import jax.numpy as jnp
import numpy as np

import jaxdali
from jaxdali import fn, types
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

IMAGES = pathlib.Path(__file__).parent / "images"


@jax_function(num_outputs=2)
def mixup(images, labels, weight):
    """Adds ``weight`` of each sample to ``1 - weight`` of the one before it. Zhang et al., 2018.

    Args:
      images: ``f32[B, H, W, 3]``
      labels: ``f32[B, classes]``
      weight: ``f32[B]``, between 0 and 1
    """
    of_image, of_label = weight[:, None, None, None], weight[:, None]
    images = of_image * images + (1 - of_image) * jnp.roll(images, 1, axis=0)
    return images, of_label * labels + (1 - of_label) * jnp.roll(labels, 1, axis=0)


@jax_function(num_outputs=2)
def cutmix(images, labels, weight, center):
    """Replaces a box of each sample by that part of the one before it. Yun et al., 2019.

    Args:
      images: ``f32[B, H, W, 3]``
      labels: ``f32[B, classes]``
      weight: ``f32[B]``; the box has ``1 - weight`` of the area
      center: ``f32[B, 2]``, the centre of the box, as fractions (y, x)
    """
    height, width = images.shape[1:3]
    half = jnp.sqrt(1 - weight) / 2
    rows = jnp.abs((jnp.arange(height) + 0.5)[None] / height - center[:, :1]) < half[:, None]
    columns = jnp.abs((jnp.arange(width) + 0.5)[None] / width - center[:, 1:]) < half[:, None]
    box = rows[:, :, None] & columns[:, None, :]
    images = jnp.where(box[..., None], jnp.roll(images, 1, axis=0), images)
    share = 1 - box.mean(axis=(1, 2), dtype=jnp.float32)[:, None]  # the box may reach outside
    return images, share * labels + (1 - share) * jnp.roll(labels, 1, axis=0)


@data_iterator(
    output_map=["plain", "mixup", "cutmix", "mixup_labels", "cutmix_labels"], reader_name="reader"
)
def mixed(folder, num_classes):
    """Returns photos: unchanged, and mixed in two ways."""
    jpegs, labels = fn.readers.file(file_root=folder, name="reader", random_shuffle=True)
    images = fn.resize(fn.decoders.image(jpegs), size=(128, 128), dtype=types.FLOAT) / 255.0
    labels = fn.one_hot(labels, num_classes=num_classes)
    weight = fn.random.uniform(range=(0.0, 1.0))
    center = fn.random.uniform(range=(0.0, 1.0), shape=2)
    mixup_images, mixup_labels = mixup(images, labels, weight)
    cutmix_images, cutmix_labels = cutmix(images, labels, weight, center)
    return images, mixup_images, cutmix_images, mixup_labels, cutmix_labels


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("image_dir", nargs="?", type=pathlib.Path, default=IMAGES)
    parser.add_argument("--output", default="mixup.png", help="the picture that is written")
    args = parser.parse_args()
    num_classes = sum(d.is_dir() for d in args.image_dir.iterdir())
    with mixed(str(args.image_dir), num_classes, batch_size=6, seed=3) as iterator:
        batch = next(iterator)
        assert "callback" not in iterator.lower().as_text()  # everything is one program
    for name in ("mixup_labels", "cutmix_labels"):
        sums = np.asarray(batch[name]).sum(axis=1)
        print(f"{name}: the weights of each sample add up to", np.round(sums, 3).tolist())
    jaxdali.show({name: batch[name] for name in ("plain", "mixup", "cutmix")}).save(args.output)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
