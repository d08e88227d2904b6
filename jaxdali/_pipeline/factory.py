"""Types of factories of pipelines and iterators, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Factory(Protocol[P, R]):
    """A function that takes the arguments of a definition and those of `Pipeline`. Type checkers can't name both."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(
        self,
        *args: Any,
        batch_size: int | None = ...,
        num_threads: int | str | None = ...,
        device_id: int | None = ...,
        seed: int | None = ...,
        prefetch_queue_depth: int | dict[str, int] | str = ...,
        enable_checkpointing: bool = ...,
        enable_statistics: bool = ...,
        enable_conditionals: bool = ...,
        checkpoints: Sequence[bytes] | None = ...,
        **kwargs: Any,
    ) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> R: ...


class Decorator(Protocol[R]):
    """A decorator with arguments: it takes the definition."""

    def __call__(self, fn: Callable[P, Any], /) -> Factory[P, R]: ...
