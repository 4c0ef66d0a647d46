"""`penstock dlq`: list, show and redrive rejected rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.console import (
    left,
    out,
    plain_table,
    print_json,
    print_view,
    right,
    shorten,
    text_console,
    visible,
    visible_lines,
)
from penstock.cli.options import AsJson, Directory, DryRun, TableName, Tables, Yes, load_plan
from penstock.cli.session import steps_view, verb_session
from penstock.cli.status import ago
from penstock.operations.quarantine_rows import Payload, tables_with_quarantine
from penstock.spec.quantity import counted
from penstock.storage.delta_rows import FarTime, micros_of
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.quarantine_rows import QuarantineCounts, RejectedRow
    from penstock.operations.redrive import RedrivePlan, RedriveResult
    from penstock.storage.delta_rows import Time

# What `dlq` prints. Everything that came from a record passes `visible` first.


KINDS_SHOWN = 5
"""Kinds shown for each reason."""
_SAMPLE, _KEY, _VALUE, _BYTES = 100, 80, 240, 32


def quarantines_view(quarantines: Sequence[QuarantineCounts]) -> RenderableType:
    if not quarantines:
        return Text("no table of the project has a quarantine: nothing in their definitions rejects a row")
    parts: list[RenderableType] = []
    for counts in quarantines:
        parts += [*([""] if parts else []), *_quarantine_parts(counts)]
    return Group(*parts)


def _quarantine_parts(counts: QuarantineCounts) -> Iterator[RenderableType]:
    title = Text.assemble((counts.quarantine, "bold"), "  ")
    if counts.problem is not None:
        yield title + Text(visible_lines(counts.problem), style="bold red")
        if counts.hint:
            yield Text(f"  -> {visible_lines(counts.hint)}")
        return
    if not counts.rows:
        yield title + Text("empty" if counts.exists else "not made yet: no row was rejected", style="green")
        return
    share = f", {_percent(counts.share)} of {counts.read:,} rows read" if counts.share is not None else ""
    yield title + Text(f"{counted(counts.rows, 'row')}{share}")
    yield _kinds(counts)
    if counts.rows_ahead:
        warning = (
            f"  {counts.rows_ahead:,} rows are of batches that are not in {counts.table}: a replay is being made, or "
        )
        yield Text(f"{warning}the table was put back", style="yellow")


def _kinds(counts: QuarantineCounts) -> Table:
    grid = plain_table(
        *left("  reason"),
        *right("rows"),
        Column(Text("about"), no_wrap=True, max_width=30),
        *right("of them", "first seen", "last seen"),
        Column(Text("one of them"), no_wrap=True, ratio=1, min_width=12),
    )
    grid.padding, grid.expand = (0, 2, 0, 0), True
    now = datetime.now(UTC)
    for reason, rows in counts.reasons.items():
        kinds = [kind for kind in counts.kinds if kind.reason == reason]
        head = (f"  {visible(reason) or 'none'}", f"{rows:,}")
        for kind in kinds[:KINDS_SHOWN]:
            count = f"{kind.rows:,}" if kind.rows != rows else ""
            cells = (*head, visible(kind.about), count, _age(kind.first, now), _age(kind.last, now))
            grid.add_row(*map(Text, cells), Text(_sample(kind.sample), style="dim"))
            head = ("", "")
        remaining = rows - sum(kind.rows for kind in kinds[:KINDS_SHOWN])
        if remaining:
            grid.add_row(*map(Text, head), Text("more: `--json` has them", style="dim"), Text(f"{remaining:,}"))
    return grid


def _age(timestamp: Time | None, now: datetime) -> str:
    return "" if timestamp is None else ago((micros_of(now) - micros_of(timestamp)) / 1_000_000)


def _sample(row: RejectedRow | None) -> str:
    if row is None:
        return ""
    return row_location(row) if row.value is None else _payload(row.value, _SAMPLE)


def rows_view(table: str, rows: Sequence[RejectedRow], total: int, *, full: bool) -> Iterator[Text]:
    if not rows:
        yield Text.assemble((table, "bold"), ": no such row in its quarantine")
        return
    more = f"{len(rows):,} of {total:,}" if len(rows) < total else f"{total:,}"
    yield Text.assemble((table, "bold"), f": {more} rejected row{'s' * (total != 1)}, the newest first")
    for row in rows:
        yield Text("")
        yield from _row(row, full=full)


def _row(row: RejectedRow, *, full: bool) -> Iterator[Text]:
    yield Text.assemble((row_location(row), "bold"), "  ", (visible(row.reason or "no reason"), "red"))
    if row.detail:
        yield _fact("detail", visible(row.detail))
    yield _fact("rejected", f"{_time(row.rejected_at)} UTC, in batch {row.generation}.{row.batch}")
    if row.kafka_timestamp is not None:
        yield _fact("in Kafka", f"{_time(row.kafka_timestamp)} UTC")
    if row.key is not None:
        yield _fact("key", _payload(row.key, None if full else _KEY))
    yield _fact("value", "null" if row.value is None else _payload(row.value, None if full else _VALUE))
    if row.headers:
        limit = None if full else _KEY
        yield _fact("headers", ", ".join(f"{visible(name)}: {_header(value, limit)}" for name, value in row.headers))


def _fact(name: str, text: str) -> Text:
    return Text.assemble((f"  {name:<9} ", "dim"), text)


def row_location(row: RejectedRow) -> str:
    """`orders-2 offset 1042`, `in/a.json row 7`, `version 12 (deleted)`."""
    source = row.source or {}
    if source.get("topic") is not None:
        return f"{visible(str(source['topic']))}-{source.get('partition')} offset {source.get('offset')}"
    if source.get("file") is not None:
        number = "" if source.get("row") is None else f" row {source['row']}"
        return f"{visible(str(source['file']))}{number}"
    if source.get("version") is not None:
        return f"version {source['version']}{' (deleted)' if source.get('deleted') else ''}"
    return "no coordinates"


def _payload(payload: Payload, limit: int | None) -> str:
    if payload.text == "":
        return '""'
    if payload.text is not None:
        complete = limit is None or (len(payload.text) <= limit and len(payload.text.encode()) == payload.size)
        text = visible(payload.text if limit is None else payload.text[:limit])
        return text if complete else f"{shorten(text, limit or 0).rstrip('…')}… ({payload.size:,} bytes)"
    data = payload.data or b""
    if limit is None or len(data) <= _BYTES:
        return f"0x{data.hex()}" + ("" if payload.size == len(data) else f"… ({payload.size:,} bytes)")
    return f"0x{data[:_BYTES].hex()}… ({payload.size:,} bytes)"


def _header(value: bytes | None, limit: int | None) -> str:
    if value is None:
        return "null"
    try:
        return _payload(Payload(value.decode(), None, len(value)), limit)
    except UnicodeDecodeError:
        return _payload(Payload(None, value, len(value)), limit)


def _percent(share: float | None) -> str:
    percent = 100 * (share or 0)
    return f"{percent:.1f}%" if percent >= 0.1 else f"{percent:.2g}%"


def _time(timestamp: Time | None) -> str:
    if timestamp is None:
        return "?"
    utc = (
        timestamp.text
        if isinstance(timestamp, FarTime)
        else timestamp.replace(tzinfo=UTC).isoformat(timespec="microseconds")
    )
    return utc.partition(".")[0].replace("T", " ")


def render_redrive_plan(redrive_plan: RedrivePlan) -> RenderableType:
    rows = f": {sum(redrive_plan.rows.values()):,} rejected rows are run again"
    return Group(Text.assemble((redrive_plan.table.name, "bold"), rows), steps_view(redrive_plan.steps))


def render_redrive_result(result: RedriveResult) -> Text:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(result.reasons.items()))
    return Text(
        f"  {result.rows:,} rows: {result.landed:,} landed, {result.left:,} left the quarantine, "
        f"{result.rows - result.left:,} stay" + (f" ({visible(reasons)})" if reasons else "")
    )


group = typer.Typer(help="List, show and rerun rejected rows.", no_args_is_help=True)
MAX_ROWS_SHOWN = 10_000
"""The most rows shown at once; for more, read the quarantine: it is a Delta table like any other."""


@group.command("redrive")
def redrive_command(
    table: TableName,
    reason: Annotated[str | None, typer.Option("--reason", help="Only rows with this error_reason.")] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Only rows that meet a condition: error_detail LIKE 'amount%'."),
    ] = None,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run rejected rows again with the table's current definition.

    Those that pass land in the table, once, and leave the quarantine; what reads the table sees them as new rows. The
    others stay, with their new reason. Works beside a running table; killed anywhere, the next redrive finishes it.
    """
    from penstock.operations.redrive import plan_redrive, redrivable_table, run_redrive

    plan = load_plan(directory)
    table_plan, console = redrivable_table(plan, open_store(plan), table), text_console(as_json)
    answer: dict[str, Any] = {"table": table, "done": False}
    with verb_session(plan, console, table) as session:
        session.tell(table, "reading its quarantine")
        redrive_plan = plan_redrive(session.spark, table_plan, reason, where)
        console.print(render_redrive_plan(redrive_plan), soft_wrap=True)
        answer |= {"rows": dict(redrive_plan.rows), "steps": [step.describe() for step in redrive_plan.steps]}
        if redrive_plan.steps and not dry_run:
            session.ask(yes)
            session.tell(table, "running rejected rows again")
            results = run_redrive(session.spark, plan, redrive_plan)
            for result in results:
                console.print(render_redrive_result(result), soft_wrap=True)
            answer |= {"done": True, "redrives": [asdict(result) for result in results]}
    if as_json:
        print_json(answer)


