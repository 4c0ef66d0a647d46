"""`penstock status`: a row per table, then positions and lag, then problems and what to do about them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.console import fold, left, plain_table, print_json, print_view, right, visible, visible_lines
from penstock.cli.options import AsJson, Directory, Tables, load_tables
from penstock.operations.status import CRASHED, NOT_CREATED, UNREADABLE
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.broker import PartitionLag
    from penstock.operations.status import Status


PARTITIONS_SHOWN = 8
TABLES_IN_DETAIL = 5
"""With up to this many tables, every position is shown; with more, only those of tables that are behind."""
BEHIND_SHOWN = 10
_STYLES = {
    "running": "green",
    "finished": "green",
    "starting": "cyan",
    "retrying": "yellow",
    NOT_CREATED: "dim",
    "failed": "bold red",
    CRASHED: "bold red",
    UNREADABLE: "bold red",
}


def status_view(statuses: Sequence[Status]) -> RenderableType:
    if not statuses:
        return Text("the project has no tables")
    return Group(_rows(statuses), *_position_lines(statuses), *_reasons(statuses))


def _rows(statuses: Sequence[Status]) -> Table:
    numbers = right("batch", "written", "behind", "in/s", "proc/s", "last commit")
    table = plain_table(*fold("table"), *left("state"), *numbers)
    now = time.time() * 1000
    for status in statuses:
        texts = (
            "" if status.batch is None else f"{status.generation}.{status.batch}",
            f"{status.rows:,}" if status.batch is not None else "",
            _lag_text(status),
            "" if status.rates is None else per_second(status.rates.input_rows_per_second),
            "" if status.rates is None else per_second(status.rates.processed_rows_per_second),
            ago(status.age(now)),
        )
        state = Text(visible(status.state), style=_STYLES.get(status.state, ""))
        table.add_row(Text(status.table, style="bold"), state, *map(Text, texts))
    return table


def per_second(rate: float | None) -> str:
    """`-` if there was no batch; a small rate is not shown as zero."""
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{max(rate, 0.1):.1f}"


def _lag_text(status: Status) -> str:
    if status.batch is None:
        return ""
    return "unknown" if status.lag is None else f"{status.lag:,} {status.lag_of}".rstrip()


def _position_lines(statuses: Sequence[Status]) -> Iterable[RenderableType]:
    few = len(statuses) <= TABLES_IN_DETAIL
    shown_statuses = [
        status for status in statuses if (status.partition_lags or _last_batch(status)) and (few or status.lag)
    ]
    shown_statuses.sort(key=lambda status: -(status.lag or 0)) if not few else None
    if not shown_statuses:
        return
    yield Text("")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for status in shown_statuses[:BEHIND_SHOWN]:
        partitions = sorted(status.partition_lags, key=lambda partition: -(partition.lag or 0))
        more = f", and {len(partitions) - PARTITIONS_SHOWN} more" if len(partitions) > PARTITIONS_SHOWN else ""
        positions = ", ".join(map(_position_text, partitions[:PARTITIONS_SHOWN])) + more
        grid.add_row(Text(status.table), Text("; ".join(part for part in (_last_batch(status), positions) if part)))
    yield grid
    if len(shown_statuses) > BEHIND_SHOWN:
        yield Text(
            f"and {len(shown_statuses) - BEHIND_SHOWN} more tables that are behind: `--json` has all", style="dim"
        )


def _last_batch(status: Status) -> str:
    last = status.rates.last if status.rates is not None else None
    return f"last batch: {counted(last.rows, 'row')} in {last.seconds:.1f} s" if last is not None else ""


def _position_text(partition: PartitionLag) -> str:
    position = f"{visible(partition.topic)}-{partition.partition} at {partition.position}"
    return f"{position} ({partition.lag:,} behind)" if partition.lag else position


def _reasons(statuses: Sequence[Status]) -> Iterable[Text]:
    unknown = dict.fromkeys(status.lag_unknown for status in statuses if status.lag_unknown)
    texts = [Text.assemble(("lag unknown: ", "yellow"), visible_lines(reason or "")) for reason in unknown]
    for status in statuses:
        for message, hint, style in _table_reasons(status):
            line = Text.assemble((f"{status.table}: ", "bold"), (visible_lines(message), style))
            texts.append(line.append(f"\n  -> {visible_lines(hint)}" if hint else ""))
    if texts:
        yield Text("")
    yield from texts


def _table_reasons(status: Status) -> Iterable[tuple[str, str | None, str]]:
    """Message, hint and style."""
    for commit in status.foreign:
        operation = visible(commit.operation)
        message = f"version {commit.version} ({operation}): {commit.origin.value} of {commit.rows:,} rows"
        yield message, None, "yellow"
    if status.replaying:
        yield status.replaying, None, "yellow"
    if status.stale:
        message = f"stale: {status.stale.upstream} was rebuilt in its version {status.stale.version}"
        yield message, status.stale.hint, "yellow"
    if status.skipped_changes:
        yield status.skipped_changes, None, "yellow"
    if status.reason:
        yield status.reason, status.hint, _STYLES.get(status.state, "")


def ago(seconds: float | None) -> str:
    """`4 s ago`, `3 min ago`."""
    if seconds is None:
        return ""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def command(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per table: state, last batch, rows, position and lag.

    Read from the lake and the broker: no Spark is started and nothing is changed. A broker that is away is waited for a
    few seconds; then its lag is unknown and the rest is shown.
    """
    from penstock.operations.status import document, status

    plan, table_plans, store = load_tables(directory, tables)
    statuses = status(plan, table_plans, store)
    if as_json:
        print_json({"project": plan.name, "tables": [document(table_status) for table_status in statuses]})
    else:
        print_view(status_view(statuses), piped=160)
