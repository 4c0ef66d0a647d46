"""A ledger entry: what a commit's `userMetadata` says about where its rows came from; and the notes of maintenance
commits."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from penstock.errors import Terminal

RowCounts = Mapping[str, int]


# What a maintenance commit of Penstock says in `userMetadata`: who made it, and why.
#
# It is not a link of the chain: it changes no row, and the table's last entry stays the last one.


Work = Literal["optimize", "purge", "vacuum", "remember"]
WORKS = ("optimize", "purge", "vacuum", "remember")
"""optimize: small files were compacted, or files sorted. purge: rows that were only marked as deleted were removed.
vacuum: files that no version needs any more were deleted. remember: the table remembers removed files for longer."""
FORMAT = 1
"""Of notes and of entries."""


@dataclass(frozen=True)
class MaintenanceNote:
    work: Work
    table: str
    by: str
    """`penstock optimize`, `penstock vacuum`, or the runner."""
    note: str
    """For people: what was found, what was done."""
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)

    @property
    def description(self) -> str:
        return f"{self.note} ({self.by}, process {self.process} on {self.host})"


def dump_maintenance(maintenance: MaintenanceNote) -> str:
    document: dict[str, Any] = {
        "penstock": FORMAT,
        "kind": maintenance.work,
        "table": maintenance.table,
        "by": maintenance.by,
        "note": maintenance.note,
        "host": maintenance.host,
        "process": maintenance.process,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def parse_maintenance(user_metadata: str | None) -> MaintenanceNote | None:
    """None if the text is not a maintenance note of Penstock."""
    document = _own_document(user_metadata) or {}
    try:
        if document["kind"] not in WORKS:
            return None
        return MaintenanceNote(
            document["kind"],
            str(document["table"]),
            str(document["by"]),
            str(document["note"]),
            str(document["host"]),
            int(document["process"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _own_document(user_metadata: str | None) -> dict[str, Any] | None:
    """What a commit of Penstock says; None for those of others."""
    if not user_metadata or '"penstock"' not in user_metadata:
        return None
    try:
        document = json.loads(user_metadata)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


# A ledger entry: what a commit's `userMetadata` says about where its rows came from.
#
# Every entry is complete in itself: the last one is enough to continue from, because Delta's log retention removes the
# older ones.


Kind = Literal["genesis", "batch", "open", "fill", "rewind", "redrive", "forget", "carry"]
"""genesis: the table is created. batch: rows of a batch. open: a new generation at a chosen position. fill: all rows
rewritten, up to the position at which the generation was opened. rewind: the rows and the position of an earlier
version. redrive: rows from quarantine, outside the batches. forget: a subject's rows are removed. carry: a copy of the
last entry."""


OUTSIDE_BATCHES: tuple[Kind, ...] = ("carry", "redrive", "forget")
"""Entries outside the sequence of batches: they repeat the number and the positions of the entry before."""
REPLACING_KINDS: tuple[Kind, ...] = ("fill", "rewind")
"""Entries that replace all rows of the table. They have the number of the entry that opened their generation."""
APPLIED = ("inserted", "updated", "deleted")
"""What a merged change can do to a row of the table."""
_LETTERS = str.maketrans("0123456789", "ghijklmnop")


@dataclass(frozen=True)
class Watermark:
    """In microseconds since 1970; None until a time has been read."""

    closed: int | None = None
    """Windows that end here or earlier were closed by the batches before."""
    now: int | None = None
    """Windows that end here or earlier are closed by this one."""
    reached: int | None = None
    """The latest time that was read, less the delay. It becomes `now` when the source's version has been read to its
    end."""
    local: bool = False
    """The times have no zone: they are counted by their own clock."""


Place = tuple[str | int, ...]
"""Where a record came from: topic, partition, offset; file and row; or, for records with neither, "#" and hashes."""


@dataclass(frozen=True)
class Pins:
    """What a batch must see again when it is retried."""

    time_ms: int
    definition: str
    lookups: Mapping[str, int] = field(default_factory=dict)
    watermark: Watermark | None = None
    set_aside: tuple[Place, ...] = ()
    """Records of the batch on which an expression raised: they are in the table's quarantine, not in the table."""
    redrive_set_aside: tuple[Place, ...] = ()
    """The same for a redrive: records that stay in quarantine."""


