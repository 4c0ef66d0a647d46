"""What the tests of doctor put into a table: the last entry of its ledger, and Delta's note beside a commit."""

from __future__ import annotations

import json

from penstock.ledger.entry import Entry
from tests.bronze_table import BronzeTable


def last(table: BronzeTable) -> Entry:
    assert table.last is not None
    return table.last


def noted(table: BronzeTable, version: int, files: int, size: int, **properties: str) -> None:
    """As Delta notes it beside a commit."""
    note = {"numFiles": files, "tableSizeBytes": size, "metadata": {"configuration": properties}}
    (table.log / f"{version:020d}.crc").write_text(json.dumps(note))
