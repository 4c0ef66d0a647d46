"""What a table has read of its source, all at once: the input of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from penstock.engine.protocol.position import Offsets


@dataclass(frozen=True)
class Covered:
    """The source may no longer have everything: rows of the table that were made of what is gone stay as they are."""

    rows: DataFrame
    """As batches of the source bring them."""
    held: Offsets | None = None
    """Of topics: the first offsets that are read; rows from before them, or from other topics, stay. None: it is all
    there."""
    gone: tuple[str, ...] = field(default=())
    """Files whose rows stay."""

    @property
    def whole(self) -> bool:
        return self.held is None and not self.gone


@dataclass(frozen=True)
class Asked:
    """Up to where, and how, a source is to be read once more."""

    after: tuple[str, ...]
    began: tuple[str, ...]
    """Where the table began to read."""
    ids: Mapping[str, str]
    """Of the topics that were read."""
    at: int | None = None
    """A version of the table upstream, in whose place the position would stand for another one."""
    as_state: bool = False
    """Of changes: what the rows are in the end is enough, not how they became so."""
