"""`checkpoints`: what each one holds, whether it fits its ledger, what a start would do, and rebuilding it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import BrokerAway, DataLoss, LockHeld, PenstockError, Terminal, Transient
from penstock.ledger import position
from penstock.ledger.checkpoint import KEPT, MARKER, folder_of, heal, read_checkpoint, read_pins, read_planned
from penstock.ledger.delta_log import DeltaLog, RecentLog
from penstock.ledger.entry import pins_document
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.ledger.source import said, subscribes
from penstock.operations.staleness import definition_drift
from penstock.operations.status import ALIVE, is_gone, read_state, runner
from penstock.sources.delta_changes import refuse_lost, table_id
from penstock.storage.locks import ProcessLock, acquire_commit, acquire_run, holder, lock_path, owner
from penstock.storage.stores import Size, size_of, store_of
from penstock.tables.startup_checks import compare, read_ledger, refuse_gone

if TYPE_CHECKING:
    from penstock.ledger.checkpoint import Checkpoint, PlannedBatch
    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.head import LedgerHead
    from penstock.operations.staleness import DefinitionDrift
    from penstock.plan.model import Plan, TablePlan
    from penstock.plan.sources import TopicsSource, VersionsSource
    from penstock.storage.stores import Store

# Positions and what lies between two of them, in words: what Spark writes of a Delta table tells a person nothing.


def at(places: Sequence[str]) -> str:
    """`orders-0 at 120, orders-1 at 98`; `version 7`: the first that is not read."""
    return "; ".join(map(_at, places))


def _at(text: str) -> str:
    try:
        return _place(text)
    except (KeyError, TypeError, ValueError):  # no position that Spark would write
        return text


def _place(text: str) -> str:
    if not _of_table(text):
        found = position.parse(text)
        return (
            ", ".join(f"{t}-{p} at {o}" for t in sorted(found) for p, o in sorted(found[t].items())) or "no partition"
        )
    place = parse_version(text)
    part = f", after file {place.index}" if place.index >= 0 else ""
    return f"{'the table as of ' if place.snapshot else ''}version {place.version}{part}"


def between(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """What lies between two positions, per source; () if the first is not known."""
    try:
        return tuple(map(_between, before, after)) if len(before) == len(after) else ()
    except (KeyError, TypeError, ValueError):
        return ()


def _between(before: str, after: str) -> str:
    if not _of_table(after):
        return position.difference(before, after)
    first, last = parse_version(before), parse_version(after)
    if first == last:
        return "nothing"
    parts = []
    if first.snapshot:
        begin = f" from file {first.index + 1} on" if first.index >= 0 else ""
        end = f" up to file {last.index}" if last.snapshot else ""
        parts.append(f"the table as of version {first.version}{begin}{end}")
    start = first.version + 1 if first.snapshot else first.version
    if not last.snapshot and last.read_up_to >= start:
        named = f"version {start}" if last.read_up_to == start else f"versions {start} to {last.read_up_to}"
        part = "" if last.whole and (first.whole or first.snapshot) else ", not all of their files"
        parts.append(named + part)
    return ", ".join(parts) or "nothing"


def _of_table(text: str) -> bool:
    return "reservoirVersion" in text


# A table's ledger and its checkpoint, as they stand now: looked at beside a running query, nothing changed.


_TRIES = 20
"""A running query may commit between the look at its table and the one at its checkpoint: then it is looked again."""


@dataclass(frozen=True)
class CheckpointLook:
    """`refusal` is what a start would raise; then `why` says nothing. Without a table, `tail` is None."""

    table: TablePlan
    tail: LedgerHead | None = None
    folder: str | None = None
    """Of the generation in which the ledger ends."""
    found: Checkpoint | None = None
    why: str | None = None
    """Why the checkpoint has to be rebuilt; None if it is in step with the ledger."""
    refusal: PenstockError | None = None

    @property
    def entry(self) -> Entry | None:
        return self.tail.entry if self.tail is not None else None

    @property
    def planned(self) -> int | None:
        return max(self.found.offsets, default=None) if self.found is not None else None

    @property
    def committed(self) -> int | None:
        return max(self.found.commits, default=None) if self.found is not None else None

    @property
    def in_step(self) -> bool:
        return self.tail is not None and self.refusal is None and self.why is None


def inspect_checkpoint(table: TablePlan, store: Store) -> CheckpointLook:
    """Nothing is raised because of the table: it is in the answer."""
    seen = _inspect(table, store)
    for _ in range(_TRIES):
        if seen.in_step or seen.tail is None:
            return seen
        again = _inspect(table, store)
        if _same(seen, again):
            return again
        seen = again
    return seen


def _inspect(table: TablePlan, store: Store) -> CheckpointLook:
    log = RecentLog(store, table.uri, table.name)
    try:
        tail = read_ledger(log, store, table)
        if tail is None:
            refuse_gone(store, table)
            return CheckpointLook(table)
    except PenstockError as error:
        return CheckpointLook(table, refusal=error)
    except (ValueError, KeyError, OSError) as error:
        return CheckpointLook(
            table, refusal=Terminal(f"the log of {table.uri} cannot be read: {error}", where=table.name)
        )
    folder = folder_of(table.checkpoints, tail.entry)
    found = read_checkpoint(store, folder)
    try:
        return CheckpointLook(table, tail, folder, found, compare(store, log, table, tail, found))
    except PenstockError as error:
        return CheckpointLook(table, tail, folder, found, refusal=error)


def _same(one: CheckpointLook, other: CheckpointLook) -> bool:
    """What is wrong is wrong still, and nobody has written meanwhile."""
    return one.entry == other.entry and one.found == other.found


# The batches that a checkpoint still holds, each with what it reads, what it pinned and what became of its rows.


@dataclass(frozen=True)
class CheckpointBatch:
    number: int
    time_ms: int | None
    """When it was planned; None if its file cannot be read."""
    read: tuple[str, ...]
    """Per source, in words; empty if the batch before it is not there to tell."""
    committed: bool
    pins: Pins | None = None
    fates: RowCounts = field(default_factory=dict)
    after: tuple[str, ...] = ()


def last_batches(store: Store, folder: str, most: int) -> list[CheckpointBatch]:
    """The newest first."""
    planned = _numbers(store, f"{folder}/offsets")
    committed = set(_numbers(store, f"{folder}/commits"))
    found: list[CheckpointBatch] = []
    earlier: PlannedBatch | None = None
    for number in planned[-most - 1 :]:
        now = read_planned(store, folder, number)
        before = earlier.after if earlier is not None and number - 1 in planned else ()
        found.append(
            CheckpointBatch(
                number,
                now.time_ms if now is not None else None,
                between(before, now.after) if now is not None else (),
                number in committed,
                _pins(store, folder, number),
                _fates(store, folder, number),
                now.after if now is not None else (),
            )
        )
        earlier = now
    return found[::-1][:most]


def open_batches(store: Store, folder: str) -> list[int]:
    """Planned and not committed."""
    committed = set(_numbers(store, f"{folder}/commits"))
    last = max(committed, default=-1)
    return [number for number in _numbers(store, f"{folder}/offsets") if number > last]


def _pins(store: Store, folder: str, number: int) -> Pins | None:
    """None also for a file that Penstock would not write so."""
    try:
        pins = read_pins(store, folder, number)
    except TypeError:
        return None
    if pins is None or not isinstance(pins.definition, str) or not isinstance(pins.lookups, dict):
        return None
    now = pins.watermark.now if pins.watermark is not None else None
    return pins if now is None or isinstance(now, int) else None


def _fates(store: Store, folder: str, number: int) -> RowCounts:
    found = read_row_counts(store, folder, number)
    return {name: count for name, count in found.items() if isinstance(count, int)}


def _numbers(store: Store, folder: str) -> list[int]:
    return sorted(int(name) for name in store.names(folder) if name.isdigit())


# What Spark keeps in a checkpoint for its streaming operators: groups, joins, keys that it has seen.


_FILE = re.compile(r"(\d+)(?:_.*)?\.(?:delta|snapshot|zip|changelog)")
_KINDS = {
    "stateStoreSave": "groups",
    "sessionWindowStateStoreSaveExec": "session windows",
    "symmetricHashJoin": "join of two streams",
    "dedupe": "keys seen",
    "dedupeWithinWatermark": "keys seen within the watermark",
    "globalLimit": "limit",
    "flatMapGroupsWithState": "state of a function",
    "applyInPandasWithState": "state of a function",
    "transformWithStateInPandasExec": "state of a function",
    "transformWithStateExec": "state of a function",
}


@dataclass(frozen=True)
class Operator:
    number: int
    name: str | None
    """As Spark calls it."""
    partitions: int
    versions: tuple[int, int] | None
    """The oldest and the newest that a partition holds; a batch N leaves version N+1."""
    behind: int
    """Partitions whose newest version is older than that of others: their batch was cut off."""
    size: Size

    @property
    def said(self) -> str:
        return _KINDS.get(self.name or "", "") or self.name or "unknown"


def operators(store: Store, folder: str) -> list[Operator]:
    state = f"{folder}/state"
    return [_operator(store, f"{state}/{number}", number) for number in _numbers(store, state)]


def _operator(store: Store, folder: str, number: int) -> Operator:
    partitions = _numbers(store, folder)
    held = [_versions(store, f"{folder}/{partition}") for partition in partitions]
    newest = [max(one) for one in held if one]
    versions = (min(min(one) for one in held if one), max(newest)) if newest else None
    behind = sum(one < max(newest) for one in newest)
    return Operator(number, _name(store, folder), len(partitions), versions, behind, size_of(store, folder))


def _versions(store: Store, folder: str) -> set[int]:
    """A join keeps several stores in a partition, each in a folder of its own."""
    names = store.names(folder)
    found = {int(match[1]) for match in map(_FILE.fullmatch, names) if match}
    for name in names:
        if "." not in name and not name.startswith("_"):
            found |= {int(match[1]) for match in map(_FILE.fullmatch, store.names(f"{folder}/{name}")) if match}
    return found


def _name(store: Store, folder: str) -> str | None:
    """From the note that Spark makes of an operator."""
    lines = (store.read(f"{folder}/_metadata/metadata") or "").split("\n")
    try:
        return str(json.loads(lines[1])["operatorInfo"]["operatorName"])
    except (IndexError, ValueError, KeyError, TypeError):
        return None


# How large checkpoints are, how they grow, and what is left over of earlier ones.


@dataclass(frozen=True)
class Leftover:
    """A folder that no start looks at any more."""

    table: str
    folder: str
    what: str
    size: Size


@dataclass(frozen=True)
class Weight:
    size: Size
    state: Size
    """What of it is Spark's state."""
    batches: int
    """So many are in it; Spark keeps the last 100."""

    @property
    def per_batch(self) -> int | None:
        """Bytes that a batch adds, state aside."""
        return (self.size.bytes - self.state.bytes) // self.batches if self.batches else None

    @property
    def grows_to(self) -> int | None:
        """Bytes once it holds as many batches as are kept, state aside."""
        return None if self.per_batch is None else self.per_batch * max(KEPT, self.batches)


