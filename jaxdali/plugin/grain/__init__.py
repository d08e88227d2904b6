"""For Grain: pipelines as its datasets, readers as its sources, functions of batches as its transforms. Needs the extra
``jaxdali[grain]``.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    import grain as _grain  # noqa: F401
except ModuleNotFoundError as _e:
    if _e.name != "grain":
        raise
    raise ImportError("jaxdali.plugin.grain needs Grain: pip install jaxdali[grain]") from _e

from ..._core import names as _names
from ._iter_dataset import iter_dataset as iter_dataset
from ._source import source as source
from ._transforms import BatchTransform as BatchTransform
from ._transforms import SampleKey as SampleKey

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
