"""A table in one version: what a query reads."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.ops.sql.names import Readable


@dataclass(frozen=True)
class Pinned:
    table: Readable
    version: int

    def __str__(self) -> str:
        return f"{self.table.name}@v{self.version}"
