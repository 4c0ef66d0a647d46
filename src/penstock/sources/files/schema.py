"""The schema of a table's files: given, or inferred from the first of them; kept in the lake, and grown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from penstock.errors import PenstockError, Terminal, Transient
from penstock.sources.files.format import FormatChoice
from penstock.sources.files.formats import open_format
from penstock.sources.files.listing import list_files
from penstock.sources.files.types import (
    MOST_ADDED,
    any_for_nothing,
    bounded,
    merged,
    mixed,
    no_more_columns,
    size_of,
    spark_schema,
    told,
    usable,
)
from penstock.sources.files.unreadable import find_unreadable, is_about_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.sources import FilesSource
    from penstock.sources.files.format import Format
    from penstock.sources.files.listing import File
    from penstock.storage.stores import Store

_SHOWN = 80
_SAMPLE_FILES, _SAMPLE_BYTES = 100, 64 * 1024 * 1024
"""As much as is looked at to infer a schema; what later files have beyond it is new."""


class FileSchema:
    def __init__(self, spark: SparkSession, store: Store, source: FilesSource, table: str) -> None:
        self._spark, self._store, self._source, self._table = spark, store, source, table
        self.format: Format = open_format(spark, source)
        self._inferred_from: dict[str, Any] | None = None

    def require(self) -> FormatChoice:
        """Infers it if nobody gave one, and none is kept yet. Transient while there is nothing to infer it from."""
        document = self._document()
        kept = StructType.fromJson(document["schema"]) if document else StructType()
        if self._source.schema is not None:
            return self._look(merged(spark_schema(self._source.schema), kept), document)
        if document is None:
            self.keep(self._infer())
            document = self._document() or {}
            kept = StructType.fromJson(document["schema"])
        return self._look(kept, document)

    def declared_fields(self, schema: StructType) -> int:
        """How many fields of the schema, those of objects counted, were given or inferred at first; the others were
        added."""
        if self._source.schema is not None:
            return size_of(spark_schema(self._source.schema))
        return int((self._document() or {}).get("first", size_of(schema)))

    def story(self) -> list[str]:
        """Of a schema that was inferred: what it is and where it comes from, for a person."""
        document = self._document() or {}
        made = document.get("inferred")
        if self._source.schema is not None or made is None:
            return []
        records = "" if made["records"] is None else f", {made['records']:,} records"
        files = "1 file" if made["files"] == 1 else f"{made['files']:,} files"
        told = [
            f"schema inferred from {files} ({made['first']}{' and others' if made['files'] > 1 else ''}{records}, "
            f"{made['bytes']:,} bytes), kept in {self._source.stored}: {document['columns']}"
        ]
        told += [
            f"{name} has values of several kinds ({kinds}): it is a STRING with their JSON text"
            for name, kinds in made["mixed"].items()
        ]
        return [*told, *made["remarks"]]

    def keep(self, look: FormatChoice) -> None:
        """Before anything is written by it."""
        document = {
            "columns": told(look.schema),
            "left_out": list(look.left_out),
            "full": not look.watchful,
            "schema": look.schema.jsonValue(),
        }
        before = self._document() or {}
        if self._source.schema is None:
            first = StructType.fromJson(before["schema"]) if before else look.schema
            document["first"] = before.get("first", size_of(first))
        inferred = self._inferred_from or before.get("inferred")
        if inferred is not None:
            document["inferred"] = inferred
        self._store.write(self._source.stored, json.dumps(document, indent=1, ensure_ascii=False))

    def _document(self) -> dict[str, Any] | None:
        document = json.loads(self._store.read(self._source.stored) or "null")
        return document if isinstance(document, dict) else None

    def _look(self, schema: StructType, document: dict[str, Any] | None) -> FormatChoice:
        kept = document or {}
        full = self._source.new_fields == "add" and kept.get("full", False)
        return FormatChoice(schema, tuple(kept.get("left_out", ())), not full)

    def _infer(self) -> FormatChoice:
        files = {file.name: file for file in _sample(list_files(self._spark, self._source, self._table).files)}
        names = list(files)
        try:
            found = self._inferred(files, names)
        except PenstockError:
            raise
        except Exception as error:
            if not is_about_files(error):
                raise
            read, probe = partial(self.format.plain, schema=StructType()), self.format.probe
            broken = find_unreadable(names, read, probe, error, self._source)
            if not broken:
                raise
            names = [name for name in names if name not in broken]
            found = self._inferred(files, names)
        if not found.schema.fields:
            raise self._nothing(names)
        return found

    def _nothing(self, names: Sequence[str]) -> PenstockError:
        """Why no column was found."""
        if not self.format.sampled and (first := self.format.first(names)) is not None:
            document = "if a file is one document, write `options: {multiLine: true}`; " if self._asks_lines else ""
            return Terminal(
                f"no line of the files in {self._source.folder} is a record, so no schema can be inferred; "
                f"{first[0]} begins with `{first[1][:_SHOWN]}`",
                where=self._table,
                hint=f"{document}with `schema:` the table is made, and such lines go to quarantine",
            )
        there = f"the records in {self._source.folder} have no field with a value yet that can be a column"
        missing = f"there are no files in {self._source.folder} yet to infer a schema from"
        return Transient(
            there if self.format.sampled else missing,
            where=self._table,
            hint="more files are waited for; with `schema` the table is made without them",
        )

    @property
    def _asks_lines(self) -> bool:
        return self._source.format == "json" and not self._source.documents

    def _inferred(self, files: Mapping[str, File], names: Sequence[str]) -> FormatChoice:
        if not names:
            return FormatChoice(StructType())
        established = self.format.establish(names, self._table)
        found = self.format.infer(established.names)
        schema = whole = usable(found if self._source.new_fields == "add" else any_for_nothing(found))
        remarks = list(established.remarks)
        if self._source.format == "json" and size_of(whole) > MOST_ADDED:  # others name their columns themselves
            schema = bounded(StructType(), whole, MOST_ADDED)
            others = "kept in _rescued" if self._source.new_fields == "rescue" else "left out"
            remarks.append(no_more_columns("files", others, MOST_ADDED))
        self._inferred_from = {
            "files": len(established.names),
            "first": established.names[0] if established.names else None,
            "records": self.format.sampled,
            "bytes": sum(files[name].size for name in established.names),
            "mixed": mixed(schema),
            "remarks": remarks,
        }
        return FormatChoice(schema, watchful=schema == whole)


def _sample(files: Sequence[File]) -> list[File]:
    chosen: list[File] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.modified_ms, file.name)):
        if file.size == 0:
            continue
        if len(chosen) == _SAMPLE_FILES or (chosen and size + file.size > _SAMPLE_BYTES):
            break
        chosen.append(file)
        size += file.size
    return chosen
