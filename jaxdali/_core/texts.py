"""`Texts`: strings about the samples of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# Strings that are made of strings, and these again, are not nested deeper: a graph may have more operators than Python
# has frames, and one string may be made of two at each level.
_DEEPEST = 6


class Texts(Sequence[str]):
    """Strings about the samples of a batch, for messages and source_info. Each is computed when it is read.

    Args:
      text: ``text(i)``: the string about sample `i`. It does not depend on what happens to the batch later.
      count: the number of samples.
      depth: the number of levels of strings that the string is made of.
    """

    def __init__(self, text: Callable[[int], str], count: int, depth: int = 0):
        self._text = text
        self._count = count
        self._depth = depth

    @staticmethod
    def of(parts: Sequence[Sequence[str]], text: Callable[[int], str]) -> Sequence[str]:
        """Strings that are made of the strings of `parts`, with one for each sample in each of them."""
        depth = 1 + max(part._depth if isinstance(part, Texts) else 0 for part in parts)
        texts = Texts(text, len(parts[0]), depth)
        return texts if depth < _DEEPEST else [*texts]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self._text(j) for j in range(*i.indices(self._count))]
        return self._text(range(self._count)[i])  # also from the end; raises IndexError

    def __reduce__(self):
        return list, ([*self],)  # a copy, or another process, gets the strings without what they are made of
