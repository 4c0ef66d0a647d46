"""Expectations, and the one pass that separates good, rejected and dropped rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

# Rejected rows on their way to quarantine: the record as it arrived, its coordinates, and what it failed.


RAW = {
    "key": "STRING",
    "key_binary": "BINARY",
    "value": "STRING",
    "value_binary": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "kafka_timestamp": "TIMESTAMP",
    "ingestion_timestamp": "TIMESTAMP",
}
"""What is kept of a record, whatever the table's source calls these columns."""
FAILED = "failed"
NOTHING_FAILED = "CAST(array() AS ARRAY<STRING>)"


def raw_projection(values: Mapping[str, str]) -> list[str]:
    """A record as RAW columns, from the expressions for some of them; the others are NULL."""
    return [f"CAST({values.get(name, 'NULL')} AS {data_type}) AS {name}" for name, data_type in RAW.items()]


def as_rejected(rows: DataFrame, values: Mapping[str, str], source: str, why: str) -> DataFrame:
    """The rows in the form in which a quarantine adds them, rejected for a reason that is not an expectation. All are
    expressions: `values` for RAW columns, `source` for the coordinates, `why` for the struct of reason and detail."""
    return rows.selectExpr(
        *raw_projection(values), f"{source} AS {SOURCE}", f"{NOTHING_FAILED} AS {FAILED}", f"{why} AS why"
    )


def raw_columns(table: TablePlan, columns: Sequence[str]) -> dict[str, str]:
    """The names in RAW -> expressions over the input, which has these columns."""
    names = table.input.raw
    if names:
        expressions = {name: quote(names[name]) for name in RAW if name in names}
        if table.payload == "binary" or "value_binary" not in names:  # from an upstream table with payload: binary
            expressions |= {
                "key": "NULL",
                "value": "NULL",
                "key_binary": expressions["key"],
                "value_binary": expressions["value"],
            }
        return expressions
    decode = table.stages.decode if table.stages else None
    if decode is not None:
        return {"value": f"CAST({quote(decode.column)} AS STRING)"}
    return {"value": f"to_json(struct({', '.join(quote(name) for name in columns if name != SOURCE)}))"}


def reject(raw: dict[str, str], source: str, failed: str) -> str:
    """The struct of a rejected row, collected while the good rows are written."""
    parts = [f"'{name}', CAST({raw.get(name, 'NULL')} AS {data_type})" for name, data_type in RAW.items()]
    return f"named_struct({', '.join(parts)}, '{SOURCE}', {source}, '{FAILED}', {failed})"


def size_of(raw: dict[str, str]) -> str:
    """The rough number of bytes kept of a record, as an expression."""
    sizes = [
        f"coalesce(octet_length({f'to_json({value})' if name == 'headers' else value}), 0)"
        for name, value in raw.items()
        if value != "NULL" and not name.endswith("timestamp")
    ]
    return " + ".join(sizes) or "0"


# Expectations: predicates that every row should meet. A check that is NULL or raises counts as not met.


_MET, _ERROR = "__met", "__error"
RAISED = ": "
"""Separates the name of an expectation from what it raised; no name contains it."""


@dataclass(frozen=True)
class Checks:
    """SQL expressions over the rows that `with_check_results` returns."""

    failed: str
    """The names of the expectations that send the row to quarantine, as an array, each with what it raised, if
    anything. Written without a lambda: Spark would compile neither the lambda nor the expressions beside it."""
    rejected: str
    dropped: str
    passes: str
    """True, or it raises if an expectation with the action `fail` is not met."""
    counts: tuple[tuple[str, str], ...]
    """Pairs of an expectation's name and the condition that the row does not meet it."""


