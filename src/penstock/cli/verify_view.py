"""What `verify` shows: one line per table if all is well, and each wrong offset by its place if not."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.engine.protocol.position import Range
from penstock.ops.verify.chain import Accepted
from penstock.ops.verify.compare import Doubled
from penstock.ops.verify.conserved import Conserved
from penstock.ops.verify.report import Partition, Report

SHOWN = 10
"""Ranges of a kind that are spelled out; `--json` has all."""


def report_view(report: Report) -> RenderableType:
    lines = [*_wrong(report), *_said(report)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim", min_width=12)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(label, text)
    return Group(_head(report), Padding(grid, (0, 0, 0, 2))) if lines else _head(report)


def _head(report: Report) -> Text:
    name = (f"{report.table}  ", "bold")
    if report.verdict == "not created":
        return Text.assemble(name, ("not created yet", "yellow"), f": {report.hint}")
    if report.verdict == "complete":
        said = _balance(report.conserved) if report.conserved else _once(report)
        return Text.assemble(name, ("complete", "bold green"), f": {report.rows:,} rows, {said}")
    style, said = ("bold red", "NOT complete") if report.verdict == "incomplete" else ("bold yellow", "unverifiable")
    return Text.assemble(name, (said, style), f": {report.rows:,} rows" if report.version is not None else "")


def _balance(one: Conserved) -> str:
    """`1,000 read = 980 written + 15 in quarantine + 5 duplicates`."""
    made = f" + {one.reshaped:,} made by its stages" if one.reshaped > 0 else ""
    parts = [f"{one.written:,} written"]
    parts += [f"{one.rejected:,} in quarantine"] if one.rejected else []
    parts += [f"{one.duplicates:,} duplicates"] if one.duplicates else []
    parts += [f"{one.superseded:,} superseded"] if one.superseded else []
    parts += [f"{one.dropped:,} dropped"] if one.dropped else []
    parts += [f"{one.forgotten:,} forgotten"] if one.forgotten else []
    parts += [f"{-one.reshaped:,} left out or joined by its stages"] if one.reshaped < 0 else []
    said = f"{one.read:,} read{made} = {' + '.join(parts)}"
    return f"{said}; {one.conflicts:,} contradicted another of their sequence" if one.conflicts else said


def _once(report: Report) -> str:
    if report.chain is not None and not report.partitions:
        return f"{_count(report.chain.batches, 'batch')} in an unbroken chain".replace("batchs", "batches")
    topics: dict[str, list[int]] = {}
    for one in report.partitions:
        if one.expected:
            topics.setdefault(one.topic, []).append(one.partition)
    if not topics:
        return "nothing was read yet"
    often = "as often as it was read" if any(accepted.again for accepted in _accepted(report)) else "once"
    if len(topics) > 4:
        return f"every offset of {len(topics)} topics ({sum(map(len, topics.values()))} partitions) {often}"
    return f"every offset of {', '.join(f'{topic} {_numbers(parts)}' for topic, parts in topics.items())} {often}"


def _numbers(partitions: list[int]) -> str:
    """`0..3`, or `0, 2, 5`."""
    if len(partitions) > 1 and partitions == list(range(partitions[0], partitions[-1] + 1)):
        return f"{partitions[0]}..{partitions[-1]}"
    return ", ".join(map(str, partitions))


def _wrong(report: Report) -> Iterable[tuple[str, Text | str]]:
    for problem in report.problems:
        yield "problem", Text(problem, style="red")
    for broken in report.chain.broken if report.chain else ():
        yield "chain", Text(broken, style="red")
    parts = report.partitions
    yield from _ranges("missing", "red", [(one, span) for one in parts for span in one.lost.first(SHOWN + 1)], parts)
    yield from _times("doubled", [(one, doubled) for one in parts for doubled in one.doubled])
    yield from _times("too few", [(one, short) for one in parts for short in one.short])
    yield from _ranges(
        "unexpected", "red", [(one, span) for one in parts for span in one.unexpected.first(SHOWN + 1)], parts
    )
    if report.without:
        yield "unexpected", Text(f"{report.without:,} rows without topic, partition or offset", style="red")
    yield from _ranges(
        "unverifiable", "yellow", [(one, span) for one in parts for span in one.unverifiable.first(SHOWN + 1)], parts
    )
    for reason in dict.fromkeys(reason for one in parts for reason in one.reasons):
        yield "", Text(reason, style="dim")
    for doubt in report.doubts:
        yield "unverifiable", Text(doubt, style="yellow")
    if report.hint and report.verdict != "not created":
        yield "", Text(f"-> {report.hint}", style="dim")


def _ranges(
    label: str, style: str, found: list[tuple[Partition, tuple[int, int]]], parts: list[Partition]
) -> Iterable[tuple[str, Text]]:
    if not found:
        return
    kinds = {
        "missing": [one.lost for one in parts],
        "unexpected": [one.unexpected for one in parts],
        "unverifiable": [one.unverifiable for one in parts],
    }[label]
    offsets, spans = sum(spans.size for spans in kinds), sum(len(spans) for spans in kinds)
    unit = {"missing": "record", "unexpected": "offset", "unverifiable": "offset"}[label]
    listed = [str(Range(one.topic, one.partition, *span)) for one, span in found[:SHOWN]]
    yield label, Text(f"{_count(offsets, unit)}: {', '.join(listed)}{_more(spans)}", style=style)


def _times(label: str, found: list[tuple[Partition, Doubled]]) -> Iterable[tuple[str, Text]]:
    if not found:
        return
    listed = [
        f"{Range(one.topic, one.partition, d.start, d.end)} {d.times} times"
        + (f" instead of {d.expected}" if d.expected > 1 else "")
        for one, d in found[:SHOWN]
    ]
    offsets = sum(d.end - d.start for _, d in found)
    yield label, Text(f"{_count(offsets, 'offset')}: {', '.join(listed)}{_more(len(found))}", style="red")


def _said(report: Report) -> Iterable[tuple[str, Text | str]]:
    if report.version is None:
        return
    known = f"batch {report.generation}.{report.batch}, version {report.version}"
    behind = report.behind
    standing = report.broker_problem or (
        "position unknown to the broker" if behind is None else f"{_count(behind, report.unit)} not landed yet"
    )
    yield "up to", Text(f"{known}; {standing}", style="dim")
    empty = sum(one.empty.size for one in report.partitions)
    if empty:
        text = f"{_count(empty, 'offset')} without a record: transaction markers, aborted transactions or compaction"
        yield "Kafka's own", Text(text, style="dim")
    for accepted in _accepted(report):
        yield "accepted", Text(_accepted_text(accepted), style="dim")
    for note in report.notes[:SHOWN]:
        yield "note", Text(note, style="dim")
    if len(report.notes) > SHOWN:
        yield "note", Text(f"and {len(report.notes) - SHOWN:,} more: `--json` has all", style="dim")


def _accepted(report: Report) -> list[Accepted]:
    return report.chain.accepted if report.chain else []


def _accepted_text(one: Accepted) -> str:
    parts = [
        _listed("skipped", one.skipped),
        _listed("read again", one.again),
        f"no longer read: {', '.join(one.dropped)}" if one.dropped else "",
        f"made again: {', '.join(one.remade)}" if one.remade else "",
    ]
    what = "; ".join(filter(None, parts))
    note = f" ({one.note})" if one.note else ""
    return f"generation {one.generation}, version {one.version}{note}" + (f": {what}" if what else "")


def _listed(label: str, ranges: tuple[Range, ...]) -> str:
    return f"{label} {', '.join(map(str, ranges[:SHOWN]))}{_more(len(ranges))}" if ranges else ""


def _more(spans: int) -> str:
    return f" and {spans - SHOWN:,} more ranges" if spans > SHOWN else ""


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
