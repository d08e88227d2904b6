"""Ray actors decode and augment on other machines; this process only puts their batches on its devices.

python examples/ray_workers.py
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
        file_root=str(IMAGES), name="reader", random_shuffle=True, num_shards=num_shards, shard_id=shard_id
    )
    images = fn.random_resized_crop(fn.decoders.image(jpegs), size=(96, 96))
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def epoch(**arguments):
    with iterator_fn(batch_size=7, num_threads=1, seed=1, enable_checkpointing=True, **arguments) as iterator:
        first = next(iterator)["images"]
        saved = iterator.checkpoints()
        return [first, *(batch["images"] for batch in iterator)], saved


if __name__ == "__main__":
    # On a cluster: ray.init()
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    here, _ = epoch()
    batches, saved = epoch(workers=Workers(num_workers=2, num_cpus=1))
    np.testing.assert_array_equal(np.stack(batches), np.stack(here))

    # The same iterator goes on after its first batch, with another number of workers.
    with iterator_fn(
        batch_size=7, num_threads=1, checkpoints=saved, enable_checkpointing=True, workers=Workers(num_workers=1)
    ) as iterator:
        np.testing.assert_array_equal(next(iterator)["images"], here[1])
    print(f"{len(batches)} batches of {batches[0].shape}, the same as without workers")
    ray.shutdown()
