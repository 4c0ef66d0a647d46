"""Positions in a Delta table, in Spark's own text."""

from __future__ import annotations

import json
from dataclasses import dataclass

_BEFORE_ALL_FILES = -1


@dataclass(frozen=True)
class Version:
    """Before the first file of a version, or within it. `snapshot` means the whole table as of the version is read,
    before what was added later."""

    table_id: str
    version: int
    index: int = _BEFORE_ALL_FILES
    snapshot: bool = False

    @property
    def read_up_to(self) -> int:
        """The last version of which rows have been read."""
        return self.version - 1 if self.whole else self.version

    @property
    def whole(self) -> bool:
        """Every version up to here is read to its end."""
        return self.index == _BEFORE_ALL_FILES and not self.snapshot

    def __str__(self) -> str:
        document = {
            "sourceVersion": 1,
            "reservoirId": self.table_id,
            "reservoirVersion": self.version,
            "index": self.index,
            "isStartingVersion": self.snapshot,
        }
        return json.dumps(document, separators=(",", ":"))


def base_of(position: str) -> int:
    """The version up to which all that a table has read is wholly there as it is now, if it begins here."""
    at = parse(position)
    return at.version if at.snapshot else at.version - 1


def parse(text: str) -> Version:
    document = json.loads(text)
    return Version(
        document["reservoirId"], document["reservoirVersion"], document["index"], document["isStartingVersion"]
    )
