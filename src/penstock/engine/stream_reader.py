"""Tables as the sources of a function on streaming DataFrames.

Spark keeps a position for every place where its plan reads a stream, in the order of the plan: which input each of them
is of is read off the plan itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.covered import Asked, Covered
from penstock.engine.delta.reader import DeltaReader
from penstock.engine.delta.version import parse
from penstock.engine.forget.suppression import Suppression
from penstock.engine.protocol.entry import Entry
from penstock.engine.source import Move, Position, Start
from penstock.engine.stages.transform import load_transform
from penstock.engine.state import begin_anew
from penstock.engine.store import Store
from penstock.engine.subscription import of_streams
from penstock.errors import Terminal
from penstock.plan.model import TablePlan
from penstock.plan.stages import TransformPlan

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
            at = parse(start.position[0])
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
            hint=f"write it as it was, or {begin_anew(self._table)}",
        )

    def refuse_lost(self, entry: Entry) -> None:
        for name, at in zip(self._order, entry.after, strict=True):
            self._readers[name].refuse_lost(replace(entry, after=(at,)))
            position = parse(at)
            if entry.batch == 0 and not position.snapshot:
                self._begin[name] = str(position.version)

    def ids(self, after: Position) -> Mapping[str, str]:
        return {self._tables[name]: parse(at).table_id for name, at in zip(self._order, after, strict=True)}

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

    def covered(self, spark: SparkSession, asked: Asked) -> Covered:
        raise Terminal(
            "it rests on Spark's state, which a replay does not have", where=self._table, hint=begin_anew(self._table)
        )

    def size(self, before: Position, after: Position) -> int | None:
        return None

    def remarks(self, before: Position, after: Position) -> Iterator[str]:
        for name, first, last in zip(self._order, before, after, strict=True):
            yield from self._readers[name].remarks((first,), (last,))

    @cached_property
    def _order(self) -> tuple[str, ...]:
        leaves = self.stream(self._spark)._jdf.queryExecution().analyzed().collectLeaves()
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
