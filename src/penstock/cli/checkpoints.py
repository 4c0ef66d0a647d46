"""`penstock checkpoints`: inspect, repair or reset checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.console import (
    facts_view,
    fold,
    left,
    plain_table,
    print_json,
    print_view,
    right,
    text_console,
    visible,
    visible_lines,
)
from penstock.cli.options import AsJson, Directory, DryRun, TableName, Tables, Yes, load_table, load_tables
from penstock.cli.session import confirm, steps_view, verb_session
from penstock.ledger.checkpoint import BATCH_FILES_KEPT
from penstock.ledger.position import VERSIONS, describe_position
from penstock.ledger.row_counts import BATCHES, UNMET
from penstock.operations.checkpoint_state import describe_positions
from penstock.spec.quantity import counted, time_text
from penstock.storage.stores import Size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.checkpoint_state import CheckpointBatch, CheckpointInspection, Leftover
    from penstock.operations.checkpoints import CheckpointDetails, CheckpointSummary
    from penstock.operations.heal import Healing, StartForecast
    from penstock.operations.reset import ResetPlan

# `checkpoints list` and `checkpoints heal`. Text that others may have written passes `visible` first.


LEFTOVERS_SHOWN = 8


def list_view(summaries: Sequence[CheckpointSummary], orphans: Sequence[Leftover], system: str) -> RenderableType:
    """`orphans` belong to no table of the project; `system` is where Penstock keeps its own files."""
    if not summaries:
        return Text("the project has no tables")
    leftovers = [*(leftover for summary in summaries for leftover in summary.leftovers), *orphans]
    location = Text(f"in {system}/checkpoints/<table>/<generation>", style="dim")
    return Group(_rows(summaries), location, *_problems(summaries), *_leftover_lines(leftovers))


def _rows(summaries: Sequence[CheckpointSummary]) -> Table:
    grid = plain_table(
        *fold("table"),
        *right("generation", "ledger", "planned", "committed"),
        *left("in step"),
        *right("state", "size", "files", "per batch", "kept"),
    )
    for summary in summaries:
        checkpoint, size = summary.inspection, summary.size
        entry, stateful = checkpoint.entry, checkpoint.table.stream is not None
        numbers = (entry and entry.generation, entry and entry.batch, checkpoint.planned, checkpoint.committed)
        grid.add_row(
            Text(checkpoint.table.name, style="bold"),
            *(Text("" if number is None else str(number)) for number in numbers),
            format_in_step(checkpoint),
            Text(bytes_text(size.state.bytes) if stateful and entry is not None else ""),
            Text(bytes_text(size.total.bytes) if entry is not None else ""),
            Text(f"{size.total.files:,}" if entry is not None else ""),
            Text("" if size.per_batch is None else bytes_text(size.per_batch)),
            Text(f"{size.batches} of {BATCH_FILES_KEPT}" if size.batches else ""),
        )
    return grid


def format_in_step(checkpoint: CheckpointInspection) -> Text:
    if checkpoint.refusal is not None:
        return Text("refused", style="bold red")
    if checkpoint.head is None:
        return Text("not created", style="dim")
    return Text("yes", style="green") if checkpoint.why is None else Text("no", style="yellow")


def _problems(summaries: Sequence[CheckpointSummary]) -> Iterator[Text]:
    texts = []
    for checkpoint in (summary.inspection for summary in summaries):
        name = (f"{checkpoint.table.name}: ", "bold")
        if checkpoint.refusal is not None:
            hint = f"\n  -> {visible_lines(checkpoint.refusal.hint)}" if checkpoint.refusal.hint else ""
            texts.append(Text.assemble(name, (visible(checkpoint.refusal.message), "red"), hint))
        elif checkpoint.why is not None:
            hint = "\n  -> the next start rebuilds it"
            if checkpoint.table.stream is None:
                hint += f", or now by `penstock checkpoints heal {checkpoint.table.name}`"
            texts.append(Text.assemble(name, (visible(checkpoint.why), "yellow"), hint))
    if texts:
        yield Text("")
    yield from texts


def _leftover_lines(leftovers: Sequence[Leftover]) -> Iterator[Text]:
    if not leftovers:
        return
    total = sum((leftover.size for leftover in leftovers), Size())
    folders = counted(len(leftovers), "folder")
    yield Text("")
    yield Text(f"left over, no start looks at them: {folders}, {size_text(total)}", style="dim")
    for leftover in leftovers[:LEFTOVERS_SHOWN]:
        yield Text(f"  {visible(leftover.table)}  {_leftover_text(leftover)}", style="dim")
    if len(leftovers) > LEFTOVERS_SHOWN:
        yield Text(f"  and {len(leftovers) - LEFTOVERS_SHOWN} more: `--json` has all", style="dim")


def _leftover_text(leftover: Leftover) -> str:
    return visible(f"{leftover.description}, {size_text(leftover.size)}: {leftover.folder}")


def healing_view(table: str, healing: Healing | None) -> Iterator[Text]:
    """What a heal would do."""
    name = (table, "bold")
    if healing is None:
        yield Text.assemble(name, " is not created yet: there is nothing to heal")
        return
    batch = f"batch {healing.entry.generation}.{healing.entry.batch}"
    if healing.why is None:
        yield Text.assemble(name, f": its checkpoint is in step with the ledger, at {batch}: nothing to do")
        return
    yield Text.assemble(name, f": its checkpoint has to be rebuilt: {visible(healing.why)}")
    yield Text(f"  replaced: {healing.folder}")
    yield Text(f"  made from the ledger at {batch}: {visible(describe_positions(healing.entry.after))}")


def size_text(size: Size) -> str:
    return f"{counted(size.files, 'file')}, {bytes_text(size.bytes)}"


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


# `checkpoints show`: what one checkpoint is, what a start would do with it, and its last batches.


_FORECASTS = {
    "make the table": ("creates the table:", "green"),
    "go on": ("continues", "green"),
    "rebuild": ("rebuilds", "yellow"),
    "open a generation": ("opens a generation:", "yellow"),
    "wait": ("waits, and tries again:", "yellow"),
    "refuse": ("is refused:", "bold red"),
}


def show_view(details: CheckpointDetails) -> RenderableType:
    title = Text(details.inspection.table.name, style="bold")
    parts: list[RenderableType] = [title, facts_view(_facts(details))]
    if details.batches:
        parts += ["", _batches(details)]
    if details.inspection.checkpoint is not None:
        parts += ["", Text(f"planned and not committed: {_numbers(details.open)}", style="" if details.open else "dim")]
    if details.operators:
        parts += ["", _state(details)]
    return Group(*parts)


def _facts(details: CheckpointDetails) -> Iterator[tuple[str, str | Text]]:
    checkpoint, size, entry = details.inspection, details.size, details.inspection.entry
    yield "folder", checkpoint.folder or f"{checkpoint.table.checkpoints}/<generation>"
    yield "reads", details.reads
    if entry is not None:
        position = visible(describe_positions(entry.after))
        yield "ledger", f"ends with {entry.kind} {entry.generation}.{entry.batch} at {position}"
    if checkpoint.checkpoint is not None:
        yield "query id", visible(details.query or "missing")
        marker = checkpoint.checkpoint.marker
        yield (
            "belongs to",
            visible(f"{marker.get('table')}, ledger {marker.get('ledger')}, generation {marker.get('generation')}")
            if marker is not None
            else "unknown: its marker file is missing",
        )
        yield "size", size_text(size.total) + _growth(details)
    if entry is not None:
        in_step_text = format_in_step(checkpoint)
        if checkpoint.why is not None:
            in_step_text = Text.assemble(in_step_text, f": {visible(checkpoint.why)}")
        yield "in step", in_step_text
    yield "definition", f"{checkpoint.table.definition}, {details.drift.describe}"
    if details.process is not None:
        yield "runner", Text(f"process {details.process} works on the table now", style="green")
    yield "a start", _forecast_text(details.forecast)
    for leftover in details.leftovers:
        yield "left over", _leftover_text(leftover)


def _growth(details: CheckpointDetails) -> str:
    size = details.size
    if size.per_batch is None or size.grows_to is None:
        return ""
    state = f"; {bytes_text(size.state.bytes)} of it state" if size.state.files else ""
    growth = "" if size.batches >= BATCH_FILES_KEPT else f", so it grows to {bytes_text(size.grows_to)}"
    exception = " without the state" if size.state.files else ""
    return (
        f"{state}; {bytes_text(size.per_batch)} a batch, "
        f"of which the last {BATCH_FILES_KEPT} are kept{growth}{exception}"
    )


def _forecast_text(forecast: StartForecast) -> Text:
    words, style = _FORECASTS[forecast.does]
    text = Text.assemble((words, style), f" {visible(forecast.why)}")
    if forecast.unknown:
        text.append(f"; not known: {visible(forecast.unknown)}", style="yellow")
    return text.append(f"\n-> {visible_lines(forecast.hint)}" if forecast.hint else "")


def _batches(details: CheckpointDetails) -> Table:
    definition = details.inspection.table.definition
    has_pins = any(batch.pins for batch in details.batches)
    has_counts = any(batch.row_counts for batch in details.batches)
    long_titles = ("reads", *["pins"] * has_pins, *["what became of its rows"] * has_counts)
    grid = plain_table(*right("  batch"), *left("planned (UTC)", "committed"), *fold(*long_titles))
    for batch in details.batches:
        grid.add_row(
            Text(str(batch.number)),
            Text("unreadable", style="red") if batch.time_ms is None else Text(time_text(batch.time_ms)),
            Text("yes") if batch.committed else Text("no", style="yellow"),
            Text(visible(_describe_read(batch))),
            *[Text(_pins(batch, definition))] * has_pins,
            *[Text(_row_counts(batch.row_counts))] * has_counts,
        )
    return grid


def _numbers(batches: Sequence[int]) -> str:
    if not batches:
        return "none"
    return f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"


def _describe_read(batch: CheckpointBatch) -> str:
    if batch.number == 0 and not batch.read:
        return f"begins at {describe_positions(batch.after)}"
    return "; ".join(batch.read) or (f"up to {describe_positions(batch.after)}" if batch.after else "")


def _pins(batch: CheckpointBatch, definition: str) -> str:
    if batch.pins is None:
        return ""
    parts = [] if batch.pins.definition == definition else [visible(f"definition {batch.pins.definition}")]
    parts += [visible(f"{name} at version {version}") for name, version in batch.pins.lookups.items()]
    if batch.pins.watermark is not None and batch.pins.watermark.now is not None:
        parts.append(f"watermark {time_text(batch.pins.watermark.now // 1000)}")
    return ", ".join(parts) or "today's definition"


def _row_counts(row_counts: Mapping[str, int]) -> str:
    nonzero = {name: count for name, count in row_counts.items() if count and name != BATCHES}
    return visible(", ".join(f"{count:,} {_count_label(name)}" for name, count in nonzero.items()))


def _count_label(name: str) -> str:
    return f"{name.removeprefix(UNMET)} not met" if name.startswith(UNMET) else name


def _state(details: CheckpointDetails) -> RenderableType:
    lines = [Text("Spark's state", style="bold")]
    for operator in details.operators:
        span = operator.versions
        versions = f"versions {span[0]} to {span[1]}" if span is not None else "no version"
        behind = f", {operator.partitions_behind} of its partitions behind" if operator.partitions_behind else ""
        partitions = counted(operator.partitions, "partition")
        name = f" ({operator.name})" if operator.name and operator.name != operator.label else ""
        label = visible(f"operator {operator.number}, {operator.label}{name}")
        lines.append(Text(f"  {label}: {partitions}, {versions}{behind}, {size_text(operator.size)}"))
    return Group(*lines)


# `checkpoints reset`.


def render_reset(reset_plan: ResetPlan, readers: Sequence[str]) -> RenderableType:
    lines = (Text(visible(line)) for line in _reset_lines(reset_plan, readers))
    before = describe_position(reset_plan.before) if reset_plan.before else "no position"
    move = visible(f"{before} -> {describe_position(reset_plan.after)}")
    title = Text.assemble((reset_plan.table.name, "bold"), f": {move}")
    return Group(title, *lines, steps_view(reset_plan.steps))


def _reset_lines(reset_plan: ResetPlan, readers: Sequence[str]) -> Iterator[str]:
    for label, ranges in (("never read", reset_plan.skipped), ("read again", reset_plan.read_again)):
        if ranges:
            unit = "versions" if ranges[0].topic == VERSIONS else "offsets"
            count = sum(span.end - span.start for span in ranges)
            yield f"  {label}: {count:,} {unit}: {', '.join(map(str, ranges))}"
    for topic in reset_plan.dropped:
        yield f"  no longer read: topic {topic}, which does not exist any more"
    if reset_plan.starts_over:
        yield f"  emptied: all rows of {reset_plan.table.name}; rebuilt from {', '.join(reset_plan.starts_over)}"
        if readers:
            yield f"  its rows reach {', '.join(readers)} once more: they keep those that they have read"


# The commands of `penstock checkpoints`.


group = typer.Typer(help="Inspect, repair or reset checkpoints.", no_args_is_help=True)


@group.callback()
def _group() -> None:
    pass


@group.command("list")
def list_(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per table: its checkpoint, whether it is in step with the ledger, how large it is and how it grows.

    No Spark is started and nothing is changed. Folders that are left over of earlier generations are listed too.
    """
    from penstock.operations.checkpoint_state import unknown_table_leftovers
    from penstock.operations.checkpoints import checkpoint_summaries, leftover_document, summary_document

    plan, table_plans, store = load_tables(directory, tables)
    summaries = checkpoint_summaries(plan, table_plans, store)
    orphans = [] if tables else list(unknown_table_leftovers(plan, store))
    if as_json:
        documents = {
            "tables": [summary_document(summary) for summary in summaries],
            "others": [leftover_document(leftover) for leftover in orphans],
        }
        print_json({"project": plan.name, **documents})
    else:
        print_view(list_view(summaries, orphans, plan.system), piped=200)


