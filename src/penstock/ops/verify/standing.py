"""Where the table stands at the broker: how far behind, and whether the broker still has what comes next."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.protocol.position import Offsets, Range
from penstock.ops.broker import Held, places


def problems(position: Offsets, ids: Mapping[str, str], held: Held) -> list[str]:
    """Why the table cannot go on from its position. To be behind is none."""
    found = []
    for topic in sorted(position):
        if recreated(topic, ids, held):
            found.append(
                f"topic {topic} was deleted and made again (id {ids[topic]}, now {held.topics[topic].id}): "
                "the table's offsets are those of the old one"
            )
    for one in places(position, held):
        if one.end is None or recreated(one.topic, ids, held):
            continue
        earliest = held.earliest[one.topic][one.partition]
        if one.position > one.end:
            found.append(
                f"{one.topic}-{one.partition} ends at {one.end} at the broker, the table has read up to {one.position}"
            )
        elif one.position < earliest:
            lost = Range(one.topic, one.partition, one.position, earliest)
            found.append(f"{lost} was removed from Kafka before it was landed ({lost.end - lost.start} offsets)")
    return found


def gone(position: Offsets, held: Held) -> list[str]:
    """Topics that no longer exist: whatever they held beyond the position cannot be known."""
    return [] if held.problem else sorted(set(position) - set(held.topics))


def recreated(topic: str, ids: Mapping[str, str], held: Held) -> bool:
    return bool(ids.get(topic)) and topic in held.topics and held.topics[topic].id != ids[topic]
