from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from arro3.core import Array, DataType, Field, Schema, Table
from deltalake import write_deltalake

from bench.changes import COLUMNS, Changes, Row, row
from bench.verify import check_merged

ROWS, MANY = 500, 60
TYPES = {
    "BIGINT": DataType.int64(),
    "INT": DataType.int32(),
    "STRING": DataType.utf8(),
    "TIMESTAMP": DataType.timestamp("us", tz="UTC"),
    "DECIMAL(18,4)": DataType.decimal128(18, 4),
}


def _expected() -> list[Row]:
    changes = Changes(ROWS)
    return [*(row(key, key) for key in range(changes.oldest)), *changes.after(MANY)]


def _array(name: str, values: list[Any]) -> Array:
    """Of a type that can be cast to that of the column."""
    if name == "changed_at":
        return Array([seconds * 1_000_000 for seconds in values], type=DataType.int64())
    if name == "amount":
        return Array([f"{hundredths / 100:.2f}" for hundredths in values], type=DataType.utf8())
    return Array(values, type=DataType.utf8() if isinstance(values[0], str) else DataType.int64())


def _table(folder: Path, rows: Sequence[Row], deleted: Sequence[Row] | None = None) -> Path:
    """With `deleted` as Penstock keeps it, tombstones included."""
    every = [*rows, *(deleted or ())]
    fields, arrays = [], []
    for place, (name, (kind, _)) in enumerate(COLUMNS.items()):
        fields.append(Field(name, TYPES[kind]))
        arrays.append(_array(name, [one[place] for one in every]).cast(TYPES[kind]))
    if deleted is not None:
        fields.append(Field("_deleted", DataType.bool()))
        arrays.append(Array([False] * len(rows) + [True] * len(deleted), type=DataType.bool()))
    write_deltalake(folder, Table.from_arrays(arrays, schema=Schema(fields)))
    return folder


def test_a_table_with_what_the_changes_leave_verifies(tmp_path: Path) -> None:
    assert check_merged(_table(tmp_path, _expected()), ROWS, MANY) is None


def test_tombstones_are_no_rows(tmp_path: Path) -> None:
    assert check_merged(_table(tmp_path, _expected(), deleted=[row(ROWS - 1, ROWS)]), ROWS, MANY) is None


@pytest.mark.parametrize("place", [0, -1])
def test_a_missing_row_is_found(tmp_path: Path, place: int) -> None:
    rows = _expected()
    del rows[place]
    assert check_merged(_table(tmp_path, rows), ROWS, MANY) is not None


@pytest.mark.parametrize("place", [0, -1])
def test_a_doubled_row_is_found(tmp_path: Path, place: int) -> None:
    rows = _expected()
    assert check_merged(_table(tmp_path, [*rows, rows[place]]), ROWS, MANY) is not None


def test_an_older_change_that_won_is_found(tmp_path: Path) -> None:
    *rows, last = _expected()
    problem = check_merged(_table(tmp_path, [*rows, row(last[0], last[1] - 1)]), ROWS, MANY)
    assert problem == "1 rows are missing, 1 should not be there"


def test_a_column_of_another_change_is_found(tmp_path: Path) -> None:
    *rows, last = _expected()
    problem = check_merged(_table(tmp_path, [*rows, (*last[:-1], "another")]), ROWS, MANY)
    assert problem == "1 rows are missing, 1 should not be there"


def test_a_missing_table_does_not_verify(tmp_path: Path) -> None:
    assert check_merged(tmp_path / "none", ROWS, MANY) == "no table"
