"""A table's folder of files. What is streamed is the manifest, a small Delta table that lists them; so files have the
positions of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.plan.model import DeltaSource, Input, Setting, VersionStart
from penstock.plan.settings import YOURS
from penstock.plan.stages import DecodePlan, Stages, WritePlan, csv_options
from penstock.spec.folder import FilesFrom
from penstock.spec.lake import lake_place
from penstock.spec.project import Project
from penstock.spec.schema import Struct
from penstock.spec.schema_file import load_schema

DEFAULT_MAX_FILES = 1000
LINE = {"key": "key", "value": "value", "value_binary": "value_binary"}
"""What is kept of a rejected line: it, its bytes if they are not text, and the header of its file."""
_ONE_AT_A_TIME = 1


@dataclass(frozen=True, kw_only=True)
class FilesSource(DeltaSource):
    """`uri` is the manifest; one of its data files names at most `most` files, and a batch reads one of those."""

    folder: str
    """An absolute path, or a URI that Hadoop reads."""
    root: str
    """The project folder: files below it are named from there on, so that a project can be moved."""
    format: Literal["json", "csv", "parquet"]
    pattern: str | None
    schema: Struct | None
    """None: inferred from the first files."""
    new_fields: Literal["add", "rescue", "ignore", "fail"]
    header: bool
    documents: bool
    """A file of JSON is one document, an object or a list of them, over however many lines."""
    most: int
    reader: Mapping[str, str]
    """Options of the format."""
    stored: str
    """Where the schema is kept that was inferred, or has grown."""
    reads: str
    """Where it is kept how each batch reads its files."""

    @property
    def by_line(self) -> bool:
        """A line, or a document, is a record."""
        return self.format != "parquet"


def files_plan(project: Project, source: FilesFrom, name: str, lake: str) -> tuple[FilesSource, tuple[Setting, ...]]:
    """The source, and every choice about it with its reason."""
    system = f"{lake}/_penstock"
    made = FilesSource(
        uri=f"{system}/files/{name}",
        table=None,
        where=None,
        starting=VersionStart(source.starting),
        max_files=_ONE_AT_A_TIME,
        max_bytes=None,
        folder=lake_place(source.files, project.root),
        root=str(project.root),
        format=source.format,
        pattern=source.pattern,
        schema=load_schema(source.schema_, project.root) if source.schema_ else None,
        new_fields=source.on_new_fields,
        header=source.header,
        documents=source.options.get("multiLine", "false").lower() == "true",
        most=source.max_files,
        reader=_reader(source),
        stored=f"{system}/schemas/{name}.json",
        reads=f"{system}/reads/{name}",
    )
    why = YOURS if source.max_files != DEFAULT_MAX_FILES else "a bounded batch bounds what is done again after a crash"
    return made, (Setting("max_files", str(made.most), why),)


def _reader(source: FilesFrom) -> dict[str, str]:
    given = {key: value for key, value in source.options.items() if key not in ("header", "multiLine")}
    return csv_options(given) if source.format == "csv" else given


def files_stages(source: FilesSource, stages: Stages) -> Stages:
    """Lines are decoded as a record of Kafka is; a file that cannot be read is rejected as a whole."""
    if source.by_line:
        options = dict(source.reader)
        decode = DecodePlan(
            format="json" if source.format == "json" else "csv",
            column=LINE["value"],
            schema=source.schema,
            rescue=source.new_fields == "rescue",
            options=options,
        )
        stages = replace(stages, decode=decode)
    return replace(stages, whole_files=True)


def files_write(source: FilesSource, write: WritePlan) -> WritePlan:
    return replace(write, schema="evolve") if source.new_fields == "add" else write


def files_input(source: FilesFrom) -> Input:
    raw = LINE if source.format != "parquet" else {}
    return Input(raw, "file", "file")


def files_decide(source: FilesSource) -> dict[str, Any]:
    """What decides the rows of a batch whose files are given: neither the folder nor the pattern."""
    return {
        "format": source.format,
        "header": source.header,
        "documents": source.documents,
        "schema": source.schema.columns() if source.schema else None,
        "new_fields": source.new_fields,
        "options": dict(source.reader),
    }
