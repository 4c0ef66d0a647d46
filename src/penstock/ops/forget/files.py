"""Files in the folder of a table that are in no version of it and hold somebody: deleted, once no reader needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.engine.forget.erase import finding, sought
from penstock.engine.forget.matching import Wanted
from penstock.engine.forget.rewrite import Held, Rewrite
from penstock.engine.protocol.locks import acquire_commit
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.replay.fill import Work
from penstock.engine.store import Store
from penstock.engine.upkeep.places import Place, places
from penstock.engine.upkeep.vacuuming import within
from penstock.ops.vacuum.look import now_ms
from penstock.ops.vacuum.needs import needs, still_needed
from penstock.plan.model import Plan
from penstock.plan.subjects import Subjects

_END = b"PAR1"
_PATIENCE = 600.0


@dataclass(frozen=True)
class Beside:
    """What was found beside the versions of a table, or of its quarantine."""

    place: str
    files: int = 0
    """That were decoded."""
    held: int = 0
    """Rows of somebody in them."""
    removed: tuple[str, ...] = ()
    bytes: int = 0
    needed: Mapping[str, str] = field(default_factory=dict)
    """File -> the reader that still needs it."""


def remove_files(plan: Plan, work: Work, wanted: Wanted, *, delete: bool) -> list[Beside]:
    """Under the table's commit lock, so that no batch is at work: what is in no version then is nobody's."""
    acquire_commit(work.lock, work.table.name, patience=_PATIENCE)
    try:
        known = sought(work.table, wanted)
        return [
            _remove(plan, work, place, known[place.name], wanted, delete=delete)
            for place in places(work.table)
            if place.name in known and DeltaLog(work.store, place.uri, place.name).versions()
        ]
    finally:
        work.lock.release()


def _remove(plan: Plan, work: Work, place: Place, subjects: Subjects, wanted: Wanted, *, delete: bool) -> Beside:
    store = work.store
    rewrite = Rewrite(work.spark.newSession(), place.uri)
    listed = store.listing(place.uri)
    active = {within(name, place.uri) for name in rewrite.files}
    others = [name for name in listed if name.endswith(".parquet") and name not in active and not _of_log(name)]
    broken = [name for name in others if not whole(place.uri, name)] if plan.local else []
    readable = [name for name in others if name not in set(broken)]
    held = rewrite.held_beside(finding(work.table, subjects, wanted), readable)
    goes = [*held, *broken]
    needed = still_needed(store, place.uri, needs(plan, work.table, place, store, now_ms())) if goes else {}
    removed = [name for name in goes if name not in needed]
    for name in removed if delete else ():
        delete_file(store, place.uri, name)
    return Beside(
        place.name,
        len(others),
        sum(held.values()),
        tuple(removed),
        sum(listed[name].size for name in removed),
        {name: needed[name] for name in held if name in needed},
    )


def delete_file(store: Store, uri: str, name: str) -> None:
    """With the checksum that Hadoop keeps beside it."""
    folder, _, last = name.rpartition("/")
    store.delete(f"{uri}/{name}")
    store.delete(f"{uri}/{f'{folder}/' if folder else ''}.{last}.crc")


def whole(uri: str, name: str) -> bool:
    """Whether its writer came to the end; one that died has left a file that nobody can read."""
    try:
        with (Path(uri) / name).open("rb") as file:
            file.seek(0, 2)
            if file.tell() < 2 * len(_END):
                return False
            file.seek(-len(_END), 2)
            return file.read() == _END
    except FileNotFoundError:
        return True  # gone since it was listed


def current(spark: SparkSession, work: Work, wanted: Wanted) -> dict[str, tuple[int, Held]]:
    """Of every place: how many files its newest version has, and what they hold; nothing is changed."""
    found = {}
    known = sought(work.table, wanted)
    for place in places(work.table):
        if place.name in known and DeltaLog(work.store, place.uri, place.name).versions():
            rewrite = Rewrite(spark.newSession(), place.uri)
            held = rewrite.held(finding(work.table, known[place.name], wanted))
            found[place.name] = (len(rewrite.files), held)
    return found


def _of_log(name: str) -> bool:
    return name.startswith("_delta_log/")
