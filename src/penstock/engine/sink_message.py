"""What a row becomes on its way to Kafka: key, value and headers, as SQL expressions over the row."""

from __future__ import annotations

import re
from urllib.parse import quote as url_quoted

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, NullType, StringType, StructType, VariantType

from penstock.engine.identifiers import quote
from penstock.engine.stages.coordinates import FILE, ROW, SOURCE
from penstock.engine.stages.decode import literal
from penstock.errors import Terminal
from penstock.plan.model import DeltaSource, SinkPlan, TablePlan
from penstock.spec.sink import ID

_STAR = re.compile(r"(?<=[(,])\s*\*\s*(?=[,)])")
_WHOLE_ROW = "to_json(struct(*))"


def message(rows: DataFrame, sink: TablePlan) -> tuple[str, ...]:
    """The expressions of a record's three parts. `rows` has the columns of the source; none of its rows is read.

    Raises where an expression cannot be part of a record."""
    plan, source = sink.sink, sink.source
    assert plan is not None and isinstance(source, DeltaSource)
    key = _part(rows, sink.name, "key", plan.key) if plan.key is not None else "CAST(NULL AS STRING)"
    value = _part(rows, sink.name, "value", plan.value if plan.value is not None else _WHOLE_ROW)
    headers = {ID: _id(sink.name, plan, source)}
    headers |= {name: _part(rows, sink.name, f"headers: {name}", text) for name, text in plan.headers.items()}
    made = (
        f"{key} AS key",
        f"{value} AS value",
        f"array({', '.join(_header(name, text) for name, text in headers.items())}) AS headers",
    )
    _refuse_more_than_one_row(rows, made, sink.name)
    return made


def _id(sink: str, plan: SinkPlan, source: DeltaSource) -> str:
    """The same whenever the row is sent: by the place of its record in Kafka, or of the row in its file. A file is
    called by its path within the table: the lake may move."""
    table = url_quoted(source.uri.rstrip("/").rpartition("/")[2])
    file = f"concat(substring_index({FILE}, {literal(f'/{table}/')}, -1), '/', CAST({ROW} AS STRING))"
    if plan.coordinates is None:
        return f"concat({literal(f'{sink}/')}, {file})"
    parts = (f"CAST({'.'.join(map(quote, path))} AS STRING)" for path in plan.coordinates)
    place = ", '/', ".join(parts)
    return f"concat({literal(f'{sink}/')}, coalesce(concat({place}), {file}))"  # rows added by others have no place


def _part(rows: DataFrame, sink: str, name: str, text: str) -> str:
    columns = [column for column in rows.columns if column not in (FILE, ROW, SOURCE)]
    whole = _STAR.sub(lambda _: ", ".join(map(quote, columns)), text)
    kind: DataType = rows.selectExpr(f"({whole}) AS part").schema["part"].dataType
    if isinstance(kind, StringType | BinaryType):
        return f"({whole})"
    if isinstance(kind, StructType | ArrayType | MapType | VariantType):
        raise Terminal(
            f"`{name}` gives {kind.simpleString()}; a record of Kafka holds text or bytes",
            where=sink,
            hint=f"write {name}: to_json({text})",
        )
    return "CAST(NULL AS STRING)" if isinstance(kind, NullType) else f"CAST(({whole}) AS STRING)"


def _header(name: str, value: str) -> str:
    return f"named_struct('key', {literal(name)}, 'value', CAST({value} AS BINARY))"


def _refuse_more_than_one_row(rows: DataFrame, made: tuple[str, ...], sink: str) -> None:
    """explode, window functions and the like make other rows than those that the ids are of."""
    before = rows._jdf.queryExecution().analyzed()
    after = rows.selectExpr(*made)._jdf.queryExecution().analyzed()
    if after.nodeName() != "Project" or not after.children().head().equals(before):
        raise Terminal(
            "`key`, `value` and `headers` are computed from one row: no explode, no window and no aggregate",
            where=sink,
            hint="make those rows in a table, and send that",
        )
    if not after.deterministic():
        raise Terminal(
            "`key`, `value` or `headers` gives something else each time; a row that is sent again must be the same",
            where=sink,
            hint="compute it in a table, where it is kept, and send that",
        )
