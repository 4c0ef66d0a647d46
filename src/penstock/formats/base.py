"""A record's payload as typed columns, in one parse; what does not fit is a fault with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.errors import Terminal
from penstock.spark.sql_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARSED = "__parsed"


@dataclass(frozen=True)
class Decoded:
    """`frame` has the columns of the input and the parser's result. The rest are SQL expressions over it."""

    frame: DataFrame
    columns: tuple[tuple[str, str], ...]
    """Name and value of each decoded column."""
    is_bad: str
    """True or false: computed for every record, so it is cheap."""
    reason: str
    """A struct of reason and detail: computed for bad records only."""
    is_dropped: str = "false"
    """True or false: the record is neither a row nor a fault, and is counted as dropped."""
    unknown: str | None = None
    """The first field that the schema does not name, or NULL. A format that names its fields declares it."""
    rescued: str | None = None
    """All such fields as the text of a JSON object, or NULL; None if the decoder does not collect them."""

    @property
    def unknown_field(self) -> str:
        if self.unknown is None:
            raise Terminal(
                "the decoder does not tell which fields of a record are unknown: new fields cannot stop the table",
                hint="declare Decoded.unknown in the decoder; or remove `new_fields: fail`",
            )
        return self.unknown


class Decoder(Protocol):
    def decode(self, records: DataFrame) -> Decoded: ...


def reason(name: str, detail: str) -> str:
    """`detail` is an SQL expression."""
    return f"named_struct('reason', {literal(name)}, 'detail', {detail})"


def absent(column: str, binary: str | None) -> list[tuple[str, str]]:
    """Condition and reason of missing payloads."""
    value = quote(column)
    conditions = []
    if binary is not None:
        detail = literal(f"{column} is not UTF-8; its bytes are in value_binary")
        conditions.append((f"{value} IS NULL AND {quote(binary)} IS NOT NULL", reason("not_utf8", detail)))
    conditions.append((f"{value} IS NULL", reason("no_value", literal(f"{column} is null"))))
    conditions.append((f"trim({value}) = ''", reason("empty_value", literal(f"{column} is empty"))))
    return conditions


def case(conditions: list[tuple[str, str]], otherwise: str) -> str:
    whens = " ".join(f"WHEN {condition} THEN {result}" for condition, result in conditions)
    return f"CASE {whens} ELSE {otherwise} END"
