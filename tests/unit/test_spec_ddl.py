from __future__ import annotations

import pytest

from penstock.spec.schema import Array, BadSchema, Column, Map, Scalar, Struct, parse_ddl


def test_columns_as_sql_writes_them() -> None:
    text = """
      order_id BIGINT NOT NULL COMMENT 'the key', -- a remark
      amount decimal(18, 4),
      `odd name` string,
      items ARRAY<STRUCT<sku: STRING, n INT NOT NULL>>,
      tags MAP<STRING, DOUBLE>, /* another */ at timestamp,
    """
    assert parse_ddl(text) == Struct(
        (
            Column("order_id", Scalar("BIGINT"), required=True),
            Column("amount", Scalar("DECIMAL", 18, 4)),
            Column("odd name", Scalar("STRING")),
            Column(
                "items", Array(Struct((Column("sku", Scalar("STRING")), Column("n", Scalar("INT"), required=True))))
            ),
            Column("tags", Map(Scalar("STRING"), Scalar("DOUBLE"))),
            Column("at", Scalar("TIMESTAMP")),
        )
    )


def test_a_remark_ends_with_its_line_whatever_ends_that() -> None:
    assert [column.name for column in parse_ddl("a INT, -- first\rb INT, -- second\r\nc INT").fields] == ["a", "b", "c"]


def test_what_was_read_can_be_written_again() -> None:
    text = "`a` BIGINT NOT NULL, `b` DECIMAL(18,4), `c` ARRAY<STRUCT<`d`: MAP<STRING, DATE>>>"
    assert parse_ddl(text).columns() == text
    assert parse_ddl(parse_ddl(text).columns()) == parse_ddl(text)


@pytest.mark.parametrize(("word", "name"), [("long", "BIGINT"), ("Integer", "INT"), ("timestamp_ltz", "TIMESTAMP")])
def test_types_by_other_names(word: str, name: str) -> None:
    assert parse_ddl(f"a {word}").fields[0].type == Scalar(name)


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "no columns"),
        ("-- only a remark", 1, 17, "no columns"),
        ("a", 1, 2, "ends where a type belongs"),
        ("a BIGINT b INT", 1, 10, "does not belong here"),
        ("a BIGINT,\nb STRNG", 2, 3, "STRNG is not a type"),
        ("a VARCHAR(10)", 1, 3, "VARCHAR is not a type"),
        ("a DECIMAL", 1, 3, "whole numbers only"),
        ("a DECIMAL(40,2)", 1, 3, "cannot be"),
        ("a DECIMAL(5,6)", 1, 3, "cannot be"),
        ("a BIGINT(5)", 1, 3, "no numbers"),
        ("a ARRAY BIGINT", 1, 9, "where '<' belongs"),
        ("a ARRAY<BIGINT", 1, 15, "ends where '>' belongs"),
        ("a STRUCT<b: INT", 1, 16, "ends too early"),
        ("a MAP<INT, INT>", 1, 3, "cannot be the key"),
        ("a INT NOT b", 1, 11, "says nothing"),
        ("a INT, A STRING", 1, 8, "there twice"),
        ("1a INT", 1, 1, "cannot name a column"),
        ("a INT; b INT", 1, 6, "does not belong here"),
        ("a BIGINT COMMENT", 1, 17, "ends where"),
        ("a BIGINT COMMENT b", 1, 18, "not a text in quotes"),
        ("a BIGINT COMMENT, b STRING", 1, 17, "not a text in quotes"),
        ("a BIGINT COMMENT\n  NOT NULL", 2, 3, "not a text in quotes"),
        ("a ARRAY<STRUCT<b: INT COMMENT>>", 1, 30, "not a text in quotes"),
        ("a INT COMMENT 'x' COMMENT 'y'", 1, 19, "twice"),
        ("a INT NOT NULL COMMENT 'x' NOT NULL", 1, 28, "twice"),
        ("a DECIMAL(18 4)", 1, 14, "does not belong here"),
        ("a DECIMAL(,18,,4)", 1, 11, "does not belong here"),
        ("a DECIMAL(18,,4)", 1, 14, "does not belong here"),
        ("a DECIMAL(18,4,)", 1, 16, "does not belong here"),
        ("a DECIMAL()", 1, 11, "does not belong here"),
        ("a INT()", 1, 7, "does not belong here"),
        ("a DECIMAL(1\u0668,4)", 1, 12, "does not belong here"),
        ("a INT, /*+ hint */ b INT", 1, 8, "does not belong here"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(BadSchema) as caught:
        parse_ddl(text)
    assert said in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.hint
