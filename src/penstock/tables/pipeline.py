"""The stages of a table as a function of a micro-batch: rows to write, and rows that are rejected with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from penstock.errors import Terminal
from penstock.formats.base import PARSED, Decoder, case, reason
from penstock.formats.debezium import KEY
from penstock.formats.json import UNKNOWN
from penstock.formats.registry import open_decoder
from penstock.ledger.entry import Pins
from penstock.ledger.writer import BatchMetrics
from penstock.plan.stages import KEY as MERGE_KEY
from penstock.plan.stages import SEQUENCE, DecodePlan, Stages
from penstock.sources.columns import FILE, ROW, SOURCE, with_source
from penstock.spark.expressions import cannot_raise, error_of
from penstock.spark.jvm import java_frame
from penstock.spark.sql_text import literal, quote
from penstock.spec.stages import format_rules
from penstock.tables import landing
from penstock.tables.expectations import (
    BAD,
    FAILED,
    GONE,
    NOTHING_FAILED,
    OUT,
    RAISED,
    RAW,
    REJECT,
    classify,
    raises,
    raw_columns,
    reject,
    size_of,
)
from penstock.tables.transform import load_transform, with_batch_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType

    from penstock.formats.base import Decoded
    from penstock.plan.model import TablePlan
    from penstock.plan.stages import AuditPlan, ExpectationPlan
    from penstock.tables.expectations import (
        ClassifiedRows,
    )
    from penstock.tables.transform import Transform

# Dates and times of rows that were not decoded, such as those of Parquet files: other readers of the table cannot
# hold those outside of the years 0001 to 9999, or take them for something else.


MARK = "outside_years:"
"""Before the name of a column, where the names of expectations stand."""
YEARS_DETAIL = "is not within the years 0001 to 9999"
_FIRST, _LAST = "-62135596800000000L", "253402300799999999L"
"""Microseconds."""


def outside_years(schema: StructType) -> dict[str, str]:
    """Column -> a condition, true or false: whether it holds such a value, at any depth."""
    found = {field.name: _outside(field.dataType, quote(field.name), 0) for field in schema.fields}
    return {name: f"coalesce({condition}, false)" for name, condition in found.items() if condition is not None}


def marks(conditions: dict[str, str]) -> str:
    """The columns of a row that hold one, each behind MARK."""
    named = ", ".join(f"IF({condition}, {literal(MARK + name)}, '')" for name, condition in conditions.items())
    return f"array_remove(array({named}), '')"


def _outside(kind: DataType, value: str, depth: int) -> str | None:
    """None if no value of the type is a date or a time."""
    one = f"x{depth}"
    match kind:
        case DateType():
            return f"({value} < DATE'0001-01-01' OR {value} > DATE'9999-12-31')"
        case TimestampType():
            return f"(unix_micros({value}) NOT BETWEEN {_FIRST} AND {_LAST})"
        case TimestampNTZType():
            first, last = "TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
            return f"({value} < {first} OR {value} > {last})"
        case StructType():
            inner = [_outside(field.dataType, f"{value}.{quote(field.name)}", depth) for field in kind.fields]
            parts = [f"coalesce({part}, false)" for part in inner if part is not None]
            return f"({' OR '.join(parts)})" if parts else None
        case ArrayType():
            part = _outside(kind.elementType, one, depth + 1)
            return None if part is None else f"exists({value}, {one} -> coalesce({part}, false))"
        case MapType():
            sides = {"map_keys": kind.keyType, "map_values": kind.valueType}
            found = {side: _outside(inner, one, depth + 1) for side, inner in sides.items()}
            parts = [
                f"exists({side}({value}), {one} -> coalesce({part}, false))" for side, part in found.items() if part
            ]
            return f"({' OR '.join(parts)})" if parts else None
    return None


# One row per change of another table: who, what, when, before and after.


_TYPE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
_ALONE = "__alone"


def audit(plan: AuditPlan) -> Transform:
    def run(rows: DataFrame, lookups: Mapping[str, DataFrame], time_ms: int) -> DataFrame:
        return _told(rows, plan)

    return run


def _told(rows: DataFrame, plan: AuditPlan) -> DataFrame:
    """The two images of an update lie in one commit, and so in one batch; they belong together by the keys. An insert
    or a delete is a change by itself, even if its keys are there twice."""
    columns = [name for name in rows.columns if name not in (_TYPE, _VERSION, _TIME, SOURCE)]
    image = f"struct({', '.join(map(quote, columns))})"
    who = f"CAST(({plan.who}) AS STRING)" if plan.who is not None else "CAST(NULL AS STRING)"
    told = rows.selectExpr(
        *map(quote, plan.keys),
        _VERSION,
        _TIME,
        f"{_TYPE} AS __type",
        f"{image} AS __row",
        f"{who} AS __who",
        f"{SOURCE} AS __place",
        f"IF({_TYPE} IN ('insert', 'delete'), monotonically_increasing_id(), -1) AS {_ALONE}",
    )
    one = "struct(__row AS row, __who AS who, __place AS place)"
    pairs = told.groupBy(_VERSION, _TIME, *map(quote, plan.keys), _ALONE).agg(
        F.expr(f"collect_list(IF(__type IN ('delete', 'update_preimage'), {one}, NULL))").alias("before"),
        F.expr(f"collect_list(IF(__type IN ('insert', 'update_postimage'), {one}, NULL))").alias("after"),
    )
    changes = pairs.selectExpr(_VERSION, _TIME, *map(quote, plan.keys), "explode(arrays_zip(before, after)) AS change")
    kind = "CASE WHEN change.before IS NULL THEN 'insert' WHEN change.after IS NULL THEN 'delete' ELSE 'update' END"
    return changes.selectExpr(
        *map(quote, plan.keys),
        f"{kind} AS change_type",
        "coalesce(change.after, change.before).who AS changed_by",
        f"{_TIME} AS changed_at",
        f"{_VERSION} AS version",
        "change.before.row AS before",
        "change.after.row AS after",
        f"coalesce(change.after, change.before).place AS {SOURCE}",
    )


# A table as a function of a micro-batch: rows to write, and rows that are rejected with the reason.
#
# One pass: the write of the good rows counts the bad ones, and brings them along as long as they are few and small.
# Only if they are not, or if the good rows are in the table already, the batch is read again for them.


_NO_PINS = Pins(0, "")
_NO_SOURCE = {
    "kafka": "CAST(NULL AS STRUCT<topic: STRING, partition: INT, offset: BIGINT>)",
    "file": "CAST(NULL AS STRUCT<file: STRING, row: BIGINT>)",
}
_KEPT, _TEXT = "__kept", "__text"
_COPIED = "__copied_source"
_WHERE = "__where"
"""What `from.where` raised on a row; only where it can."""
FROM_WHERE = "from.where"
TRANSFORM_FAILED = "transform_failed"
RAISES = "penstock: an expression of the definition raises"
"""What ends a pass that meets such a row, where it shall: nothing was written then."""
_OWN = (FROM_WHERE, MERGE_KEY, SEQUENCE)
"""Expressions that are tried on every row, and are no expectations of the user's: what they raise is counted with what
a transform raises."""
DETAIL = "__detail"
OpenDecoder = Callable[[DecodePlan, str | None], Decoder]


@dataclass(frozen=True)
class PipelineResult:
    """What a batch becomes. `rows` runs once; what it observed and what was rejected are asked for afterwards."""

    rows: DataFrame
    observed: tuple[BatchMetrics, ...]
    judged: tuple[ClassifiedRows, ...]


class StagedPipeline:
    """The stages of one table, loaded once per start."""

    def __init__(self, table: TablePlan, decoder: OpenDecoder | None = None) -> None:
        """`decoder` opens another than the one that payloads of Kafka have."""
        assert table.staged
        self._table, self._stages = table, table.stages or Stages("input")
        self._decoder = decoder or open_decoder
        self._where_raises: bool | None = None
        transform = self._stages.transform
        self._transform: Transform | None = None
        if self._stages.audit is not None:
            self._transform = audit(self._stages.audit)
        elif transform is not None:
            self._transform = load_transform(transform, self._stages.input_name, table.name)

    def make(
        self,
        batch: DataFrame,
        pins: Pins,
        lookups: Mapping[str, DataFrame],
        most_brought: int | None = None,
        *,
        strict: bool = False,
    ) -> PipelineResult:
        """`most_brought`: rejected rows that each task brings along, at the most. `strict`: the first row on which
        `where`, a key or a sequence raises ends the pass, with RAISES."""
        first = self._decoded(batch, pins, strict=strict)
        if self._transform is None:
            observed = BatchMetrics()
            return PipelineResult(self._finished(first.good(observed, most_brought), batch), (observed,), (first,))
        before, after = BatchMetrics(), BatchMetrics()
        rows = self._require_source(self._transform(first.good(before, most_brought), lookups, pins.time_ms))
        second = self._expected(rows, pins, strict=strict)
        return PipelineResult(self._finished(second.good(after, most_brought), batch), (before, after), (first, second))

    def raising(self, made: PipelineResult) -> tuple[int, int, Row | None, str]:
        """By a pass of its own: how many rows were read, on how many `where`, a key or a sequence raises, the
        coordinates of the first of these, and what it raises."""
        read, count, first, told = 0, 0, None, ""
        for judged in made.judged:
            raised = f"({OUT} AND {_own_raised(f'{REJECT}.{FAILED}')})"
            place = f"struct({REJECT}.{SOURCE} AS place, get({REJECT}.{FAILED}, 0) AS told)"
            row = judged.all.selectExpr(
                "count(1) AS read",
                f"count_if({raised}) AS raised",
                f"min({place}) FILTER (WHERE {raised}) AS first",
            ).first()
            assert row is not None
            read, count = max(read, int(row["read"])), count + int(row["raised"])
            if first is None and row["first"] is not None:
                first, told = row["first"]["place"], str(row["first"]["told"])
        return read, count, first, told

    @property
    def depends_on_the_moment(self) -> bool:
        """A Python function may ask for the time, or for chance: a second run of a batch may judge otherwise."""
        plan = self._stages.transform
        return plan is not None and plan.sql is None

    def refuse_chance(self, batch: DataFrame, lookups: Mapping[str, DataFrame]) -> None:
        """`batch` has no rows. Terminal if SQL of the user gives another answer every time that it is asked."""
        if self._transform is None and not self._stages.expect:
            return
        rows = self._decoded(batch, _NO_PINS).good(BatchMetrics())
        spark = rows.sparkSession
        if self._transform is not None:
            plain = spark.createDataFrame([], rows.schema)
            rows = self._transform(plain, {name: _empty_like(frame) for name, frame in lookups.items()}, 0)
            plan = self._stages.transform
            if plan is not None and plan.sql is not None and not _deterministic(rows):
                raise self._chance("sql", plan.sql)
        for one in self._stages.expect:
            if not _deterministic(spark.createDataFrame([], rows.schema).selectExpr(one.check)):
                raise self._chance(f"expect {one.name}", one.check)

    def _chance(self, where: str, written: str | None) -> Terminal:
        return Terminal(
            f"{where} depends on chance, so a batch that runs again could lose rows: {written}",
            where=self._table.name,
            hint="leave out rand(), uuid() and their like; a hash of the row is always the same: xxhash64(order_id)",
        )

    def explained(self, rejected: DataFrame) -> DataFrame:
        """Rejected rows with `why`, a struct of reason and detail."""
        expectation = self._unmet()
        decode = self._stages.decode
        if decode is None:
            return rejected.selectExpr("*", f"{expectation} AS why")
        text = f"coalesce(value, {_text('value_binary')}) AS value"
        key = f"coalesce(key, {_text('key_binary')}) AS {KEY}"
        read = rejected.selectExpr(*(n for n in rejected.columns if n != "value"), f"value AS {_KEPT}", text, key)
        decoded = self._decoder(replace(decode, column="value"), "value_binary").decode(read)
        kept = [*(f"{_KEPT} AS value" if name == "value" else name for name in RAW), SOURCE, FAILED]
        return decoded.frame.selectExpr(*kept, f"IF(size({FAILED}) > 0, {expectation}, {decoded.why}) AS why")

    def _unmet(self) -> str:
        """The reason of a row that did not meet what was expected of it, or on which an expression raised that is not
        an expectation, or that holds a time beyond the years that a table can hold."""
        told = f"array_join({FAILED}, ', ')"
        named = case([(_own_raised(FAILED), reason(TRANSFORM_FAILED, told))], reason("expectation", told))
        if self._table.files is not None:
            column = f"substring(get({FAILED}, 0), {len(MARK) + 1})"
            outside = reason("out_of_range", f"concat({column}, {literal(f': {YEARS_DETAIL}')})")
            named = case([(f"startswith(get({FAILED}, 0), '{MARK}')", outside)], named)
        merge = self._table.write.merge
        if merge is None:
            return named
        null_key = reason("null_key", literal(f"a key is null, or would be as a partition: {', '.join(merge.keys)}"))
        null_sequence = reason("null_sequence", literal(f"{merge.sequence} is null: it cannot be put in order"))
        return case(
            [
                (f"array_contains({FAILED}, '{MERGE_KEY}')", null_key),
                (f"array_contains({FAILED}, '{SEQUENCE}')", null_sequence),
            ],
            named,
        )

    def with_raw(self, batch: DataFrame, pins: Pins, rejected: DataFrame, *, few: bool = False) -> DataFrame:
        """Rows that were rejected after a transform, as the record that each came from: once, whatever became of it."""
        if self._transform is None or not self._table.write.source:
            return rejected
        return self.records_of(batch, pins, rejected, few=few)

    def records_of(self, batch: DataFrame, pins: Pins, rows: DataFrame, *, few: bool = False) -> DataFrame:
        """The records that rows came from, by their coordinates, with what any of its rows did not meet. `few`: the
        coordinates fit into memory."""
        records = self._records(batch, pins)
        raw = raw_columns(self._table, records.columns)
        came = records.selectExpr(*(f"CAST({raw.get(n, 'NULL')} AS {kind}) AS {n}" for n, kind in RAW.items()), SOURCE)
        failed = F.array_distinct(F.flatten(F.collect_list(FAILED))).alias(FAILED)
        found = rows.groupBy(SOURCE).agg(failed)
        return came.join(F.broadcast(found) if few else found, SOURCE).select(*RAW, SOURCE, FAILED)

    def set_aside(self, batch: DataFrame, pins: Pins, detail: Callable[[DataFrame], Column]) -> DataFrame:
        """Records on which an expression raised, as `explained` gives rejected rows. `detail` says what it raised; the
        batch may have a column DETAIL for that."""
        records = self._records(batch, pins)
        raw = raw_columns(self._table, [name for name in records.columns if name != DETAIL])
        told = records.withColumn(DETAIL, detail(records))
        return told.selectExpr(
            *(f"CAST({raw.get(n, 'NULL')} AS {kind}) AS {n}" for n, kind in RAW.items()),
            SOURCE,
            f"{NOTHING_FAILED} AS {FAILED}",
            f"{reason(TRANSFORM_FAILED, DETAIL)} AS why",
        )

    def _where(self, batch: DataFrame) -> str | None:
        """`from.where`, if it could raise on a row."""
        where = self._table.source.condition
        if where is not None and self._where_raises is None:
            self._where_raises = not cannot_raise(batch.where(where))
        return where if self._where_raises else None

    def _records(self, batch: DataFrame, pins: Pins) -> DataFrame:
        table = self._table
        records = landing.landed_rows(batch, table, pins) if table.topics is not None else batch
        if table.input.coordinates == "file" and SOURCE in map(str.casefold, records.columns):
            if table.stages is not None:
                raise Terminal(
                    f"its source has a column {SOURCE}: Penstock keeps under that name where a row came from",
                    where=table.name,
                    hint="rename the column in the table that is read, or read a copy of it without that column; a "
                    "table of the project that has nothing but `from` keeps it",
                )
            records = records.withColumnRenamed(SOURCE, _COPIED)
        return with_source(records, table.input)

    def _decoded(self, batch: DataFrame, pins: Pins, *, strict: bool = False) -> ClassifiedRows:
        table, stages = self._table, self._stages
        records = self._records(batch, pins)
        columns = records.columns
        raw = raw_columns(table, columns)
        expectations = () if self._transform is not None else _at(stages.expect, pins)
        place = f"to_json({SOURCE})"
        where = self._where(batch)
        if where is not None:
            records = records.withColumn(_WHERE, error_of(records.sparkSession, where))
        raised = f"{_WHERE} IS NOT NULL" if where is not None else "false"
        told = f"array(concat('{FROM_WHERE}{RAISED}', {_WHERE}))"
        faults = f"IF({raised}, {told}, {NOTHING_FAILED})" if where is not None else NOTHING_FAILED
        end = _end_at(f"{raised} OR {raises(expectations, _OWN)}") if strict else "false"
        if stages.decode is None:
            kept, size = partial(reject, raw, SOURCE), size_of(raw)
            bad = f"({raised})"
            outside = outside_years(records.schema) if table.files is not None else {}
            if outside:  # files have no `where`
                bad, faults = f"({' OR '.join(outside.values())})", marks(outside)
            found = {"bad": bad, "place": place, "faults": faults, "end": end}
            return classify(records, columns, expectations, **found, reject=kept, size=size)
        decoded, _ = self._read(records, raw)
        keep = [name for name in stages.decode.keep if name != SOURCE]
        columns = [*(name for name, _ in decoded.columns), *keep, SOURCE]
        frame = decoded.frame.selectExpr(
            *(f"{value} AS {quote(name)}" for name, value in decoded.columns),
            *map(quote, keep),
            SOURCE,
            f"({decoded.bad} OR {raised}) AS {BAD}",
            *([_WHERE] if where is not None else []),
            f"{decoded.gone} AS {GONE}",
            *(f"{value} AS `__raw_{name}`" for name, value in raw.items() if value != "NULL"),
        )
        held = {name: f"`__raw_{name}`" for name, value in raw.items() if value != "NULL"}
        kept, size = partial(reject, held, SOURCE), size_of(held)
        found = {"bad": BAD, "gone": GONE, "place": place, "faults": faults, "end": end}
        return classify(frame, columns, expectations, **found, reject=kept, size=size)

    def with_unknown(self, batch: DataFrame, pins: Pins) -> DataFrame:
        """Of the good records that have a field which the schema does not name, even if it holds no value: the first
        that does, and `text`, the payload."""
        records = self._records(batch, pins)
        decoded, column = self._read(records, raw_columns(self._table, records.columns))
        new = decoded.frame.where(f"({UNKNOWN} IS NOT NULL OR {PARSED}.__rescued IS NOT NULL) AND NOT {decoded.bad}")
        return new.selectExpr(f"{UNKNOWN} AS unknown", f"{quote(column)} AS text")

    def with_empty_unknown(self, batch: DataFrame, pins: Pins) -> DataFrame:
        """The coordinates of records that have a field which the schema does not name, with nothing in it: null, {} or
        [], however deep. A text that looks so counts too."""
        records = self._records(batch, pins)
        decoded, _ = self._read(records, raw_columns(self._table, records.columns))
        return decoded.frame.where(F.expr(f"{PARSED}.__rescued").rlike(r"null|\{\}|\[\]")).select(SOURCE)

    def with_empty_field(self, batch: DataFrame, pins: Pins) -> DataFrame:
        """The same of any field, by the text of the records."""
        records = self._records(batch, pins)
        text = F.expr(raw_columns(self._table, records.columns)["value"])
        return records.where(text.rlike(r"null|\{\s*\}|\[\s*\]")).select(SOURCE)

    def _read(self, records: DataFrame, raw: dict[str, str]) -> tuple[Decoded, str]:
        """The records decoded, and the column that has their payload as text."""
        table, written = self._table, self._stages.decode
        assert written is not None
        decode, rules = written, format_rules(written.format)
        is_payload = decode.column == table.input.raw.get("value")
        binary = table.input.raw.get("value_binary") if is_payload else None
        as_bytes = raw.get("value") == "NULL"
        if rules.payload == "text" and as_bytes:
            records = records.withColumn(_TEXT, F.expr(_text(quote(decode.column))))
            decode, binary = replace(decode, column=_TEXT), written.column
        elif rules.payload == "bytes" and not as_bytes:
            columns = [decode.column, *([binary] if binary is not None else [])]
            records = records.withColumn(
                _TEXT, F.expr(f"coalesce({', '.join(f'CAST({quote(name)} AS BINARY)' for name in columns)})")
            )
            decode, binary = replace(decode, column=_TEXT), None
        if rules.key:
            key = f"coalesce(CAST({raw.get('key', 'NULL')} AS STRING), {_text(raw.get('key_binary', 'NULL'))})"
            records = records.withColumn(KEY, F.expr(key))
        return self._decoder(decode, binary).decode(records), decode.column

    def _expected(self, rows: DataFrame, pins: Pins, *, strict: bool = False) -> ClassifiedRows:
        """After a transform the record as it came is no longer at hand: it is looked up by its coordinates."""
        has_source = SOURCE in rows.columns
        values = ", ".join(quote(name) for name in rows.columns if name != SOURCE)
        source = SOURCE if has_source else _NO_SOURCE[self._table.input.origin]
        raw = {"value": f"to_json(struct({values}))"}
        kept = partial(reject, raw, source)
        place = f"to_json({SOURCE})" if has_source else "'an unknown place'"
        expectations = _at(self._stages.expect, pins)
        found = {"bad": "false", "place": place, "end": _end_at(raises(expectations, _OWN)) if strict else "false"}
        return classify(rows, rows.columns, expectations, **found, reject=kept, size=size_of(raw))

    def _require_source(self, rows: DataFrame) -> DataFrame:
        if SOURCE in rows.columns or not self._table.write.source:
            return rows
        raise Terminal(
            f"the transform gave no column {SOURCE}: without it nobody can prove that no row was lost",
            where=self._table.name,
            hint=f"keep it: SELECT {SOURCE}, … ; or do without: write: {{source: false}}",
        )

    def _finished(self, rows: DataFrame, batch: DataFrame) -> DataFrame:
        if self._table.stages is None:  # a copy has the columns of what it copies
            names = [name for name in batch.columns if name not in (FILE, ROW)]
            copied = _COPIED if _COPIED in rows.columns else SOURCE
            return rows.selectExpr(*(f"{copied} AS {SOURCE}" if name == SOURCE else quote(name) for name in names))
        return rows if self._table.write.source else rows.drop(SOURCE)


def _at(expectations: Sequence[ExpectationPlan], pins: Pins) -> list[ExpectationPlan]:
    return [replace(one, check=with_batch_time(one.check, pins.time_ms)) for one in expectations]


def _own_raised(failed: str) -> str:
    """Whether the first thing that a row failed is an expression in _OWN, because it raised."""
    own = " OR ".join(f"startswith(get({failed}, 0), {literal(f'{name}{RAISED}')})" for name in _OWN)
    return f"coalesce({own}, false)"


def _end_at(raised: str) -> str:
    return f"IF({raised}, raise_error({literal(RAISES)}), false)"


def _text(column: str) -> str:
    return f"try_validate_utf8(CAST({column} AS STRING))"


def _empty_like(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.createDataFrame([], frame.schema)


def _deterministic(rows: DataFrame) -> bool:
    return bool(java_frame(rows).queryExecution().analyzed().deterministic())