def with_check_results(frame: DataFrame, expectations: Sequence[ExpectationPlan], skipped: str) -> DataFrame:
    """The rows, with whether they meet each expectation and, for actions that report it, what an unmet one raised.
    `skipped` is an expression for rows that are not checked."""
    if not expectations:
        return frame
    spark, is_checked = frame.sparkSession, ~F.expr(skipped)
    met = [
        F.coalesce(F.when(is_checked, attempt(spark, expectation.check)), F.lit(False)).alias(f"{_MET}{number}")
        for number, expectation in enumerate(expectations)
    ]
    errors = [
        F.when(is_checked & ~F.col(f"{_MET}{number}"), error_of(spark, expectation.check)).alias(f"{_ERROR}{number}")
        for number, expectation in enumerate(expectations)
        if expectation.action_rules.explains
    ]
    return frame.select("*", *met).select("*", *errors)


def checks(expectations: Sequence[ExpectationPlan], place: str) -> Checks:
    """The conditions for rejected, dropped and failing rows. `place` is an expression for a row's coordinates."""
    numbered = list(enumerate(expectations))
    quarantine = [(number, expectation) for number, expectation in numbered if expectation.action_rules.rejects]
    drop = [(number, expectation) for number, expectation in numbered if expectation.action_rules.drops]
    fail = [(number, expectation) for number, expectation in numbered if expectation.action_rules.stops]
    failures = [f"IF({_met(number)}, '', {_failure_text(number, expectation)})" for number, expectation in quarantine]
    fine = " AND ".join(_or_raise(number, expectation, place) for number, expectation in fail)
    return Checks(
        failed=f"array_remove(array({', '.join(failures)}), '')" if quarantine else NOTHING_FAILED,
        rejected=f"NOT ({_all_met(number for number, _ in quarantine)})",
        dropped=f"NOT ({_all_met(number for number, _ in drop)})",
        passes=fine or "true",
        counts=tuple((expectation.name, f"NOT {_met(number)}") for number, expectation in numbered),
    )


def raises(expectations: Sequence[ExpectationPlan], names: Sequence[str]) -> str:
    """The condition that one of the named expectations raised on a row of `with_check_results`."""
    numbers = (number for number, expectation in enumerate(expectations) if expectation.name in names)
    return " OR ".join(f"`{_ERROR}{number}` IS NOT NULL" for number in numbers) or "false"


def _met(number: int) -> str:
    return f"`{_MET}{number}`"


def _failure_text(number: int, expectation: ExpectationPlan) -> str:
    return f"concat({literal(expectation.name)}, coalesce(concat('{RAISED}', `{_ERROR}{number}`), ''))"


def _all_met(numbers: Iterable[int]) -> str:
    return " AND ".join(map(_met, numbers)) or "true"


def _or_raise(number: int, expectation: ExpectationPlan, place: str) -> str:
    text = literal(f"expectation {expectation.name} failed: {expectation.check}; at ")
    suffix = f"coalesce(concat('; it raised ', `{_ERROR}{number}`), '')"
    return f"IF({_met(number)}, true, raise_error(concat({text}, {place}, {suffix})))"


# Good, rejected and dropped rows, separated in the one pass that writes the good ones.


BAD, PRE_DROPPED, REJECTED_MARK, DROP, FINE = "__bad", "__gone", "__out", "__drop", "__fine"
NUMBER, REJECT = "__number", "__reject"
READ, REJECTED, DROPPED, COLLECTED, UNMET = "read", "rejected", "dropped", "brought", "unmet_"
MAX_COLLECTED_PER_TASK = 5_000
"""Rejected rows that a task collects; if there are more, the batch is read again."""
MAX_COLLECTED_TOTAL = 50_000
"""Rejected rows of all tasks of a replay, which may be thousands: one process holds them in memory."""
_SHUFFLED = 200
MAX_COLLECTED_BYTES = 4_096
_IN_TASK = (1 << 33) - 1


