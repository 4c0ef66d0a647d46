"""All that a table's own files tell: read once, without a JVM and without a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.doctor.rejected import DAY_MS, read_rejected, read_rescued
from penstock.doctor.retention import readings, upstream_of
from penstock.doctor.table_log import (
    COMMITS,
    COMMITS_REMOTE,
    Lately,
    bytes_at,
    lately,
    layout,
    longest_pause,
    version_at,
)
from penstock.errors import PenstockError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.head import read_head
from penstock.operations.status import Status, standing
from penstock.plan.quarantine import quarantine_of

if TYPE_CHECKING:
    from penstock.doctor.rejected import Rejected, Rescued
    from penstock.doctor.retention import UpstreamFacts, UpstreamLog
    from penstock.doctor.table_log import (
        Pause,
        StoredLayout,
    )
    from penstock.ledger.entry import Entry
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

T = TypeVar("T")
_LONGEST = 300


@dataclass(frozen=True)
class TableSnapshot:
    """What could not be read is None, and `unknown` says why, by what it was."""

    table: TablePlan
    status: Status
    entry: Entry | None = None
    lately: Lately = field(default_factory=Lately)
    pause: Pause | None = None
    layout: StoredLayout | None = None
    daily: int | None = None
    """Bytes by which it and its quarantine grew in the last day."""
    readings: tuple[UpstreamLog, ...] = ()
    upstreams: tuple[UpstreamFacts, ...] = ()
    rejected: Rejected | None = None
    rescued: Rescued | None = None
    unknown: dict[str, str] = field(default_factory=dict)


def see(plan: Plan, table: TablePlan, store: Store, now_ms: float) -> TableSnapshot:
    """Never raises because of the table: a damaged log, a file that is gone, a store that refuses."""
    unknown: dict[str, str] = {}

    def try_to(what: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # `deltalake` raises plain Exception; a panic in it is not even that
            unknown[what] = _said(error)
            return None

    log = RecentLog(store, table.uri, table.name)
    status = try_to("status", lambda: standing(plan, [table], store)[0]) or Status(
        table.name, "unreadable", reason=unknown.get("status")
    )
    tail = try_to("ledger", lambda: read_head(log))
    if tail is None:
        return TableSnapshot(table, status, unknown=unknown)
    recent = try_to("commits", lambda: lately(log, COMMITS if plan.local else COMMITS_REMOTE)) or Lately()
    entry = tail.entry
    read: list[UpstreamLog] = []
    if table.delta is not None:
        read = try_to("upstream", lambda: readings(table, entry, store)) or []
    found = try_to("upstream", lambda: [upstream_of(one, entry) for one in read]) or []
    rescues = table.stages is not None and table.stages.decode is not None and table.stages.decode.rescue
    return TableSnapshot(
        table=table,
        status=status,
        entry=entry,
        lately=recent,
        pause=try_to("pause", lambda: longest_pause(log)),
        layout=try_to("layout", lambda: layout(store, table.uri, log.newest())),
        daily=try_to("daily", lambda: _daily(table, store, now_ms)),
        readings=tuple(read),
        upstreams=tuple(found),
        rejected=try_to("quarantine", lambda: read_rejected(table, store, now_ms)) if table.may_reject else None,
        rescued=try_to("rescued", lambda: _rescued(store, table, recent)) if rescues else None,
        unknown=unknown,
    )


def _daily(table: TablePlan, store: Store, now_ms: float) -> int | None:
    place = quarantine_of(table.name, table.uri)
    grown = [
        _grown(RecentLog(store, uri, name), store, uri, now_ms)
        for uri, name in ((table.uri, table.name), (place.uri, place.table))
    ]
    known = [one for one in grown if one is not None]
    return sum(known) if known else None


def _grown(log: RecentLog, store: Store, uri: str, now_ms: float) -> int | None:
    """A table that is younger than a day has grown by all of it."""
    if log.newest() < 0:
        return None
    now, version = bytes_at(store, uri, log.newest()), version_at(log, now_ms - DAY_MS)
    then = bytes_at(store, uri, version) if version is not None else 0
    return None if now is None or then is None else max(0, now - then)


def _rescued(store: Store, table: TablePlan, recent: Lately) -> Rescued | None:
    return read_rescued(store, table.uri, [batch.version for batch in recent.recent if batch.rows])


def _said(error: BaseException) -> str:
    if isinstance(error, PenstockError):
        return error.message
    text = " ".join(str(error).split()) or type(error).__name__
    plain = "".join(letter for letter in text if letter.isprintable())
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"
