"""A page for each operator, from the registry of `jaxdali.fn`, DALI's recorded results and the examples of pictures.py."""

from __future__ import annotations

import enum
import functools
import html
import inspect
import json
import pathlib
import re
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import pictures

import jaxdali.dynamic
from jaxdali import ops
from jaxdali._core.arguments import declared
from jaxdali._core.names import DALI_OPERATORS, class_name
from jaxdali._core.operator import EagerOperator, HostOperator, NativeOperator, ProgramOperator, SourceOperator
from jaxdali._pipeline.pipeline import internals_of
from jaxdali.fn.__main__ import group, operators, placements

# The pages that list operators: a title, a sentence, and the modules and folders of `fn` that stand in each. A module that is in none
# gets a page of its own.
GROUPS = {
    "reading": (
        "Reading",
        "Readers of files and data sets, and values that a program gives.",
        ("readers", "experimental.readers", "experimental.inputs", "source", "io.file"),
    ),
    "decoding": ("Decoding", "Decoders of images, sound, video and arrays.", ("decoders", "decode")),
    "images": ("Images", "Sizes, windows, colours and filters. Most of them take videos, too.", ("image",)),
    "sizes": ("Sizes", "The sizes that vision-language models resize images to.", ("sizes",)),
    "noise": ("Noise", "Noise that is added to images.", ("noise",)),
    "experimental": ("Experimental", "Operators on images in DALI's `fn.experimental`.", ("experimental",)),
    "boxes": ("Boxes", "Bounding boxes that follow the changes of their images.", ("box",)),
    "masks": ("Masks", "Boxes and pixels that are chosen by segmentation masks.", ("segmentation",)),
    "audio": ("Audio", "Sound and its spectra.", ("audio",)),
    "tensors": ("Tensors", "Shapes, types, order and contents of arrays of any kind.", ("tensor",)),
    "reductions": ("Reductions", "Sums, means and extrema over axes.", ("reductions",)),
    "random_numbers": ("Random numbers", "Random numbers, another one for each sample.", ("random",)),
    "matrices": ("Matrices of transforms", "Matrices for `warp_affine` and `coord_transform`.", ("transforms",)),
}
BREAK = "\u200b"  # where the side bar may break a long name


def documented() -> dict[str, Callable[..., Any]]:
    """All operators but deprecated names."""
    return {n: f for n, f in sorted(operators().items()) if not (f.__doc__ or "").startswith("Deprecated name")}


def groups() -> dict[str, tuple[str, str, list[str]]]:
    """The title, the sentence and the operators of each page that lists operators."""
    page_of = {module: page for page, (*_, modules) in GROUPS.items() for module in modules}
    pages: dict[str, tuple[str, str, list[str]]] = {
        page: (title, text, []) for page, (title, text, _) in GROUPS.items()
    }
    for name, function in documented().items():
        module = group(name, function)
        page = page_of.get(module, f"module_{module.replace('.', '_')}")
        pages.setdefault(page, (f"fn.{module}", f"Operators of `fn.{module}`.", []))[2].append(name)
    return pages


def write(folder: pathlib.Path) -> None:
    """Writes the pages, their pictures, a page for each group, and an index into a folder."""
    folder.mkdir(parents=True)
    for name, function in documented().items():
        (folder / f"{name}.md").write_text(page(name, function, folder))
    lines = [
        "# Operators\n",
        "Each page is generated from the operator's declaration and docstring, and its picture from its example.\n",
    ]
    for stem, (title, text, names) in groups().items():
        listed = [f"* [`{n}`]({n}.md): {summary(documented()[n])}" for n in names]
        entries = [f"{re.sub('(?<=[._])', BREAK, n)} <{n}>" for n in names]
        toctree = ["\n```{toctree}\n:hidden:\n", *entries, "```\n"]
        (folder / f"{stem}.md").write_text("\n".join([f"# {title}\n", f"{text}\n", *listed, *toctree]))
        lines += [f"\n## [{title}]({stem}.md)\n", f"{text}\n", ", ".join(f"[`{n}`]({n}.md)" for n in names)]
    lines += ["\n```{toctree}\n:hidden:\n", *groups(), "```\n"]
    (folder / "index.md").write_text("\n".join(lines))


