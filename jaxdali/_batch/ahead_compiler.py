"""`AheadCompiler`: chooses sizes whose programs are compiled, and compiles programs ahead of the batches that need
them.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._core.ragged import SIXTHS, Sizes
from .._program.compilation import Compilation
from .phases import Phases

# Returns for the sizes of each phase the functions that compile the programs.
Compilers = Callable[[Mapping[int, Sizes]], Sequence[Callable[[], None]]]


# The batch after which compilation ahead begins. A user who takes only one batch has up to three made, and should not
# pay for further programs.
FIRST_BATCH = 4


class _Settled(NamedTuple):
    """A batch of a phase after which nothing was left to compile.

    Attributes:
      needs: the buffers that the batch needed, as keys of `PhaseMemory.needs`.
      sizes: the sizes of the phase and of the earlier ones.
    """

    needs: frozenset[int]
    sizes: Mapping[int, Sizes]


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
    """Chooses the sizes of batches, and compiles programs for other sizes ahead. See Note [Compiled ahead].

    Args:
      phases: the programs.
    """

    def __init__(self, phases: Phases):
        self._phases = phases
        self._ready_keys: set[Any] = set()  # of compiled programs, see `_key`
        self._compilations: dict[Any, Compilation] = {}  # that run, or wait to run
        self._num_batches: collections.Counter[int] = collections.Counter()  # by phase
        # By phase: the last batch, if nothing was left to compile. A batch like it is done with at once.
        self._settled: dict[int, _Settled] = {}

    def fit(self, number: int, needs: Mapping[int, int], earlier: Mapping[int, Sizes]) -> Sizes:
        """Chooses sizes for a phase of a batch. Afterwards none of the programs with these sizes is being compiled.

        Args:
          number: number of the phase.
          needs: elements or bytes that the batch needs of each buffer, by the buffer's number in the phase.
          earlier: the sizes of the batch's earlier phases.
        """
        phase, settled = self._phases.of(number), self._settled.get(number)
        is_settled = (
            settled is not None
            and settled.needs == needs.keys()
            and all(settled.sizes[n] == sizes for n, sizes in earlier.items())
        )

        def is_ready(sizes: Sizes) -> bool:
            if is_settled and settled is not None and settled.sizes[number] == sizes:  # the usual case
                return True
            return self._is_ready(self._key(number, needs, {**earlier, number: sizes}))

        def smallest_ready(capacities: Mapping[int, int]) -> Sizes | None:
            """The smallest sizes of these capacities that hold the batch and whose programs are compiled; None: there
            are none.
            """
            # Programs for a larger part of the buffers hold the batch, too. The part is counted in sixths, see `Sizes`.
            sixths = phase.sizes(capacities, needs).sixths
            return next((s for n in range(sixths, SIXTHS + 1) if is_ready(s := Sizes(capacities, n))), None)

        capacities = phase.capacities.fit(needs, lambda capacities: smallest_ready(capacities) is not None)
        if (ready_sizes := smallest_ready(capacities)) is not None:
            return ready_sizes
        sizes = phase.sizes(capacities, needs)
        key = self._key(number, needs, {**earlier, number: sizes})
        # No program is ready, so the batch compiles its own, unless this one is being compiled already.
        if (compilation := self._compilations.pop(key, None)) is not None:
            compilation.settle()
        return sizes

    def note_run(self, number: int, needs: Mapping[int, int], sizes: Mapping[int, Sizes], compilers: Compilers):
        """Notes that the programs of a phase have run, and starts compilations of programs for other sizes.

        Args:
          number: number of the phase.
          needs: elements or bytes that the batch needed of each buffer, by the buffer's number in the phase.
          sizes: the sizes of this phase and of the earlier ones.
          compilers: returns for other sizes the functions that compile the programs.
        """
        phase, settled = self._phases.of(number), self._settled.get(number)
        # Whether no smaller sizes would have held the batch.
        is_smallest = phase.capacities.is_preferred and sizes[number] == phase.sizes(sizes[number].capacities, needs)
        if is_smallest and settled is not None and settled.needs == needs.keys() and settled.sizes == sizes:
            return
        self._ready_keys.add(self._key(number, needs, sizes))
        self._num_batches[number] += 1
        if self._num_batches[number] < FIRST_BATCH:
            return
        all_ready = True  # the programs for all sizes that later batches may need
        for other_sizes in self._sizes_ahead(number, needs, sizes):
            key = self._key(number, needs, other_sizes)
            is_ready = self._is_ready(key)
            all_ready &= is_ready
            if not is_ready and key not in self._compilations and other_sizes[number].capacities.keys() >= needs.keys():
                self._compilations[key] = Compilation(functools.partial(_compile_all, compilers(other_sizes)))
                self._compilations[key].start()
        if all_ready:
            self._settled[number] = _Settled(frozenset(needs), dict(sizes))

    def close(self):
        """Cancels the compilations that have not begun."""
        # A copy, because a thread that could not be waited for may still make a batch.
        for compilation in list(self._compilations.values()):
            compilation.cancel()

    def _sizes_ahead(
        self, number: int, needs: Mapping[int, int], sizes: Mapping[int, Sizes]
    ) -> Iterator[Mapping[int, Sizes]]:
        """The sizes of a phase that later batches may need, each with the sizes of earlier phases from which it reads.

        Args:
          number: number of the phase.
          needs: elements or bytes that the last batch needed of each buffer, by the buffer's number in the phase.
          sizes: the sizes with which it ran, of this phase and of the earlier ones.
        """
        phase = self._phases.of(number)
        for capacities in phase.capacities.ahead():
            # First the whole buffers, which serve each batch that fits; then the part that this batch needs.
            yield {**sizes, number: Sizes(capacities)}
            if all(n <= capacities.get(k, -1) for k, n in needs.items()):
                yield {**sizes, number: phase.sizes(capacities, needs)}
            for earlier in phase.reads:
                carried = map(Sizes, self._phases.of(earlier).capacities.ahead())
                yield from ({**sizes, number: Sizes(capacities), earlier: c} for c in carried)

    def _is_ready(self, key: Any) -> bool:
        """Whether the programs with this key are compiled."""
        if (compilation := self._compilations.get(key)) is not None and compilation.succeeded:
            self._ready_keys.add(key)
            del self._compilations[key]
        return key in self._ready_keys

    def _key(self, number: int, needs: Mapping[int, int], sizes: Mapping[int, Sizes]) -> Any:
        """The key of a phase's programs for these sizes. They also depend on which steps need working memory."""
        capacities = (frozenset(sizes[n].capacities.items()) for n in (number, *self._phases.of(number).reads))
        return number, frozenset(needs), sizes[number].sixths, tuple(capacities)


def _compile_all(compilers: Sequence[Callable[[], None]]):
    for compile_program in compilers:
        compile_program()
