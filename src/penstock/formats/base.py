"""A record's payload as typed columns, by one parse; what cannot be taken as it stands is a fault with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.spark.sql_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A record's payload as typed columns, by one parse; what cannot be taken as it stands is a fault with its reason.


PARSED = "__parsed"


@dataclass(frozen=True)
class Decoded:
    """`frame` has the columns of the input and what the parser gave. The rest are SQL expressions over it."""

    frame: DataFrame
    columns: tuple[tuple[str, str], ...]
    """Name and value of each decoded column."""
    bad: str
    """True or false: computed for every record, so it is cheap."""
    why: str
    """A struct of reason and detail: computed for bad records only."""
    gone: str = "false"
    """True or false: the record is no row and no fault either, and is counted as dropped."""


class Decoder(Protocol):
    def decode(self, records: DataFrame) -> Decoded: ...


def reason(name: str, detail: str) -> str:
    """`detail` is an expression."""
    return f"named_struct('reason', {literal(name)}, 'detail', {detail})"


def absent(column: str, binary: str | None) -> list[tuple[str, str]]:
    """Condition and reason of payloads that are not there at all."""
    value = quote(column)
    found = []
    if binary is not None:
        detail = literal(f"{column} is not UTF-8; its bytes are in value_binary")
        found.append((f"{value} IS NULL AND {quote(binary)} IS NOT NULL", reason("not_utf8", detail)))
    found.append((f"{value} IS NULL", reason("no_value", literal(f"{column} is null"))))
    found.append((f"trim({value}) = ''", reason("empty_value", literal(f"{column} is empty"))))
    return found


def case(conditions: list[tuple[str, str]], otherwise: str) -> str:
    whens = " ".join(f"WHEN {condition} THEN {result}" for condition, result in conditions)
    return f"CASE {whens} ELSE {otherwise} END"
