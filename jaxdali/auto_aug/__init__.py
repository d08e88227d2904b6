"""Automatic augmentation: AutoAugment, RandAugment and TrivialAugment, with the names of DALI's package."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._core import names as _names
from . import augmentations as augmentations
from . import auto_augment as auto_augment
from . import core as core
from . import rand_augment as rand_augment
from . import trivial_augment as trivial_augment

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
