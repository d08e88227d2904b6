"""Shows a train step of Flax NNX that augments its images on the device, in one program.

    python examples/nnx_augment.py

It needs Flax and Optax: pip install flax optax

The functions of jaxdali are called inside `nnx.jit`, so XLA compiles them with the gradient.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxdali.dynamic as jd

PHOTOS = sorted((pathlib.Path(__file__).parent / "images").rglob("*.jpg"))
CLASSES = sorted({photo.parent.name for photo in PHOTOS})


class Model(nnx.Module):
    """Two convolutions, the mean over the image, and a linear layer."""

    def __init__(self, rngs):
        self.first = nnx.Conv(3, 16, (3, 3), strides=2, rngs=rngs)
        self.second = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
        self.last = nnx.Linear(32, len(CLASSES), rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.second(nnx.relu(self.first(x))))
        return self.last(x.mean(axis=(1, 2)))


def augment(images, key):
    """Takes an array of images of one size. Its random numbers are those of calls outside `jit`."""
    crop, mirror, turn = jax.random.split(key, 3)
    images = jd.random_resized_crop(images, size=(48, 48), random_area=(0.4, 1.0), key=crop)
    angle = jax.random.uniform(turn, (len(images),), minval=-15, maxval=15)
    images = jd.rotate(images, angle=angle, keep_size=True, fill_value=127)
    mirrored = jd.random.coin_flip(key=mirror, batch_size=len(images))
    return jd.crop_mirror_normalize(
        images, mirror=mirrored, mean=[127.5] * 3, std=[64.0] * 3, output_layout="HWC"
    ).jax()


@nnx.jit
def train_step(model, optimizer, images, labels, key):
    def loss(model, images):
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    value, gradients = nnx.value_and_grad(loss)(model, augment(images, key))
    optimizer.update(model, gradients)
    return value


if __name__ == "__main__":
    images = jd.resize(jd.decoders.image([p.read_bytes() for p in PHOTOS]), size=(64, 64)).jax()
    labels = jnp.array([CLASSES.index(p.parent.name) for p in PHOTOS])
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    keys = jax.random.split(jax.random.key(0), 60)
    losses = [float(train_step(model, optimizer, images, labels, key)) for key in keys]
    print(f"loss {np.mean(losses[:5]):.3f} at first, {np.mean(losses[-5:]):.3f} at the end")
