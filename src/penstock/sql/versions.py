"""The tables that a query may name, and the version of each that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.pending import forgotten_after
from penstock.plan.quarantine import COMPANIONS, quarantine_of, tombstones_of
from penstock.sources.delta_changes import first_since, oldest_unbroken
from penstock.spec.base_model import nearest
from penstock.spec.quantity import time_text

if TYPE_CHECKING:
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store


@dataclass(frozen=True)
class Readable:
    name: str
    uri: str
    tombstones: str | None = None
    """For a merged table: the location of its tombstones."""


@dataclass(frozen=True)
class TableVersion:
    table: Readable
    version: int

    def __str__(self) -> str:
        return f"{self.table.name} version {self.version}"


class TableCatalog:
    """The tables of the project, their quarantines and tombstones, and the ledgers of its sinks."""

    def __init__(self, plan: Plan) -> None:
        self._by_name: dict[str, Readable] = {}
        listed = []
        for table in plan.tables:
            quarantine, tombstones = quarantine_of(table.name, table.uri), tombstones_of(table.name, table.uri)
            merge = table.write.merge
            tables = {
                Readable(table.name, table.uri, tombstones.uri if merge is not None else None): True,
                # A companion that a table no longer needs may still exist: it can be read, but is not listed.
                Readable(quarantine.table, quarantine.uri): table.may_reject,
                Readable(tombstones.table, tombstones.uri): merge is not None and bool(merge.deletes),
            }
            self._by_name |= {readable.name.casefold(): readable for readable in tables}
            listed += [readable for readable, is_listed in tables.items() if is_listed]
        self.all = tuple(sorted(listed, key=lambda readable: readable.name))

    def find(self, parts: Sequence[str], position: str) -> Readable:
        """Finds a table by the parts of its name, in any case. `position` is its place in the query, for the error."""
        name = ".".join(parts)
        if table := self._by_name.get(name.casefold()):
            return table
        names = [table.name for table in self.all]
        same_suffix = next(
            (table_name for table_name in names if table_name.casefold().endswith(f".{name.casefold()}")), None
        )
        suggestion = same_suffix or nearest(name, names)
        listing = f"he tables are: {', '.join(names)}"
        hint = f"did you mean '{suggestion}'? T{listing}" if suggestion else f"t{listing}"
        raise UsageError(f"there is no table '{name}' in this project\n{position}".rstrip(), hint=hint)


class Versions:
    """The versions of tables during one query: each has one newest version, however often it is named."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._logs: dict[str, RecentLog] = {}

    def newest(self, table: Readable) -> TableVersion:
        newest = self._log(table).newest()
        if newest < 0:
            raise UsageError(f"{table.name} is not created yet", hint="`penstock run` creates it")
        return TableVersion(table, newest)

    def numbered(self, table: Readable, number: int) -> TableVersion:
        versions = self._versions(table)
        oldest, newest = oldest_unbroken(versions), versions[-1]
        if oldest <= number <= newest:
            return self._require_not_erased(TableVersion(table, number))
        available = f"versions {oldest} to {newest}" if oldest < newest else f"version {newest} only"
        history = f"`penstock history {table.name}` shows when each version was written, and by what"
        raise UsageError(
            f"{table.name} has no version {number}: it has {available}",
            hint=f"write {table.name} VERSION AS OF {newest}" if table.name.endswith(COMPANIONS) else history,
        )

    def as_of(self, table: Readable, timestamp_ms: int) -> TableVersion:
        """The version of the newest commit at or before that time."""
        versions, log = self._versions(table), self._log(table)
        version, oldest = first_since(timestamp_ms + 1, versions, log) - 1, oldest_unbroken(versions)
        if version >= oldest:
            return self._require_not_erased(TableVersion(table, version))
        first = log.commit(oldest)
        raise UsageError(
            f"{table.name} has no version as of {_utc(timestamp_ms)}: its oldest version, {oldest}, was written at "
            f"{_utc(first.timestamp_ms if first is not None else 0)}",
            hint=f"name a later time, or a version: {table.name} VERSION AS OF {oldest}",
        )

    def _log(self, table: Readable) -> RecentLog:
        return self._logs.setdefault(table.name, RecentLog(self._store, table.uri, table.name))

    def _versions(self, table: Readable) -> list[int]:
        newest = self.newest(table).version
        return [version for version in self._log(table).versions() if version <= newest]

    def _require_not_erased(self, table_version: TableVersion) -> TableVersion:
        erasure_version = forgotten_after(self._log(table_version.table), table_version.version)
        if erasure_version is None:
            return table_version
        raise UsageError(
            f"{table_version} cannot be read any more: `forget` erased rows in version {erasure_version}",
            hint=f"write {table_version.table.name} VERSION AS OF {erasure_version}, or a later version",
        )


def _utc(timestamp_ms: int) -> str:
    """Times before 1970, which no version has, are shown as the start of 1970."""
    return f"{time_text(max(timestamp_ms, 0))} UTC"
