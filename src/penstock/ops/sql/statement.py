"""One query as a user wrote it: what can be said about it before Spark is there.

`silver.orders@v12` is no SQL. The version is read here and covered with blanks, so that Spark parses a text in which
every other character stands where the user put it: what it says about a place is true of the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import UsageError
from penstock.ops.sql.pointing import pointed
from penstock.ops.sql.tokens import Token, tokens

BEGINNINGS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_BARE = re.compile(
    r"[vV]?\d+(?!\w|-\d)"
    r"|\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?(?!\w)"
)
_WAYS = '@v12, @12, or as of a time: @"2026-05-14 09:00", @2026-05-14T09:00, @2026-05-14'


@dataclass(frozen=True)
class Mention:
    """A name with a version behind it."""

    parts: tuple[str, ...]
    at: str
    """The version, as it is written."""
    start: int
    """Where the name begins; the version, with its @, stands from `sign` to `end`."""
    sign: int
    end: int


@dataclass(frozen=True)
class Statement:
    written: str
    text: str
    """The same without versions, and of the same length."""
    mentions: Mapping[int, Mention]
    """By the places where their names begin."""


def read_statement(text: str) -> Statement:
    """Raises UsageError for what cannot be one query."""
    found = list(tokens(text))
    _refuse_broken(text, found)
    end = next((token.start for token in found if token.text == ";"), len(text))
    kept = [token for token in found if token.start < end]
    if not kept:
        raise UsageError("there is no query", hint='write one: penstock sql "SELECT * FROM bronze.orders"')
    more = next((token for token in found if token.start > end and token.text != ";"), None)
    if more is not None:
        raise UsageError(
            f"there is more than one statement\n{pointed(text, more.start)}", hint="ask them one by one, or in a shell"
        )
    _refuse_other_than_query(text, kept)
    mentions = _mentions(text[:end], kept)
    blank = text[:end]
    for one in mentions:
        blank = blank[: one.sign] + re.sub(r"[^\n]", " ", blank[one.sign : one.end]) + blank[one.end :]
    return Statement(text[:end], blank, {mention.start: mention for mention in mentions})


def split(text: str) -> tuple[list[str], str]:
    """Statements that are ended by `;`, and the rest, in which one may have begun."""
    done: list[str] = []
    begin, last = 0, None
    for token in tokens(text):
        last = token
        if token.text == ";":
            done.append(text[begin : token.end])
            begin, last = token.end, None
    return done, text[begin:] if last is not None else ""


def _refuse_broken(text: str, found: Sequence[Token]) -> None:
    if found and found[-1].kind == "broken":
        start = found[-1].start
        what = {"/": "comment", "`": "name in backquotes"}.get(found[-1].text[0], "string")
        raise UsageError(f"the {what} that begins here is not closed\n{pointed(text, start)}")


def _refuse_other_than_query(text: str, found: Sequence[Token]) -> None:
    first = next((token for token in found if token.text != "("), found[0])
    if first.text.upper() not in BEGINNINGS:
        raise UsageError(
            f"'{first.text[:40]}' does not begin a query, and nothing else is run: tables are only read\n"
            f"{pointed(text, first.start, first.end - 1)}",
            hint=f"a query begins with {', '.join(BEGINNINGS[:-1])} or {BEGINNINGS[-1]}",
        )


def _mentions(text: str, found: Sequence[Token]) -> list[Mention]:
    mentions: list[Mention] = []
    for number, token in enumerate(found):
        if token.text != "@" or number == 0 or (mentions and token.start < mentions[-1].end):
            continue
        name = _name_before(found, number)
        if not name or name[-1].end != token.start:
            continue  # not ours: Spark says what is wrong with it
        following = found[number + 1] if number + 1 < len(found) else None
        if following is not None and following.start == token.end and following.kind == "string":
            at, end = following.text.lstrip("rR")[1:-1], following.end
        elif bare := _BARE.match(text, token.end):
            at, end = bare[0], bare.end()
        else:
            wrong = following.end if following is not None else token.end
            raise UsageError(
                f"what stands behind @ is no version\n{pointed(text, token.start, wrong - 1)}", hint=f"write {_WAYS}"
            )
        mentions.append(Mention(tuple(part.name for part in name), at, name[0].start, token.start, end))
    return mentions


def _name_before(found: Sequence[Token], number: int) -> list[Token]:
    """The parts of the dotted name that ends before a token."""
    parts: list[Token] = []
    at = number - 1
    while at >= 0 and found[at].kind in ("word", "quoted"):
        parts.insert(0, found[at])
        if at < 2 or found[at - 1].text != ".":
            break
        at -= 2
    return parts
