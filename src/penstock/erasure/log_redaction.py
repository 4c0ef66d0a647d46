"""Removes names that a table's log has in clear: minimum and maximum values of a file's columns, partition folders, and
what others wrote into a commit. Everything else in a commit stays as it was: the ledger is kept intact, and so are the
paths of files that still exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.erasure.text_search import MASK, NUMBER, PREFIX, STATISTICS_PREFIX, variants

if TYPE_CHECKING:
    from penstock.erasure.text_search import NameSearch

_BOUNDS = ("minValues", "maxValues")
_ACTIONS = ("add", "remove", "cdc")
STATISTICS = re.compile(r"\.(?:minValues|maxValues)\.(.+)")
_VALUE_COLUMN = re.compile(r"\.(?:minValues|maxValues|partitionValues)\.(.+)")
OF_ROWS = re.compile(r"\.(?:minValues|maxValues|partitionValues\w*)\b|\.path$|redicate|\.userMetadata$|\.note$")
"""Places where a log has values of rows; the rest are names of columns, counts, sizes and positions."""


@dataclass(frozen=True)
class LogNames:
    """What to search for in the log of one table."""

    name_searches: tuple[NameSearch, ...]
    columns: frozenset[str] = frozenset()
    """Columns that hold names themselves, not in nested fields: numbers count in these too."""
    active: frozenset[str] = frozenset()
    """Files of the newest version, by their path in the table's folder: their statistics describe other subjects. A
    number, or a text that only begins like a name, is not the name there."""
    existing_files: frozenset[str] = frozenset()
    """Files that exist in the folder: their paths in the log stay."""
    other_names: frozenset[str] = frozenset()
    """Names of other subjects that contain a searched name."""
    excepted: frozenset[str] = frozenset()
    """Columns that the user declared to hold no names."""

    def in_value(self, value: Any, place: str, *, of_others: bool) -> bool:
        """Whether a value at this place of the log's JSON contains a name. `of_others`: the file is in the newest
        version."""
        rows = OF_ROWS.search(place) is not None
        statistics = STATISTICS.search(place)
        value_column = _VALUE_COLUMN.search(place)
        if of_others and value_column is not None and value_column[1].casefold() in self.excepted:
            return False
        if not isinstance(value, str):
            column = statistics[1].partition(".")[0].casefold() if statistics is not None else None
            applies = column is not None and (not of_others or column in self.columns)
            return applies and any(needle.equals(value) for needle in self.name_searches)
        stale_bound = statistics is not None and not of_others  # bounds of a file that is in no version are of no use
        for needle in self.name_searches:
            text = partition_values(value) if needle.plain and place.endswith(".path") else value
            for sighting in needle.sightings(text) if rows or needle.is_unambiguous else ():
                if sighting.kind == PREFIX:
                    if stale_bound and value.startswith(needle.value[:STATISTICS_PREFIX]):
                        return True
                elif (stale_bound or sighting.kind != NUMBER) and not sighting.within(self.other_names):
                    return True
        return False


def partition_values(path: str) -> str:
    """The partition values in a path; the rest of a path is numbers from Spark."""
    parts = unquote(path).split("/")[:-1]
    return "\n".join(part.partition("=")[2] for part in parts if "=" in part)


def json_values(document: Any, place: str = "$", *, keys: bool = False) -> Iterator[tuple[str, Any]]:
    """Every text and number of a document with its place, including those in JSON inside a text. With `keys` also the
    keys of objects: in a log they are names of columns, which its schema has too."""
    if isinstance(document, dict):
        for name, value in document.items():
            if keys:
                yield place, name
            yield from json_values(value, f"{place}.{name}", keys=keys)
    elif isinstance(document, list):
        for item in document:
            yield from json_values(item, f"{place}[*]", keys=keys)
    elif isinstance(document, str):
        nested = parse_json(document)
        if isinstance(nested, dict | list):
            yield from json_values(nested, place, keys=keys)
        else:
            yield place, document
    elif document is not None and not isinstance(document, bool):
        yield place, document


def parse_json(text: str) -> Any:
    """The text as JSON, or None if it is not a JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_about_active_file(action: Any, sought: LogNames) -> bool:
    """Whether an action of the log is about a file of the newest version."""
    if isinstance(action, dict):
        action = next((action[kind] for kind in _ACTIONS if kind in action), action)
    return isinstance(action, dict) and unquote(str(action.get("path"))) in sought.active


