"""``fn.sizes``: the sizes that vision-language models resize images to."""

from ._longest_side import longest_side as longest_side
from ._padded_tiles import padded_tiles as padded_tiles
from ._pan_and_scan import pan_and_scan as pan_and_scan
from ._patch_budget import patch_budget as patch_budget
from ._smart_resize import smart_resize as smart_resize
from ._tiles import tiles as tiles
from ._token_budget import token_budget as token_budget
