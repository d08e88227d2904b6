"""Ray Data reads files and divides them into blocks, and jaxdali decodes and resizes their batches.

    python examples/ray_map_batches.py

It needs Ray Data: pip install "ray[data]"

Ray's workers call jaxdali once for each batch. The images depend neither on the size of the batches
nor on the worker.
"""

import logging
import pathlib

import numpy as np
import ray  # pyright: ignore[reportMissingImports]

import jaxdali.dynamic as jd

IMAGES = pathlib.Path(__file__).parent.resolve() / "images"


class Augment:
    """Decodes and augments batches. Ray makes one in each worker process.

    A key for each file makes results independent of how Ray divides the blocks.
    """

    def __init__(self, seed):
        import jax

        jd.set_num_threads(1)  # the number for each worker process
        self._key = jax.random.key(seed)

        @jd.jit
        def augmented(jpegs, keys):
            images = jd.random_resized_crop(jd.decoders.image(jpegs), size=(96, 96), key=keys)
            return jd.flip(images, horizontal=jd.random.coin_flip(key=jd.random.fold_in(keys, 1)))

        self._augmented = augmented

    def __call__(self, batch):
        import jax

        numbers = jax.numpy.asarray(batch["number"])
        keys = jax.vmap(jax.random.fold_in, (None, 0))(self._key, numbers)
        images = self._augmented(list(batch["jpeg"]), keys)
        return {"number": batch["number"], "images": images.numpy()}


def read(row):
    return {"number": row["number"], "jpeg": pathlib.Path(row["path"]).read_bytes()}


def make_dataset(batch_size=8):
    photos = sorted(IMAGES.rglob("*.jpg"))
    rows = [{"number": i, "path": str(path)} for i, path in enumerate(photos)]
    return (
        ray.data.from_items(rows)
        .map(read)
        .map_batches(
            Augment,
            fn_constructor_args=(0,),
            batch_size=batch_size,
            compute=ray.data.ActorPoolStrategy(size=1),
        )
    )


if __name__ == "__main__":
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    means = {}
    for batch in make_dataset().iter_batches(batch_size=8):
        print(batch["images"].shape, batch["images"].dtype)
        for number, image in zip(batch["number"], batch["images"], strict=True):
            means[int(number)] = np.mean(image)
    for row in make_dataset(batch_size=5).iter_rows():
        assert means[int(row["number"])] == np.mean(row["images"])
    print(f"{len(means)} images, the same in batches of 8 and of 5")
    ray.shutdown()