def weigh(seen: CheckpointLook, store: Store) -> Weight:
    if seen.folder is None:
        return Weight(Size(), Size(), 0)
    batches = sum(name.isdigit() for name in store.names(f"{seen.folder}/offsets"))
    return Weight(size_of(store, seen.folder), size_of(store, f"{seen.folder}/state"), batches)


def leftovers(seen: CheckpointLook, store: Store) -> Iterator[Leftover]:
    """Of a table that is gone or refused, nothing is: a person may need it."""
    table, entry = seen.table, seen.entry
    if entry is None or seen.refusal is not None:
        return
    for name in sorted(store.names(table.checkpoints)):
        folder = f"{table.checkpoints}/{name}"
        if name.endswith(".new"):
            yield Leftover(table.name, folder, "a heal that was cut off", size_of(store, folder))
        elif name.isdigit() and int(name) < entry.generation:
            yield Leftover(table.name, folder, f"generation {name}", size_of(store, folder))
        elif name.isdigit() and int(name) > entry.generation and _ledger(store, folder) != entry.ledger:
            yield Leftover(table.name, folder, "another table of that name", size_of(store, folder))


def strangers(plan: Plan, store: Store) -> Iterator[Leftover]:
    """Checkpoints of tables that the project does not name (any more)."""
    known = {table.name for table in plan.tables}
    for name in sorted(store.names(f"{plan.system}/checkpoints")):
        if name not in known:
            folder = f"{plan.system}/checkpoints/{name}"
            yield Leftover(name, folder, "no table of the project", size_of(store, folder))


