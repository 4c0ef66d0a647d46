"""Rows that change, keys local in time: what fills the tables of scenario merge, the changes, and what must come of it.

A row is told by its key and its sequence: every other column follows from these two, in SQL for the tables that are
filled by Spark, in Python for the records and for the check.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.load import Records

COLUMNS = {
    "id": ("BIGINT", "id"),
    "seq": ("BIGINT", "seq"),
    "customer": ("STRING", "concat('c', lpad(CAST(id * 31 % 100000 AS STRING), 7, '0'))"),
    "status": ("STRING", "concat('s', CAST(seq % 7 AS STRING))"),
    "changed_at": ("TIMESTAMP", "timestamp_seconds(1767225600 + seq)"),
    "quantity": ("INT", "CAST(1 + seq % 9 AS INT)"),
    "amount": ("DECIMAL(18,4)", "CAST(CAST(seq * 17 % 90000 AS DECIMAL(18,4)) / 100 AS DECIMAL(18,4))"),
    "note": ("STRING", "md5(concat(CAST(id AS STRING), '-', CAST(seq AS STRING)))"),
}
"""Name -> type, and how Spark computes it from id and seq."""
FIELDS = {**{name: kind for name, (kind, _) in COLUMNS.items()}, "op": "STRING"}
"""Of a record."""
DELETES = "op = 'd'"
_EPOCH = 1_767_225_600
_OF = 20
"""Of so many changes one is a delete, four are new keys, the others updates."""
_NEW = 4

Row = tuple[int, int, str, str, int, int, int, str]
"""As COLUMNS, but changed_at in seconds and amount in hundredths."""


def row(key: int, seq: int) -> Row:
    note = hashlib.md5(f"{key}-{seq}".encode()).hexdigest()
    return (key, seq, f"c{key * 31 % 100_000:07}", f"s{seq % 7}", _EPOCH + seq, 1 + seq % 9, seq * 17 % 90_000, note)


@dataclass(frozen=True)
class Change:
    key: int
    seq: int
    deletes: bool


class Changes(Records):
    """Of a table that has the keys 0 to rows - 1, each with its own number as its sequence. What is changed lies within
    the newest 2% of the keys; new ones go on where the last ended."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._window = max(1, rows * 2 // 100)

    @property
    def oldest(self) -> int:
        """No key below it is ever changed."""
        return self._rows - self._window

    def change(self, n: int) -> Change:
        place = n % _OF
        newest = self._rows + n // _OF * _NEW + max(0, min(_NEW, place - 1))
        if 1 <= place <= _NEW:
            return Change(newest, self._rows + n, deletes=False)
        key = newest - 1 - random.Random(n).randrange(self._window)
        return Change(key, self._rows + n, deletes=place == 0)

    def after(self, count: int) -> Iterator[Row]:
        """The living rows from the oldest key that may be changed on, after so many changes."""
        newest: dict[int, Change] = {key: Change(key, key, deletes=False) for key in range(self.oldest, self._rows)}
        for n in range(count):
            change = self.change(n)
            newest[change.key] = change
        return (row(one.key, one.seq) for one in newest.values() if not one.deletes)

    def key(self, n: int) -> str:
        return str(self.change(n).key)

    def value(self, n: int) -> str:
        change = self.change(n)
        key, seq, customer, status, seconds, quantity, hundredths, note = row(change.key, change.seq)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
        return (
            f'{{"op":"{"d" if change.deletes else "u"}","id":{key},"seq":{seq},"customer":"{customer}",'
            f'"status":"{status}","changed_at":"{at}","quantity":{quantity},'
            f'"amount":{hundredths // 100}.{hundredths % 100:02},"note":"{note}"}}'
        )
