"""JSON fields whose values are of several kinds: one column of text that takes them all, exactly, and is told."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.folders import TABLE, Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = {
    "object": '{"a": 1.50,  "b":[ ]}',
    "array": '[1, "two", {"c": null}]',
    "string": '"say \\u0022x\\u0022"',
    "whole": "9007199254740993",
    "small": "7",
    "fraction": "0.10",
    "huge": "123456789012345678901234567890123456789012345",
    "wide": "1e400",
    "boolean": "true",
}
PAIRS = list(itertools.combinations(VALUES, 2))
TEXT = "STRING"
EXPECTED = {
    ("whole", "small"): "BIGINT",
    ("whole", "fraction"): "DECIMAL(38,1)",
    ("small", "fraction"): "DOUBLE",
}


def name_of(pair: tuple[str, str]) -> str:
    return f"{pair[0]}_{pair[1]}"


def lines() -> tuple[str, str]:
    """One record with the first value of each pair, one with the second; null beside them says nothing."""
    first = ", ".join(f'"{name_of(pair)}": {VALUES[pair[0]]}' for pair in PAIRS)
    second = ", ".join(f'"{name_of(pair)}": {VALUES[pair[1]]}' for pair in PAIRS)
    return f'{{"id": 1, {first}, "nothing": null}}', f'{{"id": 2, {second}, "nothing": []}}'


def held(kind: str) -> Any:
    """What a column of text holds of it: a text as what it says, all else as it is written."""
    return json.loads(VALUES[kind]) if kind == "string" else VALUES[kind]


@pytest.mark.parametrize("apart", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_every_pair_of_kinds_has_a_column_that_holds_both(apart: bool, spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"schema": None})
    first, second = lines()
    if apart:
        folder.write("a.json", f"{first}\n")
        folder.write("b.json", f"{second}\n")
    else:
        folder.write("a.json", f"{first}\n{second}\n")
    heard = folder.run()
    assert folder.quarantine == []
    rows = {row["id"]: row for row in folder.rows()}
    kept = json.loads((tmp_path / f"lake/_penstock/schemas/{TABLE}.json").read_text())
    types = dict(column.split(" ") for column in kept["columns"].split(", "))
    assert "nothing" not in types
    for pair in PAIRS:
        name = name_of(pair)
        assert types[name] == EXPECTED.get(pair, TEXT), name
        for row, kind in zip((rows[1], rows[2]), pair, strict=True):
            if pair in EXPECTED:
                assert row[name] == type(row[name])(VALUES[kind]), name
            else:
                assert row[name] == held(kind), name
    assert heard.heard("object_small has values of several kinds (object, number): it is a STRING with their JSON text")
    assert heard.heard(f"schema inferred from {2 if apart else 1} file")
    assert heard.heard("2 records")
    assert kept["inferred"]["records"] == 2


def test_a_field_of_several_kinds_takes_later_values_of_any_kind(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"schema": None})
    folder.write("a.json", '{"id": 1, "v": {"x": 1}, "in": {"w": 1}}\n{"id": 2, "v": 7, "in": {"w": "t"}}\n')
    folder.run()
    texts = {index + 3: VALUES[kind] for index, kind in enumerate(VALUES)}
    folder.write(
        "b.json", "".join(f'{{"id": {number}, "v": {text}, "in": {{"w": {text}}}}}\n' for number, text in texts.items())
    )
    folder.write("c.json", '{"id": 100, "v": null, "late": 1}\n{"id": 101, "late": {"y": 2}}\n{"id": "x", "v": 1}\n')
    folder.run()
    rows = {row["id"]: row for row in folder.rows()}
    expected = {number: json.loads(text) if text.startswith('"') else text for number, text in texts.items()}
    assert {number: rows[number]["v"] for number in texts} == expected
    assert {number: rows[number]["in"]["w"] for number in texts} == expected
    assert (rows[1]["v"], rows[2]["v"], rows[100]["v"]) == ('{"x": 1}', "7", None)
    assert (rows[100]["late"], rows[101]["late"]) == ("1", '{"y": 2}')
    assert [row["error_reason"] for row in folder.quarantine] == ["wrong_type"]
