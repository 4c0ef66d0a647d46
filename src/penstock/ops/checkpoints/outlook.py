"""What a start of a table would do now: go on, rebuild its checkpoint, open a generation, or refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.engine.delta.start import refuse_lost, table_id
from penstock.engine.delta.version import parse
from penstock.engine.protocol import position
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.engine.stores import store_of
from penstock.errors import BrokerAway, DataLoss, PenstockError, Transient
from penstock.ops.checkpoints.look import Look
from penstock.ops.fit import Fit
from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource, KafkaSource, Plan, TablePlan

BROKER_TIMEOUT = 2.5
"""Seconds that a broker that is away may hold up the answer."""
Does = Literal["make the table", "go on", "rebuild", "open a generation", "wait", "refuse"]


@dataclass(frozen=True)
class Outlook:
    does: Does
    why: str
    hint: str | None = None
    unknown: str | None = None
    """What could not be asked: a start asks it."""


def outlook(plan: Plan, seen: Look, fits: Fit, store: Store) -> Outlook:
    """Asks the broker, or the table upstream, whether it still has what comes next; as `run` does."""
    if seen.refusal is not None:
        return Outlook("refuse", seen.refusal.message, seen.refusal.hint)
    entry = seen.entry
    if entry is None:
        return Outlook("make the table", "there is none yet")
    if fits.refused:
        return Outlook("refuse", fits.follows)
    unknown = None
    try:
        _ask_source(seen.table, entry, store, same=fits.kind != "another source")
    except BrokerAway as error:
        unknown = error.message
    except Transient as error:
        return Outlook("wait", error.message, error.hint)
    except PenstockError as error:
        return Outlook("refuse", error.message, error.hint)
    if fits.kind == "another source":
        return Outlook("open a generation", fits.follows, unknown=unknown)
    if not plan.local and entry.kind != "genesis":
        begins = f"without locks each runner has a generation of its own: {entry.generation + 1}"
        return Outlook("open a generation", f"{begins}, at the ledger's position", unknown=unknown)
    if seen.why is not None:
        at = f"batch {entry.generation}.{entry.batch}"
        return Outlook("rebuild", f"the checkpoint, from the ledger at {at}: {seen.why}", unknown=unknown)
    return Outlook("go on", _goes_on(seen, entry), unknown=unknown)


def _goes_on(seen: Look, entry: Entry) -> str:
    planned, committed = seen.planned or 0, seen.committed if seen.committed is not None else -1
    if planned > entry.batch:
        return f"with batch {planned}, which is planned and was not written"
    if committed < entry.batch and entry.batch > 0:
        return f"with batch {entry.batch} once more: its rows are in the table, and the rest of it is completed"
    return f"with batch {entry.batch + 1}"


def _ask_source(table: TablePlan, entry: Entry, store: Store, *, same: bool) -> None:
    """Raises what a start would raise because of what the table reads. `same`: it reads what it read before."""
    if isinstance(table.source, KafkaSource):
        _ask_broker(table, table.source, entry, same=same)
    elif same:
        by_name = dict(table.stream.inputs) if table.stream is not None else {"": table.source}
        order = entry.subscription.get("order") or list(by_name)
        for name, at in zip(order, entry.after, strict=False):
            _ask_upstream(table.name, by_name.get(name, table.source), at, store)


def _ask_broker(table: TablePlan, source: KafkaSource, entry: Entry, *, same: bool) -> None:
    from penstock.engine.kafka.admin import Admin
    from penstock.engine.kafka.start import reads_committed, require_topics
    from penstock.engine.kafka.start import refuse_lost as refuse_lost_records

    admin = Admin(source.cluster, timeout=BROKER_TIMEOUT)
    topics = admin.topics(source)
    require_topics(source, topics, table.name)
    if same:
        at = position.parse(entry.after[0])
        refuse_lost_records(at, entry.topics, topics, admin, table.name, committed=reads_committed(source))


def _ask_upstream(table: str, source: DeltaSource, at: str, store: Store) -> None:
    called = source.table or source.uri
    log = DeltaLog(store_of(source, store), source.uri, called)
    versions = log.versions()
    if isinstance(source, FilesSource) and not versions:
        raise DataLoss(
            f"the list of files that were read, {source.uri}, is gone",
            hint=f"put it back, or `penstock checkpoints reset {table} --to latest|earliest`",
        )
    refuse_lost(parse(at), table_id(log, versions), versions, table, called)
