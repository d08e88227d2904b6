"""``python -m jaxdali.fn``: the operators, and the help of one."""

import importlib
import inspect
import subprocess
import sys

import pytest

from jaxdali import fn

program = importlib.import_module("jaxdali.fn.__main__")


def test_table(capsys):
    """Every operator once, under its group, with its placements and the first line of its docstring."""
    assert program.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if line.startswith("  ")]
    assert sorted(r[0] for r in rows) == sorted(program.operators())
    assert lines.index("readers") < next(
        i for i, line in enumerate(lines) if line.split()[:2] == ["readers.file", "cpu"]
    )
    (row,) = (line for line in lines if line.split()[:1] == ["resize"])
    assert row.split()[1:3] == ["cpu", "gpu"]
    assert row.endswith("Resizes images, sequences of images or volumes.")


def test_help(capsys):
    assert program.main(["fn.readers.file"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fn.readers.file(\n    *,\n    file_root:")
    assert inspect.getdoc(fn.readers.file) in out
    assert program.main(["crop", "readers.video"]) == 0
    out = capsys.readouterr().out
    # Also if the annotation is a name for the choices.
    assert "    rounding: Literal['round', 'truncate', 'torchvision'] = 'round',\n" in out
    assert "    color_matrix: Literal['bt601', 'stream'] = 'bt601',\n" in out


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("resise", "; there is resize"),
        ("Resize", "; there is resize, "),
        ("mel", "; there is mel_filter_bank\n"),
        ("csv", "; instead: fn.readers.source(columns)"),
        (
            "RandomCrop",
            "; there is roi_random_crop, ssd_random_crop, random_crop_generator, decoders.image_random_crop; instead: fn.crop(",
        ),
        ("zzzzz", "\n"),
        ("x", "\n"),
        ("", "\n"),
    ],
)
def test_no_such_operator(word, text, capsys):
    assert program.main([word]) == 1
    assert capsys.readouterr().err.startswith(f"there is no operator {word!r}{text}")


def test_reader_of_the_list_may_stop():
    """As in ``python -m jaxdali.fn | head``."""
    command = [sys.executable, "-m", "jaxdali.fn"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == b"audio\n"
        run.stdout.close()
        assert run.stderr.read() == b""
