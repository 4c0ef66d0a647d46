"""Everything that a table's own files show: read once, without a JVM and without a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.doctor.rejected import DAY_MS, read_rejected, read_rescued
from penstock.doctor.retention import open_upstream_logs, read_upstream_facts
from penstock.doctor.table_log import (
    COMMITS,
    COMMITS_REMOTE,
    RecentCommits,
    bytes_at,
    longest_pause,
    read_layout,
    read_recent_commits,
    version_at,
)
from penstock.errors import PenstockError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.head import read_head
from penstock.operations.status import Status, status_without_broker
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
_MAX_LENGTH = 300


@dataclass(frozen=True)
class TableSnapshot:
    """What could not be read is None; `unknown` maps the name of the missing part to the reason."""

    table: TablePlan
    status: Status
    entry: Entry | None = None
    recent_commits: RecentCommits = field(default_factory=RecentCommits)
    pause: Pause | None = None
    layout: StoredLayout | None = None
    daily_growth: int | None = None
    """Bytes by which the table and its quarantine grew in the last day."""
    upstream_logs: tuple[UpstreamLog, ...] = ()
    upstreams: tuple[UpstreamFacts, ...] = ()
    rejected: Rejected | None = None
    rescued: Rescued | None = None
    unknown: dict[str, str] = field(default_factory=dict)


def read_snapshot(plan: Plan, table: TablePlan, store: Store, now_ms: float) -> TableSnapshot:
    """Never raises because of the table: not for a damaged log, a missing file or a store that refuses access."""
    unknown: dict[str, str] = {}

    def try_to(part: str, read_part: Callable[[], T]) -> T | None:
        try:
            return read_part()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # `deltalake` raises plain Exception; a panic in it is not even that
            unknown[part] = _reason(error)
            return None

    log = RecentLog(store, table.uri, table.name)
    status = try_to("status", lambda: status_without_broker(plan, [table], store)[0]) or Status(
        table.name, "unreadable", reason=unknown.get("status")
    )
    head = try_to("ledger", lambda: read_head(log))
    if head is None:
        return TableSnapshot(table, status, unknown=unknown)
    recent_commits = (
        try_to("commits", lambda: read_recent_commits(log, COMMITS if plan.local else COMMITS_REMOTE))
        or RecentCommits()
    )
    entry = head.entry
    open_upstreams: list[UpstreamLog] = []
    if table.delta is not None:
        open_upstreams = try_to("upstream", lambda: open_upstream_logs(table, entry, store)) or []
    upstreams = (
        try_to("upstream", lambda: [read_upstream_facts(upstream_log, entry) for upstream_log in open_upstreams]) or []
    )
    rescues_fields = table.stages is not None and table.stages.decode is not None and table.stages.decode.rescue
    return TableSnapshot(
        table=table,
        status=status,
        entry=entry,
        recent_commits=recent_commits,
        pause=try_to("pause", lambda: longest_pause(log)),
        layout=try_to("layout", lambda: read_layout(store, table.uri, log.newest())),
        daily_growth=try_to("daily", lambda: _daily_growth(table, store, now_ms)),
        upstream_logs=tuple(open_upstreams),
        upstreams=tuple(upstreams),
        rejected=try_to("quarantine", lambda: read_rejected(table, store, now_ms)) if table.may_reject else None,
        rescued=try_to("rescued", lambda: _rescued(store, table, recent_commits)) if rescues_fields else None,
        unknown=unknown,
    )


def _daily_growth(table: TablePlan, store: Store, now_ms: float) -> int | None:
    quarantine = quarantine_of(table.name, table.uri)
    growths = [
        _growth(RecentLog(store, uri, name), store, uri, now_ms)
        for uri, name in ((table.uri, table.name), (quarantine.uri, quarantine.table))
    ]
    known_growths = [growth for growth in growths if growth is not None]
    return sum(known_growths) if known_growths else None


def _growth(log: RecentLog, store: Store, uri: str, now_ms: float) -> int | None:
    """A table that is younger than a day grew by its whole size."""
    if log.newest() < 0:
        return None
    bytes_now, version_a_day_ago = bytes_at(store, uri, log.newest()), version_at(log, now_ms - DAY_MS)
    bytes_a_day_ago = bytes_at(store, uri, version_a_day_ago) if version_a_day_ago is not None else 0
    return None if bytes_now is None or bytes_a_day_ago is None else max(0, bytes_now - bytes_a_day_ago)


def _rescued(store: Store, table: TablePlan, recent_commits: RecentCommits) -> Rescued | None:
    return read_rescued(store, table.uri, [batch.version for batch in recent_commits.recent if batch.rows])


def _reason(error: BaseException) -> str:
    if isinstance(error, PenstockError):
        return error.message
    text = " ".join(str(error).split()) or type(error).__name__
    printable = "".join(letter for letter in text if letter.isprintable())
    return printable if len(printable) <= _MAX_LENGTH else f"{printable[:_MAX_LENGTH]}…"
