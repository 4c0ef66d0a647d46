"""Reads rejected rows with `deltalake`: filters them, counts them by reason, shows them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, Terminal, UsageError
from penstock.ledger.checkpoint import checkpoint_folder
from penstock.ledger.delta_log import DeltaLog, RecentLog
from penstock.ledger.head import read_head
from penstock.ledger.row_counts import BATCHES, READ, read_row_counts
from penstock.plan.build import select_tables
from penstock.plan.quarantine import QUARANTINE_SUFFIX, quarantine_of
from penstock.sources.columns import SOURCE
from penstock.spark.sql_text import quoted_name, quoted_text
from penstock.spec.base_model import FindingsError
from penstock.spec.quantity import instant, seconds
from penstock.storage.delta_rows import FarTime, micros_of, values_of

if TYPE_CHECKING:
    from deltalake import QueryBuilder

    from penstock.ledger.entry import Entry
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.delta_rows import Time
    from penstock.storage.stores import Store


# The query engine of `deltalake` counts, filters and sorts: only the few rows that are shown come into this process.


ROWS = "quarantine"
"""The name of the rows in a query."""
REASON, DETAIL, WHEN = "error_reason", "error_detail", "error_timestamp"
_NEEDED = (REASON, DETAIL, WHEN, "generation", "batch")


@dataclass(frozen=True)
class QuarantineReader:
    """Reads one version of a quarantine: all queries see the same rows."""

    table: str
    name: str
    version: int
    columns: frozenset[str]
    coordinates: tuple[str, ...]
    """The parts of `_source`: topic, partition, offset; or file, row; or version, deleted."""
    engine: QueryBuilder

    def query(self, sql: str) -> Iterator[Mapping[str, Any]]:
        """Yields the rows of the result as they arrive. Terminal if the files cannot be read."""
        try:
            for batch in self.engine.execute(sql):
                names = batch.schema.names
                for values in zip(*(values_of(batch.column(index)) for index in range(len(names))), strict=True):
                    yield dict(zip(names, values, strict=True))
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # the query engine raises plain Exception; a panic in it is not even that
            raise unreadable(self.name, error) from None


def tables_with_quarantine(plan: Plan, store: Store, names: Sequence[str]) -> list[TablePlan]:
    """The tables of these names, their own or those of their quarantines; without names, all that have a quarantine. A
    table may have one from an earlier definition, though its current one rejects nothing."""
    tables = select_tables(plan, [name.removesuffix(QUARANTINE_SUFFIX) for name in names])
    return tables if names else [table for table in tables if table.may_reject or quarantine_exists(table, store)]


def quarantine_log(table: TablePlan, store: Store) -> DeltaLog:
    quarantine_table = quarantine_of(table.name, table.uri)
    return DeltaLog(store, quarantine_table.uri, quarantine_table.table)


def quarantine_exists(table: TablePlan, store: Store) -> bool:
    return bool(quarantine_log(table, store).versions())


def open_quarantine(table: TablePlan, store: Store) -> QuarantineReader | None:
    """None if there is no quarantine yet. UsageError if the table's definition rejects nothing, Terminal if the
    quarantine cannot be read."""
    if not quarantine_exists(table, store):
        if not table.may_reject:
            raise UsageError(
                f"{table.name} has no quarantine: nothing in its definition rejects a row",
                hint="`decode`, `expect` and files that are read bring one; `penstock dlq list` names the tables",
            )
        return None
    quarantine_table = quarantine_of(table.name, table.uri)
    from deltalake import DeltaTable, QueryBuilder

    from penstock.storage.stores import storage_options

    try:
        delta_table = DeltaTable(quarantine_table.uri, storage_options=storage_options(quarantine_table.uri) or None)
        schema = {field["name"]: field["type"] for field in json.loads(delta_table.schema().to_json())["fields"]}
        engine = QueryBuilder().register(ROWS, delta_table)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise unreadable(quarantine_table.table, error) from None
    missing = [name for name in _NEEDED if name not in schema]
    if missing:
        raise Terminal(
            f"it is not a quarantine: it has no column {', '.join(missing)}",
            where=quarantine_table.table,
            hint="another program created or changed it; `penstock run` makes its own once it is moved away",
        )
    source = schema.get(SOURCE)
    coordinates = tuple(field["name"] for field in source["fields"]) if isinstance(source, dict) else ()
    return QuarantineReader(
        table.name, quarantine_table.table, delta_table.version(), frozenset(schema), coordinates, engine
    )


def unreadable(name: str, error: BaseException) -> Terminal:
    """The error as one line of text: deltalake draws its errors as coloured trees over several lines."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    message = " ".join(message.partition("0: <unknown>")[0].replace("↳", " ").split())[:400]
    feature = re.search(r"[Ff]eatures? (?:required: \[(\w+)|'(\w+)' is not supported)", message)
    if feature is not None:
        return Terminal(
            f"the table has the feature {feature[1] or feature[2]}, which is read by Spark alone",
            where=name,
            hint=f'`penstock sql "SELECT * FROM {name}"` reads it, or any Spark with Delta',
        )
    return Terminal(
        f"its rows cannot be read: {message}", where=name, hint="a file of it is gone or broken; see who removed it"
    )


