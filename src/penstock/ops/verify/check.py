"""One thing that was held against another, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["same", "differs", "stale", "unverifiable", "not made"]
"""stale: it differs, and there is a reason for it that is no mistake. not made: nobody looked."""
Kind = Literal["changed", "missing", "extra", "doubled", "altered"]
COLLECTED = 10_000
"""Differences that are named one by one at most; beyond that they are counted."""


@dataclass(frozen=True)
class Value:
    """As text; None is NULL."""

    column: str
    there: str | None
    should: str | None


@dataclass(frozen=True)
class Differing:
    """A group, or a row of a copy. missing: it should be there. extra: it should not. doubled: it is there more than
    once. altered: it is another one, as a whole."""

    kind: Kind
    keys: dict[str, str | None]
    values: tuple[Value, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(f"{name} {'NULL' if value is None else value}" for name, value in self.keys.items())
        if self.kind != "changed":
            return f"{named}: {_KINDS[self.kind]}"
        return f"{named}: " + ", ".join(
            f"{one.column} is {_text(one.there)}, should be {_text(one.should)}" for one in self.values
        )


_KINDS = {
    "missing": "is missing",
    "extra": "should not be there",
    "doubled": "is there more than once",
    "altered": "is not as its source has it",
}


def _text(value: str | None) -> str:
    return "NULL" if value is None else value


@dataclass
class Check:
    name: str
    held: str
    """What was looked at: `gold.sales@v7`."""
    against: str
    outcome: Outcome
    said: str
    unit: str = ""
    """What is compared: groups, rows."""
    compared: int = 0
    of: int = 0
    """That the table has."""
    sampled: bool = False
    """Not all were looked at."""
    differing: int = 0
    differences: list[Differing] = field(default_factory=list)
    """All of them, up to `COLLECTED`."""
    left_out: bool = False
    """It can be made, and was not: without it the table is not proven."""
    remarks: list[str] = field(default_factory=list)
    """What was not compared, and why; how it was compared."""
    commands: list[str] = field(default_factory=list)
    """What shows the same by other means."""


def document(check: Check) -> dict[str, Any]:
    return asdict(check)
