"""The tables that a query may name: those of the project, what they rejected or deleted, the ledgers of its sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import UsageError
from penstock.plan.model import Plan
from penstock.plan.quarantine import quarantine_of, tombstones_of
from penstock.spec.finding import nearest


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
