"""Shows a data set of Hugging Face whose images are decoded and augmented when rows are requested.

    python examples/huggingface_transform.py

It needs datasets: pip install datasets
"""

import pathlib
from typing import Any

import datasets  # pyright: ignore[reportMissingImports]
import jax
import numpy as np

import jaxdali.dynamic as jd

PHOTOS = sorted((pathlib.Path(__file__).parent / "images").rglob("*.jpg"))
CLASSES = sorted({photo.parent.name for photo in PHOTOS})


def make_dataset():
    """A column of images and one of labels, in the form that data sets of the Hub use."""
    columns = {
        "image": [str(photo) for photo in PHOTOS],
        "label": [CLASSES.index(photo.parent.name) for photo in PHOTOS],
    }
    types = {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(types))


def make_transform(rng):
    """The function that `datasets` calls with the rows that are requested."""

    @jd.jit
    def augmented(jpegs, key):
        images = jd.random_resized_crop(jd.decoders.image(jpegs), size=(96, 96), key=key)
        mirror = jd.random.coin_flip(key=jd.random.fold_in(key, 1), batch_size=len(images))
        return jd.flip(images, horizontal=mirror)

    def transform(rows):
        # A row has the file's bytes, or the path of a file that is not in the table.
        jpegs = [x["bytes"] or pathlib.Path(x["path"]).read_bytes() for x in rows["image"]]
        images = augmented(jpegs, rng.key())
        return {"pixels": images.numpy(), "label": np.asarray(rows["label"])}

    return transform


if __name__ == "__main__":
    # decode=False: the column gives files, not Pillow's images. Each file is decoded once, with the
    # rest of its batch.
    files = make_dataset().cast_column("image", datasets.Image(decode=False))
    data: Any = files.with_transform(make_transform(jd.random.RNG(seed=0)))
    for batch in data.shuffle(seed=1).iter(batch_size=8):
        on_device = jax.device_put(np.stack(batch["pixels"]))
        print(on_device.shape, on_device.dtype, [CLASSES[i] for i in batch["label"][:3]])
    print("one row:", data[0]["pixels"].shape, data[0]["label"])
