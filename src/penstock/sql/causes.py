"""Short errors for queries that Spark refuses or fails: what is wrong, where in the query, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from penstock.errors import QueryFailed, SetupError, UsageError
from penstock.spec.base_model import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.sql.versions import TableVersion

WITHHELD = (
    # These run code.
    *("reflect", "java_method", "try_reflect"),
    # These open a file or an address: an option or an argument names it, or an XML text as the place of its grammar.
    *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "from_xml", "schema_of_xml"),
    *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number"),
    *("xpath_short", "xpath_string", "table_changes", "table_changes_by_path"),
)
"""Functions that are removed from queries."""
_CONDITION = re.compile(
    r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]\s+(.*?)(?=\s*SQLSTATE: |\s*\n\s*at |\s*\n== |\s*\Z)", re.DOTALL
)
_BYPASS_ADVICE = re.compile(r'\s*If necessary set "[^"]*" to "[^"]*" to bypass this error\.')
_QUERY_POSITION = re.compile(r"^== SQL.*?==\n.*?\^+$", re.DOTALL | re.MULTILINE)
_MISSING_FILE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|DELTA_FILE_NOT_FOUND|FileNotFoundException|NoSuchKey")
_FILE_PATH = re.compile(r"[^\s'\"]+\.(?:parquet|bin)\b")
_UNKNOWN_FUNCTION = ("UNRESOLVED_ROUTINE", "ROUTINE_NOT_FOUND", "UNRESOLVABLE_TABLE_VALUED_FUNCTION")
_AT_SIGN = re.compile(r"([\w.`]+)@[vV]?(\d+(?![\w-]))?")
_MAX_LENGTH = 600


@contextmanager
def explain_errors(session: SparkSession, query: str | None, read: Sequence[TableVersion], log: str) -> Iterator[None]:
    """Turns what Spark raises in the block into Penstock's errors. Without a query the tables themselves cannot be
    read. `read` are the tables known so far, `log` is the folder of Spark's own log."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise _explain(session, query, read, log, error) from None


def _explain(
    session: SparkSession, query: str | None, read: Sequence[TableVersion], log: str, error: Exception
) -> PenstockError:
    text = str(error)
    if isinstance(error, Py4JNetworkError | ConnectionError) or "Answer from Java side is empty" in text:
        return SetupError("the JVM ended (killed, or out of memory)", hint=f"its last words are in {log}")
    if _MISSING_FILE.search(text) and (missing := _explain_missing_file(text, read)):
        return missing
    if "java.lang.StackOverflowError" in text:
        return UsageError("the query is nested too deeply", hint="give its inner queries names: WITH a AS (…) SELECT …")
    condition = _CONDITION.search(text)
    name, message = (condition[1], condition[2]) if condition else ("", _innermost(text))
    message = printable(" ".join(_BYPASS_ADVICE.sub("", message).split()))  # it may quote a row
    message = message if len(message) <= _MAX_LENGTH else f"{message[:_MAX_LENGTH]}…"
    if name in _UNKNOWN_FUNCTION:
        return _explain_unknown_function(session, message, _query_position(error))
    if query is None:
        return QueryFailed(message, where=", ".join(map(str, read)), hint=f"the whole story is in {log}")
    position = _query_position(error)
    message = f"{message}\n{position}".rstrip()
    if isinstance(error, ParseException) and "'@'" in message and (mention := _AT_SIGN.search(query)):
        forms = f"{mention[1]} VERSION AS OF {mention[2] or 12}, or {mention[1]} TIMESTAMP AS OF '2026-05-14 09:00'"
        return UsageError(message, hint=f"a version or a time follows the table's name: {forms}")
    is_user_error = isinstance(error, AnalysisException | ParseException) and not name.startswith("DELTA_")
    if is_user_error or name.startswith("UNSUPPORTED_FEATURE"):
        return UsageError(message)
    return QueryFailed(message, hint=None if position else f"the whole story is in {log}")


def _explain_missing_file(text: str, read: Sequence[TableVersion]) -> PenstockError | None:
    for path in map(unquote, _FILE_PATH.findall(text)):
        tables = sorted(
            (candidate for candidate in read if f"{candidate.table.uri}/" in path),
            key=lambda table_version: table_version.version,
        )
        if tables:
            return QueryFailed(
                f"{' or '.join(map(str, tables))} cannot be read any more: its file {path.rpartition('/')[2]} is gone. "
                "VACUUM removes the files that only older versions need",
                hint=f"read a newer version, or the newest: {tables[0].table.name}. If files of that one are gone too, "
                "put them back from a backup",
            )
    return None


def _explain_unknown_function(session: SparkSession, message: str, position: str) -> PenstockError:
    quoted = re.findall(r"`([^`]+)`", message.partition(" on search path")[0])
    name = quoted[-1] if quoted else ""
    if name.casefold() in WITHHELD:
        return UsageError(f"queries cannot use {name}: it can run code, or open a file\n{position}".rstrip())
    suggestion = nearest(name, [row.function for row in session.sql("SHOW FUNCTIONS").collect()])
    hint = f"did you mean '{suggestion}'?" if suggestion else None
    return UsageError(f"there is no function {name}\n{position}".rstrip() if name else message, hint=hint)


def _query_position(error: Exception) -> str:
    """The part of the query that Spark marks, if it does."""
    contexts = (error.getQueryContext() or []) if isinstance(error, PySparkException) else []
    match = _QUERY_POSITION.search(contexts[0].summary() if contexts else str(error))
    return printable(match[0]) if match else ""


def printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def _innermost(text: str) -> str:
    """The most informative line of a Java stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else (lines[-1 if len(lines) == 1 else 1].lstrip(": ") if lines else "no message")
