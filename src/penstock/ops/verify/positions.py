"""Positions of ledger entries, compared and told apart."""

from __future__ import annotations

from penstock.engine.protocol import position
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.position import Offsets


def offsets_of(sources: tuple[str, ...]) -> Offsets:
    """The positions of all sources of an entry in one."""
    found: Offsets = {}
    for one in sources:
        found |= position.parse(one)
    return found


def same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return len(one) == len(other) and all(position.same(a, b) for a, b in zip(one, other, strict=True))


def moved(last: Entry, entry: Entry) -> str:
    """Between the end of one entry and the start of the next: `orders-0 ended at 12, starts at 10`."""
    ended, starts = offsets_of(last.after), offsets_of(entry.before)
    keys = sorted({(t, p) for offsets in (ended, starts) for t, parts in offsets.items() for p in parts})
    texts = []
    for topic, partition in keys:
        then, now = ended.get(topic, {}).get(partition), starts.get(topic, {}).get(partition)
        if then != now:
            texts.append(
                f"{topic}-{partition} "
                + ("was not known" if then is None else f"ended at {then}")
                + (" and is gone" if now is None else f", starts at {now}")
            )
    return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")
