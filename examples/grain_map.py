"""Grain chooses and reads files, and jaxdali decodes and augments whole batches in Grain's threads.

    python examples/grain_map.py

It needs Grain: pip install grain

The program saves Grain's checkpoint after three batches, and resumes with equal images and labels.
"""

import pathlib

import grain  # pyright: ignore[reportMissingImports]
import jax
import numpy as np

import jaxdali.dynamic as jd

PHOTOS = sorted((pathlib.Path(__file__).parent / "images").rglob("*.jpg"))
CLASSES = sorted({photo.parent.name for photo in PHOTOS})
KEY = jax.random.key(0)


@jd.jit
def augmented(jpegs, key):
    """One native program. It decodes only a window of each photo, into its row of the batch."""
    images = jd.resize(jd.decoders.image_random_crop(jpegs, key=key), size=(96, 96))
    mirror = jd.random.coin_flip(key=jd.random.fold_in(key, 1), batch_size=len(images))
    return jd.crop_mirror_normalize(
        images, mirror=mirror, mean=[127.5] * 3, std=[127.5] * 3, output_layout="HWC"
    )


def read(photo):
    return photo.read_bytes(), CLASSES.index(photo.parent.name)


def augment(number, batch):
    """The key depends only on the batch's number, so that a resumed run makes the same images."""
    jpegs, labels = zip(*batch, strict=True)
    images = augmented(list(jpegs), jax.random.fold_in(KEY, number))
    return {"images": images.jax(), "labels": np.array(labels)}


def make_iterator():
    photos = grain.MapDataset.source(PHOTOS).shuffle(seed=3).repeat(2)
    batches = photos.map(read).batch(4, drop_remainder=True, batch_fn=list).map_with_index(augment)
    return iter(batches.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=8)))


if __name__ == "__main__":
    iterator = make_iterator()
    first = [next(iterator) for _ in range(3)]
    state = iterator.get_state()
    rest = list(iterator)
    resumed = make_iterator()
    resumed.set_state(state)
    for batch, expected in zip(resumed, rest, strict=True):
        np.testing.assert_array_equal(batch["images"], expected["images"])
        np.testing.assert_array_equal(batch["labels"], expected["labels"])
    print(
        f"{len(first) + len(rest)} batches of shape {first[0]['images'].shape}, "
        f"the last {len(rest)} again after a checkpoint"
    )
