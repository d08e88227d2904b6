"""Grain chooses photos; jaxdali reads them, and augments whole batches in Grain's threads.

    python examples/grain_map.py

It needs Grain: pip install grain

The program saves Grain's state after three batches, and resumes with equal images and labels.
"""

import pathlib

import grain  # pyright: ignore[reportMissingImports]
import numpy as np

import jaxdali.dynamic as jd
from jaxdali import fn
from jaxdali.plugin.grain import BatchTransform, SampleKey, source

PHOTOS = pathlib.Path(__file__).parent / "images"


@jd.jit
def augment(image, key):
    """One native program for a batch. It decodes only a window of each photo, into its row."""
    crop_key, flip_key = jd.random.split(key)
    images = jd.resize(jd.decoders.image_random_crop(image, key=crop_key), size=(96, 96))
    mirror = jd.random.coin_flip(key=flip_key)
    return {
        "image": jd.crop_mirror_normalize(
            images, mirror=mirror, mean=[127.5] * 3, std=[127.5] * 3, output_layout="HWC"
        )
    }


def make_iterator():
    """Each sample has a key of its own, so that a resumed run makes the same images."""
    files, labels = fn.readers.file(file_root=str(PHOTOS))
    photos = source({"image": files, "label": labels})
    samples = grain.MapDataset.source(photos).seed(3).shuffle().repeat(2).random_map(SampleKey())
    batches = samples.batch(4, drop_remainder=True, batch_fn=BatchTransform(augment))
    # The buffer counts batches here.
    return iter(batches.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))


if __name__ == "__main__":
    iterator = make_iterator()
    first = [next(iterator) for _ in range(3)]
    state = iterator.get_state()
    rest = list(iterator)
    resumed = make_iterator()
    resumed.set_state(state)
    for batch, expected in zip(resumed, rest, strict=True):
        np.testing.assert_array_equal(batch["image"], expected["image"])
        np.testing.assert_array_equal(batch["label"], expected["label"])
    print(
        f"{len(first) + len(rest)} batches of shape {first[0]['image'].shape}, "
        f"the last {len(rest)} again after a checkpoint"
    )
