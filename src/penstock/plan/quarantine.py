"""Companions of a table: its quarantine, with every reason for which a row can be rejected, and its tombstones."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.model import TablePlan
from penstock.plan.subjects import SubjectColumnPlan, SubjectHoldings, Subjects

QUARANTINE_SUFFIX = "__quarantine"
TOMBSTONES = "__tombstones"
COMPANIONS = (QUARANTINE_SUFFIX, TOMBSTONES)
"""Suffixes of the names of companion tables, which are written under the locks of their table."""
MOVED_ASIDE = ".before-"
"""In the name of a companion that an earlier table of the same name left, and that was moved: nothing reads it."""

REASONS = {
    # The record itself.
    "no_value": "The value is null: there is nothing to decode.",
    "empty_value": "The value is empty, or blank.",
    "not_utf8": "The bytes are not UTF-8; they are kept in value_binary.",
    "malformed_json": "The value is not JSON.",
    "malformed_csv": "The line does not have the fields of the schema.",
    "not_an_object": "The value is JSON, but not an object.",
    "trailing_data": "Something follows the object.",
    "duplicate_field": "A field is given twice.",
    "missing_field": "A field that is NOT NULL is missing or null.",
    "wrong_type": "A value is not of the type of its column.",
    "out_of_range": "A value is of the right type, and its column cannot hold it exactly.",
    "decode_failed": "The decoder itself failed at this record; please report it.",
    "unknown_field": "With new_fields: fail, a redriven record has a field that the schema does not name.",
    # Debezium.
    "unknown_operation": "The operation is none of c, r, u, d and t.",
    "unavailable_value": "PostgreSQL did not send a large value that had not changed.",
    "unknown_encoding": "Nothing says what an encoded value means.",
    "no_key": "A delete does not say which row it deletes.",
    "no_position": "The change does not say where in the database's log it is.",
    # The definition of the table.
    "expectation": "The row does not meet an expectation, or the expectation raised an error on it.",
    "transform_failed": "An expression of the definition raised an error on the record.",
    "null_key": "A key of a merged table, or of a sink, is null.",
    "null_sequence": "The sequence of a change is null: it cannot be put in order.",
    "late": "The row belongs to a window that is closed (emit: final).",
    "no_time": "The row has no time, so it belongs to no window (emit: final).",
    "judged_anew": "Rejected when first processed; passes under the current definition.",
    "partly_landed": "The table already holds a row of this record; replay the table.",
    # Files and sinks.
    "unreadable_file": "The file cannot be read as a whole.",
    "ambiguous_key": "Several rows of one version have the same key.",
    "refused": "The target of the sink does not take the row.",
    "too_large": "The row is larger than the Kafka producer sends.",
}
"""Every value of `error_reason`, and what it means. docs/dlq.md lists the same."""


@dataclass(frozen=True)
class CompanionTable:
    table: str
    uri: str


def quarantine_of(table: str, uri: str) -> CompanionTable:
    return CompanionTable(f"{table}{QUARANTINE_SUFFIX}", f"{uri}{QUARANTINE_SUFFIX}")


def tombstones_of(table: str, uri: str) -> CompanionTable:
    """Where a merged table keeps which of its rows were deleted."""
    return CompanionTable(f"{table}{TOMBSTONES}", f"{uri}{TOMBSTONES}")


# Where subjects are found in the rows that a table reads, and in its quarantine.


def is_landing_table(table: TablePlan) -> bool:
    """Whether it keeps the records of topics unchanged. A record of a forgotten subject stays there with nothing but
    its position in the topic, so that it can still be proved that no record is missing."""
    return table.topics is not None and table.stages is None


def subjects_in_input(table: TablePlan) -> SubjectHoldings:
    """What the rows that a table reads hold about subjects. For records of topics and files, the table says it."""
    if table.topics is not None:
        return SubjectHoldings({}) if is_landing_table(table) else SubjectHoldings(_in_records(table))
    if table.files is not None:
        return SubjectHoldings(table.subjects)
    if table.stream is not None or table.delta is None:  # its rows are what its function returns
        return SubjectHoldings()
    return table.delta.holds


def _in_records(table: TablePlan) -> Subjects:
    """Subject places in raw Kafka records, for a table that decodes them itself."""
    canonical_names = {name.casefold(): canonical.removesuffix("_binary") for canonical, name in table.columns.items()}
    record_places = {
        subject: tuple(
            dict.fromkeys(
                SubjectColumnPlan(canonical_names[place.column.casefold()], place.path)
                for place in places
                if canonical_names.get(place.column.casefold()) in ("key", "value")
            )
        )
        for subject, places in table.subjects.items()
    }
    return {subject: places for subject, places in record_places.items() if places}


def subjects_in_quarantine(table: TablePlan) -> Subjects:
    """Subject places in the rows of its quarantine, which keeps raw records, or rows as a JSON object."""
    quarantine_places: dict[str, dict[SubjectColumnPlan, None]] = {}
    upstream = table.delta.holds.subjects if table.delta is not None else {}
    for subjects in (upstream, table.subjects):
        for subject, places in subjects.items():
            subject_places = quarantine_places.setdefault(subject, {})
            for place in places:
                subject_places.update(dict.fromkeys(_places_in_quarantine(table, place)))
    return {subject: tuple(places) for subject, places in quarantine_places.items()}


def _places_in_quarantine(table: TablePlan, place: SubjectColumnPlan) -> list[SubjectColumnPlan]:
    canonical_names = {name.casefold(): canonical for canonical, name in table.input.raw.items()}
    canonical = canonical_names.get(place.column.casefold())
    for text_and_bytes in (("key", "key_binary"), ("value", "value_binary")):
        if canonical in text_and_bytes:
            return [SubjectColumnPlan(column, place.path) for column in text_and_bytes]
    decode = table.stages.decode if table.stages is not None else None
    if decode is not None and decode.column.casefold() == place.column.casefold():
        return [SubjectColumnPlan("value", place.path)]
    fields = "".join(f"['{step}']" for step in place.column.split("."))
    path = f"${fields}{(place.path or '$').removeprefix('$')}"
    quarantine_places = [SubjectColumnPlan("value", path), SubjectColumnPlan("value_binary", path)]
    if table.sink is not None and place.column.casefold() in (key.casefold() for key in table.sink.key_columns):
        quarantine_places.append(
            SubjectColumnPlan("key") if len(table.sink.key_columns) == 1 else SubjectColumnPlan("key", path)
        )
    return quarantine_places
