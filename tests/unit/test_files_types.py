"""Schemas of files, without a JVM."""

from __future__ import annotations

import time

import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from penstock.errors import Terminal
from penstock.sources.files.format import Head, establish, is_value, why_no_header
from penstock.sources.files.types import added, bounded, decoder_schema, merged, missing_fields, mixed, usable
from penstock.spec.schema import BadSchema, column_key, parse_ddl
from penstock.tables.new_fields import with_column_type


def struct(**fields: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])  # type: ignore[arg-type]


def test_a_schema_grows_by_what_is_new_and_keeps_its_types() -> None:
    old = struct(id=LongType(), item=struct(a=LongType()), many=ArrayType(struct(x=LongType())))
    new = struct(
        ID=StringType(), more=StringType(), item=struct(b=StringType()), many=ArrayType(struct(y=StringType()))
    )
    grown = merged(old, new)
    assert grown == struct(
        id=LongType(),
        item=struct(a=LongType(), b=StringType()),
        many=ArrayType(struct(x=LongType(), y=StringType())),
        more=StringType(),
    )
    assert added(old, grown).names == ["more"]
    assert merged(grown, new) == grown


def test_what_delta_cannot_call_a_column_is_left_out() -> None:
    odd = StructType(
        [StructField(name, LongType()) for name in ("id", "a b", "_source", "__row", "x=y", "ID", "", "é")]
    )
    assert usable(odd).names == ["id", "é"]
    nested = struct(o=StructType([StructField("a b", LongType())]), m=MapType(StringType(), LongType()))
    assert usable(nested).names == ["m"]


def test_what_spark_tells_is_a_schema_for_a_decoder() -> None:
    found = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("d", DecimalType(9, 2)),
            StructField("t", TimestampNTZType()),
            StructField("a", ArrayType(struct(x=IntegerType()))),
            StructField("m", MapType(StringType(), DateType())),
        ]
    )
    written = "id BIGINT NOT NULL, d DECIMAL(9,2), t TIMESTAMP_NTZ, a ARRAY<STRUCT<x: INT>>, m MAP<STRING, DATE>"
    assert decoder_schema(found) == parse_ddl(written)


def head(line: str) -> Head:
    return Head(line, 0, tuple(line.split(",")))


def test_a_header_names_columns_each_once() -> None:
    named = Head("…", 0, ("id", "Order, No", " amount ", "", "b", "Id", "id_2", "order=no"))
    assert named.plain == ("id", "Order_No", "amount", "_c3", "b", "Id", "id_2", "order_no")
    assert named.names == ("id", "Order_No", "amount", "_c3", "b", "Id_3", "id_2", "order_no_2")


@pytest.mark.parametrize(
    "cell",
    [
        *("7", "-1.5", "1e3", "1,234.50", "$5", "12%", "2026-01-02", "2026-01-02T03:04:05Z", "31.12.2026", "10:30"),
        *("TRUE", "null", "a@b.example", "https://x", "123e4567-e89b-12d3-a456-426614174000", '{"a": 1}', "[1]"),
        "x" * 300,
    ],
)
def test_values_are_no_names(cell: str) -> None:
    assert is_value(cell)
    assert why_no_header(head(f"id,{cell}".replace(",234", "")), {"id", "name"}) is not None


@pytest.mark.parametrize(
    "cell", ["1" + " " * 250 + "x", "@." * 125 + " x", "1" + " " * 10**6 + "x", "@." * 10**6 + " x", "a" * 250 + ":"]
)
def test_whether_a_cell_is_a_value_is_said_at_once(cell: str) -> None:
    start = time.process_time()
    for _ in range(200):
        is_value(cell)
    assert time.process_time() - start < 2
    assert is_value(cell) == (len(cell) > 255)


def test_a_header_of_the_same_name_many_times_is_told_apart_at_once() -> None:
    names = Head("…", 0, ("a",) * 20_000).names
    assert (names[:3], names[-1]) == (("a", "a_2", "a_3"), "a_20000")
    assert "20,000 cells" in (why_no_header(Head("…", 0, ("a",) * 20_000), {"a"}) or "")


@pytest.mark.parametrize("line", ["id,name", "NAME,id,extra", "id", "name,id,id", "id,_c1,", "id,order no,2nd address"])
def test_a_line_that_names_columns_is_a_header(line: str) -> None:
    assert why_no_header(head(line), {"id", "name"}) is None


