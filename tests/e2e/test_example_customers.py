"""The customers example: PostgreSQL compares its copy; here the tables between are compared with Debezium's records."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.batch_query import Lake, moment
from tests.e2e.run_demo import demonstrate

BEFORE = 2_000
Image = tuple[Any, ...]
_COLUMNS = ("name", "city", "credit", "updated_by", "updated_at")


@pytest.mark.deep
def test_the_customers_are_as_they_are_and_were_and_every_change_is_audited(tmp_path: Path) -> None:
    lake = demonstrate("customers", tmp_path, count=600, proof="the copy equals the source, row by row")
    events = _events(lake)
    ops = Counter("none" if after is None else "some" for _, after in events)
    assert ops["some"] > BEFORE and ops["none"] > 30, ops
    now = {one: after for one, after in dict(events).items() if after is not None}
    living = [row for row in lake.rows("silver.customers") if not row["_deleted"]]
    assert Counter((row["id"], _image(row)) for row in living) == Counter(now.items())

    history = [row for row in lake.rows("silver.customers_history") if not row["_deleted"]]
    assert Counter((row["id"], _image(row)) for row in history) == Counter(one for one in events if one[1] is not None)
    assert {row["id"]: _image(row) for row in history if row["is_current"]} == now
    _check_intervals(history)

    audit = sorted(lake.rows("audit.customers"), key=lambda row: row["version"])
    assert _replayed(audit) == now
    assert {row["changed_by"] for row in audit} == {"web", "desk", "batch"}
    assert {row["change_type"] for row in audit} == {"insert", "update", "delete"}


def _events(lake: Lake) -> list[tuple[int, Image | None]]:
    """Every change in the order in which the database made it: the topic has one partition."""
    found: list[tuple[int, Image | None]] = []
    for record in lake.records("bronze.customers"):
        if record.value is None:
            continue  # the tombstone after a delete
        event = json.loads(record.value)
        row = event["after"] or event["before"]
        found.append((row["id"], _decoded(event["after"]) if event["after"] else None))
    return found


def _decoded(row: dict[str, Any]) -> Image:
    credit = None if row["credit"] is None else Decimal(row["credit"])
    return row["name"], row["city"], credit, row["updated_by"], moment(row["updated_at"])


def _image(row: dict[str, Any] | None) -> Image | None:
    return None if row is None else tuple(row[name] for name in _COLUMNS)


def _check_intervals(history: Iterable[dict[str, Any]]) -> None:
    """No version of a customer begins before the one before it ends."""
    of: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in history:
        of[row["id"]].append(row)
    for rows in of.values():
        rows.sort(key=lambda row: row["_sequence"])
        for one, then in pairwise(rows):
            assert one["valid_to"] is not None and one["valid_from"] <= one["valid_to"] <= then["valid_from"]
        assert (rows[-1]["valid_to"] is None) == rows[-1]["is_current"]


def _replayed(audit: Iterable[dict[str, Any]]) -> dict[int, Image]:
    """What the changes make one after the other: each begins with what the one before it left."""
    state: dict[int, Image | None] = {}
    for row in audit:
        assert state.get(row["id"]) == _image(row["before"]), row
        state[row["id"]] = _image(row["after"])
    return {one: after for one, after in state.items() if after is not None}
