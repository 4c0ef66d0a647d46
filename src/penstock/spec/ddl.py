"""Columns as SQL writes them, read without a JVM: `order_id BIGINT NOT NULL, items ARRAY<STRUCT<sku: STRING>>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.spec.schema import Array, BadType, Column, Map, Scalar, Struct, Type, column_key, scalar

_TOKEN = re.compile(
    r"""\s+|--[^\n]*|/\*.*?\*/|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<word>[^\W\d][\w]*)|(?P<number>\d+)|(?P<sign>[<>(),:])""",
    re.DOTALL,
)
_EXAMPLE = "write columns such as: order_id BIGINT NOT NULL, amount DECIMAL(18,4)"


class BadSchema(ValueError):
    """What is wrong with a schema's text, and where in it (1-based)."""

    def __init__(self, message: str, hint: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.hint, self.line, self.column = message, hint, line, column


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def parse_ddl(text: str) -> Struct:
    """Raises BadSchema."""
    reader = _Reader(text)
    columns = reader.columns(nested=False, end="")
    return Struct(columns)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._bad(f"{text[at]!r} does not belong here", _EXAMPLE, at)
            if found.lastgroup:
                self._tokens.append(_Token(found.lastgroup, found[0], at))
            at = found.end()
        self._next = 0

    def columns(self, *, nested: bool, end: str) -> tuple[Column, ...]:
        columns: list[Column] = []
        taken: dict[str, str] = {}
        while True:
            token = self._peek()
            if token is None and not columns:
                raise self._bad("there are no columns", _EXAMPLE)
            column = self._column(nested=nested)
            if column_key(column.name) in taken:
                message = f"the column '{column.name}' is there twice"
                raise self._bad(message, "give each its own name; capitals make no difference", token)
            taken[column_key(column.name)] = column.name
            columns.append(column)
            following = self._peek()
            if following is not None and following.text == ",":
                self._next += 1
                if self._peek() is None and not end:
                    return tuple(columns)  # people leave the last comma
                continue
            if (following.text if following else "") != end:
                shown = f"'{following.text}' does not belong here" if following else "the text ends too early"
                raise self._bad(
                    shown, "columns are divided by commas" if following else f"close it with {end}", following
                )
            self._next += bool(end)
            return tuple(columns)

    def _column(self, *, nested: bool) -> Column:
        name = self._take("a column's name")
        if name.kind not in ("word", "quoted"):
            raise self._bad(f"'{name.text}' cannot name a column", "put it in backticks: `" + name.text + "`", name)
        if nested and (colon := self._peek()) is not None and colon.text == ":":
            self._next += 1
        kind = self._type()
        required = False
        while (word := self._peek()) is not None and word.kind == "word":
            match word.text.upper():
                case "NOT":
                    self._next += 1
                    null = self._take("NULL after NOT")
                    if null.text.upper() != "NULL":
                        raise self._bad(f"NOT {null.text} says nothing", "write NOT NULL", null)
                    required = True
                case "COMMENT":
                    self._next += 2
                case _:
                    raise self._bad(f"'{word.text}' does not belong here", "columns are divided by commas", word)
        plain = name.text[1:-1].replace("``", "`") if name.kind == "quoted" else name.text
        return Column(plain, kind, required)

    def _type(self) -> Type:
        word = self._take("a type")
        match word.text.upper():
            case "ARRAY":
                self._expect("<", "ARRAY<STRING>")
                element = self._type()
                self._expect(">", "ARRAY<STRING>")
                return Array(element)
            case "MAP":
                self._expect("<", "MAP<STRING, BIGINT>")
                key = self._type()
                if key != Scalar("STRING"):
                    raise self._bad(f"{key} cannot be the key of a map", "keys of JSON objects are STRING", word)
                self._expect(",", "MAP<STRING, BIGINT>")
                value = self._type()
                self._expect(">", "MAP<STRING, BIGINT>")
                return Map(Scalar("STRING"), value)
            case "STRUCT":
                self._expect("<", "STRUCT<a: STRING>")
                return Struct(self.columns(nested=True, end=">"))
        try:
            return scalar(word.text, self._arguments())
        except BadType as error:
            raise self._bad(str(error), error.hint, word) from None

    def _arguments(self) -> tuple[int, ...]:
        token = self._peek()
        if token is None or token.text != "(":
            return ()
        self._next += 1
        numbers: list[int] = []
        while (inner := self._take("a closing bracket")).text != ")":
            if inner.kind == "number":
                numbers.append(int(inner.text))
            elif inner.text != ",":
                raise self._bad(f"'{inner.text}' does not belong here", "write for example DECIMAL(18,4)", inner)
        return tuple(numbers)

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, what: str) -> _Token:
        token = self._peek()
        if token is None:
            raise self._bad(f"the text ends where {what} belongs", _EXAMPLE)
        self._next += 1
        return token

    def _expect(self, sign: str, example: str) -> None:
        token = self._take(f"'{sign}'")
        if token.text != sign:
            raise self._bad(f"'{token.text}' stands where '{sign}' belongs", f"write {example}", token)

    def _bad(self, message: str, hint: str, at: _Token | int | None = None) -> BadSchema:
        place = len(self._text.rstrip()) if at is None else at.at if isinstance(at, _Token) else at
        before = self._text[:place]
        return BadSchema(message, hint, before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1)
