"""New fields in the files of a batch: what the project wants done with them is decided before a row is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from penstock.engine.files.format import Look
from penstock.engine.files.reader import FilesReader
from penstock.engine.files.types import added, merged, told, usable
from penstock.errors import Terminal


def surveyed(reader: FilesReader, names: Sequence[str], look: Look, fields: StructType) -> Look:
    """By what the headers or footers of the files name."""
    if reader.files.new_fields not in ("add", "fail"):
        return look
    grown = merged(look.schema, usable(fields))
    strange = _strange(reader, fields.names, grown, look)
    if grown == look.schema and not strange:
        return look
    if grown != look.schema and reader.files.format == "csv":  # a header names fields, and no types
        grown = merged(look.schema, usable(reader.schema.format.infer(names)))
    return _kept(reader, look, replace(look, schema=grown, left_out=(*look.left_out, *strange)))


def met(reader: FilesReader, names: Sequence[str], look: Look) -> Look:
    """A read met a field that the schema does not name. What of it still has no place, an object without fields for
    example, is left out from now on."""
    grown = merged(look.schema, usable(reader.schema.format.infer(names)))
    strange = _strange(reader, reader.schema.format.keys(names), grown, look)
    made = replace(look, schema=grown, left_out=(*look.left_out, *strange))
    if made == look:  # within an object: it has no name that could be kept
        return replace(look, watchful=False)
    return _kept(reader, look, made)


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
        reader.note(f"fields that cannot be columns are left out: {', '.join(strange)}")
    return made


def _strange(reader: FilesReader, names: Iterable[str], schema: StructType, look: Look) -> list[str]:
    """Fields without a column: names that Delta refuses; of JSON also those that differ from another only in capitals,
    for there they are two fields."""
    exact = reader.files.format == "json"
    known = {name if exact else name.casefold() for name in (*schema.names, *look.left_out)}
    return sorted(name for name in names if (name if exact else name.casefold()) not in known)
