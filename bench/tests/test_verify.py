from pathlib import Path

from arro3.core import Array, DataType, Field, Schema, Table
from deltalake import write_deltalake

from bench.verify import check_delta

EXPECTED = {("orders", 0): (5, 8), ("orders", 1): (0, 0)}
SCHEMA = Schema(
    [Field("topic", DataType.utf8()), Field("partition", DataType.int32()), Field("offset", DataType.int64())]
)


def _table(folder: Path, offsets: list[int], topic: str = "orders") -> Path:
    rows = [
        Array([topic] * len(offsets), type=DataType.utf8()),
        Array([0] * len(offsets), type=DataType.int32()),
        Array(offsets, type=DataType.int64()),
    ]
    write_deltalake(folder, Table.from_arrays(rows, schema=SCHEMA))
    return folder


def test_a_table_with_every_record_once_verifies(tmp_path: Path) -> None:
    assert check_delta(_table(tmp_path, [7, 5, 6]), EXPECTED) is None


def test_a_doubled_record_is_found(tmp_path: Path) -> None:
    assert check_delta(_table(tmp_path, [5, 6, 6, 7]), EXPECTED) == "orders/0: 1 doubled"


def test_a_doubled_record_does_not_make_up_for_a_missing_one(tmp_path: Path) -> None:
    problem = check_delta(_table(tmp_path, [5, 7, 7]), EXPECTED)
    assert problem is not None
    assert "2 of 3 records" in problem
    assert "1 doubled" in problem


def test_a_missing_end_is_found(tmp_path: Path) -> None:
    problem = check_delta(_table(tmp_path, [5, 6]), EXPECTED)
    assert problem == "orders/0: 2 of 3 records, offsets 5 to 6"


def test_records_of_another_topic_are_found(tmp_path: Path) -> None:
    problem = check_delta(_table(tmp_path, [5, 6, 7], topic="clicks"), EXPECTED)
    assert problem is not None
    assert "clicks/0: not of this topic" in problem


def test_a_missing_table_does_not_verify(tmp_path: Path) -> None:
    assert check_delta(tmp_path / "none", EXPECTED) == "no table"
