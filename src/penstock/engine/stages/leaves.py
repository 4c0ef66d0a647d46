"""Values of a decoded record that Spark's parser takes too lightly, read with care.

It rounds decimals, makes infinity of a number that is too large, reads a number as seconds since 1970 even if that
wraps around, takes a time without a date for today's, and drops the time of a date. So these are parsed as something
wider, and a value that does not fit is a fault of its record, not another value.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.identifiers import quote
from penstock.spec.schema import MAX_PRECISION, Array, Column, Map, Scalar, Struct, Type

AS_TEXT = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
"""Parsed as text, and cast here."""
_FIRST, _LAST = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"


@dataclass(frozen=True)
class Read:
    """SQL expressions: the value, and whether it is a fault (NULL counts as no)."""

    value: str
    faults: tuple[str, ...] = ()


def parsed_type(kind: Type) -> str:
    """What the parser is asked for in place of a type."""
    match kind:
        case Scalar("DECIMAL"):
            scale = MAX_PRECISION - (kind.precision - kind.scale)
            return f"DECIMAL({MAX_PRECISION},{scale})"
        case Scalar(name):
            return "STRING" if name in AS_TEXT else name
        case Array(element):
            return f"ARRAY<{parsed_type(element)}>"
        case Map(_, value):
            return f"MAP<STRING, {parsed_type(value)}>"
        case Struct(fields):
            return f"STRUCT<{', '.join(f'{quote(f.name)}: {parsed_type(f.type)}' for f in fields)}>"


def read(kind: Type, found: str, depth: int = 0, *, held: str | None = None) -> Read:
    """`found` is the expression of what the parser gave, `held` a column that will have the value of a scalar."""
    match kind:
        case Scalar():
            return _scalar(kind, found, held)
        case Struct(fields):
            return _struct(fields, found, depth)
        case Array(element):
            return _elements(element, found, depth)
        case Map(_, value):
            return _values(value, found, depth)


def any_of(faults: tuple[str, ...]) -> str:
    """True or false, never NULL."""
    return f"coalesce({' OR '.join(f'({fault})' for fault in faults)}, false)" if faults else "false"


def _scalar(kind: Scalar, found: str, held: str | None = None) -> Read:
    match kind.name:
        case "DECIMAL":
            value = f"try_cast({found} AS {kind})"
            return Read(value, (f"{found} IS NOT NULL AND NOT ({held or value} <=> {found})",))
        case "FLOAT" | "DOUBLE":
            return Read(found, (f"isnan({found}) OR abs({found}) = double('Infinity')",))
        case "DATE":
            value = f"try_cast({found} AS DATE)"
            return Read(value, (f"{held or value} IS NULL AND {found} IS NOT NULL", f"octet_length({found}) <> 10"))
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            value = f"try_cast({found} AS {kind.name})"
            taken = held or value
            outside = f"{taken} < {kind.name}'{_FIRST}' OR {taken} > {kind.name}'{_LAST}'"
            no_date = f"substring({found}, 5, 1) <> '-'"
            return Read(value, (f"{taken} IS NULL AND {found} IS NOT NULL", outside, no_date))
    return Read(found)


def _struct(fields: tuple[Column, ...], found: str, depth: int) -> Read:
    parts: list[str] = []
    faults: list[str] = []
    same = True
    for field in fields:
        inner = f"{found}.{quote(field.name)}"
        made = read(field.type, inner, depth)
        same = same and made.value == inner
        parts.append(f"'{_text(field.name)}', {made.value}")
        faults += made.faults
        if field.required:
            faults.append(f"{found} IS NOT NULL AND {inner} IS NULL")
    value = found if same else f"IF({found} IS NULL, NULL, named_struct({', '.join(parts)}))"
    return Read(value, tuple(faults))


def _elements(element: Type, found: str, depth: int) -> Read:
    one = f"x{depth}"
    made = read(element, one, depth + 1)
    value = found if made.value == one else f"transform({found}, {one} -> {made.value})"
    faults = (f"exists({found}, {one} -> {any_of(made.faults)})",) if made.faults else ()
    return Read(value, faults)


def _values(kind: Type, found: str, depth: int) -> Read:
    key, one = f"k{depth}", f"v{depth}"
    made = read(kind, one, depth + 1)
    value = found if made.value == one else f"transform_values({found}, ({key}, {one}) -> {made.value})"
    faults = (f"exists(map_values({found}), {one} -> {any_of(made.faults)})",) if made.faults else ()
    return Read(value, faults)


def _text(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")
