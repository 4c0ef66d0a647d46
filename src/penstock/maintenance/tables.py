"""The Delta tables whose files are maintained together, the locks for it, and what was done when."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import LockHeld, PenstockError, Terminal
from penstock.ledger.entry import dump_maintenance
from penstock.plan.quarantine import COMPANIONS, MOVED_ASIDE, SUFFIX, TOMBSTONES, quarantine_of, tombstones_of
from penstock.storage.locks import JvmLock, acquire_commit, lock_path, owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import MaintenanceNote
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# The Delta tables that belong to a table of the project, and whose files are looked after with it.


@dataclass(frozen=True)
class MaintainedTable:
    name: str
    uri: str
    kind: Literal["table", "quarantine", "tombstones", "files"]
    """files: the list of files that a table has read. It is written to without a lock, and compacted by itself."""
    zorder_by: tuple[str, ...] = ()
    expected: bool = True
    """False: it is there only if an earlier definition has made it."""

    @property
    def ledger(self) -> str:
        """The table that the entries of its log name: it may have been moved since."""
        return self.name.partition(MOVED_ASIDE)[0]


def places(table: TablePlan) -> list[MaintainedTable]:
    """Whether they are made yet or not."""
    found = [MaintainedTable(table.name, table.uri, "table", table.write.zorder_by)]
    if table.may_reject:
        aside = quarantine_of(table.name, table.uri)
        found.append(MaintainedTable(aside.table, aside.uri, "quarantine"))
    if table.write.merge is not None:  # tombstones stay when its definition no longer deletes
        dead = tombstones_of(table.name, table.uri)
        found.append(MaintainedTable(dead.table, dead.uri, "tombstones", expected=table.write.merge.deletes))
    if table.files is not None:
        found.append(MaintainedTable(f"{table.name}.files", table.files.uri, "files"))  # no table can be called so
    return found


def unreadable_log(error: Exception, name: str) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    return Terminal(f"its log cannot be read: {' '.join(str(error).split())[:300]}", where=name)


def error_document(error: PenstockError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


def all_places(table: TablePlan, store: Store) -> list[MaintainedTable]:
    """With what nothing reads any more and still holds rows: a quarantine or tombstones of an earlier definition, and
    those of an earlier table of its name, which were moved aside."""
    found = places(table)
    known = {one.uri for one in found}
    return [*found, *(one for one in _left_beside(table, store) if one.uri not in known)]


def _left_beside(table: TablePlan, store: Store) -> Iterator[MaintainedTable]:
    folder, _, own = table.uri.rpartition("/")
    kinds: dict[str, Literal["quarantine", "tombstones"]] = {SUFFIX: "quarantine", TOMBSTONES: "tombstones"}
    for name in sorted(store.names(folder)):
        suffix, moved, _ = name.removeprefix(own).partition(MOVED_ASIDE)
        uri = f"{folder}/{name}"
        if name.startswith(own) and suffix in kinds and (moved or store.names(f"{uri}/_delta_log")):
            yield MaintainedTable(f"{table.name}{name.removeprefix(own)}", uri, kinds[suffix], expected=False)


# Taking turns on a local lake: with other commands that look after files, and with the batches of the table.


Hold = Callable[[], AbstractContextManager[None]]
"""While it is held the table has no batch."""
_PATIENCE = 600.0


@contextmanager
def exclusive_maintenance(spark: SparkSession, plan: Plan, table: str) -> Iterator[None]:
    """Nobody else looks after the files of the table meanwhile: a vacuum would take what an optimize has just written
    and not committed for files that nobody needs. Raises LockHeld."""
    if not plan.local:
        yield
        return
    path = lock_path(plan.system, table, "upkeep")
    with closing(JvmLock(spark, path)) as lock:
        if not lock.try_acquire():
            by = owner(path)
            raise LockHeld(
                f"another command looks after its files (process {by.get('python')}, since {by.get('since')})",
                where=table,
                hint="wait for it, then run this again",
            )
        lock.sign()
        yield


def paused_batches(spark: SparkSession, plan: Plan, table: str) -> Hold:
    """For a command beside a runner: the table's batches wait, each for two minutes at most, then they try again."""

    @contextmanager
    def hold() -> Iterator[None]:
        if not plan.local:
            yield
            return
        with closing(JvmLock(spark, lock_path(plan.system, table, "commit"))) as lock:
            acquire_commit(lock, table, patience=_PATIENCE)
            yield

    return hold


