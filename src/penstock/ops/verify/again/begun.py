"""Tables that rightly lack some of what their source has: they began later than it, or are still within the table that
they found when they began."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.engine.covered import Asked
from penstock.engine.delta.version import Version, parse
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.replay.began import began_of
from penstock.errors import PenstockError
from penstock.ops.verify.again.around import Around
from penstock.ops.verify.check import Check


def lacks_some(around: Around, entry: Entry) -> bool:
    began = _began(around, entry)
    return began is None or (not began.snapshot and began.version > 0) or parse(entry.after[0]).snapshot


def rows_read(around: Around, entry: Entry, check: Check) -> DataFrame | None:
    """As batches brought them. None, and a remark, if that cannot be told."""
    began = _began(around, entry)
    why = f"which rows of {around.upstream} it has read cannot be told"
    if began is not None and not (around.source.changes and parse(entry.after[0]).snapshot):
        try:
            asked = Asked(entry.after, (str(began),), entry.topics)
            rows = around.reader().covered(around.spark, asked).rows
            began_at = (
                "its first snapshot is not read to its end" if began.snapshot else f"it began at v{began.version}"
            )
            check.remarks.append(f"{began_at}: {check.unit} without a row since then may be missing")
            return rows
        except PenstockError as error:
            why = error.message
    check.remarks.append(f"{check.unit} that it lacks are not looked for: {why}")
    return None


def _began(around: Around, entry: Entry) -> Version | None:
    try:
        return parse(began_of(DeltaLog(around.store, around.table.uri, around.table.name), entry)[0])
    except PenstockError:
        return None
