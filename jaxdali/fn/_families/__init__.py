"""Base classes and functions that operators share. A family is the base class of operators that run the same native
kernel, or the same function of arrays.

No module of this package imports an operator.
"""

from .borders import BORDERS as BORDERS
from .color_matrix import ColorMatrix as ColorMatrix
from .conversion import convert as convert
from .conversion import cut as cut
from .cropping import CropWindow as CropWindow
from .cropping import axes_of as axes_of
from .cropping import crop_sizes as crop_sizes
from .cropping import crop_start as crop_start
from .drawing import draw as draw
from .drawing import uniforms as uniforms
from .elementwise import Elementwise as Elementwise
from .layouts import DEFAULT_LAYOUTS as DEFAULT_LAYOUTS
from .layouts import SPATIAL as SPATIAL
from .layouts import filtered_layout as filtered_layout
from .layouts import image_layout as image_layout
from .layouts import spec_of as spec_of
from .ragged import aligned as aligned
from .ragged import fit as fit
from .ragged import samples_of_blocks as samples_of_blocks
from .ragged import shapes_of as shapes_of
from .reduction import call_reduce as call_reduce
from .remap import PointGather as PointGather
from .separable import Separable as Separable
from .stencil import Neighbourhoods as Neighbourhoods
from .stencil import Stencil as Stencil
from .warp import Warp as Warp
from .window import Part as Part
from .window import Window as Window
from .window import WindowOnHost as WindowOnHost
from .window import call_window as call_window
