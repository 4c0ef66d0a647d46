"""A checkpoint on disk: reading it as Spark writes it, the documents of its batches, and rebuilding it from the
ledger."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import TableChanged, Terminal
from penstock.ledger import position
from penstock.ledger.entry import parse_pins, pins_document
from penstock.spark.jvm import java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry, Pins
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store

# Spark 4.0 checks little of a checkpoint itself: it silently takes one without `metadata` for a new query.


MARKER = "penstock.json"


@dataclass(frozen=True)
class PlannedBatch:
    """One `offsets/N` file: what batch N reads up to, and its time."""

    time_ms: int
    after: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    offsets: Mapping[int, PlannedBatch | None]
    """By batch; None where the file exists and cannot be read."""
    commits: Mapping[int, bool]
    """By batch; False where the file exists and cannot be read."""
    metadata: bool
    marker: Mapping[str, Any] | None
    foreign_folders: tuple[str, ...] = field(default=())
    """Sources that are not ours, or state: a checkpoint of another kind of query."""


def checkpoint_folder(checkpoints: str, entry: Entry) -> str:
    return f"{checkpoints}/{entry.generation}"


def read_planned(store: Store, folder: str, batch: int) -> PlannedBatch | None:
    text = store.read(f"{folder}/offsets/{batch}")
    return None if text is None else parse_planned(text)


def parse_planned(text: str) -> PlannedBatch | None:
    lines = text.split("\n")
    if len(lines) < 3 or lines[0] != "v1":
        return None
    try:
        time_ms = int(json.loads(lines[1])["batchTimestampMs"])
        after = tuple(line for line in lines[2:] if line)
        for source in after:
            position.parse(source)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return PlannedBatch(time_ms, after)


def read_checkpoint(store: Store, folder: str) -> Checkpoint | None:
    """None if the folder is missing or empty. Reads only the two newest batches, as Spark does."""
    if not store.names(folder):
        return None
    offsets = _batch_numbers(store, f"{folder}/offsets")
    commits = _batch_numbers(store, f"{folder}/commits")
    return Checkpoint(
        offsets={batch: read_planned(store, folder, batch) for batch in offsets[-2:]},
        commits={batch: _is_complete_commit(store.read(f"{folder}/commits/{batch}")) for batch in commits[-2:]},
        metadata=bool((_read_document(store, f"{folder}/metadata") or {}).get("id")),
        marker=_read_document(store, f"{folder}/{MARKER}"),
        foreign_folders=tuple(name for name in store.names(folder) if name == "state"),
    )


def why_rebuild(checkpoint: Checkpoint | None, entry: Entry, *, stateful: bool = False) -> str | None:
    """None if the checkpoint is complete and in step with the table's last entry, else what is wrong with it.
    `stateful`: it may hold Spark's state, without which nothing can be read again.

    Raises TableChanged if the checkpoint is this table's own and ahead of it: then the table was put back."""
    if checkpoint is None:
        return "it is missing or empty"
    if checkpoint.marker is None:
        return "its marker file is missing"
    if checkpoint.marker.get("ledger") != entry.ledger or checkpoint.marker.get("generation") != entry.generation:
        return f"it belongs to {checkpoint.marker.get('table')}, generation {checkpoint.marker.get('generation')}"
    if not checkpoint.metadata:
        return "its metadata file is missing or empty"
    if not checkpoint.offsets or not checkpoint.commits:
        return "its offsets or commits are missing"
    if None in checkpoint.offsets.values() or not all(checkpoint.commits.values()):
        return "a file in offsets or commits is cut short"
    if checkpoint.foreign_folders and not stateful:
        return "it holds state of another query"
    planned, committed = max(checkpoint.offsets), max(checkpoint.commits)
    if committed > entry.batch or planned > entry.batch + 1:
        ahead = checkpoint.offsets[planned]
        assert ahead is not None
        raise TableChanged(
            f"the checkpoint has seen batch {max(committed, planned - 1)}, the table ends with batch {entry.batch}: "
            f"the table was put back to an older state. Not in the table: "
            f"{position.differences(entry.after, ahead.after)}",
            where=entry.table,
            hint=f"`penstock checkpoints reset {entry.table} --to "
            + ("starting` empties the table and starts over" if stateful else "ledger` reads those records again"),
        )
    return _why_out_of_step(checkpoint, entry, planned, committed)


