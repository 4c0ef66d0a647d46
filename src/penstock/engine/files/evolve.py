"""New fields in the files of a batch: what the project wants done with them is decided before a row is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from penstock.engine.files.format import Look
from penstock.engine.files.reader import FilesReader
from penstock.engine.files.types import (
    MOST_ADDED,
    MOST_LEFT_OUT,
    added,
    bounded,
    merged,
    no_more_columns,
    size_of,
    told,
    usable,
)
from penstock.errors import Terminal
from penstock.spec.schema import column_key

_SHOWN = 10


def surveyed(reader: FilesReader, names: Sequence[str], look: Look, fields: StructType) -> Look:
    """By what the headers or footers of the files name."""
    if reader.files.new_fields not in ("add", "fail") or not look.watchful:
        return look
    grown = merged(look.schema, usable(fields))
    if grown == look.schema and not _strange(reader, fields.names, grown, look):
        return look
    if grown != look.schema and reader.files.format == "csv":  # a header names fields, and no types
        grown = merged(look.schema, usable(reader.schema.format.infer(names)))
    return _kept(reader, look, _grown(reader, look, grown, fields.names))


def met(reader: FilesReader, names: Sequence[str], look: Look) -> Look:
    """A read met a field that the schema does not name. What of it still has no place, an object without fields for
    example, is left out from now on."""
    grown = merged(look.schema, usable(reader.schema.format.infer(names)))
    made = _grown(reader, look, grown, reader.schema.format.keys(names))
    if made == look:  # within an object: it has no name that could be kept
        return replace(look, watchful=False)
    return _kept(reader, look, made)


def _grown(reader: FilesReader, look: Look, grown: StructType, names: Iterable[str]) -> Look:
    """By as many fields as a table may have; `names` are those of the files. With `fail` nothing is left out: it is
    told."""
    schema = grown
    if reader.files.new_fields == "add":
        room = MOST_ADDED - (size_of(look.schema) - reader.schema.declared_fields(look.schema))
        if size_of(grown) - size_of(look.schema) > room:
            schema = bounded(look.schema, grown, room)
    kept = (*look.left_out, *_strange(reader, names, schema, look))
    full = schema != grown or len(kept) > MOST_LEFT_OUT
    return replace(look, schema=schema, left_out=kept[:MOST_LEFT_OUT], watchful=look.watchful and not full)


def _kept(reader: FilesReader, look: Look, made: Look) -> Look:
    new = added(look.schema, made.schema)
    if reader.files.new_fields == "fail":
        what = told(new) or ", ".join(made.left_out[len(look.left_out) :]) or "fields within an object"
        raise Terminal(
            f"the files have fields that the table does not: {what}",
            where=reader.table,
            hint="write them into `schema`; or `new_fields: add` makes them columns, `rescue` keeps them as JSON",
        )
    reader.schema.keep(made)
    if strange := made.left_out[len(look.left_out) :]:
        more = f" and {len(strange) - _SHOWN:,} more" if len(strange) > _SHOWN else ""
        shown = ", ".join(name[:80] for name in strange[:_SHOWN])
        reader.note(f"fields that cannot be columns are left out: {shown}{more}")
    if look.watchful and not made.watchful:
        reader.note(no_more_columns("files", "left out", MOST_ADDED))
    return made


def _strange(reader: FilesReader, names: Iterable[str], schema: StructType, look: Look) -> list[str]:
    """Fields without a column: names that Delta refuses; of JSON also those that differ from another only in capitals,
    for there they are two fields."""
    exact = reader.files.format == "json"
    known = {name if exact else column_key(name) for name in (*schema.names, *look.left_out)}
    return sorted(name for name in names if (name if exact else column_key(name)) not in known)