def test_years_are_names_where_most_names_are_known() -> None:
    assert why_no_header(head("country,2019,2020,2021"), {"country", "2019", "2020"}) is None
    assert "2021" in (why_no_header(head("country,2021"), {"country", "2019"}) or "")


@pytest.mark.parametrize("line", ["x,y", "7,seven", "7,name,x", "\ufffd,id", "true,id"])
def test_a_line_that_does_not_is_none(line: str) -> None:
    assert why_no_header(head(line), {"id", "name"}) is not None
    assert why_no_header(Head('id,"name', 0, ()), {"id", "name"}) is not None


def test_most_files_say_what_the_header_is() -> None:
    lines = {"a": "7,seven", "b": "id,name", "c": "bob,berlin", "d": "name,city", "e": "city,zip"}
    found = establish({file: head(line) for file, line in lines.items()}, "in", "t")
    assert found.names == ["b", "d", "e"]
    assert len(found.remarks) == 2
    for doubtful in (["1,2"], ["bob,berlin", "ann,paris"], ["x,x"], ["true,id"]):
        with pytest.raises(Terminal):
            establish({line: head(line) for line in doubtful}, "in", "t")


def test_a_schema_grows_by_a_bound_and_the_same_way_each_time() -> None:
    old = struct(id=LongType(), o=struct(a=LongType()))
    new = struct(z=LongType(), b=struct(x=LongType(), y=LongType()), o=struct(c=LongType(), d=LongType()), a=LongType())
    assert bounded(old, new, 100).names == ["id", "o", "a", "b", "z"]
    assert bounded(old, new, 3) == struct(
        id=LongType(), o=struct(a=LongType(), c=LongType(), d=LongType()), a=LongType()
    )
    assert bounded(old, new, 0) == old == bounded(old, new, -5)
    assert missing_fields(new, bounded(old, new, 3)) == ["z", "b"]
    assert missing_fields(struct(ID=LongType(), o=ArrayType(LongType()), n=NullType()), old) == ["ID"]


def test_a_new_field_takes_the_type_that_its_column_has() -> None:
    found = StructField("x", LongType())
    assert with_column_type(found, None) == with_column_type(found, LongType()) == found
    assert with_column_type(found, StringType()).metadata == {"json_text": "bigint"}
    assert with_column_type(found, DateType()) == StructField("x", DateType())
    grown = with_column_type(StructField("x", struct(a=StringType(), b=LongType())), struct(a=LongType()))
    assert grown.dataType == struct(a=LongType(), b=LongType())


def test_a_column_of_any_json_tells_the_decoder() -> None:
    kind = StructType([StructField("v", StringType(), metadata={"json_text": "object, number"})])
    found = merged(struct(id=LongType()), usable(StructType([*kind.fields, StructField("in", kind)])))
    written = decoder_schema(found).columns()
    assert written.count("COMMENT 'penstock: any JSON'") == 2
    assert mixed(found) == {"v": "object, number", "in.v": "object, number"}
    assert StructType.fromJson(found.jsonValue()) == found


def test_names_are_one_as_spark_and_delta_compare_them() -> None:
    alike = ["id ıd İd i̇d ID", "ſ s S", "\u212a k K", "ß ẞ", "σ ς Σ", "𐐀 𐐨", "ᾳ ᾼ", "_metadata _METADATA _METADATA"]
    keys = [{column_key(name) for name in names.split()} for names in alike]
    assert [len(one) for one in keys] == [1] * len(alike)
    assert len(set.union(*keys)) == len(alike)
    assert usable(StructType([StructField(name, LongType()) for name in ("id", "ıd", "İd", "k", "\u212a")])).names == [
        "id",
        "k",
    ]
    assert Head("…", 0, ("id", "ıd")).names == ("id", "ıd_2")
    assert merged(struct(id=LongType()), StructType([StructField("İD", StringType())])) == struct(id=LongType())
    with pytest.raises(BadSchema, match="twice"):
        parse_ddl("id BIGINT, ıd BIGINT")


@pytest.mark.parametrize("name", ["_change_type", "_Commit_Version", "_commit_tımestamp", "_metadata", "_rescued"])
def test_names_that_spark_and_delta_use_become_no_columns(name: str) -> None:
    found = StructType([StructField(name, LongType()), StructField("o", struct(**{name: LongType()}))])
    assert usable(found) == struct(o=struct(**{name: LongType()}))
