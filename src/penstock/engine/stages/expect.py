"""Expectations: predicates that every row should meet. NULL counts as not met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engine.stages.decode import literal
from penstock.engine.stages.rejects import NOTHING_FAILED
from penstock.plan.stages import Expectation


@dataclass(frozen=True)
class Checks:
    """SQL expressions over the rows."""

    failed: str
    """The names of the expectations that send the row to quarantine, as an array. Without a lambda: Spark would compile
    neither that nor what stands beside it."""
    rejected: str
    dropped: str
    fine: str
    """True; ends the batch if an expectation says so."""
    counts: tuple[tuple[str, str], ...]
    """Name, and whether the row does not meet it."""


def checks(expectations: Sequence[Expectation], place: str) -> Checks:
    """`place` is the expression of where a row came from."""
    by_action = {
        action: [one for one in expectations if one.action == action] for action in ("quarantine", "drop", "fail")
    }
    quarantine, drop, fail = by_action["quarantine"], by_action["drop"], by_action["fail"]
    names = ", ".join(f"IF({_met(one)}, '', {literal(one.name)})" for one in quarantine)
    fine = " AND ".join(_or_raise(one, place) for one in fail)
    return Checks(
        failed=f"array_remove(array({names}), '')" if quarantine else NOTHING_FAILED,
        rejected=f"NOT ({_all_met(quarantine)})",
        dropped=f"NOT ({_all_met(drop)})",
        fine=fine or "true",
        counts=tuple((one.name, f"NOT {_met(one)}") for one in expectations),
    )


def _met(one: Expectation) -> str:
    return f"coalesce(({one.check}), false)"


def _all_met(some: Sequence[Expectation]) -> str:
    return " AND ".join(map(_met, some)) or "true"


def _or_raise(one: Expectation, place: str) -> str:
    said = f"concat({literal(f'expectation {one.name} failed: {one.check}; at ')}, {place})"
    return f"IF({_met(one)}, true, raise_error({said}))"
