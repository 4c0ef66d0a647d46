"""Names that a table's log has in clear: the least and the greatest value of a file's columns, the folder of a
partition, and what others wrote into a commit. The text of a commit without them, everything else as it was: the ledger
stays whole, and so does what the log calls files that are still there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.erasure.text_search import CUT, KEPT, MASK, NUMBER, variants

if TYPE_CHECKING:
    from penstock.erasure.text_search import NameSearch

_BOUNDS = ("minValues", "maxValues")
_ACTIONS = ("add", "remove", "cdc")
STATISTICS = re.compile(r"\.(?:minValues|maxValues)\.(.+)")
_COLUMN = re.compile(r"\.(?:minValues|maxValues|partitionValues)\.(.+)")
OF_ROWS = re.compile(r"\.(?:minValues|maxValues|partitionValues\w*)\b|\.path$|redicate|\.userMetadata$|\.note$")
"""Where a log has values of rows; the rest are names of columns, counts, sizes and positions."""


@dataclass(frozen=True)
class Sought:
    """Who is looked for in the log of one table."""

    needles: tuple[NameSearch, ...]
    columns: frozenset[str] = frozenset()
    """Those that hold names, with no fields below them: in these numbers count too."""
    active: frozenset[str] = frozenset()
    """Files of the newest version, by their names in the folder of the table: what their statistics say is of others.
    A number, or a text that only begins like a name, is not the name there."""
    there: frozenset[str] = frozenset()
    """Files that are in the folder: what the log calls them stays."""
    others: frozenset[str] = frozenset()
    """Names of somebody else that have one of these in them."""
    excepted: frozenset[str] = frozenset()
    """Columns of which a person says that they hold no names."""

    def in_value(self, value: Any, place: str, *, of_others: bool) -> bool:
        """Whether a value of a log, at this place of its JSON, has a name."""
        rows = OF_ROWS.search(place) is not None
        found = STATISTICS.search(place)
        column_of = _COLUMN.search(place)
        if of_others and column_of is not None and column_of[1].casefold() in self.excepted:
            return False
        if not isinstance(value, str):
            column = found[1].partition(".")[0].casefold() if found is not None else None
            known = column is not None and (not of_others or column in self.columns)
            return known and any(one.equals(value) for one in self.needles)
        gone = found is not None and not of_others  # a bound of a file that no version has is of no use to anybody
        for needle in self.needles:
            text = folders_of(value) if needle.plain and place.endswith(".path") else value
            for sighting in needle.sightings(text) if rows or needle.telling else ():
                if sighting.kind == CUT:
                    if gone and value.startswith(needle.value[:KEPT]):
                        return True
                elif (gone or sighting.kind != NUMBER) and not sighting.within(self.others):
                    return True
        return False


def folders_of(path: str) -> str:
    """The values of partitions in a path; the rest of it are numbers of Spark's."""
    parts = unquote(path).split("/")[:-1]
    return "\n".join(part.partition("=")[2] for part in parts if "=" in part)


def leaves(found: Any, place: str = "$", *, keys: bool = False) -> Iterator[tuple[str, Any]]:
    """Every text and number of a document with its place; the JSON that a text holds is gone into. With `keys` those of
    objects as well: in a log they are names of columns, which its schema has too."""
    if isinstance(found, dict):
        for name, value in found.items():
            if keys:
                yield place, name
            yield from leaves(value, f"{place}.{name}", keys=keys)
    elif isinstance(found, list):
        for one in found:
            yield from leaves(one, f"{place}[*]", keys=keys)
    elif isinstance(found, str):
        inner = parsed(found)
        if isinstance(inner, dict | list):
            yield from leaves(inner, place, keys=keys)
        else:
            yield place, found
    elif found is not None and not isinstance(found, bool):
        yield place, found


