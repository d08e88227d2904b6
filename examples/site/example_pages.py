"""A page for each program in `examples`, with what it printed and drew when the site was built."""

import ast
import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Example:
    """How a program runs on its page: in seconds, on a CPU, in a folder with the links `examples` and `tests`."""

    group: str
    command: str  # of bash
    packages: str = ""  # what pip installs beside jaxdali
    picture: str = ""  # the file that the command writes
    note: str = ""


ADDRESS = "localhost:1234"  # in commands; a free port takes the place of 1234
EXAMPLES = {
    "getting_started": Example(
        "First steps",
        "python examples/getting_started.py --output getting_started.png",
        "matplotlib rich",
        picture="getting_started.png",
    ),
    "checkpointed_train": Example(
        "Training",
        "python examples/checkpointed_train.py",
        "flax optax orbax-checkpoint",
        note="The guide [Train a model](../guides/training.md) explains this program part by part.",
    ),
    "flax_train": Example("Training", "python examples/flax_train.py --epochs 4", "flax optax tqdm"),
    "imagenet_train": Example(
        "Training",
        "python examples/imagenet_train.py examples/images examples/images \\\n"
        "    --model tiny --size 32 --width 4 --epochs 2 --batch-size 8",
        "flax optax orbax-checkpoint tqdm",
        note="Here a tiny network sees small photos in two epochs. The defaults are those for ImageNet.",
    ),
    "torch_train": Example("Training", "python examples/torch_train.py --epochs 4", "torch"),
    "language_model": Example("Training", "python examples/language_model.py --epochs 2", "flax optax"),
    "vlm_train": Example(
        "Training",
        "python examples/vlm_train.py",
        "flax optax orbax-checkpoint",
        note="The guide [Images for language models and robots](../guides/port_vlm.md) explains its input.",
    ),
    "augment_with_jax": Example(
        "Augmentation",
        "python examples/augment_with_jax.py --output augment_with_jax.png",
        "matplotlib",
        picture="augment_with_jax.png",
    ),
    "mixup": Example("Augmentation", "python examples/mixup.py --output mixup.png", "matplotlib", picture="mixup.png"),
    "nnx_augment": Example("Augmentation", "python examples/nnx_augment.py", "flax optax"),
    "grain_map": Example("In other loaders", "python examples/grain_map.py", "grain"),
    "grain_train": Example(
        "In other loaders",
        "python examples/grain_train.py --checkpoints grain_checkpoints --kill-at 18 || true\n"
        "python examples/grain_train.py --checkpoints grain_checkpoints --devices 4",
        "grain flax optax orbax-checkpoint",
        note="The guide [Inside Grain](../guides/inside_grain.md) explains this program part by part.",
    ),
    "huggingface_transform": Example("In other loaders", "python examples/huggingface_transform.py", "datasets"),
    "torch_collate": Example("In other loaders", "python examples/torch_collate.py", "torch"),
    "ray_map_batches": Example("In other loaders", "python examples/ray_map_batches.py", '"ray[data]"'),
    "speech": Example(
        "Other data", "python examples/speech.py --output speech.png", "soundfile matplotlib", picture="speech.png"
    ),
    "video": Example(
        "Other data",
        "python examples/video.py --epochs 2 --output video.png",
        "av flax optax matplotlib",
        picture="video.png",
        note="Two epochs are too few to learn the directions; the default is twelve.",
    ),
    "medical": Example(
        "Other data",
        "python examples/medical.py",
        "pydicom nibabel",
        note="The guide [Volumes](../guides/volumes.md) has more about them.",
    ),
    "array_record_writer": Example(
        "Other data", "python examples/array_record_writer.py cat.array_record examples/images/cat/*.jpg"
    ),
    "several_hosts": Example(
        "Several hosts",
        "python examples/several_hosts.py examples/images/cat checkpoints --batch-size 2 --epochs 2 \\\n"
        f"    --save-every 3 --coordinator {ADDRESS} --num-processes 2 --process-id 0 &\n"
        "python examples/several_hosts.py examples/images/cat checkpoints --batch-size 2 --epochs 2 \\\n"
        f"    --save-every 3 --coordinator {ADDRESS} --num-processes 2 --process-id 1\n"
        "wait $!\n"
        "python examples/several_hosts.py examples/images/cat checkpoints --batch-size 2 --epochs 2 \\\n"
        f"    --coordinator {ADDRESS} --num-processes 1 --process-id 0",
        "orbax-checkpoint",
        note="Here two processes on one machine stand for two hosts. Then one process alone continues after the "
        "checkpoint that they saved after three steps.",
    ),
    "ray_workers": Example("Several hosts", "python examples/ray_workers.py", "ray"),
    "ray_train": Example("Several hosts", "python examples/ray_train.py", '"ray[train]"'),
}


def write(folder: pathlib.Path) -> None:
    """Writes the pages and their index into a folder, with links to what the programs read."""
    folder.mkdir(parents=True)
    for name in ("examples", "tests"):
        (folder / name).symlink_to(ROOT / name)
    groups: dict[str, list[str]] = {}
    for name, example in EXAMPLES.items():
        groups.setdefault(example.group, []).append(name)
        (folder / f"{name}.md").write_text(page(name, example))
    lines = [
        "# Examples\n",
        "Each example is one program in the folder `examples` of the repository. Its page has the whole program, and "
        "what it printed when this site was built.",
    ]
    for group, names in groups.items():
        lines += [f"\n## {group}\n", *(f"* [{name}.py]({name}.md): {first_line(name)}" for name in names)]
    lines += ["\n```{toctree}\n:hidden:\n", *EXAMPLES, "```\n"]
    (folder / "index.md").write_text("\n".join(lines))


def page(name: str, example: Example) -> str:
    """One page, in MyST Markdown."""
    parts = [
        "---\nfile_format: mystnb\nkernelspec: {name: python3, display_name: Python 3}\n---",
        f"# {name}.py",
        first_line(name),
        example.note,
        f"The packages that it needs: `pip install {example.packages}`." if example.packages else "",
        f"```sh\n{example.command}\n```",
        "It prints:",
        f"```{{code-cell}}\n:tags: [remove-input]\n\n{cell(example.command)}```",
        f"It draws:\n\n![The picture that {name}.py writes]({example.picture})" if example.picture else "",
        "## The program",
        f"{{download}}`Download {name}.py <examples/{name}.py>`",
        f"```{{literalinclude}} examples/{name}.py\n:language: python\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def cell(command: str) -> str:
    """The code of the hidden cell that runs a command and prints its output. It fails where the command fails."""
    lines = ["import subprocess", f"command = {command!r}"]
    if ADDRESS in command:
        lines += [
            "import socket",
            "with socket.socket() as s:",
            '    s.bind(("localhost", 0))',
            f'    command = command.replace({ADDRESS!r}, f"localhost:{{s.getsockname()[1]}}")',
        ]
    lines += [
        # Jupyter asks for colours. Lines of two processes stay whole where each line is written at once.
        'shell = ["env", "-u", "FORCE_COLOR", "-u", "PYTHONUNBUFFERED", "bash", "-euc", command]',
        "run = subprocess.run(shell, capture_output=True, text=True)",
        'print(run.stdout, end="")',
        "assert run.returncode == 0, run.stderr",
    ]
    return "\n".join([*lines, ""])


def first_line(name: str) -> str:
    """The first line of a program's docstring, which says what the program shows."""
    return (ast.get_docstring(ast.parse((ROOT / "examples" / f"{name}.py").read_text())) or "").partition("\n")[0]
