"""The names of DALI 2.4's functions."""

import functools

import places

from jaxdali import fn
from jaxdali._core.names import hint


def test_each_function_of_dali_is_here_or_has_a_replacement():
    """The file has all public names in DALI's module `fn`."""
    names = (places.DATA / "dali_fn_names.txt").read_text().split()
    assert len(names) > 150
    lacking = []
    for name in names:
        try:
            functools.reduce(getattr, name.split("."), fn)
        except AttributeError:
            lacking.append(name)
            assert hint(f"fn.{name}"), name
    assert lacking == ["experimental.readers.fits", "optical_flow", "video_reader_resize"]
