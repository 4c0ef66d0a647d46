"""The tables that lie beside a table: its rejected rows, with every reason that one can have, and its tombstones."""

from __future__ import annotations

from dataclasses import dataclass

SUFFIX = "__quarantine"
TOMBSTONES = "__tombstones"
COMPANIONS = (SUFFIX, TOMBSTONES)
"""How the names of the tables beside a table end: they are written under its locks."""
MOVED_ASIDE = ".before-"
"""In the name of one that was left by an earlier table of the same name, and moved: nothing reads it."""

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
class Place:
    table: str
    uri: str


def quarantine_of(table: str, uri: str) -> Place:
    return Place(f"{table}{SUFFIX}", f"{uri}{SUFFIX}")


def tombstones_of(table: str, uri: str) -> Place:
    """Where a merged table keeps which of its rows were deleted."""
    return Place(f"{table}{TOMBSTONES}", f"{uri}{TOMBSTONES}")
