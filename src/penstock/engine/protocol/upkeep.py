"""What a commit of Penstock's own upkeep says in `userMetadata`: who looked after the files, and why.

It is no link of the chain: no row changes with it, and the last entry of the table stays the last one.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from typing import Any, Literal

Work = Literal["optimize", "purge", "vacuum", "remember"]
WORKS = ("optimize", "purge", "vacuum", "remember")
"""optimize: small files became large ones, or were put in order. purge: rows that were only marked as deleted are gone.
vacuum: files that no version needs any more were deleted. remember: the table remembers removed files for longer."""
_FORMAT = 1


@dataclass(frozen=True)
class Upkeep:
    work: Work
    table: str
    by: str
    """`penstock optimize`, `penstock vacuum`, or the runner."""
    note: str
    """For people: what was found, what was done."""
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)

    @property
    def said(self) -> str:
        return f"{self.note} ({self.by}, process {self.process} on {self.host})"


def dump(upkeep: Upkeep) -> str:
    document: dict[str, Any] = {
        "penstock": _FORMAT,
        "kind": upkeep.work,
        "table": upkeep.table,
        "by": upkeep.by,
        "note": upkeep.note,
        "host": upkeep.host,
        "process": upkeep.process,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def parse(user_metadata: str | None) -> Upkeep | None:
    """None if that is somebody else's text, or an entry of the ledger."""
    if not user_metadata or '"penstock"' not in user_metadata:
        return None
    try:
        document = json.loads(user_metadata)
        if document["kind"] not in WORKS:
            return None
        return Upkeep(
            document["kind"],
            str(document["table"]),
            str(document["by"]),
            str(document["note"]),
            str(document["host"]),
            int(document["process"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
