"""Where subjects are in what a table reads, and in its quarantine."""

from __future__ import annotations

from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource, KafkaSource, TablePlan
from penstock.plan.subjects import Holds, Place, Subjects
from penstock.plan.target import ChangeSink


def lands(table: TablePlan) -> bool:
    """It keeps the records of topics as they came. One of somebody who shall be forgotten stays there, with nothing but
    its place in the topic, so that it can still be proved that none is missing."""
    return isinstance(table.source, KafkaSource) and table.stages is None


def read_by(table: TablePlan) -> Holds:
    """What the rows that it reads hold. Records of topics and of files hold what the table itself says of them."""
    if isinstance(table.source, KafkaSource):
        return Holds({}) if lands(table) else Holds(_in_records(table))
    if isinstance(table.source, FilesSource):
        return Holds(table.subjects)
    if table.stream is not None:  # its rows are what its function gives
        return Holds()
    return table.source.holds


def _in_records(table: TablePlan) -> Subjects:
    """Places in records as Kafka's connector gives them, of a table that decodes them itself."""
    named = {name.casefold(): canonical.removesuffix("_binary") for canonical, name in table.columns.items()}
    found = {
        subject: tuple(
            dict.fromkeys(
                Place(named[place.column.casefold()], place.path)
                for place in places
                if named.get(place.column.casefold()) in ("key", "value")
            )
        )
        for subject, places in table.subjects.items()
    }
    return {subject: places for subject, places in found.items() if places}


def in_quarantine(table: TablePlan) -> Subjects:
    """Places in the rows of its quarantine, which keeps records as they came, or rows as a JSON object."""
    found: dict[str, dict[Place, None]] = {}
    upstream = table.source.holds.subjects if isinstance(table.source, DeltaSource) else {}
    for subjects in (upstream, table.subjects):
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
    found = [Place("value", path), Place("value_binary", path)]
    if isinstance(table.sink, ChangeSink) and place.column.casefold() in (key.casefold() for key in table.sink.keys):
        found.append(Place("key") if len(table.sink.keys) == 1 else Place("key", path))
    return found
