"""`penstock generate`: realistic events into a topic."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.console import err, out, print_json
from penstock.cli.options import AsJson, Directory, load_plan, project_folder
from penstock.errors import BrokerAway, UsageError
from penstock.spec.base_model import did_you_mean
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from penstock.dev.generate import EventTopic, ProducedEvents
    from penstock.plan.model import Plan
    from penstock.plan.sources import Cluster


@contextmanager
def progress(title: str, number: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal. Yields the function that moves it."""
    if not shown or not err.is_terminal:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(title, total=number)
        yield lambda done: bar.update(task, completed=done)


def report_topic(topic: EventTopic, requested: int | None) -> None:
    """Says that the topic was created, or that it has another number of partitions than requested."""
    partitions = counted(topic.partitions, "partition")
    if topic.created:
        err.print(f"made the topic {topic.name} with {partitions}")
    elif requested is not None and topic.partitions != requested:
        err.print(f"the topic {topic.name} exists and has {partitions}, not {requested}: used as is")


def result_lines(kind: str, sent: ProducedEvents) -> list[str]:
    """The answer for people, line by line."""
    speed = f"{sent.rate:,.0f}/s, {sent.bytes / 1e6:,.1f} MB"
    lines = [f"{sent.count:,} {kind} in {sent.seconds:.1f} s ({speed}), all acknowledged"]
    width = max((len(label) for label in sent.labels), default=0)
    if set(sent.labels) - {"valid"}:
        lines += [f"  {label:<{width}}  {count:>12,}" for label, count in _sorted_labels(sent.labels)]
    lines += [f"  {sent.topic.name}-{partition} up to offset {offset:,}" for partition, offset in sent.offsets.items()]
    return lines


