"""What became of the rows that a table read: read + reshaped = written + rejected + dropped + duplicates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Conserved:
    read: int
    reshaped: int
    """Rows that the transform made, less those that it was given."""
    written: int
    rejected: int
    dropped: int
    duplicates: int
    uncounted: int = 0
    """Batches whose numbers a crash took."""

    @property
    def left_out(self) -> int:
        """Records that are in neither the table nor its quarantine, and should not be."""
        return self.dropped + self.duplicates
