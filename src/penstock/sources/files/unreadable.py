"""Finds the files of a batch that cannot be read, each with a reason that users understand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from penstock.sources.files.listing import location_of
from penstock.spark.jvm import java_causes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.plan.sources import FilesSource

_ABOUT_FILES = re.compile(
    r"FAILED_READ_FILE|PATH_NOT_FOUND|FILE_NOT_EXIST|FileNotFoundException|CANNOT_READ_FILE_FOOTER|"
    r"Could not read footer|MERGE_SCHEMA|UNABLE_TO_INFER_SCHEMA|AccessControlException|AccessDenied|"
    r"java[.]io[.]\w*Exception|java[.]util[.]zip|Permission denied|Encountered error while reading|URISyntaxException|"
    r"PARQUET_TYPE"
)
_GONE = re.compile(r"FileNotFoundException|PATH_NOT_FOUND|FILE_NOT_EXIST|NoSuchKey")
_DENIED = re.compile(r"AccessControlException|AccessDenied|Permission denied|Forbidden")
_BROKEN = re.compile(
    r"EOFException|Unexpected end of|ZipException|ZStandardException|DataFormatException|InvalidInput|not in gzip|"
    r"incorrect (?:header|data) check|invalid (?:block|stored|distance|code|bit)|is not a Parquet file|Parquet|"
    r"CANNOT_READ_FILE_FOOTER|CANNOT_MERGE|FAILED_MERGE|Checksum|CORRUPT|[Cc]orrupt|bad magic|Malformed|"
    r"URISyntaxException|PARQUET_TYPE"
)
_OTHER_TYPE = re.compile(r"column: \[(.+)\], physicalType: (\w+), logicalType: (\w+)")
_UNAVAILABLE = re.compile(
    r"SocketTimeout|ConnectException|ConnectTimeout|UnknownHost|Connection (?:reset|refused)|SlowDown|[Tt]hrottl|"
    r"ServiceUnavailable|InterruptedIOException|Too many open files"
)
_TRUNCATED = re.compile(r"EOFException|Unexpected end of")
_MAX_LENGTH = 300
_MAX_THREADS = 8

Kind = Literal["gone", "broken", "away"]


@dataclass(frozen=True)
class UnreadableFile:
    kind: Kind
    """gone and broken are permanent; away may pass: a store that does not answer, permissions not granted yet."""
    reason: str


def is_about_files(error: BaseException) -> bool:
    return bool(_ABOUT_FILES.search(error_text(error)))


def find_unreadable(
    names: Sequence[str],
    read: Callable[[Sequence[str]], DataFrame],
    probe: Callable[[str], None],
    error: BaseException,
    source: FilesSource,
) -> dict[str, UnreadableFile]:
    """Probes each file, then reads the remaining ones to their end: first those that the error names, then all others
    together; if that fails, one half at a time."""
    with ThreadPoolExecutor(_MAX_THREADS) as threads:
        probed = zip(names, threads.map(lambda name: _probe_file(name, probe), names), strict=True)
        troubles = {name: trouble for name, trouble in probed if trouble is not None}
    message = unquote(error_text(error))
    mentioned = [
        name for name in names if location_of(name, source).removeprefix("file://") in message and name not in troubles
    ]
    troubles |= {name: trouble for name in mentioned if (trouble := _try_reading([name], read)) is not None}
    troubles |= _bisect([name for name in names if name not in troubles], read)
    return troubles


def _probe_file(name: str, probe: Callable[[str], None]) -> UnreadableFile | None:
    try:
        probe(name)
    except Exception as error:
        return classify_error(error)
    return None


def classify_error(error: BaseException) -> UnreadableFile:
    message, cause = error_text(error), _innermost_cause(error)
    if _UNAVAILABLE.search(message):
        return UnreadableFile("away", cause)
    if _GONE.search(message):
        return UnreadableFile("gone", "it was deleted before it was read")
    if _DENIED.search(message):
        return UnreadableFile("away", f"it may not be read: {cause}")
    if _TRUNCATED.search(message):
        return UnreadableFile("broken", f"it ends too early, its end was not written: {cause}")
    return UnreadableFile("broken" if _BROKEN.search(message) else "away", cause)


def _bisect(names: Sequence[str], read: Callable[[Sequence[str]], DataFrame]) -> dict[str, UnreadableFile]:
    trouble = _try_reading(names, read) if names else None
    if trouble is None:
        return {}
    if len(names) == 1:
        return {names[0]: trouble}
    middle = len(names) // 2
    return _bisect(names[:middle], read) | _bisect(names[middle:], read)


def _try_reading(names: Sequence[str], read: Callable[[Sequence[str]], DataFrame]) -> UnreadableFile | None:
    try:
        read(names).write.format("noop").mode("overwrite").save()
    except Exception as error:
        if not is_about_files(error):
            raise
        return classify_error(error)
    return None


def error_text(error: BaseException) -> str:
    """The messages of the error and all its causes. Spark's own text leaves the causes out, or adds a stack trace of a
    hundred functions."""
    return "\n".join([str(cause.toString()) for cause in islice(java_causes(error), 20)] or [str(error)])


def _innermost_cause(error: BaseException) -> str:
    """The innermost cause in one line."""
    causes = list(java_causes(error))
    text = str(causes[-1].toString()) if causes else str(error)
    if mismatch := _OTHER_TYPE.search(text):
        return f"its column {mismatch[1]} is stored as {mismatch[2]} and cannot be read as {mismatch[3].upper()}"
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^(?:[a-z][\w$]*[.])+", "", line)[:_MAX_LENGTH]
