"""Why a job failed, and which of its records made it fail, found by bisection."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PythonException
from pyspark.sql import functions as F

from penstock.errors import Terminal
from penstock.sources.columns import FILE, ROW, SOURCE
from penstock.spark.expressions import with_fence
from penstock.spark.jvm import running_jvm
from penstock.spark.sql_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.entry import Entry, Place
    from penstock.plan.model import TablePlan

# Identifying records of a batch: by their coordinates, or by content where coordinates differ from run to run.


CONTENT = "#"
"""The first part of a place that is the hash of a record instead of coordinates."""
NOWHERE = "a record without coordinates"


class Places:
    def __init__(self, table: TablePlan) -> None:
        self._table = table

    def expressions(self, batch: DataFrame) -> list[str]:
        """The parts of a place, as expressions over the rows of a batch."""
        table_input, columns = self._table.input, batch.columns
        if self._table.topics is not None:
            return ["topic", "partition", "offset"]
        if table_input.coordinates == "file" and table_input.stable and ROW in columns:
            return [FILE, ROW]
        if table_input.coordinates == "carried" and table_input.stable:
            names = ("topic", "partition", "offset") if table_input.origin == "kafka" else ("file", "row")
            return [f"{SOURCE}.{name}" for name in names]
        if table_input.coordinates == "kafka" and table_input.stable:
            return [quote(table_input.raw[name]) for name in ("topic", "partition", "offset")]
        text = f"to_json(struct({', '.join(quote(name) for name in columns if name not in (FILE, ROW))}))"
        return [f"'{CONTENT}'", f"xxhash64({text})", f"xxhash64('{CONTENT}', {text})"]

    def by_content(self, batch: DataFrame) -> bool:
        return self.expressions(batch)[0] == f"'{CONTENT}'"

    def matches(self, batch: DataFrame, places: Sequence[Place]) -> Column:
        """The condition that a row of the batch is at one of the places."""
        parts = self.expressions(batch)
        by_group: dict[tuple[str | int, ...], list[str]] = {}
        for place in places:
            by_group.setdefault(tuple(place[:-1]), []).append(_sql_value(place[-1]))
        groups = [
            " AND ".join([*(f"{part} = {_sql_value(value)}" for part, value in zip(parts, group, strict=False)), last])
            for group, numbers in by_group.items()
            for last in [f"{parts[-1]} IN ({', '.join(numbers)})"]
        ]
        return F.expr(f"coalesce({' OR '.join(f'({condition})' for condition in groups)}, false)")

    def without(self, batch: DataFrame, places: Sequence[Place]) -> DataFrame:
        return batch.where(~self.matches(batch, places))


def place_text(place: Place) -> str:
    if place[0] == CONTENT:
        return "a row that has no coordinates of its own"
    if len(place) == 3:
        return f"{place[0]}-{place[1]}@{place[2]}"
    return f"{place[0]} row {place[1]}" if len(place) == 2 else str(place[0])


def _sql_value(part: str | int) -> str:
    return literal(part) if isinstance(part, str) else f"{part}L"


# Rows numbered from 0, so that ranges of them can be run.


NUMBER, PLACE = "__record", "__place"
"""The result of `monotonically_increasing_id`, and for records the parts of the place as text."""


class NumberedRows:
    """The records of a batch, numbered from 0."""

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows
        parts = rows.groupBy(F.expr(f"shiftright({NUMBER}, 33)").alias("part")).count().orderBy("part").collect()
        self._parts = [int(row[0]) for row in parts]
        self._ends = list(accumulate(int(row[1]) for row in parts))

    @property
    def count(self) -> int:
        return self._ends[-1] if self._ends else 0

    def between(self, first: int, end: int) -> DataFrame:
        """The records from `first` up to but not including `end`, as rows of the batch."""
        if first >= end:
            selected = self._rows.where("false")
        else:
            selected = self._rows.where(f"{NUMBER} BETWEEN {self._id(first)}L AND {self._id(end - 1)}L")
        return with_fence(selected.drop(NUMBER, PLACE))

    def place(self, number: int) -> Place:
        return self.places([number]).get(number, (NOWHERE,))

    def places(self, numbers: Sequence[int]) -> dict[int, Place]:
        """Number -> place, of the records that have one."""
        ids = {self._id(number): number for number in numbers}
        rows = self._rows.where(F.col(NUMBER).isin(list(ids))).select(NUMBER, PLACE).collect()
        return {ids[int(row[0])]: _parse_place(row[1]) for row in rows if None not in row[1]}

    def _id(self, number: int) -> int:
        for index, end in enumerate(self._ends):
            if number < end:
                before = self._ends[index - 1] if index else 0
                return (self._parts[index] << 33) + number - before
        raise IndexError(number)


def _parse_place(parts: Sequence[str]) -> Place:
    """A place from its parts as text, of which all but the first are numbers."""
    first, *numbers = parts
    return (first, *map(int, numbers))


# Why a job failed: because of the rows it read, or for another reason.


_RAISED = "USER_RAISED_EXCEPTION"
EXPECTATION = re.compile(rf"(?<=\[{_RAISED}\] )expectation [^\n]{{1,200}}? failed: [^\n]*?(?= SQLSTATE|\n|$)")
"""What an expectation with the action `fail` raises. A record can contain the same text, but not with Spark's error
class before it at the beginning of a message."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_NOT_THE_USERS = ("site-packages", "dist-packages", "pyspark.zip", "/pyspark/", "/lib/python", "/src/penstock/")
_PENSTOCK_ERROR = re.compile(rf"\[{_RAISED}\] (penstock: |expectation )")
"""What Penstock itself raises in a query: as a signal, for example of a new field, or for an expectation."""
_PACKAGE = str(Path(__file__).parents[1])
_LONGEST = 500


