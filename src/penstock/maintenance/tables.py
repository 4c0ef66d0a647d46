"""The Delta tables whose files are maintained together, the locks for it, and the history of maintenance."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import LockHeld, PenstockError, Terminal
from penstock.ledger.entry import dump_maintenance
from penstock.plan.quarantine import (
    COMPANIONS,
    MOVED_ASIDE,
    QUARANTINE_SUFFIX,
    TOMBSTONES,
    quarantine_of,
    tombstones_of,
)
from penstock.storage.locks import JvmLock, acquire_commit, lock_path, owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import MaintenanceNote
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store


@dataclass(frozen=True)
class MaintainedTable:
    name: str
    uri: str
    kind: Literal["table", "quarantine", "tombstones", "files"]
    """files: the list of files that a table has read. It is written without a lock, and compacts itself."""
    zorder_by: tuple[str, ...] = ()
    expected: bool = True
    """False: it exists only if an earlier definition created it."""

    @property
    def ledger(self) -> str:
        """The table name in the entries of its log: the table may have been moved aside since."""
        return self.name.partition(MOVED_ASIDE)[0]


def maintained_tables(table: TablePlan) -> list[MaintainedTable]:
    """The Delta tables that belong to a table, whether they exist yet or not."""
    maintained = [MaintainedTable(table.name, table.uri, "table", table.write.zorder_by)]
    if table.may_reject:
        quarantine = quarantine_of(table.name, table.uri)
        maintained.append(MaintainedTable(quarantine.table, quarantine.uri, "quarantine"))
    if table.write.merge is not None:  # tombstones stay when its definition no longer deletes
        tombstones = tombstones_of(table.name, table.uri)
        maintained.append(
            MaintainedTable(tombstones.table, tombstones.uri, "tombstones", expected=table.write.merge.deletes)
        )
    if table.files is not None:
        maintained.append(MaintainedTable(f"{table.name}.files", table.files.uri, "files"))  # no table can be called so
    return maintained


def unreadable_log(error: Exception, name: str) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    return Terminal(f"its log cannot be read: {' '.join(str(error).split())[:300]}", where=name)


def all_maintained_tables(table: TablePlan, store: Store) -> list[MaintainedTable]:
    """`maintained_tables`, and also those that nothing reads any more but that still hold rows: a quarantine or
    tombstones of an earlier definition, and those of an earlier table of the same name, which were moved aside."""
    maintained = maintained_tables(table)
    uris = {place.uri for place in maintained}
    return [*maintained, *(place for place in _leftover_places(table, store) if place.uri not in uris)]


def _leftover_places(table: TablePlan, store: Store) -> Iterator[MaintainedTable]:
    folder, _, table_folder = table.uri.rpartition("/")
    kinds: dict[str, Literal["quarantine", "tombstones"]] = {QUARANTINE_SUFFIX: "quarantine", TOMBSTONES: "tombstones"}
    for name in sorted(store.names(folder)):
        suffix, moved, _ = name.removeprefix(table_folder).partition(MOVED_ASIDE)
        uri = f"{folder}/{name}"
        if name.startswith(table_folder) and suffix in kinds and (moved or store.names(f"{uri}/_delta_log")):
            yield MaintainedTable(f"{table.name}{name.removeprefix(table_folder)}", uri, kinds[suffix], expected=False)


# Locking on a local lake: against other maintenance commands and against the batches of the table.


PauseBatches = Callable[[], AbstractContextManager[None]]
"""While it is held, no batch of the table runs."""
_PATIENCE = 600.0


@contextmanager
def exclusive_maintenance(spark: SparkSession, plan: Plan, table: str) -> Iterator[None]:
    """Keeps other maintenance off the table meanwhile: a vacuum would take files that an optimize has written but not
    committed yet for files that nobody needs. Raises LockHeld."""
    if not plan.local:
        yield
        return
    path = lock_path(plan.system, table, "upkeep")
    with closing(JvmLock(spark, path)) as lock:
        if not lock.try_acquire():
            holder = owner(path)
            raise LockHeld(
                f"another command looks after its files (process {holder.get('python')}, since {holder.get('since')})",
                where=table,
                hint="wait for it, then run this again",
            )
        lock.sign()
        yield


def paused_batches(spark: SparkSession, plan: Plan, table: str) -> PauseBatches:
    """For a command beside a runner: the table's batches wait, each for at most two minutes before it tries again."""

    @contextmanager
    def pause_batches() -> Iterator[None]:
        if not plan.local:
            yield
            return
        with closing(JvmLock(spark, lock_path(plan.system, table, "commit"))) as lock:
            acquire_commit(lock, table, patience=_PATIENCE)
            yield

    return pause_batches