@dataclass(frozen=True)
class Counts:
    """Rows of the previous batch, and of all before this entry: an entry cannot count the commit it is part of."""

    rows: int = 0
    total: int = 0
    row_counts: RowCounts = field(default_factory=dict)
    """For a table with stages: what became of the rows that it read."""


@dataclass(frozen=True)
class Entry:
    kind: Kind
    table: str
    ledger: str
    """Random, chosen at genesis: distinguishes this table's checkpoints from those of an earlier table of the same
    name."""
    generation: int
    batch: int
    before: tuple[str, ...]
    """Position before the batch, one text per source, verbatim from Spark's `offsets/N-1`."""
    after: tuple[str, ...]
    pins: Pins
    topics: Mapping[str, str] = field(default_factory=dict)
    """Topic ids: a topic that is deleted and recreated keeps its name and loses its records."""
    subscription: Mapping[str, Any] = field(default_factory=dict)
    """{"topics": [...]} or {"pattern": ...}: distinguishes a topic that was added to the project from one that was
    created in Kafka. For one table {"table": ...}, for several {"streams": {name: table}, "order": [names, one per
    position]}."""
    counts: Counts = Counts()
    note: str | None = None
    parked: Mapping[str, Any] = field(default_factory=dict)
    """Topics that were removed from the project: {topic: {"id": …, "offsets": {"0": 12}}}. Added again, they continue
    there; with `starting` their rows would be read twice."""
    seen: int | None = None
    """The version up to which its writer had read the log: commits between that and its own were made while the rows
    were written, and still have to be checked."""
    sent: int | None = None
    """For a sink: rows that were sent. They are counted before the commit, which itself adds one row about the
    batch."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """For a merge, which also counts before it commits: inserted, updated and deleted rows, superseded changes, changes
    that contradicted another of their sequence, and how many of the table's files were read for it."""

    horizon: str | None = None
    """For a merge: what lies before it no longer counts. In the merge's own text format, carried from entry to
    entry."""
    began: tuple[str, ...] = ()
    """The position at which the table began to read, carried from its genesis."""
    base: int | None = None
    """For a table that reads another: all rows here were made from this version of it or from later ones. Carried."""
    filled: tuple[int, int] | None = None
    """Generation and version of the last fill before this entry. Carried."""
    started_ms: int | None = None
    """When the attempt that wrote this batch began, for rates. Not `pins.time_ms`: that is when the batch was planned,
    perhaps by a runner that was killed hours ago."""
    pending: Mapping[str, Any] = field(default_factory=dict)
    """Work that an opened generation still has to finish: until then no batch is written."""
    id: str = field(default="", compare=False)
    """Random, unique to this commit: another process can commit an entry with the same number. Empty in entries of
    older versions."""

    @property
    def key(self) -> tuple[int, int]:
        return (self.generation, self.batch)

    def carry_entry(self, counts: Counts, seen: int | None = None) -> Entry:
        entry = replace(self, kind="carry", sent=None, changed={}, started_ms=None, id=new_id())
        return replace(entry, counts=counts, seen=seen)

    def with_new_id(self, **values: Any) -> Entry:
        """A copy with other values, for a commit of its own."""
        return replace(self, **values, id=new_id())

    def next_entry(self, kind: Kind, **values: Any) -> Entry:
        """The next entry of the ledger: keeps what is carried, clears what was about one commit alone."""
        entry = replace(self, kind=kind, note=None, sent=None, changed={}, started_ms=None, pending={}, id=new_id())
        return replace(entry, **values)

    @property
    def unfinished(self) -> bool:
        """Its generation was opened for a replay or a rewind that is not finished."""
        return "replay" in self.pending or "rewind" in self.pending

    @property
    def stop_position(self) -> str | None:
        """A position beyond which its generation does not read."""
        until = self.pending.get("until")
        return None if until is None else str(until["at"])

    @property
    def applied(self) -> int | None:
        """For a sink or a merge: the rows that counted; None where the commit itself has the number."""
        if self.sent is not None:
            return self.sent
        return sum(self.changed.get(kind, 0) for kind in APPLIED) if self.changed else None


