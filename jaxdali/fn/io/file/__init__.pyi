"""Files."""

from ._read import read as read
