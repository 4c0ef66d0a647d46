"""The ledger entry of a commit: passed to Delta as its metadata, and confirmed from the log.

Appends and overwrites of rows, and entries without rows, are written here; other commits are made where their rows are.
Also: which files a commit removed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.errors import ChainBroken, Conflict, Fenced
from penstock.ledger.entry import OUTSIDE_BATCHES, dump
from penstock.ledger.head import advance
from penstock.spark.jvm import java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead

# The names of the files that a commit removes from a table: readers of older versions still read them.


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_LENGTH = 20


def removed_files(commit: str, *, feed: bool = True) -> Iterator[str]:
    """From the text of a commit: removed files, the deletion vectors that went with them, and with `feed` the files of
    its change feed, which belong to no version. Files outside the table's folder are left out."""
    kinds = ("remove", "cdc") if feed else ("remove",)
    for line in commit.split("\n"):
        if not any(f'"{kind}"' in line for kind in kinds):
            continue
        action = json.loads(line)
        for kind in kinds:
            details = action.get(kind)
            if details is not None:
                path = unquote(details["path"])
                if not path.startswith("/") and "://" not in path and not path.startswith("file:"):
                    yield path
                if details.get("deletionVector"):
                    yield from _deletion_vector_file(details["deletionVector"])


def _deletion_vector_file(descriptor: dict[str, Any]) -> Iterator[str]:
    """Delta writes the UUID that names the file as 20 digits of base 85, after a folder."""
    if descriptor.get("storageType") != "u":
        return
    text = descriptor["pathOrInlineDv"]
    folder, digits = text[:-_LENGTH], text[-_LENGTH:]
    uuid_bytes = bytes(byte for start in range(0, _LENGTH, 5) for byte in _decode_base85(digits[start : start + 5]))
    name = f"deletion_vector_{uuid.UUID(bytes=uuid_bytes)}.bin"
    yield f"{folder}/{name}" if folder else name


def _decode_base85(digits: str) -> bytes:
    value = 0
    for digit in digits:
        value = value * 85 + _DIGITS.index(digit)
    return value.to_bytes(4, "big")


_GENERATION_BITS = 32


def append(rows: DataFrame, uri: str, entry: Entry, *, idempotent: bool, more: bool = False) -> None:
    """`idempotent` adds Delta's own check, for stores without our locks: there it stops a second live writer. `more`:
    the table already has rows of this batch or of later ones, and these are others, so the batch's number is taken."""
    _write(rows, uri, entry, _transaction_options(rows.sparkSession, uri, entry, more=more) if idempotent else {})


def overwrite(rows: DataFrame, uri: str, entry: Entry, *, idempotent: bool) -> None:
    """Replaces the whole table in one commit."""
    _write(
        rows, uri, entry, _transaction_options(rows.sparkSession, uri, entry) if idempotent else {}, mode="overwrite"
    )


@contextmanager
def commit_metadata(
    session: SparkSession, entry: Entry, *, idempotent: bool, uri: str = "", more: bool = False
) -> Iterator[None]:
    """For a MERGE, which takes no options: the entry goes with the next commit of this session, which belongs to one
    query alone. Left set, it would go with other commits too. `uri` is the table's, where commits outside the batches,
    or `more` of one, are to be idempotent."""
    confs = {"spark.databricks.delta.commitInfo.userMetadata": dump(entry)}
    if idempotent:
        transaction = _transaction_options(session, uri, entry, more=more)
        confs |= {f"spark.databricks.delta.write.{name}": str(value) for name, value in transaction.items()}
    for name, value in confs.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in confs:
            session.conf.unset(name)


def append_entry(spark: SparkSession, uri: str, entry: Entry) -> None:
    """Commits an entry without rows, with Delta's transaction mark: without it an empty append makes no commit. Nothing
    is committed if another process has committed after what `entry` has seen: the caller confirms it."""
    note_class = _note_class(spark)
    if entry.kind in OUTSIDE_BATCHES or entry.kind == "fill":  # the number of a fill is taken: its rejected rows use it
        assert entry.seen is not None
        note_class.next(java_session(spark), uri, dump(entry), _kind_app_id(entry), entry.seen)
        return
    seen = -1 if entry.seen is None else entry.seen
    note_class.marked(java_session(spark), uri, dump(entry), _batch_app_id(entry), _batch_version(entry), seen)


