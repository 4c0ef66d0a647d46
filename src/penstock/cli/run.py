"""`penstock run`: a line for each event that a person should know of and, on a terminal, a live row per table."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.console import (
    error_text,
    fold,
    left,
    plain_table,
    print_json,
    right,
    text_console,
    visible,
    visible_lines,
)
from penstock.cli.options import AsJson, Directory, Tables, duration, load_plan
from penstock.cli.status import per_second
from penstock.errors import error_document
from penstock.ledger.row_counts import CONFLICTS, NOT_WRITTEN, READ, REJECTED, UNMET, add_counts

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.errors import PenstockError
    from penstock.ledger.entry import RowCounts
    from penstock.ledger.writer import Written
    from penstock.runtime.context import Outcome, Result
    from penstock.runtime.signals import StopSignals


LINES_EVERY = 30.0
"""Seconds between two lines of progress without a terminal."""
ROWS_SHOWN = 30


@dataclass
class _RunRow:
    state: str = "starting"
    batch: int = 0
    batches: int = 0
    rows: int = 0
    read: int = 0
    """Rows read, including those that were not written."""
    seconds: float = 0.0
    """Of the last batch."""
    busy: float = 0.0
    """Seconds of all batches."""
    first: float = 0.0
    """When the first batch with rows began."""
    last: float = 0.0
    """When the last batch ended."""
    row_counts: RowCounts = field(default_factory=dict)
    """What became of the rows that were read and not written."""
    behind: str = ""
    """How much is not read yet, as text."""

    @property
    def window(self) -> float:
        """Seconds from the first batch with rows to the end of the last."""
        return max(0.001, self.last - self.first) if self.read else 0.0

    @property
    def input_rate(self) -> float:
        """Rows read per second of the window."""
        return self.read / self.window if self.read else 0.0

    @property
    def processed_rate(self) -> float | None:
        """Rows read per second of batch time."""
        return self.read / max(0.001, self.busy) if self.read else None


_OUTCOMES = {**NOT_WRITTEN, REJECTED: "quarantined", CONFLICTS: "contradicting"}


def _shown_outcomes(rows: Iterable[_RunRow]) -> dict[str, str]:
    """Only outcomes that occurred: a run that only lands topics has none."""
    run_rows = list(rows)
    return {name: label for name, label in _OUTCOMES.items() if any(row.row_counts.get(name) for row in run_rows)}


def _counts(row: _RunRow, row_counts: Mapping[str, str]) -> list[str]:
    return [f"{row.row_counts[name]:,}" if row.row_counts.get(name) else "" for name in row_counts]


def _rates(row: _RunRow) -> list[str]:
    return [per_second(row.input_rate), per_second(row.processed_rate)]


def _line(name: str, row: _RunRow) -> str:
    notes = [f"{row.row_counts[name]:,} {label}" for name, label in _OUTCOMES.items() if row.row_counts.get(name)]
    notes += [f"{per_second(row.processed_rate)} rows/s processed"] if row.read else []
    notes += [f"{row.behind} behind"] if row.behind not in ("", "0") else []
    return f"{name} {row.rows:,} rows" + (f" ({', '.join(notes)})" if notes else "")


class RunView:
    """A listener; used as a context manager around the run."""

    def __init__(self, console: Console, tables: Sequence[str], *, lines_every: float = LINES_EVERY) -> None:
        self._console = console
        self._lines_every = lines_every
        self._rows = {name: _RunRow() for name in tables}
        self._lock = threading.Lock()
        self._live = Live(self, console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._last_line = time.monotonic()

    def __enter__(self) -> RunView:
        if self._live is not None:
            self._live.__enter__()
        else:
            self._console.print("starting Spark …")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def __rich__(self) -> Table:
        with self._lock:
            row_counts = _shown_outcomes(self._rows.values())
            has_lag = any(row.behind for row in self._rows.values())
            titles = ["table", "state", "batch", "rows", *row_counts.values(), "in/s", "proc/s", "last batch"]
            table = Table(*titles, *(["behind"] if has_lag else []), box=None, pad_edge=False)
            for name, row in list(self._rows.items())[:ROWS_SHOWN]:
                batch_time = f"{row.seconds:.2f} s" if row.batches else ""
                cells = [name, row.state, str(row.batch), f"{row.rows:,}", *_counts(row, row_counts), *_rates(row)]
                table.add_row(*map(Text, [*cells, batch_time, *([row.behind] if has_lag else [])]))
        return table

    def restart(self) -> None:
        """Another run of the same tables begins; their numbers so far still count."""
        with self._lock:
            for row in self._rows.values():
                row.state = "starting"

    def set_lag(self, tables: Mapping[str, str]) -> None:
        """Sets how much each table has not read yet, as text; called by whoever asks the broker and the logs."""
        with self._lock:
            for name, words in tables.items():
                self._rows[name].behind = words

    def message(self, table: str, message: str) -> None:
        self._print(Text(f"{table}: " if table else "", style="bold") + Text(visible_lines(message)))

    def batch(self, table: str, written: Written, seconds: float) -> None:
        with self._lock:
            row = self._rows[table]
            row.last = time.monotonic()
            if row.read == 0:
                row.first = row.last - seconds
            row.state, row.batch, row.seconds = "running", written.batch, seconds
            row.batches += 1
            row.rows += written.rows
            if read := written.row_counts.get(READ) or written.rows:
                row.read, row.busy = row.read + read, row.busy + seconds
            row.row_counts = add_counts(row.row_counts, written.row_counts)
            due = self._live is None and time.monotonic() - self._last_line > self._lines_every
            if due:
                self._last_line = time.monotonic()
                line = ", ".join(_line(name, row) for name, row in list(self._rows.items())[:8])
        if due:
            self._print(Text(line))

    def failed(self, table: str, error: PenstockError) -> None:
        if not table:
            self._print(error_text(error))
            return
        with self._lock:
            self._rows[table].state = "failed"
        self._print(error_text(error, "failed", table))

    def ended(self, table: str, outcome: Outcome) -> None:
        with self._lock:
            self._rows[table].state = outcome

    def summary(self, result: Result) -> None:
        row_counts = _shown_outcomes(self._rows.values())
        numbers = right("batches", "written", *row_counts.values(), "in/s", "proc/s")
        table = plain_table(*fold("table"), *left("outcome"), *numbers)
        for name, row in self._rows.items():
            style = "red" if name in result.errors else ""
            outcome = Text(result.outcomes.get(name, "stopped"), style=style)
            rates = _rates(row) if row.read else ["", ""]
            cells = (str(row.batches), f"{row.rows:,}", *_counts(row, row_counts), *rates)
            table.add_row(Text(name), outcome, *map(Text, cells))
        self._console.print(table)
        for name, row in self._rows.items():
            unmet = [
                f"{key.removeprefix(UNMET)} {n:,}" for key, n in row.row_counts.items() if key.startswith(UNMET) and n
            ]
            if unmet:
                message = visible(f"rows that did not meet {', '.join(unmet)}")
                self._print(Text(f"{name}: ", style="bold") + Text(message))

    def document(self, result: Result) -> dict[str, Any]:
        tables = {}
        for name, row in self._rows.items():
            tables[name] = {
                "outcome": result.outcomes.get(name),
                "batches": row.batches,
                "rows": row.rows,
                "fates": dict(row.row_counts),
                "input_rows_per_second": round(row.input_rate, 1),
                "processed_rows_per_second": None if row.processed_rate is None else round(row.processed_rate, 1),
                "window_seconds": round(row.window, 1),
                "last_batch_seconds": round(row.seconds, 3) if row.batches else None,
                "error": error_document(result.errors.get(name)),
            }
        return {"tables": tables, "ok": not result.errors}

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


def command(
    tables: Tables = None,
    once: Annotated[bool, typer.Option("--once", help="Land what is there now, then end: for a scheduler.")] = False,
    directory: Directory = None,
    as_json: AsJson = False,
    spark_logs: Annotated[
        bool, typer.Option("--spark-logs", help="Show Spark's own log here, not in .penstock/logs.")
    ] = False,
    stop_timeout: Annotated[
        str,
        typer.Option(
            "--stop-timeout",
            metavar="DURATION",
            help="How long a stop by Ctrl-C or SIGTERM may take. Batches that are not finished by then are abandoned: "
            "the next start repeats them.",
        ),
    ] = "20s",
) -> None:
    """Run the tables: until stopped, or --once up to what is there now.

    Ctrl-C and SIGTERM end it after the batches in flight, but within --stop-timeout; a second one ends it at once. A
    table that fails leaves the others running; the exit code is 3 if any failed.
    """
    from penstock.runtime.signals import StopNow, StoppedAtStart, StopSignals

    try:
        with StopSignals() as signals:
            signals.timeout = duration("--stop-timeout", stop_timeout)
            _run(tables or [], once, directory, as_json, spark_logs, signals)
    except (StoppedAtStart, KeyboardInterrupt):
        _stopped_at_start(tables or [], directory, as_json)
    except StopNow as stop:
        _exit(128 + stop.number)


def _run(
    tables: list[str], once: bool, directory: Path | None, as_json: bool, spark_logs: bool, signals: StopSignals
) -> None:
    from penstock.plan.build import select_tables
    from penstock.runtime.runner import run

    plan = load_plan(directory)
    table_plans = select_tables(plan, tables)
    with RunView(text_console(as_json), [table.name for table in table_plans]) as view:
        result = run(plan, tables, view, once=once, show_logs=spark_logs, signals=signals)
    if as_json:
        print_json(view.document(result))
    else:
        view.summary(result)
    if result.unfinished:
        _exit(result.exit_code)
    raise typer.Exit(result.exit_code)


def _stopped_at_start(tables: list[str], directory: Path | None, as_json: bool) -> None:
    """This is a normal stop and not a failure; the document is that of a run that did nothing."""
    text_console(as_json).print("stopped while Spark was starting: no table had begun, nothing was written")
    if as_json:
        from penstock.plan.build import select_tables
        from penstock.runtime.context import Result

        names = [table.name for table in select_tables(load_plan(directory), tables)]
        print_json(RunView(text_console(True), names).document(Result(dict.fromkeys(names, "stopped"), {})))
    _exit(0)


def _exit(code: int) -> None:
    """Ends the process without waiting for threads that wait for a JVM."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)
