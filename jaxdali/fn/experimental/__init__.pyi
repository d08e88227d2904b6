"""``fn.experimental``: operators that DALI calls experimental, and old names of operators that were."""

from . import decoders as decoders
from . import inputs as inputs
from . import readers as readers
from ._deprecated import audio_resample as audio_resample
from ._deprecated import debayer as debayer
from ._deprecated import equalize as equalize
from ._deprecated import filter as filter
from ._deprecated import inflate as inflate
from ._deprecated import peek_image_shape as peek_image_shape
from ._deprecated import resize as resize
from ._deprecated import tensor_resize as tensor_resize
from ._dilate import dilate as dilate
from ._erode import erode as erode
from ._median_blur import median_blur as median_blur
from ._remap import remap as remap
from ._warp_perspective import warp_perspective as warp_perspective