# Sessions in which files are looked after: each with confs of its own, so that none of them reaches a batch.


LOG_STORE = "spark.delta.logStore.file.impl"


def shared_log(lake: str) -> dict[str, str]:
    """What jar_data/java/penstock/delta/SharedLog.java has to know, as settings of Hadoop."""
    return {"penstock.lake": lake, "penstock.companions": ",".join(COMPANIONS)}


def beside_a_runner(plan: Plan) -> Plan:
    """The plan for the session of a command: on a local lake each of its commits waits for the table's commit lock."""
    if not plan.local:
        return plan
    about = {f"spark.hadoop.{name}": value for name, value in shared_log(plan.lake).items()}
    return replace(plan, conf={**plan.conf, LOG_STORE: "penstock.delta.SharedLog", **about})


def session_with(spark: SparkSession, confs: Mapping[str, str], upkeep: MaintenanceNote | None = None) -> SparkSession:
    """`upkeep` goes with the commits of the session."""
    session = spark.newSession()
    for name, value in confs.items():
        session.conf.set(name, value)
    if upkeep is not None:
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", dump_maintenance(upkeep))
    return session


# What was done to the files of a table, and when: a small file beside its state. Lost, it is done once more.


@dataclass(frozen=True)
class MaintenanceHistory:
    """Times are in milliseconds since 1970."""

    done: Mapping[str, int] = field(default_factory=dict)
    """Work -> when it was last finished, also if there was nothing to do."""
    began_ms: int | None = None
    """Of an optimize that has not ended: its files lie in the table, and no commit names them yet."""
    ordered: Mapping[tuple[str | None, ...], int] = field(default_factory=dict)
    """When the rows of a partition were last put in order; files that are newer are not."""
    ordered_by: tuple[str, ...] = ()


def _path(system: str, table: str) -> str:
    return f"{system}/upkeep/{table}.json"


def read_memory(store: Store, system: str, table: str) -> MaintenanceHistory:
    try:
        document: Any = json.loads(store.read(_path(system, table)) or "{}")
        ordered = document.get("ordered") or {}
        return MaintenanceHistory(
            {str(work): int(at) for work, at in (document.get("done") or {}).items()},
            document.get("began"),
            {tuple(partition): int(at) for partition, at in ordered.get("at") or ()},
            tuple(ordered.get("by") or ()),
        )
    except (ValueError, TypeError, AttributeError):
        return MaintenanceHistory()


def write_memory(store: Store, system: str, table: str, memory: MaintenanceHistory) -> None:
    document: dict[str, Any] = {"done": dict(memory.done)}
    if memory.began_ms is not None:
        document["began"] = memory.began_ms
    if memory.ordered:
        at = [[list(partition), at] for partition, at in memory.ordered.items()]
        document["ordered"] = {"at": at, "by": list(memory.ordered_by)}
    store.write(_path(system, table), json.dumps(document))


def under_way(store: Store, system: str, table: str) -> int | None:
    """When an optimize began that has not ended, or was killed: only the next one can tell these two apart."""
    return read_memory(store, system, table).began_ms


# For how long a table remembers which files were removed from it. A vacuum cannot keep what it does not remember.


REMOVED, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
SINCE = "penstock.removed.since"
"""Set where Penstock made a table remember for longer: what was forgotten before does not come back."""
DAY_MS = 86_400_000
_DEFAULT_MS = {REMOVED: 7 * DAY_MS, LOG: 30 * DAY_MS}
_UNITS = {"week": 7 * DAY_MS, "day": DAY_MS, "hour": 3_600_000, "minute": 60_000, "second": 1000, "millisecond": 1}
_PART = re.compile(r"(\d+)\s+(week|day|hour|minute|second|millisecond)s?")


def retention_ms(configuration: Mapping[str, str], name: str = REMOVED) -> int:
    """0 for what is not understood: then nothing is taken to be remembered."""
    text = configuration.get(name)
    if text is None:
        return _DEFAULT_MS[name]
    text = text.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(text)
    return sum(int(n) * _UNITS[unit] for n, unit in parts) if parts and not _PART.sub("", text).strip() else 0


def known_since_ms(configuration: Mapping[str, str], now_ms: int) -> int:
    """Removals before that are forgotten."""
    since = configuration.get(SINCE, "")
    return max(now_ms - retention_ms(configuration), int(since) if since.isdecimal() else 0)
