"""The options of iterators, with checks."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from .._core.building import warn
from .._core.declaration import check_fields, checked
from .._core.errors import TooFewError
from .._pipeline.lease import has_reader
from .._pipeline.pipeline import Pipeline

# The options that are checked by their annotations alone.
_CHECKED = ("size", "reader_name", "last_batch_padded", "last_batch_policy", "prepare_first_batch", "repeat")


class LastBatchPolicy(enum.Enum):
    """The policy of an iterator if the samples of an epoch don't fill its last batch.

    Attributes:
      FILL: the batch is filled with repetitions of the last sample (if padded), or with the first samples of the next
        epoch.
      DROP: an incomplete batch is left out. Use it with ``pad_last_batch=True`` of the reader: otherwise batches read on
        across the end of an epoch, as in DALI, so that the next epochs lack samples and have others twice.
      PARTIAL: the batch is shorter. JAX iterators need ``mask_name``, and fill the batch; the mask says which rows are
        samples.
    """

    __module__ = "jaxdali.plugin.base_iterator"  # where users find it

    FILL = 0
    DROP = 1
    PARTIAL = 2


@dataclasses.dataclass(frozen=True)
class IteratorOptions:
    """The arguments of the iterators of all frameworks, which document them. None means the default.

    Constructors of iterators repeat these fields, because mypy knows no constructor that has the parameters of another
    function.

    Raises:
      ValueError, TypeError: an option is wrong, or two can't be combined.
    """

    output_map: Iterable[str] = ()
    size: int = -1
    reader_name: str | None = None
    auto_reset: str | bool | None = False
    last_batch_padded: bool = False
    last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL
    prepare_first_batch: bool = True
    repeat: bool = dataclasses.field(default=False, kw_only=True)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """The options among the arguments of a function."""
        return cls(**{f.name: arguments[f.name] for f in dataclasses.fields(cls) if f.name in arguments})

    def __post_init__(self):
        """Checks the options. `output_map` becomes a list, and `auto_reset` a bool."""
        self._set("output_map", self._names())
        check_fields("iterator", self, _CHECKED)
        reset = (
            False
            if self.auto_reset is None
            else checked("iterator", "auto_reset", Literal[True, False, "yes", "True", "no"], self.auto_reset)
        )
        self._set("auto_reset", reset in (True, "yes", "True"))
        if self.size == 0:
            raise ValueError("size must be positive, or -1: until a source ends")
        if self.size > 0 and self.reader_name is not None:
            raise ValueError(
                f"size={self.size} and reader_name={self.reader_name!r} can't be given together: the reader determines the size"
            )
        if self.last_batch_padded and self.reader_name is not None:
            raise ValueError(
                "last_batch_padded=True and reader_name can't be given together: the reader's pad_last_batch applies"
            )

    def _names(self) -> list[str]:
        """Returns `output_map` as a list. Raises TypeError or ValueError if it is not a list of distinct names."""
        if isinstance(self.output_map, str):  # its letters are no names
            raise TypeError(f"output_map must be a list of names, such as [{self.output_map!r}], got a string")
        try:
            names = list(self.output_map)
        except TypeError:
            raise TypeError(f"output_map must be a list of names, got {self.output_map!r}") from None
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"output_map must be a list of names, got {name!r} in it")
        if len(set(names)) != len(names):
            raise ValueError(f"the names in output_map must be distinct, got {names}")
        return names

    def _set(self, name: str, x: Any):
        object.__setattr__(self, name, x)  # the dataclass is frozen

    @property
    def common_options(self) -> Self:
        """The options that iterators over the same pipelines must have in common to replace each other."""
        return dataclasses.replace(self, auto_reset=False, prepare_first_batch=True, repeat=False)

    @property
    def has_epoch_size(self) -> bool:
        """Whether an epoch has a number of samples; if not, it goes on until the data end."""
        return self.size > 0 or self.reader_name is not None

    def check_pipelines(self, pipeline: Pipeline, number: int):
        """Checks that the options suit this number of pipelines in all processes, of which `pipeline` is one."""
        if not self.has_epoch_size and number > 1:
            raise ValueError(
                "with several pipelines or shards pass reader_name (or size), so that all end their epochs together; for data "
                "without end pass a size of your choice and repeat=True"
            )
        if self.size > 0 and has_reader(pipeline):
            warn(
                "size is given, but the pipeline has a reader: pass the reader's name= as reader_name instead, which "
                "determines the size and padding"
            )


def list_of(pipelines: Any) -> list[Pipeline]:
    """Returns one pipeline or several as a list, and checks their types."""
    if isinstance(pipelines, Pipeline):
        return [pipelines]
    try:
        result: list[Any] = list(() if pipelines is None else pipelines)
    except TypeError:
        raise TypeError(f"pipelines must be a Pipeline or a list of them, got {type(pipelines).__name__}") from None
    if not result:
        raise TooFewError("at least one pipeline is needed, got none")
    for p in result:
        if not isinstance(p, Pipeline):
            raise TypeError(f"pipelines must be Pipeline objects, got {type(p).__name__}")
    return result
