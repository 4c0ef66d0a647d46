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

    @property
    def said(self) -> str:
        """`1,000 read = 980 written + 15 in quarantine + 5 duplicates`."""
        made = f" + {self.reshaped:,} made by its stages" if self.reshaped > 0 else ""
        parts = [f"{self.written:,} written"]
        parts += [f"{self.rejected:,} in quarantine"] if self.rejected else []
        parts += [f"{self.duplicates:,} duplicates"] if self.duplicates else []
        parts += [f"{self.superseded:,} superseded"] if self.superseded else []
        parts += [f"{self.dropped:,} dropped"] if self.dropped else []
        parts += [f"{self.forgotten:,} forgotten"] if self.forgotten else []
        parts += [f"{-self.reshaped:,} left out or joined by its stages"] if self.reshaped < 0 else []
        said = f"{self.read:,} read{made} = {' + '.join(parts)}"
        return f"{said}; {self.conflicts:,} contradicted another of their sequence" if self.conflicts else said
