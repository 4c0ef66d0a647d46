"""Expectations, and the one pass that tells good, rejected and dropped rows apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.sources.columns import SOURCE
from penstock.spark.expressions import attempt, error_of
from penstock.spark.jvm import java_frame
from penstock.spark.sql_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.ledger.writer import BatchMetrics
    from penstock.plan.model import TablePlan
    from penstock.plan.stages import ExpectationPlan

# Rejected rows on their way to quarantine: the record as it came, where it came from, and what it did not meet.


RAW = {
    "key": "STRING",
    "key_binary": "BINARY",
    "value": "STRING",
    "value_binary": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "kafka_timestamp": "TIMESTAMP",
    "ingestion_timestamp": "TIMESTAMP",
}
"""What is kept of a record, whatever the table's source calls it."""
FAILED = "failed"
NOTHING_FAILED = "CAST(array() AS ARRAY<STRING>)"


def raw_columns(table: TablePlan, columns: Sequence[str]) -> dict[str, str]:
    """RAW's names -> expressions over the input, whose columns are given."""
    names = table.input.raw
    if names:
        found = {name: quote(names[name]) for name in RAW if name in names}
        if table.payload == "binary" or "value_binary" not in names:  # of a table upstream with payload: binary
            found |= {"key": "NULL", "value": "NULL", "key_binary": found["key"], "value_binary": found["value"]}
        return found
    decode = table.stages.decode if table.stages else None
    if decode is not None:
        return {"value": f"CAST({quote(decode.column)} AS STRING)"}
    return {"value": f"to_json(struct({', '.join(quote(name) for name in columns if name != SOURCE)}))"}


def reject(raw: dict[str, str], source: str, failed: str) -> str:
    """The struct that the write of the good rows brings along."""
    parts = [f"'{name}', CAST({raw.get(name, 'NULL')} AS {kind})" for name, kind in RAW.items()]
    return f"named_struct({', '.join(parts)}, '{SOURCE}', {source}, '{FAILED}', {failed})"


def size_of(raw: dict[str, str]) -> str:
    """How many bytes of a record are kept, roughly."""
    sizes = [
        f"coalesce(octet_length({f'to_json({value})' if name == 'headers' else value}), 0)"
        for name, value in raw.items()
        if value != "NULL" and not name.endswith("timestamp")
    ]
    return " + ".join(sizes) or "0"


# Expectations: predicates that every row should meet. NULL counts as not met, and so does a check that raises.


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


def checked(frame: DataFrame, expectations: Sequence[ExpectationPlan], skipped: str) -> DataFrame:
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
        if one.does.explains
    ]
    return frame.select("*", *met).select("*", *raised)


def checks(expectations: Sequence[ExpectationPlan], place: str) -> Checks:
    """`place` is the expression of where a row came from."""
    numbered = list(enumerate(expectations))
    quarantine = [(number, one) for number, one in numbered if one.does.rejects]
    drop = [(number, one) for number, one in numbered if one.does.drops]
    fail = [(number, one) for number, one in numbered if one.does.stops]
    names = ", ".join(f"IF({_met(number)}, '', {_named(number, one)})" for number, one in quarantine)
    fine = " AND ".join(_or_raise(number, one, place) for number, one in fail)
    return Checks(
        failed=f"array_remove(array({names}), '')" if quarantine else NOTHING_FAILED,
        rejected=f"NOT ({_all_met(number for number, _ in quarantine)})",
        dropped=f"NOT ({_all_met(number for number, _ in drop)})",
        fine=fine or "true",
        counts=tuple((one.name, f"NOT {_met(number)}") for number, one in numbered),
    )


def raises(expectations: Sequence[ExpectationPlan], names: Sequence[str]) -> str:
    """Whether one of those that are named raised on a row that `checked` gives."""
    numbers = (number for number, one in enumerate(expectations) if one.name in names)
    return " OR ".join(f"`{_ERROR}{number}` IS NOT NULL" for number in numbers) or "false"


def _met(number: int) -> str:
    return f"`{_MET}{number}`"


def _named(number: int, one: ExpectationPlan) -> str:
    return f"concat({literal(one.name)}, coalesce(concat('{RAISED}', `{_ERROR}{number}`), ''))"


def _all_met(numbers: Iterable[int]) -> str:
    return " AND ".join(map(_met, numbers)) or "true"


def _or_raise(number: int, one: ExpectationPlan, place: str) -> str:
    raised = f"coalesce(concat('; it raised ', `{_ERROR}{number}`), '')"
    said = f"concat({literal(f'expectation {one.name} failed: {one.check}; at ')}, {place}, {raised})"
    return f"IF({_met(number)}, true, raise_error({said}))"


# Good rows, rejected rows, dropped rows: told apart in the one pass that writes the good ones.


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
class ClassifiedRows:
    """`all` has the rows of the table beside marks; nothing runs before one of the two is used."""

    all: DataFrame
    columns: tuple[str, ...]
    unmet: tuple[str, ...]

    def good(self, observed: BatchMetrics, most: int | None = None) -> DataFrame:
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
    execution = java_frame(rows).queryExecution()
    if execution.executedPlan().nodeName() == "AdaptiveSparkPlan":
        tasks = _SHUFFLED  # to ask would be to run what comes before the shuffle
    else:
        tasks = int(execution.toRdd().getNumPartitions())
    return MOST_IN_ALL // max(tasks, 1)


def classify(
    frame: DataFrame,
    columns: Sequence[str],
    expectations: Sequence[ExpectationPlan],
    *,
    bad: str,
    place: str,
    reject: Callable[[str], str],
    size: str,
    gone: str = "false",
    faults: str = NOTHING_FAILED,
    end: str = "false",
) -> ClassifiedRows:
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
    return ClassifiedRows(whole, tuple(columns), names)
