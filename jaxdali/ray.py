"""Batches made on other machines by `Ray <https://docs.ray.io>`_.

Example:
  >>> from jaxdali.ray import Workers
  >>> iterator = iterator_fn(batch_size=256, workers=Workers(num_workers=8, num_cpus=4))

Needs the extra ``ray``. All machines need jaxdali in one version, and the data under the same paths.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import math
import random
import secrets
import socket
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
_SLICE = 0.5  # seconds of each wait, after which it is seen whether it has become vain
_PROBE_INTERVAL = 2.0  # seconds between the probes of the cluster. Two in a row tell of its loss
_PROBE_PATIENCE = 1.0  # seconds for a connection
_MAX_PROBES = 3  # of the nodes of workers, at a time
_QUIET_PATIENCE = 30.0  # seconds without a worker before the log says so; one starts again in 3 to 10
_log = logging.getLogger("jaxdali")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers:
    """Makes the batches of an iterator in Ray actors: ``workers=Workers(num_workers=8, num_cpus=4)``.

    The batches, their order, epochs, shards, checkpoints and errors are those of the same iterator without workers; the
    number of workers makes no difference. The pipeline is sent to the workers by Ray's pickling, so it may hold Python
    functions. A worker that dies is started again by Ray, and its batches are made by another one meanwhile. Results
    come through Ray's object store: at most ``2 * num_workers`` batches, and those that the iterator holds.

    The loss of the cluster (of its head, of Ray's agent on this process's node, or of all nodes with workers) is logged
    within 10 seconds. The iterator goes on if Ray or other workers come back within `timeout`; otherwise each batch that
    no worker has made is an error, without another wait. Ray itself ends a process to which the head has not answered
    for 60 seconds (its setting ``RAY_gcs_rpc_server_reconnect_timeout_s``).

    Steps on the GPU run on the workers' CPUs; results are then put on the iterator's device or sharding. Ray is
    connected with `ray.init()` if it is not yet.

    Args:
      num_workers: number of actors.
      num_cpus: CPUs that Ray reserves for each; its pipeline uses as many threads, at least one.
      timeout: seconds after which a worker that has not returned a batch is killed, and the batch made by another one.
        Also the seconds from the loss of the cluster, or of all workers, to the error.
      options: further options of the actors, as for ``ray.remote(...).options``: ``resources``,
        ``scheduling_strategy``, ``runtime_env``.

    Raises:
      ValueError, TypeError: see the arguments.

    An iterator raises:
      OperatorError: the pipeline has a source that only this process can read, such as `external_source`; the message
      names it.
      TypeError: something in the pipeline can't be pickled; the message names the operator.
      RuntimeError: no worker could be started, a batch could not be made by several workers in a row, or the cluster is
      lost.
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

    def agent(self) -> str | None:
        """The address of Ray's agent on the worker's node, if it is known. The actor runs when this returns."""
        return _agent_address()


