"""A table's checkpoint compared with its ledger: progress, batches, operator state, size and leftovers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, Terminal
from penstock.ledger import position
from penstock.ledger.checkpoint import (
    BATCH_FILES_KEPT,
    MARKER,
    checkpoint_folder,
    read_checkpoint,
    read_pins,
    read_planned,
)
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.storage.stores import Size, size_of
from penstock.tables.startup_checks import check_checkpoint, read_ledger, refuse_missing_table

if TYPE_CHECKING:
    from penstock.ledger.checkpoint import Checkpoint, PlannedBatch
    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# Positions and the range between two of them, in words: people cannot read what Spark writes of a Delta table.


def describe_positions(positions: Sequence[str]) -> str:
    """`orders-0 at 120, orders-1 at 98`; `version 7`: the first offset or version that is not read."""
    return "; ".join(map(_describe_or_raw, positions))


def _describe_or_raw(text: str) -> str:
    try:
        return _describe_position(text)
    except (KeyError, TypeError, ValueError):  # not a position that Spark would write
        return text


def _describe_position(text: str) -> str:
    if not _is_version(text):
        offsets = position.parse(text)
        return (
            ", ".join(
                f"{topic}-{partition} at {offset}"
                for topic in sorted(offsets)
                for partition, offset in sorted(offsets[topic].items())
            )
            or "no partition"
        )
    version_position = parse_version(text)
    file_note = f", after file {version_position.index}" if version_position.index >= 0 else ""
    return f"{'the table as of ' if version_position.snapshot else ''}version {version_position.version}{file_note}"


def describe_ranges(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """The range between two positions, per source; () if the first is unknown."""
    try:
        return tuple(map(_describe_range, before, after)) if len(before) == len(after) else ()
    except (KeyError, TypeError, ValueError):
        return ()


def _describe_range(before: str, after: str) -> str:
    if not _is_version(after):
        return position.difference(before, after)
    first, last = parse_version(before), parse_version(after)
    if first == last:
        return "nothing"
    parts = []
    if first.snapshot:
        from_file = f" from file {first.index + 1} on" if first.index >= 0 else ""
        up_to_file = f" up to file {last.index}" if last.snapshot else ""
        parts.append(f"the table as of version {first.version}{from_file}{up_to_file}")
    start = first.version + 1 if first.snapshot else first.version
    if not last.snapshot and last.read_up_to >= start:
        versions = f"version {start}" if last.read_up_to == start else f"versions {start} to {last.read_up_to}"
        file_note = "" if last.whole and (first.whole or first.snapshot) else ", not all of their files"
        parts.append(versions + file_note)
    return ", ".join(parts) or "nothing"


def _is_version(text: str) -> bool:
    return "reservoirVersion" in text


# Inspecting a table's ledger and its checkpoint, also beside a running query; changes nothing.


_TRIES = 20
"""A running query may commit after its table was read and before its checkpoint is: then both are read again."""


@dataclass(frozen=True)
class CheckpointInspection:
    """`refusal` is the error that a start would raise; `why` is None then. Without a table, `head` is None."""

    table: TablePlan
    head: LedgerHead | None = None
    folder: str | None = None
    """The checkpoint folder of the last generation in the ledger."""
    checkpoint: Checkpoint | None = None
    why: str | None = None
    """Why the checkpoint has to be rebuilt; None if it is in step with the ledger."""
    refusal: PenstockError | None = None

    @property
    def entry(self) -> Entry | None:
        return self.head.entry if self.head is not None else None

    @property
    def planned(self) -> int | None:
        return max(self.checkpoint.offsets, default=None) if self.checkpoint is not None else None

    @property
    def committed(self) -> int | None:
        return max(self.checkpoint.commits, default=None) if self.checkpoint is not None else None

    @property
    def in_step(self) -> bool:
        return self.head is not None and self.refusal is None and self.why is None


def inspect_checkpoint(table: TablePlan, store: Store) -> CheckpointInspection:
    """Never raises because of the table: its errors are in the answer."""
    inspection = _inspect(table, store)
    for _ in range(_TRIES):
        if inspection.in_step or inspection.head is None:
            return inspection
        next_inspection = _inspect(table, store)
        if (inspection.entry, inspection.checkpoint) == (next_inspection.entry, next_inspection.checkpoint):
            return next_inspection  # the problem is still the same, and no process has written meanwhile
        inspection = next_inspection
    return inspection


def _inspect(table: TablePlan, store: Store) -> CheckpointInspection:
    log = RecentLog(store, table.uri, table.name)
    try:
        head = read_ledger(log, store, table)
        if head is None:
            refuse_missing_table(store, table)
            return CheckpointInspection(table)
    except PenstockError as error:
        return CheckpointInspection(table, refusal=error)
    except (ValueError, KeyError, OSError) as error:
        return CheckpointInspection(
            table, refusal=Terminal(f"the log of {table.uri} cannot be read: {error}", where=table.name)
        )
    folder = checkpoint_folder(table.checkpoints, head.entry)
    checkpoint = read_checkpoint(store, folder)
    try:
        return CheckpointInspection(
            table, head, folder, checkpoint, check_checkpoint(store, log, table, head, checkpoint)
        )
    except PenstockError as error:
        return CheckpointInspection(table, head, folder, checkpoint, refusal=error)


@dataclass(frozen=True)
class CheckpointBatch:
    number: int
    time_ms: int | None
    """When it was planned; None if its file cannot be read."""
    read: tuple[str, ...]
    """The range per source, in words; empty if the batch before it is unknown."""
    committed: bool
    pins: Pins | None = None
    row_counts: RowCounts = field(default_factory=dict)
    after: tuple[str, ...] = ()


def last_batches(store: Store, folder: str, limit: int) -> list[CheckpointBatch]:
    """The newest first."""
    planned_numbers = _numbered_names(store, f"{folder}/offsets")
    committed_numbers = set(_numbered_names(store, f"{folder}/commits"))
    batches: list[CheckpointBatch] = []
    previous: PlannedBatch | None = None
    for number in planned_numbers[-limit - 1 :]:
        current = read_planned(store, folder, number)
        before = previous.after if previous is not None and number - 1 in planned_numbers else ()
        time_ms, after = (current.time_ms, current.after) if current is not None else (None, ())
        counts = {
            name: count for name, count in read_row_counts(store, folder, number).items() if isinstance(count, int)
        }
        batches.append(
            CheckpointBatch(
                number,
                time_ms,
                describe_ranges(before, after),
                number in committed_numbers,
                _read_valid_pins(store, folder, number),
                counts,
                after,
            )
        )
        previous = current
    return batches[::-1][:limit]


def open_batches(store: Store, folder: str) -> list[int]:
    """Numbers of batches that are planned and not committed."""
    committed = set(_numbered_names(store, f"{folder}/commits"))
    last = max(committed, default=-1)
    return [number for number in _numbered_names(store, f"{folder}/offsets") if number > last]


def _read_valid_pins(store: Store, folder: str, number: int) -> Pins | None:
    """None also for a file that Penstock cannot have written."""
    try:
        pins = read_pins(store, folder, number)
    except TypeError:
        return None
    if pins is None or not isinstance(pins.definition, str) or not isinstance(pins.lookups, dict):
        return None
    watermark_ms = pins.watermark.now if pins.watermark is not None else None
    return pins if watermark_ms is None or isinstance(watermark_ms, int) else None


def _numbered_names(store: Store, folder: str) -> list[int]:
    return sorted(int(name) for name in store.names(folder) if name.isdigit())


# The state that Spark keeps in a checkpoint for streaming operators: groups, joins, keys already seen.


_STATE_FILE = re.compile(r"(\d+)(?:_.*)?\.(?:delta|snapshot|zip|changelog)")
_OPERATOR_LABELS = {
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
    """The operator's name in Spark."""
    partitions: int
    versions: tuple[int, int] | None
    """The oldest and the newest version that a partition holds; batch N leaves version N+1."""
    partitions_behind: int
    """Partitions whose newest version is older than that of others: their batch was cut off."""
    size: Size

    @property
    def label(self) -> str:
        return _OPERATOR_LABELS.get(self.name or "", "") or self.name or "unknown"