class TransformRaised(Terminal):
    """A Python transform raised while it built its query. `failure` says what and where."""

    def __init__(self, failure: Failure, *, where: str, hint: str | None = None) -> None:
        super().__init__(failure.full, where=where, hint=hint)
        self.failure = failure


@dataclass(frozen=True)
class Failure:
    name: str
    """For example DIVIDE_BY_ZERO or ValueError."""
    message: str
    """One line, with the piece of SQL that failed, if Spark names it."""
    frames: tuple[str, ...] = ()
    """file:line of the user's own code, innermost first."""

    @property
    def full(self) -> str:
        return f"{self.message} ({'; called from '.join(self.frames)})" if self.frames else self.message


def data_failure(error: BaseException) -> Failure | None:
    """The failure, if the data caused it. None if it was the broker, the disk, another writer, the definition, a stop,
    or an expectation with the action `fail`."""
    return _failure(error, only_data=True)


def spark_failure(error: BaseException) -> Failure | None:
    """The failure of any error that Spark raised, whatever the cause."""
    return _failure(error, only_data=False)


def _failure(error: BaseException, *, only_data: bool) -> Failure | None:
    if isinstance(error, TransformRaised):
        return error.failure
    if isinstance(error, PythonException):
        return failure_of_traceback(_message_of(error))
    details = _classify(error)
    if details is None:
        return None
    cause, name, message, frames = details
    if only_data and (cause != "data" or (name == _RAISED and _PENSTOCK_ERROR.match(message))):
        return None
    return Failure(name, message, tuple(frames.splitlines()))


def failure_of(run: Callable[[], object]) -> Failure | None:
    """What an expression raises when this is run; any other error is raised."""
    try:
        run()
    except Exception as error:
        failure = data_failure(error)
        if failure is None:
            raise
        return failure
    return None


def is_committed(log: DeltaLog, entry: Entry) -> bool:
    """Whether the entry's batch, or fill, is in the log: an error raised after that is not about the data. The entry
    that opened a generation has the number of its fill."""
    since = -1 if entry.seen is None else entry.seen
    return any(
        commit.entry is not None and (commit.entry.key, commit.entry.kind) == (entry.key, entry.kind)
        for commit in log.since(since)
    )


def failure_of_traceback(text: str) -> Failure:
    """The failure in a traceback as Python prints it: its last line, and the frames in the user's code."""
    last_line, in_traceback = "", False
    for line in text.splitlines():
        if line.startswith("Traceback (most recent"):
            in_traceback = True
        elif in_traceback and line.strip() and not line.startswith(" "):  # the first line after the frames
            last_line, in_traceback = line.strip(), False
    frames = [f"{file}:{line}" for file, line, _ in _FRAME.findall(text) if is_user_code(file)]
    name = last_line.split(":", 1)[0] or "PythonException"
    return Failure(name.rsplit(".", 1)[-1], _shortened(last_line or "an error of Python"), _distinct(frames))


