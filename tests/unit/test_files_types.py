"""Schemas of files, without a JVM."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from penstock.engine.files.head import Head
from penstock.engine.files.types import added, decoder_schema, merged, usable
from penstock.spec.ddl import parse_ddl


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


def test_a_header_names_columns() -> None:
    assert Head('id,"Order, No", amount ,,b', 0).fields({}) == ("id", "Order_No", "amount", "_c3", "b")
    assert Head("id\tname", 0).fields({"sep": "\\t"}) == ("id", "name")
    assert Head("id||name", 0).fields({"sep": "||"}) == ("id", "name")
