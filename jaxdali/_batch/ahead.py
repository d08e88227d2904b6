"""`Ahead`: capacities whose programs are compiled, and programs that are compiled ahead of the batches that need them."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._program.ahead import Compilation
from .phases import Phases

Sizes = Mapping[int, int]  # the capacities of a phase
Compilers = Callable[[Mapping[int, Sizes]], Sequence[Callable[[], None]]]


FIRST = 4  # the batch after which compilation ahead begins: whoever takes one batch has up to three made, and needs no other programs


# Note [Compiled ahead]
# A batch that fits none of the capacities waits for a compilation: a tenth of a second, in which training has no data. So after a few
# batches the next larger capacities are compiled in another thread, and again when a batch has used those. Which capacities a batch gets
# then depends on time, but its results do not. A program that is not ready is compiled where it is needed, so a compilation ahead that
# fails or is cancelled costs time only.
class Ahead:
    """Chooses the capacities of batches, and has programs compiled for larger ones.

    Programs of an accelerator are compiled when a batch needs them, because they depend on what is transferred, too.

    Args:
      phases: the programs.
      enabled: whether programs are compiled ahead.
    """

    def __init__(self, phases: Phases, enabled: bool):
        self._phases = phases
        self._enabled = enabled
        self._ready: set[Any] = set()
        self._compiling: dict[Any, Compilation] = {}
        self._batches: collections.Counter[int] = collections.Counter()
        self._settled: dict[int, tuple[frozenset[int], Mapping[int, Sizes]]] = {}  # what phases had when nothing was left to compile

    def fit(self, number: int, needs: Sizes, before: Mapping[int, Sizes]) -> Sizes:
        """Capacities for a phase of a batch. Afterwards none of its programs is being compiled.

        Args:
          number: of the phase; before: the capacities of earlier phases.
        """
        capacities = self._phases.of(number).capacities
        if not self._enabled:
            return capacities.fit(needs)
        settled = self._settled.get(number)
        same = settled is not None and settled[0] == needs.keys() and all(settled[1][n] == sizes for n, sizes in before.items())

        def is_ready(sizes: Sizes) -> bool:
            if same and settled is not None and settled[1][number] == sizes:  # the usual case
                return True
            return self._is_ready(self._key(number, needs, {**before, number: sizes}))

        found = capacities.fit(needs, is_ready)
        if same and settled is not None and settled[1][number] == found:
            return found
        key = self._key(number, needs, {**before, number: found})
        if not self._is_ready(key) and (compiling := self._compiling.pop(key, None)) is not None:
            compiling.settle()
        return found

    def ran(self, number: int, needs: Sizes, sizes: Mapping[int, Sizes], compilers: Compilers):
        """Notes that the programs of a phase have run, and has others compiled.

        Args:
          sizes: the capacities of this phase and the earlier ones.
          compilers: returns for others the functions that compile the programs.
        """
        if not self._enabled or (
            (settled := self._settled.get(number)) is not None
            and settled[0] == needs.keys()
            and settled[1] == sizes
            and self._phases.of(number).capacities.are_wanted
        ):
            return
        self._ready.add(self._key(number, needs, sizes))
        self._batches[number] += 1
        if self._batches[number] < FIRST:
            return
        waits = False
        for other in self._others(number, sizes):
            key = self._key(number, needs, other)
            ready = self._is_ready(key)
            waits |= not ready
            if not ready and key not in self._compiling and other[number].keys() >= needs.keys():
                self._compiling[key] = Compilation(functools.partial(_compile, compilers(other)))
                self._compiling[key].start()
        if not waits:
            self._settled[number] = frozenset(needs), {n: dict(s) for n, s in sizes.items()}

    def close(self):
        """Cancels the compilations that have not begun."""
        for compiling in self._compiling.values():
            compiling.cancel()

    def _others(self, number: int, sizes: Mapping[int, Sizes]) -> Iterator[Mapping[int, Sizes]]:
        """The capacities of a phase that later batches may need, each with those of the earlier phases from which it reads."""
        phase = self._phases.of(number)
        for own in phase.capacities.ahead():
            yield {**sizes, number: own}
            for earlier in phase.reads:
                yield from ({**sizes, number: own, earlier: other} for other in self._phases.of(earlier).capacities.ahead())

    def _is_ready(self, key: Any) -> bool:
        """Whether programs are compiled."""
        if (compiling := self._compiling.get(key)) is not None and compiling.succeeded:
            self._ready.add(key)
            del self._compiling[key]
        return key in self._ready

    def _key(self, number: int, needs: Sizes, sizes: Mapping[int, Sizes]) -> Any:
        """What the programs of a phase depend on: also on whether steps need working memory."""
        return number, frozenset(needs), tuple(frozenset(sizes[n].items()) for n in (number, *self._phases.of(number).reads))


def _compile(compilers: Sequence[Callable[[], None]]):
    for compile in compilers:
        compile()