def _ledger(store: Store, folder: str) -> str | None:
    try:
        marker = json.loads(store.read(f"{folder}/{MARKER}") or "null")
    except (ValueError, RecursionError):
        return None
    return marker.get("ledger") if isinstance(marker, dict) else None


# What a start of a table would do now: go on, rebuild its checkpoint, open a generation, or refuse.


BROKER_TIMEOUT = 2.5
"""Seconds that a broker that is away may hold up the answer."""
Does = Literal["make the table", "go on", "rebuild", "open a generation", "wait", "refuse"]


@dataclass(frozen=True)
class StartForecast:
    does: Does
    why: str
    hint: str | None = None
    unknown: str | None = None
    """What could not be asked: a start asks it."""


def outlook(plan: Plan, seen: CheckpointLook, fits: DefinitionDrift, store: Store) -> StartForecast:
    """Asks the broker, or the table upstream, whether it still has what comes next; as `run` does."""
    if seen.refusal is not None:
        return StartForecast("refuse", seen.refusal.message, seen.refusal.hint)
    entry = seen.entry
    if entry is None:
        return StartForecast("make the table", "there is none yet")
    if fits.refused:
        return StartForecast("refuse", fits.follows)
    unknown = None
    try:
        _ask_source(seen.table, entry, store, same=fits.kind != "another source")
    except BrokerAway as error:
        unknown = error.message
    except Transient as error:
        return StartForecast("wait", error.message, error.hint)
    except PenstockError as error:
        return StartForecast("refuse", error.message, error.hint)
    if fits.kind == "another source":
        return StartForecast("open a generation", fits.follows, unknown=unknown)
    if not plan.local and entry.kind != "genesis":
        begins = f"without locks each runner has a generation of its own: {entry.generation + 1}"
        return StartForecast("open a generation", f"{begins}, at the ledger's position", unknown=unknown)
    if seen.why is not None:
        at = f"batch {entry.generation}.{entry.batch}"
        return StartForecast("rebuild", f"the checkpoint, from the ledger at {at}: {seen.why}", unknown=unknown)
    return StartForecast("go on", _goes_on(seen, entry), unknown=unknown)


