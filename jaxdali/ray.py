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
from ._batch.remote import BatchMaker, ShardBatch, WorkerSpec
from ._core.declaration import Range, Whole, check_fields
from ._core.graph import Node
from .fn._decode import registered

__all__ = ["Workers"]

# Without Ray, type checkers take `import ray` for this module.
ray: Any = importlib.import_module("ray")
_pickle: Any = importlib.import_module("ray.cloudpickle")
_START_PATIENCE = 10.0  # seconds that the first batch waits until all workers run; after that, one is enough
_ATTEMPTS = 4  # at making a batch, each on another worker if there are several
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

    def start(self, definition: WorkerSpec) -> _Pool:
        """Starts the actors for an iterator with this definition."""
        threads = max(1, int(self.num_cpus))
        definition = dataclasses.replace(
            definition, options=dataclasses.replace(definition.options, num_threads=threads, tuned=())
        )
        if not ray.is_initialized():
            ray.init()
        return _Pool(self, _pickle_definition(definition))


def _pickle_definition(definition: WorkerSpec) -> bytes:
    """Pickles a definition, together with the registered decoders of images, which it may need."""
    try:
        return _pickle.dumps((definition, registered.registered()))
    except Exception as e:
        for node in definition.graphs[0].nodes:
            _check_can_pickle(node)
        raise TypeError(f"the pipeline can't be sent to Ray's workers: {e}") from e


def _check_can_pickle(node: Node):
    """Raises TypeError, with the user's line, if the operator of a node can't be pickled."""
    try:
        _pickle.dumps(node.op)
    except Exception as e:
        raise TypeError(
            f"{node.op.name} (created at {node.where}) holds what can't be sent to Ray's workers: {e}; create it inside the function, or "
            "import it from a module"
        ) from e


class Worker:
    """The class of the actors, which make batches."""

    def __init__(self, pickled_definition: bytes):
        self._pickled_definition = pickled_definition
        self._maker: BatchMaker | None = None

    def make(self, shard: int, state: dict[str, Any]) -> ShardBatch:
        """See `BatchMaker.make`. The pipeline is unpickled in the first call, so that its errors reach the iterator."""
        try:
            if self._maker is None:
                definition, decoders = _pickle.loads(self._pickled_definition)
                registered.use(decoders)
                self._maker = BatchMaker(definition)
        except Exception as e:
            return ShardBatch(error=e)
        return _with_picklable_error(self._maker.make(shard, state))

    def statistics(self) -> Statistics | None:
        return self._maker.statistics() if self._maker is not None else None

    def process(self) -> int:
        """The process id. The actor runs when this returns."""
        return os.getpid()


def _with_picklable_error(result: ShardBatch) -> ShardBatch:
    """The result; an error that can't be pickled and unpickled becomes a RuntimeError with its text."""
    if result.error is None:
        return result
    try:
        _pickle.loads(_pickle.dumps(result.error))
    except Exception:
        return ShardBatch(error=RuntimeError(f"{type(result.error).__name__}: {result.error}"))
    return result


@dataclasses.dataclass(eq=False)
class _Actor:
    """An actor of a pool.

    Attributes:
      handle: Ray's handle of the actor.
      number: its place in the pool.
      num_tasks: number of tasks that it has and that are not finished.
      start_ref: a result that is ready when the actor runs, at first and after a failure; None: it runs.
    """

    handle: Any
    number: int
    num_tasks: int = 0
    start_ref: Any = None


@dataclasses.dataclass(eq=False)
class _Task:
    """A batch that an actor makes.

    Attributes:
      shard: number of the local shard.
      state: the state before the batch.
      actor: the actor that makes it now.
      ref: Ray's reference to the result; None: it was taken.
      attempts: number of actors that tried.
    """

    shard: int
    state: dict[str, Any]
    actor: _Actor
    ref: Any
    attempts: int = 1


