"""Checkpoints: the state of pipelines and iterators as JSON, and back.

A pipeline's *record* is a dict: seed, batch_size, epoch, iteration, its shard ``[id, number of shards]``, and for each
source its cursor and its fingerprint, which gives the cursor a meaning. Random numbers are functions of these. An
iterator's state holds a record for each of its pipelines, and its position in the epoch. All shards advance in
lockstep, so the state of one process determines that of all, unless a user's source has a state of its own.

A checkpoint has a checksum of all its other entries, and so has each part of an iterator's state, because users store
that: a wrong bit in a seed would silently give other data. Then the form of the entries is checked, since anyone can
write such a file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from .._batch.executor import Executor
from .._batch.reading import STATE_VERSION
from .._core.errors import cut, quoted
from .._data.epoch import EpochCounter, EpochPlan
from .._data.source import Saved
from .._data.walk import Walk
from .._program.sharding import Shards
from .checks import check_digest, check_iterator, check_record, check_source, check_version, signed, unsigned

FORMAT = "jaxdali checkpoint"


def to_bytes(record: Mapping[str, Any], iterator: Mapping[str, Any] | None) -> bytes:
    """A pipeline's checkpoint. Equal states give equal bytes."""
    entries = {
        "format": FORMAT,
        "version": STATE_VERSION,
        "iterator": iterator and unsigned(iterator),
        "pipeline": unsigned(record),
    }
    return json.dumps(signed(entries), sort_keys=True, separators=(",", ":")).encode()


def from_bytes(data: Any, name: str = "") -> tuple[dict[str, Any], dict[str, Any] | None]:
    """(a pipeline's record, the position of its iterator; None: it ran without one). Raises RuntimeError, which begins
    with `name`, if the bytes are not a checkpoint.
    """
    if not isinstance(data, (bytes, bytearray, str)):
        raise TypeError(
            f"a checkpoint must be bytes, as checkpoint() and checkpoints() return them, got {type(data).__name__}"
        )
    with _checkpoint_errors(name):
        entries = json.loads(data)
        if not isinstance(entries, dict) or entries.get("format") != FORMAT:
            raise ValueError(f'it has no "format": "{FORMAT}"')
        check_version(entries.get("version"))
        check_digest(entries, "it")
        return check_record(entries.get("pipeline"), "pipeline"), check_iterator(entries.get("iterator"))


def for_pipelines(checkpoints: Sequence[bytes] | None, num_pipelines: int, num_shards: int) -> list[bytes | None]:
    """The ``checkpoint=`` argument for each pipeline of an iterator.

    Args:
      checkpoints: the result of an iterator's `checkpoints()`; None or empty: start anew.
      num_pipelines: number of pipelines in this process.
      num_shards: number of pipelines in all processes.

    Raises:
      RuntimeError: their number differs from that of the pipelines, although they have as many shards as now.
    """
    if not checkpoints:
        return [None] * num_pipelines
    # The position of the iterator, which each checkpoint has, too, is not needed here.
    records = [from_bytes(c, f"checkpoints[{i}]: ")[0] for i, c in enumerate(checkpoints)]
    if len(checkpoints) == num_pipelines:
        return list(checkpoints)
    if any(r["shard"][1] == num_shards for r in records):  # `shard`: its number, and how many there are
        raise RuntimeError(
            f"there are {len(checkpoints)} checkpoints, but {num_pipelines} pipelines in this process; pass one for each"
        )
    # Another number of shards: any of the checkpoints has the position from which the epoch is divided anew.
    _common_value([r["seed"] for r in records], "seeds")
    return [checkpoints[0]] * num_pipelines


# --- pipelines ------------------------------------------------------------------------------------------------------


