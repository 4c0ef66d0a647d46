"""Which groups, or rows, are looked at if not all of them are.

By a hash of their keys, so that the same ones are taken of both sides and one that is missing on either is found. The
version is part of it: the same command over the same version looks at the same ones, over the next at others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SIZE = 100
"""About so many are looked at."""
ALL_UP_TO = 2 * SIZE
"""So few are all looked at."""


@dataclass(frozen=True)
class Sample:
    every: int = 1
    """One in so many; 1: all."""
    salt: int = 0

    @property
    def whole(self) -> bool:
        return self.every == 1

    def condition(self, keys: Sequence[str]) -> str:
        """`keys` are expressions of Spark SQL that are the same on both sides."""
        if self.whole:
            return "true"
        return f"pmod(xxhash64({self.salt}L, {', '.join(keys)}), {self.every}L) = 0"


def sample_of(rows: int, version: int, *, deep: bool) -> Sample:
    if deep or rows <= ALL_UP_TO:
        return Sample()
    return Sample(max(1, rows // SIZE), version)


def hashable(column: str, kind: str) -> str | None:
    """A key as it is hashed; None if Spark holds values for equal whose hashes are others."""
    if kind in ("float", "double"):  # 0.0 and -0.0 are one group
        return f"IF({column} = 0, CAST(0 AS {kind}), {column})"
    return None if "collate" in kind or "<" in kind or kind == "variant" else column
