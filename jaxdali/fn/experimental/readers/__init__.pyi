"""``fn.experimental.readers``: readers that DALI calls experimental."""

from ._video import video as video
