"""Trains a small vision-language model on packed images and captions, over all devices.

    python examples/vlm_train.py [--checkpoints DIR] [--steps 120]

It needs Flax, Optax and Orbax: pip install flax optax orbax-checkpoint

The program draws images of many sizes, and packs several of them with their captions into each
sequence. The headers of the files tell how many patches each image gives. A caption sees its own
image, and nothing else of its sequence.

Every 20th step Orbax saves model, optimizer and the position in the data. Start the program again
with the same DIR: it continues after the last checkpoint, with the batches that come next. Without
DIR, it stops halfway and starts again by itself.
"""

import argparse
import dataclasses
import io
import pathlib
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from PIL import Image, ImageDraw

import jaxdali.dynamic as jd
from jaxdali import fn, vlm
from jaxdali.plugin.jax import data_iterator

COLORS = ["red", "green", "blue"]
SHAPES = {"square": ImageDraw.ImageDraw.rectangle, "circle": ImageDraw.ImageDraw.ellipse}
WORDS = ["<begin>", "<end>", "a", "left of", "above", *COLORS, *SHAPES]
LIMITS = {"min_pixels": 2 * 16**2, "max_pixels": 12 * 16**2}
# Qwen's processor, with small images and patches.
PROCESSOR = dataclasses.replace(
    vlm.processors["qwen3-vl"], patch_size=8, temporal_patch_size=1, **LIMITS
)
TOKENS, PATCHES = 48, 144  # the length of a sequence
ADAM = optax.adam(3e-3)


def draw(rng):
    """An item: a file with a row or a column of things, and the tokens of its caption."""
    relation, side = rng.choice(["left of", "above"]), int(rng.integers(24, 64))
    step = np.array([0, side] if relation == "above" else [side, 0])  # from thing to thing
    number = int(rng.integers(1, 4))
    image = Image.new("RGB", (*(step * (number - 1) + side).tolist(),), "white")
    canvas, caption = ImageDraw.Draw(image), ["<begin>"]
    for i in range(number):
        color, shape = rng.choice(COLORS), rng.choice([*SHAPES])
        x, y = (i * step + rng.integers(2, 7, 2)).tolist()
        SHAPES[shape](canvas, [x, y, x + side - 10, y + side - 10], fill=color)
        caption += [*[relation] * (i > 0), "a", color, shape]
    file = io.BytesIO()
    image.save(file, "JPEG")
    tokens = [WORDS.index(word) for word in [*caption, "<end>"]]
    return {"image": file.getvalue(), "tokens": np.array(tokens, np.int32)}


def make_dataset(items=600, seed=0):
    """A data set is any object with a length and items."""
    rng = np.random.default_rng(seed)
    return [draw(rng) for _ in range(items)]


def lengths_of(dataset):
    """The numbers of tokens and of patches of each item, ``int[N, 2]``: no image is decoded."""
    patches = PROCESSOR.num_patches(jd.peek_image_shape([item["image"] for item in dataset]))
    return np.stack([[len(item["tokens"]) for item in dataset], patches], axis=1)


def make_iterator(dataset, sharding, batch_size, seed=0):
    """An iterator over packed sequences, without end."""
    lengths = lengths_of(dataset)
    names = ["tokens", "segments", "positions", "patches", "patch_segments", "patch_positions"]

    @data_iterator(output_map=names, reader_name="captions", sharding=sharding, repeat=True)
    def sequences(num_shards=1, shard_id=0):
        item: Any = fn.readers.source(
            dataset, lengths=lengths, length=(TOKENS, PATCHES), packing="first_fit",
            shuffle="global", pad_last_batch=True, name="captions",
            num_shards=num_shards, shard_id=shard_id,
        )  # fmt: skip
        size = PROCESSOR.size(fn.peek_image_shape(item["image"]))
        options = {"size": size, "length": PATCHES, **PROCESSOR.resize, **PROCESSOR.patches}
        patches = fn.decoders.image_patches(item["image"], **options)
        tokens = [item[f"tokens{part}"] for part in ("", "_segment_ids", "_positions")]
        return *tokens, *patches[:3]  # without the grids

    return sequences(batch_size=batch_size, seed=seed, num_threads=2)


