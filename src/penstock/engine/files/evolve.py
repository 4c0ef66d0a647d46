"""New fields in the files of a batch: what the project wants done with them is decided before a row is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from penstock.engine.files.format import Chosen, Look
from penstock.engine.files.reader import FilesReader
from penstock.engine.files.types import (
    MOST_ADDED,
    MOST_LEFT_OUT,
    added,
    bounded,
    lacking,
    merged,
    no_more_columns,
    size_of,
    told,
    usable,
)
from penstock.errors import Terminal

_SHOWN = 20


def surveyed(reader: FilesReader, names: Sequence[str], look: Look, fields: StructType) -> Look:
    """By what the headers or footers of the files name."""
    if reader.files.new_fields not in ("add", "fail") or not look.watchful:
        return look
    grown = merged(look.schema, usable(fields))
    if grown == look.schema and not _strange(reader, fields, grown, look):
        return look
    if grown != look.schema and reader.files.format == "csv":  # a header names fields, and no types
        grown = merged(look.schema, usable(reader.schema.format.infer(names)))
    return _kept(reader, look, _grown(reader, look, grown, fields))


def met(reader: FilesReader, names: Sequence[str], look: Look) -> Look:
    """A read met a field that the schema does not name. What of it still has no place is left out from now on, by its
    path."""
    return _met(reader, look, reader.schema.format.new(names, look))


def redriven(reader: FilesReader, names: Sequence[str], look: Look, lines: Chosen) -> Look:
    """The same of lines that were rejected when their batch was read, and brought no column then."""
    if reader.files.new_fields != "add" or not look.watchful or not names:
        return look
    found = reader.schema.format.new(names, look, lines)
    return _met(reader, look, found) if found.fields else look


def _met(reader: FilesReader, look: Look, found: StructType) -> Look:
    made = _grown(reader, look, merged(look.schema, usable(found)), found)
    if made == look and reader.files.new_fields == "add":  # an object with more fields than are looked at
        reader.note("an object has more fields than can be columns: those beyond are left out")
        return replace(look, watchful=False)
    return _kept(reader, look, made)


def _grown(reader: FilesReader, look: Look, grown: StructType, found: StructType) -> Look:
    """By as many fields as a table may have; `found` are those of the files. With `fail` nothing is left out: it is
    told."""
    schema = grown
    if reader.files.new_fields == "add":
        room = MOST_ADDED - (size_of(look.schema) - reader.schema.declared_fields(look.schema))
        if size_of(grown) - size_of(look.schema) > room:
            schema = bounded(look.schema, grown, room)
    kept = (*look.left_out, *_strange(reader, found, schema, look))
    full = schema != grown or len(kept) > MOST_LEFT_OUT
    return replace(look, schema=schema, left_out=kept[:MOST_LEFT_OUT], watchful=look.watchful and not full)


def _kept(reader: FilesReader, look: Look, made: Look) -> Look:
    strange = made.left_out[len(look.left_out) :]
    if reader.files.new_fields == "fail":
        new = added(look.schema, made.schema)
        within = [path for path in lacking(made.schema, look.schema) if path not in new.names]
        what = ", ".join(filter(None, (told(new), *within, *strange))) or "more within an object than can be columns"
        raise Terminal(
            f"the files have fields that the table does not: {what}",
            where=reader.table,
            hint="write them into `schema`; or `new_fields: add` makes them columns, `rescue` keeps them as JSON",
        )
    reader.schema.keep(made)
    if strange:
        more = f" and {len(strange) - _SHOWN:,} more" if len(strange) > _SHOWN else ""
        shown = ", ".join(path[:80] for path in strange[:_SHOWN])
        reader.note(f"fields that cannot be columns are left out: {shown}{more}")
    if look.watchful and not made.watchful:
        reader.note(no_more_columns("files", "left out", MOST_ADDED))
    return made


def _strange(reader: FilesReader, found: StructType, schema: StructType, look: Look) -> list[str]:
    """The paths of fields without a column: their names are refused by Delta; of JSON also those that differ from
    another only in capitals, for there they are two fields."""
    exact = reader.files.format == "json"
    return sorted(path for path in lacking(found, schema, exact=exact) if path not in look.left_out)
