"""What is said at the user's line."""

import collections.abc
import re
import warnings

import pytest

from jaxdali import Pipeline, fn, pipeline_def


def test_warnings_are_those_of_the_users_module_and_come_once_from_a_line():
    """As Python's: it shows those of deprecations in ``__main__`` alone."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", category=DeprecationWarning, module=re.escape(__name__) + "$")
        for _ in range(2):
            Pipeline(batch_size=1, experimental_exec_dynamic=True)
    assert [(w.filename, w.category) for w in seen] == [(__file__, DeprecationWarning)]


def test_a_node_can_not_be_iterated():
    """As DALI's: no `Iterable`, by which code tells one output from several; and Python's text says why."""

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

            with pytest.raises(TypeError, match=r"DataNode.* stands for a batch that does not exist yet.*test_building\.py:\d+"):
                define()
