"""A replay that is not done keeps what it reads, what it has written, and what it would go back to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import dump
from penstock.ledger.head import read_head
from penstock.ledger.pending import Replay, replay_document
from penstock.maintenance.retention import HOUR_MS
from penstock.storage.stores import LocalStore
from tests.unit.vacuum_lake import Lake, at_version, make_plan


def test_a_table_that_is_being_replayed_keeps_files_that_are_in_no_commit_yet(tmp_path: Path) -> None:
    lake = Lake(make_plan(tmp_path))
    lake.append()
    tail = read_head(DeltaLog(LocalStore(), lake.uri, "bronze.orders"))
    assert tail is not None
    opened = lake.now
    pins = replace(tail.entry.pins, time_ms=opened)
    lake.commit(
        [],
        entry=replace(
            tail.entry, kind="open", generation=2, batch=0, pins=pins, pending=replay_document(Replay(1, ()))
        ),
    )
    lake.pass_(40)
    found = lake.horizon()
    assert found.at_ms == opened - HOUR_MS


def test_a_reader_that_is_being_replayed_keeps_what_it_reads_and_where_it_was(tmp_path: Path) -> None:
    lake = Lake(make_plan(tmp_path))
    for _ in range(4):
        lake.append()
    before = at_version(2)
    lake.reads("silver.orders", before, at_version(5))
    table = lake.plan.table("silver.orders")
    assert table is not None
    log = DeltaLog(LocalStore(), table.uri, table.name)
    tail = read_head(log)
    assert tail is not None
    moved = str(at_version(5))
    pending = replay_document(Replay(1, (str(before),), 4))
    entry = replace(
        tail.entry, kind="open", generation=2, batch=0, before=(str(before),), after=(moved,), pending=pending
    )
    info = {"operation": "WRITE", "inCommitTimestamp": lake.now, "userMetadata": dump(entry)}
    (Path(table.uri) / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"commitInfo": info}))
    lake.optimize()
    lake.pass_(100)
    (need,) = (one for one in lake.horizon().needs if one.reader == "silver.orders")
    assert need.first_version == 2
    assert not lake.deleted(lake.horizon())
