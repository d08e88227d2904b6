"""Families of operators: each is one native kernel, or one function of arrays, and needs of an operator its parameters alone."""

from .._elementwise import Elementwise as Elementwise
from .._elementwise import samples_of_blocks as samples_of_blocks
from .borders import BORDERS as BORDERS
from .color_matrix import ColorMatrix as ColorMatrix
from .layouts import DEFAULT_LAYOUTS as DEFAULT_LAYOUTS
from .layouts import SPATIAL as SPATIAL
from .layouts import image_layout as image_layout
from .layouts import spec_of as spec_of
from .remap import Remap as Remap
from .separable import Separable as Separable
from .stencil import Around as Around
from .stencil import Stencil as Stencil
from .warp import Warp as Warp
from .window import Part as Part
from .window import Window as Window
from .window import WindowOnHost as WindowOnHost
from .window import call_window as call_window