def summary(function: Callable[..., Any]) -> str:
    """The first sentence of its docstring."""
    return markup((function.__doc__ or "").partition("\n")[0])


def page(name: str, function: Callable[..., Any], folder: pathlib.Path) -> str:
    """One page, in MyST Markdown."""
    text = inspect.getdoc(function) or ""
    title, _, main_text = text.partition("\n")
    body, sections = split(main_text)
    differs = [p for p in body if p.startswith("Differs from DALI")]
    keywords = ", ".join(re.split(r"[._]", name))  # a search for "random crop" finds random_resized_crop
    parts = [f"---\nmyst:\n  html_meta:\n    keywords: {keywords}\n---\n# fn.{name}\n", markup(title), "\n"]
    parts += [f"```python\n{signature(name, function)}\n```\n"]
    example = pictures.EXAMPLES.get(name)
    if example is not None:
        pictured = pictures.draw(name, example, folder / f"{name}.png")
        parts += [f"```python\n{example}\n```\n", f"![{pictured}]({name}.png)\n"]
    parts += [f"{markup(p)}\n" for p in body if p not in differs]
    arguments_text = sections.pop("Args", "")
    parts += ["## Arguments\n", arguments(name, function, helps(arguments_text))]
    for heading, content in sections.items():
        code = heading == "Example"
        parts += [
            f"## {heading}\n",
            f"```python\n{inspect.cleandoc(content)}\n```\n" if code else f"{blocks(content)}\n",
        ]
    parts += ["## What differs from DALI\n", differences(name, differs, helps(arguments_text))]
    parts += ["## Where it runs\n", where(name, function, example), "\n"]
    parts += ["## Compared with DALI\n", tolerance(name), "\n"]
    # A search for "dynamic" or "ops" means another page.
    parts += [":::{rst-class} no-search\n:::\n", "## Also as\n", also(name, function), "\n"]
    return "\n".join(parts)


# --- the docstring ----------------------------------------------------------------------------------------------------


def split(text: str) -> tuple[list[str], dict[str, str]]:
    """The paragraphs of a docstring, and its sections by heading: "Args", "Returns", "Raises", "Example"."""
    body, sections = [], {}
    heading = ""
    for block in re.split(r"\n\s*\n|\n(?=Differs from DALI)", text.strip("\n")):
        first = re.match(r"(Args|Returns|Raises|Example|Examples|Yields):\n", block)
        if first:
            heading = first[1].replace("Examples", "Example")
            sections[heading] = block[first.end() :]
        elif heading and block.startswith(" "):
            sections[heading] += f"\n\n{block}"
        elif block:
            heading = ""
            body.append(block)
    return body, sections


def markup(text: str) -> str:
    """A paragraph of a docstring as Markdown: outside of code, no character has a meaning."""
    if re.search(r"^    ?\S|^\s*>>>|::$", text, re.MULTILINE) and "\n" in text and text.rstrip().count("::") == 1:
        lead, _, code = text.partition("::")
        return f"{markup(lead)}:\n\n```python\n{inspect.cleandoc(code)}\n```"
    if text.startswith("* "):
        return "\n".join(
            f"* {markup(' '.join(item.split()))}" for item in re.split(r"^\* ", text, flags=re.MULTILINE)[1:]
        )
    pieces = re.split(r"(``.+?``|`[^`]+?`)", text, flags=re.DOTALL)
    return "".join(
        f"`{' '.join(p.strip('`').split())}`" if i % 2 else re.sub(r"([\\*_\[\]<>{}$])", r"\\\1", p)
        for i, p in enumerate(pieces)
    )


def blocks(text: str) -> str:
    """A section's paragraphs."""
    return "\n\n".join(markup(inspect.cleandoc(p)) for p in re.split(r"\n\s*\n", text))


def inline(text: str) -> str:
    """A paragraph as HTML, for tables."""
    pieces = re.split(r"(``.+?``|`[^`]+?`)", " ".join(text.split()))
    return "".join(
        f"<code>{html.escape(p.strip('`'))}</code>" if i % 2 else html.escape(p) for i, p in enumerate(pieces)
    )


