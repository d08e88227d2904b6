"""Runs a graph batch by batch: reads the sources, launches programs, checks the results, and repairs failed samples."""

from __future__ import annotations

import collections
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np
from jax.sharding import Sharding

from .._core import ffi as _ffi
from .._core.building import warn
from .._core.errors import DifferentShapes, OperatorError
from .._core.graph import Graph, check_same_structure
from .._core.jax_settings import own_settings
from .._core.operator import EagerOperator, NativeOperator, SourceOperator
from .._core.redaction import shown_error
from .._core.system import available_cpus, refuse_fork
from .._core.values import Value
from .._data.source import SampleIds, Source
from .._plan.binding import BindingContext, BoundPlan
from .._plan.plan import Plan, Ref, make_plan
from .._plan.run_options import RunOptions
from .._program.sharding import Shards
from . import repair
from .batch import BadSample, EagerResults, FinishedBatch, InFlightBatch
from .delivery import VALUES, Delivery
from .host_pass import HostPass
from .launch import Launcher
from .meter import Statistics, cache_rows, storage_rows
from .origins import source_info
from .outputs import Outputs
from .phases import Phases
from .reading import BatchReader
from .resources import RunResources
from .tuning import Tuner

# From this number of native threads on they would wait for the thread that reads and prepares batches.
MANY_THREADS = 16


