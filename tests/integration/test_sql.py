"""`sql`: queries over the project's tables by name, as of any version; and nothing but queries."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PenstockError, QueryFailed, UsageError
from penstock.spark.jvm import java_session, jvm_of
from tests.integration.run_plan import make_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan
    from penstock.sql.reader import SqlReader

_DECODE = {"json": "value", "schema": "id BIGINT, amount DECIMAL(10,2)"}
TABLES = {
    "bronze.orders": {"from": {"kafka": "none"}},
    "silver.orders": {"from": {"table": "bronze.orders"}, "decode": _DECODE},
    "silver.my-orders": {"from": {"table": "bronze.orders"}, "decode": _DECODE},
    "silver.customers": {
        "from": {"table": "bronze.orders"},
        "decode": _DECODE,
        "write": {"merge": {"keys": ["id"], "sequence": "amount"}},
    },
    "silver.times": {"from": {"table": "bronze.orders"}, "decode": _DECODE},
    "gold.broken": {"from": {"table": "bronze.orders"}, "decode": _DECODE},
    "gold.none": {"from": {"table": "bronze.orders"}, "decode": _DECODE},
}
Rows = list[tuple[str | None, ...]]


@pytest.fixture(scope="module")
def plan(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """silver.orders has ids 0 to 2 in version 0, and also 3 and 4 in version 1; its quarantine has a row, and
    silver.customers one that is alive and one that is not."""
    plan = make_plan(tmp_path_factory.mktemp("sql"), "127.0.0.1:1", TABLES)

    def write(name: str, query: str, mode: str = "append") -> None:
        spark.sql(query).write.format("delta").mode(mode).save(uri(plan, name))

    write("silver.orders", "SELECT id, CAST(id * 1.1 AS DECIMAL(10,2)) AS amount FROM range(0, 3, 1, 1)")
    write("silver.orders", "SELECT id, CAST(id * 1.1 AS DECIMAL(10,2)) AS amount FROM range(3, 5, 1, 1)")
    write("silver.my-orders", "SELECT 'hyphen' AS name")
    write("silver.orders__quarantine", "SELECT 'bad' AS value")
    row = "NULL AS _sequence, {} AS _deleted, NULL AS _deleted_at"
    write("silver.customers", f"SELECT 1 AS id, {row.format('false')} UNION ALL SELECT 2, {row.format('true')}")
    (Path(uri(plan, "gold.broken")) / "_delta_log").mkdir(parents=True)
    (Path(uri(plan, "gold.broken")) / "_delta_log" / f"{0:020d}.json").write_text("this is no log\n")
    return plan


def uri(plan: Plan, name: str) -> str:
    return f"{plan.lake}/{name.replace('.', '/')}"


@pytest.fixture(scope="module")
def reader(spark: SparkSession, plan: Plan) -> Iterator[SqlReader]:
    from penstock.sql.reader import SqlReader

    yield SqlReader(spark, plan)
    jvm_of(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(java_session(spark))


def ask(reader: SqlReader, query: str, limit: int | None = 100) -> Rows:
    from penstock.cli.sql_output import texts

    with reader.ask(query) as answer:
        return list(texts(answer.frame, limit))


def refused(reader: SqlReader, query: str, kind: type[PenstockError] = UsageError) -> PenstockError:
    with pytest.raises(kind) as raised:
        ask(reader, query)
    return raised.value


def test_tables_are_read_by_name_at_any_version_under_any_alias(reader: SqlReader) -> None:
    counts = (
        "SELECT (SELECT count(*) FROM silver.orders VERSION AS OF 0), "
        "(SELECT count(*) FROM `silver`.`orders` VERSION AS OF '1'), "
        "(SELECT count(*) FROM silver.orders FOR SYSTEM_VERSION AS OF 0), "
        "(SELECT count(*) FROM Silver.ORDERS TIMESTAMP AS OF '2099-01-01')"
    )
    assert ask(reader, counts) == [("3", "5", "3", "5")]
    joined = (
        "SELECT silver.orders.id, orders.amount, old.id FROM silver.orders "
        "LEFT JOIN silver.orders VERSION AS OF 0 AS old ON silver.orders.id = old.id "
        "WHERE orders.id IN (SELECT id FROM silver.orders) ORDER BY 1 DESC LIMIT 2"
    )
    assert ask(reader, joined) == [("4", "4.40", None), ("3", "3.30", None)]
    assert ask(reader, "FROM silver.orders VERSION AS OF 0 |> WHERE id > 0 |> AGGREGATE sum(amount)") == [("3.30",)]
    assert ask(reader, "TABLE silver.`my-orders`; ; -- done") == [("hyphen",)]
    sample = "SELECT o.* FROM `silver.orders` VERSION AS OF 0 TABLESAMPLE (100 PERCENT) o WHERE id = 2"
    assert ask(reader, sample) == [("2", "2.20")]
    assert ask(reader, "SELECT value FROM silver.orders__quarantine") == [("bad",)]
    assert ask(reader, "SELECT max(s) FROM (SELECT sum(id) OVER w AS s FROM silver.orders WINDOW w AS (ORDER BY id))")


def test_a_name_that_the_query_gives_itself_is_its_own(reader: SqlReader) -> None:
    shadowed = "WITH silver AS (SELECT 7 AS orders), orders AS (SELECT 8 AS id) SELECT silver.orders, orders.id"
    assert ask(reader, f"{shadowed} FROM silver, orders") == [("7", "8")]
    twice = "WITH t AS (SELECT id FROM silver.orders VERSION AS OF 0) SELECT sum(a.id + b.id) FROM t a, t b"
    assert ask(reader, twice) == [("18",)]
    assert ask(reader, "SELECT 'silver.orders@v0', `silver.orders`.id FROM (SELECT 5 AS id) `silver.orders`") == [
        ("silver.orders@v0", "5")
    ]
    assert ask(reader, "SELECT sum(id) FROM range(4) UNION ALL SELECT x FROM VALUES (1) AS t(x)") == [("6",), ("1",)]
    assert ask(reader, "SELECT count(*) FROM VALUES (current_date()), (current_date()) AS t(d)") == [("2",)]


def test_within_a_query_each_table_stays_as_it_was_when_the_query_began(
    spark: SparkSession, reader: SqlReader, plan: Plan
) -> None:
    from penstock.cli.sql_output import texts

    place, row = uri(plan, "silver.my-orders"), spark.sql("SELECT 'later' AS name")
    both = (
        "SELECT (SELECT max(name) FROM silver.`my-orders`), (SELECT count(*) FROM silver.`my-orders` WHERE name > '')"
    )
    with reader.ask(both) as answer:
        assert [str(pinned) for pinned in answer.table_versions] == ["silver.my-orders version 0"]
        row.write.format("delta").mode("append").save(place)
        assert list(texts(answer.frame, 10)) == [("hyphen", "1")]
    assert ask(reader, both) == [("later", "2")]
    assert ask(reader, both.replace("my-orders`)", "my-orders` VERSION AS OF 0)", 1)) == [("hyphen", "2")]


@pytest.fixture(scope="module")
def times(spark: SparkSession, plan: Plan) -> str:
    """Four versions in the night in which Berlin's clocks go back from 3 to 2: at 2:15, 2:45, again 2:15, and 3:15."""
    place = uri(plan, "silver.times")
    for version, written in enumerate(("00:15", "00:45", "01:15", "02:15")):
        spark.range(1).write.format("delta").mode("append").save(place)
        log = Path(place) / "_delta_log" / f"{version:020d}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        time = datetime.fromisoformat(f"2026-10-25T{written}+00:00")
        actions[0]["commitInfo"]["timestamp"] = round(time.timestamp() * 1000)
        log.write_text("\n".join(map(json.dumps, actions)))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    return "silver.times"