# The filter of a query. What a user types becomes a number, a time or a quoted text, never SQL.


_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class RejectFilter:
    """Rows that meet all conditions that are set."""

    reason: str | None = None
    detail: str | None = None
    """A part of the detail: a field, an expectation."""
    since: datetime | None = None
    until: datetime | None = None
    """Not included."""
    generation: int | None = None
    batch: int | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    """First and last, both included."""
    file: str | None = None

    def where(self, quarantine: QuarantineReader) -> str:
        """The filter as a SQL condition. UsageError if the rows have no such coordinates."""
        conditions = []
        if self.reason is not None:
            conditions.append(f"{REASON} = {quoted_text(self.reason)}")
        if self.detail is not None:
            conditions.append(f"strpos({DETAIL}, {quoted_text(self.detail)}) > 0")
        if self.since is not None:
            conditions.append(f"{WHEN} >= {_timestamp_sql(self.since)}")
        if self.until is not None:
            conditions.append(f"{WHEN} < {_timestamp_sql(self.until)}")
        for column in ("generation", "batch"):
            if (number := getattr(self, column)) is not None:
                conditions.append(f"{column} = {number}")
        if self.topic is not None:
            conditions.append(f"{_coordinate(quarantine, 'topic')} = {quoted_text(self.topic)}")
        if self.partition is not None:
            conditions.append(f"{_coordinate(quarantine, 'partition')} = {self.partition}")
        if self.offsets is not None:
            first, last = self.offsets
            conditions.append(f"{_coordinate(quarantine, 'offset')} BETWEEN {first} AND {last}")
        if self.file is not None:
            conditions.append(f"{_coordinate(quarantine, 'file')} = {quoted_text(self.file)}")
        return " AND ".join(conditions) or "TRUE"


def _coordinate(quarantine: QuarantineReader, name: str) -> str:
    if name not in quarantine.coordinates:
        coordinates = ", ".join(quarantine.coordinates) or "no coordinates"
        raise UsageError(f"the rows of {quarantine.name} have no {name}", hint=f"they have {coordinates}")
    return f"{quoted_name('_source')}[{quoted_text(name)}]"


def _timestamp_sql(moment: datetime) -> str:
    return f"to_timestamp_micros({(moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)})"


def read_batch(text: str | None) -> tuple[int | None, int | None]:
    """`1.12` is batch 12 of generation 1, `12` is that batch of any generation."""
    if text is None:
        return None, None
    match = re.fullmatch(r"(?:(\d{1,18})\.)?(\d{1,18})", text.strip(), re.ASCII)
    if match is None:
        raise UsageError(f"--batch {text} is not a batch", hint="write 1.12 (generation and number), or 12")
    return (int(match[1]) if match[1] else None), int(match[2])