def _goes_on(seen: CheckpointLook, entry: Entry) -> str:
    planned, committed = seen.planned or 0, seen.committed if seen.committed is not None else -1
    if planned > entry.batch:
        return f"with batch {planned}, which is planned and was not written"
    if committed < entry.batch and entry.batch > 0:
        return f"with batch {entry.batch} once more: its rows are in the table, and the rest of it is completed"
    return f"with batch {entry.batch + 1}"


def _ask_source(table: TablePlan, entry: Entry, store: Store, *, same: bool) -> None:
    """Raises what a start would raise because of what the table reads. `same`: it reads what it read before."""
    if table.topics is not None:
        _ask_broker(table, table.topics, entry, same=same)
    elif same and table.versions is not None:
        by_name = dict(table.stream.inputs) if table.stream is not None else {"": table.versions}
        order = entry.subscription.get("order") or list(by_name)
        for name, at in zip(order, entry.after, strict=False):
            _ask_upstream(table.name, by_name.get(name, table.versions), at, store)


def _ask_broker(table: TablePlan, source: TopicsSource, entry: Entry, *, same: bool) -> None:
    from penstock.sources.registry import open_client
    from penstock.sources.topics import refuse_lost as refuse_lost_records
    from penstock.sources.topics import require_topics

    admin = open_client(source, timeout=BROKER_TIMEOUT)
    topics = admin.topics(source)
    require_topics(source, topics, table.name)
    if same:
        at = position.parse(entry.after[0])
        refuse_lost_records(at, entry.topics, topics, admin, table.name, committed=source.reads_committed)


def _ask_upstream(table: str, source: VersionsSource, at: str, store: Store) -> None:
    called = source.label
    log = DeltaLog(store_of(source, store), source.uri, called)
    versions = log.versions()
    if source.as_files is not None and not versions:
        raise DataLoss(
            f"the list of files that were read, {source.uri}, is gone",
            hint=f"put it back, or `penstock checkpoints reset {table} --to latest|earliest`",
        )
    refuse_lost(parse_version(at), table_id(log, versions), versions, table, called)


# A checkpoint rebuilt from the ledger now, without waiting for a start.
#
# On a local lake under both locks of the table, as every writer takes them. On an object store there are none: there
# a runner that works is known by what it said last, and each start makes a checkpoint of its own anyway.


