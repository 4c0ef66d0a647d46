"""Where a reader of a Delta table begins, and whether what it was promised is still there."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.delta.version import Version
from penstock.engine.protocol.log import DeltaLog
from penstock.errors import DataLoss, Terminal, Transient
from penstock.plan.model import VersionStart


def table_id(log: DeltaLog, versions: Sequence[int]) -> str | None:
    """From the newest commit that carries the table's metadata; None if that has been cleaned up."""
    for version in reversed(versions):
        commit = log.commit(version)
        if commit is not None and commit.table_id is not None:
            return commit.table_id
    return None


def resolve(starting: VersionStart, identity: str, versions: Sequence[int], log: DeltaLog, table: str) -> Version:
    """`starting` as a version: resolved once, then in the ledger."""
    newest = versions[-1]
    if starting.kind == "earliest":
        return Version(identity, newest, snapshot=True)
    if starting.kind == "latest":
        return Version(identity, newest + 1)
    if starting.kind == "timestamp":
        assert starting.timestamp_ms is not None
        return Version(identity, _at_time(starting.timestamp_ms, versions, log))
    assert starting.version is not None
    oldest = unbroken(versions)
    if not oldest <= starting.version <= newest + 1:
        raise Terminal(
            f"`starting: {{version: {starting.version}}}`: the log of {log.table} holds versions {oldest} to {newest}",
            where=table,
            hint=f"write a version from {oldest} to {newest + 1}, or earliest, which reads the whole table",
        )
    return Version(identity, starting.version)


def unbroken(versions: Sequence[int]) -> int:
    """The oldest version from which every commit is still there."""
    oldest = versions[-1]
    for version in reversed(versions[:-1]):
        if version != oldest - 1:
            break
        oldest = version
    return oldest


def _at_time(timestamp_ms: int, versions: Sequence[int], log: DeltaLog) -> int:
    """The first version at or after a time; the one to come if there is none."""
    low, high = versions.index(unbroken(versions)), len(versions)
    while low < high:
        middle = (low + high) // 2
        commit = log.commit(versions[middle])
        if commit is None or commit.timestamp_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return versions[low] if low < len(versions) else versions[-1] + 1


def refuse_lost(at: Version, identity: str | None, versions: Sequence[int], table: str, upstream: str) -> None:
    """Raises DataLoss where what comes after a position can no longer be read."""
    if not versions:
        raise Transient(f"the table {upstream} is not there", where=table, hint="it is made when its own run begins")
    decide = (
        f"`penstock checkpoints reset {table} --to earliest|latest|source:N` decides where to go on (N: a version of "
        f"{upstream})"
    )
    if identity is not None and identity != at.table_id:
        raise DataLoss(
            f"the table {upstream} was made again: its id was {at.table_id} and is {identity}", where=table, hint=decide
        )
    if at.version > versions[-1] + 1:
        raise DataLoss(
            f"the table {upstream} went back: it was read up to version {at.read_up_to}, and ends with {versions[-1]}",
            where=table,
            hint=decide,
        )
    oldest = unbroken(versions)
    if not at.snapshot and at.version < oldest:
        raise DataLoss(
            f"versions {at.version} to {oldest - 1} of {upstream} were not read, and its log no longer has them",
            where=table,
            hint=f"{decide}; a longer delta.logRetentionDuration of {upstream} keeps them longer",
        )
