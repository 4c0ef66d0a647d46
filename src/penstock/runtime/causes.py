"""What made a query end: a type that says whether trying again can help."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError

from penstock.errors import BrokerAway, Conflict, PenstockError, SetupError, Terminal, Transient

_AWAY = re.compile(
    r"TimeoutException|DisconnectException|BrokerNotAvailable|NotLeaderOrFollower|LeaderNotAvailable|"
    r"Connection to node .* could not be established|NetworkException|CoordinatorNotAvailable|RetriableException|"
    r"UnknownTopicOrPartitionException|Failed to construct kafka consumer|Failed to create new KafkaAdminClient"
)
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT|Concurrent\w+Exception|CONCURRENT_STREAM_LOG_UPDATE|ProtocolChangedException|MetadataChangedException"
)
_CHECKPOINT = re.compile(r"Incomplete log file|ChecksumException|Checksum error|does not exist.*offsets|Invalid batch")
_DENIED = re.compile(r"SaslAuthenticationException|AuthorizationException|SslAuthenticationException|AccessControl")
_DISK = re.compile(r"No space left on device|Disk quota exceeded")


class JvmDied(SetupError):
    """Nothing in this process can go on: the session is gone."""


class CheckpointUnreadable(Transient):
    """Whole for us and broken for Spark, a checksum that does not fit, say: rebuilt before the next try."""


class Unexplained(Transient):
    """Tried again a few times, then given up: it may be the machine, it may be a bug."""


def explain(error: BaseException, table: str, log: str) -> PenstockError:
    """A Penstock error for whatever ended a query. `log` names the file where Spark wrote the whole story."""
    if isinstance(error, PenstockError):
        return error
    text = str(error)
    if isinstance(error, Py4JNetworkError | ConnectionError | EOFError) or "Answer from Java side is empty" in text:
        return jvm_died(log)
    line = first_line(text)
    if _DENIED.search(text):
        return Terminal(
            f"Kafka refused the connection: {line}", where=table, hint="check `security` and the rights of its user"
        )
    if _CONFLICT.search(text):
        return Conflict(f"another writer committed first: {line}", where=table)
    if _CHECKPOINT.search(text):
        return CheckpointUnreadable(f"the checkpoint cannot be read: {line}", where=table)
    if _DISK.search(text):
        return Transient(f"the disk is full: {line}", where=table, hint="make room; the table goes on by itself")
    if _AWAY.search(text):
        return BrokerAway(f"Kafka does not answer: {line}", where=table)
    return Unexplained(line, where=table, hint=f"the whole story is in {log}")


def jvm_died(log: str) -> JvmDied:
    return JvmDied(
        "the JVM ended (killed, or out of memory)",
        hint=f"start again: nothing was lost, the tables go on from their ledgers. Its last words are in {log}",
    )


def first_line(text: str) -> str:
    """The line of a Java stack trace that says most: the innermost cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    best = causes[-1] if causes else (lines[0] if lines else "no message")
    return best if len(best) <= 400 else best[:400] + "…"


def is_py4j(error: BaseException) -> bool:
    return isinstance(error, Py4JError)
