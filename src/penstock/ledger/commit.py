"""The one place that writes a commit: rows or none, always with a ledger entry, always confirmed from the log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.errors import ChainBroken, Conflict, Fenced
from penstock.ledger.entry import BESIDE, dump
from penstock.ledger.head import advance
from penstock.spark.jvm import java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead

# The files that a commit takes out of a table, by their names: who reads older versions still reads them.


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_LENGTH = 20


def removed_files(commit: str, *, feed: bool = True) -> Iterator[str]:
    """Of the text of a commit: removed files, the marks of deleted rows that went with them, and with `feed` the files
    of its change feed, which belong to no version. Files that lie elsewhere are left out."""
    kinds = ("remove", "cdc") if feed else ("remove",)
    for line in commit.split("\n"):
        if not any(f'"{kind}"' in line for kind in kinds):
            continue
        action = json.loads(line)
        for kind in kinds:
            about = action.get(kind)
            if about is not None:
                path = unquote(about["path"])
                if not path.startswith("/") and "://" not in path and not path.startswith("file:"):
                    yield path
                if about.get("deletionVector"):
                    yield from _vector(about["deletionVector"])


def _vector(about: dict[str, Any]) -> Iterator[str]:
    """Delta writes the UUID that names the file in 20 digits of base 85, after a folder."""
    if about.get("storageType") != "u":
        return
    text = about["pathOrInlineDv"]
    folder, digits = text[:-_LENGTH], text[-_LENGTH:]
    number = bytes(byte for at in range(0, _LENGTH, 5) for byte in _decoded(digits[at : at + 5]))
    name = f"deletion_vector_{uuid.UUID(bytes=number)}.bin"
    yield f"{folder}/{name}" if folder else name


def _decoded(five: str) -> bytes:
    value = 0
    for digit in five:
        value = value * 85 + _DIGITS.index(digit)
    return value.to_bytes(4, "big")


# The one place that writes a commit: rows or none, always with a ledger entry, always confirmed from the log.


_GENERATION_BITS = 32


def append(rows: DataFrame, uri: str, entry: Entry, *, idempotent: bool, more: bool = False) -> None:
    """`idempotent` adds Delta's own check, for stores without our locks: there it stops a second live writer. `more`:
    the table has rows of this batch, or of later ones, and these are others, so its number is taken."""
    _write(rows, uri, entry, _transaction(rows.sparkSession, uri, entry, more=more) if idempotent else {})


def overwrite(rows: DataFrame, uri: str, entry: Entry, *, idempotent: bool) -> None:
    """The whole table anew, in one commit."""
    _write(rows, uri, entry, _transaction(rows.sparkSession, uri, entry) if idempotent else {}, mode="overwrite")


@contextmanager
def carrying(
    session: SparkSession, entry: Entry, *, idempotent: bool, uri: str = "", more: bool = False
) -> Iterator[None]:
    """For a MERGE, which takes no options: the entry goes with the next commit of this session, which is that of one
    query alone. Left set, it would go with others too. `uri` is that of the table, where commits beside the batches, or
    `more` of one, are to be idempotent."""
    confs = {"spark.databricks.delta.commitInfo.userMetadata": dump(entry)}
    if idempotent:
        mark = _transaction(session, uri, entry, more=more)
        confs |= {f"spark.databricks.delta.write.{name}": str(value) for name, value in mark.items()}
    for name, value in confs.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in confs:
            session.conf.unset(name)


def append_nothing(spark: SparkSession, uri: str, entry: Entry) -> None:
    """An entry without rows, with Delta's transaction mark: without that an empty append makes no commit. Nothing is
    committed if another process has done so after what `entry` has seen: the caller confirms it."""
    note = _notes(spark)
    if entry.kind in BESIDE or entry.kind == "fill":  # the number of a fill is taken: its rejected rows have it
        assert entry.seen is not None
        note.next(java_session(spark), uri, dump(entry), _beside(entry), entry.seen)
        return
    seen = -1 if entry.seen is None else entry.seen
    note.marked(java_session(spark), uri, dump(entry), _batches(entry), _number(entry), seen)


def overwrite_by_nothing(spark: SparkSession, uri: str, entry: Entry) -> None:
    """An entry that removes all rows; with the transaction options also if there are none."""
    nothing = spark.read.format("delta").load(uri).limit(0)
    _write(nothing, uri, entry, _transaction(spark, uri, entry), mode="overwrite")


def next_number(spark: SparkSession, uri: str, application: str, seen: int) -> int:
    """For a commit of an application that has read the log up to a version. If it has committed anything since, in
    whichever process, the number is taken and Delta skips the commit: so it has to be confirmed."""
    return int(_notes(spark).last(java_session(spark), uri, application, seen)) + 1


def last_generation(spark: SparkSession, uri: str, table: str, version: int) -> int:
    """Of the commits that Delta itself still knows of, though their entries may be gone from the log; 0 if none."""
    return max(next_number(spark, uri, f"penstock:{table}", version) - 1, 0) >> _GENERATION_BITS


def confirm(tail: LedgerHead, log: DeltaLog, entry: Entry) -> LedgerHead | None:
    """The end of the ledger if `entry` is in the log after `tail`, else None. One of another process with the same
    number is another one."""
    if any(_is(commit.entry, entry) for commit in log.since(tail.version)):
        return advance(tail, log)
    return None


def _is(found: Entry | None, entry: Entry) -> bool:
    return found is not None and (found.key, found.kind, found.id) == (entry.key, entry.kind, entry.id)


def must_confirm(tail: LedgerHead, log: DeltaLog, entry: Entry) -> LedgerHead:
    """Raises where it is not in the log: what follows from it must not be done."""
    confirmed = confirm(tail, log, entry)
    if confirmed is None:
        raise _absent(tail, log, entry)
    return confirmed


def _absent(tail: LedgerHead, log: DeltaLog, entry: Entry) -> PenstockError:
    what = f"{entry.kind} {entry.generation}.{entry.batch}"
    others = [commit for commit in log.since(tail.version) if commit.entry is not None]
    if not others:
        return ChainBroken(
            f"{what} was written, but the log does not hold it after version {tail.version}",
            where=entry.table,
            hint="another process replaced or rewrote the table. `penstock history` shows its commits",
        )
    first = others[-1]
    assert first.entry is not None
    if first.entry.generation > entry.generation:
        return Fenced(
            f"{what} was not committed: another process has opened generation {first.entry.generation} in version "
            f"{first.version}",
            where=entry.table,
            hint="the table continues from its ledger by itself",
        )
    return Conflict(
        f"{what} was not committed: another process committed first, {first.entry.kind} {first.entry.generation}."
        f"{first.entry.batch} in version {first.version}",
        where=entry.table,
        hint="nothing was lost. Try again when the other process has finished",
    )


def _write(rows: DataFrame, uri: str, entry: Entry, options: dict[str, Any], mode: str = "append") -> None:
    rows.write.format("delta").mode(mode).option("userMetadata", dump(entry)).options(**options).save(uri)


def _transaction(spark: SparkSession, uri: str, entry: Entry, *, more: bool = False) -> dict[str, Any]:
    """One appId per table, for ever, and a number that only grows: that of the batch, from the ledger. What comes
    beside the batches has an appId per kind, and the number after the last that the log had when its writer looked at
    it. So of two that have seen the same log only one commits; the other one is skipped, and finds that when it
    confirms.

    An appId per commit would let both commit, and Delta keeps every appId in the table's state for ever."""
    if entry.kind not in BESIDE and not more:
        return {"txnAppId": _batches(entry), "txnVersion": _number(entry)}
    assert uri and entry.seen is not None
    return {"txnAppId": _beside(entry), "txnVersion": next_number(spark, uri, _beside(entry), entry.seen)}


def _batches(entry: Entry) -> str:
    return f"penstock:{entry.table}"


def _beside(entry: Entry) -> str:
    return f"penstock:{entry.table}:{entry.kind}"


def _number(entry: Entry) -> int:
    return entry.generation << _GENERATION_BITS | entry.batch


def _notes(spark: SparkSession) -> Any:
    """jar_data/java/penstock/delta/Note.java"""
    jvm = jvm_of(spark)
    return jvm.penstock.delta.Note
