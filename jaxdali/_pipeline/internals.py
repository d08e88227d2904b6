"""`PipelineInternals`: the objects behind a `Pipeline`, apart from the names that users see."""

from __future__ import annotations

import functools
import secrets
import weakref
from collections.abc import Callable
from typing import Any

import jax

from .._core.graph import Graph
from .._data.source import Source
from . import argument_checks
from .debug import DebugSession
from .definition import Definition
from .pipeline_settings import PipelineSettings
from .session import Session


class PipelineInternals:
    """The arguments of a pipeline, its definition, and the session that runs it. Iterators use these when they take
    over the pipeline.

    Args:
      pipeline: the pipeline, which holds this object. Only a weak reference is kept, so that it is collected, and
        stops, when its user drops it.
      settings: its arguments.
      restored: the checkpoint to continue from, as `checkpoint.from_bytes` returns it; None: start anew.
      iter_setup: a bound method that a subclass overrides, called before each batch; None: it is not overridden.

    Attributes:
      definition: makes the graph.
      session: runs the graph; with debug=True, see Note [Debug].
      seed: the argument, a random number, or the seed of the checkpoint.
    """

    def __init__(
        self,
        pipeline: Any,
        settings: PipelineSettings,
        restored: tuple[dict[str, Any], dict[str, Any] | None] | None,
        iter_setup: Callable[[], None] | None,
    ):
        self.settings = settings
        self.definition = Definition(pipeline, settings)
        self.session: Session | DebugSession = (
            DebugSession(settings, self.definition) if settings.debug else Session(settings)
        )
        self.seed: int = settings.seed if settings.seed is not None else secrets.randbits(31)
        self.restore(restored)
        self._iter_setup = None if iter_setup is None else weakref.WeakMethod(iter_setup)

    def restore(self, checkpoint: tuple[dict[str, Any], dict[str, Any] | None] | None):
        """Sets the checkpoint to start from. Its seed becomes the pipeline's."""
        self.session.start = checkpoint
        if checkpoint is not None:
            record, _ = checkpoint
            self.seed = int(record["seed"])

    @functools.cached_property
    def device(self) -> jax.Device:
        """The device of "mixed" and "gpu" operators, and of the outputs."""
        return argument_checks.local_device(self.settings.device_id)

    @property
    def graph(self) -> Graph:
        """The graph. It is fixed when it is first used."""
        return self.definition.graph

    @property
    def setups(self) -> list[Callable[[], None]]:
        """Functions that are called before each batch: `iter_setup`, if a subclass overrides it."""
        weak_method = self._iter_setup
        if weak_method is None:
            return []

        def call_iter_setup():
            method = weak_method()
            if method is not None:
                method()

        return [call_iter_setup]

    def build(self):
        """Builds the session, unless it is built already."""
        if self.session.built:
            return
        if isinstance(self.session, DebugSession):
            self.settings.check_to_run()
            self.session.build(self.setups, self.device, self.seed)
        else:
            self._check_arguments()
            self.session.build(self.graph, self.setups, self.device, self.seed)

    def claim(self) -> dict[int, Source]:
        """Hands the pipeline over to an iterator. Returns the sources that `build` has opened."""
        if not isinstance(self.session, DebugSession):
            self._check_arguments()
        return self.session.claim()

    def _check_arguments(self):
        """Checks what only a pipeline that runs needs, and that the requirements suit the number of outputs."""
        self.settings.check_to_run()
        for name, requirement in self.settings.output_requirements.items():
            argument_checks.per_output(self.graph, name, requirement)
