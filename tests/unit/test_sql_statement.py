"""One query, read before Spark is there."""

from __future__ import annotations

import pytest

from penstock.errors import UsageError
from penstock.sql.statement import read_statement


def refused(text: str) -> UsageError:
    with pytest.raises(UsageError) as raised:
        read_statement(text)
    return raised.value


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("@v12", "v12"),
        ("@V12", "V12"),
        ("@12", "12"),
        ('@"2026-05-14 09:00"', "2026-05-14 09:00"),
        ("@'2026-05-14 09:00'", "2026-05-14 09:00"),
        ("@2026-05-14", "2026-05-14"),
        ("@2026-05-14T09:00", "2026-05-14T09:00"),
        ("@2026-05-14T09:00:01.5", "2026-05-14T09:00:01.5"),
        ("@2026-05-14T09:00+02:00", "2026-05-14T09:00+02:00"),
        ("@2026-05-14T09:00Z", "2026-05-14T09:00Z"),
    ],
)
def test_a_version_behind_a_name_is_read_and_covered_with_blanks(written: str, at: str) -> None:
    text = f"SELECT * FROM silver.orders{written} AS o JOIN `silver`.`or``ders`{written}--x\nUSING (id)"
    statement = read_statement(text)
    first, second = statement.mentions.values()
    assert (first.parts, first.at, first.start) == (("silver", "orders"), at, 14)
    assert (second.parts, second.at) == (("silver", "or`ders"), at)
    assert statement.text == text.replace(written, " " * len(written))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'silver.orders@v1', \"a@v1\", r'\\' FROM t",
        "SELECT 1 -- silver.orders@v1",
        "SELECT 1 /* silver.orders@v1 /* t@v2 */ */",
        "SELECT `a@v1` FROM t",
        "SELECT a @ v1, @v1",
    ],
)
def test_an_at_sign_elsewhere_stays_as_it_is(text: str) -> None:
    statement = read_statement(text)
    assert not statement.mentions
    assert statement.text == statement.written == text


@pytest.mark.parametrize("wrong", ["@", "@foo", "@v", "@12x", "@v12-3", "@2026-05", "@2026-05-14T9", "@changes"])
def test_what_is_no_version_is_shown_with_the_ways_to_write_one(wrong: str) -> None:
    error = refused(f"SELECT *\nFROM silver.orders{wrong} x")
    assert "no version" in error.message and "line 2, column 19" in error.message
    assert f"FROM silver.orders{wrong}" in error.message
    assert error.hint is not None and "@v12" in error.hint


def test_a_semicolon_may_end_it_and_nothing_may_follow() -> None:
    assert read_statement("SELECT ';' ; ; -- done").written == "SELECT ';' "
    error = refused("SELECT 1; DROP TABLE x")
    assert "more than one statement" in error.message and "column 11" in error.message


@pytest.mark.parametrize(
    "text",
    [
        *("INSERT INTO t VALUES (1)", "drop table t", "SET a=1", "ADD JAR x", "EXPLAIN SELECT 1", "SELCT 1"),
        *(
            "/* x */ CACHE TABLE t",
            "MAP a USING 'cat'",
            "EXECUTE IMMEDIATE 'x'",
            "(DELETE FROM t)",
            "BEGIN SELECT 1; END",
        ),
    ],
)
def test_only_a_query_is_a_query(text: str) -> None:
    error = refused(text)
    assert error.exit_code == 2
    assert "does not begin a query" in error.message or "more than one statement" in error.message


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing", ";", "/* */ ;"])
def test_no_query_is_said_to_be_none(text: str) -> None:
    assert "there is no query" in refused(text).message


@pytest.mark.parametrize(
    ("text", "what"), [("SELECT 'a", "string"), ("SELECT `a", "name in backquotes"), ("SELECT 1 /* a", "comment")]
)
def test_what_is_not_closed_is_pointed_at(text: str, what: str) -> None:
    error = refused(text)
    assert f"the {what} that begins here is not closed" in error.message
    assert error.message.endswith(f"^ column {text.rindex('a')}" if what != "comment" else "^ column 10")


@pytest.mark.parametrize(
    "text", ["(SELECT 1)", "values (1)", "From t", "TABLE t", "with a as (select 1) select * from a"]
)
def test_every_kind_of_query_is_one(text: str) -> None:
    assert read_statement(text).written == text


def test_a_place_in_a_long_line_is_shown_with_what_is_around_it() -> None:
    text = f"SELECT {'x, ' * 200}'unclosed \x1b[31m"
    shown = refused(text).message.splitlines()
    assert shown[1].count("x, ") < 40 and "'unclosed" in shown[1] and "\x1b" not in shown[1]
    assert shown[1].index("'unclosed") == shown[2].index("^")
