"""The table of names of other libraries: its answers name existing functions, and users get them where they look."""

import collections
import importlib
import inspect
import re

import numpy as np
import pytest

import jaxdali
import jaxdali.dynamic as jd
from jaxdali import Pipeline, fn, types
from jaxdali._core import names
from jaxdali._core.foreign import FOREIGN, Foreign, answer
from jaxdali._core.words import of_values
from jaxdali._iterator.base import BaseIterator
from jaxdali.fn.__main__ import operators
from jaxdali.plugin.jax import DALIGenericIterator, data_iterator

pytestmark = pytest.mark.same_with_any_jax

ROOTS = {"fn": fn, "types": types, "jaxdali": jaxdali, "jd": jd}
CURRENT = {n: f for n, f in operators().items() if not (f.__doc__ or "").startswith("Deprecated name")}
FUNCTIONS = {
    **CURRENT,
    "Pipeline": Pipeline,
    "data_iterator": data_iterator,
    "DALIGenericIterator": DALIGenericIterator,
}


def resolved(path):
    """The object of a dotted name."""
    root, *parts = path.split(".")
    x = ROOTS[root]
    for part in parts:
        try:
            x = getattr(x, part)
        except AttributeError:
            x = importlib.import_module(f"{x.__name__}.{part}")
    return x


def calls(text):
    """The function calls in an answer: their names, and the names of their arguments."""
    for m in re.finditer(r"\b((?:fn|jaxdali)(?:\.\w+)+)\(", text):
        depth, arguments = 1, ""
        for letter in text[m.end() :]:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
            if not depth:
                break
            arguments += letter if depth == 1 else ""
        yield m[1], re.findall(r"(\w+)=", arguments)


OWNERS = {"pipeline": Pipeline, "iterator": data_iterator, "reader": fn.readers.file}
ANSWERS = sorted({row.answer for row in FOREIGN})


def test_names_in_answers_exist():
    mentioned = set()
    for text in ANSWERS:
        paths = re.findall(r"(?<![\w.])(?:fn|types|jaxdali)(?:\.\w+)+", text)
        mentioned |= set(paths)
        for path in (*paths, *re.findall(r"(?<![\w.])jd(?:\.\w+)+", of_values(text))):
            assert resolved(path) is not None, text
        for path, arguments in calls(text):
            parameters = inspect.signature(resolved(path)).parameters
            assert set(arguments) <= parameters.keys(), text
        for name, owner in re.findall(r"(\w+)=\S* of the (pipeline|iterator|reader)\b", text):
            assert name in inspect.signature(OWNERS[owner]).parameters, text
    assert len(mentioned) > 60, "the patterns find the names in answers"


def test_size_of_the_table():
    libraries = collections.Counter(row.library for row in FOREIGN)
    assert all(
        libraries[x] >= 10
        for x in ("torchvision", "tf.image", "albumentations", "Grain", "torch DataLoader", "PyTorch")
    )
    assert all(row.answer and row.library for row in FOREIGN)


NAMES = [row for row in FOREIGN if row.use == "name"]


@pytest.mark.parametrize("row", NAMES, ids=lambda row: row.name)
def test_names_of_functions(row):
    """In `fn`, and in the words of values in `jaxdali.dynamic`; also where a module of ours has most such names. A few
    are names of our own in one of them.
    """
    module, _, name = row.name.rpartition(".")
    in_fn, in_values = resolved(f"fn.{module}".rstrip(".")), resolved(f"jd.{module}".rstrip("."))
    if name not in names._ELSEWHERE and name not in dir(in_fn):
        with pytest.raises(AttributeError, match=re.escape(row.answer)):
            getattr(in_fn, name)
    if name not in dir(in_values):
        with pytest.raises(AttributeError, match=re.escape(of_values(row.answer))):
            getattr(in_values, name)


def test_names_of_readers():
    with pytest.raises(AttributeError, match=r"instead: jd\.readers\.File\(file_root=\.\.\.\)"):
        jd.readers.ImageFolder
    with pytest.raises(AttributeError, match="did you mean 'Webdataset'"):
        jd.readers.WebDataset