@dataclass(frozen=True)
class ClassifiedRows:
    """Classified rows: `all` has the table's columns and marks. Nothing runs before `all` or a method is used."""

    all: DataFrame
    columns: tuple[str, ...]
    unmet: tuple[str, ...]

    def good_rows(self, metrics: BatchMetrics, most: int | None = None) -> DataFrame:
        """The rows to write; `metrics` collects counts and rejected rows while they are written. `most`: the maximum of
        rejected rows that a task collects."""
        limit = min(MAX_COLLECTED_PER_TASK, most) if most is not None else MAX_COLLECTED_PER_TASK
        collected = F.collect_list(F.expr(f"IF({NUMBER} < {limit}, {REJECT}, NULL)")).alias(COLLECTED)
        observed_rows = metrics.on(self.all, *self._counts(), collected)
        return observed_rows.where(f"NOT {REJECTED_MARK} AND NOT {DROP} AND {FINE}").select(*map(quote, self.columns))

    def count(self) -> dict[str, int]:
        """The same counts, by a separate pass."""
        row = self.all.agg(*self._counts()).first()
        assert row is not None
        return row.asDict()

    def _counts(self) -> list[Column]:
        return [
            F.count(F.lit(1)).alias(READ),
            F.count_if(F.expr(REJECTED_MARK)).alias(REJECTED),
            F.count_if(F.expr(DROP)).alias(DROPPED),
            *(F.count_if(F.expr(f"`{UNMET}{name}`")).alias(f"{UNMET}{name}") for name in self.unmet),
        ]

    def rejected_rows(self) -> DataFrame:
        """The rejected rows, with the columns of `reject`."""
        return self.all.where(REJECTED_MARK).select(f"{REJECT}.*")


def max_rejected_per_task(rows: DataFrame) -> int:
    """How many rejected rows each task over these rows may collect."""
    execution = java_frame(rows).queryExecution()
    if execution.executedPlan().nodeName() == "AdaptiveSparkPlan":
        tasks = _SHUFFLED  # asking would run everything before the shuffle
    else:
        tasks = int(execution.toRdd().getNumPartitions())
    return MAX_COLLECTED_TOTAL // max(tasks, 1)


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
    """Marks rows as good, rejected or dropped. All but `reject` are expressions: `bad` for rows rejected whatever the
    expectations say, `gone` for rows dropped so, `place` for a row's coordinates, `size` for the size of what is kept
    of a rejected row, `faults` for what a bad row failed, and `end`: false, or it raises and ends the pass. `reject`
    makes what is kept of a rejected row out of the expression for what it failed."""
    conditions = checks(expectations, place)
    marked = with_check_results(frame, expectations, f"({bad} OR {gone})").selectExpr(
        "*",
        f"{end} OR {bad} OR (NOT {gone} AND {conditions.rejected}) AS {REJECTED_MARK}",
        f"NOT {bad} AND ({gone} OR (NOT ({conditions.rejected}) AND {conditions.dropped})) AS {DROP}",
        f"{bad} OR {gone} OR {conditions.passes} AS {FINE}",
        *(f"NOT {bad} AND NOT {gone} AND {unmet} AS `{UNMET}{name}`" for name, unmet in conditions.counts),
    )
    # The counter advances only where its branch is taken, so it numbers the rejected rows of a task.
    number = f"CASE WHEN {REJECTED_MARK} THEN monotonically_increasing_id() & {_IN_TASK}L END"
    numbered = marked.selectExpr("*", f"{number} AS {NUMBER}")
    names = tuple(name for name, _ in conditions.counts)
    output_columns = [*map(quote, columns), REJECTED_MARK, DROP, FINE, *(f"`{UNMET}{name}`" for name in names)]
    failed = f"IF({bad}, {faults}, {conditions.failed})"
    too_large = f"{size} > {MAX_COLLECTED_BYTES}"
    classified = numbered.selectExpr(
        *output_columns,
        f"CASE WHEN {REJECTED_MARK} THEN IF({too_large}, {MAX_COLLECTED_PER_TASK}, {NUMBER}) END AS {NUMBER}",
        f"CASE WHEN {REJECTED_MARK} THEN {reject(failed)} END AS {REJECT}",
    )
    return ClassifiedRows(classified, tuple(columns), names)