class _Pool:
    """The actors of one iterator. A batch may be made twice, by any of them: see Note [Batches by position]."""

    def __init__(self, workers: Workers, pickled_definition: bytes):
        self._workers = workers
        self._name = f"jaxdali-{secrets.token_hex(4)}"
        self._pickled_definition = pickled_definition
        self._lock = threading.Lock()  # guards `_actors`
        self._actors = [self._start_actor(i) for i in range(workers.num_workers)]
        start_refs = [actor.start_ref for actor in self._actors]
        ray.wait(start_refs, num_returns=len(start_refs), timeout=min(_START_PATIENCE, workers.timeout))
        ready, _ = ray.wait(start_refs, timeout=workers.timeout)  # at least one of them, or none in time
        if not ready:
            self.close()
            raise RuntimeError(
                f"none of Ray's workers has started in {workers.timeout:g} s: the cluster may lack {workers.num_cpus:g} free CPUs for one, "
                f"or what options={dict(workers.options)} asks for"
            )

    def _start_actor(self, number: int, generation: int = 0) -> _Actor:
        """Creates an actor, which runs as soon as its `start_ref` is ready. `generation` > 0: in place of one that was
        killed.
        """
        handle = self._create_actor(number, generation)
        return _Actor(handle, number, start_ref=handle.process.remote())

    def _create_actor(self, number: int, generation: int = 0) -> Any:
        """Creates an actor in Ray. `generation` > 0: in place of one that was killed, whose name may still be taken."""
        name = f"{self._name}-worker-{number}" + (f".{generation}" if generation else "")
        options = dict(self._workers.options)
        environment = dict(options.pop("runtime_env", {}))
        environment["env_vars"] = {**_ENVIRONMENT, **environment.get("env_vars", {})}
        remote_class: Any = ray.remote(Worker)
        # Ray restarts an actor that dies (-1: any number of times).
        return remote_class.options(
            name=name, num_cpus=self._workers.num_cpus, max_restarts=-1, runtime_env=environment, **options
        ).remote(self._pickled_definition)

    def submit(self, shard: int, state: dict[str, Any]) -> _Task:
        """Starts to make the batch of a shard at a state, in the running actor with the fewest tasks."""
        with self._lock:
            for a in self._actors:
                self._update_starting(a)
            actor = self._least_busy(excluded=None)
            return _Task(shard, state, actor, self._start_task(actor, shard, state))

    def _start_task(self, actor: _Actor, shard: int, state: dict[str, Any]) -> Any:
        """Starts `Worker.make` in an actor. Returns Ray's reference to the result."""
        actor.num_tasks += 1
        return actor.handle.make.remote(shard, state)

    def _least_busy(self, excluded: _Actor | None) -> _Actor:
        """The running actor with the fewest tasks; not `excluded`, which has just failed, if there is another."""
        running = [actor for actor in self._actors if actor.start_ref is None]
        return min(
            [actor for actor in running if actor is not excluded] or running or self._actors,
            key=lambda actor: actor.num_tasks,
        )

    def _await_worker(self):
        """Waits until an actor runs, at most as long as for a batch."""
        deadline = time.monotonic() + self._workers.timeout
        while True:
            with self._lock:
                if not self._actors:
                    raise RuntimeError("the iterator is closed")
                for actor in self._actors:
                    self._update_starting(actor)
                if any(actor.start_ref is None for actor in self._actors) or time.monotonic() > deadline:
                    return
            time.sleep(0.1)

    def _update_starting(self, actor: _Actor):
        """Updates `start_ref` of an actor without waiting."""
        if actor.start_ref is None:
            return
        ready, _ = ray.wait([actor.start_ref], timeout=0)
        if ready:
            try:
                ray.get(actor.start_ref)
                actor.start_ref = None
            except RayError:  # it has died again, or is not restarted yet
                actor.start_ref = actor.handle.process.remote()

    def result(self, task: _Task) -> ShardBatch:
        """Waits for the result of a task. Failures are tried again by other actors."""
        while True:
            try:
                result: Any = ray.get(task.ref, timeout=self._workers.timeout)
            except RayTaskError as e:
                self._finish(task)
                raise (e.cause or e) from None
            except (GetTimeoutError, RayError) as e:
                self._retry(task, e)
            else:
                self._finish(task)
                return result

    def _finish(self, task: _Task):
        """Counts a task as finished."""
        with self._lock:
            task.actor.num_tasks -= 1
            task.ref = None

    def _retry(self, task: _Task, error: Exception):
        """Gives a task to another actor after a failure. An actor that timed out is killed and replaced by a new one."""
        with self._lock:
            failed = task.actor
            failed.num_tasks -= 1
            if task.attempts == _ATTEMPTS:
                reason = (
                    f"no answer in {self._workers.timeout:g} s" if isinstance(error, GetTimeoutError) else str(error)
                )
                raise RuntimeError(
                    f"{_ATTEMPTS} of Ray's workers failed to make the same batch; the last one: {reason}"
                ) from error
            if isinstance(error, GetTimeoutError) and failed in self._actors:
                ray.kill(failed.handle)
                self._actors[self._actors.index(failed)] = self._start_actor(failed.number, task.attempts)
            elif failed.start_ref is None:  # Ray restarts it. Until then tasks go to others, if any run
                failed.start_ref = failed.handle.process.remote()
        self._await_worker()
        with self._lock:
            task.attempts += 1
            task.actor = self._least_busy(failed)
            task.ref = self._start_task(task.actor, task.shard, task.state)

    def statistics(self) -> Sequence[Statistics]:
        statistics = ray.get(
            [actor.handle.statistics.remote() for actor in self._actors], timeout=self._workers.timeout
        )
        return [x for x in statistics if x is not None]

    def close(self):
        for actor in self._actors:
            ray.kill(actor.handle)
        self._actors.clear()
