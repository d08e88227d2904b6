"""Readers: operators that bring a data set's samples into a pipeline."""

from ._file import file as file
from ._numpy import numpy as numpy
