"""Trains a small 3-D CNN to tell in which direction a picture moves, and reads a robot's cameras.

    python examples/video.py [--videos DIR] [--epochs 12] [--output video.png]

It needs PyAV, Flax, Optax and matplotlib: pip install av flax optax matplotlib

DIR holds a folder of videos for each class. Without it the script makes videos of its own, of
photos that move left, right, up or down. Clips are cropped at random: each clip in one place, so
that what moves in it is the same in all its frames.
"""

import argparse
import pathlib
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from jaxdali import fn, types
from jaxdali.plugin.jax import data_iterator
from jaxdali.plugin.jax.fn import jax_function

# The pixels, (x, y), that the window moves over the photo from frame to frame.
CLASSES = {"down": (0, -3), "left": (3, 0), "right": (-3, 0), "up": (0, 3)}
LENGTH, SIZE, RATE = 8, 32, 10


def write(path: pathlib.Path, frames: np.ndarray) -> str:
    """Writes an H.264 video of RGB frames ``[F, H, W, 3]``."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=RATE)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = 12
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return str(path)


def moving(
    photo: np.ndarray, step: tuple[int, int], frames: int, rng: np.random.Generator
) -> np.ndarray:
    """A window of 64x64 pixels that moves over a photo."""
    height, width, _ = photo.shape
    # The window stays inside of the photo: its first place leaves room for all steps.
    x, y = (
        int(rng.integers(max(0, -s * frames), extent - 64 - max(0, s * frames)))
        for s, extent in zip(step, (width, height))
    )
    corners = [(x + k * step[0], y + k * step[1]) for k in range(frames)]
    return np.stack([photo[top : top + 64, left : left + 64] for left, top in corners])


def make_videos(folder: pathlib.Path, per_class: int = 6, frames: int = 24) -> pathlib.Path:
    """A folder of videos for each direction; returns the folder."""
    rng = np.random.default_rng(0)
    photos = sorted((pathlib.Path(__file__).parent / "images").glob("*/*.jpg"))
    for name, step in CLASSES.items():
        for k in range(per_class):
            with Image.open(photos[k % len(photos)]) as image:
                photo = np.asarray(image.convert("RGB").resize((260, 200)))
            write(folder / name / f"{k}.mp4", moving(photo, step, frames, rng))
    return folder


@data_iterator(output_map=["clips", "labels"], reader_name="clips")
def clips(folder, train=True):
    """Returns clips ``[N, LENGTH, SIZE, SIZE, 3]`` and labels ``[N]``."""
    read: Any = fn.readers.video(
        file_root=folder,
        sequence_length=LENGTH,
        step=LENGTH // 2,
        random_shuffle=train,
        initial_fill=4096,
        name="clips",
    )
    videos, labels = read
    # A number of each sample, not of each frame: a clip is cropped in one place.
    x, y = (fn.random.uniform(range=(0.0, 1.0)) if train else 0.5 for _ in range(2))
    videos = fn.resize(videos, size=(44, 44))
    videos = fn.crop_mirror_normalize(
        videos,
        crop=(SIZE, SIZE),
        crop_pos_x=x,
        crop_pos_y=y,
        mean=[127.5] * 3,
        std=[63.0] * 3,
        output_layout="FHWC",
        dtype=types.FLOAT,
    )
    return videos, labels[0]


def make_network(classes: int, seed: int = 0):
    """A network of Flax NNX for clips."""
    from flax import nnx

    class Network(nnx.Module):
        """Three convolutions over time and space, the mean, and a linear layer."""

        def __init__(self, rngs: nnx.Rngs):
            layers = ((3, 16, (1, 2, 2)), (16, 32, (2, 2, 2)), (32, 64, (2, 2, 2)))
            self.convs = nnx.List(
                [nnx.Conv(i, o, (3, 3, 3), strides=s, rngs=rngs) for i, o, s in layers]
            )
            self.head = nnx.Linear(64, classes, rngs=rngs)

        def __call__(self, x):
            """``f32[N, F, H, W, 3]`` -> logits ``f32[N, classes]``."""
            for conv in self.convs:
                x = nnx.relu(conv(x))
            return self.head(x.mean(axis=(1, 2, 3)))

    return Network(nnx.Rngs(seed))


def train(folder: pathlib.Path, epochs: int = 12, batch_size: int = 12) -> list[float]:
    """Trains on the videos of a folder; returns the losses of all steps."""
    import optax
    from flax import nnx

    network = make_network(len([d for d in folder.iterdir() if d.is_dir()]))
    optimizer = nnx.Optimizer(network, optax.adam(3e-3), wrt=nnx.Param)

    @nnx.jit
    def step(network, optimizer, clips, labels):
        def loss_of(network):
            return optax.softmax_cross_entropy_with_integer_labels(network(clips), labels).mean()

        loss, gradients = nnx.value_and_grad(loss_of)(network)
        optimizer.update(network, gradients)
        return loss

    iterator, losses = clips(str(folder), batch_size=batch_size, seed=1), []
    for _ in range(epochs):
        for batch in iterator:
            losses.append(step(network, optimizer, batch["clips"], batch["labels"]))
    return [float(loss) for loss in losses]


# --- a robot: several cameras, and the state at the same step -------------------------------------


@data_iterator(output_map=["front", "wrist", "state"], reader_name="front")
def robot(front, wrist, states):
    """Returns clips of two cameras, and the states ``[N, LENGTH, numbers]`` of the same steps.

    Args:
      front: the videos of the episodes, of one camera
      wrist: those of the other
      states: ``f32[episodes, steps, numbers]``
    """
    options: dict[str, Any] = {
        "labels": list(range(len(front))),  # the numbers of the episodes
        "sequence_length": LENGTH,
        "step": 1,
        "shuffle": "global",
        "seed": 5,
        "enable_frame_num": "sequence",
    }
    table = jnp.asarray(states)

    @jax_function
    @jax.vmap
    def states_of(episode, frames):
        return table[episode[0], frames]

    # Readers with one seed give their lists in one order.
    front_reader: Any = fn.readers.video(filenames=front, name="front", **options)
    wrist_reader: Any = fn.readers.video(filenames=wrist, name="wrist", **options)
    front_clips, episode, frames = front_reader
    wrist_clips, _, _ = wrist_reader
    return front_clips, wrist_clips, states_of(episode, frames)


def make_episodes(
    folder: pathlib.Path, episodes: int = 2, steps: int = 20
) -> tuple[list[str], list[str], np.ndarray]:
    """Writes videos of two cameras. The state at a step is how bright its two frames are."""
    files, states = ([], []), np.zeros((episodes, steps, 2), np.float32)
    for e in range(episodes):
        for c, camera in enumerate(("front", "wrist")):
            brightness = 40 + 8 * np.arange(steps) + 20 * c
            states[e, :, c] = brightness
            frames = np.ones((steps, 32, 48, 3), np.uint8) * brightness[:, None, None, None]
            files[c].append(write(folder / f"{camera}_{e}.mp4", frames.astype(np.uint8)))
    return *files, states


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=pathlib.Path, help="a folder of videos for each class")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--output", default="video.png", help="the picture")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.videos or make_videos(pathlib.Path(scratch) / "videos")
        batch = next(clips(str(folder), batch_size=4, seed=1))
        print({name: x.shape for name, x in batch.items()})
        with jax.numpy_dtype_promotion("standard"):
            losses = train(folder, args.epochs)
        print(f"loss {np.mean(losses[:4]):.3f} -> {np.mean(losses[-4:]):.3f}")
        steps = next(robot(*make_episodes(pathlib.Path(scratch)), batch_size=4))
        brightness = [
            np.asarray(steps[camera]).mean(axis=(2, 3, 4)) for camera in ("front", "wrist")
        ]
        difference = np.abs(np.stack(brightness, axis=-1) - np.asarray(steps["state"])).max()
        print(f"cameras and state differ by at most {difference:.1f} of 255")

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = sorted(d.name for d in args.videos.iterdir()) if args.videos else sorted(CLASSES)
    figure, axes = plt.subplots(4, LENGTH, figsize=(1.4 * LENGTH, 6), layout="constrained")
    for row, clip, label in zip(axes, np.asarray(batch["clips"]), np.asarray(batch["labels"])):
        for axis, frame in zip(row, clip):
            axis.imshow(np.clip(frame * 63 + 127.5, 0, 255).astype(np.uint8))
            axis.set(xticks=[], yticks=[])
        row[0].set_title(names[int(label)])
    figure.savefig(args.output, dpi=80)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
