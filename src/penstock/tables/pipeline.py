"""Runs the stages of a table on a micro-batch: rows to write, and rejected rows with their reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from penstock.errors import Terminal
from penstock.formats.base import Decoder, case, reason
from penstock.formats.json import KEY
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
    NOTHING_FAILED,
    PRE_DROPPED,
    RAISED,
    RAW,
    REJECT,
    REJECTED_MARK,
    as_rejected,
    classify,
    raises,
    raw_columns,
    raw_projection,
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
    from penstock.tables.expectations import ClassifiedRows
    from penstock.tables.transform import Transform

# Dates and times of rows that are not decoded, such as those of Parquet files: other readers of the table cannot hold
# values outside the years 0001 to 9999, or misread them.


MARK = "outside_years:"
"""Marks the name of a column in the list of failed expectations."""
YEARS_DETAIL = "is not within the years 0001 to 9999"
_FIRST, _LAST = "-62135596800000000L", "253402300799999999L"
"""Microseconds."""


def outside_years(schema: StructType) -> dict[str, str]:
    """Column -> a condition, never NULL: whether it holds a value outside these years, at any depth."""
    conditions = {field.name: _outside_condition(field.dataType, quote(field.name), 0) for field in schema.fields}
    return {name: f"coalesce({condition}, false)" for name, condition in conditions.items() if condition is not None}


def marks(conditions: dict[str, str]) -> str:
    """The columns of a row that meet their conditions, each after MARK, as an array."""
    names = ", ".join(f"IF({condition}, {literal(MARK + name)}, '')" for name, condition in conditions.items())
    return f"array_remove(array({names}), '')"


def _outside_condition(data_type: DataType, value: str, depth: int) -> str | None:
    """The condition for a value outside these years; None if the type has no dates or times."""
    variable = f"x{depth}"
    match data_type:
        case DateType():
            return f"({value} < DATE'0001-01-01' OR {value} > DATE'9999-12-31')"
        case TimestampType():
            return f"(unix_micros({value}) NOT BETWEEN {_FIRST} AND {_LAST})"
        case TimestampNTZType():
            first, last = "TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
            return f"({value} < {first} OR {value} > {last})"
        case StructType():
            inner = [
                _outside_condition(field.dataType, f"{value}.{quote(field.name)}", depth) for field in data_type.fields
            ]
            parts = [f"coalesce({part}, false)" for part in inner if part is not None]
            return f"({' OR '.join(parts)})" if parts else None
        case ArrayType():
            part = _outside_condition(data_type.elementType, variable, depth + 1)
            return None if part is None else f"exists({value}, {variable} -> coalesce({part}, false))"
        case MapType():
            sides = {"map_keys": data_type.keyType, "map_values": data_type.valueType}
            conditions = {side: _outside_condition(inner, variable, depth + 1) for side, inner in sides.items()}
            parts = [
                f"exists({side}({value}), {variable} -> coalesce({part}, false))"
                for side, part in conditions.items()
                if part
            ]
            return f"({' OR '.join(parts)})" if parts else None
    return None


# One row per change of another table: who, what, when, before and after.


_TYPE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
_ALONE = "__alone"


def audit(plan: AuditPlan) -> Transform:
    return lambda rows, lookups, time_ms: _audit_rows(rows, plan)


def _audit_rows(rows: DataFrame, plan: AuditPlan) -> DataFrame:
    """One row per change. The two images of an update are in one commit, so in one batch, and are matched by the keys.
    An insert or a delete is a change by itself, even if its keys occur twice."""
    columns = [name for name in rows.columns if name not in (_TYPE, _VERSION, _TIME, SOURCE)]
    image = f"struct({', '.join(map(quote, columns))})"
    who = f"CAST(({plan.who}) AS STRING)" if plan.who is not None else "CAST(NULL AS STRING)"
    images = rows.selectExpr(
        *map(quote, plan.keys),
        _VERSION,
        _TIME,
        f"{_TYPE} AS __type",
        f"{image} AS __row",
        f"{who} AS __who",
        f"{SOURCE} AS __place",
        f"IF({_TYPE} IN ('insert', 'delete'), monotonically_increasing_id(), -1) AS {_ALONE}",
    )
    image_struct = "struct(__row AS row, __who AS who, __place AS place)"
    pairs = images.groupBy(_VERSION, _TIME, *map(quote, plan.keys), _ALONE).agg(
        F.expr(f"collect_list(IF(__type IN ('delete', 'update_preimage'), {image_struct}, NULL))").alias("before"),
        F.expr(f"collect_list(IF(__type IN ('insert', 'update_postimage'), {image_struct}, NULL))").alias("after"),
    )
    changes = pairs.selectExpr(_VERSION, _TIME, *map(quote, plan.keys), "explode(arrays_zip(before, after)) AS change")
    change_type = (
        "CASE WHEN change.before IS NULL THEN 'insert' WHEN change.after IS NULL THEN 'delete' ELSE 'update' END"
    )
    return changes.selectExpr(
        *map(quote, plan.keys),
        f"{change_type} AS change_type",
        "coalesce(change.after, change.before).who AS changed_by",
        f"{_TIME} AS changed_at",
        f"{_VERSION} AS version",
        "change.before.row AS before",
        "change.after.row AS after",
        f"coalesce(change.after, change.before).place AS {SOURCE}",
    )


# The stages of a table, run on a micro-batch.
#
# One pass: the write of the good rows counts the bad ones, and collects them as long as they are few and small. Only if
# they are not, or if the good rows are in the table already, is the batch read again for them.


_NO_PINS = Pins(0, "")
_NO_SOURCE = {
    "kafka": "CAST(NULL AS STRUCT<topic: STRING, partition: INT, offset: BIGINT>)",
    "file": "CAST(NULL AS STRUCT<file: STRING, row: BIGINT>)",
}
_KEPT, _TEXT = "__kept", "__text"
_COPIED = "__copied_source"
_WHERE = "__where"
"""What `from.where` raised on a row; present only if it can raise."""
FROM_WHERE = "from.where"
TRANSFORM_FAILED = "transform_failed"
STRICT_ERROR = "penstock: an expression of the definition raises"
"""Ends a strict pass at a row on which an expression raises: nothing was written then."""
_DEFINITION_EXPRESSIONS = (FROM_WHERE, MERGE_KEY, SEQUENCE)
"""Expressions that are tried on every row but are not the user's expectations: their errors count as a transform's."""
DETAIL = "__detail"
OpenDecoder = Callable[[DecodePlan, str | None], Decoder]


@dataclass(frozen=True)
class PipelineResult:
    """The result of a batch. `rows` runs once; what it observed and what was rejected are read afterwards."""

    rows: DataFrame
    metrics: tuple[BatchMetrics, ...]
    classified: tuple[ClassifiedRows, ...]


class StagedPipeline:
    """The stages of one table, loaded once per start."""

    def __init__(self, table: TablePlan, decoder: OpenDecoder | None = None) -> None:
        """`decoder` opens a decoder other than the one for Kafka payloads."""
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

    def run(
        self,
        batch: DataFrame,
        pins: Pins,
        lookups: Mapping[str, DataFrame],
        max_collected: int | None = None,
        *,
        strict: bool = False,
    ) -> PipelineResult:
        """`max_collected`: the maximum of rejected rows that each task collects. `strict`: the first row on which
        `where`, a key or a sequence raises ends the pass, with STRICT_ERROR."""
        first = self._classify_input(batch, pins, strict=strict)
        if self._transform is None:
            metrics = BatchMetrics()
            rows = self._output_rows(first.good_rows(metrics, max_collected), batch)
            return PipelineResult(rows, (metrics,), (first,))
        before, after = BatchMetrics(), BatchMetrics()
        rows = self._require_source(self._transform(first.good_rows(before, max_collected), lookups, pins.time_ms))
        second = self._classify_transformed(rows, pins, strict=strict)
        rows = self._output_rows(second.good_rows(after, max_collected), batch)
        return PipelineResult(rows, (before, after), (first, second))

    def count_raising(self, result: PipelineResult) -> tuple[int, int, Row | None, str]:
        """Counts in a separate pass how many rows were read and on how many `where`, a key or a sequence raises, with
        the coordinates of the first of these and what it raises."""
        read, count, first, error = 0, 0, None, ""
        for classified in result.classified:
            raised = f"({REJECTED_MARK} AND {_definition_raised(f'{REJECT}.{FAILED}')})"
            place = f"struct({REJECT}.{SOURCE} AS place, get({REJECT}.{FAILED}, 0) AS told)"
            row = classified.all.selectExpr(
                "count(1) AS read",
                f"count_if({raised}) AS raised",
                f"min({place}) FILTER (WHERE {raised}) AS first",
            ).first()
            assert row is not None
            read, count = max(read, int(row["read"])), count + int(row["raised"])
            if first is None and row["first"] is not None:
                first, error = row["first"]["place"], str(row["first"]["told"])
        return read, count, first, error

    @property
    def is_nondeterministic(self) -> bool:
        """Whether a second run of a batch may reject other rows: a Python function may use the time or chance."""
        plan = self._stages.transform
        return plan is not None and plan.sql is None

    def refuse_chance(self, batch: DataFrame, lookups: Mapping[str, DataFrame]) -> None:
        """Terminal if the user's SQL is not deterministic. `batch` has no rows."""
        if self._transform is None and not self._stages.expect:
            return
        rows = self._classify_input(batch, _NO_PINS).good_rows(BatchMetrics())
        spark = rows.sparkSession
        if self._transform is not None:
            empty = spark.createDataFrame([], rows.schema)
            rows = self._transform(empty, {name: _empty_like(frame) for name, frame in lookups.items()}, 0)
            plan = self._stages.transform
            if plan is not None and plan.sql is not None and not _deterministic(rows):
                raise self._chance_error("sql", plan.sql)
        for expectation in self._stages.expect:
            if not _deterministic(spark.createDataFrame([], rows.schema).selectExpr(expectation.check)):
                raise self._chance_error(f"expect {expectation.name}", expectation.check)

    def _chance_error(self, where: str, expression: str | None) -> Terminal:
        return Terminal(
            f"{where} depends on chance, so a batch that runs again could lose rows: {expression}",
            where=self._table.name,
            hint="leave out rand(), uuid() and their like; a hash of the row is always the same: xxhash64(order_id)",
        )

    def with_reasons(self, rejected: DataFrame) -> DataFrame:
        """The rejected rows with `why`, a struct of reason and detail."""
        expectation, decode = self._unmet_reason(), self._stages.decode
        if decode is None:
            return rejected.selectExpr("*", f"{expectation} AS why")
        text = f"coalesce(value, {_utf8_text('value_binary')}) AS value"
        key = f"coalesce(key, {_utf8_text('key_binary')}) AS {KEY}"
        readable = rejected.selectExpr(*(n for n in rejected.columns if n != "value"), f"value AS {_KEPT}", text, key)
        decoded = self._decoder(replace(decode, column="value"), "value_binary").decode(readable)
        columns = [*(f"{_KEPT} AS value" if name == "value" else name for name in RAW), SOURCE, FAILED]
        return decoded.frame.selectExpr(*columns, f"IF(size({FAILED}) > 0, {expectation}, {decoded.reason}) AS why")

    def _unmet_reason(self) -> str:
        """The reason for a row that failed an expectation, on which another expression raised, or that holds a time
        outside the years that a table can hold."""
        names = f"array_join({FAILED}, ', ')"
        unmet = case([(_definition_raised(FAILED), reason(TRANSFORM_FAILED, names))], reason("expectation", names))
        if self._table.files is not None:
            column = f"substring(get({FAILED}, 0), {len(MARK) + 1})"
            outside = reason("out_of_range", f"concat({column}, {literal(f': {YEARS_DETAIL}')})")
            unmet = case([(f"startswith(get({FAILED}, 0), '{MARK}')", outside)], unmet)
        merge = self._table.write.merge
        if merge is None:
            return unmet
        null_key = reason("null_key", literal(f"a key is null, or would be as a partition: {', '.join(merge.keys)}"))
        null_sequence = reason("null_sequence", literal(f"{merge.sequence} is null: it cannot be put in order"))
        conditions = {MERGE_KEY: null_key, SEQUENCE: null_sequence}
        return case([(f"array_contains({FAILED}, '{name}')", why) for name, why in conditions.items()], unmet)

    def with_raw(self, batch: DataFrame, pins: Pins, rejected: DataFrame, *, few: bool = False) -> DataFrame:
        """Rows rejected after a transform as the records they came from, each record once whatever became of it."""
        if self._transform is None or not self._table.write.source:
            return rejected
        return self.records_of(batch, pins, rejected, few=few)

    def records_of(self, batch: DataFrame, pins: Pins, rows: DataFrame, *, few: bool = False) -> DataFrame:
        """The records that rows came from, by coordinates, with all that any row of a record failed. `few`: the
        coordinates fit into memory."""
        records = self._records(batch, pins)
        raw = raw_columns(self._table, records.columns)
        originals = records.selectExpr(*raw_projection(raw), SOURCE)
        failed = F.array_distinct(F.flatten(F.collect_list(FAILED))).alias(FAILED)
        failures = rows.groupBy(SOURCE).agg(failed)
        return originals.join(F.broadcast(failures) if few else failures, SOURCE).select(*RAW, SOURCE, FAILED)

    def set_aside(self, batch: DataFrame, pins: Pins, detail: Column) -> DataFrame:
        """Records on which an expression raised, in the form of `as_rejected`. `detail` says what it raised; the batch
        may have a column DETAIL for that."""
        records = self._records(batch, pins)
        raw = raw_columns(self._table, [name for name in records.columns if name != DETAIL])
        return as_rejected(records.withColumn(DETAIL, detail), raw, SOURCE, reason(TRANSFORM_FAILED, DETAIL))

    def _raising_where(self, batch: DataFrame) -> str | None:
        """`from.where` if it could raise on a row, else None."""
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

    def _classify_input(self, batch: DataFrame, pins: Pins, *, strict: bool = False) -> ClassifiedRows:
        table, stages = self._table, self._stages
        records = self._records(batch, pins)
        columns = records.columns
        raw = raw_columns(table, columns)
        expectations = () if self._transform is not None else _with_time(stages.expect, pins)
        place = f"to_json({SOURCE})"
        where = self._raising_where(batch)
        if where is not None:
            records = records.withColumn(_WHERE, error_of(records.sparkSession, where))
        raised = f"{_WHERE} IS NOT NULL" if where is not None else "false"
        error_entry = f"array(concat('{FROM_WHERE}{RAISED}', {_WHERE}))"
        faults = f"IF({raised}, {error_entry}, {NOTHING_FAILED})" if where is not None else NOTHING_FAILED
        end = _raise_if(f"{raised} OR {raises(expectations, _DEFINITION_EXPRESSIONS)}") if strict else "false"
        if stages.decode is None:
            make_reject, size = partial(reject, raw, SOURCE), size_of(raw)
            bad = f"({raised})"
            outside = outside_years(records.schema) if table.files is not None else {}
            if outside:  # files have no `where`
                bad, faults = f"({' OR '.join(outside.values())})", marks(outside)
            return classify(
                records,
                columns,
                expectations,
                bad=bad,
                place=place,
                faults=faults,
                end=end,
                reject=make_reject,
                size=size,
            )
        decoded, _ = self._decode_records(records, raw)
        keep = [name for name in stages.decode.keep if name != SOURCE]
        columns = [*(name for name, _ in decoded.columns), *keep, SOURCE]
        frame = decoded.frame.selectExpr(
            *(f"{value} AS {quote(name)}" for name, value in decoded.columns),
            *map(quote, keep),
            SOURCE,
            f"({decoded.is_bad} OR {raised}) AS {BAD}",
            *([_WHERE] if where is not None else []),
            f"{decoded.is_dropped} AS {PRE_DROPPED}",
            *(f"{value} AS `__raw_{name}`" for name, value in raw.items() if value != "NULL"),
        )
        raw_values = {name: f"`__raw_{name}`" for name, value in raw.items() if value != "NULL"}
        return classify(
            frame,
            columns,
            expectations,
            bad=BAD,
            gone=PRE_DROPPED,
            place=place,
            faults=faults,
            end=end,
            reject=partial(reject, raw_values, SOURCE),
            size=size_of(raw_values),
        )

    def with_unknown(self, batch: DataFrame, pins: Pins) -> DataFrame:
        """The good records with a field that the schema does not name, even without a value: `unknown`, the first such
        field, and `text`, the payload."""
        records = self._records(batch, pins)
        decoded, column = self._decode_records(records, raw_columns(self._table, records.columns))
        unknown, rescued = decoded.unknown_field, decoded.rescued or "NULL"
        new = decoded.frame.where(f"({unknown} IS NOT NULL OR {rescued} IS NOT NULL) AND NOT {decoded.is_bad}")
        return new.selectExpr(f"{unknown} AS unknown", f"{quote(column)} AS text")

    def with_empty_unknown(self, batch: DataFrame, pins: Pins) -> DataFrame:
        """The coordinates of records with a field that the schema does not name and that is empty: null, {} or [], at
        any depth. A text that looks like one counts too."""
        records = self._records(batch, pins)
        decoded, _ = self._decode_records(records, raw_columns(self._table, records.columns))
        return decoded.frame.where(F.expr(decoded.rescued or "NULL").rlike(r"null|\{\}|\[\]")).select(SOURCE)

    def with_empty_field(self, batch: DataFrame, pins: Pins) -> DataFrame:
        """The same for any empty field, by the text of the records."""
        records = self._records(batch, pins)
        text = F.expr(raw_columns(self._table, records.columns)["value"])
        return records.where(text.rlike(r"null|\{\s*\}|\[\s*\]")).select(SOURCE)

    def _decode_records(self, records: DataFrame, raw: dict[str, str]) -> tuple[Decoded, str]:
        """The decoded records, and the column with their payload as text."""
        table, decode_plan = self._table, self._stages.decode
        assert decode_plan is not None
        decode, rules = decode_plan, format_rules(decode_plan.format)
        is_payload = decode.column == table.input.raw.get("value")
        binary = table.input.raw.get("value_binary") if is_payload else None
        as_bytes = raw.get("value") == "NULL"
        if rules.payload == "text" and as_bytes:
            records = records.withColumn(_TEXT, F.expr(_utf8_text(quote(decode.column))))
            decode, binary = replace(decode, column=_TEXT), decode_plan.column
        elif rules.payload == "bytes" and not as_bytes:
            columns = [decode.column, *([binary] if binary is not None else [])]
            payloads = ", ".join(f"CAST({quote(name)} AS BINARY)" for name in columns)
            records = records.withColumn(_TEXT, F.expr(f"coalesce({payloads})"))
            decode, binary = replace(decode, column=_TEXT), None
        if rules.key:
            key = f"coalesce(CAST({raw.get('key', 'NULL')} AS STRING), {_utf8_text(raw.get('key_binary', 'NULL'))})"
            records = records.withColumn(KEY, F.expr(key))
        return self._decoder(decode, binary).decode(records), decode.column

    def _classify_transformed(self, rows: DataFrame, pins: Pins, *, strict: bool = False) -> ClassifiedRows:
        """Classifies the rows of a transform. They lack the original record, which `with_raw` finds by coordinates."""
        has_source = SOURCE in rows.columns
        values = ", ".join(quote(name) for name in rows.columns if name != SOURCE)
        source = SOURCE if has_source else _NO_SOURCE[self._table.input.origin]
        raw = {"value": f"to_json(struct({values}))"}
        expectations = _with_time(self._stages.expect, pins)
        return classify(
            rows,
            rows.columns,
            expectations,
            bad="false",
            place=f"to_json({SOURCE})" if has_source else "'an unknown place'",
            end=_raise_if(raises(expectations, _DEFINITION_EXPRESSIONS)) if strict else "false",
            reject=partial(reject, raw, source),
            size=size_of(raw),
        )

    def _require_source(self, rows: DataFrame) -> DataFrame:
        if SOURCE in rows.columns or not self._table.write.source:
            return rows
        raise Terminal(
            f"the transform gave no column {SOURCE}: without it a lost row would not be noticed",
            where=self._table.name,
            hint=f"keep it: SELECT {SOURCE}, … ; or do without: write: {{source: false}}",
        )

    def _output_rows(self, rows: DataFrame, batch: DataFrame) -> DataFrame:
        if self._table.stages is None:  # a copy has the columns of what it copies
            names = [name for name in batch.columns if name not in (FILE, ROW)]
            copied = _COPIED if _COPIED in rows.columns else SOURCE
            return rows.selectExpr(*(f"{copied} AS {SOURCE}" if name == SOURCE else quote(name) for name in names))
        return rows if self._table.write.source else rows.drop(SOURCE)


def _with_time(expectations: Sequence[ExpectationPlan], pins: Pins) -> list[ExpectationPlan]:
    return [replace(each, check=with_batch_time(each.check, pins.time_ms)) for each in expectations]


def _definition_raised(failed: str) -> str:
    """The condition that the first entry in a row's failures is a raise of one of _DEFINITION_EXPRESSIONS."""
    conditions = [f"startswith(get({failed}, 0), {literal(f'{name}{RAISED}')})" for name in _DEFINITION_EXPRESSIONS]
    return f"coalesce({' OR '.join(conditions)}, false)"


def _raise_if(raised: str) -> str:
    return f"IF({raised}, raise_error({literal(STRICT_ERROR)}), false)"


def _utf8_text(column: str) -> str:
    return f"try_validate_utf8(CAST({column} AS STRING))"


def _empty_like(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.createDataFrame([], frame.schema)


def _deterministic(rows: DataFrame) -> bool:
    return bool(java_frame(rows).queryExecution().analyzed().deterministic())
