"""`penstock status`: a row per table, then who is behind and where, then what went wrong and what to do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.options import AsJson, Directory, Tables, load_plan
from penstock.operations.status import CRASHED, NOT_CREATED, UNREADABLE
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.broker import PartitionLag
    from penstock.operations.status import Status

# What `status` shows: a row per table, then who is behind and where, then what went wrong and what to do.


PARTITIONS_SHOWN = 8
TABLES_IN_DETAIL = 5
"""Up to so many tables, each one's position is shown; of more, only of those that are behind."""
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


def status_view(found: Sequence[Status]) -> RenderableType:
    if not found:
        return Text("the project has no tables")
    return Group(_rows(found), *_places(found), *_reasons(found))


def _rows(found: Sequence[Status]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(Text("table"), overflow="fold")
    table.add_column(Text("state"), no_wrap=True)
    for title in ("batch", "written", "behind", "in/s", "proc/s", "last commit"):
        table.add_column(Text(title), justify="right", no_wrap=True)
    now = time.time() * 1000
    for one in found:
        texts = (
            "" if one.batch is None else f"{one.generation}.{one.batch}",
            f"{one.rows:,}" if one.batch is not None else "",
            _behind(one),
            "" if one.rates is None else per_second(one.rates.input_rows_per_second),
            "" if one.rates is None else per_second(one.rates.processed_rows_per_second),
            ago(one.age(now)),
        )
        # Text, not str: rich would look for markup in every cell, and load all names of emoji to do so.
        state = Text(one.state, style=_STYLES.get(one.state, ""))
        table.add_row(Text(one.table, style="bold"), state, *map(Text, texts))
    return table


def per_second(rate: float | None) -> str:
    """`-` where there was no batch; small rates are no zeros."""
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{max(rate, 0.1):.1f}"


def _behind(one: Status) -> str:
    if one.batch is None:
        return ""
    return "unknown" if one.lag is None else f"{one.lag:,} {one.lag_of}".rstrip()


def _places(found: Sequence[Status]) -> Iterable[RenderableType]:
    few = len(found) <= TABLES_IN_DETAIL
    chosen = [one for one in found if (one.places or _last_batch(one)) and (few or one.lag)]
    chosen.sort(key=lambda one: -(one.lag or 0)) if not few else None
    if not chosen:
        return
    yield Text("")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for one in chosen[:BEHIND_SHOWN]:
        places = sorted(one.places, key=lambda place: -(place.lag or 0))
        more = f", and {len(places) - PARTITIONS_SHOWN} more" if len(places) > PARTITIONS_SHOWN else ""
        at = ", ".join(map(_place, places[:PARTITIONS_SHOWN])) + more
        grid.add_row(Text(one.table), Text("; ".join(part for part in (_last_batch(one), at) if part)))
    yield grid
    if len(chosen) > BEHIND_SHOWN:
        yield Text(f"and {len(chosen) - BEHIND_SHOWN} more tables that are behind: `--json` has all", style="dim")


def _last_batch(one: Status) -> str:
    last = one.rates.last if one.rates is not None else None
    return f"last batch: {counted(last.rows, 'row')} in {last.seconds:.1f} s" if last is not None else ""


def _place(place: PartitionLag) -> str:
    at = f"{place.topic}-{place.partition} at {place.position}"
    return f"{at} ({place.lag:,} behind)" if place.lag else at


def _reasons(found: Sequence[Status]) -> Iterable[Text]:
    unknown = dict.fromkeys(one.lag_unknown for one in found if one.lag_unknown)
    texts = [Text.assemble(("lag unknown: ", "yellow"), reason or "") for reason in unknown]
    for one in found:
        for commit in one.foreign:
            what = f"version {commit.version} ({commit.operation}): {commit.origin.value} of {commit.rows:,} rows"
            texts.append(Text.assemble((f"{one.table}: ", "bold"), (what, "yellow")))
        if one.replaying:
            texts.append(Text.assemble((f"{one.table}: ", "bold"), (one.replaying, "yellow")))
        if one.stale:
            what = f"stale: {one.stale.upstream} was made anew in its version {one.stale.version}"
            said = Text.assemble((f"{one.table}: ", "bold"), (what, "yellow"))
            texts.append(said.append(f"\n  -> {one.stale.hint}"))
        if one.passed_over:
            texts.append(Text.assemble((f"{one.table}: ", "bold"), (one.passed_over, "yellow")))
        if one.reason:
            said = Text.assemble((f"{one.table}: ", "bold"), (one.reason, _STYLES.get(one.state, "")))
            texts.append(said.append(f"\n  -> {one.hint}" if one.hint else ""))
    if texts:
        yield Text("")
    yield from texts


def ago(seconds: float | None) -> str:
    """`4 s ago`, `3 min ago`."""
    if seconds is None:
        return ""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


# `penstock status`.


def command(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per table: state, last batch, rows, position and lag.

    Read from the lake and the broker: no Spark is started and nothing is changed. A broker that is away is waited for a
    few seconds; then its lag is unknown and the rest is shown.
    """
    from penstock.operations.status import document, status
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    found = status(plan, choose(plan, tables or []), open_store(plan))
    if as_json:
        from penstock.cli.console import print_json

        print_json({"project": plan.name, "tables": [document(one) for one in found]})
        return
    from penstock.cli.console import out

    if not out.is_terminal:  # piped, there is no width to keep to: a table stays on its line for grep
        out.width = 160
    out.print(status_view(found))
