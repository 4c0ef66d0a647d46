"""The schema of a table's files: declared, or inferred from the first of them; stored in the lake, and extended."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from penstock.errors import PenstockError, Terminal, Transient
from penstock.sources.files.csv import CsvLines
from penstock.sources.files.format import FormatChoice
from penstock.sources.files.lines import JsonLines
from penstock.sources.files.listing import list_files
from penstock.sources.files.parquet import ParquetFiles
from penstock.sources.files.types import (
    MOST_ADDED,
    bounded,
    merged,
    mixed,
    no_more_columns,
    nulls_to_json_text,
    size_of,
    spark_schema,
    usable,
)
from penstock.sources.files.unreadable import find_unreadable, is_about_files
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.sources import FilesSource
    from penstock.sources.files.format import Format
    from penstock.sources.files.listing import File
    from penstock.storage.stores import Store

_FORMATS: dict[str, Callable[[SparkSession, FilesSource], Format]] = {
    "json": JsonLines,
    "csv": CsvLines,
    "parquet": ParquetFiles,
}
_MAX_SHOWN = 80
_SAMPLE_FILES, _SAMPLE_BYTES = 100, 64 * 1024 * 1024
"""How much is read to infer a schema; fields that only later files have are new."""


class FileSchema:
    def __init__(self, spark: SparkSession, store: Store, source: FilesSource, table: str) -> None:
        self._spark, self._store, self._source, self._table = spark, store, source, table
        self.format: Format = _FORMATS[source.format](spark, source)
        self._inferred_from: dict[str, Any] | None = None

    def require(self) -> FormatChoice:
        """Infers the schema if none is declared or stored. Raises Transient while there is nothing to infer it from."""
        document = self._document()
        stored = StructType.fromJson(document["schema"]) if document else StructType()
        if self._source.schema is not None:
            return self._choice_of(merged(spark_schema(self._source.schema), stored), document)
        if document is None:
            self.keep(self._infer())
            document = self._document() or {}
            stored = StructType.fromJson(document["schema"])
        return self._choice_of(stored, document)

    def declared_fields(self, schema: StructType) -> int:
        """How many fields of the schema, including nested ones, were declared or inferred first; the others were
        added."""
        if self._source.schema is not None:
            return size_of(spark_schema(self._source.schema))
        return int((self._document() or {}).get("first", size_of(schema)))

    def story(self) -> list[str]:
        """For an inferred schema: what it is and where it comes from, for the user."""
        document = self._document() or {}
        sample = document.get("inferred")
        if self._source.schema is not None or sample is None:
            return []
        records = "" if sample["records"] is None else f", {sample['records']:,} records"
        remarks = [
            f"schema inferred from {counted(sample['files'], 'file')} ({sample['first']}"
            f"{' and others' if sample['files'] > 1 else ''}{records}, {sample['bytes']:,} bytes), kept in "
            f"{self._source.stored}: {document['columns']}"
        ]
        remarks += [
            f"{name} has values of several kinds ({kinds}): it is a STRING with their JSON text"
            for name, kinds in sample["mixed"].items()
        ]
        return [*remarks, *sample["remarks"]]

    def keep(self, choice: FormatChoice) -> None:
        """Stores the choice; called before anything is written with it."""
        document = choice.document
        previous = self._document() or {}
        if self._source.schema is None:
            first = StructType.fromJson(previous["schema"]) if previous else choice.schema
            document["first"] = previous.get("first", size_of(first))
        inferred = self._inferred_from or previous.get("inferred")
        if inferred is not None:
            document["inferred"] = inferred
        self._store.write(self._source.stored, json.dumps(document, indent=1, ensure_ascii=False))

    def _document(self) -> dict[str, Any] | None:
        document = json.loads(self._store.read(self._source.stored) or "null")
        return document if isinstance(document, dict) else None

    def _choice_of(self, schema: StructType, document: dict[str, Any] | None) -> FormatChoice:
        stored = document or {}
        full = self._source.new_fields == "add" and stored.get("full", False)
        return FormatChoice(schema, tuple(stored.get("left_out", ())), not full)

    def _infer(self) -> FormatChoice:
        files = {file.name: file for file in _sample(list_files(self._spark, self._source, self._table).files)}
        names = list(files)
        try:
            choice = self._infer_from(files, names)
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
            choice = self._infer_from(files, names)
        if not choice.schema.fields:
            raise self._nothing_to_infer(names)
        return choice

    def _nothing_to_infer(self, names: Sequence[str]) -> PenstockError:
        """Why no column was found."""
        if not self.format.sampled and (first := self.format.first(names)) is not None:
            expects_lines = self._source.format == "json" and not self._source.documents
            document = "if a file is one document, write `options: {multiLine: true}`; " if expects_lines else ""
            return Terminal(
                f"no line of the files in {self._source.folder} is a record, so no schema can be inferred; "
                f"{first[0]} begins with `{first[1][:_MAX_SHOWN]}`",
                where=self._table,
                hint=f"{document}with `schema:` the table is made, and such lines go to quarantine",
            )
        no_columns = f"the records in {self._source.folder} have no field with a value yet that can be a column"
        no_files = f"there are no files in {self._source.folder} yet to infer a schema from"
        return Transient(
            no_columns if self.format.sampled else no_files,
            where=self._table,
            hint="more files are waited for; with `schema` the table is made without them",
        )

    def _infer_from(self, files: Mapping[str, File], names: Sequence[str]) -> FormatChoice:
        if not names:
            return FormatChoice(StructType())
        established = self.format.establish(names, self._table)
        fields = self.format.infer(established.names)
        schema = full_schema = usable(fields if self._source.new_fields == "add" else nulls_to_json_text(fields))
        remarks = list(established.remarks)
        # Only for JSON: the columns of other formats are named in the files.
        if self._source.format == "json" and size_of(full_schema) > MOST_ADDED:
            schema = bounded(StructType(), full_schema, MOST_ADDED)
            fate = "kept in _rescued" if self._source.new_fields == "rescue" else "left out"
            remarks.append(no_more_columns("files", fate, MOST_ADDED))
        self._inferred_from = {
            "files": len(established.names),
            "first": established.names[0] if established.names else None,
            "records": self.format.sampled,
            "bytes": sum(files[name].size for name in established.names),
            "mixed": mixed(schema),
            "remarks": remarks,
        }
        return FormatChoice(schema, stops_at_new_fields=schema == full_schema)


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
