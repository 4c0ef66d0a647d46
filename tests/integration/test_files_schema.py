"""The schema of files: inferred once and kept, or given; new fields are added, rescued, left out, or stop the table."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Terminal, Transient
from tests.integration.folders import TABLE, Folder
from tests.integration.run_plan import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADER = {"header": True}
NESTED = '{"a": '


def inferred(spark: SparkSession, root: Path, kind: str, **source: Any) -> Folder:
    options = HEADER if kind == "csv" else None
    return Folder(spark, root, {"format": kind, "schema": None, "options": options, **source})


def put(folder: Folder, kind: str, file: str, /, **record: Any) -> None:
    """One row; all its fields are whole numbers, or text."""
    if kind == "json":
        folder.write(f"{file}.json", json.dumps(record) + "\n")
    elif kind == "csv":
        folder.write(f"{file}.csv", f"{','.join(record)}\n{','.join(map(str, record.values()))}\n")
    else:
        types = {int: "BIGINT", str: "STRING"}
        columns = ", ".join(f"{field} {types[type(value)]}" for field, value in record.items())
        folder.parquet(f"{file}.parquet", columns, tuple(record.values()))


def found(folder: Folder, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.get(column) for column in columns) for row in folder.rows()), key=str)


EVERY_KIND = pytest.mark.parametrize(
    "kind", ["json", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("csv", "parquet"))]
)


@EVERY_KIND
def test_new_fields_become_columns(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, kind)
    put(folder, kind, "a", id=1, name="x")
    folder.run()
    assert set(folder.rows()[0]) == {"id", "name", "_source"}
    put(folder, kind, "b", more="m", id=2, name="y")
    put(folder, kind, "c", id=3, name="z")
    put(folder, kind, "d", id=4, other=7)
    heard = folder.run()
    assert heard.heard("columns evolved: new more STRING, new other BIGINT")
    expected = [(1, "x", None, None), (2, "y", "m", None), (3, "z", None, None), (4, None, None, 7)]
    assert found(folder, "id", "name", "more", "other") == expected
    put(folder, kind, "e", id=5, other=8)
    assert not folder.run().heard("evolved")
    assert folder.ids() == Counter([1, 2, 3, 4, 5])
    assert folder.quarantine == []


@EVERY_KIND
@pytest.mark.deep
def test_new_fields_are_rescued(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, kind, new_fields="rescue")
    put(folder, kind, "a", id=1, name="x")
    folder.run()
    put(folder, kind, "b", more="m", id=2, name="y", other=7)
    put(folder, kind, "c", id=3, name="z")
    folder.run()
    assert set(folder.rows()[0]) == {"id", "name", "_rescued", "_source"}
    rescued = {row["id"]: row["_rescued"] for row in folder.rows()}
    assert {key: value and {k: str(v) for k, v in json.loads(value).items()} for key, value in rescued.items()} == {
        1: None,
        2: {"more": "m", "other": "7"},
        3: None,
    }


@EVERY_KIND
@pytest.mark.deep
def test_new_fields_stop_the_table(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, kind, new_fields="fail")
    put(folder, kind, "a", id=1, name="x")
    folder.run()
    put(folder, kind, "b", id=2, name="y", more="m")
    error = run(spark, folder.plan).errors[TABLE]
    assert isinstance(error, Terminal)
    assert "fields that the table does not: more STRING" in error.message
    assert folder.ids() == Counter([1])


@EVERY_KIND
@pytest.mark.deep
def test_new_fields_are_left_out(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, kind, schema="id BIGINT, name STRING")
    put(folder, kind, "a", more="m", id=2, name="y")
    folder.run()
    assert found(folder, "id", "name", "more") == [(2, "y", None)]


@pytest.mark.deep
def test_a_given_schema_grows(spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, "json", schema="id INT, amount DECIMAL(9,2)", new_fields="add")
    put(folder, "json", "a", id=1)
    folder.run()
    folder.write("b.json", '{"id": 2, "amount": 1.25, "new": {"x": 1}}\n')
    folder.run()
    folder.write("c.json", '{"id": 3, "new": {"x": 2, "y": "deep"}, "list": [{"z": 1}]}\n')
    folder.write("d.json", '{"id": 4, "list": [{"z": 2}, {"w": true}]}\n')
    folder.run()
    rows = {row["id"]: row for row in folder.rows()}
    assert str(rows[2]["amount"]) == "1.25"
    assert rows[2]["new"] == {"x": 1, "y": None}
    assert rows[3]["new"] == {"x": 2, "y": "deep"}
    assert [item["w"] for item in rows[4]["list"]] == [None, True]
    folder.write("e.json", '{"id": 5, "list": [{"z": 3, "v": "even here"}]}\n')
    folder.run()
    assert {row["id"]: row for row in folder.rows()}[5]["list"][0]["v"] == "even here"


@pytest.mark.deep
def test_fields_that_cannot_be_columns_are_left_out_and_told(spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, "json")
    folder.write("a.json", '{"id": 1}\n')
    folder.run()
    folder.write("b.json", '{"id" : 2, "ID": 3, "a b": 4, "_source": 5, "nothing": {}, "good": 6}\n')
    heard = folder.run()
    assert heard.heard("left out: ID, _source, a b")
    assert not heard.heard("nothing")
    assert found(folder, "id", "good") == [(1, None), (2, 6)]
    folder.write("c.json", '{"id": 3, "nothing": {}, "ID": 4}\n')
    assert not folder.run().heard("left out")
    assert folder.ids() == Counter([1, 2, 3])


@pytest.mark.deep
@pytest.mark.parametrize("new_fields", ["add", "fail"])
def test_fields_within_objects_that_cannot_be_columns_are_told(
    new_fields: str, spark: SparkSession, tmp_path: Path
) -> None:
    schema = "id BIGINT, o STRUCT<a: BIGINT>, many ARRAY<STRUCT<x: BIGINT>>"
    folder = inferred(spark, tmp_path, "json", schema=schema, new_fields=new_fields)
    folder.write("a.json", '{"id":1,"o":{"a":1,"A":2}}\n{"id":2,"many":[{"x":1},{"b c":1}]}\n{"id":3,"o":7}\n')
    if new_fields == "fail":
        error = run(spark, folder.plan).errors[TABLE]
        assert isinstance(error, Terminal)
        assert "many.b c, o.A" in error.message
        return
    assert folder.run().heard("left out: many.b c, o.A")
    assert folder.ids() == Counter([1, 2])
    folder.write("b.json", '{"id":4,"o":{"A":2,"new":1}}\n{"id":5,"o":"no object"}\n')
    assert not folder.run().heard("left out")
    assert {row["id"]: row["o"] for row in folder.rows()}[4] == {"a": None, "new": 1}


def test_a_schema_is_inferred_once_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, "csv")
    folder.write("a.csv", "Order ID,zip,amount,day,at,time\n1,01234,2.5,2026-01-02,2026-01-02T03:04:05Z,10:30\n")
    folder.run()
    kept = json.loads((tmp_path / "lake/_penstock/schemas" / f"{TABLE}.json").read_text())
    assert kept["columns"] == "Order_ID BIGINT, zip STRING, amount DOUBLE, day DATE, at TIMESTAMP, time STRING"
    folder.write("b.csv", "zip,Order ID,amount\n99999,5000000000,3\n00001,none,1\n")
    folder.run()
    assert found(folder, "Order_ID", "zip", "amount") == [(1, "01234", 2.5), (5000000000, "99999", 3.0)]
    (rejected,) = folder.quarantine
    assert (rejected["key"], rejected["value"]) == ("zip,Order ID,amount", "00001,none,1")
    assert (rejected["error_reason"], rejected["_source"]) == ("wrong_type", {"file": "in/b.csv", "row": 2})
    assert "Order_ID: none" in rejected["error_detail"]


def test_without_files_there_is_nothing_to_infer_from(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runtime.table_runner.TRIES_ONCE", 1)
    folder = inferred(spark, tmp_path, "json")
    folder.write("empty.json", "")
    error = run(spark, folder.plan).errors[TABLE]
    assert isinstance(error, Transient)
    assert "to infer a schema from" in error.message
    (folder.path / "broken.json.gz").write_bytes(b"no gzip")
    put(folder, "json", "a", id=1)
    folder.run()
    assert folder.ids() == Counter([1])
    assert folder.unreadable() == Counter(["in/broken.json.gz"])


def test_a_crash_between_the_new_schema_and_the_write_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = inferred(spark, tmp_path, "json")
    put(folder, "json", "a", id=1)
    folder.run()
    put(folder, "json", "b", id=2, more="m")

    def dies(*_: Any) -> None:
        raise RuntimeError("killed before the columns were added")

    monkeypatch.setattr("penstock.tables.files.settle_columns", dies)
    monkeypatch.setattr("penstock.runtime.table_runner.TRIES_UNEXPLAINED", 1)
    assert run(spark, folder.plan).errors
    monkeypatch.undo()
    folder.run()
    assert found(folder, "id", "more") == [(1, None), (2, "m")]


@pytest.mark.deep
def test_lines_of_csv_without_a_header(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"format": "csv", "schema": "id BIGINT, name STRING", "options": {"sep": ";"}})
    folder.write("a.csv", '1;x\n"2";"y;z"\n\n3\n4;a;b\n')
    folder.run()
    assert found(folder, "id", "name") == [(1, "x"), (2, "y;z")]
    assert sorted(row["_source"]["row"] for row in folder.quarantine) == [3, 4]
    assert {row["error_reason"] for row in folder.quarantine} == {"malformed_csv"}


@pytest.mark.deep
def test_a_byte_order_mark_and_other_line_ends(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"format": "csv", "schema": "id BIGINT, name STRING", "options": HEADER})
    folder.write("a.csv", "\ufeffid,name\r\n1,x\r\n\r\n2,y\r\n")
    folder.write("b.csv", "\n\nname,id\n\nz,3")
    folder.write("c.csv", "id,name\n")
    (folder.path / "d.csv").write_bytes(b"id,name\n4,\xff\xfe\n")
    folder.run()
    assert found(folder, "id", "name") == [(1, "x"), (2, "y"), (3, "z")]
    places = {row["id"]: (row["_source"]["file"], row["_source"]["row"]) for row in folder.rows()}
    assert places == {1: ("in/a.csv", 1), 2: ("in/a.csv", 3), 3: ("in/b.csv", 4)}
    (rejected,) = folder.quarantine
    assert (rejected["error_reason"], rejected["value_binary"]) == ("not_utf8", b"4,\xff\xfe")


@pytest.mark.deep
def test_depths_and_names_that_no_column_can_have_do_not_stop_a_table(spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, "json")
    depths = (29, 30, 31, 200, 997)
    lines = [f'{{"id": {depth}, "x{depth}": {NESTED * depth}1{"}" * depth}}}\n' for depth in depths]
    folder.write("a.json", "".join(lines))
    folder.run()
    folder.write(
        "b.json", '{"id": 1, "ıd": 2, "_metadata": 3, "_change_type": 4, "y": ' + NESTED * 400 + "1" + "}" * 401
    )
    assert folder.run().heard("left out: _change_type, _metadata, ıd")
    assert folder.ids() == Counter([*depths, 1])
    assert folder.quarantine == []


@pytest.mark.deep
def test_a_header_with_a_dotless_i_names_another_column(spark: SparkSession, tmp_path: Path) -> None:
    folder = inferred(spark, tmp_path, "csv")
    folder.write("a.csv", "id,ıd,_metadata\n1,2,3\n")
    folder.run()
    folder.write("b.csv", "İd,more\n4,5\n")
    folder.run()
    assert found(folder, "id", "ıd_2", "more") == [(1, 2, None), (4, None, 5)]


@pytest.mark.deep
def test_keys_that_are_values_do_not_make_a_table_without_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("tables.files", "sources.files.schema"):
        monkeypatch.setattr(f"penstock.{module}.MOST_ADDED", 4)
    folder = inferred(spark, tmp_path, "json")
    folder.write("a.json", '{"id": 1, "o": {"a": 1}}\n')
    folder.run()
    folder.write("b.json", "".join(f'{{"id": {n}, "u{n}": 1, "o": {{"k{n}": 1}}}}\n' for n in range(2, 9)))
    heard = folder.run()
    assert heard.heard("WARNING: the files have brought more than 4 fields")
    assert folder.ids() == Counter(range(1, 9))
    wide = set(folder.rows()[0])
    folder.write("c.json", '{"id": 9, "u9": 1, "o": {"k9": 1}}\n')
    assert not folder.run().heard("WARNING")
    assert (set(folder.rows()[0]), folder.ids()) == (wide, Counter(range(1, 10)))
    other = inferred(spark, tmp_path / "other", "json")
    other.write("a.json", "".join(f'{{"id": {n}, "u{n}": 1}}\n' for n in range(9)))
    assert other.run().heard("WARNING: the files have brought more than 4 fields")
    assert (other.ids(), len(other.rows()[0])) == (Counter(range(9)), 5)
