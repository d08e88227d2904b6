"""What automatic augmentation is made of: augmentations with a magnitude, policies, and the choice among them."""

from ._augmentation import Augmentation as Augmentation
from ._augmentation import signed_bin as signed_bin
from ._select import select as select
from .decorator import augmentation as augmentation
from .policy import Policy as Policy
