"""What `checkpoints list` and `checkpoints heal` show. What a stranger may have written passes `visible` first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.visible import visible
from penstock.engine.protocol.beside import KEPT
from penstock.engine.store import Size
from penstock.ops.checkpoints.heal import Healing
from penstock.ops.checkpoints.listed import Standing
from penstock.ops.checkpoints.look import Look
from penstock.ops.checkpoints.weight import Leftover
from penstock.ops.checkpoints.words import at

LEFTOVERS_SHOWN = 8


def list_view(found: Sequence[Standing], strangers: Sequence[Leftover], system: str) -> RenderableType:
    """`system` is where Penstock keeps its own files."""
    if not found:
        return Text("the project has no tables")
    left = [*(one for standing in found for one in standing.left), *strangers]
    place = Text(f"in {system}/checkpoints/<table>/<generation>", style="dim")
    return Group(_rows(found), place, *_reasons(found), *_leftovers(left))


def _rows(found: Sequence[Standing]) -> Table:
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


def in_step(seen: Look) -> Text:
    if seen.refusal is not None:
        return Text("refused", style="bold red")
    if seen.tail is None:
        return Text("not created", style="dim")
    return Text("yes", style="green") if seen.why is None else Text("no", style="yellow")


def _reasons(found: Sequence[Standing]) -> Iterator[Text]:
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
