"""Columns that a definition makes, against those that a table has."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructField, StructType
from pyspark.sql.types import _parse_datatype_json_string as parse

from penstock.tables.columns import differences, is_wider_type


def kind(text: str) -> object:
    return parse(f'"{text}"')


def struct(**columns: str) -> StructType:
    return StructType([StructField(name, kind(text)) for name, text in columns.items()])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "safe"),
    [
        ("byte", "short", True),
        ("integer", "long", True),
        ("integer", "double", True),
        ("long", "double", False),
        ("long", "integer", False),
        ("float", "double", True),
        ("integer", "decimal(10,0)", True),
        ("integer", "decimal(9,0)", False),
        ("integer", "decimal(12,2)", True),
        ("long", "decimal(20,0)", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(12,5)", False),
        ("decimal(10,2)", "decimal(11,2)", True),
        ("date", "timestamp_ntz", True),
        ("date", "timestamp", False),
        ("integer", "string", False),
    ],
)
def test_a_type_is_wider_if_it_holds_every_value(old: str, new: str, safe: bool) -> None:
    assert is_wider_type(kind(old), kind(new)) is safe  # type: ignore[arg-type]


def test_what_is_new_gone_wider_and_other_is_told_apart() -> None:
    there = struct(id="integer", Name="string", old="date", n="long")
    wanted = struct(ID="long", name="string", more="double", n="string")
    found = differences(there, wanted)
    assert found.new == {"more": "DOUBLE"}
    assert found.removed == {"old": "DATE"}
    assert found.wider == {"ID": ("INT", "BIGINT")}
    assert found.other == {"n": ("BIGINT", "STRING")}


def test_nested_fields_are_looked_into() -> None:
    there = StructType([StructField("s", struct(a="integer"))])
    wanted = StructType([StructField("s", struct(a="long", b="string"))])
    found = differences(there, wanted)
    assert (found.new, found.wider) == ({"s.b": "STRING"}, {"s.a": ("INT", "BIGINT")})
    assert not differences(there, there)
