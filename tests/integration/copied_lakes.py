"""A lake that several tests begin from: made once, copied for each. The ledger names no paths, so lakes can move."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.integration.run_plan import TABLE, Coordinates, coordinates, make_plan, produce, run_well, whole_chain

OTHER = "bronze.other"


@dataclass
class Lake:
    """A table of one topic, and all that was produced to the topic so far (by all copies)."""

    spark: Any
    plan: Any
    topic: str
    bootstrap: str
    produced: Coordinates

    @property
    def uri(self) -> str:
        return str(self.plan.tables[0].uri)

    def more(self, count: int = 3) -> None:
        self.produced.update(produce(self.bootstrap, self.topic, count))

    def holds_all(self, *others: tuple[str, int, int]) -> bool:
        """Everything once, and the rows that others added."""
        return coordinates(self.plan) == self.produced + Counter(others)

    def goes_on(self, *others: tuple[str, int, int]) -> Any:
        """It lands what is new and holds everything once; gives what was said."""
        self.more()
        heard = run_well(self.spark, self.plan, TABLE)
        assert self.holds_all(*others)
        whole_chain(self.plan)
        return heard

    def copied(self, folder: Path) -> Lake:
        lake = str(folder / "lake")
        shutil.copytree(self.plan.lake, lake)
        tables = [
            replace(
                table,
                uri=table.uri.replace(self.plan.lake, lake),
                checkpoints=table.checkpoints.replace(self.plan.lake, lake),
                source=replace(table.source, max_per_trigger=None),
            )
            for table in self.plan.tables
        ]
        return replace(self, plan=replace(self.plan, root=str(folder), lake=lake, tables=tuple(tables)))


def make_lake(spark: Any, broker: Any, topic: str, folder: Path) -> Lake:
    """Three batches of 4 records in TABLE, a fourth in OTHER, which reads the same topic."""
    broker.create_topic(topic, 2)
    table = {"from": {"kafka": topic, "max_per_trigger": 4}, "trigger": "1s"}
    plan = make_plan(folder, broker.bootstrap, {TABLE: table, OTHER: table})
    made = Lake(spark, plan, topic, broker.bootstrap, produce(broker.bootstrap, topic, 12))
    run_well(spark, plan, TABLE)
    made.more(1)
    run_well(spark, plan, OTHER)
    return made
