"""Batches made on other machines by `Ray <https://docs.ray.io>`_.

Example:
  >>> from jaxdali.ray import Workers
  >>> iterator = iterator_fn(batch_size=256, workers=Workers(num_workers=8, num_cpus=4))

Needs the extra ``ray``. All machines need jaxdali in one version, and the data under the same paths.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ray.exceptions import GetTimeoutError, RayError, RayTaskError  # pyright: ignore[reportMissingImports]

from ._batch.meter import Statistics
from ._batch.remote import BatchMaker, Definition, Made
from ._core.declaration import Range, Whole, check_fields
from ._core.graph import Node
from .fn._decode import registered

__all__ = ["Workers"]

# Without Ray, type checkers take `import ray` for this module.
ray: Any = importlib.import_module("ray")
_pickle: Any = importlib.import_module("ray.cloudpickle")
_PATIENCE = 10.0  # seconds that the first batch waits for all workers; later it does with those that run
_ATTEMPTS = 4  # to make a batch, on several workers if there are several
_ENVIRONMENT = {"JAX_PLATFORMS": "cpu"}  # accelerators are for training


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers:
    """Makes the batches of an iterator in Ray actors: ``workers=Workers(num_workers=8, num_cpus=4)``.

    The batches, their order, epochs, shards, checkpoints and errors are those of the same iterator without workers; the
    number of workers makes no difference. The pipeline is sent to the workers by Ray's pickling, so it may hold Python
    functions. A worker that dies is started again by Ray, and its batches are made by another one meanwhile. Results
    come through Ray's object store: at most ``2 * num_workers`` batches, and those that the iterator holds.

    Steps on the GPU run on the workers' CPUs; results are then put on the iterator's device or sharding. Ray is
    connected with `ray.init()` if it is not yet.

    Args:
      num_workers: number of actors.
      num_cpus: CPUs that Ray reserves for each; its pipeline uses as many threads, at least one.
      timeout: seconds after which a worker that has not returned a batch is killed, and the batch made by another one.
      options: further options of the actors, as for ``ray.remote(...).options``: ``resources``,
        ``scheduling_strategy``, ``runtime_env``.

    Raises:
      ValueError, TypeError: see the arguments.

    An iterator raises:
      OperatorError: the pipeline has a source that only this process can read, such as `external_source`; the message
      names it.
      TypeError: something in the pipeline can't be pickled; the message names the operator.
      RuntimeError: no worker could be started, or a batch could not be made by several workers in a row.
    """

    num_workers: Annotated[Whole, Range(1)]
    num_cpus: Annotated[float, Range(0)] = 1
    timeout: Annotated[float, Range(0)] = 300.0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        check_fields("Workers", self, ["num_workers", "num_cpus", "timeout"])

    def start(self, definition: Definition) -> _Pool:
        threads = max(1, int(self.num_cpus))
        definition = dataclasses.replace(
            definition, options=dataclasses.replace(definition.options, num_threads=threads, tuned=())
        )
        if not ray.is_initialized():
            ray.init()
        return _Pool(self, _pickled(definition))


def _pickled(definition: Definition) -> bytes:
    try:
        return _pickle.dumps((definition, registered.registered()))
    except Exception as e:
        for node in definition.graphs[0].nodes:
            _check_pickles(node)
        raise TypeError(f"the pipeline can't be sent to Ray's workers: {e}") from e


def _check_pickles(node: Node):
    try:
        _pickle.dumps(node.op)
    except Exception as e:
        raise TypeError(
            f"{node.op.name} (created at {node.where}) holds what can't be sent to Ray's workers: {e}; create it inside the function, or "
            "import it from a module"
        ) from e


class Worker:
    """The actor."""

    def __init__(self, pickled: bytes):
        self._pickled = pickled
        self._maker: BatchMaker | None = None

    def make(self, shard: int, state: dict[str, Any]) -> Made:
        """See `BatchMaker.make`. The pipeline is unpickled here, so that errors reach the iterator."""
        try:
            if self._maker is None:
                definition, decoders = _pickle.loads(self._pickled)
                registered.use(decoders)
                self._maker = BatchMaker(definition)
        except Exception as e:
            return Made(error=e)
        return _picklable(self._maker.make(shard, state))

    def statistics(self) -> Statistics | None:
        return self._maker.statistics() if self._maker is not None else None

    def process(self) -> int:
        """Its number. This answers when the actor runs."""
        return os.getpid()


def _picklable(made: Made) -> Made:
    if made.error is None:
        return made
    try:
        _pickle.loads(_pickle.dumps(made.error))
    except Exception:
        return Made(error=RuntimeError(f"{type(made.error).__name__}: {made.error}"))
    return made


@dataclasses.dataclass(eq=False)
class _Member:
    """An actor of a pool. `starting`: what shows that it runs, at first and after a failure; None: it does."""

    actor: Any
    number: int
    tasks: int = 0
    starting: Any = None


@dataclasses.dataclass(eq=False)
class _Ticket:
    shard: int
    state: dict[str, Any]
    member: _Member
    ref: Any
    attempts: int = 1


class _Pool:
    """The actors of one iterator. A batch may be made twice, by any of them: see Note [Batches by position]."""

    def __init__(self, workers: Workers, pickled: bytes):
        self._workers = workers
        self._name = f"jaxdali-{secrets.token_hex(4)}"
        self._pickled = pickled
        self._lock = threading.Lock()  # guards `_members`
        self._members = [self._member(i) for i in range(workers.num_workers)]
        starting = [m.starting for m in self._members]
        ray.wait(starting, num_returns=len(starting), timeout=min(_PATIENCE, workers.timeout))
        if not ray.wait(starting, timeout=workers.timeout)[0]:
            self.close()
            raise RuntimeError(
                f"none of Ray's workers has started in {workers.timeout:g} s: the cluster may lack {workers.num_cpus:g} free CPUs for one, "
                f"or what options={dict(workers.options)} asks for"
            )

    def _member(self, i: int, generation: int = 0) -> _Member:
        actor = self._actor(i, generation)
        return _Member(actor, i, starting=actor.process.remote())

    def _actor(self, i: int, generation: int = 0) -> Any:
        name = f"{self._name}-worker-{i}" + (f".{generation}" if generation else "")
        options = dict(self._workers.options)
        environment = dict(options.pop("runtime_env", {}))
        environment["env_vars"] = {**_ENVIRONMENT, **environment.get("env_vars", {})}
        made: Any = ray.remote(Worker)
        return made.options(
            name=name, num_cpus=self._workers.num_cpus, max_restarts=-1, runtime_env=environment, **options
        ).remote(self._pickled)

    def submit(self, shard: int, state: dict[str, Any]) -> _Ticket:
        with self._lock:
            for m in self._members:
                self._look_at(m)
            member = self._least_busy(None)
            return _Ticket(shard, state, member, self._begin(member, shard, state))

    def _begin(self, member: _Member, shard: int, state: dict[str, Any]) -> Any:
        member.tasks += 1
        return member.actor.make.remote(shard, state)

    def _least_busy(self, but: _Member | None) -> _Member:
        """The worker to use; `but`: the one that has just failed, if there is another."""
        running = [m for m in self._members if m.starting is None]
        return min([m for m in running if m is not but] or running or self._members, key=lambda m: m.tasks)

    def _await_worker(self):
        """Waits until a worker runs, at most as long as for a batch."""
        deadline = time.monotonic() + self._workers.timeout
        while True:
            with self._lock:
                if not self._members:
                    raise RuntimeError("the iterator is closed")
                for m in self._members:
                    self._look_at(m)
                if any(m.starting is None for m in self._members) or time.monotonic() > deadline:
                    return
            time.sleep(0.1)

    def _look_at(self, member: _Member):
        """Finds out whether a worker has started."""
        if member.starting is not None and ray.wait([member.starting], timeout=0)[0]:
            try:
                ray.get(member.starting)
                member.starting = None
            except RayError:  # it has died again, or is not there yet
                member.starting = member.actor.process.remote()

    def result(self, ticket: _Ticket) -> Made:
        while True:
            try:
                made: Any = ray.get(ticket.ref, timeout=self._workers.timeout)
            except RayTaskError as e:
                self._done(ticket)
                raise (e.cause or e) from None
            except (GetTimeoutError, RayError) as e:
                self._again(ticket, e)
            else:
                self._done(ticket)
                return made

    def _done(self, ticket: _Ticket):
        with self._lock:
            ticket.member.tasks -= 1
            ticket.ref = None

    def _again(self, ticket: _Ticket, error: Exception):
        """Has another worker make a batch, after a failure."""
        with self._lock:
            failed = ticket.member
            failed.tasks -= 1
            if ticket.attempts == _ATTEMPTS:
                said = f"no answer in {self._workers.timeout:g} s" if isinstance(error, GetTimeoutError) else str(error)
                raise RuntimeError(
                    f"{_ATTEMPTS} of Ray's workers failed to make the same batch; the last one: {said}"
                ) from error
            if isinstance(error, GetTimeoutError) and failed in self._members:
                ray.kill(failed.actor)
                self._members[self._members.index(failed)] = self._member(failed.number, ticket.attempts)
            elif failed.starting is None:
                failed.starting = failed.actor.process.remote()
        self._await_worker()
        with self._lock:
            ticket.attempts += 1
            ticket.member = self._least_busy(failed)
            ticket.ref = self._begin(ticket.member, ticket.shard, ticket.state)

    def statistics(self) -> Sequence[Statistics]:
        found = ray.get([m.actor.statistics.remote() for m in self._members], timeout=self._workers.timeout)
        return [x for x in found if x is not None]

    def close(self):
        for m in self._members:
            ray.kill(m.actor)
        self._members.clear()
