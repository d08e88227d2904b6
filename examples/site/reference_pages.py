"""The generated parts of the reference: lists of functions, readers and augmentations, and the page of names of other
libraries.
"""

from __future__ import annotations

import inspect
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import jaxdali.dynamic
from jaxdali._core.foreign import FOREIGN, Foreign
from jaxdali._core.names import class_name, members
from jaxdali.auto_aug import augmentations
from jaxdali.auto_aug.core import Augmentation
from jaxdali.fn.__main__ import operators

# By library, in the order of the sections: the text below the heading.
LIBRARIES = {
    "torchvision": "Evaluation transforms that give torchvision's pixels to the bit are in [Evaluation](evaluation.md), "
    "and [MixUp and CutMix](mixup.md) have a guide. `Normalize` is "
    "[`fn.crop_mirror_normalize`](../operators/crop_mirror_normalize.md), whose `mean` and `std` are those of bytes.",
    "albumentations": "Boxes are changed by operators of their own: see [Detection](detection.md). Masks pass through the "
    "same geometric operators as their images: see [Segmentation](segmentation.md).",
    "tf.image": '`fn.resize(x, convention="tensorflow")` has the pixels of `tf.image.resize`. [From tf.data and '
    "Grain](from_tfdata_grain.md) takes whole pipelines apart.",
    "tf.data": "[From tf.data and Grain](from_tfdata_grain.md) takes whole pipelines apart.",
    "TensorFlow": "",
    "Grain": "[From tf.data and Grain](from_tfdata_grain.md) takes whole pipelines apart.",
    "PyTorch": "",
    "Transformers": "",
    "torch DataLoader": "[From a torch DataLoader](torch_dataloader.md) takes a training script apart.",
    "OpenCV": "",
    "Pillow": '`fn.resize(x, convention="pillow")` has the pixels of Pillow, to the bit.',
    "torchaudio, librosa": "[Audio](audio.md) has log-mel features from files on.",
    "Formats of data": "Readers and decoders are named by what they give, mostly not by a format.",
    "NumPy": "",
    "JAX": "Functions of JAX run in a pipeline as [`jax_function`](../reference/jax_function.md).",
}

# Pages of names that are no operators, by how the name begins. The first that fits counts.
PAGES = {
    "types.": "../reference/types.md",
    "jaxdali.math.": "../reference/math.md",
    "jaxdali.auto_aug.": "../reference/auto_aug.md",
    "jaxdali.dynamic": "../reference/dynamic.md",
    "jaxdali.decode_jpeg": "../reference/pipeline.md",
    "jaxdali.pipeline_def": "../reference/pipeline.md",
    "jaxdali.plugin.jax.fn.": "../reference/jax_function.md",
    "jaxdali.plugin.jax.": "../reference/iterators.md",
    "jaxdali.plugin.base_iterator": "../reference/iterators.md",
}

TABLE, END = '<div class="arguments">\n\n', "\n</div>"  # around a table whose rows are blocks on a phone

_NAMES_PAGE = """\
---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3}
---
# Names from torchvision, albumentations, tf.image and others

These tables say what jaxdali has for names of other libraries. Error messages have the same answers:

```{code-cell}
import textwrap
import numpy as np
import jaxdali.dynamic as jd
from jaxdali import fn

try:
    fn.RandomHorizontalFlip
except AttributeError as error:
    print(textwrap.fill(str(error), 80))

images = np.zeros((1, 64, 64, 3), np.uint8)
try:
    jd.resize(images, size=(32, 32), interpolation="bilinear")
except TypeError as error:
    print(textwrap.fill(str(error).partition(" (called at")[0], 80))
```

`CenterCrop` and `center_crop` are one name here: case and underscores do not count. Names that jaxdali has, too, such as
`Resize`, `GaussianBlur` or `equalize`, are not in the tables. `x` stands for images, or whatever the operator takes.
`fn.random.uniform` and `fn.random.coin_flip` give another number for each sample. Each operator is also a
[function of `jaxdali.dynamic`](../reference/dynamic.md).
"""

