"""What `checkpoints show` says of one checkpoint: what it is, what a start would do with it, and its last batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.checkpoints_view import bytes_text, in_step, size_text
from penstock.cli.visible import visible
from penstock.engine.protocol.beside import KEPT
from penstock.engine.protocol.fates import BATCHES, UNMET
from penstock.ops.checkpoints.batches import Batch
from penstock.ops.checkpoints.outlook import Outlook
from penstock.ops.checkpoints.shown import Shown
from penstock.ops.checkpoints.words import at

_DOES = {
    "make the table": ("makes the table:", "green"),
    "go on": ("goes on", "green"),
    "rebuild": ("rebuilds", "yellow"),
    "open a generation": ("opens a generation:", "yellow"),
    "wait": ("waits, and tries again:", "yellow"),
    "refuse": ("is refused:", "bold red"),
}


def show_view(found: Shown) -> RenderableType:
    title = Text(found.seen.table.name, style="bold")
    parts: list[RenderableType] = [title, _facts(found)]
    if found.batches:
        parts += ["", _batches(found)]
    if found.seen.found is not None:
        parts += ["", Text(f"planned and not committed: {_numbers(found.open)}", style="" if found.open else "dim")]
    if found.operators:
        parts += ["", _state(found)]
    return Group(*parts)


def _facts(found: Shown) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim", min_width=10)
    grid.add_column(overflow="fold")
    for label, content in _told(found):
        grid.add_row(label, content if isinstance(content, Text) else Text(content))
    return Padding(grid, (0, 0, 0, 2))


def _told(found: Shown) -> Iterator[tuple[str, str | Text]]:
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


def _growth(found: Shown) -> str:
    weight = found.weight
    if weight.per_batch is None or weight.grows_to is None:
        return ""
    state = f"; {bytes_text(weight.state.bytes)} of it state" if weight.state.files else ""
    grown = "" if weight.batches >= KEPT else f", so it grows to {bytes_text(weight.grows_to)}"
    beside = " without the state" if weight.state.files else ""
    return f"{state}; {bytes_text(weight.per_batch)} a batch, of which the last {KEPT} are kept{grown}{beside}"


def _outlook(one: Outlook) -> Text:
    said, style = _DOES[one.does]
    text = Text.assemble((said, style), f" {visible(one.why)}")
    if one.unknown:
        text.append(f"; not known: {one.unknown}", style="yellow")
    return text.append(f"\n-> {one.hint}" if one.hint else "")


def _batches(found: Shown) -> Table:
    definition = found.seen.table.definition
    pinned, counted = any(one.pins for one in found.batches), any(one.fates for one in found.batches)
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
            *[Text(_fates(one.fates))] * counted,
        )
    return grid


def _numbers(batches: Sequence[int]) -> str:
    if not batches:
        return "none"
    return f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"


def _read(one: Batch) -> str:
    if one.number == 0 and not one.read:
        return f"begins at {at(one.after)}"
    return "; ".join(one.read) or (f"up to {at(one.after)}" if one.after else "")


def _pins(one: Batch, definition: str) -> str:
    if one.pins is None:
        return ""
    parts = [] if one.pins.definition == definition else [visible(f"definition {one.pins.definition}")]
    parts += [visible(f"{name} at version {version}") for name, version in one.pins.lookups.items()]
    if one.pins.watermark is not None and one.pins.watermark.now is not None:
        parts.append(f"watermark {_time(one.pins.watermark.now // 1000)}")
    return ", ".join(parts) or "today's definition"


def _fates(fates: Mapping[str, int]) -> str:
    told = {name: count for name, count in fates.items() if count and name != BATCHES}
    return visible(", ".join(f"{count:,} {_fate(name)}" for name, count in told.items()))


def _fate(name: str) -> str:
    return f"{name.removeprefix(UNMET)} not met" if name.startswith(UNMET) else name


def _state(found: Shown) -> RenderableType:
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