def records_of(executor: Executor, state: Mapping[str, Any], places: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """An executor's state as one record for each of its shards. `places`: (id, number of shards) of each shard."""
    shared_fields = {
        "seed": state["seed"],
        "batch_size": executor.B,
        "epoch": state["epoch"],
        "iteration": state["iteration"],
    }
    saved_sources = {
        name: source.saved(state["sources"][name]["cursors"]) for name, source in executor.reader.named.items()
    }
    return [
        {
            **shared_fields,
            "shard": list(place),
            "sources": {name: dataclasses.asdict(shards[i]) for name, shards in saved_sources.items()},
        }
        for i, place in enumerate(places)
    ]


def state_of(
    executor: Executor, records: Sequence[Mapping[str, Any]], places: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """The state from which an executor continues. The executor does not change.

    Args:
      executor: the executor that continues.
      records: of the same shards, or of others if the data can be redistributed.
      places: (id, number of shards) of each of the executor's shards.

    Raises:
      RuntimeError: the records belong to another pipeline (the message says what differs), or the state to continue
        from is unknown.
    """
    with _checkpoint_errors():
        record_of_shard = {tuple(r["shard"]): r for r in records}
        has_same_shards = all(tuple(p) in record_of_shard for p in places)
        if has_same_shards:
            records = [record_of_shard[tuple(p)] for p in places]
        (_, num_shards), *_ = places
        has_same_number = records[0]["shard"][1] == num_shards
        seed = _common_value([r["seed"] for r in records], "seeds")
        first_record = records[0]
        sources = executor.reader.named
        _check_names(sources, first_record)
        cursors = {}
        for name, source in sources.items():
            saved = [Saved(**r["sources"][name]) for r in records]
            for entry in saved:
                check_source(entry, source, f"sources.{name}")
            try:
                cursors[name] = {"cursors": source.resume(saved, has_same_shards, has_same_number)}
            except ValueError as e:
                raise RuntimeError(f"{name} can't continue from this checkpoint: {e}") from e
        return _state(executor, first_record, seed, cursors, num_shards)


def _state(
    executor: Executor, record: Mapping[str, Any], seed: int, cursors: dict[str, Any], shards: int
) -> dict[str, Any]:
    """The state of an executor with the given cursors of its sources. Everything else comes from a record, which may be
    of another number of shards and another batch size.
    """
    # The number of batches that hold as many samples of all shards, rounded up.
    _, shards_before = record["shard"]
    samples = record["iteration"] * record["batch_size"] * shards_before
    iteration = -(-samples // (executor.B * shards))
    return {
        "version": STATE_VERSION,
        "seed": seed,
        "epoch": record["epoch"],
        "iteration": iteration,
        "sources": cursors,
    }


# --- iterators ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Epochs:
    """The properties that determine an iterator's epochs.

    Attributes:
      policy: name of the last-batch policy.
      size: the iterator's argument; -1: a reader or the end of the data determines the size.
      reader_name: the reader that determines the size.
      padded: the iterator's argument last_batch_padded.
    """

    policy: str
    size: int
    reader_name: str | None
    padded: bool


def records_and_position(
    state: Mapping[str, Any] | Sequence[bytes],
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Splits the result of an iterator's `get_state` or `checkpoints` into the pipelines' records and the position of
    the iterator; None: the pipelines ran without an iterator.

    Raises:
      RuntimeError: it is none of these, is damaged, or has checkpoints of different moments.
    """
    with _checkpoint_errors():
        if isinstance(state, (list, tuple)) and state:
            records, positions = zip(*(from_bytes(x, f"checkpoints[{i}]: ") for i, x in enumerate(state)))
            if any(p != positions[0] for p in positions):
                raise RuntimeError(
                    "the checkpoints are of different moments: pass what one call of checkpoints() returned"
                )
            return list(records), positions[0]
        if not isinstance(state, Mapping):
            kind = f"{'an empty' if isinstance(state, (list, tuple)) else 'a'} {type(state).__name__}"
            raise TypeError(
                f"expected the dictionary of get_state(), or the list of bytes of checkpoints(); this is {kind}"
            )
        entries = json.loads(json.dumps(state))  # a copy of plain types: users may store the state in any mapping
        check_version(entries.get("version"))
        pipelines = entries.get("pipelines")
        if isinstance(pipelines, dict) and "0" in pipelines:  # as `flax.serialization.to_bytes` makes of lists
            raise ValueError(
                "its lists have become dictionaries, as by flax's to_bytes and msgpack_restore: restore them by "
                "flax.serialization.from_bytes(iterator.get_state(), data), or save json.dumps(state)"
            )
        if not isinstance(pipelines, list) or not pipelines:
            raise ValueError("pipelines is not a list of one or more")
        check_digest(entries.get("iterator"), "iterator")
        for i, r in enumerate(pipelines):
            check_digest(r, f"pipelines[{i}]")
        records = [check_record(r, f"pipelines[{i}]") for i, r in enumerate(pipelines)]
        return records, check_iterator(entries.get("iterator"))


Places: TypeAlias = Sequence[Sequence[tuple[int, int]]]


def shard_places(executors: Sequence[Executor], shards: Shards | None) -> Places:
    """(id, number of shards) of each pipeline, for each executor.

    Args:
      shards: of the pipelines; None: those of the only executor, or one for each executor.
    """
    if shards is None and len(executors) == 1:
        shards = executors[0].shards
    num = len(executors) if shards is None else shards.num
    places = [(i, num) for i in (range(num) if shards is None else shards.ids)]
    return [places] if len(executors) == 1 else [[place] for place in places]


def resume(
    executors: Sequence[Executor],
    places: Places,
    records: Sequence[Mapping[str, Any]],
    iterator: Mapping[str, Any] | None,
    epochs: Epochs,
    plan: EpochPlan | None,
) -> tuple[list[dict[str, Any]], EpochCounter | None]:
    """The states from which an iterator's executors continue, and its epoch counter.

    Args:
      executors: the executors of the iterator.
      places: of their pipelines, see `shard_places`.
      records: of its pipelines, of those in another process, or of another number of shards.
      iterator: the saved position of the iterator; None: the pipelines ran without an iterator.
      epochs: the properties of its epochs now.
      plan: the numbers of samples and batches of its epochs now; None: only the end of the data determines the epochs.

    Raises:
      RuntimeError: the records belong to another pipeline or iterator, the state to continue from is unknown, or the
        rest of an epoch can't be redistributed. It says so if `restart` is possible.
    """
    try:
        return _resume(executors, places, records, iterator, epochs, plan)
    except RuntimeError as e:
        with suppress(RuntimeError):
            restart(executors, places, records, iterator, epochs, plan)
            e.args = (f"{e}; set_state(state, restart_epoch=True) begins the epoch anew",)
        raise


def _resume(
    executors: Sequence[Executor],
    places: Places,
    records: Sequence[Mapping[str, Any]],
    iterator: Mapping[str, Any] | None,
    epochs: Epochs,
    plan: EpochPlan | None,
) -> tuple[list[dict[str, Any]], EpochCounter | None]:
    """Does the work of `resume`, without advice in its errors. Arguments and results are those of `resume`."""
    with _checkpoint_errors():
        counter = EpochCounter(plan) if plan is not None else None
        if iterator is None:
            if counter is not None:
                raise RuntimeError(_NO_ITERATOR)
            return _states(executors, places, records), None
        _check_epochs(epochs, iterator)
        if counter is not None and iterator["counter"] is None:
            raise ValueError("iterator.counter is missing")
        # An entry of "ahead" for each shard: their number is unchanged, so each continues from its own record.
        if counter is None or plan is None or len(iterator["counter"]["ahead"]) == len(plan.sizes):
            states = _states(executors, places, records)
            if counter is not None:
                counter.set_state(iterator["counter"])
            return states, counter
        assert epochs.reader_name is not None
        return _redistribute(executors, places, records, iterator, epochs.reader_name, plan)


def restart(
    executors: Sequence[Executor],
    places: Places,
    records: Sequence[Mapping[str, Any]],
    iterator: Mapping[str, Any] | None,
    epochs: Epochs,
    plan: EpochPlan | None,
) -> tuple[list[dict[str, Any]], EpochCounter]:
    """Does the same as `resume`, but from the start of the epoch that the iterator was in, or of the next one if that
    was over.

    Only the seed and the number of the epoch come from the records. So shards, batch size, padding and the last-batch
    policy may all have changed. Readers with another number of samples than the reader `reader_name` begin their own
    round anew.

    Args:
      executors: the executors of the iterator.
      places: of their pipelines, see `shard_places`.
      records: of its pipelines, of those in another process, or of another number of shards.
      iterator: the saved position of the iterator; None, for pipelines without an iterator, is an error.
      epochs: the properties of its epochs now.
      plan: the numbers of samples and batches of its epochs now.

    Raises:
      RuntimeError: the records are of other data or of another order, or a source is not a reader.
    """
    with _checkpoint_errors():
        if iterator is None:
            raise RuntimeError(_NO_ITERATOR)
        _check_epochs(epochs, iterator, ignored=("policy", "padded"))
        if plan is None or epochs.reader_name is None:
            raise RuntimeError(
                "restart_epoch=True needs an iterator with reader_name: otherwise no reader knows where an epoch begins"
            )
        first_record, sources = records[0], executors[0].reader.named
        _check_names(sources, first_record)
        for name, source in sources.items():
            saved = [Saved(**r["sources"][name]) for r in records]
            try:
                source.check_restart(saved)
            except ValueError as e:
                raise RuntimeError(f"{name} can't begin the epoch of this checkpoint anew: {e}") from e
            for entry in saved:
                check_source(entry, source, f"sources.{name}")
        saved_counter, _ = _counter_of(executors[0], first_record, iterator, epochs.reader_name)
        saved_counter.settle()  # goes to the next epoch if this one was over
        counter = EpochCounter(plan)
        counter.begin(saved_counter.epoch)
        size = sources[epochs.reader_name].walks[0].size
        # The round, one pass over its list, that each reader begins. A reader as large as `reader_name` passes over its
        # list once in an epoch.
        rounds = {
            name: saved_counter.epoch
            if source.walks[0].size == size
            else first_record["sources"][name]["cursor"]["round"]
            for name, source in sources.items()
        }
        seed_of_shard = {tuple(r["shard"]): r["seed"] for r in records}
        states = []
        for executor, executor_places in zip(executors, places, strict=True):
            # The same shards keep their own seeds; other shards need a seed that all had in common.
            seed = _common_value(
                [seed_of_shard[tuple(p)] for p in executor_places]
                if seed_of_shard.keys() >= {*map(tuple, executor_places)}
                else [*seed_of_shard.values()],
                "seeds",
            )
            cursors = {
                n: {"cursors": [w.initial(rounds[n]) for w in entry.walks]}
                for n, entry in executor.reader.named.items()
            }
            for n, entry in executor.reader.named.items():
                entry.walks[0].check(cursors[n]["cursors"][0], f"sources.{n}.cursor")
            (_, num_shards), *_ = executor_places
            states.append(_state(executor, first_record, seed, cursors, num_shards))
        return states, counter


def _states(
    executors: Sequence[Executor], places: Places, records: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The state from which each executor continues. Raises RuntimeError if the records belong to another pipeline."""
    return [state_of(e, records, p) for e, p in zip(executors, places, strict=True)]


# See Note [Redistribution].
def _redistribute(
    executors: Sequence[Executor],
    places: Places,
    records: Sequence[Mapping[str, Any]],
    iterator: Mapping[str, Any],
    reader: str,
    plan: EpochPlan,
) -> tuple[list[dict[str, Any]], EpochCounter]:
    """Does the work of `resume` if the records have another number of shards. What the old shards have not read of the
    epoch is divided among the new ones.

    Args:
      executors: the executors of the iterator.
      places: of their pipelines, see `shard_places`.
      records: of the old shards.
      iterator: the saved position of the iterator.
      plan: the numbers of samples and batches of its epochs now.
      reader: the name of the reader that determines the epochs.
    """
    _states(executors, places, records)  # for its checks
    seed = _common_value([r["seed"] for r in records], "seeds")
    record = records[0]
    source = executors[0].reader.named[reader]
    # A fingerprint has the seed that a user gave to the reader. Other readers use the pipeline's, which the record has.
    walk = (
        dataclasses.replace(source.walks[0], seed=seed)
        if "seed" not in record["sources"][reader]["fingerprint"]
        else source.walks[0]
    )
    saved_counter, saved_walk = _counter_of(executors[0], record, iterator, reader)
    saved_walk = dataclasses.replace(saved_walk, seed=walk.seed)  # the walk before, with the old number of shards
    was_over = saved_counter.is_over
    num_dropped = saved_counter.settle()  # batches that belong to no epoch
    if num_dropped:
        records = [_skip_batches(executors[0], r, num_dropped) for r in records]
    states = _states(executors, places, records)
    counter = EpochCounter(plan)
    cursor = records[0]["sources"][reader]["cursor"]  # one determines those of all shards, as they advance in lockstep
    try:
        counter.redistribute(
            saved_counter, walk, states[0]["sources"][reader]["cursors"][0], (saved_walk, cursor), was_over
        )
    except ValueError as e:
        raise RuntimeError(f"this epoch can't be divided among another number of shards: {e}") from e
    return states, counter


def _counter_of(
    executor: Executor, record: Mapping[str, Any], iterator: Mapping[str, Any], reader: str
) -> tuple[EpochCounter, Walk]:
    """The saved counter of an iterator, and the walk of its reader at that time: the way of a shard through the list of
    samples. The walk has the present seed.

    Args:
      executor: has the reader now, with the same list.
      record: of any of the pipelines.
      iterator: the saved position of the iterator.
      reader: the name of the reader.
    """
    fingerprint = record["sources"][reader]["fingerprint"]
    names = ("num_shards", "shard_id", "pad_last_batch", "stick_to_shard")
    walk = dataclasses.replace(executor.reader.named[reader].walks[0], **{n: fingerprint[n] for n in names})
    metas = [dataclasses.replace(walk, shard_id=i).meta() for i in range(walk.num_shards)]
    counter = EpochCounter(EpochPlan.of_readers(metas, record["batch_size"], iterator["policy"]))
    counter.set_state(iterator["counter"])
    return counter, walk


def _skip_batches(executor: Executor, record: Mapping[str, Any], batches: int) -> dict[str, Any]:
    """The record with its cursors moved on by a number of batches, which are dropped."""
    sources = {}
    for name, saved in record["sources"].items():
        walks = executor.reader.named[name].walks  # of this process's shards; below, one gets the record's shard
        cursor = saved["cursor"]
        if walks:  # other sources than readers have none
            fingerprint = saved["fingerprint"]
            walk = dataclasses.replace(walks[0], num_shards=fingerprint["num_shards"], shard_id=fingerprint["shard_id"])
            for _ in range(batches):
                *_, cursor = walk.take(cursor, n=record["batch_size"], batch_size=record["batch_size"])
        sources[name] = {**saved, "cursor": cursor}
    return {**record, "iteration": record["iteration"] + batches, "sources": sources}


# --- helpers --------------------------------------------------------------------------------------------------------


_NO_ITERATOR = (
    "the checkpoint was made by a pipeline without an iterator, so it has no position of an iterator in its epoch"
)


def _check_names(sources: Mapping[str, Any], record: Mapping[str, Any]):
    """Raises RuntimeError if a record has other sources than the pipeline."""
    if set(sources) != set(record["sources"]):
        raise RuntimeError(
            f"the checkpoint is of another pipeline: it has the sources {quoted(sorted(record['sources']))}, this pipeline "
            f"{sorted(sources)}"
        )


def _check_epochs(epochs: Epochs, iterator: Mapping[str, Any], ignored: Sequence[str] = ()):
    """Raises RuntimeError if properties of the epochs, except the ignored ones, differ from those of a saved iterator."""
    properties = {k: x for k, x in dataclasses.asdict(epochs).items() if k not in ignored}
    different = [
        f"{k} is {x!r} here and {quoted(iterator[k])} in the checkpoint"
        for k, x in properties.items()
        if x != iterator[k]
    ]
    if different:
        raise RuntimeError(f"the checkpoint is of another iterator: {'; '.join(different)}")


@contextmanager
def _checkpoint_errors(name: str = "") -> Iterator[None]:
    """Turns the errors of a wrong or damaged checkpoint into a RuntimeError whose message begins with `name`."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration, RecursionError) as e:
        reason = str(e) if isinstance(e, ValueError) else f"{type(e).__name__}: {cut(str(e))}"
        raise RuntimeError(f"{name}this is not a checkpoint of jaxdali, or it is damaged: {reason}") from e


def _common_value(values: Sequence[Any], name: str) -> Any:
    """The value that all have in common; `name` is their plural. Raises RuntimeError if they differ."""
    if any(v != values[0] for v in values):
        raise RuntimeError(
            f"the pipelines of the checkpoint have different {name}, {sorted(set(values))}, so one can't continue where another one was; "
            "give all pipelines the same seed"
        )
    return values[0]