def _agent_address() -> str | None:
    """The address of Ray's agent (raylet) on the node of this process; None: it is not known."""
    node_id = ray.get_runtime_context().get_node_id()
    nodes = (node for node in ray.nodes() if node["NodeID"] == node_id)
    return next((f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}" for node in nodes), None)


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
      agent: the address of Ray's agent on its node; None: it is not known, or the actor has not run yet.
    """

    handle: Any
    number: int
    num_tasks: int = 0
    start_ref: Any = None
    agent: str | None = None


@dataclasses.dataclass(eq=False)
class _Task:
    """A batch that an actor makes.

    Attributes:
      shard: number of the local shard.
      state: the state before the batch.
      actor: the actor that makes it now.
      ref: Ray's reference to the result; None: it was taken.
      attempts: number of actors that tried.
      num_cancels: how often tasks were cancelled before it was submitted.
    """

    shard: int
    state: dict[str, Any]
    actor: _Actor
    ref: Any
    num_cancels: int
    attempts: int = 1


class _Cluster:
    """Tells whether Ray's cluster answers to connections.

    Ray itself reports the loss of an agent 15 seconds later, and that of the head when it ends this process.

    Attributes:
      agents: if no worker runs, the addresses of the agents on the nodes where they ran; otherwise none.
    """

    def __init__(self, timeout: float):
        self._timeout = timeout  # of `Workers`, for messages
        self.agents: Sequence[str] = ()
        # Whether the agents where workers have run can be reached from here; None: it was not tried yet.
        self._reachable = dict[str, bool | None]()
        self._lock = threading.Lock()  # guards the rest
        places = {
            "Ray's head": ray.get_runtime_context().gcs_address,
            "Ray's agent on this node": _agent_address(),
        }
        # Of a cluster behind Ray's client server none can be reached; its loss is that of the workers.
        self._places = {name: address for name, address in places.items() if address and _answers(address)}
        self._answered_at = time.monotonic()
        self._next_probe = self._answered_at + _PROBE_INTERVAL
        self._silent_since: float | None = None
        self._silent_places = ""  # those that did not answer last
        self._is_logged = False  # that they do not answer

    def add_agent(self, address: str):
        """Adds the agent of a worker that runs. The next probe tells whether it can be reached from here."""
        self._reachable.setdefault(address, None)

    def silent_since(self, *, at_once: bool = False) -> float | None:
        """When the cluster ceased to answer, on the monotonic clock; None: it answers. It is asked again if some time has
        passed, or `at_once`.
        """
        with self._lock:
            if at_once or time.monotonic() >= self._next_probe:
                self._next_probe = time.monotonic() + _PROBE_INTERVAL
                self._probe()
            return self._silent_since

    def _probe(self):
        """Updates what is known of the cluster. The caller holds the lock."""
        began, reachable = time.monotonic(), list(self._reachable.items())
        silent = [f"{name} ({address})" for name, address in self._places.items() if not _answers(address)]
        if not silent:
            for address in [x for x, is_reachable in reachable if is_reachable is None][:_MAX_PROBES]:
                self._reachable[address] = _answers(address)
            agents = [address for address in self.agents if self._reachable.get(address)]
            agents = random.sample(agents, min(len(agents), _MAX_PROBES))
            if agents and not any(_answers(address) for address in agents):
                silent = [f"the nodes of Ray's workers ({', '.join(sorted(agents))})"]
        if not silent:
            self._answered_at, self._silent_since, self._is_logged = began, None, False
            return
        self._silent_places = " and ".join(silent)
        if self._silent_since is None:
            # It may have been lost just after the last probe; if that is long ago, nobody has waited since.
            self._silent_since = max(self._answered_at, began - 2 * _PROBE_INTERVAL)
        elif not self._is_logged:  # a second time, so no connection was lost by chance
            self._is_logged = True
            _log.warning(
                "there is no answer from %s; the iterator waits for it for at most %g s",
                self._silent_places,
                self._timeout,
            )

    def loss(self) -> RuntimeError:
        """The error of a loss that has lasted for too long."""
        return RuntimeError(
            f"Ray's cluster is lost: there has been no answer from {self._silent_places} for {self._timeout:g} s"
        )


def _answers(address: str) -> bool:
    """Whether a server takes connections at an address, ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_PATIENCE).close()
    except OSError:
        return False
    return True


