"""Is the first line of a CSV file its header? It decides whether that line is dropped, so it is asked with care.

Where the columns are known, a header names at least one of them and holds no value among its other names. Where they
are inferred, the first lines of the files must look like names, and agree: a file whose line shares no name with most
others has no header. Such a file goes to quarantine as a whole, so that no line of it is lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.files.head import Head
from penstock.errors import Terminal
from penstock.spec.schema import column_key

_VALUE = re.compile(
    r"""[-+]?[$€£]?\s*+(?:\d[\d\s,._']*+|\.\d++\s*+)(?:[eE][-+]?\d++\s*+)?[%$€£]?  # a number
    | \d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*                                    # a date, or a time
    | \d{1,2}:\d{2}.*
    | true | false | null | none | nan | n/a | [-+]?inf(?:inity)?
    | \w++://.*                                                           # an address
    | [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}         # a UUID, a hash
    | (?=.*\d)[0-9a-f]{16,}
    | [\[{].*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""Each alternative walks once over the text: the first line of a file can be anything."""
_SHOWN = 80
_LONGEST_NAME = 255
_MOST_NAMES = 10_000


def is_value(cell: str) -> bool:
    """A number, a date, a truth value and the like: what no column is called."""
    text = cell.strip()
    return len(text) > _LONGEST_NAME or _is_address(text) or _VALUE.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    """As of mail: something, @, something, a point and something."""
    sign = text.find("@", 1)
    return sign > 0 and text.rfind(".", sign + 2, len(text) - 1) > 0 and not any(map(str.isspace, text))


def why_no_header(head: Head, known: Collection[str]) -> str | None:
    """`known`: the columns of the table, without capitals. None if the line is a header."""
    if (fault := _fault(head)) is not None:
        return fault
    unknown = [cell for cell, name in zip(head.cells, head.names, strict=True) if column_key(name) not in known]
    if len(unknown) == len(head.cells):
        return f"its first line names none of the table's columns: {_shown(head)}"
    values = [cell for cell in unknown if is_value(cell)]
    if values and 2 * len(unknown) >= len(head.cells):
        return f"its first line is no header, for {values[0]!r} is a value and no name: {_shown(head)}"
    return None


def doubled(head: Head, known: Collection[str]) -> str | None:
    """A column of the table that a header names twice."""
    seen: set[str] = set()
    for name in head.plain:
        if column_key(name) in seen and column_key(name) in known:
            return name
        seen.add(column_key(name))
    return None


@dataclass(frozen=True)
class Established:
    """What the first files say about their header."""

    names: list[str]
    """The files that have it."""
    remarks: list[str]


def establish(heads: Mapping[str, Head], folder: str, table: str) -> Established:
    """`heads` by the name of the file, the oldest first. Terminal where the files do not tell."""
    headed = {name: head for name, head in heads.items() if _looks_like_names(head)}
    if not headed:
        name, head = next(iter(heads.items()))
        raise Terminal(
            f"no file in {folder} begins with a header, though `header: true` says so: the first line of {name} is "
            f"{_shown(head)}",
            where=table,
            hint="without a header, remove `header: true`; if these are names, write the columns: "
            "`schema: schemas/columns.ddl`",
        )
    groups = sorted(_alike(headed), key=len, reverse=True)
    if len(groups) > 1 and len(groups[0]) == len(groups[1]):
        first, second = groups[0][0], groups[1][0]
        raise Terminal(
            f"the files in {folder} do not agree on a header: {first} begins with {_shown(heads[first])}, and {second} "
            f"with {_shown(heads[second])}, which have no name in common",
            where=table,
            hint="one of them may have no header. Write the columns that are right: `schema: schemas/columns.ddl`; "
            "files that name none of them go to quarantine",
        )
    others = [name for name in heads if name not in groups[0]]
    remarks = [
        f"{name} begins with {_shown(heads[name])}, which is no header like that of {groups[0][0]}: the file goes to "
        "quarantine as a whole"
        for name in others[:3]
    ]
    mine = {name: head for name, head in headed.items() if name in groups[0]}
    twice = {head.line: (name, head) for name, head in mine.items() if head.plain != head.names}
    remarks += [
        f"{name} names a column twice: its columns are {', '.join(head.names)}" for name, head in twice.values()
    ]
    return Established(groups[0], remarks)


def _looks_like_names(head: Head) -> bool:
    cells = [cell for cell in head.cells if cell.strip()]
    same = len(cells) > 1 and len({column_key(cell) for cell in cells}) == 1
    return _fault(head) is None and bool(cells) and not same and not any(map(is_value, cells))


def _alike(heads: Mapping[str, Head]) -> list[list[str]]:
    """Files whose headers have a name in common, directly or through others; the oldest first."""
    groups: list[tuple[set[str], list[str]]] = []
    for file, head in heads.items():
        names, files = {column_key(name) for name in head.plain if name}, [file]
        apart = []
        for theirs, others in groups:
            if theirs & names:
                names, files = names | theirs, [*others, *files]
            else:
                apart.append((theirs, others))
        groups = [*apart, (names, files)]
    order = {file: place for place, file in enumerate(heads)}
    return sorted((sorted(files, key=order.__getitem__) for _, files in groups), key=lambda files: order[files[0]])


def _fault(head: Head) -> str | None:
    if "\ufffd" in head.line:
        return f"its first line is not UTF-8: {_shown(head)}"
    if len(head.cells) > _MOST_NAMES:
        return f"its first line has {len(head.cells):,} cells, and a table cannot have so many columns: {_shown(head)}"
    return None if head.cells else f"its first line has a quote that is not closed, or text behind one: {_shown(head)}"


def _shown(head: Head) -> str:
    return f"`{head.line[:_SHOWN]}`"


def folded(names: Sequence[str]) -> set[str]:
    return {column_key(name) for name in names}