@pytest.mark.parametrize(
    ("zone", "time", "version"),
    [
        ("UTC", "'2026-10-25 00:45'", 1),
        ("UTC", "'2026-10-25T00:44:59.999'", 0),
        ("UTC", "'2026-10-25T02:45:00+02:00'", 1),
        ("UTC", "'2026-10-26'", 3),
        ("UTC", "date'2026-10-26'", 3),
        ("UTC", "timestamp'2026-10-25 01:00:00Z' - INTERVAL 15 MINUTES", 1),
        ("UTC", "current_timestamp() + INTERVAL 1000 DAYS", 3),
        ("Europe/Berlin", "'2026-10-25 02:30'", 0),
        ("Europe/Berlin", "'2026-10-25 02:30:00+01:00'", 2),
        ("Europe/Berlin", "'2026-10-25 02:59:59'", 1),
        ("Europe/Berlin", "'2026-10-25 03:00'", 2),
        ("Europe/Berlin", "'2026-10-25 03:15'", 3),
        ("Europe/Berlin", "'2026-10-25T00:45:00Z'", 1),
        ("-01:30", "'2026-10-24 23:15'", 1),
        ("GMT+1", "'2026-10-25 01:45'", 1),
    ],
)
def test_a_time_is_in_the_zone_that_it_names_or_else_in_that_of_the_session(
    reader: SqlReader, times: str, zone: str, time: str, version: int
) -> None:
    reader.session.conf.set("spark.sql.session.timeZone", zone)
    try:
        with reader.ask(f"SELECT * FROM {times} TIMESTAMP AS OF {time}") as answer:
            assert [pinned.version for pinned in answer.table_versions] == [version]
    finally:
        reader.session.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("VERSION AS OF 7", "silver.times has no version 7: it has versions 0 to 3"),
        ("VERSION AS OF 999999999999999999999", "silver.times has no version 999999999999999999999"),
        ("VERSION AS OF 'v1'", "'v1' is not a version"),
        ("VERSION AS OF -1", "Syntax error"),
        ("VERSION AS OF 1 VERSION AS OF 0", "Syntax error"),
        ("TIMESTAMP AS OF '2026-10-25'", "as of 2026-10-25 00:00:00 UTC: its oldest version, 0, was written at"),
        ("TIMESTAMP AS OF '-12345-01-01'", "as of 1970-01-01 00:00:00 UTC"),
        ("TIMESTAMP AS OF 'last week'", "what follows TIMESTAMP AS OF is not a time"),
        ("TIMESTAMP AS OF ''", "what follows TIMESTAMP AS OF is not a time"),
        ("TIMESTAMP AS OF '2026-13-01'", "what follows TIMESTAMP AS OF is not a time"),
        ("TIMESTAMP AS OF NULL", "what follows TIMESTAMP AS OF is not a time"),
        ("TIMESTAMP AS OF id", ""),
        ("TIMESTAMP AS OF (SELECT max(id) FROM silver.orders)", "a subquery in TIMESTAMP AS OF"),
    ],
)
def test_what_is_not_a_version_or_a_time_of_a_table_is_refused(
    reader: SqlReader, times: str, point: str, message: str
) -> None:
    error = refused(reader, f"SELECT * FROM {times} {point}")
    assert error.exit_code == 2 and message in error.message


