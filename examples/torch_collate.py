"""Shows PyTorch's DataLoader with workers that decode and augment whole batches in `collate_fn`.

    python examples/torch_collate.py [--start spawn | fork | forkserver]

It needs PyTorch: pip install torch

"fork" needs a parent that has run neither JAX nor a function of jaxdali, because threads do not
survive in the children. In a worker of any other parent, a call raises an error that says so.
"""

import argparse
import pathlib

import jax
import torch
from torch.utils.data import DataLoader, Dataset

import jaxdali.dynamic as jd

PHOTOS = sorted((pathlib.Path(__file__).parent / "images").rglob("*.jpg"))


class Files(Dataset):
    """The bytes of each file with its number and the epoch. Only the cheap work is done here."""

    epoch = 0  # the loop sets it; workers, which start anew with each epoch, get a copy

    def __len__(self):
        return len(PHOTOS)

    def __getitem__(self, i):
        return self.epoch, i, PHOTOS[i].read_bytes()


files = Files()


@jd.jit
def augmented(jpegs, keys):
    images = jd.random_resized_crop(jd.decoders.image(jpegs), size=(96, 96), key=keys)
    return jd.crop_mirror_normalize(images, mean=[127.5] * 3, std=[127.5] * 3)


def collate(samples):
    """Gives each sample a key of its epoch and number, so that worker and batch change no pixel."""
    jd.set_num_threads(1)  # the number for each worker process
    epochs, numbers, jpegs = zip(*samples, strict=True)
    key = jax.random.fold_in(jax.random.key(0), epochs[0])
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jax.numpy.array(numbers))
    return torch.tensor(numbers), augmented(list(jpegs), keys).torch()


def make_loader(start, workers=2):
    return DataLoader(
        files,
        batch_size=4,
        shuffle=True,
        collate_fn=collate,
        num_workers=workers,
        multiprocessing_context=start if workers else None,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", choices=["spawn", "fork", "forkserver"], default="spawn")
    args = parser.parse_args()
    loader = make_loader(args.start)
    print("The means of images are the same whichever worker made them, and differ between epochs:")
    for epoch in range(2):
        files.epoch = epoch
        means = {}
        for numbers, images in loader:
            for number, image in zip(numbers, images):
                means[int(number)] = round(float(image.mean()), 4)
        print(f"epoch {epoch}, {len(means)} images:", [means[i] for i in range(4)], "...")