class _Pool:
    """The actors of one iterator. A batch may be made twice, by any of them: see Note [Batches by position]."""

    def __init__(self, workers: Workers, pickled_definition: bytes):
        self._workers = workers
        self._name = f"jaxdali-{secrets.token_hex(4)}"
        self._pickled_definition = pickled_definition
        self._cluster = _Cluster(workers.timeout)
        self._num_cancels = 0
        self._idle_since: float | None = None  # the time since when no actor runs; None: one runs
        self._idle_is_logged = False
        self._lock = threading.Lock()  # guards `_actors`
        self._actors = [self._start_actor(i) for i in range(workers.num_workers)]
        start_refs = [actor.start_ref for actor in self._actors]
        self._wait(start_refs, len(start_refs), min(_START_PATIENCE, workers.timeout))
        if not self._wait(start_refs, 1, workers.timeout):
            self.close()
            if self._time_left() <= 0:
                raise self._cluster.loss()
            raise RuntimeError(
                f"none of Ray's workers has started in {workers.timeout:g} s: the cluster may lack {workers.num_cpus:g} free CPUs for one, "
                f"or what options={dict(workers.options)} asks for"
            )

    def _start_actor(self, number: int, generation: int = 0) -> _Actor:
        """Creates an actor, which runs as soon as its `start_ref` is ready. `generation` > 0: in place of one that was
        killed.
        """
        handle = self._create_actor(number, generation)
        return _Actor(handle, number, start_ref=handle.agent.remote())

    def _wait(self, refs: Sequence[Any], number: int, seconds: float) -> Sequence[Any]:
        """Waits until so many results are ready, or the time is over, or the cluster is lost. Returns those that are."""
        deadline = time.monotonic() + seconds
        while True:
            patience = min(_SLICE, deadline - time.monotonic(), self._time_left())
            ready, _ = ray.wait(refs, num_returns=number, timeout=max(0.0, patience))
            if len(ready) >= number or patience <= 0:
                return ready

    def _time_left(self) -> float:
        """The seconds until the loss of the cluster is an error; infinite if it is not lost."""
        since = self._cluster.silent_since()
        return math.inf if since is None else since + self._workers.timeout - time.monotonic()

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
            return _Task(shard, state, actor, self._start_task(actor, shard, state), self._num_cancels)

    def cancel(self):
        """Ends the waits for the tasks that were submitted so far."""
        self._num_cancels += 1

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

    def _await_worker(self, task: _Task):
        """Waits until an actor runs. Raises RuntimeError if none does in time, or if the task is cancelled."""
        while True:
            self._check_cancelled(task)
            with self._lock:
                for actor in self._actors:
                    self._update_starting(actor)
                if any(actor.start_ref is None for actor in self._actors):
                    self._note_running()
                    return
                self._cluster.agents = sorted({actor.agent for actor in self._actors if actor.agent is not None})
            self._check_idle()
            time.sleep(0.1)

    def _note_running(self):
        self._idle_since, self._idle_is_logged, self._cluster.agents = None, False, ()

    def _check_cancelled(self, task: _Task):
        if task.num_cancels != self._num_cancels or not self._actors:
            raise RuntimeError("the iterator is closed")

    def _check_idle(self):
        """Raises RuntimeError if no actor has run for too long. Logs it before."""
        time_now, timeout = time.monotonic(), self._workers.timeout
        self._idle_since = time_now if self._idle_since is None else self._idle_since
        if self._time_left() <= 0:
            raise self._cluster.loss()
        if time_now > self._idle_since + timeout:
            raise RuntimeError(f"none of Ray's workers runs, and Ray has not started one again in {timeout:g} s")
        if not self._idle_is_logged and time_now > self._idle_since + _QUIET_PATIENCE:
            self._idle_is_logged = True
            _log.warning(
                "none of Ray's workers has run for %g s: the iterator waits for one for at most %g s",
                _QUIET_PATIENCE,
                timeout,
            )

    def _update_starting(self, actor: _Actor):
        """Updates `start_ref` of an actor without waiting."""
        if actor.start_ref is None:
            return
        ready, _ = ray.wait([actor.start_ref], timeout=0)
        if ready:
            try:
                agent: Any = ray.get(actor.start_ref)
                actor.start_ref, actor.agent = None, agent
                if agent is not None:
                    self._cluster.add_agent(agent)
            except RayError:  # it has died again, or is not restarted yet
                actor.start_ref = actor.handle.agent.remote()

    def result(self, task: _Task) -> ShardBatch:
        """Waits for the result of a task. Failures are tried again by other actors."""
        try:
            result = self._result(task)
        except Exception:  # after an interrupt the result can be taken again
            self._finish(task)
            raise
        self._finish(task)
        return result

    def _finish(self, task: _Task):
        with self._lock:
            task.actor.num_tasks -= 1
            task.ref = None

    def _result(self, task: _Task) -> ShardBatch:
        deadline = time.monotonic() + self._workers.timeout
        while True:
            patience = min(deadline - time.monotonic(), self._time_left())
            try:
                result: Any = ray.get(task.ref, timeout=max(0.0, min(_SLICE, patience)))
            except RayTaskError as e:
                raise (e.cause or e) from None
            except (GetTimeoutError, RayError) as e:
                self._check_cancelled(task)
                if isinstance(e, GetTimeoutError):
                    if self._time_left() <= 0:
                        raise self._cluster.loss() from None
                    if patience > 0:
                        self._await_worker(task)
                        continue
                self._retry(task, e)
                deadline = time.monotonic() + self._workers.timeout
            else:
                self._note_running()
                return result

    def _retry(self, task: _Task, error: Exception):
        """Gives a task to another actor after a failure. An actor that timed out is killed and replaced by a new one."""
        # Without the cluster all actors fail, one after the other, and none can be replaced.
        lost = self._cluster.silent_since(at_once=True) is not None
        with self._lock:
            failed = task.actor
            if task.attempts == _ATTEMPTS and not lost:
                reason = (
                    f"no answer in {self._workers.timeout:g} s" if isinstance(error, GetTimeoutError) else str(error)
                )
                raise RuntimeError(
                    f"{_ATTEMPTS} of Ray's workers failed to make the same batch; the last one: {reason}"
                ) from error
            if isinstance(error, GetTimeoutError) and failed in self._actors and not lost:
                ray.kill(failed.handle)
                self._actors[self._actors.index(failed)] = self._start_actor(failed.number, task.attempts)
            elif failed.start_ref is None:  # Ray restarts it. Until then tasks go to others, if any run
                failed.start_ref = failed.handle.agent.remote()
        self._await_worker(task)
        with self._lock:
            failed.num_tasks -= 1
            task.attempts += not lost
            task.actor = self._least_busy(failed)
            task.ref = self._start_task(task.actor, task.shard, task.state)

    def statistics(self) -> Sequence[Statistics]:
        """The statistics of the workers that answer."""
        refs = [actor.handle.statistics.remote() for actor in self._actors if actor.start_ref is None]
        results = []
        for ref in self._wait(refs, len(refs), self._workers.timeout) if refs else ():
            with contextlib.suppress(RayError):  # of a worker that has died
                results.append(ray.get(ref))
        return [statistics for statistics in results if statistics is not None]

    def close(self):
        for actor in self._actors:
            ray.kill(actor.handle)
        self._actors.clear()
