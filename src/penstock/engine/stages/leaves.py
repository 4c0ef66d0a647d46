"""Values that Spark casts too lightly, read with care.

It rounds decimals, makes infinity of a number that is too large, takes a time without a date for today's, and drops the
time of a date. So a value that does not fit is a fault of its record, not another value.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spec.schema import Scalar

_FIRST, _LAST = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"


@dataclass(frozen=True)
class Read:
    """SQL expressions: the value, and whether it is a fault (NULL counts as no)."""

    value: str
    faults: tuple[str, ...] = ()


def any_of(faults: tuple[str, ...]) -> str:
    """True or false, never NULL."""
    return f"coalesce({' OR '.join(f'({fault})' for fault in faults)}, false)" if faults else "false"


def read(kind: Scalar, found: str) -> Read:
    """`found` is the expression of the value as text, or as something wider."""
    match kind.name:
        case "DECIMAL":
            value = f"try_cast({found} AS {kind})"
            return Read(value, (f"{found} IS NOT NULL AND NOT ({value} <=> {found})",))
        case "FLOAT" | "DOUBLE":
            return Read(found, (f"isnan({found}) OR abs({found}) = double('Infinity')",))
        case "DATE":
            value = f"try_cast({found} AS DATE)"
            return Read(value, (f"{value} IS NULL AND {found} IS NOT NULL", f"octet_length({found}) <> 10"))
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            value = f"try_cast({found} AS {kind.name})"
            outside = f"{value} < {kind.name}'{_FIRST}' OR {value} > {kind.name}'{_LAST}'"
            no_date = f"substring({found}, 5, 1) <> '-'"
            return Read(value, (f"{value} IS NULL AND {found} IS NOT NULL", outside, no_date))
    return Read(found)
