"""Rows that are lost where some may rightly be left out: the batch is named whose numbers do not add up."""

from __future__ import annotations

import random
from pathlib import Path

from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.ledger.spans import Spans
from penstock.storage.stores import LocalStore
from penstock.verify.context import VerifyContext
from penstock.verify.coordinates import CoordinateTable, landed, read_at
from penstock.verify.counts import _SpanSums, wrong_batches
from penstock.verify.report import Report
from penstock.verify.upstream import Arrival, arrivals
from tests.bronze_table import BronzeTable
from tests.unit.verify_table import begun


def problems(table: BronzeTable) -> list[str]:
    plan, store = table.plan, LocalStore()
    tail = read_head(DeltaLog(store, plan.uri, plan.name))
    assert tail is not None
    found = read_at(CoordinateTable(plan.name, plan.uri, landed(plan.columns)), None, {})
    return list(wrong_batches(VerifyContext(plan, store, tail, Report(plan.name), lambda *_: None), found))


def test_the_ledger_tells_in_which_version_an_offset_came(tmp_path: Path) -> None:
    orders = begun(tmp_path).batch({"orders": {0: 100, 1: 30}}).batch({"orders": {0: 150}}).carry()
    assert arrivals(orders.plan, {}, LocalStore()) == [
        Arrival("orders", 0, 0, 100, 1),
        Arrival("orders", 1, 10, 30, 1),
        Arrival("orders", 0, 100, 150, 2),
    ]


def test_a_row_in_the_place_of_another_batch_is_told_by_both(tmp_path: Path) -> None:
    orders = begun(tmp_path).batch({"orders": {0: 100}}, [("orders", 0, o) for o in range(0, 100, 2)])
    orders.batch({"orders": {0: 150}}, [("orders", 0, o) for o in (101, 120)])
    assert problems(orders) == []
    file = next(iter(Path(orders.plan.uri).glob("*.parquet")))
    assert file.exists()
    orders.batch({"orders": {0: 160}}, [("orders", 0, 3), ("orders", 0, 155)])  # 3 was left out by the first batch
    assert problems(orders) == [
        "batch 1.1 (version 1) wrote 50 rows, the table has 51 of its records: orders-0 [0, 100)",
        "batch 1.3 (version 3) wrote 2 rows, the table has 1 of its records: orders-0 [150, 160)",
    ]


def test_offsets_below_one_are_counted_as_a_plain_loop_counts_them() -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for _ in range(200):
        offsets = {chance.randrange(60) for _ in range(chance.randrange(40))}
        sums = _SpanSums(Spans((one, one + 1) for one in sorted(offsets)))
        for at in range(-1, 62):
            assert sums.below(at) == sum(one < at for one in offsets), (seed, sorted(offsets), at)
