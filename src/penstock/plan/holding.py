"""Where subjects are in what a table reads, and in its quarantine."""

from __future__ import annotations

from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource, KafkaSource, TablePlan
from penstock.plan.subjects import Holds, Place, Subjects


def read_by(table: TablePlan) -> Holds:
    """What the rows that it reads hold. Records of topics and of files hold what the table itself says of them: the
    places that are not there are those of its own columns."""
    if isinstance(table.source, DeltaSource) and not isinstance(table.source, FilesSource):
        return table.source.holds
    return Holds(table.subjects)


def reads_partly(table: TablePlan) -> bool:
    """Not every place of `read_by` has to be in the rows."""
    return isinstance(table.source, KafkaSource | FilesSource)


def in_quarantine(table: TablePlan) -> Subjects:
    """Places in the rows of its quarantine, which keeps records as they came, or rows as a JSON object."""
    found: dict[str, dict[Place, None]] = {}
    for subjects in (read_by(table).subjects, table.subjects):
        for subject, places in subjects.items():
            kept = found.setdefault(subject, {})
            for place in places:
                kept.update(dict.fromkeys(_kept(table, place)))
    return {subject: tuple(places) for subject, places in found.items()}


def _kept(table: TablePlan, place: Place) -> list[Place]:
    raw = {name.casefold(): canonical for canonical, name in table.input.raw.items()}
    canonical = raw.get(place.column.casefold())
    if canonical in ("key", "key_binary"):
        return [Place("key", place.path), Place("key_binary", place.path)]
    if canonical in ("value", "value_binary"):
        return [Place("value", place.path), Place("value_binary", place.path)]
    decode = table.stages.decode if table.stages is not None else None
    if decode is not None and decode.column.casefold() == place.column.casefold():
        return [Place("value", place.path)]
    fields = "".join(f"['{step}']" for step in place.column.split("."))
    path = f"${fields}{(place.path or '$').removeprefix('$')}"
    return [Place("value", path), Place("value_binary", path)]
