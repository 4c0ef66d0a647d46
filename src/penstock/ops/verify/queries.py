"""Commands that show by other means what `verify` looked at: queries as of the versions that it read."""

from __future__ import annotations

import re
import shlex

from penstock.plan.model import DeltaSource, TablePlan
from penstock.plan.quarantine import quarantine_of
from penstock.plan.stages import AggregatePlan

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sql(query: str) -> str:
    return f"penstock sql {shlex.quote(query)}"


def name(column: str) -> str:
    """Quoted where it has to be."""
    return column if _PLAIN.fullmatch(column) else "`" + column.replace("`", "``") + "`"


def rows_query(table: TablePlan, version: int) -> list[str]:
    return [] if table.sink is not None else [sql(f"SELECT * FROM {table.name}@v{version}")]


def groups_query(table: TablePlan, version: int) -> list[str]:
    """None if the source is no table of the project: `penstock sql` knows no other."""
    source, plan = table.source, table.aggregate
    if plan is None or not isinstance(source, DeltaSource) or source.table is None:
        return []
    columns = [*_window_columns(plan), *map(name, plan.keys)]
    metrics = [f"{expression} AS {name(metric)}" for metric, expression in plan.metrics.items()]
    where = f" WHERE {source.where}" if source.where is not None else ""
    groups = [*_window(plan), *map(name, plan.keys)]
    read = f"FROM {source.table}@v{version}{where}"
    return [sql(f"SELECT {', '.join([*columns, *metrics])} {read} GROUP BY {', '.join(groups)}")]


def _window(plan: AggregatePlan) -> list[str]:
    if plan.time is None:
        return []
    return [f"window({name(plan.time)}, '{plan.size_ms} milliseconds', '{plan.every_ms} milliseconds')"]


def _window_columns(plan: AggregatePlan) -> list[str]:
    return ["window.start AS window_start", "window.end AS window_end"] if plan.time is not None else []


def copy_queries(table: TablePlan, version: int, upstream: int) -> list[str]:
    source = table.source
    if not isinstance(source, DeltaSource) or source.table is None:
        return rows_query(table, version)
    return [sql(f"SELECT * FROM {source.table}@v{upstream}"), *rows_query(table, version)]


def counting(table: TablePlan, version: int) -> list[str]:
    """Of a table that lands records: its offsets; of any other how many rows it has, and its quarantine."""
    if table.sink is not None:
        return []
    if table.columns and table.stages is None:
        topic, partition, offset = (name(table.columns[one]) for one in ("topic", "partition", "offset"))
        return [
            sql(
                f"SELECT {topic}, {partition}, min({offset}), max({offset}), count(*), count(DISTINCT {offset}) "
                f"FROM {table.name}@v{version} GROUP BY {topic}, {partition}"
            )
        ]
    counted = [sql(f"SELECT count(*) FROM {table.name}@v{version}")]
    if table.may_reject:
        beside = quarantine_of(table.name, table.uri).table
        counted.append(sql(f"SELECT error_reason, count(*) FROM {beside} GROUP BY error_reason"))
    return counted
