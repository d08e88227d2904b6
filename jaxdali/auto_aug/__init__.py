"""Automatic augmentation: AutoAugment, RandAugment and TrivialAugment, with the names of DALI's package."""

from . import augmentations as augmentations
from . import auto_augment as auto_augment
from . import core as core
from . import rand_augment as rand_augment
from . import trivial_augment as trivial_augment
