"""What a table should hold: every range that its ledger says was read, as often as it was read."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ops.verify.spans import Spans

Key = tuple[str, int]
"""Topic and partition."""


class Expected:
    def __init__(self) -> None:
        self.times: dict[Key, list[Spans]] = {}
        """[0]: offsets that were read at least once; [1]: at least twice, because a person had them read again; …"""
        self.under: dict[Key, dict[str, Spans]] = {}
        """By topic id: a topic made again has other records under the same offsets."""

    def add(self, key: Key, start: int, end: int, topic_id: str) -> None:
        """An empty range makes the partition known."""
        levels = self.times.setdefault(key, [Spans()])
        if start >= end:
            return
        if not levels[0] or start >= levels[0].end:  # the ordinary case: it goes on where it ended
            levels[0].add(start, end)
        else:
            self._join(levels, Spans([(start, end)]))
        self.under.setdefault(key, {}).setdefault(topic_id, Spans()).add(start, end)

    def add_all(self, levels: Mapping[Key, list[Spans]], topic_id: str = "") -> None:
        """Each offset as often as it has levels."""
        for key, given in levels.items():
            known, under = self.times.setdefault(key, [Spans()]), self.under.setdefault(key, {})
            for level in given:
                self._join(known, level)
                under[topic_id] = under.get(topic_id, Spans()) | level

    @staticmethod
    def _join(levels: list[Spans], added: Spans) -> None:
        """Each of these offsets one time more; as a whole, for there may be many spans."""
        for i, level in enumerate(levels):
            levels[i], added = level | added, level & added
            if not added:
                return
        levels.append(added)

    def remove(self, key: Key, taken: Spans) -> None:
        """Each of these offsets one time less."""
        levels = self.times.get(key, [])
        for i in reversed(range(len(levels))):
            here = levels[i] & taken
            levels[i], taken = levels[i] - here, taken - here

    def forget_before(self, key: Key, offset: int) -> None:
        """Nothing is known of the offsets before this one."""
        if key in self.times and offset > 0:
            self.times[key] = [level - Spans([(0, offset)]) for level in self.times[key]]

    def once(self, key: Key) -> Spans:
        """Offsets that the table should hold at least once."""
        return self.times[key][0] if key in self.times else Spans()

    def reached(self, key: Key) -> int | None:
        """Where the furthest read ended."""
        spans = self.once(key)
        return spans.end if spans else None
