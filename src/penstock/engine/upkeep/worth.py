"""What looking after the files of a table would do, and whether it pays. Pure: files in, steps out.

Every rule weighs bytes that are written anew against files that a reader no longer has to open. Without them a table of
a terabyte would be written anew every hour because of the megabyte that came meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.engine.upkeep.layout import DataFile, Layout, Partition
from penstock.spec.finding import Wrong
from penstock.spec.quantity import counted, size

FEWEST = 5
"""Files that have to come together before they are worth a write."""
SHARE = 0.2
"""Of the bytes that would be put in order, those that are new; of the rows that would be read, those that are gone."""
MANY = 100
"""Files that are new: so many are put in order, however small their share."""
CUBE = 16
"""Rows are clustered in groups of about so many files of the target's size; a group that is full stays as it is."""
MOST_PARTITIONS = 200
"""That are put in order in one commit: they are named in the statement. The others follow in the next run."""
Kind = Literal["purge", "compact", "zorder", "cluster"]


@dataclass(frozen=True)
class Step:
    kind: Kind
    files: int
    """That are written anew."""
    bytes: int
    left: int
    """About so many files are left of them."""
    partitions: tuple[Partition, ...] = ()
    """Of zorder: only these; empty: the whole table."""

    @property
    def said(self) -> str:
        what = {
            "purge": "without their deleted rows",
            "compact": "as larger ones",
            "zorder": "in order",
            "cluster": "clustered",
        }[self.kind]
        some = f" in {counted(len(self.partitions), 'partition')}" if self.partitions else ""
        return f"{counted(self.files, 'file')}{some} {what}"


@dataclass(frozen=True)
class Wanted:
    """What a table's files should be like."""

    target: int
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    """Also where it does not pay."""
    ordered: Mapping[Partition, int] = field(default_factory=dict)
    """When a partition was put in order: files that are newer are not, yet. All of the others are not."""

    @property
    def small(self) -> int:
        """Files below are written anew. Half of the target: what was written once is left alone."""
        return self.target if self.full else self.target // 2


def target_bytes(configuration: Mapping[str, str], default: int) -> int:
    """`delta.targetFileSize` of the table, else the project's."""
    try:
        return size(configuration["delta.targetFileSize"].strip()) or default
    except (KeyError, Wrong):
        return default


def steps(layout: Layout, wanted: Wanted) -> list[Step]:
    """In the order in which they are done; [] if there is nothing that pays."""
    ordering = _cluster(layout, wanted) if layout.clustered else _zorder(layout, wanted) if wanted.zorder_by else None
    if ordering is not None:
        return [ordering]  # it leaves no deleted row behind either
    purge, rest = _purge(layout, wanted)
    if layout.clustered or wanted.zorder_by:
        return [purge] if purge else []
    compact = _compact(rest, wanted)
    return [step for step in (purge, compact) if step is not None]


def _purge(layout: Layout, wanted: Wanted) -> tuple[Step | None, list[DataFile]]:
    """Files with rows that are only marked as deleted, and the others."""
    marked = [file for file in layout.files if file.deleted]
    rows, gone = sum(max(file.rows, file.deleted) for file in marked), sum(file.deleted for file in marked)
    if not marked or (gone < rows * SHARE and not wanted.full):
        return None, list(layout.files)
    size_left = sum(file.size for file in marked) * (rows - gone) // max(1, rows)
    parts = len({file.partition for file in marked})
    step = Step("purge", len(marked), sum(file.size for file in marked), max(parts, -(-size_left // wanted.target)))
    return step, [file for file in layout.files if not file.deleted]


def _compact(files: Sequence[DataFile], wanted: Wanted) -> Step | None:
    bins = [one for found in _by_partition(files).values() for one in _bins(found, wanted)]
    count = sum(map(len, bins))
    if count - len(bins) < (1 if wanted.full else FEWEST - 1):
        return None
    return Step("compact", count, sum(file.size for one in bins for file in one), len(bins))


def _bins(files: Sequence[DataFile], wanted: Wanted) -> Iterator[list[DataFile]]:
    """As Delta fills them: the smallest first, each up to the target; a file alone stays as it is."""
    small = sorted((file for file in files if file.size < wanted.small), key=lambda file: file.size)
    one: list[DataFile] = []
    filled = 0
    for file in small:
        if one and filled + file.size > wanted.target:
            if len(one) > 1:
                yield one
            one, filled = [], 0
        one.append(file)
        filled += file.size
    if len(one) > 1:
        yield one


def _zorder(layout: Layout, wanted: Wanted) -> Step | None:
    """A partition is put in order as a whole."""
    parts = _by_partition(layout.files)
    if wanted.full:
        return _ordering("zorder", list(layout.files), wanted, ()) if layout.files else None
    chosen = [part for part, files in parts.items() if _pays(files, sum(file.size for file in files), wanted)]
    chosen = sorted(chosen, key=lambda part: -_new(parts[part], wanted)[0])[:MOST_PARTITIONS]
    if not chosen:
        return None
    files = [file for part in chosen for file in parts[part]]
    return _ordering("zorder", files, wanted, tuple(chosen) if layout.partition_by else ())


def _cluster(layout: Layout, wanted: Wanted) -> Step | None:
    """What is new joins the group that is not full yet."""
    count, fresh = _new(layout.files, wanted)
    total = layout.bytes if wanted.full else min(layout.bytes, fresh + CUBE * wanted.target)
    if wanted.full:
        return _ordering("cluster", list(layout.files), wanted, ()) if layout.files else None
    if not _pays(layout.files, total, wanted):
        return None
    files = len(layout.files) if total == layout.bytes else count + CUBE
    return Step("cluster", files, total, max(1, total // wanted.target))


def _ordering(kind: Kind, files: Sequence[DataFile], wanted: Wanted, partitions: tuple[Partition, ...]) -> Step:
    parts = _by_partition(files)
    left = sum(max(1, sum(file.size for file in found) // wanted.target) for found in parts.values())
    return Step(kind, len(files), sum(file.size for file in files), left, partitions)


def _pays(files: Sequence[DataFile], total: int, wanted: Wanted) -> bool:
    count, fresh = _new(files, wanted)
    return count >= FEWEST and (fresh >= total * SHARE or count >= MANY)


def _new(files: Sequence[DataFile], wanted: Wanted) -> tuple[int, int]:
    """How many files are not in order yet, and their bytes."""
    found = [file for file in files if file.modified_ms > wanted.ordered.get(file.partition, 0)]
    return len(found), sum(file.size for file in found)


def _by_partition(files: Sequence[DataFile]) -> dict[Partition, list[DataFile]]:
    found: dict[Partition, list[DataFile]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file)
    return found
