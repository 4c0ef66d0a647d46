"""Why a job failed, and which of its records made it fail: found by halves."""

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
from penstock.spark.expressions import fenced
from penstock.spark.jvm import running_jvm
from penstock.spark.sql_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.ledger.entry import Place
    from penstock.plan.model import TablePlan

# Which records of a batch: by their coordinates; where those are not the same each time, by what is in them.


CONTENT = "#"
"""The first part of a place that is no place, but the hash of a record."""
NOWHERE = "a record without coordinates"


class Places:
    def __init__(self, table: TablePlan) -> None:
        self._table = table

    def of(self, batch: DataFrame) -> list[str]:
        """Expressions over the rows of a batch: the parts of a place."""
        brought, columns = self._table.input, batch.columns
        if self._table.topics is not None:
            return ["topic", "partition", "offset"]
        if brought.coordinates == "file" and brought.stable and ROW in columns:
            return [FILE, ROW]
        if brought.coordinates == "carried" and brought.stable:
            names = ("topic", "partition", "offset") if brought.origin == "kafka" else ("file", "row")
            return [f"{SOURCE}.{name}" for name in names]
        if brought.coordinates == "kafka" and brought.stable:
            return [quote(brought.raw[name]) for name in ("topic", "partition", "offset")]
        text = f"to_json(struct({', '.join(quote(name) for name in columns if name not in (FILE, ROW))}))"
        return [f"'{CONTENT}'", f"xxhash64({text})", f"xxhash64('{CONTENT}', {text})"]

    def by_content(self, batch: DataFrame) -> bool:
        return self.of(batch)[0] == f"'{CONTENT}'"

    def are(self, batch: DataFrame, places: Sequence[Place]) -> Column:
        """Whether a row of the batch is one of them."""
        parts = self.of(batch)
        by_group: dict[tuple[str | int, ...], list[str]] = {}
        for place in places:
            by_group.setdefault(tuple(place[:-1]), []).append(_value(place[-1]))
        groups = [
            " AND ".join([*(f"{part} = {_value(value)}" for part, value in zip(parts, group, strict=False)), last])
            for group, numbers in by_group.items()
            for last in [f"{parts[-1]} IN ({', '.join(numbers)})"]
        ]
        return F.expr(f"coalesce({' OR '.join(f'({one})' for one in groups)}, false)")

    def without(self, batch: DataFrame, places: Sequence[Place]) -> DataFrame:
        return batch.where(~self.are(batch, places))


def shown(place: Place) -> str:
    if place[0] == CONTENT:
        return "a row that has no coordinates of its own"
    if len(place) == 3:
        return f"{place[0]}-{place[1]}@{place[2]}"
    return f"{place[0]} row {place[1]}" if len(place) == 2 else str(place[0])


def _value(part: str | int) -> str:
    return literal(part) if isinstance(part, str) else f"{part}L"


# Rows that are numbered from 0 on, so that parts of them can be run.


NUMBER, PLACE = "__record", "__place"
"""What `monotonically_increasing_id` gave, and, of records, the parts of the place as text."""


class Numbered:
    """The records of a batch, numbered from 0 on."""

    def __init__(self, kept: DataFrame) -> None:
        self._kept = kept
        parts = kept.groupBy(F.expr(f"shiftright({NUMBER}, 33)").alias("part")).count().orderBy("part").collect()
        self._parts = [int(row[0]) for row in parts]
        self._ends = list(accumulate(int(row[1]) for row in parts))

    @property
    def count(self) -> int:
        return self._ends[-1] if self._ends else 0

    def between(self, first: int, end: int) -> DataFrame:
        """Those from `first` on and before `end`, as rows of the batch."""
        if first >= end:
            chosen = self._kept.where("false")
        else:
            chosen = self._kept.where(f"{NUMBER} BETWEEN {self._id(first)}L AND {self._id(end - 1)}L")
        return fenced(chosen.drop(NUMBER, PLACE))

    def place(self, number: int) -> Place:
        return self.places([number]).get(number, (NOWHERE,))

    def places(self, numbers: Sequence[int]) -> dict[int, Place]:
        """Those that have one."""
        ids = {self._id(number): number for number in numbers}
        rows = self._kept.where(F.col(NUMBER).isin(list(ids))).select(NUMBER, PLACE).collect()
        return {ids[int(row[0])]: _place(row[1]) for row in rows if None not in row[1]}

    def _id(self, number: int) -> int:
        for index, end in enumerate(self._ends):
            if number < end:
                before = self._ends[index - 1] if index else 0
                return (self._parts[index] << 33) + number - before
        raise IndexError(number)


def _place(parts: Sequence[str]) -> Place:
    """As text they come, and all but the first are numbers."""
    first, *numbers = parts
    return (first, *map(int, numbers))


# Why a job failed: because of the rows that it read, or because of something else.


_RAISED = "USER_RAISED_EXCEPTION"
EXPECTATION = re.compile(rf"(?<=\[{_RAISED}\] )expectation [^\n]{{1,200}}? failed: [^\n]*?(?= SQLSTATE|\n|$)")
"""What an expectation with the action `fail` raises. A record can hold the same text, but not Spark's word before it at
the beginning of a message."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_NOT_THE_USERS = ("site-packages", "dist-packages", "pyspark.zip", "/pyspark/", "/lib/python", "/src/penstock/")
_OWN = re.compile(rf"\[{_RAISED}\] (penstock: |expectation )")
"""What Penstock raises in a query: to be told of something, a field that is new, say; or for an expectation."""
_PACKAGE = str(Path(__file__).parents[1])
_LONGEST = 500


class TransformRaised(Terminal):
    """A Python transform raised while it made its query. `failure` says what and where."""

    def __init__(self, failure: Failure, *, where: str, hint: str | None = None) -> None:
        super().__init__(failure.full, where=where, hint=hint)
        self.failure = failure


@dataclass(frozen=True)
class Failure:
    name: str
    """DIVIDE_BY_ZERO, ValueError."""
    message: str
    """In one line; with the piece of SQL that it is about, if Spark says it."""
    frames: tuple[str, ...] = ()
    """file:line of the user's own code, innermost first."""

    @property
    def full(self) -> str:
        return f"{self.message} ({'; called from '.join(self.frames)})" if self.frames else self.message


