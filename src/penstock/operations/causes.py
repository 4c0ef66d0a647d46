"""Explains why a query ended, as an error type that tells whether a retry can help."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException

from penstock.errors import BrokerAway, Conflict, DataLoss, PenstockError, RowRaised, SetupError, Terminal, Transient
from penstock.tables.failing_rows import EXPECTATION, data_failure, failure_of_traceback, spark_failure

_BROKER_AWAY = re.compile(
    r"TimeoutException|DisconnectException|BrokerNotAvailable|NotLeaderOrFollower|LeaderNotAvailable|"
    r"Connection to node .* could not be established|NetworkException|CoordinatorNotAvailable|RetriableException|"
    r"UnknownTopicOrPartitionException|Failed to construct kafka consumer|Failed to create new KafkaAdminClient"
)
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT|Concurrent\w+Exception|CONCURRENT_STREAM_LOG_UPDATE|ProtocolChangedException|MetadataChangedException"
)
_CHECKPOINT = re.compile(r"Incomplete log file|ChecksumException|Checksum error|does not exist.*offsets|Invalid batch")
_ACCESS_DENIED = re.compile(
    r"SaslAuthenticationException|AuthorizationException|SslAuthenticationException|AccessControl"
)
_BAD_VALUE = re.compile(
    r"\[(CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|ARITHMETIC_OVERFLOW|BINARY_ARITHMETIC_OVERFLOW|"
    r"NUMERIC_VALUE_OUT_OF_RANGE|INVALID_ARRAY_INDEX|DATETIME_OVERFLOW|CANNOT_PARSE_TIMESTAMP)"
)
_PYTHON_TRACEBACK = re.compile(r"(?<=api[.]python[.]PythonException: )Traceback \(most recent call last\):")
_UPSTREAM_SCHEMA = re.compile(r"DELTA_SCHEMA_CHANGED|DELTA_STREAMING_\w*SCHEMA|DELTA_STREAMING_METADATA_EVOLUTION")
_UPSTREAM_CHANGE = re.compile(r"DELTA_SOURCE_IGNORE_DELETE|DELTA_SOURCE_TABLE_IGNORE_CHANGES")
_VERSION = re.compile(r"at version (\d+)")
_PATH = re.compile(r"can be found at path (.+?)[.](?= SQLSTATE|\s*$)", re.MULTILINE)
_UPSTREAM_FILE = re.compile(
    r"FAILED_READ_FILE[.]FILE_NOT_EXIST|DELTA_FILE_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND|LogFileNotFound"
)
_STATE_STORE = re.compile(
    r"CANNOT_LOAD_STATE_STORE|STATE_STORE_\w+|CANNOT_READ_\w*(DELTA|SNAPSHOT)_FILE|StateSchemaNotCompatible"
)
_SPARK_STOPPED = re.compile(r"SparkContext (was|has been) shut ?down|stopped SparkContext|OutOfMemoryError")
_SENTENCE = re.compile(r"[.!?](?=\s)")
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")


class JvmDied(SetupError):
    """Nothing in this process can continue: the Spark session died."""


class UpstreamChanged(Terminal):
    """A commit changed rows of a table that this one reads. The log of that table shows what it did."""

    def __init__(self, message: str, *, version: int | None, path: str | None, where: str, hint: str) -> None:
        super().__init__(message, where=where, hint=hint)
        self.version, self.path = version, path


class CheckpointUnreadable(Transient):
    """Intact for Penstock but broken for Spark (a wrong checksum, for example): rebuilt before the next try."""


class Unexplained(Transient):
    """Retried a few times, then given up: it may be the machine or a bug."""


def explain(error: BaseException, table: str, log: str) -> PenstockError:
    """The Penstock error for whatever ended a query. `log` names the file where Spark wrote all of it."""
    if isinstance(error, PenstockError):
        return error
    text = _error_text(error)
    if _is_connection_lost(error, text):
        return jvm_died(log)
    line = first_line(text)
    if _ACCESS_DENIED.search(text):
        return Terminal(
            f"Kafka refused the connection: {line}", where=table, hint="check `security` and the rights of its user"
        )
    if _CONFLICT.search(text):
        return Conflict(f"another writer committed first: {line}", where=table)
    if _CHECKPOINT.search(text):
        return CheckpointUnreadable(f"the checkpoint cannot be read: {line}", where=table)
    if _DISK_FULL.search(text):
        return Transient(
            f"the disk is full: {line}", where=table, hint="free disk space; the table continues by itself"
        )
    if _STATE_STORE.search(text):
        return Terminal(
            f"Spark cannot continue from the state that it kept: {line}",
            where=table,
            hint="write the function as it was, or put the checkpoint back. If neither can be done: "
            f"`penstock checkpoints reset {table} --to starting` empties the table and starts over",
        )
    if explanation := _explain_definition(error, text, line, table) or _explain_upstream(text, line, table):
        return explanation
    if _BROKER_AWAY.search(text):
        return BrokerAway(f"Kafka does not answer: {line}", where=table)
    return Unexplained(line, where=table, hint=f"the whole story is in {log}")


def _is_connection_lost(error: BaseException, text: str) -> bool:
    """Whether Py4J got no answer. If Java raised something, the text has a trace of it."""
    if type(error) is Py4JError and text.startswith("An error occurred while calling") and "Trace" not in text:
        return True
    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError) or "Answer from Java side is empty" in text


def seems_dead(error: BaseException) -> bool:
    """Whether the error is one that a dying JVM raises. Only the end of its process proves that it died."""
    if isinstance(error, PenstockError):
        return False
    text = _error_text(error)
    is_call_error = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    return is_call_error or _is_connection_lost(error, text) or _SPARK_STOPPED.search(text) is not None


def _error_text(error: BaseException) -> str:
    """The error's text, also after the session has ended: the text of Spark's own errors needs the session."""
    try:
        return str(error)
    except AssertionError:
        return str(getattr(error, "_desc", "") or type(error).__name__)


def _explain_definition(error: BaseException, text: str, line: str, table: str) -> PenstockError | None:
    """The error if rows or columns of the source do not fit the definition of the table."""
    if match := EXPECTATION.search(text):
        return Terminal(
            match[0],
            where=table,
            hint="the batch was not written. Correct the source, or the expectation, or give it another action",
        )
    failure = spark_failure(error)
    if isinstance(error, AnalysisException):
        return Terminal(
            f"the definition does not fit its source: {failure.full if failure is not None else line}",
            where=table,
            hint="`penstock plan` shows the definition",
        )
    cause = data_failure(error)
    if cause is None and (traceback := _PYTHON_TRACEBACK.search(text)):  # of an ended query only the text is left
        cause = failure_of_traceback(text[traceback.start() :])
    if cause is not None or _BAD_VALUE.search(text):
        return RowRaised(
            f"a row does not fit an expression of the definition: {cause.full if cause is not None else line}",
            where=table,
            hint="the batch was not written. try_cast, try_divide and their like give NULL, which an expectation finds",
        )
    return None


def _explain_upstream(text: str, line: str, table: str) -> PenstockError | None:
    """The error if the table upstream was changed in a way that stops this one."""
    if _UPSTREAM_SCHEMA.search(text):
        return Transient("the columns of the table upstream have changed", where=table)
    if _UPSTREAM_CHANGE.search(text):
        version, path = _VERSION.search(text), _PATH.search(text)
        return UpstreamChanged(
            f"rows of the table upstream were changed or deleted: {line}",
            version=int(version[1]) if version else None,
            path=path[1] if path else None,
            where=table,
            hint=f"`penstock checkpoints reset {table} --to latest` passes over what is there now",
        )
    if _UPSTREAM_FILE.search(text):
        return DataLoss(
            f"a file of the table upstream is gone before it was read: {line}",
            where=table,
            hint=f"put it back; or, if its rows are still in that table, `penstock replay {table} --version N` with "
            f"its newest version reads it whole; `penstock checkpoints reset {table} --help` skips what is gone",
        )
    return None


def jvm_died(log: str, how: str = "killed, or out of memory") -> JvmDied:
    return JvmDied(
        f"the JVM ended ({how})",
        hint=f"start again: nothing was lost, every table continues from its ledger. Its log is {log}",
    )


def first_line(text: str) -> str:
    """The most telling line of a Java stack trace: the innermost cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    message = causes[-1] if causes else (lines[0] if lines else "no message")
    return _shorten(message)


def _shorten(text: str, limit: int = 400) -> str:
    """As many whole sentences as fit; if the first is too long, whole words of it."""
    if len(text) <= limit:
        return text
    sentences = list(_SENTENCE.finditer(text, 0, limit))
    if sentences:
        return text[: sentences[-1].end()].rstrip()
    words, _, _ = text[:limit].rpartition(" ")
    return (words or text[:limit]) + "…"
