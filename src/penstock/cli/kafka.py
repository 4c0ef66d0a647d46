"""`penstock kafka`: a real broker for development."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import err, out, print_json
from penstock.cli.options import AsJson
from penstock.spec.quantity import counted

group = typer.Typer(help="A Kafka broker for development, on this machine only.", no_args_is_help=True)


@group.command()
def start(
    port: Annotated[int | None, typer.Option(help="Its port; 0 takes a free one.", show_default="9092")] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where it keeps its data.", show_default="~/.local/state/penstock/kafka/data"),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME[:PARTITIONS]", help="A topic to make. May be given often.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start it, and leave it running until `penstock kafka stop`."""
    from penstock.dev import standing_broker
    from penstock.dev.broker import parse_topic
    from penstock.spark.jars import broker_jars

    topics = [parse_topic(text) for text in topic or ()]
    broker_jars()  # before the spinner: the first fetch shows its own progress
    with err.status("starting the Kafka broker"):
        started = standing_broker.start(port, data, topics)
    broker = started.broker
    if as_json:
        state = {"already": started.was_running, "made": started.created_topics}
        print_json({**asdict(broker), "bootstrap": broker.bootstrap, **state})
        return
    runs = "already runs" if started.was_running else "runs"
    out.print(f"Kafka {runs} at {broker.bootstrap} (pid {broker.pid})", soft_wrap=True)
    out.print(f"  data  {broker.data}", soft_wrap=True)
    for requested in topics:
        made = requested.name in started.created_topics
        outcome = f"made, {counted(requested.partitions, 'partition')}" if made else "there already"
        out.print(f"  topic {requested.name}: {outcome}", soft_wrap=True)
    out.print("  stop it with: penstock kafka stop")


@group.command()
def stop(as_json: AsJson = False) -> None:
    """End the broker that `start` started. Its data stays."""
    from penstock.dev import standing_broker

    with err.status("stopping the Kafka broker"):
        broker = standing_broker.stop()
    if as_json:
        print_json({"stopped": asdict(broker) if broker else None})
    elif broker is None:
        err.print("no broker of ours runs")
    else:
        out.print(f"Kafka at {broker.bootstrap} (pid {broker.pid}) has ended", soft_wrap=True)


@group.command()
def status(as_json: AsJson = False) -> None:
    """Whether it runs, and its topics. Exit code 1 if it does not run."""
    from penstock.dev import standing_broker

    broker = standing_broker.running()
    if broker is None:
        if as_json:
            print_json({"running": False})
        else:
            err.print("no broker of ours runs; start one with: penstock kafka start")
        raise typer.Exit(1)

    from penstock.dev.broker import count_topics

    topics = count_topics(broker.bootstrap)
    if as_json:
        details = {**asdict(broker), "bootstrap": broker.bootstrap}
        print_json({"running": True, **details, "topics": [asdict(topic) for topic in topics]})
        return

    from rich.table import Column, Table

    out.print(f"Kafka runs at {broker.bootstrap} (pid {broker.pid}), data in {broker.data}", soft_wrap=True)
    numbers = (Column(title, justify="right") for title in ("partitions", "records"))
    table = Table("topic", *numbers, box=None, pad_edge=False)
    for topic in topics:
        table.add_row(topic.name, str(topic.partitions), f"{topic.records:,}")
    out.print(table if topics else "no topics yet")
