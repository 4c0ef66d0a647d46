"""A few rows of each table, and of what was rejected, read as any other reader of Delta would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from deltalake import DeltaTable, QueryBuilder
from rich.table import Table
from rich.text import Text

from penstock.cli.console import out
from penstock.plan.model import Plan, TablePlan
from penstock.plan.quarantine import quarantine_of
from penstock.spec.merge import OWN

ROWS = 4
MOST_COLUMNS = 8
WIDEST = 48
NARROWEST = 10
_RECORD = ("topic", "partition", "offset", "key", "value")
_HIDDEN = ("_source", "window_end", *OWN)
_EACH_REASON = (
    "SELECT error_reason, records, error_detail, value FROM (SELECT error_reason, error_detail, value, "
    "count(*) OVER (PARTITION BY error_reason) AS records, "
    "row_number() OVER (PARTITION BY error_reason ORDER BY batch, error_detail, value) AS number FROM t) "
    "WHERE number = 1 ORDER BY records DESC, error_reason"
)


def show_tables(plan: Plan) -> None:
    """Tables that were not made are left out: whoever made them has said why."""
    for table in plan.tables:
        for view in _views(table):
            out.print(view)


def _views(table: TablePlan) -> Iterator[Table]:
    if DeltaTable.is_deltatable(table.uri):
        yield _rows(table)
    place = quarantine_of(table.name, table.uri)
    if DeltaTable.is_deltatable(place.uri):
        if not (found := _query(place.uri, _EACH_REASON)):
            return
        many = sum(int(str(row[1])) for row in found)
        title = f"{place.table}: {many:,} records, one of each reason"
        yield _view(title, ("error_reason", "records", "error_detail", "value"), found)


def _rows(table: TablePlan) -> Table:
    names = [field.name for field in DeltaTable(table.uri).schema().fields]
    chosen = _chosen(table, names)
    columns = ", ".join(map(_quoted, chosen))
    living = "" if table.write.merge is None else "WHERE NOT _deleted"
    found = _query(table.uri, f"SELECT {columns} FROM t {living} {_order(table)} LIMIT {ROWS}")
    total = int(str(_query(table.uri, f"SELECT count(*) FROM t {living}")[0][0]))
    return _view(f"{table.name}: {len(found)} of {total:,} rows", chosen, found)


def _chosen(table: TablePlan, names: Sequence[str]) -> list[str]:
    """Of a landed table the record; of others the first and the last columns."""
    if table.columns and table.stages is None:
        return [table.columns[name] for name in _RECORD]
    shown = [name for name in names if name not in _HIDDEN]
    half = MOST_COLUMNS // 2
    return shown if len(shown) <= MOST_COLUMNS else [*shown[:half], *shown[-half:]]


def _order(table: TablePlan) -> str:
    if table.aggregate is not None:
        window = ["window_start"] if table.aggregate.time else []
        largest = list(table.aggregate.metrics)[-1]
        return "ORDER BY " + ", ".join(f"{_quoted(name)} DESC" for name in [*window, largest])
    if table.columns and table.stages is None:
        return f"ORDER BY {_quoted(table.columns['offset'])}, {_quoted(table.columns['partition'])}"
    return ""


def _view(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    view = Table(title=Text(title), title_justify="left")
    for column in columns:
        view.add_column(Text(column), no_wrap=True, overflow="ellipsis", min_width=min(len(column), NARROWEST))
    for row in rows:
        view.add_row(*(Text(_short(value)) for value in row))
    return view


def _query(uri: str, query: str) -> list[tuple[object, ...]]:
    found = QueryBuilder().register("t", DeltaTable(uri)).execute(query).read_all()
    columns = [found.column(index).to_pylist() for index in range(len(found.schema))]
    return list(zip(*columns, strict=True))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _short(value: object) -> str:
    match value:
        case None:
            text = "NULL"
        case list():
            text = ", ".join(map(str, value))
        case dict():
            text = ", ".join(map(_short, value.values()))
        case datetime():
            text = str(value)[:19]
        case _:
            text = str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
