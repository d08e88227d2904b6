"""`Pipeline` and `pipeline_def`, under DALI's name for their module. This file is the index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._core import names as _names
from .._core.graph import DataNode as DataNode
from .._pipeline.argument_checks import OperatorConcurrency as OperatorConcurrency
from .._pipeline.argument_checks import StreamPolicy as StreamPolicy
from .._pipeline.conditionals import do_not_convert as do_not_convert
from .._pipeline.pipeline import Pipeline as Pipeline
from .._pipeline.pipeline_def import pipeline_def as _pipeline_def_experimental  # noqa: F401 - scripts import it
from .._pipeline.pipeline_def import pipeline_def as pipeline_def
from . import experimental as experimental

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
