"""Trains a small CNN of PyTorch from a folder of JPEGs that a pipeline reads, decodes and augments.

    python examples/torch_train.py [IMAGE_DIR] [--epochs 8] [--batch-size 32]

It needs PyTorch: pip install torch

IMAGE_DIR holds one folder of images per class. Without it, the script makes such a folder in a
temporary directory: random crops of the photos beside it, with their classes.

The tensors are the memory that the pipeline wrote: nothing is copied on the way into the training
step. The last batch of the held-out part is shorter (LastBatchPolicy.PARTIAL), so that each of its
images counts once.
"""

import argparse
import dataclasses
import itertools
import pathlib
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn

from jaxdali import fn, pipeline_def, types
from jaxdali.plugin.base_iterator import LastBatchPolicy
from jaxdali.plugin.pytorch import DALIClassificationIterator

SIZE = 48  # the images that the network sees


def make_dataset(folder: pathlib.Path, per_photo: int = 20, seed: int = 0) -> pathlib.Path:
    """Writes random crops of the photos into `folder`, with the same classes; returns it."""
    rng = np.random.default_rng(seed)
    for photo in sorted((pathlib.Path(__file__).parent / "images").glob("*/*.jpg")):
        with Image.open(photo) as opened:
            image = opened.convert("RGB")
        target = folder / photo.parent.name
        target.mkdir(parents=True, exist_ok=True)
        for i in range(per_photo):
            width, height = (round(float(rng.uniform(0.35, 0.6)) * n) for n in image.size)
            x = int(rng.integers(0, image.width - width + 1))
            y = int(rng.integers(0, image.height - height + 1))
            crop = image.crop((x, y, x + width, y + height))
            crop.save(target / f"{photo.stem}_{i:03d}.jpg", quality=85)
    return folder


@dataclasses.dataclass(frozen=True)
class Data:
    """The files of a folder and their labels, in a training and a held-out part."""

    classes: list[str]
    train_files: list[str]
    train_labels: list[int]
    held_out_files: list[str]
    held_out_labels: list[int]


def split(folder: pathlib.Path) -> Data:
    """Lists a folder of class folders. Every fifth file is held out."""
    classes = sorted(d.name for d in folder.iterdir() if d.is_dir())
    data = Data(classes, [], [], [], [])
    paths = sorted(path for name in classes for path in (folder / name).glob("*.jp*g"))
    if len(classes) < 2 or len(paths) < 10:
        raise SystemExit(
            f"{folder}: need at least two class folders and ten JPEGs, "
            f"found {len(classes)} and {len(paths)}"
        )
    for i, path in enumerate(paths):
        label = classes.index(path.parent.name)
        if i % 5 == 0:
            data.held_out_files.append(str(path))
            data.held_out_labels.append(label)
        else:
            data.train_files.append(str(path))
            data.train_labels.append(label)
    return data


@pipeline_def(num_threads=2)
def training(files, labels):
    jpegs, labels = fn.readers.file(
        files=files, labels=labels, random_shuffle=True, pad_last_batch=True, name="reader"
    )
    images = fn.decoders.image(jpegs)
    images = fn.rotate(images, angle=fn.random.uniform(range=(-15.0, 15.0)), fill_value=0)
    # Resizing a window of 80 % of the image, at a random place, is a random crop.
    corner = fn.random.uniform(range=(0.0, 0.2), shape=2)
    images = fn.resize(
        images, size=(SIZE, SIZE), roi_start=corner, roi_end=corner + 0.8, roi_relative=True
    )
    return images, fn.cast(labels, dtype=types.INT64)  # the type that cross_entropy requires


@pipeline_def(num_threads=2)
def evaluation(files, labels):
    jpegs, labels = fn.readers.file(files=files, labels=labels, pad_last_batch=True, name="reader")
    return fn.resize(fn.decoders.image(jpegs), size=(SIZE, SIZE)), labels


class CNN(nn.Module):
    """Three convolutions, each with stride 2, the mean over the image and a linear layer."""

    def __init__(self, num_classes: int):
        super().__init__()
        widths = (3, 16, 32, 64)
        self.convs = nn.ModuleList(
            [nn.Conv2d(i, o, 3, stride=2, padding=1) for i, o in itertools.pairwise(widths)]
        )
        self.head = nn.Linear(widths[-1], num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """``uint8 [N, H, W, 3]`` -> logits ``float32 [N, classes]``."""
        # A view: convolutions are fastest with channels last.
        x = images.permute(0, 3, 1, 2).float() / 127.5 - 1.0
        for conv in self.convs:
            x = torch.relu(conv(x))
        return self.head(x.mean(dim=(2, 3)))


def train(
    folder: pathlib.Path, epochs: int = 8, batch_size: int = 32, seed: int = 0
) -> tuple[list[float], float, float]:
    """Trains on `folder`.

    Returns:
      the losses, the accuracy on the held-out part, and the accuracy of always choosing one class
    """
    torch.manual_seed(seed)
    data = split(folder)
    model = CNN(len(data.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    losses = []
    batches = DALIClassificationIterator(
        training(data.train_files, data.train_labels, batch_size=batch_size, seed=seed),
        reader_name="reader",
        last_batch_policy=LastBatchPolicy.DROP,
    )
    with batches:
        for epoch in range(epochs):
            for (batch,) in batches:
                loss = nn.functional.cross_entropy(model(batch["data"]), batch["label"][:, 0])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch + 1}/{epochs}: {losses[-1]:.3f}")

    correct, total = 0, 0
    held_out = DALIClassificationIterator(
        evaluation(data.held_out_files, data.held_out_labels, batch_size=batch_size),
        reader_name="reader",
        last_batch_policy=LastBatchPolicy.PARTIAL,
    )
    with torch.no_grad(), held_out:
        for (batch,) in held_out:
            predicted = model(batch["data"]).argmax(dim=1)
            correct += int((predicted == batch["label"][:, 0]).sum())
            total += len(batch["label"])
    assert total == len(data.held_out_files)
    return losses, correct / total, float(np.bincount(data.held_out_labels).max() / total)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("image_dir", nargs="?", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.image_dir or make_dataset(pathlib.Path(scratch))
        losses, accuracy, chance = train(folder, args.epochs, args.batch_size, args.seed)
    tenth = max(1, len(losses) // 10)
    print(f"loss {np.mean(losses[:tenth]):.3f} -> {np.mean(losses[-tenth:]):.3f}")
    print(f"held-out accuracy {accuracy:.1%}, chance {chance:.1%}")


if __name__ == "__main__":
    main()
