"""`penstock checkpoints`: inspect, repair or reset checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.console import visible
from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_plan
from penstock.cli.session import confirm, running, steps_view
from penstock.ledger.checkpoint import KEPT
from penstock.ledger.position import VERSIONS, describe_position
from penstock.ledger.row_counts import BATCHES, UNMET
from penstock.operations.checkpoint_state import at
from penstock.storage.stores import Size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.checkpoint_state import CheckpointBatch, CheckpointLook, Leftover
    from penstock.operations.checkpoints import CheckpointDetails, CheckpointSummary
    from penstock.operations.heal import Healing, StartForecast
    from penstock.operations.reset import ResetPlan

# What `checkpoints list` and `checkpoints heal` show. What a stranger may have written passes `visible` first.


LEFTOVERS_SHOWN = 8


def list_view(found: Sequence[CheckpointSummary], strangers: Sequence[Leftover], system: str) -> RenderableType:
    """`system` is where Penstock keeps its own files."""
    if not found:
        return Text("the project has no tables")
    left = [*(one for standing in found for one in standing.left), *strangers]
    place = Text(f"in {system}/checkpoints/<table>/<generation>", style="dim")
    return Group(_rows(found), place, *_reasons(found), *_leftovers(left))


def _rows(found: Sequence[CheckpointSummary]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(Text("table"), overflow="fold")
    for title in ("generation", "ledger", "planned", "committed"):
        grid.add_column(Text(title), justify="right", no_wrap=True)
    grid.add_column(Text("in step"), no_wrap=True)
    grid.add_column(Text("state"), justify="right", no_wrap=True)
    for title in ("size", "files", "per batch", "kept"):
        grid.add_column(Text(title), justify="right", no_wrap=True)
    for standing in found:
        seen, weight = standing.seen, standing.weight
        entry, stateful = seen.entry, seen.table.stream is not None
        grid.add_row(
            Text(seen.table.name, style="bold"),
            *(
                Text("" if number is None else str(number))
                for number in (entry and entry.generation, entry and entry.batch, seen.planned, seen.committed)
            ),
            in_step(seen),
            Text(bytes_text(weight.state.bytes) if stateful and entry is not None else ""),
            Text(bytes_text(weight.size.bytes) if entry is not None else ""),
            Text(f"{weight.size.files:,}" if entry is not None else ""),
            Text("" if weight.per_batch is None else bytes_text(weight.per_batch)),
            Text(f"{weight.batches} of {KEPT}" if weight.batches else ""),
        )
    return grid


def in_step(seen: CheckpointLook) -> Text:
    if seen.refusal is not None:
        return Text("refused", style="bold red")
    if seen.tail is None:
        return Text("not created", style="dim")
    return Text("yes", style="green") if seen.why is None else Text("no", style="yellow")


def _reasons(found: Sequence[CheckpointSummary]) -> Iterator[Text]:
    texts = []
    for seen in (standing.seen for standing in found):
        name = (f"{seen.table.name}: ", "bold")
        if seen.refusal is not None:
            hint = f"\n  -> {seen.refusal.hint}" if seen.refusal.hint else ""
            texts.append(Text.assemble(name, (visible(seen.refusal.message), "red"), hint))
        elif seen.why is not None:
            heal = "" if seen.table.stream is not None else f", or now by `penstock checkpoints heal {seen.table.name}`"
            texts.append(Text.assemble(name, (visible(seen.why), "yellow"), f"\n  -> the next start rebuilds it{heal}"))
    if texts:
        yield Text("")
    yield from texts


def _leftovers(left: Sequence[Leftover]) -> Iterator[Text]:
    if not left:
        return
    total = sum((one.size for one in left), Size())
    folders = f"{len(left)} folder{'s' * (len(left) != 1)}"
    yield Text("")
    yield Text(f"left over, no start looks at them: {folders}, {size_text(total)}", style="dim")
    for one in left[:LEFTOVERS_SHOWN]:
        yield Text(f"  {one.table}  {one.what}, {size_text(one.size)}: {one.folder}", style="dim")
    if len(left) > LEFTOVERS_SHOWN:
        yield Text(f"  and {len(left) - LEFTOVERS_SHOWN} more: `--json` has all", style="dim")


def healing_view(table: str, planned: Healing | None) -> Iterator[Text]:
    """What a heal would do."""
    name = (table, "bold")
    if planned is None:
        yield Text.assemble(name, " is not created yet: there is nothing to heal")
        return
    batch = f"batch {planned.entry.generation}.{planned.entry.batch}"
    if planned.why is None:
        yield Text.assemble(name, f": its checkpoint is in step with the ledger, at {batch}: nothing to do")
        return
    yield Text.assemble(name, f": its checkpoint has to be rebuilt: {visible(planned.why)}")
    yield Text(f"  replaced: {planned.folder}")
    yield Text(f"  made from the ledger at {batch}: {at(planned.entry.after)}")


def size_text(size: Size) -> str:
    return f"{size.files:,} file{'s' * (size.files != 1)}, {bytes_text(size.bytes)}"


def bytes_text(count: int) -> str:
    """1,532 -> `1.5 kB`."""
    if count < 1000:
        return f"{count} B"
    number = float(count)
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 999.5:
            return f"{number:.1f} {unit}" if number < 99.95 else f"{number:.0f} {unit}"
    return f"{number / 1000:,.1f} TB"


# What `checkpoints show` says of one checkpoint: what it is, what a start would do with it, and its last batches.


_DOES = {
    "make the table": ("makes the table:", "green"),
    "go on": ("goes on", "green"),
    "rebuild": ("rebuilds", "yellow"),
    "open a generation": ("opens a generation:", "yellow"),
    "wait": ("waits, and tries again:", "yellow"),
    "refuse": ("is refused:", "bold red"),
}


def show_view(found: CheckpointDetails) -> RenderableType:
    title = Text(found.seen.table.name, style="bold")
    parts: list[RenderableType] = [title, _facts(found)]
    if found.batches:
        parts += ["", _batches(found)]
    if found.seen.found is not None:
        parts += ["", Text(f"planned and not committed: {_numbers(found.open)}", style="" if found.open else "dim")]
    if found.operators:
        parts += ["", _state(found)]
    return Group(*parts)


def _facts(found: CheckpointDetails) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim", min_width=10)
    grid.add_column(overflow="fold")
    for label, content in _told(found):
        grid.add_row(label, content if isinstance(content, Text) else Text(content))
    return Padding(grid, (0, 0, 0, 2))


def _told(found: CheckpointDetails) -> Iterator[tuple[str, str | Text]]:
    seen, weight, entry = found.seen, found.weight, found.seen.entry
    yield "folder", seen.folder or f"{seen.table.checkpoints}/<generation>"
    yield "reads", found.reads
    if entry is not None:
        yield "ledger", f"ends with {entry.kind} {entry.generation}.{entry.batch} at {at(entry.after)}"
    if seen.found is not None:
        yield "query id", visible(found.query or "missing")
        marker = seen.found.marker
        yield (
            "belongs to",
            visible(f"{marker.get('table')}, ledger {marker.get('ledger')}, generation {marker.get('generation')}")
            if marker is not None
            else "nobody knows: its marker file is missing",
        )
        yield "size", size_text(weight.size) + _growth(found)
    if entry is not None:
        step = in_step(seen)
        if seen.why is not None:
            step = Text.assemble(step, f": {visible(seen.why)}")
        yield "in step", step
    yield "definition", f"{seen.table.definition}, {found.fits.said}"
    if found.process is not None:
        yield "runner", Text(f"process {found.process} works on the table now", style="green")
    yield "a start", _outlook(found.outlook)
    for one in found.left:
        yield "left over", f"{one.what}, {size_text(one.size)}: {one.folder}"


def _growth(found: CheckpointDetails) -> str:
    weight = found.weight
    if weight.per_batch is None or weight.grows_to is None:
        return ""
    state = f"; {bytes_text(weight.state.bytes)} of it state" if weight.state.files else ""
    grown = "" if weight.batches >= KEPT else f", so it grows to {bytes_text(weight.grows_to)}"
    beside = " without the state" if weight.state.files else ""
    return f"{state}; {bytes_text(weight.per_batch)} a batch, of which the last {KEPT} are kept{grown}{beside}"


def _outlook(one: StartForecast) -> Text:
    said, style = _DOES[one.does]
    text = Text.assemble((said, style), f" {visible(one.why)}")
    if one.unknown:
        text.append(f"; not known: {one.unknown}", style="yellow")
    return text.append(f"\n-> {one.hint}" if one.hint else "")


def _batches(found: CheckpointDetails) -> Table:
    definition = found.seen.table.definition
    pinned, counted = any(one.pins for one in found.batches), any(one.row_counts for one in found.batches)
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(Text("  batch"), justify="right", no_wrap=True)
    for title in ("planned (UTC)", "committed"):
        grid.add_column(Text(title), no_wrap=True)
    for title in ("reads", *["pins"] * pinned, *["what became of its rows"] * counted):
        grid.add_column(Text(title), overflow="fold")
    for one in found.batches:
        grid.add_row(
            Text(str(one.number)),
            Text("unreadable", style="red") if one.time_ms is None else Text(_time(one.time_ms)),
            Text("yes") if one.committed else Text("no", style="yellow"),
            Text(_read(one)),
            *[Text(_pins(one, definition))] * pinned,
            *[Text(_row_counts(one.row_counts))] * counted,
        )
    return grid


def _numbers(batches: Sequence[int]) -> str:
    if not batches:
        return "none"
    return f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"


def _read(one: CheckpointBatch) -> str:
    if one.number == 0 and not one.read:
        return f"begins at {at(one.after)}"
    return "; ".join(one.read) or (f"up to {at(one.after)}" if one.after else "")


def _pins(one: CheckpointBatch, definition: str) -> str:
    if one.pins is None:
        return ""
    parts = [] if one.pins.definition == definition else [visible(f"definition {one.pins.definition}")]
    parts += [visible(f"{name} at version {version}") for name, version in one.pins.lookups.items()]
    if one.pins.watermark is not None and one.pins.watermark.now is not None:
        parts.append(f"watermark {_time(one.pins.watermark.now // 1000)}")
    return ", ".join(parts) or "today's definition"


def _row_counts(row_counts: Mapping[str, int]) -> str:
    told = {name: count for name, count in row_counts.items() if count and name != BATCHES}
    return visible(", ".join(f"{count:,} {_fate(name)}" for name, count in told.items()))


def _fate(name: str) -> str:
    return f"{name.removeprefix(UNMET)} not met" if name.startswith(UNMET) else name


def _state(found: CheckpointDetails) -> RenderableType:
    lines = [Text("Spark's state", style="bold")]
    for one in found.operators:
        kept = f"versions {one.versions[0]} to {one.versions[1]}" if one.versions is not None else "no version"
        behind = f", {one.behind} of its partitions behind" if one.behind else ""
        partitions = f"{one.partitions} partition{'s' * (one.partitions != 1)}"
        named = f"operator {one.number}, {one.said}" + (f" ({one.name})" if one.name and one.name != one.said else "")
        lines.append(Text(f"  {named}: {partitions}, {kept}{behind}, {size_text(one.size)}"))
    return Group(*lines)


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # no time that a clock would give
        return str(timestamp_ms)


# What `checkpoints reset` would do.


def render_reset(planned: ResetPlan, readers: Sequence[str]) -> RenderableType:
    return Group(*_reset_lines(planned, readers), steps_view(planned.steps))


def _reset_lines(planned: ResetPlan, readers: Sequence[str]) -> Iterator[Text]:
    before = describe_position(planned.before) if planned.before else "no position"
    yield Text.assemble((planned.table.name, "bold"), f": {before} -> {describe_position(planned.after)}")
    for label, ranges in (("never read", planned.skipped), ("read again", planned.again)):
        if ranges:
            unit = "versions" if ranges[0].topic == VERSIONS else "offsets"
            count = sum(part.end - part.start for part in ranges)
            yield Text(f"  {label}: {count:,} {unit}: {', '.join(map(str, ranges))}")
    for topic in planned.dropped:
        yield Text(f"  no longer read: topic {topic}, which does not exist any more")
    if planned.starts_over:
        yield Text(f"  emptied: all rows of {planned.table.name}; made again from {', '.join(planned.starts_over)}")
        if readers:
            yield Text(f"  its rows reach {', '.join(readers)} once more: they keep those that they have read")


# `penstock checkpoints`.


group = typer.Typer(help="Inspect, repair or reset checkpoints.", no_args_is_help=True)


@group.callback()
def _group() -> None:
    pass


@group.command("list")
def list_(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per table: its checkpoint, whether it is in step with the ledger, how large it is and how it grows.

    No Spark is started and nothing is changed. Folders that are left over of earlier generations are listed too.
    """
    from penstock.operations.checkpoint_state import strangers
    from penstock.operations.checkpoints import list_document, standings
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    store = open_store(plan)
    found = standings(plan, choose(plan, tables or []), store)
    others = [] if tables else list(strangers(plan, store))
    if as_json:
        from penstock.cli.console import print_json
        from penstock.operations.checkpoints import leftover_document

        told = {"tables": [list_document(one) for one in found], "others": [leftover_document(one) for one in others]}
        print_json({"project": plan.name, **told})
        return
    from penstock.cli.console import print_view

    print_view(list_view(found, others, plan.system), piped=200)


