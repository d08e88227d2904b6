"""Docstrings of functions of values, made from those of the functions of nodes: arguments, words and examples differ.

All of them are made when `jaxdali.dynamic` is imported, so this must be fast.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

_PIPELINE_ARGUMENTS = {  # arguments that only functions of nodes have, with advice
    "name": "is for pipelines",
    "seed": "is for pipelines; pass key=jax.random.key(seed), or rng=jaxdali.dynamic.random.RNG(seed)",
    "preserve": "is for pipelines",
    "bytes_per_sample_hint": "is for pipelines",
}
_RANDOM = ("key", "rng")

# Phrases about nodes, and the phrases about values that replace them, applied in this order. Each stands in a docstring
# of `fn`; tests/dynamic/test_docstrings.py checks that.
_WORDS = (
    ("the same seed gives other numbers", "the numbers are other ones"),
    ("DataNodes with a value per sample", "batches with a value per sample"),
    ("A DataNode with the input's layout", "A batch with the input's layout"),
    ("a DataNode with one", "a batch with one"),
    ("list, array or DataNode", "list, array or batch"),
    ("; if the shape is not known when the pipeline is built, the axes", "; if samples differ in shape, the axes"),
    ("This is decided when the pipeline is built, from", "This is decided from"),
    ("ImportError: when the pipeline is built, ", "ImportError: "),
    ("Values of a pipeline never change, so nothing", "Nothing"),
    ("without one all axes are spatial, at most three, as in DALI.", "without one HW, HWC, FHWC or FDHWC."),
    ("layout all axes are spatial, as in DALI.", "layout HW, HWC, FHWC or FDHWC."),
    (
        "The pipeline is compiled into separate programs before and after the function. Use `jax_function` for JAX functions, "
        "which become part\nof the program. Differs",
        "A function of `jit` is compiled into separate programs before and after it.\n\nDiffers",
    ),
    ("and `Pipeline.bad_samples()` reports it.", "with a warning."),
    (
        "one cache, which lives as long as one of their pipelines or\n"
        "    iterators. `Pipeline.statistics` reports how many images it served, and its size in bytes.",
        "one cache.",
    ),
    ("Everywhere else, for example as an output of the pipeline, a key is its data:", "A key is its data:"),
    ("ImportError: at build, ", "ImportError: "),
    (", for each batch. It is called even if nobody needs its outputs.", "."),
    (" The batch fails.", ""),
    ("once for each batch of a shard", "once for the batch"),
    ("of a shard's batch", "of the batch"),
    (" (of the shard's batch, where there are several shards)", ""),
    ("The batch includes all shards of the process.\n\n", ""),
    ("The batch is that of one shard, as in DALI: samples don't move between devices. ", ""),
    ("The batch is that of one shard. ", ""),
    (
        "have the same number of dimensions and, unless `dtype` is given, the same type as the first batch.",
        "have one number of dimensions and, unless `dtype` is given, one type. Calls may differ in both.",
    ),
    (", as readers and external_source give them. They are host values.", ", on the CPU."),
    ("This is a host value, so it can be an argument of other operators.", "On the CPU."),
    (
        "The result is a host value, even for an input on the accelerator, so it can be an argument of other operators.",
        "The result is on the CPU.",
    ),
    ("The operator runs on the host: the inputs are host values.", "The inputs are on the CPU."),
    (", a host value", ", on the CPU"),
    (" and a host value", ", on the CPU"),
    (": host values", ", on the CPU"),
    (", host values", ", on the CPU"),
    ("are host values", "are on the CPU"),
    ("One host value;", "A batch on the CPU;"),
    ("A host value.", "On the CPU."),
    ("in memory between epochs", "in memory between calls"),
    (
        "A `jax_function` gets the keys of a batch as typed keys, ``key<fry>[batch]``, as `jax.random.split` returns them; with "
        "`jax.vmap`, each\nsample has its own. The key of a sample depends only on the pipeline's seed, the operator's number among "
        "the random operators, and the\nsample's epoch and position. Batch size, number of shards, and device do not change it, and a "
        "resumed pipeline "
        "gives the same keys.\n\n",
        "",
    ),
    ('wrap_key_data(batch["key"]', "wrap_key_data(data"),
    (
        "paths = jd.external_source(lambda i: np.frombuffer(names[i.idx_in_epoch].encode(), np.uint8), batch=False)",
        "paths = [np.frombuffer(name.encode(), np.uint8) for name in names]",
    ),
    (
        "@jax_function\n  ... def add_noise(images, keys):\n"
        "  ...     return jax.vmap(lambda image, key: image + jax.random.normal(key, image.shape))(images, keys)\n"
        "  >>> noisy = add_noise(images, jd.random.key())",
        'keys = jax.random.wrap_key_data(jd.random.key().jax(), impl="threefry2x32")\n'
        "  >>> noisy = jax.vmap(lambda image, key: image + jax.random.normal(key, image.shape))(images.jax(), keys)",
    ),
    ("than the `Storage` of its reader\n    allows (1 GiB unless it says otherwise)", "than 1 GiB"),
    ("Default: the storage of the input's reader.", "Default: `Storage()`."),
    ("Differs from DALI: values made from a reader's labels also have the path of the file.\n\n", ""),
    (
        "For a reader, this is the path of the file as it stands in the reader's\n    list.",
        "It is known in pipelines only.",
    ),
    (", for example from an `external_source` or a reader.", "."),
    (
        'jpegs, labels = jd.readers.file(file_root="images")',
        'jpegs = [path.read_bytes() for path in pathlib.Path("images").glob("*.jpg")]',
    ),
    ('paths = jd.get_property(jpegs, key="source_info")', 'layouts = jd.get_property(images, key="layout")'),
    (
        "(images, np.float32([[0, -1, 0], [-1, 5, -1], [0, -1, 0]]))",
        "(images, jd.tensor(np.float32([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])))",
    ),
    ("height = images.shape()[0]", "heights = jd.shapes(images).slice[0]"),
    ("images.shape()", "jd.shapes(images)"),
)


_KEY = "  key: a key of `jax.random`, from which each sample gets its own, or a key for each sample.\n"
_KEY_OF_ONE = (
    "  key: a key of `jax.random`: it draws one number, or one array, as `jax.random` does without a shape. With a key for each sample,\n"
    "    or with one key and `batch_size=n`, n are drawn. A function of a batch takes one for each of its samples.\n"
)
_RNG = "  rng: what gives a new key for each call, in place of `key`: ``random.RNG(seed)``.\n"
_BATCH_SIZE = "  batch_size: how many samples. Default: those of the inputs.\n"
_BATCH_SIZE_OF_ONE = (
    "  batch_size: how many samples. Default: those of values that are given per sample; without any, the result is "
    "single.\n"
)

# Texts of functions with keys, and the texts that replace them for a default generator, see `with_generator`.
_GENERATED = (
    ("jd.", "nd."),
    (_KEY, "  key: in place of `rng`, a key of `jax.random`, or a key for each sample.\n"),
    (_KEY_OF_ONE, "  key: in place of `rng`, a key of `jax.random`, or a key for each sample.\n"),
    (_RNG, "  rng: a generator. Default: `random.get_default_rng()`.\n"),
    ("  >>> keys = jax.random.split(key, 2)\n", ""),
    ("without one HW, HWC, FHWC or FDHWC.", "without one all axes are spatial, at most three, as in DALI."),
    ("layout HW, HWC, FHWC or FDHWC.", "layout all axes are spatial, as in DALI."),
)
_IN_EXAMPLE = re.compile(r"(, )?key=(?:keys\[\d\]|key)(, )?")
_DRAWS = re.compile(
    r"jd\.(random\.\w+|batch_permutation|\w*random_\w+|segmentation\.random_\w+|decoders\.image_random_crop|noise\.\w+|jitter)\("
)
_VALUES = re.compile(r"jd\.[\w.]+\(([a-z]\w*)[,)]")  # the first argument of the function in an example


def extra_arguments(function: Callable[..., Any]) -> list[str]:
    """The names of arguments that a function of values has in addition to those of the function of nodes."""
    added = (*_RANDOM, "batch_size") if getattr(function, "draws", False) else ("batch_size",)
    return [n for n in added if n not in inspect.signature(function).parameters]


def refused_arguments(function: Callable[..., Any], extra: Sequence[str]) -> dict[str, str]:
    """Advice on arguments that a function of values refuses, by name.

    Args:
      extra: its `extra_arguments`.
    """
    advice = "is for functions that draw random numbers, which it does not"
    random_advice = (
        {}
        if {*_RANDOM}.intersection(extra)
        else {n: advice for n in _RANDOM if n not in inspect.signature(function).parameters}
    )
    return {n: f"argument {n!r} {advice}" for n, advice in (*_PIPELINE_ARGUMENTS.items(), *random_advice.items())}


def describe(function: Callable[..., Any], extra: Sequence[str]):
    """Sets the signature and the docstring of a function of values. Before, it has those of the function of nodes."""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in _PIPELINE_ARGUMENTS]
    added = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in extra]
    signature = signature.replace(parameters=[*parameters, *added], return_annotation=inspect.Signature.empty)
    function.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    function.__doc__ = docstring(function.__doc__ or "", signature, extra)


def _replace(text: str, replacements: Sequence[tuple[str, str]]) -> str:
    """Replaces phrases, however the lines of the text are broken.

    An empty line in a phrase matches only an empty line.
    """
    unbroken = " ".join(text.split())
    for words, replacement in replacements:
        # Most docstrings contain few of the phrases, and this search is faster than the regular expression.
        if " ".join(words.split()) in unbroken:
            # Between the pieces, the phrase has spaces or a single line end, and the text may have either.
            pieces = re.split(r" +|(?<!\n)\n(?!\n) *", words)
            text = re.sub(
                r"(?: +|\n *)".join(map(re.escape, pieces)), lambda _, replacement=replacement: replacement, text
            )
            unbroken = " ".join(text.split())
    return text


def docstring(text: str, signature: inspect.Signature, extra: Sequence[str]) -> str:
    """The docstring of a function of values.

    Args:
      text: the docstring of the function of nodes.
      signature: of the function of values.
      extra: its `extra_arguments`.
    """
    text = text.replace("fn.", "jd.")
    text = _replace(text, _WORDS)
    begin = text.find("Args:\n")
    head, after_head = (text[:begin], text[begin + len("Args:\n") :]) if begin >= 0 else (f"{text}\n\n", "")
    # An empty line ends the entries of arguments.
    entries, blank, tail = after_head.partition("\n\n")
    positional = [p for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    is_single = all(p.default is not p.empty for p in positional)  # it may be called without any value
    added = {
        "key": _KEY_OF_ONE if is_single else _KEY,
        "rng": _RNG,
        "batch_size": _BATCH_SIZE_OF_ONE if is_single else _BATCH_SIZE,
    }
    entries = _drop_pipeline_entries(entries + "\n" if entries else "") + "".join(added[n] for n in extra)
    summary, example, code = tail.partition("Example:\n")
    if example:
        tail = summary + example + _add_keys(code)
    return f"{head}Args:\n{entries.rstrip()}{blank}{tail}"


def _drop_pipeline_entries(entries: str) -> str:
    """Removes the entries of arguments that only pipelines have."""
    remaining_entries = []
    for entry in re.split(r"^(?=  \S)", entries, flags=re.MULTILINE):
        names, _, text = entry.partition(":")
        remaining_names = [n for n in names.strip().split(", ") if n not in _PIPELINE_ARGUMENTS]
        if remaining_names:
            remaining_entries.append(f"  {', '.join(remaining_names)}:{text}" if entry else "")
    return "".join(remaining_entries)


def _add_keys(code: str) -> str:
    """Adds arguments to the calls in an example: a key to each function that draws random numbers, and the batch size
    if it has no batch.
    """
    calls = list(_DRAWS.finditer(code))
    values = _VALUES.search(code)
    size_argument = f", batch_size=len({values[1] if values is not None else 'images'})"
    insertions: dict[int, str] = {}  # text to insert, by position in `code`
    for i, call in enumerate(calls):
        end, depth = call.end(), 1  # `end` goes behind the bracket that closes the call
        while depth:
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        key = f", key={'key' if len(calls) == 1 else f'keys[{i}]'}"
        # Group 1 is the name of the function. Other functions take the number of samples from their input.
        arguments = key + (size_argument if call[1].startswith(("random.", "batch_permutation")) else "")
        # The first argument of a call has no comma before it.
        insertions[end - 1] = arguments if code[call.end() : end - 1] else arguments[2:]
    for place in sorted(insertions, reverse=True):
        code = code[:place] + insertions[place] + code[place:]
    return code if len(calls) < 2 else f"  >>> keys = jax.random.split(key, {len(calls)})\n{code}"


def with_generator(text: str) -> str:
    """Changes a text that `docstring` made into that of a function with a default generator."""
    for text_with_key, text_with_generator in _GENERATED:
        text = text.replace(text_with_key, text_with_generator)
    # In examples `key=` is removed; between two other arguments a comma is left.
    return text if "key=" not in text else _IN_EXAMPLE.sub(lambda m: ", " if m[1] and m[2] else "", text)