@dataclass(frozen=True)
class Healing:
    table: str
    folder: str
    entry: Entry
    why: str | None
    """What is wrong with the checkpoint; None: it is in step with the ledger, and nothing is to be done."""


def plan_heal(plan: Plan, table: TablePlan, store: Store) -> Healing | None:
    """What a heal would do; None if there is no table. Raises what a start would raise, and LockHeld while a runner
    works on the table."""
    _refuse_runner(plan, table, store)
    return _judge(inspect_checkpoint(table, store))


def run_heal(plan: Plan, table: TablePlan, store: Store) -> Healing | None:
    """The same, done; what was found wrong is in the answer. Killed anywhere, it can be run again: a folder that is
    half made is no checkpoint, and one that is missing is made."""
    with ExitStack() as held:
        if plan.local:
            path = lock_path(plan.system, table.name, "run")
            acquire_run(held.enter_context(closing(ProcessLock(path))), path, table.name)
            path = lock_path(plan.system, table.name, "commit")
            acquire_commit(held.enter_context(closing(ProcessLock(path))), table.name)
        else:
            _refuse_runner(plan, table, store)
        found = _judge(inspect_checkpoint(table, store))
        if found is None or found.why is None:
            return found
        heal(store, found.folder, found.entry)
        after = inspect_checkpoint(table, store)
        if not after.in_step:
            raise Terminal(
                f"the checkpoint was rebuilt, and is still not in step with the ledger: {after.why or after.refusal}",
                where=table.name,
                hint="somebody else writes to it: find out who, and run this again",
            )
        return found


def _judge(seen: CheckpointLook) -> Healing | None:
    if seen.refusal is not None:
        raise seen.refusal
    if seen.entry is None or seen.folder is None:
        return None
    if seen.table.stream is not None and seen.why is not None:
        raise Terminal(
            f"its checkpoint holds Spark's first, empty state, which Spark alone makes: {seen.why}",
            where=seen.table.name,
            hint=f"no row was written yet: `penstock run {seen.table.name}` begins it",
        )
    return Healing(seen.table.name, seen.folder, seen.entry, seen.why)


def _refuse_runner(plan: Plan, table: TablePlan, store: Store) -> None:
    if plan.local:
        path = lock_path(plan.system, table.name, "run")
        if holder(path) is not None:
            by = owner(path)
            raise _held(table.name, f"process {by.get('python')}, since {by.get('since')}")
        return
    said = read_state(store, plan.system, table.name)
    if said is not None and said.state in ALIVE and not is_gone(said):
        raise _held(table.name, f"process {said.process} on {said.host}, {said.state} since {said.since}")


def _held(table: str, who: str) -> LockHeld:
    return LockHeld(
        f"another penstock process works on this table ({who})",
        where=table,
        hint="a running table needs no heal: it compares its checkpoint when it starts. Stop that process first",
    )


# Checkpoints as JSON documents.


def standing_document(seen: CheckpointLook, weight: Weight, left: Sequence[Leftover]) -> dict[str, Any]:
    entry = seen.entry
    return {
        "table": seen.table.name,
        "folder": seen.folder,
        "generation": entry.generation if entry is not None else None,
        "batch": entry.batch if entry is not None else None,
        "planned": seen.planned,
        "committed": seen.committed,
        "in_step": seen.in_step if entry is not None else None,
        "why": seen.why,
        "refused": seen.refusal.message if seen.refusal is not None else None,
        "hint": seen.refusal.hint if seen.refusal is not None else None,
        "stateful": seen.table.stream is not None,
        **_size(weight.size),
        "state_bytes": weight.state.bytes,
        "batches": weight.batches,
        "batches_kept": KEPT,
        "bytes_per_batch": weight.per_batch,
        "leftovers": [leftover_document(one) for one in left],
    }


def leftover_document(one: Leftover) -> dict[str, Any]:
    return {"table": one.table, "folder": one.folder, "what": one.what, **_size(one.size)}


def batch_document(one: CheckpointBatch) -> dict[str, Any]:
    return {
        "batch": one.number,
        "planned_ms": one.time_ms,
        "read": list(one.read),
        "after": [json.loads(text) for text in one.after],
        "committed": one.committed,
        "pins": pins_document(one.pins) if one.pins is not None else None,
        "fates": dict(one.fates),
    }


