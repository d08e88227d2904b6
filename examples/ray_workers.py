"""Ray's actors decode and augment on other machines, and this process puts batches on its devices.

    python examples/ray_workers.py

It needs Ray: pip install ray

The actors of this example run on this machine. Batches, order and checkpoints are the same without
actors, and with any number of them.
"""

import logging
import pathlib

import numpy as np
import ray  # pyright: ignore[reportMissingImports]

from jaxdali import fn
from jaxdali.plugin.jax import data_iterator
from jaxdali.ray import Workers

IMAGES = pathlib.Path(__file__).parent.resolve() / "images"


@data_iterator(output_map=["images", "labels"], reader_name="reader", auto_reset=True)
def iterator_fn(num_shards=1, shard_id=0):
    jpegs, labels = fn.readers.file(
        file_root=str(IMAGES),
        name="reader",
        random_shuffle=True,
        num_shards=num_shards,
        shard_id=shard_id,
    )
    images = fn.random_resized_crop(fn.decoders.image(jpegs), size=(96, 96))
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def make_iterator(**options):
    return iterator_fn(batch_size=7, num_threads=1, seed=1, enable_checkpointing=True, **options)


def epoch(**options):
    """The images of an epoch, and a checkpoint after its first batch."""
    with make_iterator(**options) as iterator:
        first = next(iterator)["images"]
        checkpoints = iterator.checkpoints()
        return [first, *(batch["images"] for batch in iterator)], checkpoints


if __name__ == "__main__":
    # On a cluster: ray.init()
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    expected, _ = epoch()
    batches, checkpoints = epoch(workers=Workers(num_workers=2, num_cpus=1))
    np.testing.assert_array_equal(np.stack(batches), np.stack(expected))

    # The same iterator continues after its first batch, with another number of workers.
    with make_iterator(checkpoints=checkpoints, workers=Workers(num_workers=1)) as iterator:
        np.testing.assert_array_equal(next(iterator)["images"], expected[1])
    print(f"{len(batches)} batches of {batches[0].shape}, the same as without workers")
    ray.shutdown()
