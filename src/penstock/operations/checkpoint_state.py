"""A table's checkpoint beside its ledger: how far each is, what batches it holds, state, size and leftovers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, Terminal
from penstock.ledger import position
from penstock.ledger.checkpoint import KEPT, MARKER, folder_of, read_checkpoint, read_pins, read_planned
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.storage.stores import Size, size_of
from penstock.tables.startup_checks import compare, read_ledger, refuse_gone

if TYPE_CHECKING:
    from penstock.ledger.checkpoint import Checkpoint, PlannedBatch
    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import Plan, TablePlan
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
    row_counts: RowCounts = field(default_factory=dict)
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
                _row_counts(store, folder, number),
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


def _row_counts(store: Store, folder: str, number: int) -> RowCounts:
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
    """Batches that it holds; Spark keeps the last 100."""

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
