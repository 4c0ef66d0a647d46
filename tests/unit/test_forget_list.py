"""The suppression list: names as keyed hashes, written once and for good."""

from __future__ import annotations

import stat
import threading
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import SecretStr

from penstock.errors import Terminal, UsageError
from penstock.plan.subjects import ForgetPlan
from penstock.storage.stores import LocalStore
from penstock.tables.subject_columns import steps
from penstock.tables.suppression_list import SuppressionList, canonical, subject_hash


def open_list(folder: Path, key: str | None = None) -> SuppressionList:
    return SuppressionList(ForgetPlan(str(folder / "forget"), SecretStr(key) if key else None), LocalStore())


@pytest.mark.parametrize("value", [42, "42", 42.0, Decimal("42.00"), Decimal("4.2E1"), b"42"])
def test_one_subject_has_one_text_however_it_is_typed(value: object) -> None:
    assert canonical(value) == "42"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("042", "042"),
        ("42.0", "42.0"),
        (" 42", " 42"),
        (-7, "-7"),
        (0.0, "0"),
        (Decimal("0.50"), "0.5"),
        (1e21, "1000000000000000000000"),
        (True, "true"),
        ("Zoë", "Zoë"),
    ],
)
def test_text_is_taken_as_it_is_and_numbers_in_plain_form(value: object, text: str) -> None:
    assert canonical(value) == text


def test_a_number_that_would_fill_the_memory_is_not_written_out() -> None:
    assert canonical(Decimal("1E+999999999")) == "1E+999999999"


def test_the_hash_is_of_the_kind_of_subject_too() -> None:
    assert subject_hash(b"k" * 32, "customer", 42) == subject_hash(b"k" * 32, "customer", "42")
    assert subject_hash(b"k" * 32, "customer", 42) != subject_hash(b"k" * 32, "device", 42)
    assert subject_hash(b"k" * 32, "customer", 42) != subject_hash(b"q" * 32, "customer", 42)


def test_an_order_is_there_for_the_next_who_looks_and_only_once(tmp_path: Path) -> None:
    first = open_list(tmp_path)
    assert first.orders() == () and not (tmp_path / "forget").exists()
    made = first.add("customer", "alice@example.org")
    assert first.add("customer", "alice@example.org") == made
    other = open_list(tmp_path)
    assert other.add("customer", "alice@example.org") == made
    assert other.orders() == (made,) == first.orders(["customer"]) and first.orders(["device"]) == ()
    assert [path.name for path in (tmp_path / "forget" / "orders").iterdir()] == [f"{made.id}.json"]


def test_the_name_is_in_no_file(tmp_path: Path) -> None:
    open_list(tmp_path).add("customer", "alice@example.org")
    for path in tmp_path.rglob("*"):
        assert "alice" not in path.name
        assert path.is_dir() or b"alice" not in path.read_bytes()


def test_the_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    open_list(tmp_path).add("customer", 42)
    assert stat.S_IMODE((tmp_path / "forget" / "key").stat().st_mode) == 0o600


def test_many_who_begin_at_once_have_one_key(tmp_path: Path) -> None:
    lists = [open_list(tmp_path) for _ in range(8)]
    threads = [threading.Thread(target=one.add, args=("customer", n)) for n, one in enumerate(lists)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.key for one in lists}) == 1 and len(open_list(tmp_path).orders()) == 8


def test_a_list_sees_what_others_have_added_since(tmp_path: Path) -> None:
    one, other = open_list(tmp_path), open_list(tmp_path)
    one.add("customer", 1)
    assert len(other.orders()) == 1
    one.add("customer", 2)
    assert len(other.orders()) == 2


def test_orders_without_their_key_are_told_rather_than_passed_by(tmp_path: Path) -> None:
    open_list(tmp_path).add("customer", 42)
    with pytest.raises(Terminal, match="another key"):
        open_list(tmp_path, "another key of a project").orders()
    (tmp_path / "forget" / "key").unlink()
    with pytest.raises(Terminal, match="is gone"):
        open_list(tmp_path).orders()
    with pytest.raises(Terminal, match="is gone"):
        open_list(tmp_path).add("customer", 43)


def test_an_order_that_cannot_be_read_stops_whoever_looks(tmp_path: Path) -> None:
    made = open_list(tmp_path).add("customer", 42)
    (tmp_path / "forget" / "orders" / f"{made.id}.json").write_text('{"penstock": 1, "sub')
    with pytest.raises(Terminal, match="cannot be read"):
        open_list(tmp_path).orders()


def test_the_key_of_the_project_leaves_no_file(tmp_path: Path) -> None:
    open_list(tmp_path, "0123456789abcdef").add("customer", 42)
    assert not (tmp_path / "forget" / "key").exists()
    assert len(open_list(tmp_path, "0123456789abcdef").orders()) == 1


def test_on_an_object_store_the_key_has_to_be_given() -> None:
    remote = SuppressionList(ForgetPlan("s3a://nowhere/forget"), LocalStore())
    with pytest.raises(UsageError, match="has to be given"):
        remote.add("customer", 42)


def test_a_path_is_taken_apart() -> None:
    assert list(steps("$")) == []
    assert list(steps("$.items[*].id")) == [".items", "[*]", ".id"]
    assert list(steps("$['customer id'][3].x")) == [".customer id", "[3]", ".x"]
