"""Moves scripts from DALI: ``python -m jaxdali.port`` says what they use that is not here, tries their pipelines, and runs them."""

from ._command import main as main

__all__ = ["main"]
