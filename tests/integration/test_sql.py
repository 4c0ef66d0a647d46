"""`sql`: queries over the project's tables by name, as of any version; and nothing but queries."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PenstockError, QueryFailed, UsageError
from penstock.sql.statement import read_statement
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
def reader(spark: SparkSession, plan: Plan) -> SqlReader:
    from penstock.sql.reader import SqlReader

    return SqlReader(spark, plan)


def ask(reader: SqlReader, query: str, limit: int | None = 100) -> Rows:
    from penstock.sql.reader import texts

    with reader.ask(read_statement(query)) as answer:
        return list(texts(answer.frame, limit))


def refused(reader: SqlReader, query: str, kind: type[PenstockError] = UsageError) -> PenstockError:
    with pytest.raises(kind) as raised:
        ask(reader, query)
    return raised.value


def test_tables_are_read_by_name_at_any_version_under_any_alias(reader: SqlReader) -> None:
    counts = (
        "SELECT (SELECT count(*) FROM silver.orders@v0), (SELECT count(*) FROM `silver`.`orders`@1), "
        "(SELECT count(*) FROM silver.orders VERSION AS OF 0), (SELECT count(*) FROM Silver.ORDERS@'2099-01-01')"
    )
    assert ask(reader, counts) == [("3", "5", "3", "5")]
    assert ask(reader, "SELECT count(*) FROM silver.orders TIMESTAMP AS OF '2099-01-01'") == [("5",)]
    joined = (
        "SELECT silver.orders.id, orders.amount, old.id FROM silver.orders LEFT JOIN silver.orders@v0 AS old "
        "ON silver.orders.id = old.id WHERE orders.id IN (SELECT id FROM silver.orders) ORDER BY 1 DESC LIMIT 2"
    )
    assert ask(reader, joined) == [("4", "4.40", None), ("3", "3.30", None)]
    assert ask(reader, "FROM silver.orders@v0 |> WHERE id > 0 |> AGGREGATE sum(amount)") == [("3.30",)]
    assert ask(reader, "TABLE silver.`my-orders`") == [("hyphen",)]
    assert ask(reader, "SELECT o.* FROM `silver.orders`@v0 TABLESAMPLE (100 PERCENT) o WHERE id = 2") == [("2", "2.20")]
    assert ask(reader, "SELECT value FROM silver.orders__quarantine") == [("bad",)]


def test_a_name_that_the_query_gives_itself_is_its_own(reader: SqlReader) -> None:
    shadowed = "WITH silver AS (SELECT 7 AS orders), orders AS (SELECT 8 AS id) SELECT silver.orders, orders.id"
    assert ask(reader, f"{shadowed} FROM silver, orders") == [("7", "8")]
    assert ask(reader, "WITH t AS (SELECT id FROM silver.orders@v0) SELECT sum(a.id + b.id) FROM t a, t b") == [("18",)]
    assert ask(reader, "SELECT 'silver.orders@v0', `silver.orders`.id FROM (SELECT 5 AS id) `silver.orders`") == [
        ("silver.orders@v0", "5")
    ]
    assert ask(reader, "SELECT sum(id) FROM range(4) UNION ALL SELECT x FROM VALUES (1) AS t(x)") == [("6",), ("1",)]


def test_within_a_query_each_table_stays_as_it_was_when_the_query_began(
    spark: SparkSession, reader: SqlReader, plan: Plan
) -> None:
    from penstock.sql.reader import texts

    place, row = uri(plan, "silver.my-orders"), spark.sql("SELECT 'later' AS name")
    both = (
        "SELECT (SELECT max(name) FROM silver.`my-orders`), (SELECT count(*) FROM silver.`my-orders` WHERE name > '')"
    )
    with reader.ask(read_statement(both)) as answer:
        assert [str(one) for one in answer.read] == ["silver.my-orders@v0"]
        row.write.format("delta").mode("append").save(place)
        assert list(texts(answer.frame, 10)) == [("hyphen", "1")]
    assert ask(reader, both) == [("later", "2")]
    assert ask(reader, both.replace("my-orders`)", "my-orders`@v0)", 1)) == [("hyphen", "2")]


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
    "FROM silver.orders INSERT INTO silver.orders SELECT * INSERT INTO silver.customers SELECT *",
    "WITH a AS (SELECT 1) DELETE FROM silver.orders",
    "FROM silver.orders INSERT OVERWRITE DIRECTORY '{root}/out' USING json SELECT *",
    "SELECT TRANSFORM(id) USING 'tee {root}/out' AS x FROM silver.orders",
    "SELECT * FROM silver.orders WHERE id IN (SELECT TRANSFORM(id) USING 'tee {root}/out' AS x FROM silver.orders)",
    "SELECT sum(id) OVER w FROM silver.orders WINDOW w AS (ORDER BY (SELECT TRANSFORM(1) USING 'tee {root}/out' AS a))",
]
ELSEWHERE = [
    "SELECT * FROM parquet.`{root}/lake/silver/orders`",
    "SELECT * FROM delta.`{root}/lake/silver/orders`",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT sum(1) OVER w FROM range(1) WINDOW w AS (ORDER BY (SELECT max(value) FROM text.`/etc/passwd`))",
    "SELECT * FROM IDENTIFIER('silver' || '.orders')",
    "SELECT * FROM silver.orders WITH ('versionAsOf' = '0')",
    "SELECT * FROM STREAM silver.orders",
    "SELECT * FROM table_changes_by_path('{root}/lake/silver/orders', 0)",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
    "SELECT IDENTIFIER('java_' || 'method')('java.lang.System', 'getProperty', 'user.home')",
    "VALUES (try_reflect('java.lang.System', 'getProperty', 'user.home'))",
    "SELECT xpath_string('<!DOCTYPE r SYSTEM \"file:///etc/passwd\"><r/>', '/r')",
    "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))",
    "SHOW TABLES",
    "SELECT 1; DROP TABLE silver.orders",
]


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


def test_what_is_wrong_is_shown_at_its_place_in_the_users_own_words(reader: SqlReader) -> None:
    syntax = refused(reader, "SELECT id\nFRM silver.orders@v0")
    assert "Syntax error at or near 'silver'" in syntax.message or "line 2" in syntax.message
    assert "silver.orders@v0" in syntax.message and "^" in syntax.message
    column = refused(reader, "SELECT amuont FROM silver.orders@v0")
    assert "`amuont` cannot be resolved" in column.message and "`amount`" in column.message
    assert "SELECT amuont FROM silver.orders@v0\n         ^^^^^^ column 8" in column.message
    unknown = refused(reader, "SELECT * FROM silver.ordrs")
    assert unknown.hint is not None and unknown.hint.startswith("did you mean 'silver.orders'?")
    assert refused(reader, "SELECT conut(*) FROM silver.orders").hint == "did you mean 'count'?"
    assert "reflect is not there" in refused(reader, "SELECT reflect('a', 'b')").message
    assert "behind something that is no table" in refused(reader, "SELECT id@v1 FROM silver.orders").message
    assert "two versions" in refused(reader, "SELECT * FROM silver.orders@v1 VERSION AS OF 0").message
    assert "has no version 7" in refused(reader, "SELECT * FROM silver.orders VERSION AS OF 7").message
    assert "gold.none is not created yet" in refused(reader, "SELECT * FROM gold.none").message
    assert "nested too deeply" in refused(reader, f"SELECT {'(' * 3000}1{')' * 3000}").message
    failed = refused(reader, "SELECT 1 / (id - id) FROM silver.orders", QueryFailed)
    assert failed.exit_code == 3
    assert failed.message.startswith("Division by zero") and "^^^^^^^^^^^^^ column 8" in failed.message


def test_a_table_that_cannot_be_read_matters_only_to_those_who_name_it(reader: SqlReader) -> None:
    broken = refused(reader, "SELECT * FROM gold.broken, silver.orders", QueryFailed)
    assert "gold.broken@v0" in str(broken) and "\tat " not in str(broken)
    assert ask(reader, "SELECT count(*) FROM silver.orders@v0") == [("3",)]


def test_no_more_rows_are_computed_than_are_shown_and_one_more_says_that_there_are_more(reader: SqlReader) -> None:
    endless = "SELECT if(id < 100000, id, raise_error('too far')) FROM range(0, 1000000, 1, 10)"
    assert ask(reader, endless, 3) == [("0",), ("1",), ("2",), ("3",)]
    assert len(ask(reader, "SELECT * FROM range(3)", 3)) == 3
    assert len(ask(reader, "SELECT * FROM range(0, 25000, 1, 3)", 20_000)) == 20_001
    assert len(ask(reader, "SELECT * FROM range(0, 25000, 1, 3)", None)) == 25_000
    assert "too far" in refused(reader, endless.replace("100000,", "5,"), QueryFailed).message


def test_values_keep_what_they_say(reader: SqlReader) -> None:
    from penstock.sql.reader import json_values, texts

    query = """SELECT CAST('12345678901234567890.10' AS DECIMAL(38,2)) AS a, 9223372036854775807 AS b,
        double('NaN') AS c, timestamp'2026-05-14 09:00:00.5' AS d, date'+12345-01-01' AS e, X'00FF' AS f, NULL AS g,
        '' AS h, named_struct('x', NULL, 'y', array(1, 2)) AS i, map('k', X'00FF') AS j, interval '1' day AS k, 1 AS a,
        parse_json('[1]') AS l, 'q"\n' AS m"""
    with reader.ask(read_statement(query)) as answer:
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
    gone = refused(reader, "SELECT sum(new.id), sum(old.id) FROM silver.orders new, silver.orders@v1 old", QueryFailed)
    assert "silver.orders@v1 or silver.orders@v4 cannot be read any more" in gone.message and "VACUUM" in gone.message
    gone = refused(reader, "SELECT sum(id) FROM silver.orders@v1", QueryFailed)
    assert gone.message.startswith("silver.orders@v1 cannot be read any more: its file part-")
    assert gone.hint is not None and "read a newer version" in gone.hint
    assert ask(reader, "SELECT * FROM silver.orders") == [("9", "9.00")]