def data_failure(error: BaseException) -> Failure | None:
    """None if the data are not to blame: the broker, the disk, another writer, the definition, a stop; or an
    expectation that says that the batch shall fail."""
    if isinstance(error, TransformRaised):
        return error.failure
    if isinstance(error, PythonException):
        return of_traceback(_text(error))
    found = _about(error)
    if found is None or found[0] != "data" or (found[1] == _RAISED and _OWN.match(found[2])):
        return None
    return Failure(found[1], found[2], tuple(found[3].splitlines()))


def described(error: BaseException) -> Failure | None:
    """The same of any error that Spark has raised, whatever is to blame."""
    if isinstance(error, TransformRaised):
        return error.failure
    if isinstance(error, PythonException):
        return of_traceback(_text(error))
    found = _about(error)
    return None if found is None else Failure(found[1], found[2], tuple(found[3].splitlines()))


def of_traceback(text: str) -> Failure:
    """Of a traceback as Python prints it: its last line, and the frames that are the user's own."""
    said, within = "", False
    for line in text.splitlines():
        if line.startswith("Traceback (most recent"):
            within = True
        elif within and line.strip() and not line.startswith(" "):  # the first line after the frames
            said, within = line.strip(), False
    frames = [f"{file}:{line}" for file, line, _ in _FRAME.findall(text) if is_users(file)]
    name = said.split(":", 1)[0] or "PythonException"
    return Failure(name.rsplit(".", 1)[-1], _shortened(said or "an error of Python"), _distinct(frames))


def of_exception(error: BaseException) -> Failure:
    """Of an exception of this process."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    name = type(error).__name__
    text = " ".join(str(error).split())
    return Failure(name, _shortened(f"{name}: {text}" if text else name), _distinct(frames))


def is_users(file: str) -> bool:
    return not file.startswith(("<", _PACKAGE)) and not any(part in file for part in _NOT_THE_USERS)


def _distinct(frames: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reversed(frames)))


def _about(error: BaseException) -> list[str] | None:
    origin: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    jvm = running_jvm()
    if origin is None or jvm is None:
        return None
    try:
        return [str(one) for one in jvm.penstock.isolation.Failures.about(origin)]
    except Exception:  # the JVM has gone, or is not ours
        return None


def _text(error: BaseException) -> str:
    return str(getattr(error, "_desc", None) or getattr(error, "_message", None) or error)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


# Which of many records make a batch fail: found by halves.
#
#     probes = failing records * log2(records), about
#
# A half that passes is known to be fine; then the other half has to fail, and is not tried as a whole.


Probe = Callable[[int, int], Failure | None]
"""Runs the records from one number up to, but not including, another; what they raise."""


@dataclass(frozen=True)
class Found:
    number: int
    failure: Failure


class TooMany(Exception):
    """More records fail than may."""

    def __init__(self, found: list[Found]) -> None:
        super().__init__(len(found))
        self.found = found


class Together(Exception):
    """No single record fails, but these do together: the smallest range that was found."""

    def __init__(self, first: int, end: int, failure: Failure) -> None:
        super().__init__(first, end)
        self.first, self.end, self.failure = first, end, failure


def find_failing(count: int, probe: Probe, failure: Failure, most: int) -> list[Found]:
    """Of `count` records that fail together with `failure`. Raises TooMany, or Together."""
    found: list[Found] = []
    # Ranges that are to be looked into, the first last; with what each raises, None if that is only concluded. And the
    # smallest range around it that is known to fail.
    waiting: list[tuple[int, int, Failure | None, tuple[int, int, Failure]]] = [
        (0, count, failure, (0, count, failure))
    ]
    while waiting:
        first, end, known, around = waiting.pop()
        if known is not None:
            around = (first, end, known)
        if end - first == 1:
            known = known or probe(first, end)
            if known is None:
                raise _smallest(*around, probe)
            found.append(Found(first, known))
            if len(found) > most:
                raise TooMany(found)
            continue
        middle = (first + end) // 2
        left = probe(first, middle)
        if left is None:
            waiting.append((middle, end, None, around))
            continue
        right = probe(middle, end)
        if right is not None:
            waiting.append((middle, end, right, around))
        waiting.append((first, middle, left, around))
    return found


def first_failing(count: int, probe: Probe) -> int | None:
    """The number of the first that fails by itself; None if none does."""
    first, end = 0, count
    while end - first > 1:
        middle = (first + end) // 2
        first, end = (first, middle) if probe(first, middle) is not None else (middle, end)
    return first if count and probe(first, end) is not None else None


def _smallest(first: int, end: int, failure: Failure, probe: Probe) -> Together:
    """A range of which nothing can be left out at its ends."""
    low, high = first, end  # the end: the smallest that fails lies in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        tried = probe(first, middle)
        if tried is None:
            low = middle
        else:
            high, failure = middle, tried
    end = high
    low, high = first, end  # the beginning: the largest that fails lies in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        tried = probe(middle, end)
        if tried is None:
            high = middle
        else:
            low, failure = middle, tried
    return Together(low, end, failure)
