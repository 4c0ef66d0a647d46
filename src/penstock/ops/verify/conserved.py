"""What became of the rows that a table read.

read + reshaped = written + rejected + dropped + duplicates + superseded + forgotten
"""

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
    superseded: int = 0
    """Of a merged table: changes that a newer one of their key had overtaken."""
    forgotten: int = 0
    """Of somebody who was to be forgotten: left out, or taken out later."""
    conflicts: int = 0
    """Among its changes those that had the sequence of another one, and another content."""
    uncounted: int = 0
    """Batches whose numbers a crash took."""

    @property
    def left_out(self) -> int:
        """Records that are in neither the table nor its quarantine, and should not be."""
        return self.dropped + self.duplicates
