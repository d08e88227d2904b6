"""Trains a small 3-D CNN (Flax NNX, optax) to tell in which direction a picture moves, and reads the cameras of a
robot.

    python examples/video.py [--videos DIR] [--output video.png]

DIR holds a folder of videos for each class. Without it the script makes videos of its own, of photos that move left,
right, up or down. Clips are cropped at random: each clip in one place, so that what moves in it is the same in all its
frames. Needs PyAV, Flax and
matplotlib: pip install "jaxdali[video,examples]".
"""

import argparse
import itertools
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

# How far the window moves over the photo, (x, y)
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
        for frame in frames:
            output.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), "rgb24")))
        output.mux(stream.encode(None))
    return str(path)


def moving(photo: np.ndarray, step: tuple[int, int], frames: int, rng: np.random.Generator) -> np.ndarray:
    """A window of 64x64 pixels that moves over a photo."""
    start = [
        int(rng.integers(max(0, -s * frames), n - 64 - max(0, s * frames))) for s, n in zip(step, photo.shape[1::-1])
    ]
    places = [(start[0] + k * step[0], start[1] + k * step[1]) for k in range(frames)]
    return np.stack([photo[y : y + 64, x : x + 64] for x, y in places])


def make_videos(folder: pathlib.Path, per_class: int = 6, frames: int = 24) -> pathlib.Path:
    """A folder of videos for each direction; returns the folder."""
    rng = np.random.default_rng(0)
    photos = sorted((pathlib.Path(__file__).parent / "images").glob("*/*.jpg"))
    for (name, step), k in itertools.product(CLASSES.items(), range(per_class)):
        with Image.open(photos[k % len(photos)]) as image:
            photo = np.asarray(image.convert("RGB").resize((260, 200)))
        write(folder / name / f"{k}.mp4", moving(photo, step, frames, rng))
    return folder


@data_iterator(output_map=["clips", "labels"], reader_name="clips")
def clips(folder, train=True):
    """Clips ``[N, LENGTH, SIZE, SIZE, 3]`` and labels ``[N]``."""
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
    from flax import nnx

    class Network(nnx.Module):
        """Three convolutions over time and space, the mean, and a linear layer."""

        def __init__(self, rngs: nnx.Rngs):
            layers = ((3, 16, (1, 2, 2)), (16, 32, (2, 2, 2)), (32, 64, (2, 2, 2)))
            self.convs = nnx.List([nnx.Conv(i, o, (3, 3, 3), strides=s, rngs=rngs) for i, o, s in layers])
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

    batches, losses = clips(str(folder), batch_size=batch_size, seed=1), []
    for _ in range(epochs):
        losses += [step(network, optimizer, batch["clips"], batch["labels"]) for batch in batches]
    return [float(x) for x in losses]


# --- a robot: several cameras, and the state at the same step
# -----------------------------------------------------------


@data_iterator(output_map=["front", "wrist", "state"], reader_name="front")
def robot(front, wrist, states):
    """Clips of two cameras, and the states ``[N, LENGTH, numbers]`` of the same steps.

    Args:
      front, wrist: the videos of the episodes, one of each camera; states: ``f32[episodes, steps, numbers]``.
    """
    episodes = list(range(len(front)))
    options: dict[str, Any] = {
        "labels": episodes,
        "sequence_length": LENGTH,
        "step": 1,
        "shuffle": "global",
        "seed": 5,
        "enable_frame_num": "sequence",
    }
    # Readers with one seed give their lists in one order.
    read: list[Any] = [
        fn.readers.video(filenames=files, name=name, **options) for files, name in ((front, "front"), (wrist, "wrist"))
    ]
    (first, episode, frames), (second, _, _) = read
    table = jnp.asarray(states)
    state = jax_function(lambda episode, frames: jax.vmap(lambda e, f: table[e[0], f])(episode, frames))(
        episode, frames
    )
    return first, second, state


def make_episodes(folder: pathlib.Path, episodes: int = 2, steps: int = 20) -> tuple[list[str], list[str], np.ndarray]:
    """Videos of two cameras; each frame is as bright as its number and its camera say, which is also the state."""
    files, states = ([], []), np.zeros((episodes, steps, 2), np.float32)
    for e in range(episodes):
        for c, camera in enumerate(("front", "wrist")):
            states[e, :, c] = 40 + 8 * np.arange(steps) + 20 * c
            frames = np.broadcast_to(states[e, :, c, None, None, None], (steps, 32, 48, 3)).astype(np.uint8)
            files[c].append(write(folder / f"{camera}_{e}.mp4", frames))
    return *files, states


def main():
    parser = argparse.ArgumentParser(description="A 3-D CNN on clips of videos; cameras of a robot.")
    parser.add_argument(
        "--videos", type=pathlib.Path, help="a folder of videos for each class; without it, videos are made"
    )
    parser.add_argument("--output", default="video.png", help="the picture")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.videos or make_videos(pathlib.Path(scratch) / "videos")
        batch = next(clips(str(folder), batch_size=4, seed=1))
        print({name: x.shape for name, x in batch.items()})
        with jax.numpy_dtype_promotion("standard"):
            losses = train(folder)
        print(f"loss {np.mean(losses[:4]):.3f} -> {np.mean(losses[-4:]):.3f}")
        steps = next(robot(*make_episodes(pathlib.Path(scratch)), batch_size=4))
        camera_means = np.stack([np.asarray(steps[camera]).mean(axis=(2, 3, 4)) for camera in ("front", "wrist")], -1)
        print(
            f"cameras and state differ by at most {np.abs(camera_means - np.asarray(steps['state'])).max():.1f} of 255"
        )

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = sorted(d.name for d in args.videos.iterdir()) if args.videos else sorted(CLASSES)
    _, axes = plt.subplots(4, LENGTH, figsize=(1.4 * LENGTH, 6), layout="constrained")
    for row, clip, label in zip(axes, np.asarray(batch["clips"]), np.asarray(batch["labels"])):
        for k, place in enumerate(row):
            place.imshow(np.clip(clip[k] * 63 + 127.5, 0, 255).astype(np.uint8))
            place.set(xticks=[], yticks=[], title=names[int(label)] if k == 0 else "")
    plt.savefig(args.output, dpi=80)


if __name__ == "__main__":
    main()