@pytest.mark.parametrize(
    ("query", "form"),
    [
        ("SELECT * FROM silver.orders@v1", "silver.orders VERSION AS OF 1,"),
        ("SELECT * FROM silver.orders@12 AS o", "silver.orders VERSION AS OF 12,"),
        ("SELECT * FROM `silver`.`orders`@V0", "`silver`.`orders` VERSION AS OF 0,"),
        ("SELECT *\nFROM silver.orders@'2026-05-14 09:00'", "silver.orders TIMESTAMP AS OF '2026-05-14 09:00'"),
        ('SELECT * FROM silver.orders@"2026-05-14 09:00"', "silver.orders TIMESTAMP AS OF '2026-05-14 09:00'"),
        ("SELECT * FROM silver.orders@2026-05-14T09:00", "silver.orders TIMESTAMP AS OF '2026-05-14 09:00'"),
    ],
)
def test_an_at_sign_behind_a_name_is_an_error_that_shows_the_new_form(reader: SqlReader, query: str, form: str) -> None:
    error = refused(reader, query)
    assert "Syntax error at or near '@'" in error.message and "^" in error.message
    assert error.hint is not None and form in error.hint


def test_tombstones_are_hidden_and_nothing_else(spark: SparkSession, reader: SqlReader, plan: Plan) -> None:
    from penstock.sql.reader import SqlReader

    assert ask(reader, "SELECT id, _deleted FROM silver.customers") == [("1", "false")]
    whole = SqlReader(spark, plan, tombstones=True)
    assert ask(whole, "SELECT id, _deleted FROM silver.customers ORDER BY id") == [("1", "false"), ("2", "true")]


