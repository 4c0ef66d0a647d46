from __future__ import annotations

import io

import pytest
from rich.console import Console

from penstock.cli.run import RunView
from penstock.ledger.head import Verdict
from penstock.ledger.row_counts import DUPLICATES, READ, REJECTED
from penstock.ledger.writer import Written
from penstock.runtime.context import Result

NAMES = ["bronze.orders", "silver.orders"]


def written(batch: int, rows: int, **row_counts: int) -> Written:
    return Written(batch, rows, Verdict.WRITE, batch, 0, (), row_counts)


def shown(view: RunView) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=200)
    console.print(view)
    return [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_the_live_view_shows_quarantine_and_who_is_behind_once_that_is_known() -> None:
    view = RunView(Console(file=io.StringIO()), NAMES)
    view.batch("bronze.orders", written(1, 1200), 0.5)
    assert shown(view)[0] == ["table", "state", "batch", "rows", "in/s", "proc/s", "last", "batch"]
    view.batch("silver.orders", written(1, 1180, **{REJECTED: 15, DUPLICATES: 5}), 0.5)
    view.set_lag({"bronze.orders": "310 records", "silver.orders": "0"})
    head, bronze, silver = shown(view)
    assert head[4:6] == ["quarantined", "duplicates"] and head[-1] == "behind"
    assert bronze[-2:] == ["310", "records"] and silver[3:6] == ["1,180", "15", "5"] and silver[-1] == "0"


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    console = Console(file=io.StringIO(), width=200)
    view = RunView(console, NAMES, lines_every=0.0)
    view.set_lag({"bronze.orders": "310 records", "silver.orders": "0"})
    view.batch("silver.orders", written(1, 1180, **{REJECTED: 15}), 0.5)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    behind, landed = "bronze.orders 0 rows (310 records behind)", "silver.orders 1,180 rows (15 quarantined, "
    assert said == f"{behind}, {landed}2,360 rows/s processed)\n"


def test_the_rate_begins_with_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.cli import run

    view = RunView(Console(file=io.StringIO()), NAMES)
    now = [100.0]
    monkeypatch.setattr(run.time, "monotonic", lambda: now[0])
    view.batch("bronze.orders", written(1, 0), 1.0)
    now[0] = 200.0
    view.batch("bronze.orders", written(2, 1000), 2.0)
    assert shown(view)[1][4:6] == ["500", "500"]
    now[0] = 208.0
    view.batch("bronze.orders", written(3, 900, **{READ: 1000}), 3.0)
    assert shown(view)[1][4:6] == ["200", "400"], "per second of time, and per second of batches"
    found = view.document(Result({}, {}))["tables"]["bronze.orders"]
    assert (found["input_rows_per_second"], found["processed_rows_per_second"]) == (200.0, 400.0)
    assert (found["window_seconds"], found["last_batch_seconds"]) == (10.0, 3.0)
