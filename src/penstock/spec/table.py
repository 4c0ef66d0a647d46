"""One table: where its rows come from, what they look like, when its batches run and how its rows are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    SerializeAsAny,
    ValidationInfo,
    model_validator,
)

from penstock.spec.base_model import (
    Finding,
    SourceFrom,
    SpecModel,
    caller,
    choice,
    nearest,
    quote_value,
    refuse,
    text_values,
    wrong,
)
from penstock.spec.columns import column_clash_findings, column_renames
from penstock.spec.delta_properties import table_properties
from penstock.spec.delta_source import ChangesFrom, DeltaFrom, TableFrom
from penstock.spec.files_source import FilesFrom
from penstock.spec.quantity import seconds
from penstock.spec.source import source_of
from penstock.spec.stages import Decode, Dedupe, Expectation, expectations
from penstock.spec.subjects import SubjectColumn, layout_findings, subject_places
from penstock.spec.table_kinds import (
    Aggregate,
    Audit,
    Merge,
    changes_findings,
    merge_findings,
    output_mode,
    stream_findings,
    stream_inputs,
)

_CONTINUOUS = (
    "the continuous mode of Spark has no batches: it can neither write to Delta nor record exactly once what it wrote",
    "write trigger: 1s, which lands records about as soon as that mode would",
)


class Trigger(SpecModel):
    """When a table runs a batch: `30s`, `available-now`, `once` or `{sla: 1h}`. `seconds` is the interval, or the SLA
    itself."""

    kind: Literal["interval", "available-now", "once", "sla"]
    seconds: float | None = None

    python_only: ClassVar[frozenset[str]] = frozenset({"kind", "seconds"})
    shape: ClassVar[str] = "trigger: 30s, available-now, once or {sla: 1h}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and "kind" in data and info.context is None:
            return data
        if data == "continuous" or (isinstance(data, dict) and "continuous" in data):
            raise wrong(*_CONTINUOUS)
        if isinstance(data, dict):
            return cls._from_sla(data)
        if data in ("available-now", "once"):
            return {"kind": str(data)}
        if isinstance(data, str) and (suggestion := nearest(data, ("available-now", "once", "continuous"))):
            if suggestion == "continuous":
                raise wrong(*_CONTINUOUS)
            raise wrong(f"{quote_value(data)} is not a trigger", f"did you mean {suggestion}?")
        return {"kind": "interval", "seconds": seconds(data)}

    @classmethod
    def _from_sla(cls, data: dict[str, Any]) -> dict[str, Any]:
        if set(data) != {"sla"}:
            other = next((key for key in data if key != "sla"), None)
            raise wrong(f"{quote_value(other or data)} is not a trigger", f"write {cls.shape}")
        sla = seconds(data["sla"])
        if sla <= 0:
            raise wrong(f"{quote_value(data['sla'])} is too short", "write sla: 1h", "sla")
        return {"kind": "sla", "seconds": sla}

    @model_validator(mode="after")
    def _check_interval(self) -> Trigger:
        if (self.kind in ("interval", "sla")) != (self.seconds is not None):
            raise wrong(f"the trigger '{self.kind}' and the seconds {self.seconds} do not fit", f"write {self.shape}")
        return self


NOT_APPEND_ONLY = ("rows of this table are replaced by others, which delta.appendOnly forbids", "remove it")


SchemaMode = Literal["strict", "evolve"]


class Write(SpecModel):
    """How the rows of a table are kept: schema, layout, change feed."""

    schema_: Annotated[SchemaMode, choice("schema mode", SchemaMode)] = Field(default="strict", alias="schema")
    partition_by: tuple[str, ...] = Field(default=(), examples=["[order_date]"])
    cluster_by: tuple[str, ...] = Field(default=(), examples=["[customer_id]"])
    zorder_by: tuple[str, ...] = Field(default=(), examples=["[customer_id]"])
    auto_compact: bool = False
    change_feed: bool = False
    source: bool = True
    """Each row keeps the coordinates of the record it came from, in the column _source."""
    merge: Merge | None = None
    """None: rows are appended."""
    properties: Annotated[dict[str, str], BeforeValidator(table_properties)] = Field(default={})

    lists: ClassVar[tuple[str, ...]] = ("partition_by", "cluster_by", "zorder_by")
    shape: ClassVar[str] = "{schema: strict, partition_by: [order_date]}"

    @property
    def has_change_feed(self) -> bool:
        return self.change_feed or self.properties.get("delta.enableChangeDataFeed", "").casefold() == "true"

    @property
    def append_only(self) -> bool:
        return self.properties.get("delta.appendOnly", "").casefold() == "true"

    @model_validator(mode="after")
    def _check_consistency(self) -> Write:
        if self.merge is not None and not self.source:
            message = "a merged table needs to know which of two changes came later: its rows keep their coordinates"
            raise wrong(message, "remove source: false", "source", at_key=True)
        if self.merge is not None and self.append_only:
            raise wrong(*NOT_APPEND_ONLY, "properties", "delta.appendOnly", at_key=True)
        if self.cluster_by and (self.partition_by or self.zorder_by):
            other = "partition_by" if self.partition_by else "zorder_by"
            raise wrong(
                f"a table is laid out by cluster_by or by {other}, not by both", "keep one", "cluster_by", at_key=True
            )
        return self


_SEGMENT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_RESERVED = ("__quarantine", "__tombstones")


Payload = Literal["string", "binary"]


def _lookups(value: Any) -> dict[str, str]:
    lookups = text_values(value, "lookups")
    refuse(
        Finding((name,), f"'{name}' cannot name a lookup", "write letters, digits and _", at_key=True)
        for name in lookups
        if not name.isidentifier()
    )
    return lookups


class Table(SpecModel):
    source: Annotated[SerializeAsAny[SourceFrom], PlainValidator(source_of)] = Field(
        alias="from", examples=["{kafka: orders}"]
    )
    payload: Annotated[Payload, choice("payload", Payload)] = "string"
    columns: Annotated[dict[str, str], BeforeValidator(column_renames)] = Field(default={})
    decode: Decode | None = None
    transform: str | None = Field(default=None, min_length=1, examples=["transforms.py:clean_orders"])
    sql: str | None = Field(default=None, min_length=1, examples=["SELECT * FROM orders"])
    lookups: Annotated[dict[str, str], BeforeValidator(_lookups)] = Field(default={})
    expect: Annotated[tuple[Expectation, ...], BeforeValidator(expectations)] = ()
    dedupe: Dedupe | None = None
    aggregate: Aggregate | None = None
    audit: Audit | None = None
    stream: str | None = Field(default=None, min_length=1, examples=["streams.py:sessions"])
    streams: Annotated[dict[str, TableFrom | DeltaFrom], PlainValidator(stream_inputs)] = Field(default={})
    output: Annotated[Literal["append", "complete"], BeforeValidator(output_mode)] | None = None
    max_failed_records: int = Field(default=100, ge=0, le=1000)
    write: Write = Write()
    subjects: Annotated[dict[str, tuple[SubjectColumn, ...]], BeforeValidator(subject_places)] = Field(
        default={}, examples=["{customer: customer_id}"]
    )
    trigger: Trigger | None = None

    _origin: str = PrivateAttr(default_factory=caller)

    moved: ClassVar[dict[str, str]] = dict.fromkeys(
        ("properties", "partition_by", "cluster_by", "change_feed"), "it is part of write: write: {…}"
    )
    shape: ClassVar[str] = "a mapping: {from: {kafka: topic}}"

    @property
    def origin(self) -> str:
        """file:line of the definition."""
        return self._origin

    @property
    def staged(self) -> bool:
        """Whether its rows are more than the raw records."""
        stages = (self.decode, self.transform, self.sql, self.dedupe, self.audit, self.write.merge)
        return isinstance(self.source, FilesFrom) or bool(self.expect) or any(stage is not None for stage in stages)

    @property
    def input_name(self) -> str:
        """What the rows are called in `sql`: the last part of the upstream table's name, or `input`."""
        return self.source.input_name

    @model_validator(mode="after")
    def _check_consistency(self) -> Table:
        findings = [finding.below(("columns",)) for finding in column_clash_findings(self.columns, self.payload)]
        findings += _stage_findings(self)
        findings += stream_findings(self)
        findings += layout_findings(self)
        refuse(findings)
        return self


