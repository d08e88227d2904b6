"""Data sets of all readers, and a thread pool to read them with."""

import tempfile

import pytest
from data_sets import DataSets

from jaxdali import _cpu


@pytest.fixture(scope="module")
def data_sets():
    with tempfile.TemporaryDirectory() as top:
        yield DataSets(top)


@pytest.fixture(scope="module")
def pool():
    number = _cpu.pool_create(2)
    yield number
    _cpu.pool_destroy(number)
