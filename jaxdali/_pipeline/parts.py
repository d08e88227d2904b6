"""`Parts`: what a pipeline consists of, out of the way of its user's names."""

from __future__ import annotations

import functools
import secrets
import weakref
from collections.abc import Callable
from typing import Any

import jax

from .._core.graph import Graph
from .._data.source import Source
from . import arguments as check
from .definition import Definition
from .session import Session
from .settings import Settings


class Parts:
    """The arguments of a pipeline, its definition, and the session that runs it: what iterators use, too, which take the pipeline over.

    Args:
      pipeline: whose these are. It holds them, so they do not hold it: it becomes garbage, and stops, when its user lets go of it.
      settings: its arguments.
      restored: the checkpoint that it goes on from, as `checkpoint.from_bytes` returns it; None: it starts anew.
      iter_setup: the user's method that is called before each batch; None: there is none.

    Attributes:
      definition: makes the graph.
      session: runs it.
      seed: given, drawn, or a checkpoint's.
    """

    def __init__(
        self,
        pipeline: Any,
        settings: Settings,
        restored: tuple[dict[str, Any], dict[str, Any] | None] | None,
        iter_setup: Callable[[], None] | None,
    ):
        self.settings = settings
        self.definition = Definition(pipeline, settings)
        self.session = Session(settings)
        self.seed: int = settings.seed if settings.seed is not None else secrets.randbits(31)
        self.restore(restored)
        self._iter_setup = None if iter_setup is None else weakref.WeakMethod(iter_setup)

    def restore(self, checkpoint: tuple[dict[str, Any], dict[str, Any] | None] | None):
        """What to start from; its seed is the pipeline's from now on."""
        self.session.start = checkpoint
        if checkpoint is not None:
            self.seed = int(checkpoint[0]["seed"])

    @functools.cached_property
    def device(self) -> jax.Device:
        """The device of "mixed" and "gpu" operators, and of the outputs."""
        return check.local_device(self.settings.device_id)

    @property
    def graph(self) -> Graph:
        """What was defined. From its first use on it stays as it is."""
        return self.definition.graph

    @property
    def setups(self) -> list[Callable[[], None]]:
        """What is called before each batch: `iter_setup`, if a subclass has one of its own."""
        weak = self._iter_setup
        if weak is None:
            return []

        def call():
            method = weak()
            if method is not None:
                method()

        return [call]

    def build(self):
        """Makes what runs the pipeline, unless there is something already."""
        if not self.session.built:
            self._check_arguments()
            self.session.build(self.graph, self.setups, self.device, self.seed)

    def claim(self) -> dict[int, Source]:
        """Hands the pipeline over to an iterator, and the sources that `build` has opened."""
        self._check_arguments()
        return self.session.claim()

    def _check_arguments(self):
        self.settings.check_to_run()
        for name, wanted in self.settings.outputs.items():
            check.per_output(self.graph, name, wanted)