def helps(text: str) -> dict[str, str]:
    """The lines of "Args" by argument."""
    help_of = {}
    for m in re.finditer(r"^  (\*?\w[\w, *]*):((?:.*)(?:\n(?!  \*?\w[\w, *]*:).*)*)", text, re.MULTILINE):
        help_of |= {n.strip(" *"): re.sub(r"^\* ", "", m[2].strip()) for n in m[1].split(",")}
    return help_of


def default(p: inspect.Parameter) -> str:
    return f"types.{p.default.name}" if isinstance(p.default, enum.Enum) else repr(p.default)


def signature(name: str, function: Callable[..., Any]) -> str:
    """Names and defaults, as a call is written. Types stand in the table below it."""
    words, named = [], False
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not named:
            named = True
            words += [] if words and words[-1].startswith("*") else ["*"]
        words.append(
            ("*" if p.kind is p.VAR_POSITIONAL else "") + p.name + ("" if p.default is p.empty else f"={default(p)}")
        )
    return textwrap.fill(
        f"fn.{name}({', '.join(words)})", 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def arguments(name: str, function: Callable[..., Any], help_of: dict[str, str]) -> str:
    """A table: each argument with its default, what it may be, whether it may be given per sample, and its help."""
    declarations = declared[name]() if name in declared else {}
    rows = []
    for p in inspect.signature(function).parameters.values():
        a = declarations.get(p.name)
        if a is not None and a.is_input:
            expected, marks = "a DataNode, or an array that is the same for all samples", "input"
        else:
            expected = (a.expected if a is not None else "").replace(
                ", or a batch with a value per sample", ""
            ) or "any object"
            marks = (
                "per frame" if a is not None and a.per_frame else "per sample" if a is not None and a.per_sample else ""
            )
        default_text = "required" if p.default is p.empty else f"= <code>{html.escape(default(p))}</code>"
        values = html.escape(expected) + (f"<br> <em>{marks}</em>" if marks else "")
        cells = [f"<code>{p.name}</code><br> {default_text}", values, inline(help_of.get(p.name, ""))]
        rows.append("<tr>" + " ".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    head = "".join(f"<th>{h}</th>" for h in ("argument, default", "values", "meaning"))
    body = "\n".join(rows)
    return f'<div class="arguments"><table class="docutils"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n'


# --- what is known besides -------------------------------------------------------------------------------------------


def differences(name: str, paragraphs: list[str], help_of: dict[str, str]) -> str:
    """Differences from DALI, as the docstring has them: paragraphs of their own, and the help of arguments."""
    texts = [p.removeprefix("Differs from DALI: ") for p in paragraphs]
    lines = [f"{markup(text[:1].upper() + text[1:])}\n" for text in texts]
    for argument, text in help_of.items():
        said = [
            x
            for x in re.split(r"(?<=[.;]) +(?=[A-Z`(])", " ".join(text.split()))
            if re.search(r"(?<!as in )(?<!to )DALI(?!'s executor)", x)
        ]
        lines += [f"* `{argument}`: {markup(' '.join(said))}"] if said else []
    if lines:
        return "\n".join(lines) + "\n"
    return ("Nothing that is known." if name in DALI_OPERATORS else "DALI does not have this operator.") + "\n"


@functools.cache
def cuda_kernels() -> frozenset[str]:
    return frozenset(re.findall(r"JAXDALI_KERNEL_CUDA\((\w+)\)", (pictures.ROOT / "ffi" / "ops.def").read_text()))


def where(name: str, function: Callable[..., Any], example: str | None) -> str:
    """Where an operator runs, from the kinds of the operators that its example consists of."""
    devices_allowed = placements(function)
    devices = (
        f"`device` may be {' or '.join(f'`{chr(34)}{d}{chr(34)}`' for d in devices_allowed)}."
        if devices_allowed
        else ""
    )
    nodes = [] if example is None else nodes_of(example, gpu="gpu" in devices_allowed)
    own_nodes = [n for n in nodes if n.op.name == name] or [n for n in nodes if not isinstance(n.op, SourceOperator)]
    lines: dict[str, None] = {}
    for node in own_nodes:
        op: Any = node.op
        if isinstance(op, NativeOperator):
            cuda = op.kernel in cuda_kernels()
            portable = (
                type(op).portable is not NativeOperator.portable or type(op).divided is not NativeOperator.divided
            )
            lines[f"CPU: native kernel `{op.kernel}`."] = None
            lines[
                f"CUDA: {f'kernel `{op.kernel}`' if cuda else 'no kernel, so it runs on the CPU and its result is moved'}."
            ] = None
            elsewhere = (
                "in XLA's operations, where its arguments allow that" if portable else "on the CPU; its result is moved"
            )
            lines[f"Any other accelerator: {elsewhere}."] = None
        elif isinstance(op, ProgramOperator):
            host = "On the host in NumPy where its inputs are there. " if isinstance(op, HostOperator) else ""
            lines[f"{host}CPU, CUDA and any other accelerator: compiled by XLA."] = None
        elif isinstance(op, EagerOperator):
            lines["Between programs, on arrays where they are."] = None
        else:
            lines["CPU: on the host, before the program."] = None
    if not lines:
        lines["CPU: in threads of the host, ahead of the batch."] = None
    return "\n".join([*(f"* {line}" for line in lines), *([f"* {devices}"] if devices else [])])


def nodes_of(example: str, gpu: bool) -> list[Any]:
    """The nodes of an example's graph, with its inputs on the accelerator if it may be there."""
    for on_gpu in (True, False) if gpu else (False,):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipeline = pictures.pipeline_of(example, on_gpu)
            try:
                return list(internals_of(pipeline).graph.nodes)
            except (TypeError, ValueError, RuntimeError):  # an input that must be on the host
                continue
            finally:
                pipeline.close()
    return []


@functools.cache
def recorded() -> list[dict[str, Any]]:
    return json.loads((pictures.ROOT / "tests" / "data" / "golden" / "manifest.json").read_text())["cases"]


def tolerance(name: str) -> str:
    """How near results are to DALI's recorded ones."""
    of_it = [
        c for c in recorded() if c.get("fn") == name or re.search(rf"\bfn\.{re.escape(name)}\(", c.get("expr") or "")
    ]
    values = [c for c in of_it if c["check"] == "values"]
    if not values:
        return "Values are compared with a definition in NumPy, or with DALI in tests of their own; there are no golden data of values."
    by_type: dict[str, list[dict[str, float]]] = {}
    for case in values:
        by_type.setdefault(case["outputs"][0]["dtype"], []).append(
            {k: v for k, v in (case.get("tol") or {}).items() if v}
        )
    texts = {
        "max_abs": "absolute {:g}",
        "max_rel": "relative {:g}",
        "mean_abs": "mean {:g}",
        "frac": "{:g} of the elements may differ more",
    }
    rows = [
        "Results are compared with those recorded from DALI 2.4. The largest tolerances are:\n",
        "| type | cases | tolerance |",
        "|---|--:|---|",
    ]
    for dtype, limits in sorted(by_type.items()):
        largest = {k: max(x.get(k, 0) for x in limits) for k in texts}
        text = ", ".join(texts[k].format(v) for k, v in largest.items() if v) or "equal bit by bit"
        rows.append(f"| {dtype} | {len(limits)} | {text} |")
    return "\n".join(rows)


def also(name: str, function: Callable[..., Any]) -> str:
    """The operator's class, its function of `jaxdali.dynamic`, and its source."""
    module, _, short = name.rpartition(".")
    lines = []
    cls = f"{module + '.' if module else ''}{class_name(short)}"
    if found(ops, cls):
        lines.append(f"* `jaxdali.ops.{cls}`, a class")
    values = next((n for n in (name, cls) if found(jaxdali.dynamic, n)), None)
    lines.append(
        f"* `jaxdali.dynamic.{values}`, a function without a pipeline"
        if values
        else "* no function of `jaxdali.dynamic`: its data come from the pipeline"
    )
    source = pathlib.Path(inspect.getfile(inspect.unwrap(function))).relative_to(
        pathlib.Path(jaxdali.__file__).parents[1]
    )
    return "\n".join([*lines, f"* source: `{source}`"])


def found(module: Any, path: str) -> bool:
    try:
        return functools.reduce(getattr, path.split("."), module) is not None
    except AttributeError:
        return False
