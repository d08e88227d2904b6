"""DALI's module of this name: `pipeline_def` with ``debug=``, which is an argument of every `pipeline_def` here."""

from .._pipeline.pipeline_def import pipeline_def as pipeline_def
