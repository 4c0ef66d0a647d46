"""Good rows, rejected rows, dropped rows: told apart in the one pass that writes the good ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.stages.expect import checked, checks
from penstock.engine.stages.observed import Observed
from penstock.engine.stages.rejects import NOTHING_FAILED
from penstock.plan.stages import Expectation

BAD, GONE, OUT, DROP, FINE = "__bad", "__gone", "__out", "__drop", "__fine"
NUMBER, REJECT = "__number", "__reject"
READ, REJECTED, DROPPED, BROUGHT, UNMET = "read", "rejected", "dropped", "brought", "unmet_"
MOST_BROUGHT = 5_000
"""Rejected rows that a task brings along; with more of them the batch is read again."""
MOST_IN_ALL = 50_000
"""Of all tasks of a replay, which may be thousands: what they bring is in the memory of one process."""
_SHUFFLED = 200
LARGEST_BROUGHT = 4_096
_IN_TASK = (1 << 33) - 1


@dataclass(frozen=True)
class Judged:
    """`all` has the rows of the table beside marks; nothing runs before one of the two is used."""

    all: DataFrame
    columns: tuple[str, ...]
    unmet: tuple[str, ...]

    def good(self, observed: Observed, most: int | None = None) -> DataFrame:
        """The rows to write; `observed` learns of the rest while they are written. `most`: how many rejected rows a
        task brings along, at the most."""
        bound = min(MOST_BROUGHT, most) if most is not None else MOST_BROUGHT
        brought = F.collect_list(F.expr(f"IF({NUMBER} < {bound}, {REJECT}, NULL)")).alias(BROUGHT)
        seen = observed.on(self.all, *self._counts(), brought)
        return seen.where(f"NOT {OUT} AND NOT {DROP} AND {FINE}").select(*map(quote, self.columns))

    def counted(self) -> dict[str, int]:
        """The same numbers by a pass of their own."""
        found = self.all.agg(*self._counts()).first()
        assert found is not None
        return found.asDict()

    def _counts(self) -> list[Column]:
        return [
            F.count(F.lit(1)).alias(READ),
            F.count_if(F.expr(OUT)).alias(REJECTED),
            F.count_if(F.expr(DROP)).alias(DROPPED),
            *(F.count_if(F.expr(f"`{UNMET}{name}`")).alias(f"{UNMET}{name}") for name in self.unmet),
        ]

    def rejected(self) -> DataFrame:
        """The rejected rows, with the columns of a reject."""
        return self.all.where(OUT).select(f"{REJECT}.*")


def share_of(rows: DataFrame) -> int:
    """How many rejected rows each task over these rows may bring along."""
    execution = rows._jdf.queryExecution()
    if execution.executedPlan().nodeName() == "AdaptiveSparkPlan":
        tasks = _SHUFFLED  # to ask would be to run what comes before the shuffle
    else:
        tasks = int(execution.toRdd().getNumPartitions())
    return MOST_IN_ALL // max(tasks, 1)


def judge(
    frame: DataFrame,
    columns: Sequence[str],
    expectations: Sequence[Expectation],
    *,
    bad: str,
    place: str,
    reject: Callable[[str], str],
    size: str,
    gone: str = "false",
    faults: str = NOTHING_FAILED,
    end: str = "false",
) -> Judged:
    """`bad` marks rows that are out whatever the expectations say, `gone` those that are dropped so. `place`, `reject`
    and `size` are expressions: where a row came from, what is kept of it if it is out, made of what it failed, and how
    large that is. So is `faults`: what a row that is bad has failed; and `end`: false, or it ends the pass."""
    found = checks(expectations, place)
    marks = checked(frame, expectations, f"({bad} OR {gone})").selectExpr(
        "*",
        f"{end} OR {bad} OR (NOT {gone} AND {found.rejected}) AS {OUT}",
        f"NOT {bad} AND ({gone} OR (NOT ({found.rejected}) AND {found.dropped})) AS {DROP}",
        f"{bad} OR {gone} OR {found.fine} AS {FINE}",
        *(f"NOT {bad} AND NOT {gone} AND {unmet} AS `{UNMET}{name}`" for name, unmet in found.counts),
    )
    # The counter moves only where its branch is taken: it numbers the rejected rows of a task.
    numbered = marks.selectExpr(
        "*", f"CASE WHEN {OUT} THEN monotonically_increasing_id() & {_IN_TASK}L END AS {NUMBER}"
    )
    names = tuple(name for name, _ in found.counts)
    kept = [*map(quote, columns), OUT, DROP, FINE, *(f"`{UNMET}{name}`" for name in names)]
    failed = f"IF({bad}, {faults}, {found.failed})"
    large = f"{size} > {LARGEST_BROUGHT}"
    whole = numbered.selectExpr(
        *kept,
        f"CASE WHEN {OUT} THEN IF({large}, {MOST_BROUGHT}, {NUMBER}) END AS {NUMBER}",
        f"CASE WHEN {OUT} THEN {reject(failed)} END AS {REJECT}",
    )
    return Judged(whole, tuple(columns), names)
