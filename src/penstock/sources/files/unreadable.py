"""Files that cannot be read: found among those of a batch, each with a reason that a person understands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from penstock.sources.files.listing import location_of

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
_AWAY = re.compile(
    r"SocketTimeout|ConnectException|ConnectTimeout|UnknownHost|Connection (?:reset|refused)|SlowDown|[Tt]hrottl|"
    r"ServiceUnavailable|InterruptedIOException|Too many open files"
)
_ENDS_EARLY = re.compile(r"EOFException|Unexpected end of")
_LONGEST = 300
_AT_ONCE = 8

Kind = Literal["gone", "broken", "away"]


@dataclass(frozen=True)
class Trouble:
    kind: Kind
    """gone and broken are for good; away may pass: a store that does not answer, rights that are not there yet."""
    reason: str


def is_about_files(error: BaseException) -> bool:
    return bool(_ABOUT_FILES.search(story(error)))


def find_unreadable(
    names: Sequence[str],
    read: Callable[[Sequence[str]], DataFrame],
    probe: Callable[[str], None],
    error: BaseException,
    source: FilesSource,
) -> dict[str, Trouble]:
    """Looks at each alone, then reads the rest to their end, those first that the error names; if that fails, half of
    them at a time."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        looked = zip(names, threads.map(lambda name: _probed(name, probe), names), strict=True)
        found = {name: trouble for name, trouble in looked if trouble is not None}
    said = unquote(story(error))
    named = [name for name in names if location_of(name, source).removeprefix("file://") in said and name not in found]
    found |= {name: trouble for name in named if (trouble := _tried([name], read)) is not None}
    found |= _search([name for name in names if name not in found], read)
    return found


def _probed(name: str, probe: Callable[[str], None]) -> Trouble | None:
    try:
        probe(name)
    except Exception as error:
        return trouble_of(error)
    return None


def trouble_of(error: BaseException) -> Trouble:
    whole, cause = story(error), _cause(error)
    if _AWAY.search(whole):
        return Trouble("away", cause)
    if _GONE.search(whole):
        return Trouble("gone", "it was deleted before it was read")
    if _DENIED.search(whole):
        return Trouble("away", f"it may not be read: {cause}")
    if _ENDS_EARLY.search(whole):
        return Trouble("broken", f"it ends too early, its end was not written: {cause}")
    return Trouble("broken" if _BROKEN.search(whole) else "away", cause)


def _search(names: Sequence[str], read: Callable[[Sequence[str]], DataFrame]) -> dict[str, Trouble]:
    trouble = _tried(names, read) if names else None
    if trouble is None:
        return {}
    if len(names) == 1:
        return {names[0]: trouble}
    middle = len(names) // 2
    return _search(names[:middle], read) | _search(names[middle:], read)


def _tried(names: Sequence[str], read: Callable[[Sequence[str]], DataFrame]) -> Trouble | None:
    try:
        read(names).write.format("noop").mode("overwrite").save()
    except Exception as error:
        if not is_about_files(error):
            raise
        return trouble_of(error)
    return None


def story(error: BaseException) -> str:
    """What the error and all its causes say. Spark's own text leaves the causes out, or has the names of a hundred
    functions with them."""
    cause: Any = _java(error)
    parts = [str(error)] if cause is None else []
    for _ in range(20):
        if cause is None:
            break
        parts.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(parts)


def _cause(error: BaseException) -> str:
    """The innermost cause in one line."""
    cause: Any = _java(error)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    text = str(cause.toString()) if cause is not None else str(error)
    if other := _OTHER_TYPE.search(text):
        return f"its column {other[1]} is stored as {other[2]} and cannot be read as {other[3].upper()}"
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"^(?:[a-z][\w$]*[.])+", "", line)[:_LONGEST]


def _java(error: BaseException) -> Any:
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)
