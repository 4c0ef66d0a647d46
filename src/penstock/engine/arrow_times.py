"""Times in what `deltalake` answers. A table can hold years that Python's own types cannot: these become a FarTime."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

_DAY = 86_400_000_000
_CYCLE = 146_097
"""Days of 400 years, after which the calendar is the same again."""
_DAYS_BEFORE_1970 = 719_162


@dataclass(frozen=True, order=True)
class FarTime:
    """A time outside the years 1 to 9999."""

    micros: int
    """Since 1970, in UTC."""
    zoned: bool = True
    of_day: bool = False
    """A DATE."""

    @property
    def text(self) -> str:
        """ISO 8601, the year with its sign."""
        days, rest = divmod(self.micros, _DAY)
        cycles, day = divmod(days + _DAYS_BEFORE_1970, _CYCLE)
        near = datetime.combine(date.fromordinal(day + 1), datetime.min.time()) + timedelta(microseconds=rest)
        year = near.year + 400 * cycles
        shown = near.isoformat(timespec="microseconds")[4:]
        sign = "-" if year < 0 else "+" if year > 9999 else ""
        return f"{sign}{abs(year):04d}{shown[:6] if self.of_day else shown + 'Z' * self.zoned}"

    def __str__(self) -> str:
        return self.text


Time = datetime | FarTime


def micros_of(at: Time) -> int:
    if isinstance(at, FarTime):
        return at.micros
    return (at.replace(tzinfo=at.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def values_of(column: Any) -> list[Any]:
    """The values of a column of an answer; its own to_pylist() raises at a year that Python does not know."""
    from arro3.core import DataType

    kind = column.type
    if DataType.is_date32(kind):
        days = column.cast(DataType.int32()).to_pylist()
        return [None if day is None else _time(day * _DAY, None, of_day=True) for day in days]
    if DataType.is_timestamp(kind):
        numbers = column.cast(DataType.timestamp("us", tz=kind.tz)).cast(DataType.int64()).to_pylist()
        return [None if number is None else _time(number, kind.tz) for number in numbers]
    return list(column.to_pylist())


def _time(micros: int, zone: str | None, *, of_day: bool = False) -> Any:
    try:
        made = datetime(1970, 1, 1, tzinfo=UTC if zone else None) + timedelta(microseconds=micros)
    except OverflowError:
        return FarTime(micros, zoned=bool(zone), of_day=of_day)
    return made.date() if of_day else made