def max_dispatched_on_cpu(num_threads: int) -> int:
    """Returns how many batches are dispatched at a time: 2, and 1 more for every 16 threads, up to 6.

    Many threads soon finish all but the slowest images of a batch, and would be idle without another one.
    """
    return 2 + min(num_threads // MANY_THREADS, 4)


class Executor:
    """Runs the graphs of all local shards of one iterator, or of one stand-alone pipeline.

    Args:
      graphs: the traced definition, once per local shard; all must have the same structure.
      shards: the local shards.
      options: how batches are made.
      delivery: the form in which they are delivered.
      sources: sources by node id, which another executor of the same graph has opened and not read.
      setups: user functions that are called once for each batch before the sources are read.

    Attributes:
      graph: the graph of the first shard.
      sources: the running sources, by the id of their node.
      resources: the resources for making batches.
      reader: begins a batch, and knows the states before and after it.
    """

    reader_type: type[BatchReader] = BatchReader

    def __init__(
        self,
        graphs: Sequence[Graph],
        shards: Shards,
        options: RunOptions,
        delivery: Delivery,
        *,
        sources: Mapping[int, Source] | None = None,
        setups: Sequence[Callable[[], None]] = (),
    ):
        assert delivery.as_arrays or len(graphs) == 1
        check_same_structure(graphs)
        self.graph = graphs[0]
        if delivery.as_arrays or any(n.stage != "host" for n in self.graph.nodes):
            refuse_fork()  # a program, or a copy to a device, would wait forever; readers alone need no JAX
        self.shards = shards
        self.B = options.batch_size
        self._delivery = delivery
        self._shardings = delivery.shardings_of_outputs(len(self.graph.outputs))
        self._tuned = options.tuned
        self._warned: set[tuple[int, bool]] = set()  # the arguments of `warn_at_end`: node, and whether it was empty
        self._bad_counts = collections.Counter[tuple[str, str]]()  # by file and reason
        self.sources: dict[int, Source] = {}
        self._is_built = False
        # Guards the host pass, the programs and the capacities of phases: one batch at a time.
        self._launching = threading.Lock()
        self.resources = RunResources(shards, options, delivery)
        try:
            self._open(graphs, sources or {}, options.num_workers)
        except BaseException:
            self._release()
            raise
        operators_of_shards = {n.id: [g.nodes[i].op for g in graphs] for i, n in enumerate(self.graph.nodes)}
        context = BindingContext(
            options=options,
            kernels=self.resources.kernels,
            accelerator=shards.accelerator,
            placed=frozenset(i for i, s in enumerate(self._shardings) if s is not None),
            settings=self.resources.settings,
            sources=self.sources,
            of_shards=operators_of_shards,
        )
        self._bound = BoundPlan(make_plan(self.graph), context)
        self._outputs = Outputs(self.resources, delivery)
        phases = Phases(self._bound, self.resources, any(s is not None for s in self._shardings))
        self._host = HostPass(self._bound, self.resources, phases.capacity, self._outputs)
        self._launcher = Launcher(self._bound, self._host, phases, self.resources, self._shardings, delivery.stacked)
        self.reader = self.reader_type(
            self.graph, self.sources, self.resources, self._bound, self._host, delivery.reader, setups
        )

    @classmethod
    def of_values(
        cls,
        graph: Graph,
        device: jax.Device | _ffi.TargetDevice,
        options: RunOptions,
        *,
        sources: Mapping[int, Source] | None = None,
        setups: Sequence[Callable[[], None]] = (),
    ) -> Self:
        """Returns an executor of one graph on one device, whose outputs are `Value`s."""
        return cls([graph], Shards.single(device), options, VALUES, sources=sources, setups=setups)

    def _open(self, graphs: Sequence[Graph], opened: Mapping[int, Source], num_workers: int):
        """Opens the source of each reader or other source operator, and warns of doubts about its data.

        Args:
          graphs: of all local shards, whose operators together make one source.
          opened: sources by node id that are open already, and are used.
          num_workers: number of threads in which a source may call a user's function.
        """
        for i, node in enumerate(self.graph.nodes):
            if isinstance(node.op, SourceOperator):
                try:
                    source = opened.get(node.id) or node.op.make_source(
                        [g.nodes[i].op for g in graphs], self.resources.seed
                    )
                    source.workers = max(1, num_workers)
                    source.set_used_outputs(self.graph.used(node))
                    self.sources[node.id] = source
                    for text in source.doubts():
                        warn(f"{node.op.name}: {text}", where=node.where)
                except OperatorError:
                    raise
                except (ValueError, RuntimeError, OSError) as e:
                    # The error about a missing file of one of our readers says everything, so its traceback is left
                    # out, but not its cause. The error of a user's source is shown whole.
                    is_ours = type(node.op).__module__.startswith("jaxdali.")
                    is_complete = is_ours and (type(e) is RuntimeError or isinstance(e, OSError))
                    raise node.error(_opening_error_text(e)) from shown_error(e.__cause__ if is_complete else e)

    # --- build ------------------------------------------------------------------------------------------------

    def build(self):
        """Binds the operators, as far as possible before eager functions run. Reads the first batches of sources if
        these determine the types. Later calls have no effect.
        """
        if not self._is_built:
            self.reader.set_up_first()
            self._bound.bind_sources()  # may call a user function, under the settings in the user's thread
            with own_settings():
                self._bound.bind()
            self._is_built = True
            _ffi.load_kernels(self.shards.primaries)
            if reason := next(filter(None, map(_ffi.why_no_kernels, self.shards.primaries)), ""):
                self._warn_no_kernels(reason)

    def _warn_no_kernels(self, reason: str):
        """Warns that native operators on the device run on the CPU instead."""
        names = sorted({s.op.name for s in self.plan.steps if s.stage == "device" and isinstance(s.op, NativeOperator)})
        if names:
            warnings.warn(
                f"{', '.join(names)} will run on the CPU, and their results are copied to the GPU, since {reason} "
                "(see jaxdali.show_config())",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def plan(self) -> Plan:
        """The plan that runs."""
        return self._bound.plan

    def tuner(self, depth: int) -> Tuner | None:
        """Returns the tuner of the number of threads and of batches made ahead; None if both are fixed.

        Args:
          depth: the initial number of batches made ahead.
        """
        return (
            Tuner(self.resources.meter, self._tuned, self.resources.num_threads, depth, available_cpus())
            if self._tuned
            else None
        )

    def reseed(self, seed: int):
        """Continues with another seed, for example that of a checkpoint. Call it only while nothing runs."""
        self.resources.seed = seed
        for source in self.sources.values():
            source.reseed(seed)

    # --- one batch --------------------------------------------------------------------------------------------

    @property
    def must_run_in_callers_thread(self) -> bool:
        """Whether batches must be made in the thread that takes them.

        A function on devices of several processes has collectives, and so may the user's own steps. If processes begin
        collectives in different orders, they wait for each other forever; in the user's thread there is only one order.
        """
        shardings = (n.op.sharding for n in self.graph.nodes if isinstance(n.op, EagerOperator))
        return any(s is not None and not s.is_fully_addressable for s in shardings)

    @property
    def uses_reader_thread(self) -> bool:
        """Whether a thread of its own reads batches ahead, see Note [Threads and queues].

        It reads only lists, whose samples no user's function supplies. It is used only for an accelerator or many
        native threads: a few threads are busy anyway, and reading ahead takes the memory of one more batch.
        """
        reads_only_lists = (
            bool(self.sources) and not self.reader.begins_in_caller and all(s.movable for s in self.sources.values())
        )
        return reads_only_lists and (self.shards.accelerator or self.resources.num_threads >= MANY_THREADS)

    @property
    def max_dispatched(self) -> int:
        """The number of batches that may be dispatched and not yet finished.

        While an accelerator computes one batch, the next one is packed and dispatched, so the accelerator never waits
        for the host. On the CPU, threads that have nothing left to do in one batch begin the next, instead of waiting
        for its slowest image.
        """
        return 2 if self.shards.accelerator else max_dispatched_on_cpu(self.resources.num_threads)

    def batch_of(
        self,
        values: Mapping[int, Sequence[Any]],
        ids: SampleIds,
        random_keys: Mapping[int, Any] | None = None,
        eager_results: dict[int, EagerResults] | None = None,
    ) -> InFlightBatch:
        """Returns a batch with the values of its inputs. No source is read.

        Args:
          values: the outputs of each `HostInput`, or of a node whose source is an `InputSource`, by the node's id:
            each dense ``[N, ...]``, `Packed` or a list of samples. Values of nodes that are not in the plan, because
            nothing needs them, are ignored.
          ids: the samples of the batch.
          random_keys: by step id, two arrays ``[N]`` that take the places of epoch and position as the keys of the
            step's random numbers.
          eager_results: the results of eager functions, by step id, which then are not called; those of other functions
            are added. None: all functions are called, and results are not kept.
        """
        batch = InFlightBatch({}, {}, random_keys=random_keys or {}, eager_results=eager_results)
        batch.identify(ids)
        for step in self.plan.steps:
            if step.id in values:
                self._host.store(step, batch, values[step.id])
        batch.read = dict(batch.values)
        return batch

    def binding_facts(
        self, batch: InFlightBatch
    ) -> tuple[Mapping[Ref, tuple[int, ...]], Mapping[Ref, Sequence[np.ndarray]]]:
        """Returns the shapes of first samples, and the samples, of a batch by which steps are bound. Values of which the
        batch has no sample are left out.
        """
        return self._host.binding_facts(batch)

    def prepare(self, batch: InFlightBatch) -> InFlightBatch:
        """Runs the host pass before the first program, see `Launcher.prepare`. The batch then has host values and
        setups.
        """
        with self._launching:  # `check` may repair a batch meanwhile
            self._launcher.prepare(batch)
        return batch

    def dispatch(self, batch: InFlightBatch) -> InFlightBatch:
        """Dispatches the programs of a prepared batch, without waiting for the last ones, see `Launcher.dispatch`."""
        with self._launching:
            return self._launcher.dispatch(batch)

    def launch(self, batch: InFlightBatch) -> InFlightBatch:
        """Prepares and dispatches a batch."""
        return self.dispatch(self.prepare(batch))

    def check(self, batch: InFlightBatch) -> FinishedBatch:
        """Waits for a batch, repairs failed samples or raises, and converts the outputs to their final form."""
        # A repaired sample may fail again, in another step.
        while bad := repair.failed(batch, self.resources.meter):
            with self._launching:
                batch = self._launcher.repair(batch, bad)
        assert batch.ids is not None
        # Users get arrays that borrow the memory of results. When they drop these, later runs reuse the memory (Note
        # [Output reuse]). A value may be several outputs, but is lent once.
        batch.results |= {
            r: self.resources.output_reuse.lend(r, batch.results[r])
            for r in set(self.plan.outputs)
            if r in batch.results
        }
        with self.resources.meter.stage("output", operators="", step="outputs"):
            return self._finished(batch, batch.ids)

    def _finished(self, batch: InFlightBatch, ids: SampleIds) -> FinishedBatch:
        """Converts the outputs of a checked batch to their final form. `ids`: those of the batch."""
        plan = self.plan
        if self.resources.as_arrays:  # for an iterator; otherwise outputs are `Value`s of the single shard
            arrays = tuple(
                self._array(i, r, s, batch) for i, (r, s) in enumerate(zip(plan.outputs, self._shardings, strict=True))
            )
            self._count(arrays)
            finish = self._delivery.finish
            return FinishedBatch(
                outputs=arrays if finish is None else finish(plan, arrays),
                state=batch.after,
                ids=ids,
                names=(),
                replaced=[*batch.unread, *batch.replaced],
            )
        infos = [source_info(batch, x, self.B) for x in self.graph.outputs]  # an item is None if nothing is known
        names = tuple([""] * self.B if info is None else info for info in infos)
        values = tuple(self._outputs.value(r, batch) for r in plan.outputs)
        self._count(values)
        return FinishedBatch(values, batch.after, ids, names, [*batch.unread, *batch.replaced])

    def _array(self, i: int, ref: Ref, sharding: Sharding | None, batch: InFlightBatch) -> Any:
        """Converts output `i` to the form in which an iterator delivers it."""
        step, names = self.plan.maker(ref), self._delivery.names
        if batch.values[ref].spec.is_metadata:
            return self._outputs.metadata(ref, batch)
        if i in self._delivery.as_sample_lists:
            return self._outputs.samples(ref, step, batch)
        try:
            if (form := self._delivery.ragged_form(i)) is not None:
                return self._outputs.ragged(ref, step, sharding, form, names[i], batch)
            return self._outputs.array(ref, step, sharding, batch)
        except DifferentShapes as e:
            name, spec = names[i] if i < len(names) else "", batch.values[ref].spec
            is_read = isinstance(step.op, SourceOperator) and (spec.dtype, spec.ndim) == (np.uint8, 1)
            raise DifferentShapes(e.operator, e.where, e.distinct, i, name, spec.layout, is_read) from None

    def _count(self, outputs: Sequence[Any]):
        """Counts the samples and bytes of the outputs, if the stages are measured."""
        if self.resources.meter.enabled:
            self.resources.meter.count("output", "outputs", self.resources.N, sum(map(_nbytes, outputs)))

    def note_taken(self, batch: FinishedBatch):
        """Counts the samples of a batch that were replaced or left out. Call it when the user takes the batch, not when
        it is made.
        """
        self._bad_counts.update(batch.replaced)

    def bad_samples(self) -> list[BadSample]:
        """The samples that were replaced or left out in the batches taken so far."""
        return BadSample.of(self._bad_counts)

    def statistics(self) -> Statistics:
        """The costs of the stages so far. Raises RuntimeError if they are not measured."""
        if not self.resources.meter.enabled:
            raise RuntimeError("statistics() needs enable_statistics=True, an argument of the pipeline")
        of_storages = [storage_rows(name, source.counts()) for name, source in self.reader.named.items()]
        # The only resources that operators keep are caches (`CacheUse`).
        of_caches = [
            cache_rows(name, resource.counts()) for name, resource in self.resources.of_operators.copy().items()
        ]
        rows = [row for table in (*of_storages, *of_caches) for row in table]
        return Statistics((*self.resources.meter.statistics(), *rows))

    def warn_at_end(self, epoch: int, *, empty: bool, instead: str = ""):
        """Warns once for each source, at the end of an epoch, about data that its user may have missed.

        Args:
          epoch: number of the epoch.
          empty: whether the epoch had no batch. Then the warning is about exhausted sources, otherwise about samples
            that do not fill a batch.
          instead: how to get those samples, for the message.
        """
        for node in self.graph.nodes:
            source = self.sources.get(node.id)
            if source is None or (node.id, empty) in self._warned:
                continue
            text = ""
            if empty and epoch and source.why_empty:
                text = f"gave no data for epoch {epoch}: {source.why_empty}"
            elif source.dropped and not empty:
                samples = "1 sample is" if source.dropped == 1 else f"{source.dropped} samples are"
                samples = f"at least {samples}" if source.drops_more else samples
                text = f"{samples} dropped at the end of its data, as they do not fill a batch of {self.B}{instead}"
            if text:
                self._warned.add((node.id, empty))
                warn(f"{node.op.name} (created at {node.where}): {text}")

    def programs(self) -> int:
        """Returns the number of programs that have run."""
        return len(self._launcher.ran)

    def lower(self, segment: int = 0) -> jax.stages.Lowered:
        """Returns JAX's own `Lowered` of a program as it ran last. `segment`: number of the program."""
        ran = self._launcher.ran
        if not ran:
            raise RuntimeError(
                "no program has run yet: take a batch first (and a pipeline without lowered operators has none)"
            )
        if segment not in ran:
            raise ValueError(f"segment={segment}: this pipeline has {len(ran)} program(s), numbered from 0")
        program, operands = ran[segment]
        with own_settings():
            return program.run.lower(*operands)

    def cancel(self):
        """Ends waits for other processes that make the batches dispatched so far, if there are any: `check` raises."""

    def close(self):
        """Releases sources and threads."""
        self._launcher.close()
        self._release()

    def _release(self):
        for source in self.sources.values():
            source.close()
        self.resources.close()


def _opening_error_text(e: Exception) -> str:
    """The text of an exception that was raised while a source was opened."""
    if isinstance(e, UnicodeEncodeError):
        return f"{e.object!r} can't be the name of a file: {e.object[e.start : e.end]!r} is not a valid character"
    return str(e)


def _nbytes(output: Any) -> int:
    """Bytes of an output in any of its forms. Metadata of unknown size count as 0."""
    if isinstance(output, (list, tuple)):  # the parts of a ragged output, or metadata
        return sum(getattr(x, "nbytes", 0) for x in output)
    data: Any = output.data if isinstance(output, Value) else output
    return data.nbytes
