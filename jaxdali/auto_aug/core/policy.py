"""Policies of AutoAugment."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from ..._core.errors import ArgumentError
from ._augmentation import Augmentation

SubPolicy = Sequence[tuple[Augmentation, float, int | None]]  # (augmentation, probability, magnitude bin or None)


class Policy:
    """The sequences of augmentations that AutoAugment chooses from (https://arxiv.org/abs/1805.09501).

    Args:
      name: the name of the policy.
      num_magnitude_bins: the number of bins that the magnitudes of its augmentations are divided into.
      sub_policies: sequences of (augmentation, probability that it is applied, magnitude bin or None). For each sample
        one sequence is chosen, all equally likely. If two augmentations have the same name, all names get a number in
        front.

    Raises:
      ArgumentError: `sub_policies` has another form, a probability is outside 0 to 1, or a bin is missing or out of
        range.
    """

    def __init__(self, name: str, num_magnitude_bins: int, sub_policies: Sequence[SubPolicy]):
        """Checks the arguments, and copies `sub_policies` as tuples."""
        if isinstance(num_magnitude_bins, bool) or not isinstance(num_magnitude_bins, int) or num_magnitude_bins < 1:
            raise ArgumentError(f"num_magnitude_bins must be a positive number, got {num_magnitude_bins!r}")
        if not isinstance(sub_policies, (list, tuple)) or not all(isinstance(s, (list, tuple)) for s in sub_policies):
            raise ArgumentError(f"sub_policies must be a list of lists, got {sub_policies!r:.200}")
        self.name = name
        self.num_magnitude_bins = num_magnitude_bins
        for entry in (e for s in sub_policies for e in s):
            self._check_entry(entry)
        self.sub_policies = _with_distinct_names(tuple(tuple((a, p, m) for a, p, m in s) for s in sub_policies))

    def _check_entry(self, entry: object):
        """Checks a step of a sub-policy. Raises ArgumentError, or warns of steps without an effect."""
        if not isinstance(entry, (list, tuple)) or len(entry) != 3:
            raise ArgumentError(
                f"an entry of a sub-policy must be (augmentation, probability, magnitude bin), got {entry!r}"
            )
        augmentation, probability, magnitude = entry
        if not isinstance(augmentation, Augmentation):
            raise ArgumentError(
                f"an entry of a sub-policy must have an augmentation, see the decorator of that name; got {augmentation!r}"
            )
        if isinstance(probability, bool) or not isinstance(probability, (int, float)) or not 0 <= probability <= 1:
            raise ArgumentError(
                f"the probability of {augmentation.name} must be a number from 0 to 1, got {probability!r}"
            )
        if probability == 0:
            warnings.warn(f"the policy {self.name!r} has {augmentation.name} with probability 0", stacklevel=3)
        if magnitude is None:
            if augmentation.mag_range is not None:
                raise ArgumentError(
                    f"the policy {self.name!r} has {augmentation.name} without a magnitude bin, but that has magnitudes"
                )
            return
        if augmentation.mag_range is None:
            warnings.warn(
                f"the policy {self.name!r} has {augmentation.name} with a magnitude bin, but that has no magnitudes",
                stacklevel=3,
            )
        if (
            isinstance(magnitude, bool)
            or not isinstance(magnitude, int)
            or not 0 <= magnitude < self.num_magnitude_bins
        ):
            maximum = self.num_magnitude_bins - 1
            raise ArgumentError(
                f"the magnitude bin of {augmentation.name} must be a number from 0 to {maximum}, got {magnitude!r}"
            )

    @property
    def augmentations(self) -> dict[str, Augmentation]:
        """All augmentations by their names, in alphabetical order."""
        by_name = {a.name: a for s in self.sub_policies for a, _, _ in s}
        return dict(sorted(by_name.items()))

    def __repr__(self) -> str:
        rows = "".join(f"\n  {[(a.name, p, m) for a, p, m in s]}" for s in self.sub_policies)
        return f"Policy(name={self.name!r}, num_magnitude_bins={self.num_magnitude_bins}, sub_policies:{rows})"


def _with_distinct_names(sub_policies: tuple[tuple[tuple[Augmentation, float, int | None], ...], ...]):
    """The sequences with a distinct name for each augmentation: if two have the same, all get a number in front."""
    augmentations = list(dict.fromkeys(a for s in sub_policies for a, _, _ in s))
    if len({a.name for a in augmentations}) == len(augmentations):
        return sub_policies
    digits = len(str(len(augmentations) - 1))
    renamed = {a: a.augmentation(name=f"{i:0{digits}}__{a.name}") for i, a in enumerate(augmentations)}
    return tuple(tuple((renamed[a], p, m) for a, p, m in s) for s in sub_policies)