@pytest.mark.parametrize("module", [jaxdali, types])
def test_names_of_types(module):
    for name, expected in {
        "uint8": "types.UINT8",
        "float32": "types.FLOAT",
        "BILINEAR": "types.INTERP_LINEAR",
        "hflip": "fn.flip",
        "transforms": "operators are functions of jaxdali.fn",
    }.items():
        with pytest.raises(AttributeError, match=f"instead: {re.escape(expected)}"):
            getattr(module, name)


def takes(function, name):
    parameter = inspect.signature(function).parameters.get(name)
    return not name or (
        parameter is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    )


ARGUMENTS = [row for row in FOREIGN if row.use == "argument"]


@pytest.mark.parametrize("row", ARGUMENTS, ids=lambda row: f"{row.name}-{row.takes}")
def test_names_of_arguments(row: Foreign):
    """Functions that the answer is for refuse the name with this answer, which begins with an argument of theirs."""
    functions = [
        f for f in FUNCTIONS.values() if takes(f, row.takes) and row.name not in inspect.signature(f).parameters
    ]
    messages = []
    for function in functions[:40] + functions[-3:]:
        inputs = [np.zeros(1)] * (row.takes == "output_map" and function is DALIGenericIterator) * 2
        with pytest.raises(TypeError) as e:
            function(*inputs, **{row.name: 1})
        messages.append((str(e.value), function))
    answering = [f for text, f in messages if f"instead: {row.answer}" in text]
    assert answering, messages[:3]
    argument = re.match(r"(\w+)(?==(?!\S* of the)|,|$)", row.answer)  # of another object see above
    if argument is not None and row.takes:
        assert any(argument[1] in inspect.signature(f).parameters for f in answering)


@pytest.mark.parametrize(
    "row", [row for row in FOREIGN if row.use not in ("name", "argument")], ids=lambda row: f"{row.use}-{row.name}"
)
def test_names_of_attributes(row):
    x = {
        "DataNode": fn.random.uniform(),
        "Batch": jd.batch(np.zeros((2, 3))),
        "Tensor": jd.tensor(np.zeros(3)),
        "DALIGenericIterator": BaseIterator(),
    }[row.use]
    text = row.answer if row.use in ("DataNode", "DALIGenericIterator") else of_values(row.answer)
    with pytest.raises(AttributeError, match=re.escape(text)):
        getattr(x, row.name)
    assert not hasattr(x, row.name)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (
            "take",
            "use itertools.islice(iterator, n) for n batches; with reader_name, "
            "iterator.set_state(iterator.get_state(), restart_epoch=True) then begins the epoch anew",
        ),
        (
            "skip",
            "use next(iterator) to pass over a batch, or set_state(state) to continue from the position of a get_state()",
        ),
        ("shard", "every reader divides its samples by num_shards and shard_id"),
        ("as_numpy_iterator", "use jax.device_get(batch), which makes arrays of NumPy"),
    ],
)
def test_sentences_about_iterators(name, advice):
    """The word before an answer makes a sentence with it."""
    with pytest.raises(AttributeError, match=f"'{name}': {re.escape(advice)}$"):
        getattr(BaseIterator(), name)


def test_other_attributes_of_iterators():
    """Python's messages stay, also those of errors in a property of a subclass."""

    class Mine(BaseIterator):
        mine = property(lambda self: self.other)

    for name in ("other", "mine"):
        with pytest.raises(AttributeError, match=r"^'Mine' object has no attribute 'other'$"):
            getattr(Mine(), name)


def test_spelling_counts_without_a_row():
    assert answer("resizee") == answer("resize") == ""
    with pytest.raises(AttributeError, match="did you mean 'resize'"):
        jd.resizee
    with pytest.raises(AttributeError, match=r"instead: fn\.mel_filter_bank$"):
        fn.MelFilterBank
    with pytest.raises(AttributeError, match="did you mean 'shapes'"):
        jd.batch(np.zeros((2, 3))).shapess