def operator_document(one: Operator) -> dict[str, Any]:
    return {
        "operator": one.number,
        "name": one.name,
        "keeps": one.said,
        "partitions": one.partitions,
        "versions": list(one.versions) if one.versions is not None else None,
        "partitions_behind": one.behind,
        **_size(one.size),
    }


def outlook_document(one: StartForecast) -> dict[str, Any]:
    return asdict(one)


def fit_document(one: DefinitionDrift) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "generation": one.since[0] if one.since is not None else None,
        "batch": one.since[1] if one.since is not None else None,
        "was": one.was,
        "follows": one.follows or None,
        "refused": one.refused,
    }


def healing_document(one: Healing) -> dict[str, Any]:
    return {
        "table": one.table,
        "folder": one.folder,
        "generation": one.entry.generation,
        "batch": one.entry.batch,
        "why": one.why,
        "position": [json.loads(text) for text in one.entry.after],
    }


def _size(size: Size) -> dict[str, int]:
    return {"files": size.files, "bytes": size.bytes}


# The checkpoints of all tables, each as it stands.


@dataclass(frozen=True)
class CheckpointSummary:
    seen: CheckpointLook
    weight: Weight
    left: tuple[Leftover, ...]


def standings(plan: Plan, tables: Sequence[TablePlan], store: Store) -> list[CheckpointSummary]:
    """One per table, in their order; what is wrong with one is said in its place."""
    if plan.local:
        return [_standing(table, store) for table in tables]
    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(lambda table: _standing(table, store), tables))


def _standing(table: TablePlan, store: Store) -> CheckpointSummary:
    seen = inspect_checkpoint(table, store)
    return CheckpointSummary(seen, weigh(seen, store), tuple(leftovers(seen, store)))


def list_document(one: CheckpointSummary) -> dict[str, Any]:
    return standing_document(one.seen, one.weight, one.left)


# All that there is to say about one checkpoint.


@dataclass(frozen=True)
class CheckpointDetails:
    seen: CheckpointLook
    weight: Weight
    left: tuple[Leftover, ...]
    query: str | None
    """Spark's id of the query, from `metadata`."""
    batches: tuple[CheckpointBatch, ...]
    """The newest first."""
    open: tuple[int, ...]
    """Planned and not committed."""
    operators: tuple[Operator, ...]
    reads: str
    fits: DefinitionDrift
    outlook: StartForecast
    process: int | None
    """Of the runner that works on the table now."""


def show(plan: Plan, table: TablePlan, store: Store, most: int) -> CheckpointDetails:
    """With its last batches, at most so many. Asks the table's source; a broker that is away is waited for briefly."""
    seen = inspect_checkpoint(table, store)
    folder = seen.folder
    fits = definition_drift(table, seen.entry)
    return CheckpointDetails(
        seen=seen,
        weight=weigh(seen, store),
        left=tuple(leftovers(seen, store)),
        query=_query(store, folder) if folder is not None else None,
        batches=tuple(last_batches(store, folder, most)) if folder is not None else (),
        open=tuple(open_batches(store, folder)) if folder is not None else (),
        operators=tuple(operators(store, folder)) if folder is not None else (),
        reads=said(seen.entry.subscription if seen.entry is not None else subscribes(table)),
        fits=fits,
        outlook=outlook(plan, seen, fits, store),
        process=runner(plan, table),
    )


def _query(store: Store, folder: str) -> str | None:
    try:
        return str(json.loads(store.read(f"{folder}/metadata") or "{}")["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def show_document(found: CheckpointDetails) -> dict[str, Any]:
    marker = found.seen.found.marker if found.seen.found is not None else None
    entry = found.seen.entry
    return {
        **standing_document(found.seen, found.weight, found.left),
        "query": found.query,
        "marker": dict(marker) if marker is not None else None,
        "process": found.process,
        "reads": found.reads,
        "position": [json.loads(text) for text in entry.after] if entry is not None else None,
        "definition": {"now": found.seen.table.definition, **fit_document(found.fits)},
        "start": outlook_document(found.outlook),
        "planned_not_committed": list(found.open),
        "last": [batch_document(one) for one in found.batches],
        "state": [operator_document(one) for one in found.operators],
    }