def _why_out_of_step(checkpoint: Checkpoint, entry: Entry, planned: int, committed: int) -> str | None:
    if planned < entry.batch:
        return f"it is older than the ledger (batch {planned}, the ledger has {entry.batch})"
    if committed < planned - 1 or committed > planned:
        return f"commits end at batch {committed}, offsets at {planned}"
    if committed not in (entry.batch - 1, entry.batch):
        return f"commits end at batch {committed}, the ledger at {entry.batch}"
    pairs = [(entry.batch, entry.after)]
    if planned == entry.batch and entry.batch > 0:  # Spark reads the two newest offsets files, and fails on either
        pairs.append((entry.batch - 1, tuple(map(position.filled, entry.before, entry.after))))
    for batch, expected in pairs:
        recorded = checkpoint.offsets.get(batch)
        if recorded is None or len(recorded.after) != len(expected):
            return f"offsets/{batch} is missing"
        # To run a batch again, Spark must be told where its new partitions began: otherwise it would ask the broker,
        # and refuse if retention has removed their start since. For a batch that is done, it does not matter.
        positions = (
            recorded.after if committed < entry.batch else tuple(map(position.filled, recorded.after, entry.after))
        )
        if not all(map(position.same, positions, expected)):
            return f"offsets/{batch} says {', '.join(recorded.after)}, the ledger {', '.join(expected)}"
    if planned == entry.batch + 1:
        ahead = checkpoint.offsets[planned]
        if ahead is None or len(ahead.after) != len(entry.after):
            return f"offsets/{planned} does not fit the sources"
        if not all(_reaches(a, b) for a, b in zip(entry.after, ahead.after, strict=True)):
            return f"offsets/{planned} lies before the ledger"
    return None


def _reaches(before: str, after: str) -> bool:
    """Every partition of `before` is in `after`, at the same offset or a later one."""
    later = position.parse(after)
    return all(
        later.get(topic, {}).get(partition, -1) >= offset
        for topic, partitions in position.parse(before).items()
        for partition, offset in partitions.items()
    )


def _batch_numbers(store: Store, folder: str) -> list[int]:
    return sorted(int(name) for name in store.names(folder) if name.isdigit())


def _is_complete_commit(text: str | None) -> bool:
    lines = (text or "").split("\n")
    try:
        return lines[0] == "v1" and isinstance(json.loads(lines[1]), dict)
    except (IndexError, ValueError, RecursionError):
        return False


def heal(store: Store, folder: str, entry: Entry) -> None:
    """Writes the checkpoint from which Spark continues exactly after `entry`.

    A batch is planned again over its recorded range and left uncommitted, so that Spark runs it once more: its rows are
    skipped as a retry, and whatever else of it was not written is completed. An entry without rows (genesis, open) is
    batch 0, committed; one that stops at a position has its next batch planned up to there. Batch ids continue from the
    entry's: starting again at 0 within a generation would make Delta take the next batches for old ones and skip
    them."""
    with _replacement_folder(store, folder, entry) as temporary:
        if entry.batch == 0:
            _write_batch(store, temporary, 0, entry.pins.time_ms, entry.after, committed=True)
            if (end := entry.stop_position) is not None:
                _write_batch(store, temporary, 1, entry.pins.time_ms, (end,), committed=False)
        else:
            before = tuple(map(position.filled, entry.before, entry.after))
            _write_batch(store, temporary, entry.batch - 1, entry.pins.time_ms, before, committed=True)
            _write_batch(store, temporary, entry.batch, entry.pins.time_ms, entry.after, committed=False)


def seed(store: Store, folder: str, entry: Entry, metadata: str) -> None:
    """The same for a query that keeps state, at an entry without rows. Its batch 0 is planned over nothing and left
    uncommitted: Spark runs it, which creates the empty state that batch 1 begins with. `metadata` is what Spark writes
    about its settings."""
    assert entry.batch == 0
    with _replacement_folder(store, folder, entry) as temporary:
        store.write(f"{temporary}/offsets/0", "\n".join(["v1", metadata, *entry.after]))


