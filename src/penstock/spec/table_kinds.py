"""Tables that do more than add rows: `aggregate`, `audit`, `merge`, tables over changes, and `stream`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.base_model import (
    Finding,
    FindingsError,
    SpecModel,
    choice,
    one_of,
    quote_value,
    refuse,
    text_values,
    wrong,
)
from penstock.spec.delta_source import ChangesFrom, DeltaFrom, TableFrom, is_path
from penstock.spec.files_source import FilesFrom
from penstock.spec.quantity import Duration, seconds
from penstock.spec.source import source_of

if TYPE_CHECKING:
    from penstock.spec.table import Table


class Window(SpecModel):
    """Tumbling windows of `every`; sliding ones, each `size` long, if that is given."""

    time: str = Field(min_length=1, examples=["order_ts"])
    every: Duration = Field(examples=["1 day"])
    size: Duration | None = None

    shape: ClassVar[str] = "{time: order_ts, every: 1 day}"

    @model_validator(mode="after")
    def _check_consistency(self) -> Window:
        if self.every <= 0:
            raise wrong("a window of no length holds nothing", "write every: 1 hour", "every")
        if self.size is not None and (self.size < self.every or self.size % self.every):
            raise wrong("a sliding window must be a multiple of its step", "write size: 1 hour, every: 15 min", "size")
        return self


Emit = Literal["updates", "complete", "final"]


def _metrics(value: Any) -> dict[str, str]:
    metrics = text_values(value, "metrics")
    if not metrics:
        raise wrong("there are no metrics", "write metrics: {orders: count(*)}")
    return metrics


class Aggregate(SpecModel):
    """Groups of a source table, recomputed whenever one of their rows arrives."""

    keys: tuple[str, ...] = Field(default=(), examples=["[product_category]"])
    window: Window | None = None
    metrics: Annotated[dict[str, str], BeforeValidator(_metrics)] = Field(examples=["{orders: count(*)}"])
    emit: Annotated[Emit, choice("way to emit", Emit)] = "updates"
    watermark: Duration | None = None

    lists: ClassVar[tuple[str, ...]] = ("keys",)
    shape: ClassVar[str] = "{keys: [category], metrics: {orders: count(*)}}"

    @model_validator(mode="after")
    def _check_consistency(self) -> Aggregate:
        if not self.keys and self.window is None:
            raise wrong("an aggregate needs groups", "write keys: [column], or a window", at_key=True)
        window = ("window_start", "window_end") if self.window else ()
        column_names = {key.casefold() for key in (*window, *self.keys)}
        for name in self.metrics:
            if name.casefold() in column_names:
                raise wrong(f"'{name}' would be the name of two columns", "give the metric another", "metrics", name)
            column_names.add(name.casefold())
        if self.emit == "final" and (self.window is None or self.watermark is None):
            raise wrong(
                "'emit: final' closes windows by a watermark, and needs both",
                "write window and watermark: 1 day",
                "emit",
            )
        if self.watermark is not None and self.emit != "final":
            raise wrong(
                "only 'emit: final' has a watermark", "remove it: late rows of any age are counted", "watermark"
            )
        return self


class Audit(SpecModel):
    """One row for each change of another table, with what was there before and after. `who` is an SQL expression over
    the changed row."""

    keys: tuple[str, ...] = Field(default=(), examples=["[customer_id]"])
    who: str | None = Field(default=None, min_length=1, examples=["updated_by"])

    lists: ClassVar[tuple[str, ...]] = ("keys",)
    shape: ClassVar[str] = "audit: {who: updated_by}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        return {} if data is True else data


MERGE_COLUMNS = ("_sequence", "_deleted", "_deleted_at")
"""Columns that a merged table has besides those of its rows."""
SINCE = "_since"
"""The additional column of a merged table that ignores nulls."""
VALID = ("valid_from", "valid_to", "is_current")
"""The additional columns of a merged table that keeps its history."""


KEEP_DELETED = 90 * 86_400.0
"""Seconds for which a tombstone is kept unless the project says otherwise: longer than a change can be late."""


def _keep_deleted(value: Any) -> float:
    return math.inf if value in ("forever", math.inf) else seconds(value)


History = Literal["scd1", "scd2"]


class Columns(SpecModel):
    """Which columns of the changes become columns of the table: these, or all but some."""

    only: tuple[str, ...] = ()
    but: tuple[str, ...] = Field(default=(), alias="except", examples=["[op, ts_ms]"])

    python_only: ClassVar[frozenset[str]] = frozenset({"only"})
    lists: ClassVar[tuple[str, ...]] = ("except",)
    shape: ClassVar[str] = "columns: [name, city], or columns: {except: [op]}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        return {"only": data} if isinstance(data, list | tuple) else data


class Merge(SpecModel):
    """Rows are changed by what arrives: the newest change of a key wins, whatever the order of arrival. `sequence`,
    `delete_when` and `time` are SQL expressions over a change."""

    keys: tuple[str, ...] = Field(default=(), examples=["[customer_id]"])
    sequence: str | None = Field(default=None, min_length=1, examples=["updated_at"])
    delete_when: str | None = Field(default=None, min_length=1, examples=["op = 'd'"])
    history: Annotated[History, choice("way to keep history", History)] = "scd1"
    ignore_null_updates: bool = False
    columns: Columns = Columns()
    time: str | None = Field(default=None, min_length=1, examples=["updated_at"])
    from_snapshot: str | None = Field(default=None, min_length=1, examples=["extract_date"])
    """If rows are full extracts, each a file: when the extract was taken."""
    keep_deleted: Annotated[float, BeforeValidator(_keep_deleted)] | None = Field(
        default=None, examples=["30 days", "forever"]
    )
    """None: 90 days; infinity: forever, which is always so with a history."""

    lists: ClassVar[tuple[str, ...]] = ("keys",)
    shape: ClassVar[str] = "{keys: [customer_id], sequence: updated_at, delete_when: \"op = 'd'\"}"

    @model_validator(mode="after")
    def _check_consistency(self) -> Merge:
        if self.time is not None and self.history != "scd2":
            raise wrong("'time' says since when a version is valid", "write history: scd2, or remove it", "time")
        if self.ignore_null_updates and self.history == "scd2":
            raise wrong(
                "'ignore_null_updates' is for history: scd1",
                "fill the gaps in a table with scd1, and keep the history of that: from: {changes: …}",
                "ignore_null_updates",
                at_key=True,
            )
        if self.keep_deleted not in (None, math.inf) and self.history == "scd2":
            # Without it the version before the delete would last until the next change of its key.
            raise wrong(
                "'keep_deleted' is for history: scd1; here the tombstone says when a version ended",
                "remove it: a history keeps its deletes",
                "keep_deleted",
                at_key=True,
            )
        for name in ("sequence", "delete_when", "ignore_null_updates"):
            if self.from_snapshot is not None and getattr(self, name):
                raise wrong(
                    f"'{name}' is for changes: an extract says by itself what is new, and what is gone",
                    "remove it",
                    name,
                    at_key=True,
                )
        folded = [key.casefold() for key in self.keys]
        if len(set(folded)) < len(folded):
            raise wrong("a key is there twice", "name each once", "keys")
        left_out = {name.casefold() for name in self.columns.but}
        if excluded_keys := [key for key in self.keys if key.casefold() in left_out]:
            raise wrong(f"the key {excluded_keys[0]} cannot be left out", "remove it from except", "columns", "except")
        return self


def merge_findings(table: Table) -> list[Finding]:
    merge = table.write.merge
    assert merge is not None
    path = ("write", "merge")
    findings: list[Finding] = []
    if table.aggregate is not None:
        hint = "its groups are changed in place already: remove merge"
        findings.append(Finding(path, "an aggregate is not merged", hint, at_key=True))
    if table.audit is not None:
        findings.append(Finding(path, "an audit table only grows", "remove merge", at_key=True))
    if table.dedupe is not None:
        hint = "remove it: of several changes with one key the newest wins, however often each arrives"
        findings.append(Finding(("dedupe",), "a merged table has no dedupe of its own", hint, at_key=True))
    follows = isinstance(table.source, ChangesFrom)
    if not merge.keys and not follows:
        findings.append(Finding(path, "'keys' is missing", "write keys: [customer_id]", at_key=True))
    if merge.from_snapshot is not None and not isinstance(table.source, FilesFrom):
        hint = "an extract is one file: from: {files: extracts, format: csv}"
        findings.append(Finding((*path, "from_snapshot"), "'from_snapshot' reads files", hint, at_key=True))
    ordered = merge.sequence is not None or merge.from_snapshot is not None
    has_own_order = table.decode is not None and table.decode.debezium is not None
    if not ordered and not follows and not has_own_order:
        hint = "write sequence: updated_at, or another column that grows with each change of a row"
        findings.append(Finding(path, "'sequence' is missing: which of two changes is the newer?", hint, at_key=True))
    return findings


def changes_findings(table: Table) -> list[Finding]:
    if not isinstance(table.source, ChangesFrom):
        hint = "write from: {changes: silver.customers}"
        return [Finding(("audit",), "an audit table tells the changes of a table", hint, at_key=True)]
    findings: list[Finding] = []
    if table.decode is not None:
        findings.append(Finding(("decode",), "changes of a table are rows already", "remove it", at_key=True))
    if table.aggregate is not None and table.aggregate.emit == "final":
        hint = "write emit: updates; or read the rows as they are added: from: {table: …}"
        findings.append(Finding(("aggregate", "emit"), "a window that was closed cannot follow changes", hint))
    if table.audit is not None:
        findings += [
            Finding(
                (key,), f"an audit table has no {key} of its own", "make it in a table that reads this one", at_key=True
            )
            for key in ("transform", "sql", "lookups", "expect", "dedupe", "aggregate")
            if getattr(table, key)
        ]
    return findings


# `stream`: rows made by a Python function on streaming DataFrames, with Spark's own state behind it.


_ALTERNATIVES = "do that in the table that it reads, in a table after it, or in the function"


def output_mode(value: Any) -> str:
    if value == "update":
        raise wrong(
            "'update' gives rows that replace earlier ones, and does not say by which columns to find those",
            "write output: complete; or use aggregate, which changes its groups in place",
        )
    return one_of(value, "output mode", ("append", "complete"))


def stream_inputs(value: Any, info: ValidationInfo) -> dict[str, TableFrom | DeltaFrom]:
    """Name -> a table of the project or a path, as in lookups; or a whole source: {table: …, where: …}."""
    if not isinstance(value, Mapping):
        raise wrong(
            f"'streams' needs a mapping, not {quote_value(value)}", "write streams: {payments: silver.payments}"
        )
    findings: list[Finding] = []
    inputs: dict[str, TableFrom | DeltaFrom] = {}
    for name, input_value in value.items():
        if not str(name).isidentifier():
            message = f"'{name}' cannot name an argument of the function"
            findings.append(Finding((str(name),), message, "write letters, digits and _", at_key=True))
            continue
        try:
            inputs[str(name)] = _stream_input(input_value, info)
        except FindingsError as error:
            findings += [finding.below((str(name),)) for finding in error.findings]
    refuse(findings)
    return inputs


def _stream_input(value: Any, info: ValidationInfo) -> TableFrom | DeltaFrom:
    if isinstance(value, str) and value:
        return DeltaFrom(delta=value) if is_path(value) else TableFrom(table=value)
    source = source_of(value, info)
    if isinstance(source, TableFrom | DeltaFrom):
        return source
    raise wrong("a stream function reads tables", "land the topic in a table first, and name that", at_key=True)


def stream_findings(table: Table) -> list[Finding]:
    if table.stream is None:
        hint = "write stream: streams.py:function, or remove it"
        return [
            Finding((key,), f"'{key}' belongs to 'stream'", hint, at_key=True)
            for key in ("streams", "output")
            if getattr(table, key)
        ]
    findings = [
        Finding((key,), f"a table with 'stream' has no {key} of its own", _ALTERNATIVES, at_key=True)
        for key in ("decode", "transform", "sql", "expect", "dedupe", "aggregate", "audit", "lookups")
        if getattr(table, key)
    ]
    if table.write.merge is not None:
        hint = "read this table's rows in another one, and merge them there"
        findings.append(Finding(("write", "merge"), "a table with 'stream' appends its rows", hint, at_key=True))
    if not isinstance(table.source, TableFrom | DeltaFrom):
        origin = "topics" if table.source.of_topics else "files"
        hint = f"land the {origin} in a table first, and read that: from: {{table: bronze.orders}}"
        findings.append(Finding(("stream",), "a stream function reads tables", hint, at_key=True))
        return findings
    if table.input_name in table.streams:
        message = f"'{table.input_name}' is what the rows of `from` are called"
        findings.append(Finding(("streams", table.input_name), message, "give it another name", at_key=True))
    sources: dict[tuple[str, ...], TableFrom | DeltaFrom] = {("from",): table.source}
    sources |= {("streams", name): stream_source for name, stream_source in table.streams.items()}
    for path, source in sources.items():
        if source.starting.at == "latest":
            message = "Spark's state begins with rows that are there: a stream function cannot start at the latest"
            findings.append(
                Finding((*path, "starting"), message, "write earliest, or {version: N} of one that is there")
            )
    return findings
