"""Shows augmentations written in JAX inside a pipeline: a colour jitter and MixUp.

    python examples/augment_with_jax.py [IMAGE_DIR] [--output augment_with_jax.png]

It needs matplotlib: pip install matplotlib

IMAGE_DIR holds one folder of images per class; without it, the photos beside this script are used.
The functions are traced into the pipeline's own program, beside the native decode and resize, and
compiled with them: the program's text, of which the script prints a part, holds no callback. Random
numbers come from the pipeline (`fn.random`), so a sample's are the same for any batch size and any
number of devices, and a checkpoint brings them back.
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np

from jaxdali import fn, types
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

mpl.use("Agg")  # draws into a file, so it works without a screen
import matplotlib.pyplot as plt

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("image_dir", nargs="?", default=str(pathlib.Path(__file__).parent / "images"))
parser.add_argument("--output", default="augment_with_jax.png", help="the picture that is written")
args = parser.parse_args()
num_classes = sum(d.is_dir() for d in pathlib.Path(args.image_dir).iterdir())


@jax_function
@jax.vmap
def colour_jitter(image, brightness, contrast, saturation):
    """One image, float32 [H, W, 3] in 0..1; the factors are numbers around 1."""
    image = image * brightness
    image = (image - image.mean()) * contrast + image.mean()
    grey = image @ jnp.array([0.299, 0.587, 0.114])
    return jnp.clip(grey[..., None] + (image - grey[..., None]) * saturation, 0.0, 1.0)


@jax_function(num_outputs=2)
def mixup(images, labels, weight):
    """Mixes each sample of the batch with the one before it.

    Labels come in as class numbers, and come out as weights of the classes.
    """
    one_hot = jax.nn.one_hot(labels[:, 0], num_classes)
    weight = jnp.maximum(weight, 1 - weight)  # the sample itself is the stronger part
    of_image, of_label = weight[:, None, None, None], weight[:, None]
    images = of_image * images + (1 - of_image) * jnp.roll(images, 1, axis=0)
    return images, of_label * one_hot + (1 - of_label) * jnp.roll(one_hot, 1, axis=0)


@data_iterator(output_map=["plain", "jittered", "mixed", "labels"], reader_name="reader")
def augmented():
    """Returns photos: unchanged, with changed colours, and mixed."""
    jpegs, labels = fn.readers.file(file_root=args.image_dir, name="reader", random_shuffle=True)
    images = fn.resize(fn.decoders.image(jpegs), size=(128, 128), dtype=types.FLOAT) / 255.0
    factors = [fn.random.uniform(range=(0.5, 1.5)) for _ in range(3)]
    jittered = colour_jitter(images, *factors)
    mixed, weights = mixup(jittered, labels, fn.random.uniform(range=(0.0, 1.0)))
    return images, jittered, mixed, weights


with augmented(batch_size=6, seed=3) as iterator:
    batch = next(iterator)
    text = iterator.lower().as_text()

for name, x in batch.items():
    print(name, x.shape, x.dtype)
print("labels of the first sample:", np.round(batch["labels"][0], 2))
assert "callback" not in text
steps = ("jaxdali_chain", "stablehlo.dot_general", "stablehlo.minimum")
print("in one program:", ", ".join(step for step in steps if step in text))

figure, axes = plt.subplots(3, 6, figsize=(9, 4.8))
for row, name in zip(axes, ("plain", "jittered", "mixed")):
    for axis, image in zip(row, np.asarray(batch[name])):
        axis.imshow(image)
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
figure.tight_layout(pad=0.3)
figure.savefig(args.output, dpi=80)
print(f"wrote {args.output}")