@contextmanager
def _replacement_folder(store: Store, folder: str, entry: Entry) -> Iterator[str]:
    """A temporary folder that then replaces the checkpoint as a whole."""
    parent, _, generation = folder.rpartition("/")
    for name in store.names(parent):
        if name.startswith(f"{generation}.") and name.endswith(".new"):  # left by a process that died while healing
            store.delete(f"{parent}/{name}")
    temporary = f"{folder}.{uuid.uuid4().hex}.new"
    yield temporary
    store.write(f"{temporary}/metadata", json.dumps({"id": str(uuid.uuid4())}))
    marker = {"table": entry.table, "ledger": entry.ledger, "generation": entry.generation}
    store.write(f"{temporary}/{MARKER}", json.dumps(marker))
    store.delete(folder)
    store.move(temporary, folder)


def _write_batch(
    store: Store, folder: str, batch: int, time_ms: int, after: tuple[str, ...], *, committed: bool
) -> None:
    # Commits before offsets: on a store without an atomic rename of folders, an incomplete copy then holds commits
    # without offsets before them, which the comparison at start finds, and never offsets that look like uncommitted
    # work.
    if committed:
        store.write(f"{folder}/commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
    meta = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": time_ms, "conf": {}}, separators=(",", ":"))
    store.write(f"{folder}/offsets/{batch}", "\n".join(["v1", meta, *after]))


# Tables that depend on the state that Spark keeps only in their checkpoint: if it is lost, they start over.


def start_over_hint(table: str) -> str:
    return (
        f"start over: `penstock checkpoints reset {table} --to starting` empties the table and reads its sources from "
        "their start"
    )


def state_lost(table: str, why: str) -> Terminal:
    return Terminal(
        f"the checkpoint holds Spark's state of this table and cannot be rebuilt: {why}",
        where=table,
        hint=f"nothing was written. Put the checkpoint back, or {start_over_hint(table)}",
    )


def rebuild(spark: SparkSession, store: Store, table: TablePlan, folder: str, entry: Entry) -> None:
    """Writes the checkpoint from which Spark continues exactly after `entry`. Raises if that would need lost state."""
    if table.stream is None:
        heal(store, folder, entry)
    elif entry.batch == 0:
        seed(store, folder, entry, _offset_metadata(spark, entry.pins.time_ms))
    else:
        raise state_lost(table.name, f"batch {entry.generation}.{entry.batch} has been written")


def _offset_metadata(spark: SparkSession, time_ms: int) -> str:
    """What Spark itself would write about its settings. For missing ones it assumes the values of its first releases,
    whose state had faults. The number of shuffle partitions is among them, and stays what it is now."""
    jvm = jvm_of(spark)
    metadata_class = jvm.org.apache.spark.sql.execution.streaming.OffsetSeqMetadata
    return str(metadata_class.apply(0, time_ms, java_session(spark).conf()).json())


# Small documents of a batch, next to Spark's own files in the checkpoint.


BATCH_FILES_KEPT = 100
"""As many batches as Spark keeps of its own files."""


def write_batch_file(store: Store, folder: str, kind: str, batch: int, document: Mapping[str, Any]) -> None:
    store.write(f"{folder}/{kind}/{batch}", json.dumps(document, separators=(",", ":")))
    if batch > BATCH_FILES_KEPT:
        store.delete(f"{folder}/{kind}/{batch - BATCH_FILES_KEPT}")


def read_batch_file(store: Store, folder: str, kind: str, batch: int) -> dict[str, Any] | None:
    """None if it is missing or incomplete."""
    return _read_document(store, f"{folder}/{kind}/{batch}")


def _read_document(store: Store, path: str) -> dict[str, Any] | None:
    """The JSON object in a file; None if it is missing or damaged."""
    try:
        document = json.loads(store.read(path) or "null")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def store_pins(store: Store, folder: str, batch: int, pins: Pins) -> None:
    """Called before the first write of the batch."""
    write_batch_file(store, folder, "pins", batch, pins_document(pins))


def read_pins(store: Store, folder: str, batch: int) -> Pins | None:
    """The pins of a batch that was started before; None if it never reached its first write."""
    document = read_batch_file(store, folder, "pins", batch)
    try:
        return parse_pins(document) if document else None
    except KeyError:
        return None