@contextmanager
def nothing_changes(plan: Plan) -> Iterator[None]:
    def there() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in Path(plan.root).rglob("*")}

    before = there()
    yield
    assert there() == before


WRITES = [
    "WITH a AS (SELECT 1 AS id) INSERT INTO silver.orders SELECT id, 1 FROM a",
    "INSERT INTO silver.orders VALUES (1, 1)",
    "INSERT INTO delta.`{root}/lake/silver/orders` VALUES (1, 1)",
    "FROM silver.orders INSERT INTO silver.orders SELECT * INSERT INTO silver.customers SELECT *",
    "WITH a AS (SELECT 1) DELETE FROM silver.orders",
    "DELETE FROM delta.`{root}/lake/silver/orders`",
    "(DELETE FROM silver.orders)",
    "UPDATE silver.orders SET id = 1",
    "MERGE INTO silver.orders USING silver.customers AS c ON false WHEN NOT MATCHED THEN INSERT *",
    "TRUNCATE TABLE silver.orders",
    "drop table silver.orders",
    "CREATE TABLE delta.`{root}/out` USING delta AS SELECT 1 AS id",
    "CREATE TEMPORARY VIEW v AS SELECT 1",
    "OPTIMIZE delta.`{root}/lake/silver/orders`",
    "VACUUM delta.`{root}/lake/silver/orders` RETAIN 0 HOURS",
    "RESTORE TABLE delta.`{root}/lake/silver/orders` TO VERSION AS OF 0",
    "CREATE TABLE delta.`{root}/out` SHALLOW CLONE delta.`{root}/lake/silver/orders`",
    "FROM silver.orders INSERT OVERWRITE DIRECTORY '{root}/out' USING json SELECT *",
    "SELECT TRANSFORM(id) USING 'tee {root}/out' AS x FROM silver.orders",
    "MAP id USING 'tee {root}/out' AS x FROM silver.orders",
    "SELECT * FROM silver.orders WHERE id IN (SELECT TRANSFORM(id) USING 'tee {root}/out' AS x FROM silver.orders)",
    "SELECT sum(id) OVER w FROM silver.orders WINDOW w AS (ORDER BY (SELECT TRANSFORM(1) USING 'tee {root}/out' AS a))",
    # Spark runs the subquery of a time while it analyses the query, whatever table it belongs to.
    "SELECT * FROM silver.orders TIMESTAMP AS OF (SELECT TRANSFORM(1) USING 'tee {root}/out' AS a)",
    "SELECT sum(1) OVER w FROM range(1) WINDOW w AS (ORDER BY (SELECT max(id) FROM silver.orders TIMESTAMP AS OF "
    "(SELECT TRANSFORM(1) USING 'tee {root}/out' AS a)))",
    "SELECT (SELECT sum(1) OVER w FROM range(1) WINDOW w AS (ORDER BY (SELECT max(id) FROM silver.orders TIMESTAMP AS "
    "OF (SELECT TRANSFORM(1) USING 'tee {root}/out' AS a))))",
    "SELECT IDENTIFIER('coalesce')((SELECT max(id) FROM silver.orders TIMESTAMP AS OF "
    "(SELECT TRANSFORM(1) USING 'tee {root}/out' AS a)))",
    "SELECT * FROM IDENTIFIER('range')((SELECT max(id) FROM silver.orders TIMESTAMP AS OF "
    "(SELECT TRANSFORM(1) USING 'tee {root}/out' AS a)))",
    "BEGIN INSERT OVERWRITE DIRECTORY '{root}/out' USING json SELECT 1; END",
    "EXECUTE IMMEDIATE 'INSERT OVERWRITE DIRECTORY \"{root}/out\" USING json SELECT 1'",
]
ELSEWHERE = [
    "SELECT * FROM parquet.`{root}/lake/silver/orders`",
    "SELECT * FROM delta.`{root}/lake/silver/orders`",
    "SELECT * FROM delta.`{root}/lake/silver/orders` VERSION AS OF 0",
    "SELECT * FROM delta.`{root}/lake/silver/orders@v0`",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM read_files('/etc/passwd')",
    "SELECT sum(1) OVER w FROM range(1) WINDOW w AS (ORDER BY (SELECT max(value) FROM text.`/etc/passwd`))",
    "SELECT * FROM IDENTIFIER('silver' || '.orders')",
    "SELECT * FROM IDENTIFIER('silver.orders') VERSION AS OF 0",
    "SELECT * FROM IDENTIFIER('text.`/etc/passwd`') TIMESTAMP AS OF '2099-01-01'",
    "SELECT * FROM silver.orders WITH ('versionAsOf' = '0')",
    "SELECT * FROM STREAM silver.orders",
    "SELECT * FROM table_changes_by_path('{root}/lake/silver/orders', 0)",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
    "SELECT IDENTIFIER('java_' || 'method')('java.lang.System', 'getProperty', 'user.home')",
    "VALUES (try_reflect('java.lang.System', 'getProperty', 'user.home'))",
    "SELECT * FROM silver.orders TIMESTAMP AS OF java_method('java.lang.System', 'getProperty', 'user.home')",
    "SELECT xpath_string('<!DOCTYPE r SYSTEM \"file:///etc/passwd\"><r/>', '/r')",
    "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))",
    "SHOW TABLES",
    "EXPLAIN SELECT 1",
    "DESCRIBE silver.orders",
    "SET spark.sql.ansi.enabled = false",
    "ADD JAR '{root}/x.jar'",
    "CACHE TABLE silver.orders",
    "EXECUTE IMMEDIATE 'SELECT * FROM text.`/etc/passwd`'",
    "SELECT 1; DROP TABLE silver.orders",
    *("SELECT 'a", "SELECT `a", "SELECT 1 /* a", "SELCT 1", "", "-- nothing", ";", "/* */ ;"),
]


