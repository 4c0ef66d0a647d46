"""How many rows a quarantine holds, and how many it would hold after its table went back."""

from __future__ import annotations

from penstock.engine.protocol.log import DeltaLog
from penstock.engine.quarantine import version_of
from penstock.engine.rewind.then import Then
from penstock.engine.store import Store
from penstock.ops.verify.rows import count_at
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import quarantine_of


def rejected_now_and_then(table: TablePlan, store: Store, then: Then) -> tuple[int, int]:
    place = quarantine_of(table.name, table.uri)
    log = DeltaLog(store, place.uri, place.table)
    if not table.may_reject or not log.versions():
        return 0, 0
    return count_at(place.uri, None), count_at(place.uri, version_of(log, then.entry.key, then.until_ms))