def parsed(text: str) -> Any:
    """None if it is no JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def of_others(action: Any, sought: Sought) -> bool:
    """Whether a part of the log is about a file of the newest version."""
    about = next((action[kind] for kind in _ACTIONS if kind in action), action) if isinstance(action, dict) else None
    return isinstance(about, dict) and unquote(str(about.get("path"))) in sought.active


def names_left(text: str, sought: Sought) -> bool:
    """Whether a commit, a version's checksum or any JSON of the log holds a name."""
    if not any(one.possible(variants(text)) for one in sought.needles):
        return False
    return any(_holds(json.loads(line), sought) for line in text.split("\n") if line)


def _holds(found: Any, sought: Sought) -> bool:
    if isinstance(found, dict) and isinstance(found.get("allFiles"), list):  # a checksum that lists files
        rest = {name: value for name, value in found.items() if name != "allFiles"}
        return _holds(rest, sought) or any(_holds({"add": one}, sought) for one in found["allFiles"])
    others = of_others(found, sought)
    return any(sought.in_value(value, place, of_others=others) for place, value in leaves(found))


def scrubbed(text: str, sought: Sought) -> str | None:
    """The text of a commit, or of a compacted log, without the names; None if it has none that can be taken out."""
    changed = False
    lines = text.split("\n")  # not splitlines: JSON leaves U+2028 in a value as it is
    for index, line in enumerate(lines):
        made = _line(line, sought) if line else None
        if made is not None and made != line:
            lines[index], changed = made, True
    return "\n".join(lines) if changed else None


def _line(line: str, sought: Sought) -> str | None:
    action = json.loads(line)
    if not _holds(action, sought):
        return None
    others = of_others(action, sought)
    for kind in _ACTIONS:
        about = action.get(kind)
        if about is None:
            continue
        if about.get("stats") and _in_bounds(about["stats"], sought, of_others=others):
            about["stats"] = without_bounds(about["stats"])
        if unquote(str(about.get("path"))) not in sought.there:  # each action about the file alike
            about["path"] = "/".join(_without_value(one, sought) for one in str(about.get("path")).split("/"))
            values = about.get("partitionValues") or {}
            values.update({name: None for name, value in values.items() if _masked(value, sought) != value})
    info = action.get("commitInfo")
    if info is not None:
        given = info.get("operationParameters") or {}
        for name, value in given.items():
            if "redicate" in name or sought.in_value(value, f".operationParameters.{name}", of_others=False):
                given[name] = _masked(value, sought)
        note = info.get("userMetadata")
        if isinstance(note, str):
            info["userMetadata"] = _note(note, sought)
    return json.dumps(action, separators=(",", ":"), ensure_ascii=False)


def _note(text: str, sought: Sought) -> str:
    """A ledger entry stays as it is, but for what a person wrote into it."""
    entry = parsed(text)
    if not isinstance(entry, dict) or "penstock" not in entry:
        return str(_masked(text, sought))
    if not isinstance(entry.get("note"), str):
        return text
    return json.dumps({**entry, "note": _masked(entry["note"], sought)}, separators=(",", ":"), ensure_ascii=False)


def _without_value(folder: str, sought: Sought) -> str:
    """The folder of a partition; the same for each action that is about a file in it."""
    column, equals, value = folder.partition("=")
    return folder if _masked(value, sought) == value else f"{column}{equals}x"


def _masked(value: Any, sought: Sought) -> Any:
    if not isinstance(value, str):
        return value
    for needle in sought.needles:
        if any(one.kind not in (NUMBER, CUT) and not one.within(sought.others) for one in needle.sightings(value)):
            value = needle.masked(value)
            if any(one.kind not in (NUMBER, CUT) and not one.within(sought.others) for one in needle.sightings(value)):
                value = MASK.decode()  # written in a way that cannot be told where it begins
    return value


def _in_bounds(stats: str, sought: Sought, *, of_others: bool) -> bool:
    found = leaves(parsed(stats), "$.stats")
    return any(sought.in_value(value, place, of_others=of_others) for place, value in found)


def without_bounds(stats: str) -> str:
    """Without any least and greatest values: a reader then looks into the file. To take out some of them only, numbers
    would have to be written anew, and might not be the same."""
    document = parsed(stats)
    kept = {name: value for name, value in document.items() if name not in _BOUNDS} if document else {}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)
