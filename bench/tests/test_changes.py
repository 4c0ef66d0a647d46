import json
from collections import Counter
from datetime import datetime

from bench.changes import FIELDS, Changes, row

ROWS = 10_000
MANY = 4_000


def test_three_of_four_changes_are_updates_one_of_five_is_new_and_one_of_twenty_deletes() -> None:
    changes = [Changes(ROWS).change(n) for n in range(MANY)]
    seen = set(range(ROWS))
    kinds: Counter[str] = Counter()
    for change in changes:
        kinds["delete" if change.deletes else "update" if change.key in seen else "new"] += 1
        seen.add(change.key)
    assert kinds == {"update": MANY * 75 // 100, "new": MANY * 20 // 100, "delete": MANY * 5 // 100}


def test_new_keys_follow_each_other_without_a_gap() -> None:
    new = sorted({Changes(ROWS).change(n).key for n in range(MANY)} - set(range(ROWS)))
    assert new == list(range(ROWS, ROWS + MANY * 20 // 100))


def test_what_is_changed_lies_within_the_newest_two_of_a_hundred() -> None:
    newest = ROWS
    for n in range(MANY):
        key = Changes(ROWS).change(n).key
        assert newest - ROWS * 2 // 100 <= key <= newest
        newest = max(newest, key + 1)
    assert min(Changes(ROWS).change(n).key for n in range(MANY)) >= Changes(ROWS).oldest


def test_a_later_change_has_a_higher_sequence_than_any_before_it_and_any_row() -> None:
    sequences = [Changes(ROWS).change(n).seq for n in range(100)]
    assert sequences == list(range(ROWS, ROWS + 100))


def test_a_record_has_the_fields_of_its_row() -> None:
    for n in range(40):
        change = Changes(ROWS).change(n)
        found = json.loads(Changes(ROWS).value(n))
        assert list(found) == ["op", *(name for name in FIELDS if name != "op")]
        at = int(datetime.fromisoformat(found["changed_at"]).timestamp())
        made = {**found, "changed_at": at, "amount": round(found["amount"] * 100)}
        assert made.pop("op") == ("d" if change.deletes else "u")
        assert tuple(made.values()) == row(change.key, change.seq)


def test_without_changes_the_rows_are_those_that_were_filled_in() -> None:
    changes = Changes(ROWS)
    assert list(changes.after(0)) == [row(key, key) for key in range(changes.oldest, ROWS)]


def test_the_last_change_of_a_key_decides_whether_it_lives() -> None:
    changes = Changes(ROWS)
    last = {change.key: change for change in map(changes.change, range(MANY))}
    living = {one[0]: one[1] for one in changes.after(MANY)}
    assert any(change.deletes for change in last.values())
    for key, change in last.items():
        assert living.get(key) == (None if change.deletes else change.seq)
