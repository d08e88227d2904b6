"""`AheadCompiler`: sizes whose programs are compiled, and programs that are compiled ahead of the batches that need them."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._core.ragged import SIXTHS, Sizes
from .._program.compilation import Compilation
from .phases import Phases

Compilers = Callable[[Mapping[int, Sizes]], Sequence[Callable[[], None]]]


# The batch after which compilation ahead begins: whoever takes one batch has up to three made, and needs no other
# programs.
FIRST = 4


# Note [Compiled ahead]
# A batch that fits none of the capacities waits for a compilation: a tenth of a second, in which training has no data.
# So after a few batches the next larger capacities are compiled in another thread, and again when a batch has used
# those. Which capacities a batch gets then depends on time, but its results do not. A program that is not ready is
# compiled where it is needed, so a compilation ahead that fails or is cancelled costs time only.
#
# An accelerator gets a part of the capacities. The program for all of them serves every batch that fits them, so it is
# compiled first, and then the one for the part that the last batch needs. Until that is compiled, batches get a larger
# part, which costs transfers and memory.
class AheadCompiler:
    """Chooses the sizes of batches, and has programs compiled for others.

    Args:
      phases: the programs.
    """

    def __init__(self, phases: Phases):
        self._phases = phases
        self._ready: set[Any] = set()
        self._compiling: dict[Any, Compilation] = {}
        self._batches: collections.Counter[int] = collections.Counter()
        # What phases had when nothing was left to compile.
        self._settled: dict[int, tuple[frozenset[int], Mapping[int, Sizes]]] = {}

    def fit(self, number: int, needs: Mapping[int, int], before: Mapping[int, Sizes]) -> Sizes:
        """Sizes for a phase of a batch. Afterwards none of its programs is being compiled.

        Args:
          number: of the phase; needs: see `PhaseMemory`; before: the sizes of earlier phases.
        """
        phase, settled = self._phases.of(number), self._settled.get(number)
        same = (
            settled is not None
            and settled[0] == needs.keys()
            and all(settled[1][n] == sizes for n, sizes in before.items())
        )

        def is_ready(sizes: Sizes) -> bool:
            if same and settled is not None and settled[1][number] == sizes:  # the usual case
                return True
            return self._is_ready(self._key(number, needs, {**before, number: sizes}))

        def ready(capacities: Mapping[int, int]) -> Sizes | None:
            """The smallest sizes of these capacities that hold the batch and whose programs are compiled."""
            sixths = phase.sizes(capacities, needs).sixths
            return next((s for n in range(sixths, SIXTHS + 1) if is_ready(s := Sizes(capacities, n))), None)

        capacities = phase.capacities.fit(needs, lambda capacities: ready(capacities) is not None)
        if (compiled := ready(capacities)) is not None:
            return compiled
        sizes = phase.sizes(capacities, needs)
        if (compiling := self._compiling.pop(self._key(number, needs, {**before, number: sizes}), None)) is not None:
            compiling.settle()
        return sizes

    def ran(self, number: int, needs: Mapping[int, int], sizes: Mapping[int, Sizes], compilers: Compilers):
        """Notes that the programs of a phase have run, and has others compiled.

        Args:
          sizes: those of this phase and the earlier ones.
          compilers: returns for others the functions that compile the programs.
        """
        phase, settled = self._phases.of(number), self._settled.get(number)
        smallest = phase.capacities.is_preferred and sizes[number] == phase.sizes(sizes[number].capacities, needs)
        if smallest and settled is not None and settled[0] == needs.keys() and settled[1] == sizes:
            return
        self._ready.add(self._key(number, needs, sizes))
        self._batches[number] += 1
        if self._batches[number] < FIRST:
            return
        waits = False
        for other in self._others(number, needs, sizes):
            key = self._key(number, needs, other)
            ready = self._is_ready(key)
            waits |= not ready
            if not ready and key not in self._compiling and other[number].capacities.keys() >= needs.keys():
                self._compiling[key] = Compilation(functools.partial(_compile, compilers(other)))
                self._compiling[key].start()
        if not waits:
            self._settled[number] = frozenset(needs), dict(sizes)

    def close(self):
        """Cancels the compilations that have not begun."""
        for compiling in list(self._compiling.values()):  # a thread that could not be waited for may still make a batch
            compiling.cancel()

    def _others(
        self, number: int, needs: Mapping[int, int], sizes: Mapping[int, Sizes]
    ) -> Iterator[Mapping[int, Sizes]]:
        """The sizes of a phase that later batches may need, each with those of the earlier phases from which it reads."""
        phase = self._phases.of(number)
        for capacities in phase.capacities.ahead():
            yield {**sizes, number: Sizes(capacities)}
            if all(n <= capacities.get(k, -1) for k, n in needs.items()):
                yield {**sizes, number: phase.sizes(capacities, needs)}
            for earlier in phase.reads:
                carried = map(Sizes, self._phases.of(earlier).capacities.ahead())
                yield from ({**sizes, number: Sizes(capacities), earlier: c} for c in carried)

    def _is_ready(self, key: Any) -> bool:
        """Whether programs are compiled."""
        if (compiling := self._compiling.get(key)) is not None and compiling.succeeded:
            self._ready.add(key)
            del self._compiling[key]
        return key in self._ready

    def _key(self, number: int, needs: Mapping[int, int], sizes: Mapping[int, Sizes]) -> Any:
        """The key of a phase's programs. They also depend on whether steps need working memory."""
        capacities = (frozenset(sizes[n].capacities.items()) for n in (number, *self._phases.of(number).reads))
        return number, frozenset(needs), sizes[number].sixths, tuple(capacities)


def _compile(compilers: Sequence[Callable[[], None]]):
    for compile in compilers:
        compile()
