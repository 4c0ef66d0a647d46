"""What Spark says about a query, in few words: what is wrong, where in the query, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from penstock.errors import QueryFailed, SetupError, UsageError
from penstock.spark.jvm import java_session
from penstock.spec.base_model import nearest
from penstock.sql.readonly import WITHHELD
from penstock.sql.statement import pointed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.sql.statement import Statement
    from penstock.sql.versions import TableVersion

_SAID = re.compile(
    r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]\s+(.*?)(?=\s*SQLSTATE: |\s*\n\s*at |\s*\n== |\s*\Z)", re.DOTALL
)
_IDLE_ADVICE = re.compile(
    r'\s*If necessary set "[^"]*" to "[^"]*" to bypass this error\.|\s*To tolerate the error on drop use .*'
)
_PLACES = (
    (re.compile(r"\(line (\d+), position (\d+)\)"), 1),
    (re.compile(r"line (\d+),? pos (\d+)"), 0),
)
_GONE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|DELTA_FILE_NOT_FOUND|FileNotFoundException|NoSuchKey")
_FILE = re.compile(r"[^\s'\"]+\.(?:parquet|bin)\b")
_NO_FUNCTION = ("UNRESOLVED_ROUTINE", "ROUTINE_NOT_FOUND", "UNRESOLVABLE_TABLE_VALUED_FUNCTION")
_LONGEST = 600


@contextmanager
def explained(
    session: SparkSession, statement: Statement | None, read: Sequence[TableVersion], log: str
) -> Iterator[None]:
    """Turns what Spark raises within into errors of Penstock's. Without a statement it is the tables themselves that
    cannot be read. `read` are those that are known by then, `log` the folder of Spark's own log."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise _explain(session, statement, read, log, error) from None


def _explain(
    session: SparkSession, statement: Statement | None, read: Sequence[TableVersion], log: str, error: Exception
) -> PenstockError:
    text = str(error)
    if isinstance(error, Py4JNetworkError | ConnectionError) or "Answer from Java side is empty" in text:
        return SetupError("the JVM ended (killed, or out of memory)", hint=f"its last words are in {log}")
    if _GONE.search(text) and (found := _gone(text, read)):
        return found
    if "java.lang.StackOverflowError" in text:
        return UsageError("the query is nested too deeply", hint="give its inner queries names: WITH a AS (…) SELECT …")
    said = _SAID.search(text)
    condition, message = (said[1], said[2]) if said else ("", _innermost(text))
    message = " ".join(_IDLE_ADVICE.sub("", message).split())
    message = "".join(one if one.isprintable() else repr(one)[1:-1] for one in message)  # it may quote a row
    message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
    place = _place(statement, error, text)
    if condition in _NO_FUNCTION:
        return _no_function(session, error, message, place)
    whole = f"{message}\n{place}" if place else message
    if statement is None:
        return QueryFailed(whole, where=", ".join(map(str, read)), hint=f"the whole story is in {log}")
    if isinstance(error, AnalysisException | ParseException) and not condition.startswith("DELTA_"):
        return UsageError(whole)
    return QueryFailed(whole, hint=None if place else f"the whole story is in {log}")


def _gone(text: str, read: Sequence[TableVersion]) -> PenstockError | None:
    for path in map(unquote, _FILE.findall(text)):
        held = sorted((one for one in read if f"{one.table.uri}/" in path), key=lambda one: one.version)
        if held:
            name = held[0].table.name
            return QueryFailed(
                f"{' or '.join(map(str, held))} cannot be read any more: its file {path.rpartition('/')[2]} is gone. "
                "VACUUM removes the files that only older versions need",
                hint=f"read a newer version, or the newest: {name}. If files of that one are gone too, put them back "
                "from a backup",
            )
    return None


def _no_function(session: SparkSession, error: Exception, message: str, place: str) -> PenstockError:
    quoted = re.findall(r"`([^`]+)`", message.partition(" on search path")[0])
    name = quoted[-1] if quoted else ""
    if why := WITHHELD.get(name.casefold()):
        return UsageError(f"the function {name} is not there for queries: {why}\n{place}".rstrip())
    meant = nearest(name, _functions(session)) if name else None
    said = f"there is no function {name}" if name else message
    return UsageError(f"{said}\n{place}".rstrip(), hint=f"did you mean '{meant}'?" if meant else None)


def _functions(session: SparkSession) -> list[str]:
    state = java_session(session).sessionState()
    known: list[str] = []
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        listed = registry.listFunction()
        known += [str(listed.apply(number).funcName()) for number in range(listed.size())]
    return known


def _place(statement: Statement | None, error: Any, text: str) -> str:
    """Where in the query, as far as Spark says it."""
    if statement is None:
        return ""
    if isinstance(error, PySparkException):
        contexts = error.getQueryContext() or []
        if contexts and contexts[0].startIndex() >= 0:
            return pointed(statement.written, contexts[0].startIndex(), contexts[0].stopIndex())
    for pattern, first in _PLACES:
        if found := pattern.search(text):
            return pointed(statement.written, _index(statement.written, int(found[1]), int(found[2]) - first))
    return ""


def _index(text: str, line: int, column: int) -> int:
    lines = text.split("\n")[: line - 1]
    return sum(len(one) + 1 for one in lines) + column


def _innermost(text: str) -> str:
    """The line of a Java stack trace that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else (lines[-1 if len(lines) == 1 else 1].lstrip(": ") if lines else "no message")
