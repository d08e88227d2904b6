"""DALI's module of this name: `pipeline_def` with ``debug=``, which is an argument of every `pipeline_def` here."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._core import names as _names
from .._pipeline.pipeline_def import pipeline_def as pipeline_def

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