class Block(nnx.Module):
    """Attention, and a layer for each element."""

    def __init__(self, width, rngs):
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.wide = nnx.Linear(width, 4 * width, rngs=rngs)
        self.narrow = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x, mask, images):
        """Elements of `x` see `images` and each other, where the mask has True."""
        y = self.norms[0](x)
        x = x + self.attention(y, jnp.concatenate([images, y], axis=1), mask=mask[:, None])
        return x + self.narrow(nnx.gelu(self.wide(self.norms[1](x))))


def same_segment(queries, keys):
    """Whether a query and a key belong to the same segment, ``bool[N, queries, keys]``."""
    return queries[:, :, None] == keys[:, None, :]


class Model(nnx.Module):
    """A ViT for the images of a sequence, and a decoder for its captions."""

    def __init__(self, rngs, width=64):
        embed = lambda number: nnx.Embed(number, width, rngs=rngs)
        self.patches = nnx.Linear(3 * PROCESSOR.patch_size**2, width, rngs=rngs)
        self.rows, self.columns = embed(PATCHES), embed(PATCHES)
        self.words, self.positions = embed(len(WORDS)), embed(TOKENS)
        self.encoder = nnx.List([Block(width, rngs) for _ in range(2)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.decoder = nnx.List([Block(width, rngs) for _ in range(2)])
        self.logits = nnx.Linear(width, len(WORDS), rngs=rngs)

    def __call__(self, tokens, segments, positions, patches, patch_segments, patch_positions):
        """Logits of the next tokens, ``f32[N, TOKENS, words]``."""
        rows, columns = patch_positions[..., 0], patch_positions[..., 1]
        images = self.patches(patches) + self.rows(rows) + self.columns(columns)
        for block in self.encoder:
            images = block(images, same_segment(patch_segments, patch_segments), images[:, :0])
        images = self.norm(images)
        masks = same_segment(segments, patch_segments), jnp.tril(same_segment(segments, segments))
        x = self.words(tokens) + self.positions(positions)
        for block in self.decoder:
            x = block(x, jnp.concatenate(masks, axis=2), images)
        return self.logits(x)


@nnx.jit
def train_step(model, optimizer, batch):
    """Changes the model and the optimizer; returns the loss."""

    def loss_of(model):
        """The mean over all tokens that follow another one of their caption."""
        logits, tokens, segments = model(**batch)[:, :-1], batch["tokens"], batch["segments"]
        counted = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return jnp.where(counted, losses, 0).sum() / counted.sum()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def train(dataset, checkpoints, steps, batch_size=8, save_every=20):
    """Trains from the last checkpoint, if there is one, up to step `steps`; returns the losses."""
    mesh = Mesh(jax.devices(), ("batch",))
    iterator = make_iterator(dataset, NamedSharding(mesh, PartitionSpec("batch")), batch_size)
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, ADAM, wrt=nnx.Param)
    state = jax.device_put(nnx.state((model, optimizer)), NamedSharding(mesh, PartitionSpec()))
    losses = []
    with ocp.CheckpointManager(checkpoints.absolute()) as manager, iterator:
        start = manager.latest_step() or 0
        if start:
            parts = {"state": ocp.args.StandardRestore(state), "data": ocp.args.JsonRestore()}
            saved = manager.restore(start, args=ocp.args.Composite(**parts))
            state = saved["state"]
            iterator.set_state(saved["data"])
            print(f"continues after step {start}")
        nnx.update((model, optimizer), state)

        for step in range(start + 1, steps + 1):
            losses.append(float(train_step(model, optimizer, next(iterator))))
            if step % save_every == 0:
                print(f"step {step}: loss {losses[-1]:.4f}")
                state = ocp.args.StandardSave(nnx.state((model, optimizer)))
                data = ocp.args.JsonSave(iterator.get_state())  # the position after this batch
                manager.save(step, args=ocp.args.Composite(state=state, data=data))
    return losses


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--checkpoints", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)  # without a GPU or TPU, JAX shows eight CPU devices
    with tempfile.TemporaryDirectory() as scratch:
        dataset = make_dataset()
        if args.checkpoints is None:
            args.checkpoints = pathlib.Path(scratch)
            train(dataset, args.checkpoints, args.steps // 2)
        train(dataset, args.checkpoints, args.steps)


if __name__ == "__main__":
    main()