def document(kind: str, seed: int, start: datetime, requested: int | None, sent: ProducedEvents) -> dict[str, Any]:
    """The answer as JSON."""
    malformed = {
        label.partition(".")[2]: count for label, count in sent.labels.items() if label.startswith("malformed.")
    }
    return {
        "kind": kind,
        "topic": sent.topic.name,
        "partitions": sent.topic.partitions,
        "topic_created": sent.topic.created,
        "seed": seed,
        "start": start.isoformat(),
        "asked": requested,
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


def _sorted_labels(labels: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(labels.items(), key=lambda item: (item[0] != "valid", item[0].startswith("malformed"), item[0]))


DEFAULT_COUNT, DEFAULT_PARTITIONS = "10k", 4
INTERRUPTED = 3
"""Exit code of a run that was stopped before it had sent all requested events."""


def command(
    kind: Annotated[str, typer.Argument(help="orders, clicks, transactions, customers (changes) or sensors.")],
    topic: Annotated[str | None, typer.Option(help="The topic; made if it is missing.", show_default="KIND")] = None,
    count: Annotated[
        str | None, typer.Option(metavar="N", help="How many events, as in 50k.", show_default=DEFAULT_COUNT)
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="R/s", help="How fast, as in 500/s.", show_default="as fast as possible")
    ] = None,
    lasting: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long, at a rate, as in 1m.", show_default="until Ctrl-C"),
    ] = None,
    malformed: Annotated[str, typer.Option(metavar="SHARE", help="Broken in one of six ways, as in 1%.")] = "0%",
    late: Annotated[str, typer.Option(metavar="SHARE", help="A minute to three days late.")] = "0%",
    duplicates: Annotated[str, typer.Option(metavar="SHARE", help="Copies of earlier events.")] = "0%",
    seed: Annotated[int, typer.Option(help="Same seed, start and options: same keys and values.")] = 42,
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The first event's time.", show_default="so that the events end now"),
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Spread the event times over this, as in 7d.", show_default="ten per second"),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of the topic, if it is made.", show_default=str(DEFAULT_PARTITIONS)),
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The broker.", show_default="from the project file")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which cluster of the project file.", show_default="the only one")
    ] = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Send realistic, seeded events to a topic, with broken, late and repeated ones on request.

    Every event is acknowledged by the broker, or the exit code says that some were not.
    """
    from penstock.dev.generate import PACE, Faults, events, find_kind, produce
    from penstock.dev.generate import stream as read

    find_kind(kind)
    faults = Faults(
        malformed=read.share(malformed, "--malformed"),
        late=read.share(late, "--late"),
        duplicates=read.share(duplicates, "--duplicates"),
    )
    speed = None if rate is None else read.rate(rate, "--rate")
    event_count = _event_count(count, speed, lasting)
    pace = _pace(event_count, over) or speed or PACE
    start_time = _start_time(event_count, speed, pace) if start is None else read.moment(start, "--start")
    conf = _connection(bootstrap, cluster, directory, topic or kind)
    with (
        _stop_on_signals() as stop,
        progress(f"{kind} to {topic or kind}", event_count, shown=not as_json) as on_progress,
    ):
        sent = produce(
            conf,
            topic or kind,
            events(kind, event_count, seed=seed, start=start_time, pace=pace, faults=faults),
            partitions=DEFAULT_PARTITIONS if partitions is None else partitions,
            rate=speed,
            on_topic=lambda event_topic: report_topic(event_topic, partitions),
            on_progress=on_progress,
            stop=stop.is_set,
        )
    if as_json:
        print_json(document(kind, seed, start_time, event_count, sent))
    else:
        for line in result_lines(kind, sent):
            out.print(line)
    if sent.stopped and event_count is not None and sent.count < event_count:
        err.print(f"stopped after {sent.count:,} of {event_count:,} events")
        raise typer.Exit(INTERRUPTED)


def _event_count(count: str | None, speed: float | None, duration: str | None) -> int | None:
    """The number of events to send; None to send until stopped."""
    from penstock.dev.generate import stream as read

    if count is not None and duration is not None:
        raise UsageError("--count and --for both say when to end", hint="leave one of them out")
    if duration is not None:
        if speed is None:
            raise UsageError("--for needs --rate", hint="write for example --rate 500/s --for 1m")
        return max(1, round(speed * read.duration(duration, "--for")))
    if count is None and speed is not None:
        return None
    return read.count(DEFAULT_COUNT if count is None else count, "--count")


def _pace(event_count: int | None, over: str | None) -> float | None:
    from penstock.dev.generate import stream as read

    if over is None:
        return None
    if event_count is None:
        raise UsageError("--over needs to know how many events there are", hint="add --count or --for")
    return event_count / read.duration(over, "--over")


def _start_time(event_count: int | None, speed: float | None, pace: float) -> datetime:
    """Live events start now; past events end now, so that none is in the future."""
    now = datetime.now(UTC)
    return now if event_count is None or pace == speed else now - timedelta(seconds=event_count / pace)


def _connection(bootstrap: str | None, cluster: str | None, directory: Path | None, topic: str) -> str | dict[str, str]:
    """The broker of --bootstrap, else the project's with its security, else (without a project) the development one."""
    if bootstrap is not None:
        if cluster is not None:
            raise UsageError("--bootstrap and --cluster both name a broker", hint="leave one of them out")
        return bootstrap
    from penstock.spec.load import FILE

    folder = project_folder(directory)
    if cluster is None and folder == Path() and not (folder / FILE).exists():
        return _development_broker(FILE)
    from penstock.kafka.client import librdkafka

    return librdkafka(_cluster(load_plan(directory), cluster, topic))


def _cluster(plan: Plan, name: str | None, topic: str) -> Cluster:
    """The cluster with that name; without a name, the one that the topic is read from, or the only one."""
    from penstock.kafka.client import kafka_source

    topics = [table.topics for table in plan.tables if table.topics is not None]
    sources = [kafka_source(source) for source in topics if source.kind == "kafka"]
    clusters = {source.cluster.name: source.cluster for source in sources}
    if name is not None:
        if name not in clusters:
            raise UsageError(f"no table reads from a cluster called {name}", hint=did_you_mean(name, list(clusters)))
        return clusters[name]
    readers = {source.cluster.name for source in sources if topic in source.topics} or set(clusters)
    if len(readers) > 1:
        raise UsageError(
            f"which cluster? the project reads from {', '.join(sorted(readers))}",
            hint=f"add for example --cluster {min(readers)}",
        )
    return clusters[readers.pop()]


def _development_broker(file: str) -> str:
    from penstock.dev import standing_broker

    broker = standing_broker.running()
    if broker is None:
        raise BrokerAway(
            f"there is no {file} here and no development broker runs",
            hint="`penstock kafka start` runs one; or name a broker with --bootstrap, or a project with -C",
        )
    return broker.bootstrap


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM end the run after the events in flight; a second one ends it at once."""
    stop = threading.Event()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request_stop(number: int, _: Any) -> None:
        stop.set()
        signal.signal(number, handlers[signal.Signals(number)])

    for number in handlers:
        signal.signal(number, request_stop)
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
