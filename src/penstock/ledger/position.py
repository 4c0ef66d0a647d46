"""Positions: how far a table has read, as Spark writes it: `{"orders":{"0":120,"1":98}}` of topics, of a Delta table
`{"sourceVersion":1,"reservoirId":"…","reservoirVersion":7,"index":-1,"isStartingVersion":false}`.

The ledger keeps Spark's text verbatim; these functions only read it. They treat a Delta table as a topic of one
partition whose offsets are its versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TopicInfo:
    id: str
    partitions: tuple[int, ...]


Offsets = dict[str, dict[int, int]]
"""topic -> partition -> next offset to read."""
VERSIONS = "versions of its source"
"""Takes the place of the topic for a Delta table; no topic can have this name."""


@dataclass(frozen=True)
class Range:
    """Offsets from start up to, not including, end."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        label = "versions" if self.topic == VERSIONS else f"{self.topic}-{self.partition}"
        return f"{label} [{self.start}, {self.end})"


def parse(position: str) -> Offsets:
    document = json.loads(position)
    if "reservoirVersion" in document:
        return {VERSIONS: {0: int(document["reservoirVersion"])}}
    return {topic: {int(p): int(o) for p, o in parts.items()} for topic, parts in document.items()}


def dump(offsets: Mapping[str, Mapping[int, int]]) -> str:
    ordered = {t: {str(p): offsets[t][p] for p in sorted(offsets[t])} for t in sorted(offsets)}
    return json.dumps(ordered, separators=(",", ":"))


def same(first: str, second: str) -> bool:
    """Compares content: Spark does not promise an order of topics and partitions."""
    return first == second or json.loads(first) == json.loads(second)


def same_positions(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """The same for all sources of an entry."""
    return len(first) == len(second) and all(map(same, first, second))


def ranges(before: str, after: str) -> Iterator[Range]:
    """What was read between two positions. A partition that `before` lacks began at 0."""
    earlier = parse(before)
    for topic, partitions in sorted(parse(after).items()):
        for partition, end in sorted(partitions.items()):
            start = earlier.get(topic, {}).get(partition, 0)
            if start != end:
                yield Range(topic, partition, start, end)


def filled(before: str, after: str) -> str:
    """`before` plus the partitions that only `after` has, at 0, where they began."""
    earlier, later = parse(before), parse(after)
    new = {t: set(parts) - set(earlier.get(t, {})) for t, parts in later.items()}
    if not any(new.values()):
        return before
    return dump({t: {**dict.fromkeys(new.get(t, ()), 0), **earlier.get(t, {})} for t in {**earlier, **later}})


def size(before: str, after: str) -> int:
    """The number of offsets between two positions, an upper bound for the number of records."""
    return sum(r.end - r.start for r in ranges(before, after))


def difference(before: str, after: str) -> str:
    """For messages: `orders-0 [5, 9), orders-1 [0, 3)`."""
    spans = [str(r) for r in ranges(before, after)]
    return ", ".join(spans[:8]) + (f" and {len(spans) - 8} more" if len(spans) > 8 else "") or "nothing"


def differences(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """The same for all sources of an entry."""
    return "; ".join(map(difference, before, after))


def describe_position(position: str) -> str:
    """A position for people, who cannot read what Spark writes for a Delta table."""
    if "reservoirVersion" not in position:
        return position
    document = json.loads(position)
    return f"{'the table as of ' if document.get('isStartingVersion') else ''}version {document['reservoirVersion']}"


# Positions in a Delta table, in Spark's own text.


_BEFORE_ALL_FILES = -1


@dataclass(frozen=True)
class Version:
    """Before the first file of a version, or within it. `snapshot` means that the whole table as of the version is
    read, before what was added later."""

    table_id: str
    version: int
    index: int = _BEFORE_ALL_FILES
    snapshot: bool = False

    @property
    def read_up_to(self) -> int:
        """The last version from which rows have been read."""
        return self.version - 1 if self.whole else self.version

    @property
    def whole(self) -> bool:
        """Every version up to here has been read to its end."""
        return self.index == _BEFORE_ALL_FILES and not self.snapshot

    @property
    def first_commit(self) -> int:
        """The first version that is read from here as a commit: a snapshot is read as rows, before the commits after
        it."""
        return self.version + 1 if self.snapshot else self.version

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
    """The `base` of a table that begins at this position: all that it reads is of this version or later ones."""
    return parse_version(position).first_commit - 1


def parse_version(text: str) -> Version:
    document = json.loads(text)
    return Version(
        document["reservoirId"], document["reservoirVersion"], document["index"], document["isStartingVersion"]
    )