_PIXELS = """\
## What differs in pixels

These functions compute something else than those with the same purpose elsewhere. The differences are of 8 photos of
240 x 320, in levels of 0..255, from torchvision 0.28, albumentations 2.0, and dm_pix 0.4 in place of `tf.image`.

| function | computes | others compute | mean | largest |
|---|---|---|--:|--:|
| `fn.hue(x, hue=36.0)`, `hsv`, `color_twist` | a turn in YIQ | torchvision, `tf.image`, albumentations: a turn in HSV | 11 | 84 |
| `fn.saturation(x, saturation=1.5)` | a blend with grey | torchvision: the same | 0 | 1 |
| | | `tf.image`: a factor in HSV | 7 | 52 |
| `fn.contrast(x, contrast=1.3)` | contrast about 128 | torchvision: about the mean grey of the image | 2 | 5 |
| | | `tf.image`: about the mean of each channel | 4 | 18 |
| | | albumentations: about 0, as with `contrast_center=0.0` | 31 | 38 |
| `fn.equalize(x)` | OpenCV's tables | torchvision: Pillow's tables | 5 | 23 |
| `fn.rotate(x, angle=30.0, keep_size=True)` | repeats the edge | torchvision: 0 outside, as with `fill_value=0` | 20 | 251 |
| `fn.crop(x, crop=(223, 223))` | DALI's window | torchvision: as with `rounding="torchvision"` | 10 | 220 |
| `fn.resize(x, size=(100, 150))` | DALI's pixels | torchvision: as with `convention="torchvision"` | 0.1 | 9 |
| `fn.brightness(x, brightness=1.3)` | rounds | torchvision: cuts fractions | 0.4 | 1 |

Images of floats are not clipped: twice the brightness of 1.0 is 2.0, where torchvision gives 1.0. `fn.hsv` makes uint8
of floats, too, unless it has `dtype=types.FLOAT`.
"""


def write(sources: pathlib.Path) -> None:
    """Writes the page of names, and fills in the generated parts of other pages, in a copy of the site's sources."""
    (sources / "guides" / "names.md").write_text(names_page())
    for page, parts in PARTS.items():
        path = sources / "reference" / page
        text = path.read_text()
        for name, part in parts.items():
            mark = f"<!-- generated: {name} -->\n"
            if mark not in text:
                raise ValueError(f"{path} has no line {mark.strip()}")
            text = text.replace(mark, part())
        path.write_text(text)


# --- jaxdali.dynamic ------------------------------------------------------------------------------------------------


def functions() -> str:
    """All functions of `jaxdali.dynamic`, in the groups of their operators, with links to the operators' pages."""
    import operator_pages  # its pictures need packages that the page of names does not

    lines, missing = [], []
    for title, _, names in operator_pages.groups().values():
        of_values = [_operator(name, "jd.") for name in names if _has_function(name)]
        missing += [_operator(name, "fn.") for name in names if not _has_function(name) and "readers." not in name]
        lines += [title, f": {', '.join(of_values)}\n"] if of_values else []
    renamed = []
    for name, operator in operators().items():
        new_name = re.match(r"Deprecated name of `fn\.([\w.]+)`", operator.__doc__ or "")
        renamed += [f"`jd.{name}` is {_operator(new_name[1], 'jd.')}"] if new_name and _has_function(name) else []
    lines.append(f"There is no function of {_listed(missing)}: their data come from the pipeline.\n")
    lines.append(f"DALI's deprecated names are there, too: {', '.join(sorted(renamed))}.\n")
    return "\n".join(lines)


def readers() -> str:
    """The classes of readers, with links to the pages of their operators."""
    names = [name for name in operators() if name.startswith("readers.")]
    entries = sorted((class_name(name.removeprefix("readers.")), name) for name in names)
    entries = [entry for entry in entries if entry[0] in dir(jaxdali.dynamic.readers)]
    return f"The classes are {_listed(f'[`jd.readers.{cls}`](../operators/{name}.md)' for cls, name in entries)}.\n"


def _has_function(name: str) -> bool:
    """Whether `jaxdali.dynamic` has a function for an operator."""
    value: Any = jaxdali.dynamic
    for part in name.split("."):
        if part not in dir(value):
            return False
        value = getattr(value, part)
    return inspect.isfunction(value)


def _operator(name: str, prefix: str) -> str:
    return f"[`{prefix}{name}`](../operators/{name}.md)"


