"""Tables with `stream`: the result of a function on streaming DataFrames, written as Spark's operators produce it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal
from penstock.ledger.checkpoint import start_over_hint
from penstock.ledger.position import parse_version
from penstock.ledger.source import Start, stream_subscription
from penstock.plan.stages import TransformPlan
from penstock.sources.delta import DeltaReader
from penstock.sources.registry import SourceContext, source_kind
from penstock.spark.jvm import java_frame
from penstock.tables.suppression import Suppression, TableProcessor
from penstock.tables.transform import load_transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry, RowCounts
    from penstock.ledger.source import Move, Position, ReplayInput, ReplayRequest, Source
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import StreamPlan, TablePlan
    from penstock.storage.stores import Store

# Tables as the sources of a function on streaming DataFrames.
#
# Spark keeps one position per stream that its plan reads, in the order of the plan; the plan itself shows which input
# each position belongs to.


INPUT = "penstockinput"
"""An option unknown to Delta, which passes it on: it names the input in the plan."""


class StreamReader:
    def __init__(self, spark: SparkSession, table: TablePlan, open_store: Callable[[str], Store]) -> None:
        assert table.stream is not None
        plan = table.stream
        self._spark, self._table = spark, table.name
        self._readers = {
            name: DeltaReader(source, open_store(source.uri), table.name) for name, source in plan.inputs.items()
        }
        self._tables = stream_subscription(plan.inputs)
        self._where = f"{table.name} ({plan.file})"
        first = next(iter(plan.inputs))
        self._suppression = Suppression(table, open_store(table.uri))
        self._holds = {name: source.holds for name, source in plan.inputs.items()}
        self._function = load_transform(TransformPlan(file=plan.file, function=plan.function), first, table.name)
        self._starting_versions: dict[str, str] = {}

    @property
    def subscription(self) -> dict[str, Any]:
        return {"streams": self._tables, "order": list(self._order)}

    def start(self) -> Start:
        starts = {name: reader.start() for name, reader in self._readers.items()}
        for name, start in starts.items():
            position = parse_version(start.position[0])
            if not position.snapshot and position.version > self._readers[name].newest:
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
            f"the function reads {_describe_subscription(self.subscription)}; the state that is kept is of "
            f"{_describe_subscription(entry.subscription)}",
            where=self._table,
            hint=f"write it as it was, or {start_over_hint(self._table)}",
        )

    def refuse_lost(self, entry: Entry) -> None:
        for name, position_text in zip(self._order, entry.after, strict=True):
            self._readers[name].refuse_lost(replace(entry, after=(position_text,)))
            position = parse_version(position_text)
            if entry.batch == 0 and not position.snapshot:
                self._starting_versions[name] = str(position.version)

    def ids(self, after: Position) -> Mapping[str, str]:
        return {
            self._tables[name]: parse_version(position_text).table_id
            for name, position_text in zip(self._order, after, strict=True)
        }

    def stream(self, spark: SparkSession) -> DataFrame:
        """The stream that the function makes of its inputs. Spark runs an empty first batch to begin its state: Delta
        takes that as the whole table up to there, unless the version is passed once more. People on the suppression
        list when the stream begins are left out of the inputs; those added later, of the function's result.
        """
        self._suppression.read_list()
        inputs: dict[str, DataFrame] = {}
        for name, reader in self._readers.items():
            version = self._starting_versions.get(name)
            options = {INPUT: name, **({"startingVersion": version} if version is not None else {})}
            inputs[name] = self._suppression.drop_matching(reader.stream(spark, options), self._holds[name])
        first = inputs.pop(next(iter(inputs)))
        rows = self._function(first, inputs, 0)
        if not rows.isStreaming:
            raise Terminal("the function gave rows that are not of a stream", where=self._where)
        return rows

    def replay_input(self, spark: SparkSession, request: ReplayRequest) -> ReplayInput:
        raise Terminal(
            "it depends on Spark's state, which a replay does not have",
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
        nodes = (leaves.apply(index) for index in range(leaves.size()))
        return tuple(self._input_of(leaf) for leaf in nodes if leaf.isStreaming())

    def _input_of(self, leaf: Any) -> str:
        option = leaf.dataSource().options().get(INPUT) if leaf.nodeName() == "StreamingRelation" else None
        if option is None or option.isEmpty():
            raise Terminal(
                "the function reads a stream that the project does not know, so its position is not kept",
                where=self._where,
                hint="name it: streams: {payments: silver.payments}, and take it as an argument",
            )
        return str(option.get())


def _describe_subscription(subscription: Mapping[str, Any]) -> str:
    tables = subscription.get("streams", {})
    return ", then ".join(str(tables.get(name, name)) for name in subscription.get("order", ())) or "another source"


class Sources:
    """The sources of a run's tables: each by its kind, or with the function of a table with `stream`."""

    def __init__(self, open_store: Callable[[str], Store], spark: SparkSession | None = None) -> None:
        """`spark` lists files, and finds out what the function of a table with `stream` reads."""
        self._context = SourceContext(open_store, spark)

    def open(self, table: TablePlan) -> Source:
        """The table's source, opened at each start of the table: it queries the outside system again each time."""
        context = self._context
        if table.stream is not None:
            return StreamReader(context.spark, table, context.open_store)
        return source_kind(table.source.kind).open(table, context)


# Writing a table with `stream`: the output of Spark's own streaming operators, as it is.


class StreamProcessor(TableProcessor):
    def __init__(self, plan: StreamPlan, suppression: Suppression) -> None:
        self._overwrites, self._suppression = plan.output == "complete", suppression

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        """Writes one task per partition of the state, so `files` is ignored."""
        rows = self._suppression.drop_suppressed(batch)
        if self._overwrites:
            write_target.overwrite(rows, entry)
        else:
            write_target.append(rows, entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        """Runs a repeated batch to its end. Its rows are in the table, but its state may not be saved: Spark saves
        state only for a batch that was read to the end."""
        if not written:
            batch.write.format("noop").mode("overwrite").save()
        return {}