def operators(store: Store, folder: str) -> list[Operator]:
    state = f"{folder}/state"
    return [_operator(store, f"{state}/{number}", number) for number in _numbered_names(store, state)]


def _operator(store: Store, folder: str, number: int) -> Operator:
    partitions = _numbered_names(store, folder)
    versions_by_partition = [_state_versions(store, f"{folder}/{partition}") for partition in partitions]
    newest = [max(numbers) for numbers in versions_by_partition if numbers]
    versions = (min(min(numbers) for numbers in versions_by_partition if numbers), max(newest)) if newest else None
    behind = sum(version < max(newest) for version in newest)
    return Operator(number, _operator_name(store, folder), len(partitions), versions, behind, size_of(store, folder))


def _state_versions(store: Store, folder: str) -> set[int]:
    """The state versions of a partition. A join keeps several stores in one, each in its own folder."""
    names = store.names(folder)
    store_folders = [f"{folder}/{name}" for name in names if "." not in name and not name.startswith("_")]
    files = [*names, *(file for store_folder in store_folders for file in store.names(store_folder))]
    return {int(match[1]) for match in map(_STATE_FILE.fullmatch, files) if match}


def _operator_name(store: Store, folder: str) -> str | None:
    """The operator's name in its metadata file."""
    lines = (store.read(f"{folder}/_metadata/metadata") or "").split("\n")
    try:
        return str(json.loads(lines[1])["operatorInfo"]["operatorName"])
    except (IndexError, ValueError, KeyError, TypeError):
        return None