@group.command("show")
def show_(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)],
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=1000, help="So many of its last batches.")] = 5,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """What is in a checkpoint, in words; what a start would do now; and whether today's definition fits it.

    No Spark is started and nothing is changed. The table's source is asked whether it still has what comes next; a
    broker that is away is waited for a few seconds.
    """
    from penstock.operations.checkpoints import show, show_document
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    (chosen,) = choose(plan, [table])
    found = show(plan, chosen, open_store(plan), last)
    if as_json:
        from penstock.cli.console import print_json

        print_json(show_document(found))
        return
    from penstock.cli.console import print_view

    print_view(show_view(found), piped=200)


@group.command("heal")
def heal(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)],
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a table's checkpoint from its ledger now. A start does the same by itself.

    No Spark is started, and no row is read again or skipped: the last batch is planned over its recorded range, and
    recognised as written. Refused while a runner works on the table.
    """
    from penstock.cli.console import people, print_json
    from penstock.operations.checkpoints import healing_document
    from penstock.operations.heal import plan_heal, run_heal
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    (chosen,) = choose(plan, [table])
    store = open_store(plan)
    planned = plan_heal(plan, chosen, store)
    console, done = people(as_json), False
    for line in healing_view(table, planned):
        console.print(line, soft_wrap=True)
    if planned is not None and planned.why is not None and not dry_run:
        if not yes:
            confirm()
        planned = run_heal(plan, chosen, store)
        done = planned is not None and planned.why is not None
        console.print("  done: `penstock run` continues from there" if done else "  another process has done it")
    if as_json:
        print_json({**(healing_document(planned) if planned is not None else {"table": table}), "done": done})


@group.command("reset")
def reset(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="ledger: where the table ended; what Kafka no longer has is skipped, a topic made again is read from "
            "its start. version:N: where the table stood at that version. earliest or latest: what the broker holds. "
            "starting: as the project file says. Or offsets as JSON, of some partitions or all: "
            '\'{"orders": {"0": 120}}\'. Of a table that reads another: earliest reads all of that again, source:N '
            "begins at its version N. A table with `stream` knows only starting, which empties it first.",
        ),
    ],
    topic: Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; the others stay.")] = None,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a table's position, after showing which records that skips or reads again.

    The way on after a refusal: records gone from Kafka, a topic made again, a table restored by hand.
    """
    from penstock.cli.console import people, print_json
    from penstock.operations.reset import document, plan_reset, run_reset
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan, console = load_plan(directory), people(as_json)
    (chosen,) = choose(plan, [table])
    planned = plan_reset(chosen, open_store(plan), to, tuple(topic or ()))
    readers = [reader.name for reader in plan.tables if table in reader.upstream]
    console.print(render_reset(planned, readers), soft_wrap=True)
    if not dry_run:
        if not yes:
            confirm()
        with running(plan, console, table) as session:
            entry = run_reset(session.spark, plan, planned).entry
        if missing := (entry.note or "").removeprefix(planned.note).lstrip("; "):
            console.print(f"  {missing}", style="yellow", soft_wrap=True, markup=False)
        console.print(f"  done: generation {entry.generation}. `penstock run` continues from there")
    if as_json:
        print_json({**document(planned), "done": not dry_run})
