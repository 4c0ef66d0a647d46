"""One query as a user wrote it: what can be said about it before Spark is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import UsageError
from penstock.sql.versions import Names, Versions, zone_of
from penstock.storage.stores import LocalStore

if TYPE_CHECKING:
    from penstock.plan.model import Plan

# SQL cut into tokens as Spark's lexer cuts it: enough to know what is text, what is a comment and what is neither.


Kind = Literal["word", "quoted", "string", "sign", "broken"]
_SPACE = re.compile(r"\s+|--(?:\\\r?\n|[^\r\n])*")
_COMMENT = re.compile(r"/\*(?!\+)")  # /*+ is a hint, and so a part of the statement
_WITHIN_COMMENT = re.compile(r"/\*(?!\+)|\*/")
_TOKENS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("string", re.compile(r"[rR](?:'[^']*'|\"[^\"]*\")")),  # raw: a backslash is a backslash
    ("string", re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL)),
    ("quoted", re.compile(r"`(?:[^`]|``)*`")),
    ("broken", re.compile(r"[rR]?['\"`].*", re.DOTALL)),
    ("word", re.compile(r"\w+")),
    ("sign", re.compile(r".", re.DOTALL)),
)


@dataclass(frozen=True)
class Token:
    kind: Kind
    """word: a keyword, a name or a number. quoted: a name in backquotes. broken: begun, and not closed."""
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        """What a word or a quoted name means."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def tokens(text: str) -> Iterator[Token]:
    """Comments and white space are left out. A broken token, which is the rest of the text, comes last."""
    at = 0
    while at < len(text):
        if found := _SPACE.match(text, at):
            at = found.end()
        elif _COMMENT.match(text, at):
            end = _comment_end(text, at)
            if end is None:
                yield Token("broken", text[at:], at)
                return
            at = end
        else:
            kind, found = next((kind, found) for kind, token in _TOKENS if (found := token.match(text, at)))
            yield Token(kind, found[0], at)
            at = found.end()


def _comment_end(text: str, start: int) -> int | None:
    """Comments may hold comments. None: it is not closed."""
    depth = 0
    for found in _WITHIN_COMMENT.finditer(text, start):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return None


# A place in a query, shown as a compiler shows it.


_WIDEST = 100
_BEFORE = 40


def pointed(text: str, start: int, stop: int | None = None) -> str:
    """The line around the place, and marks below it from `start` to `stop`, both inclusive."""
    start = max(0, min(start, len(text)))
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin : len(text) if end < 0 else end]
    number, column = text.count("\n", 0, start) + 1, start - begin
    length = min((start if stop is None else stop) - start + 1, len(line) - column)
    cut = max(0, column - _BEFORE) if len(line) > _WIDEST else 0
    shown = "".join(one if one.isprintable() else " " for one in line[cut : cut + _WIDEST])
    marks = "^" * max(1, min(length, _WIDEST - (column - cut)))
    lines = f"line {number}, column {column + 1}" if "\n" in text.strip() else f"column {column + 1}"
    return f"  {shown}\n  {' ' * (column - cut)}{marks} {lines}"


# One query as a user wrote it: what can be said about it before Spark is there.
#
# `silver.orders@v12` is no SQL. The version is read here and covered with blanks, so that Spark parses a text in
# which every other character stands where the user put it: what it says about a place is true of the user's own text.


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


# What is wrong with a query, said before Spark is started, as far as it can be.


def refuse_early(plan: Plan, statement: Statement) -> None:
    """Only a table has a version behind its name: so those are known, and on a local lake their versions too."""
    names, versions = Names(plan), Versions(LocalStore(), zone_of(plan))
    for mention in statement.mentions.values():
        table = names.find(mention.parts, pointed(statement.written, mention.start, mention.sign - 1))
        if plan.local:
            versions.of(table, mention.at)
