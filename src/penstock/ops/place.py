"""Where a table stands in one partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    topic: str
    partition: int
    position: int
    """The next offset to read."""
    end: int | None = None
    """The broker's next offset; None if unknown, or if it has no such partition."""

    @property
    def lag(self) -> int | None:
        """Offsets that are not in the table yet: at most so many records."""
        return None if self.end is None else max(0, self.end - self.position)
