"""Tables with `stream`: a function on streaming DataFrames, written as Spark's own operators give it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal
from penstock.ledger.checkpoint import start_over_hint
from penstock.ledger.position import parse_version
from penstock.ledger.source import Start, of_streams
from penstock.ledger.writer import BatchProcessor
from penstock.plan.stages import TransformPlan
from penstock.sources.delta import DeltaReader
from penstock.spark.jvm import java_frame
from penstock.tables.suppression import Suppression
from penstock.tables.transform import load_transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry, RowCounts
    from penstock.ledger.source import Move, Position, ReplayInput, ReplayRequest
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import StreamPlan, TablePlan
    from penstock.storage.stores import Store

# Tables as the sources of a function on streaming DataFrames.
#
# Spark keeps a position for every place where its plan reads a stream, in the order of the plan: which input each of
# them is of is read off the plan itself.


INPUT = "penstockinput"
"""An option that Delta does not know and passes on: it says in the plan which input is read there."""


class StreamReader:
    def __init__(self, spark: SparkSession, table: TablePlan, open_store: Callable[[str], Store]) -> None:
        assert table.stream is not None
        plan = table.stream
        self._spark, self._table = spark, table.name
        self._readers = {
            name: DeltaReader(source, open_store(source.uri), table.name) for name, source in plan.inputs.items()
        }
        self._tables = of_streams(plan.inputs)
        self._where = f"{table.name} ({plan.file})"
        first = next(iter(plan.inputs))
        self._suppression = Suppression(table, open_store(table.uri))
        self._holds = {name: source.holds for name, source in plan.inputs.items()}
        self._function = load_transform(TransformPlan(file=plan.file, function=plan.function), first, table.name)
        self._begin: dict[str, str] = {}

    @property
    def subscription(self) -> dict[str, Any]:
        return {"streams": self._tables, "order": list(self._order)}

    def start(self) -> Start:
        starts = {name: reader.start() for name, reader in self._readers.items()}
        for name, start in starts.items():
            at = parse_version(start.position[0])
            if not at.snapshot and at.version > self._readers[name].newest:
                raise Terminal(
                    f"`starting` of {self._tables[name]} lies behind its last version, {self._readers[name].newest}",
                    where=self._table,
                    hint="a stream function begins with rows that are there: write earliest, or one of its versions",
                )
        ids = {self._tables[name]: table_id for name, start in starts.items() for table_id in start.ids.values()}
        return Start(tuple(starts[name].position[0] for name in self._order), ids)

    def follow(self, entry: Entry) -> Move | None:
        for reader in self._readers.values():
            reader.require()
        if dict(entry.subscription) == self.subscription:
            return None
        raise Terminal(
            f"the function reads {_said(self.subscription)}; the state that is kept is of {_said(entry.subscription)}",
            where=self._table,
            hint=f"write it as it was, or {start_over_hint(self._table)}",
        )

    def refuse_lost(self, entry: Entry) -> None:
        for name, at in zip(self._order, entry.after, strict=True):
            self._readers[name].refuse_lost(replace(entry, after=(at,)))
            position = parse_version(at)
            if entry.batch == 0 and not position.snapshot:
                self._begin[name] = str(position.version)

    def ids(self, after: Position) -> Mapping[str, str]:
        return {self._tables[name]: parse_version(at).table_id for name, at in zip(self._order, after, strict=True)}

    def stream(self, spark: SparkSession) -> DataFrame:
        """What the function makes of its inputs. Spark runs an empty first batch, for its state to begin with: Delta
        takes that as the whole table up to there, unless it is told the version once more. Who is on the suppression
        list when the stream begins is left out of them; who comes onto it later is left out of what the function makes.
        """
        self._suppression.look()
        begin = {name: {"startingVersion": version} for name, version in self._begin.items()}
        first, *others = (
            (
                name,
                self._suppression.without(
                    reader.stream(spark, {INPUT: name, **begin.get(name, {})}), self._holds[name]
                ),
            )
            for name, reader in self._readers.items()
        )
        made = self._function(first[1], dict(others), 0)
        if not made.isStreaming:
            raise Terminal("the function gave rows that are not of a stream", where=self._where)
        return made

    def covered(self, spark: SparkSession, asked: ReplayRequest) -> ReplayInput:
        raise Terminal(
            "it rests on Spark's state, which a replay does not have",
            where=self._table,
            hint=start_over_hint(self._table),
        )

    def size(self, before: Position, after: Position) -> int | None:
        return None

    def remarks(self, before: Position, after: Position) -> Iterator[str]:
        for name, first, last in zip(self._order, before, after, strict=True):
            yield from self._readers[name].remarks((first,), (last,))

    @cached_property
    def _order(self) -> tuple[str, ...]:
        leaves = java_frame(self.stream(self._spark)).queryExecution().analyzed().collectLeaves()
        found = (leaves.apply(index) for index in range(leaves.size()))
        return tuple(self._input_of(leaf) for leaf in found if leaf.isStreaming())

    def _input_of(self, leaf: Any) -> str:
        named = leaf.dataSource().options().get(INPUT) if leaf.nodeName() == "StreamingRelation" else None
        if named is None or named.isEmpty():
            raise Terminal(
                "the function reads a stream that the project does not know, so nobody keeps its position",
                where=self._where,
                hint="name it: streams: {payments: silver.payments}, and take it as an argument",
            )
        return str(named.get())


def _said(subscription: Mapping[str, Any]) -> str:
    tables = subscription.get("streams", {})
    return ", then ".join(str(tables.get(name, name)) for name in subscription.get("order", ())) or "another source"


# A table with `stream`: what Spark's own streaming operators give, written as it comes.


class StreamProcessor(BatchProcessor):
    def __init__(self, plan: StreamPlan, suppression: Suppression) -> None:
        self._whole, self._suppression = plan.output == "complete", suppression

    @property
    def outdated(self) -> bool:
        return self._suppression.grown

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        """One task per partition of the state, so `files` is not followed."""
        rows = self._suppression.own(batch)
        if self._whole:
            into.overwrite(rows, entry)
        else:
            into.append(rows, entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        """The rows of a batch that runs again are in the table, but its state may not have been kept: Spark keeps it
        only of a batch that has been read to its end."""
        if not written:
            batch.write.format("noop").mode("overwrite").save()
        return {}
