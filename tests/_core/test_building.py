"""Warnings and errors that name the user's line."""

import collections.abc
import re
import warnings

import pytest

from jaxdali import Pipeline, fn, pipeline_def


def test_warnings_of_users_module_once_per_line():
    """Python shows deprecations only if they are attributed to ``__main__``, so the module must be the user's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", category=DeprecationWarning, module=re.escape(__name__) + "$")
        for _ in range(2):
            Pipeline(batch_size=1, experimental_exec_dynamic=True)
    assert [(w.filename, w.category) for w in caught] == [(__file__, DeprecationWarning)]


def test_a_node_can_not_be_iterated():
    """A node is not an `Iterable`, as in DALI, whose users tell one output from several by that. The error explains
    it.
    """

    def unpacked(x):
        a, b = x
        return a, b

    ways = [list, iter, unpacked, lambda x: [*x], lambda x: max(*x), lambda x: 3 in x]
    for conditionals in (False, True):
        for way in ways:

            @pipeline_def(batch_size=1, num_threads=1, enable_conditionals=conditionals)
            def define(way=way):
                x = fn.random.coin_flip()
                assert not isinstance(x, collections.abc.Iterable)
                return way(x)

            with pytest.raises(
                TypeError, match=r"DataNode.* stands for a batch that does not exist yet.*test_building\.py:\d+"
            ):
                define()