def read_offsets(text: str | None) -> tuple[int, int] | None:
    """`120`, or `120-150` with both ends."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,19})(?:-(\d{1,19}))?", text.strip(), re.ASCII)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last or last > _LARGEST:
        raise UsageError(f"--offset {text} is not a range", hint="write 120, or 120-150 with both ends")
    return first, last


def read_time(option: str, text: str | None, now: datetime | None = None) -> datetime | None:
    """An ISO time, or how long ago: `2h`, `3 days`."""
    if text is None:
        return None
    try:
        return instant(text)
    except FindingsError:
        pass
    try:
        return (now or datetime.now(UTC)) - timedelta(seconds=seconds(text))
    except (FindingsError, OverflowError):
        raise UsageError(
            f"{option} {text}: expected a time or a duration",
            hint="write 2026-05-14T09:00:00Z (without a zone it is UTC), or 2h: so long ago",
        ) from None


SHORT = 300
"""Characters of a text, and bytes of binary data, that are read where the whole payload is not needed."""

_TIMES = ("kafka_timestamp", "ingestion_timestamp")
_UNCHANGED_COLUMNS = (REASON, DETAIL, WHEN, "generation", "batch", "definition", SOURCE, *_TIMES, "headers")


@dataclass(frozen=True)
class Payload:
    """Text, or bytes that are not text."""

    text: str | None
    data: bytes | None
    size: int
    """Bytes of the whole payload, also where it was shortened."""


@dataclass(frozen=True)
class RejectedRow:
    reason: str | None
    detail: str | None
    rejected_at: Time | None
    generation: int | None
    batch: int | None
    definition: str | None
    source: Mapping[str, Any] | None
    kafka_timestamp: Time | None
    ingestion_timestamp: Time | None
    key: Payload | None
    value: Payload | None
    headers: tuple[tuple[str, bytes | None], ...]


def count_rows(quarantine: QuarantineReader, row_filter: RejectFilter) -> int:
    sql = f"SELECT count(*) AS rows FROM {ROWS} WHERE {row_filter.where(quarantine)}"
    return sum(int(row["rows"]) for row in quarantine.query(sql))


def read_rows(
    quarantine: QuarantineReader, row_filter: RejectFilter, limit: int, *, whole: bool, condition: str = "TRUE"
) -> Iterator[RejectedRow]:
    """The newest first. `whole`: payloads are not shortened. `condition` is one more SQL condition."""
    coordinates = [f"{quoted_name(SOURCE)}[{quoted_text(part)}]" for part in quarantine.coordinates]
    order = ", ".join(["generation DESC", "batch DESC", *coordinates])
    where = f"({row_filter.where(quarantine)}) AND ({condition})"
    newest = f"SELECT * FROM {ROWS} WHERE {where} ORDER BY {order} LIMIT {limit}"
    columns = ", ".join(_columns(quarantine, whole=whole))
    for row in quarantine.query(f"SELECT {columns} FROM ({newest}) AS newest ORDER BY {order}"):
        yield _row(row)


def _columns(quarantine: QuarantineReader, *, whole: bool) -> Iterator[str]:
    for name in _UNCHANGED_COLUMNS:
        yield quoted_name(name) if name in quarantine.columns else f"NULL AS {quoted_name(name)}"
    for name in ("key", "value"):
        text, data = (
            quoted_name(column) if column in quarantine.columns else "CAST(NULL AS VARCHAR)"
            for column in (name, f"{name}_binary")
        )
        hex_text = f"encode({data}, 'hex')"
        yield f"{text if whole else f'left({text}, {SHORT})'} AS {name}"
        yield f"octet_length({text}) AS {name}_size"
        yield f"{hex_text if whole else f'left({hex_text}, {2 * SHORT})'} AS {name}_hex"
        yield f"octet_length({hex_text}) / 2 AS {name}_bytes"


def _row(row: Mapping[str, Any]) -> RejectedRow:
    return RejectedRow(
        reason=row[REASON],
        detail=row[DETAIL],
        rejected_at=row[WHEN],
        generation=row["generation"],
        batch=row["batch"],
        definition=row["definition"],
        source=row[SOURCE],
        kafka_timestamp=row["kafka_timestamp"],
        ingestion_timestamp=row["ingestion_timestamp"],
        key=_payload(row, "key"),
        value=_payload(row, "value"),
        headers=tuple((header["key"], header["value"]) for header in row["headers"] or () if header is not None),
    )


def _payload(row: Mapping[str, Any], name: str) -> Payload | None:
    if row[name] is not None:
        return Payload(row[name], None, int(row[f"{name}_size"]))
    if row[f"{name}_hex"] is not None:
        return Payload(None, bytes.fromhex(row[f"{name}_hex"]), int(row[f"{name}_bytes"]))
    return None


def iso(at: Time | None) -> str | None:
    if at is None:
        return None
    if isinstance(at, FarTime):
        return at.text
    return at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def row_document(row: RejectedRow) -> dict[str, Any]:
    """Bytes that are not text are base64."""
    return {
        "reason": row.reason,
        "detail": row.detail,
        "rejected_at": iso(row.rejected_at),
        "generation": row.generation,
        "batch": row.batch,
        "definition": row.definition,
        "source": dict(row.source) if row.source is not None else None,
        "kafka_timestamp": iso(row.kafka_timestamp),
        "ingestion_timestamp": iso(row.ingestion_timestamp),
        **_payload_document("key", row.key),
        **_payload_document("value", row.value),
        "headers": [_header_document(key, value) for key, value in row.headers],
    }


def _payload_document(name: str, payload: Payload | None) -> dict[str, Any]:
    encoded = base64.b64encode(payload.data).decode() if payload is not None and payload.data is not None else None
    return {name: payload.text if payload is not None else None, f"{name}_base64": encoded}


def _header_document(key: str, value: bytes | None) -> dict[str, Any]:
    try:
        return {"key": key, "value": None if value is None else value.decode(), "value_base64": None}
    except UnicodeDecodeError:
        return {"key": key, "value": None, "value_base64": base64.b64encode(value or b"").decode()}


MOST_KINDS = 100
"""This many kinds are counted separately; in a quarantine with more, the rest is counted together."""
_VARYING_DETAILS = ("malformed_csv", "not_an_object", "refused")
"""Reasons whose detail quotes the record or another system: each row would be a kind of its own."""
_ERROR = r"^((?:from|merge)\.\w+: )?(\[[\w.]+\]|[\w.]+)[\s\S]*$"
"""The error that an expression raised: its name, after its place in the definition, if that is given."""
_RAISED_SUFFIX = r": \[[\w.]+\][\s\S]*$"
_KIND = (
    rf"CASE WHEN {REASON} = 'expectation' THEN regexp_replace({DETAIL}, '{_RAISED_SUFFIX}', '') "
    rf"WHEN {REASON} = 'transform_failed' THEN regexp_replace({DETAIL}, '{_ERROR}', '\1\2') "
    f"WHEN {REASON} IN ({', '.join(map(quoted_text, _VARYING_DETAILS))}) THEN '' "
    rf"ELSE regexp_replace(left(split_part(split_part({DETAIL}, ':', 1), ';', 1), 80), '([\[ ])[0-9]+', '\1…', 'g') END"
)
"""The detail without what belongs to one record: `amount`, and not that it was "twelve"."""
_BY_REASON = (
    f"SELECT coalesce({REASON}, '') AS reason, count(*) AS rows, min({WHEN}) AS first, max({WHEN}) AS last "
    f"FROM {ROWS} GROUP BY 1 ORDER BY 2 DESC, 1"
)
_NEWEST_BATCH = "max(generation * 4294967296 + batch)"
"""Generation and batch as one number, as Delta's transactions count them."""


