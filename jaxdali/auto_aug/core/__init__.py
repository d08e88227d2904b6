"""The parts of automatic augmentation: augmentations with a magnitude, policies, and the choice among them."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..._core import names as _names
from ._augmentation import Augmentation as Augmentation
from ._augmentation import signed_bin as signed_bin
from ._select import select as select
from .decorator import augmentation as augmentation
from .policy import Policy as Policy

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
