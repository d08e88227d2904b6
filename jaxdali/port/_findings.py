"""Findings in a script: uses of DALI, and remarks on lines."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Use:
    """A use of a name or argument of DALI in a file.

    Attributes:
      line: its number, or in a notebook the cell and the line in it.
      works: whether jaxdali has the name.
    """

    name: str
    file: str
    line: str
    works: bool


@dataclasses.dataclass(frozen=True)
class Remark:
    """A remark on a line: its uses are unknown, or it is slow.

    Attributes:
      line: its number, or in a notebook the cell and the line in it.
    """

    text: str
    file: str
    line: str


@dataclasses.dataclass
class Reading:
    """The findings in a file.

    Attributes:
      uses: of DALI's names and arguments.
      unseen: lines where uses of DALI's names are unknown, with reasons.
      hints: lines where the host waits for a program in each batch.
      ranks: lines where a pipeline runs on the GPU with the number of its process.
      shapes: lines of PyTorch iterators without `dynamic_shape`, in a file that pads each batch to its longest sample.
      fills: lines of PyTorch iterators with a reader's name and the policy FILL, the default.
    """

    uses: list[Use] = dataclasses.field(default_factory=list)
    unseen: list[Remark] = dataclasses.field(default_factory=list)
    hints: list[Remark] = dataclasses.field(default_factory=list)
    ranks: list[Remark] = dataclasses.field(default_factory=list)
    shapes: list[Remark] = dataclasses.field(default_factory=list)
    fills: list[Remark] = dataclasses.field(default_factory=list)
