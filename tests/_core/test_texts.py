"""Strings about samples that are computed when they are read."""

import pickle

import pytest

from jaxdali._core.texts import Texts


def test_elements_equal_a_list():
    texts, want = Texts("n{}".format, 5), ["n0", "n1", "n2", "n3", "n4"]
    assert [*texts] == [texts[i - 5] for i in range(5)] == pickle.loads(pickle.dumps(texts)) == want
    assert texts[::2] == want[::2]
    with pytest.raises(IndexError):
        texts[5]


def test_deep_graphs_of_texts_are_read():
    """A graph may be deeper than Python's stack, and each of its values may be made of the two before it."""
    x, y = Texts(lambda i: "a", 1), Texts(lambda i: "b", 1)
    for _ in range(5000):
        x, y = y, Texts.of([x, y], lambda i, x=x, y=y: max(x[i], y[i]))
    assert [*y] == ["b"]