@dataclass(frozen=True)
class RejectKind:
    reason: str
    about: str
    """`amount`, `has_id`; empty where the reason says it all."""
    rows: int
    first: Time | None
    last: Time | None
    sample: RejectedRow | None = None
    """One of its newest rows, its payload shortened."""


@dataclass(frozen=True)
class QuarantineCounts:
    table: str
    quarantine: str
    exists: bool = True
    """False: there is no quarantine yet, so no row was ever rejected."""
    rows: int = 0
    read: int | None = None
    """Rows that the table has read, as its ledger counts them; None if that is unknown."""
    first: Time | None = None
    last: Time | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    kinds: tuple[RejectKind, ...] = ()
    rows_ahead: int = 0
    """Rows of batches that are not in the table: a replay is running, or the table was restored to an older state."""
    problem: str | None = None
    hint: str | None = None

    @property
    def share(self) -> float | None:
        return self.rows / self.read if self.read and self.rows <= self.read else None

    @property
    def rows_of_other_kinds(self) -> int:
        """Rows of the kinds beyond MOST_KINDS."""
        return self.rows - sum(kind.rows for kind in self.kinds)


def count_all(tables: Sequence[TablePlan], store: Store) -> list[QuarantineCounts]:
    """One per table, in their order. What cannot be read is reported in its place; only UsageError is raised."""
    counts = []
    for table in tables:
        try:
            counts.append(count_kinds(table, store))
        except UsageError:
            raise
        except PenstockError as error:
            name = quarantine_of(table.name, table.uri).table
            counts.append(QuarantineCounts(table.name, name, problem=error.message, hint=error.hint))
    return counts


