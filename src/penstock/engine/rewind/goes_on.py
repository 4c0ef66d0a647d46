"""Where a table goes on after it went back: where it was then, whatever has become of its source since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.position import Offsets, dump, parse
from penstock.errors import UsageError


@dataclass(frozen=True)
class GoesOn:
    after: tuple[str, ...]
    began: tuple[str, ...]
    topics: Mapping[str, str]
    subscription: Mapping[str, Any]
    parked: Mapping[str, Any]


def goes_on(then: Entry, now: Entry) -> GoesOn:
    if _topics(then) and _topics(now):
        return _in_topics(then, now)
    if dict(then.subscription) != dict(now.subscription):
        raise UsageError(
            f"{now.table} read another source then: where it would go on means nothing to the one that it has now",
            hint=f"`penstock replay {now.table}` makes it anew from its source of now",
        )
    return GoesOn(then.after, then.began, then.topics, now.subscription, now.parked)


def _topics(entry: Entry) -> bool:
    return "topics" in entry.subscription or "pattern" in entry.subscription


def _in_topics(then: Entry, now: Entry) -> GoesOn:
    """Topics that were named since begin where they began then, not by `starting` once more: latest would be later.
    Those that were taken out since are left where they were at the time."""
    was, began, first = parse(then.after[0]), _began(then), _began(now)
    left = {topic: _offsets(one) for topic, one in then.parked.items()}
    places: Offsets = {**first, **left, **was}
    read = [topic for topic in parse(now.after[0]) if topic in places]
    ids = {**now.topics, **then.topics}
    parked = {
        topic: {"id": then.topics.get(topic) or one.get("id"), "offsets": places[topic]} if topic in places else one
        for topic, one in now.parked.items()
    }
    return GoesOn(
        after=(dump({topic: places[topic] for topic in read}),),
        began=(dump({**first, **began}),) if first or began else (),
        topics={topic: ids[topic] for topic in read if topic in ids},
        subscription=now.subscription,
        parked=parked,
    )


def _began(entry: Entry) -> Offsets:
    return parse(entry.began[0]) if entry.began else {}


def _offsets(parked: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in parked["offsets"].items()}
