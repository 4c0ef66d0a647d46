"""What a scenario found: tables for people, figures for machines, and the targets with their marks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.measure import Figures


@dataclass(frozen=True)
class Target:
    what: str
    relation: Literal["at least", "at most"]
    bound: float
    unit: str
    value: float | None
    """None: not measured, or a table did not verify. Then the target is missed."""

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.bound if self.relation == "at least" else self.value <= self.bound

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "relation": self.relation, "bound": self.bound, "value": self.value, "met": self.met}


@dataclass(frozen=True)
class Sheet:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Series:
    """All runs of one contender in one scenario."""

    name: str
    runs: Sequence[Figures] = ()
    failure: str | None = None
    """Why there is no figure, if a run ended badly."""

    @property
    def problem(self) -> str | None:
        return self.failure or next((run.problem for run in self.runs if run.problem), None)

    def median(self, of: Callable[[Figures], float]) -> float | None:
        """None unless every run ended well and verified: no rate counts otherwise."""
        if self.problem or not self.runs:
            return None
        return statistics.median(of(run) for run in self.runs)

    @property
    def verified(self) -> str:
        if self.problem:
            return f"NO: {self.problem.splitlines()[0]}"
        return "yes" if self.runs else "not run"


@dataclass(frozen=True)
class Outcome:
    scenario: str
    setting: str
    """One sentence: what was run."""
    sheets: Sequence[Sheet]
    targets: Sequence[Target]
    figures: Any
    notes: Sequence[str] = field(default_factory=list)
    problems: Sequence[str] = field(default_factory=list)
    """Tables that do not verify and runs that failed, in full."""


def ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def noise(series: Mapping[str, Series], of: Callable[[Figures], float]) -> list[str]:
    """What two runs of the same job differ by: no smaller difference means anything."""
    between = ratio(series["a again"].median(of), series["a"].median(of))
    return [] if between is None else [f"Noise: the same job run again (a again) is {between:.2f} times a."]


def failures(series: Sequence[Series]) -> list[str]:
    return [f"{one.name}: {one.problem}" for one in series if one.problem]