@group.callback()
def _group() -> None:
    pass


@group.command("list")
def list_(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per quarantine: its rows by reason and by what the reason is about, when they came, and one of each.

    No Spark is started and nothing is changed. Exit code 3 if a quarantine cannot be read.
    """
    from penstock.operations.quarantine_rows import count_all, count_document

    plan = load_plan(directory)
    store = open_store(plan)
    quarantines = count_all(tables_with_quarantine(plan, store, tables or []), store)
    if as_json:
        print_json({"project": plan.name, "tables": [count_document(counts) for counts in quarantines]})
    else:
        print_view(quarantines_view(quarantines), piped=200)
    if any(counts.problem for counts in quarantines):
        raise typer.Exit(3)


@group.command("show")
def show(
    table: TableName,
    reason: Annotated[str | None, typer.Option("--reason", help="Only this error_reason.")] = None,
    detail: Annotated[
        str | None, typer.Option("--detail", metavar="TEXT", help="Only with this in the detail: a field, a check.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Rejected then or later: an ISO time, or 2h ago as 2h."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Rejected before then.")] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="G.N", help="Of this batch: 1.12, or 12 of any generation.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="From this topic.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, max=2**31 - 1, help="From this one.")] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", metavar="N[-M]", help="At this offset, or from N to M.")
    ] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="NAME", help="From this file, as it is listed.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MAX_ROWS_SHOWN, help="At most this many rows.")
    ] = 20,
    full: Annotated[bool, typer.Option("--full", help="Keys and values in their whole length.")] = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """The rejected rows themselves, the newest first: where each came from, why it was rejected, and what it was.

    Values are shortened, unless with --full or --json; what a terminal would obey is shown as an escape, and bytes that
    are no text as hex, in JSON as base64.
    """
    from penstock.operations.quarantine_rows import (
        RejectFilter,
        count_rows,
        open_quarantine,
        read_batch,
        read_offsets,
        read_rows,
        read_time,
        row_document,
    )

    generation, number = read_batch(batch)
    row_filter = RejectFilter(
        reason,
        detail,
        read_time("--since", since),
        read_time("--until", until),
        generation,
        number,
        topic,
        partition,
        read_offsets(offset),
        file,
    )
    plan = load_plan(directory)
    store = open_store(plan)
    (table_plan,) = tables_with_quarantine(plan, store, [table])
    quarantine = open_quarantine(table_plan, store)
    total = count_rows(quarantine, row_filter) if quarantine is not None else 0
    rows = list(read_rows(quarantine, row_filter, limit, whole=full or as_json)) if quarantine is not None else []
    if as_json:
        name = quarantine.name if quarantine is not None else None
        print_json(
            {"table": table_plan.name, "quarantine": name, "rows": total, "shown": [row_document(row) for row in rows]}
        )
        return
    for line in rows_view(table_plan.name, rows, total, full=full):
        out.print(line, soft_wrap=True)