def remove_all_rows(spark: SparkSession, uri: str, entry: Entry) -> None:
    """Commits an entry that removes all rows; thanks to the transaction options also if there are none."""
    no_rows = spark.read.format("delta").load(uri).limit(0)
    _write(no_rows, uri, entry, _transaction_options(spark, uri, entry), mode="overwrite")


def next_number(spark: SparkSession, uri: str, application: str, seen: int) -> int:
    """The next transaction number of an application whose writer has read the log up to version `seen`. If any process
    has committed for it since, the number is taken and Delta skips the commit: so it has to be confirmed."""
    return int(_note_class(spark).last(java_session(spark), uri, application, seen)) + 1


def last_generation(spark: SparkSession, uri: str, table: str, version: int) -> int:
    """The last generation among the commits that Delta itself still knows, though their entries may be gone from the
    log; 0 if none."""
    return max(next_number(spark, uri, f"penstock:{table}", version) - 1, 0) >> _GENERATION_BITS


def confirm(head: LedgerHead, log: DeltaLog, entry: Entry) -> LedgerHead | None:
    """The end of the ledger if `entry` is in the log after `head`, else None. An entry of another process with the same
    number does not count."""
    if any(_is_same_entry(commit.entry, entry) for commit in log.since(head.version)):
        return advance(head, log)
    return None


def _is_same_entry(logged: Entry | None, entry: Entry) -> bool:
    return logged is not None and (logged.key, logged.kind, logged.id) == (entry.key, entry.kind, entry.id)


def must_confirm(head: LedgerHead, log: DeltaLog, entry: Entry) -> LedgerHead:
    """The same, but raises if the entry is not in the log: what follows from it must not be done."""
    confirmed = confirm(head, log, entry)
    if confirmed is None:
        raise _not_committed_error(head, log, entry)
    return confirmed


def _not_committed_error(head: LedgerHead, log: DeltaLog, entry: Entry) -> PenstockError:
    label = f"{entry.kind} {entry.generation}.{entry.batch}"
    others = [(commit.entry, commit.version) for commit in log.since(head.version) if commit.entry is not None]
    if not others:
        return ChainBroken(
            f"{label} was written, but the log does not hold it after version {head.version}",
            where=entry.table,
            hint="another process replaced or rewrote the table. `penstock history` shows its commits",
        )
    for other, version in others:
        if other.generation > entry.generation:
            return Fenced(
                f"{label} was not committed: another process has opened generation {other.generation} in version "
                f"{version}",
                where=entry.table,
                hint="the table continues from its ledger by itself",
            )
    # Entries of other kinds have numbers of their own, so they can have come beside this one.
    winner, version = next((pair for pair in others if pair[0].kind == entry.kind), others[0])
    return Conflict(
        f"{label} was not committed: another process committed first, {winner.kind} {winner.generation}."
        f"{winner.batch} in version {version}",
        where=entry.table,
        hint="nothing was lost. Try again when the other process has finished",
    )


def _write(rows: DataFrame, uri: str, entry: Entry, options: dict[str, Any], mode: str = "append") -> None:
    rows.write.format("delta").mode(mode).option("userMetadata", dump(entry)).options(**options).save(uri)


def _transaction_options(spark: SparkSession, uri: str, entry: Entry, *, more: bool = False) -> dict[str, Any]:
    """One appId per table, permanently, and a number that only grows: that of the batch, from the ledger. Entries
    outside the batches have an appId per kind, and the number after the last that the log had when their writer read
    it. So of two writers that have read the same log only one commits; the other is skipped, and notices when it
    confirms.

    An appId per commit would let both commit, and Delta keeps every appId in the table's state for ever."""
    if entry.kind not in OUTSIDE_BATCHES and not more:
        return {"txnAppId": _batch_app_id(entry), "txnVersion": _batch_version(entry)}
    assert uri and entry.seen is not None
    return {"txnAppId": _kind_app_id(entry), "txnVersion": next_number(spark, uri, _kind_app_id(entry), entry.seen)}


def _batch_app_id(entry: Entry) -> str:
    return f"penstock:{entry.table}"


def _kind_app_id(entry: Entry) -> str:
    return f"penstock:{entry.table}:{entry.kind}"


def _batch_version(entry: Entry) -> int:
    return entry.generation << _GENERATION_BITS | entry.batch


def _note_class(spark: SparkSession) -> Any:
    """jar_data/java/penstock/delta/Note.java"""
    jvm = jvm_of(spark)
    return jvm.penstock.delta.Note