# The size of checkpoints, their growth, and leftovers of earlier ones.


@dataclass(frozen=True)
class Leftover:
    """A folder that no start reads any more."""

    table: str
    folder: str
    description: str
    size: Size


@dataclass(frozen=True)
class CheckpointSize:
    total: Size
    state: Size
    """The part that is Spark's state."""
    batches: int
    """Batches that it holds; Spark keeps the last 100."""

    @property
    def per_batch(self) -> int | None:
        """Bytes that a batch adds, without state."""
        return (self.total.bytes - self.state.bytes) // self.batches if self.batches else None

    @property
    def grows_to(self) -> int | None:
        """Bytes once it holds as many batches as are kept, without state."""
        return None if self.per_batch is None else self.per_batch * max(BATCH_FILES_KEPT, self.batches)


def measure_checkpoint(inspection: CheckpointInspection, store: Store) -> CheckpointSize:
    if inspection.folder is None:
        return CheckpointSize(Size(), Size(), 0)
    batches = sum(name.isdigit() for name in store.names(f"{inspection.folder}/offsets"))
    return CheckpointSize(size_of(store, inspection.folder), size_of(store, f"{inspection.folder}/state"), batches)


def leftovers(inspection: CheckpointInspection, store: Store) -> Iterator[Leftover]:
    """Yields nothing for a table that is missing or refused: a person may need its folders."""
    table, entry = inspection.table, inspection.entry
    if entry is None or inspection.refusal is not None:
        return
    for name in sorted(store.names(table.checkpoints)):
        folder = f"{table.checkpoints}/{name}"
        if name.endswith(".new"):
            yield Leftover(table.name, folder, "a heal that was cut off", size_of(store, folder))
        elif name.isdigit() and int(name) < entry.generation:
            yield Leftover(table.name, folder, f"generation {name}", size_of(store, folder))
        elif name.isdigit() and int(name) > entry.generation and _ledger_id(store, folder) != entry.ledger:
            yield Leftover(table.name, folder, "another table of that name", size_of(store, folder))


def unknown_table_leftovers(plan: Plan, store: Store) -> Iterator[Leftover]:
    """Checkpoints of tables that the project does not define (any more)."""
    table_names = {table.name for table in plan.tables}
    for name in sorted(store.names(f"{plan.system}/checkpoints")):
        if name not in table_names:
            folder = f"{plan.system}/checkpoints/{name}"
            yield Leftover(name, folder, "no table of the project", size_of(store, folder))


def _ledger_id(store: Store, folder: str) -> str | None:
    try:
        marker = json.loads(store.read(f"{folder}/{MARKER}") or "null")
    except (ValueError, RecursionError):
        return None
    return marker.get("ledger") if isinstance(marker, dict) else None