# Sessions for maintenance: each has separate settings, so that none of them affects a batch.


LOG_STORE = "spark.delta.logStore.file.impl"


def shared_log(lake: str) -> dict[str, str]:
    """The Hadoop settings that jar_data/java/penstock/delta/SharedLog.java reads."""
    return {"penstock.lake": lake, "penstock.companions": ",".join(COMPANIONS)}


def with_commit_waiting(plan: Plan) -> Plan:
    """The plan for a command's session: on a local lake each of its commits waits for the table's commit lock."""
    if not plan.local:
        return plan
    settings = {f"spark.hadoop.{name}": value for name, value in shared_log(plan.lake).items()}
    return replace(plan, conf={**plan.conf, LOG_STORE: "penstock.delta.SharedLog", **settings})


def session_with(spark: SparkSession, confs: Mapping[str, str], note: MaintenanceNote | None = None) -> SparkSession:
    """A new session with these settings; `note` is written into its commits."""
    session = spark.newSession()
    for name, value in confs.items():
        session.conf.set(name, value)
    if note is not None:
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", dump_maintenance(note))
    return session


# The maintenance history of a table: a small file beside its state. If it is lost, the work is done once more.


@dataclass(frozen=True)
class MaintenanceHistory:
    """Times are in milliseconds since 1970."""

    done: Mapping[str, int] = field(default_factory=dict)
    """By kind of work: when it last finished, also if there was nothing to do."""
    began_ms: int | None = None
    """Start of an optimize that has not ended: it may have written files that are not committed yet."""
    ordered: Mapping[tuple[str | None, ...], int] = field(default_factory=dict)
    """By partition: when its rows were last put in order; newer files are not in order."""
    ordered_by: tuple[str, ...] = ()


def _history_path(system: str, table: str) -> str:
    return f"{system}/upkeep/{table}.json"


def read_history(store: Store, system: str, table: str) -> MaintenanceHistory:
    try:
        document: Any = json.loads(store.read(_history_path(system, table)) or "{}")
        ordered = document.get("ordered") or {}
        return MaintenanceHistory(
            {str(work): int(time_ms) for work, time_ms in (document.get("done") or {}).items()},
            document.get("began"),
            {tuple(partition): int(time_ms) for partition, time_ms in ordered.get("at") or ()},
            tuple(ordered.get("by") or ()),
        )
    except (ValueError, TypeError, AttributeError):
        return MaintenanceHistory()


def write_memory(store: Store, system: str, table: str, history: MaintenanceHistory) -> None:
    document: dict[str, Any] = {"done": dict(history.done)}
    if history.began_ms is not None:
        document["began"] = history.began_ms
    if history.ordered:
        times = [[list(partition), time_ms] for partition, time_ms in history.ordered.items()]
        document["ordered"] = {"at": times, "by": list(history.ordered_by)}
    store.write(_history_path(system, table), json.dumps(document))


def optimize_started_ms(store: Store, system: str, table: str) -> int | None:
    """Start of an optimize that is still running or was killed: only the next optimize can tell these apart."""
    return read_history(store, system, table).began_ms


# How long a table remembers which files were removed from it. A vacuum cannot keep files that the table has forgotten.


REMOVED, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
SINCE = "penstock.removed.since"
"""Set when Penstock extends how long a table remembers: removals forgotten before then do not come back."""
DAY_MS = 86_400_000
_DEFAULT_MS = {REMOVED: 7 * DAY_MS, LOG: 30 * DAY_MS}
_UNITS = {"week": 7 * DAY_MS, "day": DAY_MS, "hour": 3_600_000, "minute": 60_000, "second": 1000, "millisecond": 1}
_INTERVAL = re.compile(r"(\d+)\s+(week|day|hour|minute|second|millisecond)s?")


def retention_ms(configuration: Mapping[str, str], name: str = REMOVED) -> int:
    """0 for an interval that cannot be parsed: then no removal counts as remembered."""
    text = configuration.get(name)
    if text is None:
        return _DEFAULT_MS[name]
    text = text.strip().lower().removeprefix("interval").strip()
    parts = _INTERVAL.findall(text)
    return sum(int(n) * _UNITS[unit] for n, unit in parts) if parts and not _INTERVAL.sub("", text).strip() else 0


def known_since_ms(configuration: Mapping[str, str], now_ms: int) -> int:
    """The time since which the table knows its removals; earlier ones are forgotten."""
    since = configuration.get(SINCE, "")
    return max(now_ms - retention_ms(configuration), int(since) if since.isdecimal() else 0)