def test_a_script_is_refused_where_the_project_file_enables_scripts_too(reader: SqlReader, plan: Plan) -> None:
    """Spark runs a script while it analyses it."""
    reader.session.conf.set("spark.sql.scripting.enabled", "true")
    try:
        with nothing_changes(plan):
            script = "BEGIN INSERT OVERWRITE DIRECTORY '{root}/out' USING json SELECT 1; END"
            assert "CompoundBody is not a query" in refused(reader, script.replace("{root}", plan.root)).message
    finally:
        reader.session.conf.unset("spark.sql.scripting.enabled")


@pytest.fixture(scope="module")
def table_of_the_catalog(spark: SparkSession) -> Iterator[str]:
    """What the session's catalog knows beside the project's tables."""
    spark.sql("CREATE TABLE default.beside USING parquet AS SELECT 'secret' AS id")
    yield "default.beside"
    spark.sql("DROP TABLE default.beside")


def test_a_table_that_only_the_catalog_knows_is_not_read(reader: SqlReader, table_of_the_catalog: str) -> None:
    for query in (
        f"SELECT * FROM {table_of_the_catalog}",
        f"SELECT * FROM spark_catalog.{table_of_the_catalog}",
        f"SELECT sum(1) OVER w FROM range(1) WINDOW w AS (ORDER BY (SELECT max(id) FROM {table_of_the_catalog}))",
        f"EXECUTE IMMEDIATE 'SELECT * FROM {table_of_the_catalog}'",
    ):
        refused(reader, query)


@pytest.mark.parametrize("statements", [WRITES, ELSEWHERE], ids=["writes", "elsewhere"])
def test_only_queries_over_the_projects_tables_are_answered(
    reader: SqlReader, plan: Plan, statements: list[str]
) -> None:
    with nothing_changes(plan):
        for statement in statements:
            error = refused(reader, statement.replace("{root}", plan.root))
            assert error.exit_code == 2 and "root:" not in str(error) and "\tat " not in str(error), statement