def count_kinds(table: TablePlan, store: Store) -> QuarantineCounts:
    """Counts the newest version of the quarantine."""
    quarantine = open_quarantine(table, store)
    name = quarantine_of(table.name, table.uri).table
    last_entry, read = _last_entry_and_read_rows(table, store)
    if quarantine is None:
        return QuarantineCounts(table.name, name, exists=False, read=read)
    by_reason = list(quarantine.query(_BY_REASON))
    times = [moment for group in by_reason for moment in (group["first"], group["last"]) if moment is not None]
    return QuarantineCounts(
        table.name,
        name,
        rows=sum(int(group["rows"]) for group in by_reason),
        read=read,
        first=min(times, key=micros_of, default=None),
        last=max(times, key=micros_of, default=None),
        reasons={group["reason"]: int(group["rows"]) for group in by_reason},
        kinds=tuple(_kinds(quarantine)),
        rows_ahead=_count_ahead(quarantine, last_entry) if last_entry is not None else 0,
    )


def _kinds(quarantine: QuarantineReader) -> list[RejectKind]:
    sql = (
        f"SELECT coalesce({REASON}, '') AS reason, coalesce({_KIND}, '') AS about, count(*) AS rows, "
        f"min({WHEN}) AS first, max({WHEN}) AS last, {_NEWEST_BATCH} AS newest "
        f"FROM {ROWS} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT {MOST_KINDS}"
    )
    return [
        RejectKind(
            kind["reason"], kind["about"], int(kind["rows"]), kind["first"], kind["last"], _sample(quarantine, kind)
        )
        for kind in quarantine.query(sql)
    ]


def _sample(quarantine: QuarantineReader, kind: Mapping[str, Any]) -> RejectedRow | None:
    """A row of the newest batch that has such a row: the files of other batches are not opened."""
    if kind["newest"] is None:
        return None
    batch = RejectFilter(generation=kind["newest"] >> 32, batch=kind["newest"] & 0xFFFFFFFF)
    reason, about = quoted_text(kind["reason"]), quoted_text(kind["about"])
    same_kind = f"coalesce({REASON}, '') = {reason} AND coalesce({_KIND}, '') = {about}"
    return next(read_rows(quarantine, batch, 1, whole=False, condition=same_kind), None)


def _last_entry_and_read_rows(table: TablePlan, store: Store) -> tuple[Entry | None, int | None]:
    """The table's last entry, and how many rows it has read; None if unknown, or not known of all batches."""
    try:
        head = read_head(RecentLog(store, table.uri, table.name))
    except (PenstockError, ValueError, KeyError, OSError):
        return None, None
    if head is None:
        return None, None
    row_counts = read_row_counts(store, checkpoint_folder(table.checkpoints, head.entry), head.entry.batch)
    counted, entry = replace(head, row_counts=row_counts).counts.row_counts, head.entry
    # If its checkpoint was rebuilt, the last batch is counted when it runs again.
    incomplete = entry.kind == "batch" and not row_counts
    incomplete |= entry.generation == 1 and counted.get(BATCHES, 0) < entry.batch
    return entry, None if incomplete else counted.get(READ)


def _count_ahead(quarantine: QuarantineReader, last_entry: Entry) -> int:
    later = (
        f"generation > {last_entry.generation} OR (generation = {last_entry.generation} AND batch > {last_entry.batch})"
    )
    return sum(int(row["rows"]) for row in quarantine.query(f"SELECT count(*) AS rows FROM {ROWS} WHERE {later}"))


def count_document(counted: QuarantineCounts) -> dict[str, Any]:
    return {
        "table": counted.table,
        "quarantine": counted.quarantine,
        "rows": counted.rows,
        "read": counted.read,
        "share": None if counted.share is None else round(counted.share, 6),
        "first": iso(counted.first),
        "last": iso(counted.last),
        "reasons": dict(counted.reasons),
        "kinds": [
            {
                "reason": kind.reason,
                "about": kind.about,
                "rows": kind.rows,
                "first": iso(kind.first),
                "last": iso(kind.last),
                "sample": row_document(kind.sample) if kind.sample is not None else None,
            }
            for kind in counted.kinds
        ],
        "rows_of_other_kinds": counted.rows_of_other_kinds,
        "ahead": counted.rows_ahead,
        "problem": counted.problem,
        "hint": counted.hint,
    }