def _listed(entries: Iterable[str]) -> str:
    *first, last = entries
    return f"{', '.join(first)} and {last}" if first else last


# --- jaxdali.auto_aug -----------------------------------------------------------------------------------------------


def augmentations_table() -> str:
    """The augmentations of `jaxdali.auto_aug.augmentations`, with their magnitudes."""
    rows = [
        "Images are HWC, sequences FHWC, of type uint8.\n",
        f"{TABLE}| augmentation | | magnitudes |",
        "|---|---|---|",
    ]
    for name, x in members(augmentations).items():
        if isinstance(x, Augmentation):
            summary = " ".join((inspect.getdoc(x.op) or "").split())
            low_high = "" if x.mag_range is None else f"{x.mag_range[0]} to {x.mag_range[1]}"
            rows.append(
                f"| `augmentations.{name}` | {summary} | {low_high}{', either sign' if x.randomly_negate else ''} |"
            )
    return "\n".join([*rows, END, ""])


# --- names of other libraries ---------------------------------------------------------------------------------------


def names_page() -> str:
    """The names of other libraries, from the table that answers them in messages: a section for each library."""
    by_library: dict[str, list[Foreign]] = {library: [] for library in LIBRARIES}
    for row in FOREIGN:
        by_library[row.library].append(row)  # a new library needs an entry in LIBRARIES
    sections = [_section(library, rows) for library, rows in by_library.items()]
    return "\n".join([_NAMES_PAGE, *sections, _PIXELS])


def _section(library: str, rows: list[Foreign]) -> str:
    """The tables of one library: names, then arguments, then attributes of arrays."""
    parts = [f"## {library}\n"]
    parts += [f"{LIBRARIES[library]}\n"] if LIBRARIES[library] else []
    for title, uses in (
        ("name", ["name"]),
        ("argument", ["argument"]),
        ("attribute", ["DataNode", "Batch", "Tensor", "DALIGenericIterator"]),
    ):
        answers: dict[str, dict[str, list[str]]] = {}  # by name and text: the places where this is the answer
        for row in rows:
            if row.use in uses:
                place = row.takes if row.use == "argument" else row.use
                answers.setdefault(row.name, {}).setdefault(linked(row.markdown), []).append(place)
        if answers:
            parts += [] if title == "name" else [f"{title.capitalize()}s:\n"]
            parts += [f"{TABLE}| {title} | jaxdali |", "|---|---|"]
            parts += [f"| `{name}` | {_cell(of_name, title)} |" for name, of_name in answers.items()]
            parts += [END, ""]
    return "\n".join(parts)


def _cell(answers: dict[str, list[str]], title: str) -> str:
    """The answers to one name; to an attribute, with the classes that lack it; to an argument, if there are several,
    with another argument of the functions that they are for.
    """
    if title == "name" or (title == "argument" and len(answers) == 1):
        return "<br>".join(answers)
    texts = []
    for text, places in answers.items():
        names = _listed(f"`{place}`" for place in places)
        condition = f"of a {names}" if title == "attribute" else f"with {names}" if all(places) else "elsewhere"
        texts.append(f"{condition}: {text}")
    return "<br>".join(texts)


def linked(markdown: str) -> str:
    """An answer in which names of jaxdali are links to their pages, each page once."""
    pages: set[str] = set()

    def with_link(code: re.Match[str]) -> str:
        name = re.match(r"[\w.]*", code[1])
        page = name and _page(name[0])
        if page is None or page in pages:
            return code[0]
        pages.add(page)
        return f"[{code[0]}]({page})"

    return re.sub("`(.+?)`", with_link, markdown).replace("|", "\\|")


def _page(name: str) -> str | None:
    """The page of a name of jaxdali; None: it has none."""
    operator = name.removeprefix("fn.")
    if name.startswith("fn.") and operator in operators():
        return f"../operators/{operator}.md"
    return next((page for start, page in PAGES.items() if name.startswith(start)), None)


# By page: what takes the place of its lines "<!-- generated: NAME -->".
PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "auto_aug.md": {"augmentations": augmentations_table},
    "dynamic.md": {"functions": functions, "readers": readers},
}