def failure_of_exception(error: BaseException) -> Failure:
    """The failure of an exception raised in this process."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        if is_user_code(trace.tb_frame.f_code.co_filename):
            frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    name = type(error).__name__
    text = " ".join(str(error).split())
    return Failure(name, _shortened(f"{name}: {text}" if text else name), _distinct(frames))


def is_user_code(file: str) -> bool:
    return not file.startswith(("<", _PACKAGE)) and not any(part in file for part in _NOT_THE_USERS)


def _distinct(frames: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reversed(frames)))


def _classify(error: BaseException) -> list[str] | None:
    origin: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    jvm = running_jvm()
    if origin is None or jvm is None:
        return None
    try:
        return [str(part) for part in jvm.penstock.isolation.Failures.about(origin)]
    except Exception:  # the JVM has ended, or is not ours
        return None


def _message_of(error: BaseException) -> str:
    return str(getattr(error, "_desc", None) or getattr(error, "_message", None) or error)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


# Finding the records that make a batch fail, by bisection.
#
#     probes = failing records * log2(records), about
#
# If one half passes, the other one must fail, so it is split without being tried as a whole.


Probe = Callable[[int, int], Failure | None]
"""Runs the records from one number up to, but not including, another, and returns what they raise."""


@dataclass(frozen=True)
class FailingRecord:
    number: int
    failure: Failure


class TooManyFailures(Exception):
    """More records fail than allowed."""

    def __init__(self, found: list[FailingRecord]) -> None:
        super().__init__(len(found))
        self.failing = found


class FailTogether(Exception):
    """No single record fails, but this range does: the smallest one found."""

    def __init__(self, first: int, end: int, failure: Failure) -> None:
        super().__init__(first, end)
        self.first, self.end, self.failure = first, end, failure


def find_failing(count: int, probe: Probe, failure: Failure, most: int) -> list[FailingRecord]:
    """The failing ones among `count` records, which as a whole fail with `failure`. Raises TooManyFailures or
    FailTogether."""
    failing: list[FailingRecord] = []
    # Ranges to search, the first one last; each with what it raises (None if its failure is only inferred) and the
    # smallest enclosing range that is known to fail.
    pending: list[tuple[int, int, Failure | None, tuple[int, int, Failure]]] = [
        (0, count, failure, (0, count, failure))
    ]
    while pending:
        first, end, raised, enclosing = pending.pop()
        if raised is not None:
            enclosing = (first, end, raised)
        if end - first == 1:
            raised = raised or probe(first, end)
            if raised is None:
                raise _smallest_range(*enclosing, probe)
            failing.append(FailingRecord(first, raised))
            if len(failing) > most:
                raise TooManyFailures(failing)
            continue
        middle = (first + end) // 2
        left = probe(first, middle)
        if left is None:
            pending.append((middle, end, None, enclosing))
            continue
        right = probe(middle, end)
        if right is not None:
            pending.append((middle, end, right, enclosing))
        pending.append((first, middle, left, enclosing))
    return failing


def first_failing(count: int, probe: Probe) -> int | None:
    """The number of the first record that fails by itself; None if none does."""
    first, end = 0, count
    while end - first > 1:
        middle = (first + end) // 2
        first, end = (first, middle) if probe(first, middle) is not None else (middle, end)
    return first if count and probe(first, end) is not None else None


def _smallest_range(first: int, end: int, failure: Failure, probe: Probe) -> FailTogether:
    """A failing range that passes if it is shortened at either end."""
    low, high = first, end  # the end: the smallest that fails lies in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        raised = probe(first, middle)
        if raised is None:
            low = middle
        else:
            high, failure = middle, raised
    end = high
    low, high = first, end  # the beginning: the largest that fails lies in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        raised = probe(middle, end)
        if raised is None:
            high = middle
        else:
            low, failure = middle, raised
    return FailTogether(low, end, failure)
