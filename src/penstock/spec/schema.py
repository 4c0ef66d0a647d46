"""The schema of decoded records as plain data: no JVM is needed to check a project, and the plan can show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.spec.finding import nearest

MAX_PRECISION = 38
_SCALARS = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
)
_ALIASES = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_OTHERS = {
    "TEXT": "write STRING",
    "VARCHAR": "write STRING; check its length with expect",
    "CHAR": "write STRING; check its length with expect",
    "DATETIME": "write TIMESTAMP",
    "BOOL": "write BOOLEAN",
    "NUMBER": "write BIGINT, DOUBLE or DECIMAL(18,4)",
    "VARIANT": "write STRING: a JSON value of any shape is refused in a STRING, so decode it with its own fields",
}


@dataclass(frozen=True)
class Scalar:
    """By Spark's own name. A decimal has a precision and a scale."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.name == "DECIMAL" else self.name


@dataclass(frozen=True)
class AnyJson(Scalar):
    """A STRING that takes any JSON value as its text: of a field whose values were found to be of several kinds. It is
    never written by a user; the comment tells the decoder."""

    name: str = "STRING"

    def __str__(self) -> str:
        return "STRING COMMENT 'penstock: any JSON'"


@dataclass(frozen=True)
class Array:
    element: Type

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True)
class Map:
    key: Scalar
    value: Type

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True)
class Struct:
    fields: tuple[Column, ...]

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(f.written(': ') for f in self.fields)}>"

    def columns(self) -> str:
        """As the columns of a table are written: `order_id` BIGINT NOT NULL, …"""
        return ", ".join(str(column) for column in self.fields)

    def walk(self) -> Iterator[Column]:
        """Every column, those of nested structs too."""
        for column in self.fields:
            yield column
            yield from _within(column.type)


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    required: bool = False

    def __str__(self) -> str:
        return self.written(" ")

    def written(self, between: str) -> str:
        return f"{_quoted(self.name)}{between}{self.type}{' NOT NULL' if self.required else ''}"


Type = Scalar | Array | Map | Struct


def _within(kind: Type) -> Iterator[Column]:
    match kind:
        case Struct():
            yield from kind.walk()
        case Array(element):
            yield from _within(element)
        case Map(_, value):
            yield from _within(value)


_DOTTED_I = re.compile("i\u0307+")


def column_key(name: str) -> str:
    """Two columns are one if these are equal. Spark compares names by Java's `equalsIgnoreCase`, Delta by their lower
    case: to the one `id`, `\u0131d` and `\u0130d` are the same name, to the other `\u0130d` and `i\u0307d`."""
    return _DOTTED_I.sub("i", name.upper().casefold())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class BadType(ValueError):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def scalar(word: str, arguments: tuple[int, ...] = ()) -> Scalar:
    """Raises BadType with what to write instead."""
    name = _ALIASES.get(word.upper(), word.upper())
    if name in ("DECIMAL", "DEC", "NUMERIC"):
        return _decimal(arguments)
    if name in _OTHERS:
        raise BadType(f"{word} is not a type of a record's field", _OTHERS[name])
    if name not in _SCALARS:
        known = [*_SCALARS, "DECIMAL", "ARRAY", "MAP", "STRUCT"]
        meant = nearest(word, [*known, *_ALIASES])
        raise BadType(
            f"{word} is not a type", f"did you mean {meant}?" if meant else f"write one of {', '.join(known)}"
        )
    if arguments:
        raise BadType(f"{name} takes no numbers in brackets", f"write {name}")
    return Scalar(name)


def _decimal(arguments: tuple[int, ...]) -> Scalar:
    if not arguments:
        raise BadType("a DECIMAL without its digits would hold whole numbers only", "write DECIMAL(18,4)")
    precision, scale = arguments if len(arguments) == 2 else (arguments[0], 0)
    if len(arguments) > 2 or not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        written = ", ".join(map(str, arguments))
        raise BadType(f"DECIMAL({written}) cannot be", f"write DECIMAL(p,s) with p up to {MAX_PRECISION}, s up to p")
    return Scalar("DECIMAL", precision, scale)
