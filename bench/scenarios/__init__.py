"""One function for each thing that is measured; each takes the arena and gives an outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.arena import Arena
from bench.outcome import Outcome
from bench.scenarios import cli, floor, growth, many, merge, rates, replay, start


@dataclass(frozen=True)
class Scenario:
    run: Callable[[Arena], Outcome]
    contenders: tuple[str, ...]


SCENARIOS: Mapping[str, Scenario] = {
    "bronze": Scenario(rates.bronze, rates.BRONZE),
    "small": Scenario(rates.small, rates.SMALL),
    "typed": Scenario(rates.typed, rates.TYPED),
    "growth": Scenario(growth.growth, ()),
    "merge": Scenario(merge.merge, ()),
    "replay": Scenario(replay.replay, ()),
    "floor": Scenario(floor.floor, floor.NAMES),
    "many": Scenario(many.many, ("P",)),
    "start": Scenario(start.start, start.NAMES),
    "cli": Scenario(cli.cli, ("P",)),
}
