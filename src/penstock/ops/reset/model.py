"""A position that a person chooses for a table, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.position import Range
from penstock.errors import TableChanged


@dataclass(frozen=True)
class Reset:
    """What a reset would do. `skipped` records never land; `again` are read once more, so they are in the table twice
    unless its rows were removed; `dropped` topics no longer exist. Of a Delta table upstream they are its versions."""

    table: str
    to: str
    before: str | None
    """The position now; None if there is no table, or one without a ledger."""
    after: str
    skipped: tuple[Range, ...] = ()
    again: tuple[Range, ...] = ()
    dropped: tuple[str, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict)
    """Of what is read from there."""
    anew: tuple[str, ...] = ()
    """Set for a table that rests on Spark's state: it is emptied, and reads these tables from where they begin."""

    @property
    def note(self) -> str:
        said = [
            f"reset --to {self.to}",
            "emptied" if self.anew else "",
            f"skipped {', '.join(map(str, self.skipped))}" if self.skipped else "",
            f"again {', '.join(map(str, self.again))}" if self.again else "",
            f"dropped {', '.join(self.dropped)}" if self.dropped else "",
        ]
        return "; ".join(filter(None, said))


def tail_of(log: DeltaLog) -> Tail | None:
    """None also for a table that others made: a reset is how to go on in it."""
    try:
        return read_tail(log)
    except TableChanged:
        return None


def document(reset: Reset) -> dict[str, Any]:
    def plain(found: tuple[Range, ...]) -> list[dict[str, Any]]:
        return [{"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end} for r in found]

    return {
        "table": reset.table,
        "to": reset.to,
        "before": json.loads(reset.before) if reset.before else None,
        "after": json.loads(reset.after),
        "skipped": plain(reset.skipped),
        "again": plain(reset.again),
        "dropped": list(reset.dropped),
        "emptied": bool(reset.anew),
    }
