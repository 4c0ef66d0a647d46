"""The quarantine of a table, read without a JVM: how many rows of the last day, and why."""

from __future__ import annotations

from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.fates import READ, read_fates
from penstock.engine.store import Store
from penstock.ops.doctor.rejected import Rejected, reason_said
from penstock.ops.doctor.times import version_at
from penstock.ops.recent import RecentLog
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import quarantine_of

DAY_MS = 86_400_000
_MOST_REASONS = 1_000


def read_rejected(table: TablePlan, store: Store, now_ms: float) -> Rejected | None:
    """None if the table has no quarantine yet. Raises what `deltalake` raises if its rows cannot be read."""
    place = quarantine_of(table.name, table.uri)
    log, own = RecentLog(store, place.uri, place.table), RecentLog(store, table.uri, table.name)
    if log.newest() < 0 or own.newest() < 0:
        return None
    since = now_ms - DAY_MS
    made = own.commit(0)
    if made is not None and made.timestamp_ms > since:
        since = made.timestamp_ms
    now, then = _total(log, None), _total(log, since)
    earlier = _total(log, since - DAY_MS) if now_ms - since >= DAY_MS else None
    return Rejected(
        seconds=(now_ms - since) / 1000,
        rows=now - (then or 0) if now is not None else 0,
        read=_read(own, table, store, since),
        reasons=_reasons(place.uri, since) if now and now != then else {},
        before=then - earlier if then is not None and earlier is not None else None,
    )


def _total(log: RecentLog, at_ms: float | None) -> int | None:
    """Rows of all batches up to a time, as the quarantine's own ledger counts them."""
    version = log.newest() if at_ms is None else version_at(log, at_ms)
    while version is not None and version >= 0 and (commit := log.commit(version)) is not None:
        if commit.entry is not None:
            return commit.entry.counts.total + (commit.rows if commit.entry.kind == "batch" else 0)
        version -= 1
    return None


def _read(log: RecentLog, table: TablePlan, store: Store, since_ms: float) -> int | None:
    """Rows that the table read since then; None if nobody counts them. Those of the last batch are in a file until the
    entry of the next one has them."""
    now, then = _entry(log, log.newest()), _entry(log, version_at(log, since_ms))
    if now is None:
        return None
    last = read_fates(store, folder_of(table.checkpoints, now), now.batch) if now.kind == "batch" else {}
    if READ not in now.counts.fates and READ not in last:
        return None
    before = then.counts.fates.get(READ, 0) if then is not None else 0
    return now.counts.fates.get(READ, 0) + last.get(READ, 0) - before


def _entry(log: RecentLog, version: int | None) -> Entry | None:
    while version is not None and version >= 0 and (commit := log.commit(version)) is not None:
        if commit.entry is not None:
            return commit.entry
        version -= 1
    return None


def _reasons(uri: str, since_ms: float) -> dict[str, int]:
    from deltalake import QueryBuilder

    from penstock.ops.verify.rows import open_table

    engine = QueryBuilder().register("rows", open_table(uri))
    batches = engine.execute(
        "SELECT error_reason, CASE WHEN error_reason = 'expectation' THEN error_detail "
        "ELSE split_part(error_detail, ':', 1) END AS detail, count(*) AS rows FROM rows "
        f"WHERE error_timestamp >= to_timestamp_millis({round(since_ms)}) GROUP BY 1, 2 ORDER BY 3 DESC "
        f"LIMIT {_MOST_REASONS}"
    )
    found: dict[str, int] = {}
    for batch in batches:
        for reason, detail, rows in zip(*(batch.column(index).to_pylist() for index in range(3)), strict=True):
            said = reason_said(reason, detail)
            found[said] = found.get(said, 0) + int(rows)
    return found
