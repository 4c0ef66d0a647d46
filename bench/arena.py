"""Where contenders meet: one broker, one work folder, rounds in a seeded random order."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contenders import CONTENDERS, Task
from bench.filled import Filled
from bench.load import Records, TypedRecords, fill
from bench.measure import Figures, run
from bench.outcome import Series
from bench.process import ContenderFailed
from bench.replayed import Lake
from bench.screen import Screen
from bench.sizes import Sizes
from bench.verify import broker_offsets, records

WARM_UP_RECORDS = 2_000


@dataclass(frozen=True)
class Arena:
    bootstrap: str
    folder: Path
    sizes: Sizes
    seed: int
    screen: Screen

    def fill(self, topic: str, count: int, partitions: int = 4, records: Records | None = None) -> None:
        with self.screen.step(f"{topic}: {count:,} records into Kafka", count) as sent:
            fill(self.bootstrap, topic, count, partitions, sent, records)

    def warm_up(self, names: Iterable[str]) -> None:
        """Every contender once, on few records, uncounted: so that none pays for a cold disk cache."""
        self.fill("warm-up", WARM_UP_RECORDS, records=TypedRecords())
        for name in names:
            self._add(Series(name), "warm-up", WARM_UP_RECORDS, "warm-up")

    def compete(self, names: Sequence[str], topic: str, per_batch: int) -> dict[str, Series]:
        """Each contender once per round, the order of each round drawn anew. One that fails is not asked again."""
        series = {name: Series(name) for name in names}
        order = random.Random(f"{self.seed}-{topic}")
        names = [name for name in names if name not in self.sizes.leave_out]
        for number in range(1, self.sizes.rounds + 1):
            for name in order.sample(names, len(names)):
                if series[name].failure is None:
                    label = f"{topic}, round {number} of {self.sizes.rounds}"
                    series[name] = self._add(series[name], topic, per_batch, label)
        return series

    def _add(self, series: Series, topic: str, per_batch: int, label: str) -> Series:
        try:
            figures = self.run(series.name, topic, per_batch, label)
        except ContenderFailed as failure:
            self.screen.say(f"{label}: {series.name} failed: {failure}")
            return Series(series.name, series.runs, str(failure))
        return Series(series.name, [*series.runs, figures])

    def run(
        self,
        name: str,
        topic: str,
        per_batch: int,
        label: str,
        *,
        folder: Path | None = None,
        filled: Filled | None = None,
        lake: Lake | None = None,
    ) -> Figures:
        """One run. With `folder` it goes on in what an earlier run left there, and leaves it too; with `filled` it
        begins with a copy of these tables, with `lake` it makes one of its tables anew."""
        expected = broker_offsets(self.bootstrap, [topic])
        count = records(expected)
        # A slow contender may take 3 s a batch and 2,000 rows/s, a minute in a large table; beyond that it hangs.
        patience = 180 + count / 2_000 + (60 if filled else 5) * count / per_batch
        os.sync()  # what the contender before has written must not cost this one
        with self.screen.step(f"{label}: {name}", count) as landed:
            figures = run(
                CONTENDERS[name],
                Task(folder or self.folder / "run", self.bootstrap, topic, per_batch, filled, lake),
                expected,
                patience=patience,
                landed=landed,
                keep=folder is not None,
            )
        self.screen.say(
            f"{label}: {name:8} {figures.rate:>9,.0f} rows/s, first commit after {figures.first_commit:.1f} s, "
            f"{figures.wall:.1f} s and {figures.cpu:.1f} CPU-s in all"
            + (f"; DOES NOT VERIFY: {figures.problem}" if figures.problem else "")
        )
        return figures
