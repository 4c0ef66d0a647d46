"""The tables that a query may name, and which version of each it reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from penstock.errors import UsageError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.pending import forgotten_after
from penstock.plan.quarantine import SUFFIX, quarantine_of, tombstones_of
from penstock.sources.delta_changes import unbroken
from penstock.spec.base_model import nearest

if TYPE_CHECKING:
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store

# The tables that a query may name: those of the project, what they rejected or deleted, the ledgers of its sinks.


@dataclass(frozen=True)
class Readable:
    name: str
    uri: str
    tombstones: str | None = None
    """Of a merged table: where its tombstones are."""


class Names:
    def __init__(self, plan: Plan) -> None:
        tables = [
            Readable(one.name, one.uri, tombstones_of(one.name, one.uri).uri if one.write.merge is not None else None)
            for one in plan.tables
        ]
        beside = [place(one.name, one.uri) for one in plan.tables for place in (quarantine_of, tombstones_of)]
        # One that a table no longer needs may still be there.
        self._known = {one.name.casefold(): one for one in (*tables, *(Readable(one.table, one.uri) for one in beside))}
        rejecting = {quarantine_of(one.name, one.uri).table for one in plan.tables if one.may_reject}
        merged = [one for one in plan.tables if one.write.merge is not None and one.write.merge.deletes]
        deleting = {tombstones_of(one.name, one.uri).table for one in merged}
        names = {one.name for one in tables} | rejecting | deleting
        self.all = tuple(sorted((one for one in self._known.values() if one.name in names), key=lambda one: one.name))

    def find(self, parts: Sequence[str], shown: str) -> Readable:
        """By the parts of its name, whatever their capitals. `shown` is its place in the query, for the error."""
        name = ".".join(parts)
        if found := self._known.get(name.casefold()):
            return found
        names = [one.name for one in self.all]
        same = next((one for one in names if one.casefold().endswith(f".{name.casefold()}")), None)
        meant, there = same or nearest(name, names), f"here are: {', '.join(names)}"
        hint = f"did you mean '{meant}'? T{there}" if meant else f"t{there}"
        raise UsageError(f"there is no table '{name}' in this project\n{shown}".rstrip(), hint=hint)


# A table in one version: what a query reads.


@dataclass(frozen=True)
class TableVersion:
    table: Readable
    version: int

    def __str__(self) -> str:
        return f"{self.table.name}@v{self.version}"


# Which version of a table a query reads: the newest, taken once, or the one that it names. From the log, by hand.


_NUMBER = re.compile(r"[vV]?(\d+)")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


class Versions:
    """The tables as they are while one query is asked: each has one newest version, however often it is named."""

    def __init__(self, store: Store, zone: str) -> None:
        """`zone` is the session's, in Spark's words: a time that names none is meant in it."""
        self._store, self._zone = store, zone
        self._logs: dict[str, RecentLog] = {}

    def of(self, table: Readable, at: str | None) -> int:
        """`at` is a version or a time, as it is written; None means now. Raises UsageError if there is no such one."""
        if at is None:
            return self._newest(table)
        if number := _NUMBER.fullmatch(at.strip()):
            return self._not_forgotten(table, self._numbered(table, int(number[1])))
        return self._not_forgotten(table, self._as_of(table, _time(at, self._zone)))

    def exists(self, table: Readable) -> bool:
        return self._log(table).newest() >= 0

    def _log(self, table: Readable) -> RecentLog:
        if table.name not in self._logs:
            self._logs[table.name] = RecentLog(self._store, table.uri, table.name)
        return self._logs[table.name]

    def _newest(self, table: Readable) -> int:
        newest = self._log(table).newest()
        if newest < 0:
            raise UsageError(f"{table.name} is not created yet", hint="`penstock run` makes it")
        return newest

    def _oldest(self, table: Readable) -> int:
        """The oldest version that the log still tells of."""
        newest = self._newest(table)
        return unbroken([one for one in self._log(table).versions() if one <= newest])

    def _numbered(self, table: Readable, number: int) -> int:
        newest = self._newest(table)
        oldest = self._oldest(table)
        if oldest <= number <= newest:
            return number
        there = f"versions {oldest} to {newest}" if oldest < newest else f"version {newest} only"
        history = f"`penstock history {table.name}` shows when each was made, and by what"
        raise UsageError(
            f"{table.name} has no version {number}: it has {there}",
            hint=f"write {table.name}@v{newest}" if table.name.endswith(SUFFIX) else history,
        )

    def _as_of(self, table: Readable, time: datetime) -> int:
        """The newest commit at or before it."""
        oldest, wanted = self._oldest(table), time.timestamp() * 1000
        low, high = oldest, self._newest(table) + 1
        while low < high:
            middle = (low + high) // 2
            if self._time_ms(table, middle) <= wanted:
                low = middle + 1
            else:
                high = middle
        if low > oldest:
            return low - 1
        first = datetime.fromtimestamp(self._time_ms(table, oldest) / 1000, time.tzinfo)
        raise UsageError(
            f"{table.name} is not known as of {_shown(time)}: its oldest version, {oldest}, is of {_shown(first)}",
            hint=f"name a later time, or a version: {table.name}@v{oldest}",
        )

    def _not_forgotten(self, table: Readable, version: int) -> int:
        forgotten = forgotten_after(self._log(table), version)
        if forgotten is None:
            return version
        raise UsageError(
            f"version {version} of {table.name} cannot be read any more: somebody was forgotten in version {forgotten}",
            hint=f"write {table.name}@v{forgotten}, or a later one",
        )

    def _time_ms(self, table: Readable, version: int) -> int:
        commit = self._log(table).commit(version)
        return 0 if commit is None else commit.timestamp_ms


def zone_of(plan: Plan) -> str:
    return plan.conf.get("spark.sql.session.timeZone", "UTC")


def session_zone(name: str) -> tzinfo:
    """Spark's names of time zones: those of the world, and offsets."""
    if found := _OFFSET.fullmatch(name.strip()):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-offset if found[1] == "-" else offset)
    if name.strip() in ("Z", "UTC"):
        return UTC
    try:
        return ZoneInfo(name.strip())
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"the time zone of the session, {name}, is not known here",
            hint='write the time with its distance from UTC: @"2026-05-14T09:00+02:00"',
        ) from None


def _time(written: str, zone: str) -> datetime:
    """A date alone is its midnight; without a zone of its own it is meant in that of the session."""
    try:
        time = datetime.fromisoformat(written.strip())
    except ValueError:
        raise UsageError(
            f"@'{written}' is neither a version nor a time",
            hint='write @v12, or a time as in @"2026-05-14 09:00" or @"2026-05-14T09:00:00+02:00"',
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=session_zone(zone))


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} {time.tzname()}"
