"""Expectations: predicates that every row should meet. NULL counts as not met, and so does a check that raises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.isolation.expressions import attempt, error_of
from penstock.engine.stages.decode import literal
from penstock.engine.stages.rejects import NOTHING_FAILED
from penstock.plan.stages import Expectation

_MET, _ERROR = "__met", "__error"
RAISED = ": "
"""Between the name of an expectation and what it raised; no name has it."""


@dataclass(frozen=True)
class Checks:
    """SQL expressions over the rows that `checked` gives."""

    failed: str
    """The names of the expectations that send the row to quarantine, as an array, each with what it raised, if it did.
    Without a lambda: Spark would compile neither that nor what stands beside it."""
    rejected: str
    dropped: str
    fine: str
    """True; ends the batch if an expectation says so."""
    counts: tuple[tuple[str, str], ...]
    """Name, and whether the row does not meet it."""


def checked(frame: DataFrame, expectations: Sequence[Expectation], skipped: str) -> DataFrame:
    """The rows, beside whether they meet each expectation, and what it raised if it did not and that matters. Rows that
    are `skipped`, which is an expression, are not looked at."""
    if not expectations:
        return frame
    spark, looked_at = frame.sparkSession, ~F.expr(skipped)
    met = [
        F.coalesce(F.when(looked_at, attempt(spark, one.check)), F.lit(False)).alias(f"{_MET}{number}")
        for number, one in enumerate(expectations)
    ]
    raised = [
        F.when(looked_at & ~F.col(f"{_MET}{number}"), error_of(spark, one.check)).alias(f"{_ERROR}{number}")
        for number, one in enumerate(expectations)
        if one.action in ("quarantine", "fail")
    ]
    return frame.select("*", *met).select("*", *raised)


def checks(expectations: Sequence[Expectation], place: str) -> Checks:
    """`place` is the expression of where a row came from."""
    numbered = list(enumerate(expectations))
    quarantine, drop, fail = (
        [(number, one) for number, one in numbered if one.action == action] for action in ("quarantine", "drop", "fail")
    )
    names = ", ".join(f"IF({_met(number)}, '', {_named(number, one)})" for number, one in quarantine)
    fine = " AND ".join(_or_raise(number, one, place) for number, one in fail)
    return Checks(
        failed=f"array_remove(array({names}), '')" if quarantine else NOTHING_FAILED,
        rejected=f"NOT ({_all_met(number for number, _ in quarantine)})",
        dropped=f"NOT ({_all_met(number for number, _ in drop)})",
        fine=fine or "true",
        counts=tuple((one.name, f"NOT {_met(number)}") for number, one in numbered),
    )


def raises(expectations: Sequence[Expectation], names: Sequence[str]) -> str:
    """Whether one of those that are named raised on a row that `checked` gives."""
    numbers = (number for number, one in enumerate(expectations) if one.name in names)
    return " OR ".join(f"`{_ERROR}{number}` IS NOT NULL" for number in numbers) or "false"


def _met(number: int) -> str:
    return f"`{_MET}{number}`"


def _named(number: int, one: Expectation) -> str:
    return f"concat({literal(one.name)}, coalesce(concat('{RAISED}', `{_ERROR}{number}`), ''))"


def _all_met(numbers: Iterable[int]) -> str:
    return " AND ".join(map(_met, numbers)) or "true"


def _or_raise(number: int, one: Expectation, place: str) -> str:
    raised = f"coalesce(concat('; it raised ', `{_ERROR}{number}`), '')"
    said = f"concat({literal(f'expectation {one.name} failed: {one.check}; at ')}, {place}, {raised})"
    return f"IF({_met(number)}, true, raise_error({said}))"
