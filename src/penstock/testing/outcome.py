"""What became of the rows that a test gave to a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.protocol.fates import DROPPED, DUPLICATES, READ, UNMET, Fates

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    written: list[Row]
    """Rows that this run added; of an aggregate all rows that the table has now."""
    quarantined: list[Row]
    """Rejected rows with error_reason and error_detail, and the record as it came."""
    dropped: int = 0
    duplicates: int = 0
    read: int = 0
    unmet: Mapping[str, int] = field(default_factory=dict)
    """Per expectation, how many rows did not meet it."""


def outcome(written: list[Row], quarantined: list[Row], fates: Fates) -> Outcome:
    return Outcome(
        written=written,
        quarantined=quarantined,
        dropped=fates.get(DROPPED, 0),
        duplicates=fates.get(DUPLICATES, 0),
        read=fates.get(READ, 0),
        unmet={name.removeprefix(UNMET): n for name, n in fates.items() if name.startswith(UNMET)},
    )
