"""DALI's experimental modules."""

from . import dynamic as dynamic