def new_id() -> str:
    """Has no digits: a search for a name that is a number cannot match it by chance."""
    return uuid.uuid4().hex.translate(_LETTERS)


def stream_tables(entry: Entry) -> tuple[str, ...]:
    """For a table with `stream`: the table behind each of its positions; () for any other."""
    tables = entry.subscription.get("streams", {})
    return tuple(tables.get(name, name) for name in entry.subscription.get("order", ()))


def pins_document(pins: Pins) -> dict[str, Any]:
    document: dict[str, Any] = {"time": pins.time_ms, "definition": pins.definition, "lookups": dict(pins.lookups)}
    if pins.watermark is not None:
        watermark = asdict(pins.watermark)
        document["watermark"] = watermark if watermark.pop("local") is False else {**watermark, "local": True}
    if pins.set_aside:
        document["set_aside"] = [list(place) for place in pins.set_aside]
    if pins.redrive_set_aside:
        document["redrive_set_aside"] = [list(place) for place in pins.redrive_set_aside]
    return document


def parse_pins(document: Mapping[str, Any]) -> Pins:
    watermark = document.get("watermark")
    return Pins(
        document["time"],
        document["definition"],
        document.get("lookups", {}),
        Watermark(**watermark) if watermark is not None else None,
        tuple(tuple(place) for place in document.get("set_aside", ())),
        tuple(tuple(place) for place in document.get("redrive_set_aside", ())),
    )


def dump(entry: Entry) -> str:
    document: dict[str, Any] = {
        "penstock": FORMAT,
        "kind": entry.kind,
        "table": entry.table,
        "ledger": entry.ledger,
        "generation": entry.generation,
        "batch": entry.batch,
        "before": entry.before,
        "after": entry.after,
        "pins": pins_document(entry.pins),
        "topics": dict(entry.topics),
        "subscription": dict(entry.subscription),
        "counts": {"rows": entry.counts.rows, "total": entry.counts.total},
    }
    if entry.counts.row_counts:
        document["counts"]["fates"] = dict(entry.counts.row_counts)
    optional = {
        "note": entry.note or None,
        "parked": dict(entry.parked) or None,
        "seen": entry.seen,
        "sent": entry.sent,
        "changed": dict(entry.changed) or None,
        "horizon": entry.horizon,
        "began": entry.began or None,
        "base": entry.base,
        "filled": entry.filled,
        "started": entry.started_ms,
        "pending": dict(entry.pending) or None,
        "id": entry.id or None,
    }
    document |= {name: value for name, value in optional.items() if value is not None}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def parse(user_metadata: str | None) -> Entry | None:
    """The entry in a commit's userMetadata, or None if the text is not a ledger entry."""
    document = _own_document(user_metadata)
    if document is None or not isinstance(document.get("penstock"), int):
        return None
    if document["penstock"] != FORMAT:  # skipped, it would send the table back to the last entry that we can read
        raise Terminal(
            f"the table's log has an entry of format {document['penstock']}; this Penstock reads format {FORMAT}",
            hint="a newer Penstock wrote to the table: run that version",
        )
    if document.get("kind") in WORKS:  # a maintenance note, which moves no position
        return None
    pins, counts = document["pins"], document.get("counts", {})
    return Entry(
        kind=document["kind"],
        table=document["table"],
        ledger=document["ledger"],
        generation=document["generation"],
        batch=document["batch"],
        before=tuple(document["before"]),
        after=tuple(document["after"]),
        pins=parse_pins(pins),
        topics=document.get("topics", {}),
        subscription=document.get("subscription", {}),
        counts=Counts(counts.get("rows", 0), counts.get("total", 0), counts.get("fates", {})),
        note=document.get("note"),
        parked=document.get("parked", {}),
        seen=document.get("seen"),
        sent=document.get("sent"),
        changed=document.get("changed", {}),
        horizon=document.get("horizon"),
        began=tuple(document.get("began", ())),
        base=document.get("base"),
        filled=(document["filled"][0], document["filled"][1]) if "filled" in document else None,
        started_ms=document.get("started"),
        pending=document.get("pending", {}),
        id=document.get("id", ""),
    )
