"""What the tables of an example should hold: computed from its records in plain Python, by nothing of Penstock's.

Every record is judged alone, copies are taken out by their key, and groups are made of all that is left at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.run_plan import rows_at

Place = tuple[str, int, int]
Row = dict[str, Any]
Kind = Callable[[Any], Any]
"""Gives the value as a table holds it, or raises ValueError."""
SAME_REASON = {"out_of_range": "wrong_type"}
"""Both say that a value does not fit its column."""


class Record(NamedTuple):
    place: Place
    value: str | None
    value_binary: bytes | None


@dataclass
class Judged:
    good: dict[Place, Row] = field(default_factory=dict)
    bad: dict[Place, str] = field(default_factory=dict)
    """Where a rejected record is -> why."""


class Lake:
    """The tables of a project that was left behind."""

    def __init__(self, project: Path) -> None:
        self._lake = project / "lake"

    def rows(self, table: str) -> list[Row]:
        return rows_at(str(self._lake / table.replace(".", "/")))

    def records(self, table: str, value: str = "value") -> list[Record]:
        """As they lie in their topic."""
        found = [
            Record((row["topic"], row["partition"], row["offset"]), row[value], row["value_binary"])
            for row in self.rows(table)
        ]
        assert len({record.place for record in found}) == len(found), "each record once"
        return sorted(found)

    def check(self, table: str, expected: Mapping[Place, Row]) -> None:
        """The table has these rows at these places, each once, and no others."""
        found = self.rows(table)
        assert Counter(map(place, found)) == Counter(expected.keys())
        for row in found:
            assert {name: value for name, value in row.items() if name != "_source"} == expected[place(row)]

    def check_quarantine(self, table: str, judged: Judged, records: Iterable[Record]) -> None:
        """Each rejected record is there once, as it came, for the right reason."""
        came = {record.place: record for record in records}
        found = self.rows(f"{table}__quarantine")
        assert Counter(map(place, found)) == Counter(judged.bad.keys())
        for row in found:
            record = came[place(row)]
            assert (row["value"], row["value_binary"]) == (record.value, record.value_binary)
            assert SAME_REASON.get(row["error_reason"], row["error_reason"]) == judged.bad[record.place], row
            assert row["error_detail"]

    def check_groups(self, table: str, keys: Collection[str], expected: Mapping[tuple[Any, ...], Row]) -> None:
        """The table has these groups with these numbers, each once, and no others."""
        found = {tuple(row[key] for key in keys): row for row in self.rows(table)}
        assert len(found) == len(self.rows(table)), "each group once"
        assert found.keys() == expected.keys()
        for group, row in found.items():
            assert {name: row[name] for name in expected[group]} == expected[group]


def place(row: Row) -> Place:
    source = row["_source"]
    return source["topic"], source["partition"], source["offset"]


def judge(
    records: Iterable[Record],
    fields: Mapping[str, Kind],
    *,
    required: Collection[str] = (),
    expect: Callable[[Row], bool] = lambda row: True,
    made: Callable[[Row], Row] = lambda row: row,
) -> Judged:
    """`made` is what the table's transform makes of a row; `expect` is asked about that."""
    judged = Judged()
    for record in records:
        found = _decoded(record, fields, required)
        if isinstance(found, dict):
            found = made(found)
            found = found if expect(found) else "expectation"
        if isinstance(found, dict):
            judged.good[record.place] = found
        else:
            judged.bad[record.place] = found
    return judged


def first_of_each(good: Mapping[Place, Row], *keys: str) -> dict[Place, Row]:
    """Copies of a record have its key, so they are in its partition, behind it."""
    first: dict[tuple[Any, ...], Place] = {}
    for at in sorted(good):
        first.setdefault(tuple(good[at][key] for key in keys), at)
    return {at: good[at] for at in first.values()}


def groups_of(rows: Iterable[Row], key: Callable[[Row], tuple[Any, ...]]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def window(at: datetime, length: timedelta) -> datetime:
    """The start of the window that the moment lies in."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return at - (at - epoch) % length


def out_of_order(rows: Mapping[Place, Row], time: str) -> int:
    """Rows that are older than one before them in their partition."""
    newest: dict[int, datetime] = {}
    count = 0
    for at in sorted(rows):
        moment = rows[at][time]
        count += moment < newest.get(at[1], moment)
        newest[at[1]] = max(moment, newest.get(at[1], moment))
    return count


def text(value: Any) -> str:
    return _only(value, str)


def whole(value: Any) -> int:
    return _only(value, int)


def decimal(value: Any) -> Decimal:
    return Decimal(_only(value, int, Decimal))


def moment(value: Any) -> datetime:
    return datetime.fromisoformat(_only(value, str))


def struct(fields: Mapping[str, Kind]) -> Kind:
    return lambda value: _row(_only(value, dict), fields)


def _only(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise ValueError(value)
    return value


def _row(content: Mapping[str, Any], fields: Mapping[str, Kind]) -> Row:
    return {name: None if content.get(name) is None else kind(content[name]) for name, kind in fields.items()}


def _decoded(record: Record, fields: Mapping[str, Kind], required: Collection[str]) -> Row | str:
    """The row, or why there is none."""
    if record.value is None:
        return "no_value" if record.value_binary is None else "not_utf8"
    if not record.value.strip():
        return "empty_value"
    try:
        content = json.loads(record.value, parse_float=Decimal)
    except ValueError:
        return "malformed_json"
    try:
        row = _row(content, fields)
    except ValueError:
        return "wrong_type"
    return "missing_field" if any(row[name] is None for name in required) else row


def distinct(rows: list[Row], column: str) -> int:
    return len({row[column] for row in rows} - {None})


def total(rows: list[Row], column: str) -> Decimal:
    return sum((row[column] for row in rows), Decimal(0))
