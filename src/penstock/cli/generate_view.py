"""What `penstock generate` shows: progress while it sends, and what was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.console import err

if TYPE_CHECKING:
    from penstock.dev.generate import Sent, Topic


@contextmanager
def progress(title: str, number: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal. Gives the function that moves it."""
    if not shown or not err.is_terminal:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(title, total=number)
        yield lambda done: bar.update(task, completed=done)


def say_topic(topic: Topic, wanted: int | None) -> None:
    """Whoever asked for a number of partitions should hear that the topic has another."""
    if topic.created:
        err.print(f"made the topic {topic.name} with {_many(topic.partitions, 'partition')}")
    elif wanted is not None and topic.partitions != wanted:
        err.print(
            f"the topic {topic.name} exists and has {_many(topic.partitions, 'partition')}, not {wanted}: used as is"
        )


def report(kind: str, sent: Sent) -> list[str]:
    """The answer for people, line by line."""
    speed = f"{sent.rate:,.0f}/s, {sent.bytes / 1e6:,.1f} MB"
    lines = [f"{sent.count:,} {kind} in {sent.seconds:.1f} s ({speed}), all acknowledged"]
    width = max((len(label) for label in sent.labels), default=0)
    if set(sent.labels) - {"valid"}:
        lines += [f"  {label:<{width}}  {many:>12,}" for label, many in _in_order(sent.labels)]
    lines += [f"  {sent.topic.name}-{partition} up to offset {offset:,}" for partition, offset in sent.offsets.items()]
    return lines


def document(kind: str, seed: int, start: datetime, asked: int | None, sent: Sent) -> dict[str, Any]:
    """The answer as JSON."""
    malformed = {label.partition(".")[2]: many for label, many in sent.labels.items() if label.startswith("malformed.")}
    return {
        "kind": kind,
        "topic": sent.topic.name,
        "partitions": sent.topic.partitions,
        "topic_created": sent.topic.created,
        "seed": seed,
        "start": start.isoformat(),
        "asked": asked,
        "acknowledged": sent.count,
        "sent": {
            "valid": sent.labels.get("valid", 0),
            "late": sent.labels.get("late", 0),
            "duplicate": sent.labels.get("duplicate", 0),
            "malformed": malformed,
        },
        "bytes": sent.bytes,
        "seconds": round(sent.seconds, 3),
        "rate": round(sent.rate, 1),
        "offsets": {str(partition): offset for partition, offset in sent.offsets.items()},
        "stopped": sent.stopped,
    }


def _in_order(labels: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(labels.items(), key=lambda item: (item[0] != "valid", item[0].startswith("malformed"), item[0]))


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
