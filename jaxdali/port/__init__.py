"""Moves scripts from DALI: ``python -m jaxdali.port`` reports what they use that jaxdali lacks, and runs them."""

from ._command import main as main

__all__ = ["main"]
