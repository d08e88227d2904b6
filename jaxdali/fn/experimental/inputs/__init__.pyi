"""``fn.experimental.inputs``: data that are fed and decoded bit by bit."""

from ._video import video as video
