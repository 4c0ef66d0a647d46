"""Windows that appear once, when they are closed: each as it was then.

A row that came too late is in the source and not in its window. So windows are computed from the source as of now, and
those that differ once more, each as of the version that the batch which closed it had read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampNTZType

from penstock.engine.aggregate.groups import END, computed, group_names, source_at
from penstock.engine.delta.version import parse
from penstock.engine.protocol.entry import Entry, Watermark
from penstock.engine.times import micros
from penstock.errors import PenstockError
from penstock.ops.verify.again.around import Around, Comparison, answer
from penstock.ops.verify.again.content import Content
from penstock.ops.verify.again.held import Sides, hold, judged
from penstock.ops.verify.again.sample import Sample
from penstock.ops.verify.check import COLLECTED, Check, Differing


def _micros(end: str, marks: Watermark) -> str:
    return micros(end, TimestampNTZType()) if marks.local else f"unix_micros(CAST({end} AS TIMESTAMP))"


@dataclass
class _Again:
    """What the windows came to that differ from the source of now."""

    wrong: int = 0
    stale: int = 0
    unknown: int = 0
    differences: list[Differing] = field(default_factory=list)
    why: dict[str, None] = field(default_factory=dict)

    def cannot(self, windows: int, why: str) -> None:
        self.unknown += windows
        self.why[why] = None


def check_windows(around: Around, content: Content, check: Check, there: DataFrame, loose: list[str]) -> Check:
    plan, entry = around.table.aggregate, content.entry
    assert plan is not None and entry is not None
    now = _marks(entry).now
    expected = computed(source_at(around.spark, around.source, parse(entry.after[0]).read_up_to), plan)
    expected = expected.where("false" if now is None else f"{_micros(END, _marks(entry))} <= {now}L")
    check.remarks.append(_closed(now))
    sides = Sides(there, [expected], group_names(plan), list(plan.metrics), loose)
    sample = around.sample(sides, check.of)
    first = hold(sides, sample)
    if not first.differing:
        return answer(around, check, Comparison(first, sample), replace(content, excuses=[]), loose)
    again = _as_they_were_closed(around, content, sides, sample)
    held = replace(first, differing=again.wrong, differences=tuple(again.differences[:COLLECTED]))
    check = answer(around, check, Comparison(held, sample), replace(content, excuses=[]), loose)
    told = first.differing - again.wrong - again.unknown - again.stale
    if told > 0:
        late = "1 window is as its" if told == 1 else f"{told:,} windows are as their"
        check.remarks.append(f"{late} source was at the close; rows that came later are in quarantine")
    if again.unknown or again.stale:
        check.remarks += again.why
        if check.outcome == "same":
            check.outcome = "unverifiable" if again.unknown else "stale"
            check.said += f", but for {again.unknown + again.stale:,} that cannot be judged"
    return check


def _as_they_were_closed(around: Around, content: Content, sides: Sides, sample: Sample) -> _Again:
    again = _Again()
    end = f"{_micros(f'k{list(sides.keys).index(END)}', _marks(content.made[0]))} AS end"
    found = judged(sides, sample).where("wrong").selectExpr(end).groupBy("end").count().collect()
    by_entry: dict[int, int] = {}
    for row in found:
        number = _closed_by(content.made, row["end"])
        if number is not None:
            by_entry[number] = by_entry.get(number, 0) + int(row["count"])
        elif _beyond(content, row["end"]):
            by_entry[-1] = by_entry.get(-1, 0) + int(row["count"])
        else:
            again.cannot(int(row["count"]), "the batches that closed the oldest windows are no longer in the log")
    for number, windows in by_entry.items():
        _judge(around, content, sides, sample, again, number, windows)
    return again


def _judge(
    around: Around, content: Content, sides: Sides, sample: Sample, again: _Again, number: int, windows: int
) -> None:
    """The windows of one batch; -1: those that no batch has closed, which should not be there."""
    plan, newest = around.table.aggregate, content.made[0]
    assert plan is not None
    entry = newest if number < 0 else content.made[number]
    marks, version = _marks(entry), parse(entry.after[0]).read_up_to
    if number < 0:
        within = f"{_micros(END, marks)} > {marks.now}L" if marks.now is not None else "true"
        should = sides.should[0].limit(0)
    else:
        within = f"{_micros(END, marks)} <= {marks.now}L"
        within += f" AND {_micros(END, marks)} > {marks.closed}L" if marks.closed is not None else ""
        should = computed(source_at(around.spark, around.source, version), plan).where(within)
    try:
        with around.reading(version):
            held = hold(replace(sides, there=sides.there.where(within), should=[should]), sample)
    except PenstockError as error:
        again.cannot(windows, f"windows closed by batch {entry.generation}.{entry.batch}: {error.message}")
        return
    if held.differing and entry.pins.definition != around.table.definition:
        again.stale += held.differing
        again.why[f"batch {entry.generation}.{entry.batch} closed windows by another definition"] = None
        return
    again.wrong += held.differing
    again.differences += held.differences


def _closed_by(made: list[Entry], end: int | None) -> int | None:
    for number, entry in enumerate(made):
        marks = _marks(entry)
        if end is None or marks.now is None or end > marks.now:
            continue
        if marks.closed is None or end > marks.closed:
            return number
    return None


def _beyond(content: Content, end: int | None) -> bool:
    """No batch can have closed it: its end is later than the watermark, or every batch is known."""
    now = _marks(content.made[0]).now
    return end is None or now is None or end > now or content.from_start


def _marks(entry: Entry) -> Watermark:
    return entry.pins.watermark or Watermark()


def _closed(now: int | None) -> str:
    return "only closed windows, each as it was when it was closed" if now is not None else "no window is closed yet"