def _stage_findings(table: Table) -> list[Finding]:
    findings: list[Finding] = []
    if not table.source.of_topics:
        hint = "remove it: the columns are those of the source, or what decode and transform make of them"
        findings += [
            Finding((key,), f"'{key}' is for tables that land topics", hint, at_key=True)
            for key, is_given in (("payload", table.payload != "string"), ("columns", table.columns))
            if is_given
        ]
    if table.stream is not None:
        return findings
    if isinstance(table.source, FilesFrom):
        findings += _files_findings(table, table.source)
    if table.decode is not None and table.decode.new_fields == "add" and _is_strict(table):
        hint = "write schema: evolve; or new_fields: rescue, which keeps them in one column"
        findings.append(Finding(("write", "schema"), "new fields of the records would become columns", hint))
    if table.aggregate is not None:
        findings += _aggregate_findings(table)
    if table.write.merge is not None:
        findings += merge_findings(table)
    if isinstance(table.source, ChangesFrom) or table.audit is not None:
        findings += changes_findings(table)
    if table.transform is not None and table.sql is not None:
        findings.append(Finding(("sql",), "there is a transform and sql", "keep one of them", at_key=True))
    if table.lookups and table.transform is None and table.sql is None:
        hint = "write transform: file.py:function, or sql: SELECT … JOIN …"
        findings.append(Finding(("lookups",), "lookups without a transform or sql that uses them", hint, at_key=True))
    if table.input_name in table.lookups:
        message = f"'{table.input_name}' is what the rows of the table itself are called"
        findings.append(Finding(("lookups", table.input_name), message, "give the lookup another name", at_key=True))
    return findings