def test_the_environment_is_not_read_and_the_session_beside_it_stays_as_it_was(
    spark: SparkSession, reader: SqlReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = os.environ.get("HOME", "")
    assert ask(reader, "SELECT '${env:HOME}', '${spark.master}'") == [("${env:HOME}", "${spark.master}")]
    assert spark.sql("SELECT '${env:HOME}', reflect('java.lang.Math', 'abs', -3)").collect() == [(home, "3")]


def test_what_is_wrong_is_shown_at_its_place_in_the_query(reader: SqlReader) -> None:
    syntax = refused(reader, "SELECT id\nFRM silver.orders VERSION AS OF 0")
    assert "Syntax error at or near" in syntax.message
    assert "FRM silver.orders VERSION AS OF 0\n" in syntax.message and "^" in syntax.message
    column = refused(reader, "SELECT amuont FROM silver.orders VERSION AS OF 0")
    assert "`amuont` cannot be resolved" in column.message and "`amount`" in column.message
    assert "SELECT amuont FROM silver.orders VERSION" in column.message and "\n       ^^^^^^" in column.message
    unknown = refused(reader, "SELECT * FROM silver.ordrs")
    assert "no table 'silver.ordrs'" in unknown.message
    assert "SELECT * FROM silver.ordrs\n              ^^^^^^^^^^^^" in unknown.message
    assert unknown.hint is not None and unknown.hint.startswith("did you mean 'silver.orders'?")
    assert refused(reader, "SELECT conut(*) FROM silver.orders").hint == "did you mean 'count'?"
    assert "queries cannot use reflect" in refused(reader, "SELECT reflect('a', 'b')").message
    assert "has no version 7" in refused(reader, "SELECT * FROM silver.orders VERSION AS OF 7").message
    assert "gold.none is not created yet" in refused(reader, "SELECT * FROM gold.none").message
    assert "nested too deeply" in refused(reader, f"SELECT {'(' * 3000}1{')' * 3000}").message
    failed = refused(reader, "SELECT 1 / (id - id) FROM silver.orders", QueryFailed)
    assert failed.exit_code == 3
    assert failed.message.startswith("Division by zero") and "\n       ^^^^^^^^^^^^^" in failed.message


def test_a_place_in_a_long_line_is_shown_with_what_is_around_it_and_nothing_steers_the_terminal(
    reader: SqlReader,
) -> None:
    shown = refused(reader, f"SELECT {'1, ' * 200}amuont, '\x1b[31m' FROM silver.orders").message
    line, marks = shown.splitlines()[-2:]
    assert line.count("1, ") < 40 and line.index("amuont") == marks.index("^^^^^^")
    assert "\x1b" not in shown and "\\x1b[31m" in shown


def test_statements_end_at_a_semicolon_that_is_neither_text_nor_comment(reader: SqlReader) -> None:
    from penstock.cli.shell import split

    def cut(text: str) -> tuple[list[str], str]:
        return split(reader.session, text)

    assert cut("select ';' -- ;\n; select 2; sel") == (["select ';' -- ;\n;", " select 2;"], " sel")
    assert cut("select 1;\n -- that is all;\n") == (["select 1;"], "")
    assert cut("-- only; a comment\n") == ([], "")
    for begun in ("select 'a;\n", 'select "a;\n', "select `a;\n", "select 1 /* ;\n", "/* a /* ; */\n", "sel"):
        assert cut(begun) == ([], begun)
        assert cut(f"select 1;{begun}") == (["select 1;"], begun)
    assert cut("select 'ä€😀;', r'\\', \"a;\", `a;``b;`;x") == (
        ["select 'ä€😀;', r'\\', \"a;\", `a;``b;`;"],
        "x",
    )


def test_tables_and_columns_are_listed_and_what_cannot_be_read_says_why(reader: SqlReader) -> None:
    from rich.console import Console

    from penstock.cli.sql_output import columns_view, tables_view

    console = Console(width=200, file=io.StringIO())
    with console.capture() as capture:
        console.print(tables_view(reader), columns_view(reader, "Silver.`orders`"))
        console.print(columns_view(reader, "silver.my-orders"))
    shown = capture.get()
    assert "silver.orders" in shown and "id, amount" in shown
    assert "gold.none is not created yet" in shown and "decimal(10,2)" in shown and "name" in shown
    with pytest.raises(UsageError, match="not created yet"):
        columns_view(reader, "gold.none")


def test_a_table_that_cannot_be_read_matters_only_to_those_who_name_it(reader: SqlReader) -> None:
    broken = refused(reader, "SELECT * FROM gold.broken, silver.orders", QueryFailed)
    assert "gold.broken version 0" in str(broken) and "\tat " not in str(broken)
    assert ask(reader, "SELECT count(*) FROM silver.orders VERSION AS OF 0") == [("3",)]


def test_no_more_rows_are_computed_than_are_shown_and_one_more_says_that_there_are_more(reader: SqlReader) -> None:
    endless = "SELECT if(id < 100000, id, raise_error('too far')) FROM range(0, 1000000, 1, 10)"
    assert ask(reader, endless, 3) == [("0",), ("1",), ("2",), ("3",)]
    assert len(ask(reader, "SELECT * FROM range(3)", 3)) == 3
    assert len(ask(reader, "SELECT * FROM range(0, 25000, 1, 3)", 20_000)) == 20_001
    assert len(ask(reader, "SELECT * FROM range(0, 25000, 1, 3)", None)) == 25_000
    assert "too far" in refused(reader, endless.replace("100000,", "5,"), QueryFailed).message


def test_values_keep_what_they_say(reader: SqlReader) -> None:
    from penstock.cli.sql_output import json_values, texts

    query = """SELECT CAST('12345678901234567890.10' AS DECIMAL(38,2)) AS a, 9223372036854775807 AS b,
        double('NaN') AS c, timestamp'2026-05-14 09:00:00.5' AS d, date'+12345-01-01' AS e, X'00FF' AS f, NULL AS g,
        '' AS h, named_struct('x', NULL, 'y', array(1, 2)) AS i, map('k', X'00FF') AS j, interval '1' day AS k, 1 AS a,
        parse_json('[1]') AS l, 'q"\n' AS m"""
    with reader.ask(query) as answer:
        (text,) = texts(answer.frame, None)
        (pieces,) = json_values(answer.frame, None)
    assert text[:9] == (
        *("12345678901234567890.10", "9223372036854775807", "NaN", "2026-05-14 09:00:00.5", "+12345-01-01"),
        *("00FF", None, "", '{"x":null,"y":[1,2]}'),
    )
    assert text[9:] == ('{"k":"AP8="}', "INTERVAL '1' DAY", "1", "[1]", 'q"\n')
    assert pieces[:2] == ["12345678901234567890.10", "9223372036854775807"]
    found: Any = json.loads(f"[{','.join(pieces)}]")
    assert found[2:9] == [
        "NaN",
        "2026-05-14T09:00:00.500000Z",
        "+12345-01-01",
        "AP8=",
        None,
        "",
        {"x": None, "y": [1, 2]},
    ]
    assert found[9:] == [{"k": "AP8="}, "INTERVAL '1' DAY", 1, [1], 'q"\n']


def test_a_version_whose_files_were_vacuumed_says_so(spark: SparkSession, plan: Plan, reader: SqlReader) -> None:
    """Last: it takes the old versions away."""
    from deltalake import DeltaTable

    newest = spark.sql("SELECT 9L AS id, CAST(9 AS DECIMAL(10,2)) AS amount")
    newest.write.format("delta").mode("overwrite").save(uri(plan, "silver.orders"))
    table = DeltaTable(uri(plan, "silver.orders"))
    assert len(table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)) == 2
    both = "SELECT sum(new.id), sum(old.id) FROM silver.orders new, silver.orders VERSION AS OF 1 old"
    gone = refused(reader, both, QueryFailed)
    assert "silver.orders version 1 or silver.orders version 4 cannot be read any more" in gone.message
    assert "VACUUM" in gone.message
    gone = refused(reader, "SELECT sum(id) FROM silver.orders VERSION AS OF 1", QueryFailed)
    assert gone.message.startswith("silver.orders version 1 cannot be read any more: its file part-")
    assert gone.hint is not None and "read a newer version" in gone.hint
    assert ask(reader, "SELECT * FROM silver.orders") == [("9", "9.00")]
