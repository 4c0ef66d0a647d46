"""What `replay` shows: what it would do, how far it is, what has become of the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.engine.protocol.position import said
from penstock.ops.replay.difference import Difference, Sample
from penstock.ops.replay.dry_run import Outlook, dry_run
from penstock.ops.replay.dry_run import document as outlook_document
from penstock.ops.replay.model import Planned, document
from penstock.plan.model import Plan

_HOW = {
    "rebuilt": "holds rows made of the old ones: stale until it is made anew (--cascade)",
    "recomputed": "computes every group again with its next batch",
    "state": "rests on Spark's state: stale until `penstock checkpoints reset` makes it anew",
    "sent": "has sent the old rows: they cannot be taken back",
}
_SHOWN = 160


def planned_view(planned: Planned) -> RenderableType:
    return Group(*_lines(planned))


def _lines(planned: Planned) -> Iterator[Text]:
    yield Text.assemble((planned.table.name, "bold"), f": made anew from {planned.source}")
    yield Text(f"  now          {planned.rows:,} rows landed")
    if planned.moves:
        yield Text(f"  goes on at   {said(planned.after)}, no longer {said(planned.position)}")
    else:
        yield Text("  goes on at   where it is")
    if planned.owed:
        yield Text("  note         a replay of it was cut off: this one takes its place")
    if planned.running is not None:
        yield Text(f"  note         process {planned.running} runs it: its stream waits until the replay is done")
    if planned.outdated:
        yield Text("  note         that process has another definition of it: start it again after the replay")
    for topic, count in planned.lost.items():
        yield Text(
            f"  note         Kafka no longer has {count:,} offsets of {topic}: rows made of those stay as they are"
        )
    if planned.passed_over:
        yield Text(
            f"  note         {planned.passed_over}. A replay reads the table as it is after them: it has what they did"
        )
    if planned.cascade:
        yield Text(f"  with it      {', '.join(one.table.name for one in planned.cascade)}")
    for one in planned.stale:
        yield Text(f"  {one.table.name} {_HOW[one.how]}")
    for one in planned.readers:
        if one.how == "follows":
            yield Text(f"  {one.table.name} follows its changes: it gets the rows that go and those that come")


def replay_in_steps(plan: Plan, planned: Planned, console: Console, *, dry_run: bool) -> dict[str, Any]:
    from penstock.engine.session import logs_folder, spark_session
    from penstock.runtime.causes import explain

    try:
        with console.status("starting Spark …") as status, spark_session(plan) as spark:
            if dry_run:
                status.update(f"{planned.table.name}: comparing what is there with what would be …")
                return {**document(planned), "done": False, "difference": _compared(spark, plan, planned, console)}
            return {**document(planned), "done": True, "tables": _carried_out(spark, plan, planned, console, status)}
    except Exception as error:
        raise explain(error, planned.table.name, str(logs_folder(plan))) from error


def _compared(spark: Any, plan: Plan, planned: Planned, console: Console) -> dict[str, Any]:
    outlook = dry_run(spark, plan, planned)
    console.print(outlook_view(outlook))
    return outlook_document(outlook)


def _carried_out(spark: Any, plan: Plan, planned: Planned, console: Console, status: Any) -> list[dict[str, Any]]:
    from penstock.ops.replay.carry_out import carry_out

    done: list[dict[str, Any]] = []
    for table, filled in carry_out(spark, plan, planned, lambda name, what: status.update(f"{name}: {what} …")):
        rejected, kept = filled.fates.get("rejected", 0), filled.kept
        said = [f"{filled.rows:,} rows", *([f"{rejected:,} in quarantine"] if rejected else [])]
        said += [f"{kept:,} kept as they were"] if kept else []
        at = filled.tail.commit.version
        console.print(
            f"[bold]{table.name}[/bold]: {', '.join(said)}; version {at}, generation {filled.tail.entry.generation}"
        )
        done.append(
            {
                "table": table.name,
                "rows": filled.rows,
                "kept": kept,
                "version": at,
                "generation": filled.tail.entry.generation,
                "fates": dict(filled.fates),
            }
        )
    return done


def outlook_view(outlook: Outlook) -> RenderableType:
    rows = outlook.rows
    parts: list[RenderableType] = [Text(_summary(rows))]
    for label, names in rows.columns.items():
        if names:
            parts.append(Text(f"  {label} columns: {', '.join(names)}"))
    if rows.parts:
        parts.append(_by_partition(rows))
    if outlook.rejected_now or outlook.rejected_then:
        parts.append(_rejected(outlook))
    parts += [_sample(one) for one in rows.samples]
    return Group(*parts)


def _summary(rows: Difference) -> str:
    if rows.none:
        return f"  no difference: {rows.rows:,} rows"
    counted = f"{rows.added:,} rows added, {rows.removed:,} removed"
    if rows.by:
        return f"  {counted}, {rows.changed:,} changed (rows of the same {', '.join(rows.by)}): {rows.rows:,} rows then"
    return f"  {counted} (whole rows are compared: a changed one is one of each): {rows.rows:,} rows then"


def _by_partition(rows: Difference) -> Table:
    made = Table("partition", "added", "removed", "changed")
    for one in rows.parts:
        said = ", ".join(f"{name}={value}" for name, value in one.partition.items())
        made.add_row(Text(said), *(f"{count:,}" for count in (one.added, one.removed, one.changed)))
    return made


def _rejected(outlook: Outlook) -> Table:
    made = Table("quarantine", "now", "then")
    for reason in sorted({*outlook.rejected_now, *outlook.rejected_then}):
        now, then = outlook.rejected_now.get(reason, 0), outlook.rejected_then.get(reason, 0)
        made.add_row(Text(reason), f"{now:,}", f"{then:,}")
    return made


def _sample(one: Sample) -> Text:
    if one.kind != "changed" or one.now is None or one.then is None:
        return Text(f"  {one.kind}: {_short(one.then or one.now or {})}")
    differs = [name for name in one.then if one.now.get(name) != one.then.get(name)]
    said = ", ".join(f"{name}: {json.dumps(one.now.get(name))} -> {json.dumps(one.then.get(name))}" for name in differs)
    return Text(f"  changed: {_short({k: v for k, v in one.then.items() if k not in differs})}: {said}"[: 2 * _SHOWN])


def _short(row: dict[str, Any]) -> str:
    text = json.dumps(row)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