def _is_strict(table: Table) -> bool:
    """Whether the user wrote `schema: strict`."""
    return table.write.schema_ == "strict" and "schema_" in table.write.model_fields_set


def _files_findings(table: Table, source: FilesFrom) -> list[Finding]:
    findings: list[Finding] = []
    if table.decode is not None and source.format != "parquet":
        hint = "remove it; the schema belongs to from: {files: …, schema: …}"
        findings.append(Finding(("decode",), f"{source.format} files are decoded by their format", hint, at_key=True))
    if source.on_new_fields == "add" and _is_strict(table):
        hint = "write schema: evolve; or new_fields: rescue, which keeps them in one column"
        findings.append(Finding(("write", "schema"), "new fields of the files would become columns", hint))
    return findings


def _aggregate_findings(table: Table) -> list[Finding]:
    if table.source.of_topics or isinstance(table.source, FilesFrom):
        origin = "topic" if table.source.of_topics else "folder"
        hint = f"land the {origin} in a table first, and aggregate that: from: {{table: bronze.orders}}"
        return [Finding(("aggregate",), f"groups are recomputed from a table, not from a {origin}", hint, at_key=True)]
    if table.write.append_only:
        return [Finding(("write", "properties", "delta.appendOnly"), *NOT_APPEND_ONLY, at_key=True)]
    return [
        Finding((key,), f"an aggregate has no {key} of its own", "do that in the table that it reads", at_key=True)
        for key in ("decode", "transform", "sql", "expect", "dedupe", "lookups")
        if getattr(table, key)
    ]


def unique_name_findings(
    kind: str, names: Sequence[str], is_name: Callable[[str], bool], rule: str, tables: Sequence[str] = ()
) -> list[Finding]:
    """What is wrong with the names of tables or sinks. `rule` says what `is_name` accepts; `tables` are names taken."""
    findings: list[Finding] = []
    tables_by_fold = {name.casefold(): name for name in tables}
    names_by_fold: dict[str, str] = {}
    for name in names:
        fold = name.casefold()
        first = names_by_fold.setdefault(fold, name)
        ending = next((suffix for suffix in _RESERVED if fold.endswith(suffix)), None)
        if not is_name(name):
            message, hint = f"'{name}' cannot name a {kind}", rule
        elif ending is not None:
            message = f"'{name}' ends in {ending}"
            hint = "choose another ending: Penstock keeps tables of its own under names that end so"
        elif fold in tables_by_fold:
            message, hint = f"a table is called '{tables_by_fold[fold]}' already", f"give the {kind} another name"
        elif first is not name:
            message, hint = f"'{name}' and '{first}' differ only in capitals", "give each its own name"
        else:
            continue
        findings.append(Finding((name,), message, hint, at_key=True))
    return findings


def name_findings(names: Sequence[str]) -> list[Finding]:
    """What is wrong with the names of tables: each is a folder in the lake, so none may be inside another."""
    rule = "write parts of letters, digits, _ and -, each beginning with a letter, with dots: bronze.orders"
    findings = unique_name_findings("table", names, lambda name: all(map(_SEGMENT.fullmatch, name.split("."))), rule)
    names_by_fold: dict[str, str] = {}
    for name in names:
        names_by_fold.setdefault(name.casefold(), name)
    for fold, name in names_by_fold.items():
        steps = fold.split(".")
        for depth in range(1, len(steps)):
            if outer := names_by_fold.get(".".join(steps[:depth])):
                message = f"'{name}' would lie in the folder of the table '{outer}'"
                hint = f"rename one: for example '{outer}' to '{outer}.all'"
                findings.append(Finding((name,), message, hint, at_key=True))
    return findings
