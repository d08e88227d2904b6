"""Trains a small language model of Flax NNX on packed token sequences, over all devices.

    python examples/language_model.py [FILES] [--epochs 6] [--length 128] [--batch-size 16]

It needs Flax and Optax: pip install flax optax

FILES are ArrayRecord files of bytes, a document in each record, e.g.
``"data/train-*.array_record"``. Without them, the script writes two of short texts of its own.
`fn.readers.tokens` packs several documents into each sequence: attention does not look from one to
another, and no loss is taken where one ends and the next begins.
"""

import argparse
import dataclasses
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from array_record_writer import write_array_record
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxdali import fn, types
from jaxdali.plugin.jax import data_iterator

VOCABULARY = 256  # bytes


def make_dataset(folder: pathlib.Path, documents: int = 600, seed: int = 0) -> str:
    """Writes short texts into two files; returns the pattern of their paths."""
    rng = np.random.default_rng(seed)
    animals = ["cat", "dog", "horse", "mouse", "owl"]
    verbs = ["sees", "hears", "likes", "follows"]
    adjectives = ["red", "small", "old", "quick"]

    def animal() -> str:
        return f"{rng.choice(adjectives)} {rng.choice(animals)}"

    def text() -> bytes:
        sentences = rng.integers(1, 5)
        return " ".join(
            f"The {animal()} {rng.choice(verbs)} the {animal()}." for _ in range(sentences)
        ).encode()

    texts = [text() for _ in range(documents)]
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(2):
        write_array_record(folder / f"texts-{i}.array_record", texts[i::2])
    return f"{folder}/texts-*.array_record"


def make_iterator(path: str, length: int, sharding: NamedSharding):
    """A function that makes iterators over packed sequences, in a new order in each epoch."""
    names = ["tokens", "tokens_segment_ids", "tokens_positions"]

    @data_iterator(output_map=names, reader_name="reader", sharding=sharding)
    def iterator(num_shards=1, shard_id=0):
        return fn.readers.tokens(
            path=path,
            length=length,
            dtype=types.UINT8,
            packing_seed=1,  # a sequence may hold documents of all files
            shuffle="global",
            pad_last_batch=True,
            num_shards=num_shards,
            shard_id=shard_id,
            name="reader",
        )

    return iterator


class Block(nnx.Module):
    """Attention within segments, and a layer for each token."""

    def __init__(self, width: int, heads: int, rngs: nnx.Rngs):
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.wide = nnx.Linear(width, 4 * width, rngs=rngs)
        self.narrow = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attention(self.norms[0](x), mask=mask)
        return x + self.narrow(nnx.gelu(self.wide(self.norms[1](x))))


class Transformer(nnx.Module):
    """A decoder with few layers."""

    def __init__(
        self, length: int, rngs: nnx.Rngs, width: int = 64, heads: int = 4, layers: int = 2
    ):
        self.tokens = nnx.Embed(VOCABULARY, width, rngs=rngs)
        self.positions = nnx.Embed(length, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(layers)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)

    def __call__(self, tokens, segments, positions):
        """``i32[N, length]`` each -> logits of the next tokens, ``f32[N, length, VOCABULARY]``."""
        n = tokens.shape[1]
        same_document = segments[:, :, None] == segments[:, None, :]
        mask = (same_document & jnp.tril(jnp.ones((n, n), bool)))[:, None]
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x, mask)
        return self.tokens.attend(self.norm(x))


def loss_of(model: Transformer, tokens, segments, positions):
    """The mean over all tokens that follow another one of their document."""
    logits = model(tokens, segments, positions)[:, :-1]
    counted = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    return jnp.where(counted, losses, 0).sum() / counted.sum()


@dataclasses.dataclass
class Result:
    """The result of a training run."""

    losses: list[float]  # of each step
    filled: float  # the fraction of all positions that hold tokens
    model: Transformer


def train(
    path: str, epochs: int = 6, length: int = 128, batch_size: int = 16, seed: int = 0
) -> Result:
    """Trains on the files, and prints the loss of each epoch."""
    mesh = Mesh(jax.devices(), ("batch",))
    sharded = NamedSharding(mesh, PartitionSpec("batch"))
    replicated = NamedSharding(mesh, PartitionSpec())
    tx = optax.adam(3e-3)
    model = Transformer(length, nnx.Rngs(seed))
    graph, params = nnx.split(model, nnx.Param)
    params = jax.device_put(params, replicated)
    state = jax.jit(tx.init, out_shardings=replicated)(params)

    def train_step(params, state, tokens, segments, positions):
        def loss_of_params(params):
            return loss_of(nnx.merge(graph, params), tokens, segments, positions)

        loss, gradients = jax.value_and_grad(loss_of_params)(params)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss, (segments > 0).mean()

    train_step = jax.jit(
        train_step,
        in_shardings=(replicated, replicated, *[sharded] * 3),
        out_shardings=replicated,
        donate_argnums=(0, 1),
    )
    iterator = make_iterator(path, length, sharded)(batch_size=batch_size, seed=seed)
    losses, filled = [], []
    for epoch in range(epochs):
        first = len(losses)
        for batch in iterator:
            params, state, loss, part = train_step(
                params,
                state,
                batch["tokens"],
                batch["tokens_segment_ids"],
                batch["tokens_positions"],
            )
            losses.append(loss)
            filled.append(part)
        print(f"epoch {epoch + 1}: loss {np.mean(jax.device_get(losses[first:])):.3f}")
    losses, filled = jax.device_get((losses, filled))
    return Result([float(x) for x in losses], float(np.mean(filled)), nnx.merge(graph, params))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="?")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    # Without a GPU, JAX shows the CPU as 8 devices, so that there is something to shard over.
    jax.config.update("jax_num_cpu_devices", 8)
    with tempfile.TemporaryDirectory() as scratch:
        path = args.files or make_dataset(pathlib.Path(scratch))
        result = train(path, args.epochs, args.length, args.batch_size, args.seed)
    first, last = result.losses[0], result.losses[-1]
    print(f"{result.filled:.1%} of all places hold tokens; loss {first:.3f} -> {last:.3f}")


if __name__ == "__main__":
    main()