def contains_name(text: str, sought: LogNames) -> bool:
    """Whether a commit, a version's checksum or any JSON of the log holds a name."""
    if not any(needle.possible(variants(text)) for needle in sought.name_searches):
        return False
    return any(_contains_name(json.loads(line), sought) for line in text.split("\n") if line)


def _contains_name(document: Any, sought: LogNames) -> bool:
    if isinstance(document, dict) and isinstance(document.get("allFiles"), list):  # a checksum that lists files
        rest = {name: value for name, value in document.items() if name != "allFiles"}
        return _contains_name(rest, sought) or any(
            _contains_name({"add": file}, sought) for file in document["allFiles"]
        )
    is_active = is_about_active_file(document, sought)
    return any(sought.in_value(value, place, of_others=is_active) for place, value in json_values(document))


def redact_commit(text: str, sought: LogNames) -> str | None:
    """The text of a commit, or of a compacted log, without the names; None if it has none that can be taken out."""
    changed = False
    lines = text.split("\n")  # not splitlines: JSON keeps U+2028 in values unescaped
    for index, line in enumerate(lines):
        cleaned = _clean_line(line, sought) if line else None
        if cleaned is not None and cleaned != line:
            lines[index], changed = cleaned, True
    return "\n".join(lines) if changed else None


def _clean_line(line: str, sought: LogNames) -> str | None:
    action = json.loads(line)
    if not _contains_name(action, sought):
        return None
    is_active = is_about_active_file(action, sought)
    for kind in _ACTIONS:
        file_action = action.get(kind)
        if file_action is None:
            continue
        if file_action.get("stats") and _name_in_bounds(file_action["stats"], sought, of_others=is_active):
            file_action["stats"] = without_bounds(file_action["stats"])
        path = str(file_action.get("path"))
        if unquote(path) not in sought.existing_files:  # every action about the file gets the same path
            file_action["path"] = "/".join(_mask_folder(folder, sought) for folder in path.split("/"))
            values = file_action.get("partitionValues") or {}
            values.update({name: None for name, value in values.items() if _mask(value, sought) != value})
    info = action.get("commitInfo")
    if info is not None:
        parameters = info.get("operationParameters") or {}
        for name, value in parameters.items():
            if "redicate" in name or sought.in_value(value, f".operationParameters.{name}", of_others=False):
                parameters[name] = _mask(value, sought)
        note = info.get("userMetadata")
        if isinstance(note, str):
            info["userMetadata"] = _clean_note(note, sought)
    return json.dumps(action, separators=(",", ":"), ensure_ascii=False)


def _clean_note(text: str, sought: LogNames) -> str:
    """A ledger entry stays as it is except for the note, which a person wrote."""
    entry = parse_json(text)
    if not isinstance(entry, dict) or "penstock" not in entry:
        return str(_mask(text, sought))
    if not isinstance(entry.get("note"), str):
        return text
    return json.dumps({**entry, "note": _mask(entry["note"], sought)}, separators=(",", ":"), ensure_ascii=False)


def _mask_folder(folder: str, sought: LogNames) -> str:
    """Masks the value in a partition's folder, in the same way for each action about a file in it."""
    column, equals, value = folder.partition("=")
    return folder if _mask(value, sought) == value else f"{column}{equals}x"


def _mask(value: Any, sought: LogNames) -> Any:
    if not isinstance(value, str):
        return value
    for needle in sought.name_searches:
        if needle.in_text(value, sought.other_names):
            value = needle.masked(value)
            if needle.in_text(value, sought.other_names):
                value = MASK.decode()  # in a notation in which its start cannot be determined
    return value


def _name_in_bounds(stats: str, sought: LogNames, *, of_others: bool) -> bool:
    entries = json_values(parse_json(stats), "$.stats")
    return any(sought.in_value(value, place, of_others=of_others) for place, value in entries)


def without_bounds(stats: str) -> str:
    """Statistics without minimum and maximum values: readers then read the file. Removing only some of them would mean
    writing the numbers again, and they might come out different."""
    document = parse_json(stats)
    remaining = {name: value for name, value in document.items() if name not in _BOUNDS} if document else {}
    return json.dumps(remaining, separators=(",", ":"), ensure_ascii=False)