@group.command("show")
def show_(
    table: TableName,
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=1000, help="This many of its last batches.")] = 5,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """What is in a checkpoint, in words; what a start would do now; and whether today's definition fits it.

    No Spark is started and nothing is changed. The table's source is asked whether it still has what comes next; a
    broker that is away is waited for a few seconds.
    """
    from penstock.operations.checkpoints import checkpoint_details, show_document

    plan, table_plan, store = load_table(directory, table)
    details = checkpoint_details(plan, table_plan, store, last)
    if as_json:
        print_json(show_document(details))
    else:
        print_view(show_view(details), piped=200)


@group.command("heal")
def heal(
    table: TableName,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a table's checkpoint from its ledger now. A start does the same by itself.

    No Spark is started, and no row is read again or skipped: the last batch is planned over its recorded range, and
    recognised as written. Refused while a runner works on the table.
    """
    from penstock.operations.checkpoints import healing_document
    from penstock.operations.heal import plan_heal, run_heal

    plan, table_plan, store = load_table(directory, table)
    healing = plan_heal(plan, table_plan, store)
    console, done = text_console(as_json), False
    for line in healing_view(table, healing):
        console.print(line, soft_wrap=True)
    if healing is not None and healing.why is not None and not dry_run:
        confirm(yes)
        healing = run_heal(plan, table_plan, store)
        done = healing is not None and healing.why is not None
        console.print("  done: `penstock run` continues from there" if done else "  another process has done it")
    if as_json:
        print_json({**(healing_document(healing) if healing is not None else {"table": table}), "done": done})


@group.command("reset")
def reset(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="ledger: where the table ended; what Kafka no longer has is skipped, a recreated topic is read from "
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

    The way on after a refusal: records gone from Kafka, a recreated topic, a table restored by hand.
    """
    from penstock.operations.reset import document, plan_reset, run_reset

    plan, table_plan, store = load_table(directory, table)
    console = text_console(as_json)
    reset_plan = plan_reset(table_plan, store, to, tuple(topic or ()))
    readers = [reader.name for reader in plan.tables if table in reader.upstream]
    console.print(render_reset(reset_plan, readers), soft_wrap=True)
    if not dry_run:
        confirm(yes)
        with verb_session(plan, console, table) as session:
            entry = run_reset(session.spark, plan, reset_plan).entry
        if further_note := (entry.note or "").removeprefix(reset_plan.note).lstrip("; "):
            console.print(Text(f"  {visible(further_note)}", style="yellow"), soft_wrap=True)
        console.print(f"  done: generation {entry.generation}. `penstock run` continues from there")
    if as_json:
        print_json({**document(reset_plan), "done": not dry_run})
