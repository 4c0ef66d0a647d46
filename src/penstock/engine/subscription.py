"""What a table reads, in the words of the ledger: from its plan alone, without Spark and without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource, KafkaSource, TablePlan


def of_topics(source: KafkaSource) -> dict[str, Any]:
    return {"pattern": source.pattern} if source.pattern is not None else {"topics": sorted(source.topics)}


def of_table(source: DeltaSource) -> dict[str, Any]:
    return {"table": source.table or source.uri}


def of_files(table: str) -> dict[str, Any]:
    """Not the folder: what comes from another one is listed like the rest, and read after it."""
    return {"files": table}


def of_streams(inputs: Mapping[str, DeltaSource]) -> dict[str, str]:
    """The tables by the names of the arguments. In which order they are read only the function knows."""
    return {name: source.table or source.uri for name, source in inputs.items()}


def subscribes(table: TablePlan) -> dict[str, Any]:
    """What the next entry will say; of a table with `stream` without the order."""
    if table.stream is not None:
        return {"streams": of_streams(table.stream.inputs)}
    if isinstance(table.source, KafkaSource):
        return of_topics(table.source)
    return of_files(table.name) if isinstance(table.source, FilesSource) else of_table(table.source)


def reads_the_same(table: TablePlan, subscription: Mapping[str, Any]) -> bool:
    """Whether the ledger's subscription is that of the project."""
    return {name: value for name, value in subscription.items() if name != "order"} == subscribes(table)


def said(subscription: Mapping[str, Any]) -> str:
    """`topics orders, refunds`, `table bronze.orders`."""
    if "topics" in subscription:
        names = list(map(str, subscription["topics"]))
        return f"topic{'s' * (len(names) != 1)} {', '.join(names)}"
    if "pattern" in subscription:
        return f"topics that match {subscription['pattern']}"
    if "table" in subscription:
        return f"table {subscription['table']}"
    if "streams" in subscription:
        tables = subscription["streams"]
        order = subscription.get("order") or list(tables)
        return f"table{'s' * (len(order) != 1)} {', '.join(str(tables.get(name, name)) for name in order)}"
    return "files" if "files" in subscription else "another source"
