"""Changes of a table followed into a real PostgreSQL: each there exactly once, whatever dies on the way."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import TableChanged, Terminal
from tests.integration.change_source import SINK, Followed, dies, quarantined, reset, sink_of
from tests.integration.run_plan import commits_die, run_well, whole_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.postgres import Postgres


class Database:
    def __init__(self, server: Postgres) -> None:
        self._server = server
        self.name = server.create_database(f"d{uuid.uuid4().hex[:10]}")

    def __call__(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._server.execute(sql, *values, database=self.name)

    def to(self, **more: Any) -> dict[str, Any]:
        return {"postgres": self._server.url_of(self.name), "table": "c", "user": self._server.user, **more}


@pytest.fixture
def database(postgres: Postgres) -> Database:
    return Database(postgres)


@pytest.fixture
def followed(spark: SparkSession, project: Any) -> Followed:
    return Followed(spark, project)


def agree(followed: Followed, database: Database) -> bool:
    there = sorted(database('SELECT id, name, n FROM "c"'))
    return there == sorted((row["id"], row["name"], row["n"]) for row in followed.rows)


def test_inserts_updates_and_deletes_arrive(followed: Followed, database: Database) -> None:
    plan = followed.plan(database.to())
    followed.sql("INSERT INTO T VALUES (1, 'a', 1), (2, 'b', NULL), (3, 'it''s \"é', 3)")
    followed.run(plan)
    assert agree(followed, database), "the table was made, and filled with what was there"
    followed.sql("UPDATE T SET n = 10 WHERE id = 1")
    followed.sql("DELETE FROM T WHERE id = 2")
    followed.sql("INSERT INTO T VALUES (4, 'd', 4)")
    followed.sql("UPDATE T SET n = 11 WHERE id = 1")
    followed.sql("INSERT OVERWRITE T VALUES (1, 'z', 12), (5, 'e', 5), (3, 'c', 3)")
    followed.run(plan)
    assert agree(followed, database)
    followed.sql("UPDATE T SET id = 6 WHERE id = 5")
    followed.run(plan)
    assert agree(followed, database), "a row whose key changed has left its old one"
    before = database("SELECT xmin FROM c")
    followed.run(plan)
    assert database("SELECT xmin FROM c") == before, "nothing new, nothing written"
    assert [entry.sent for entry in whole_chain(plan, SINK)[1:]] == [3, 5, 2]
    assert quarantined(plan) == []


def test_every_type_arrives_as_it_is(spark: SparkSession, project: Any, database: Database) -> None:
    columns = (
        "id STRING, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(38, 10), b BOOLEAN, day DATE, "
        "ts TIMESTAMP, wall TIMESTAMP_NTZ, raw BINARY, list ARRAY<INT>, one STRUCT<b: STRING, at: TIMESTAMP>, "
        'many MAP<STRING, INT>, `odd"Näme` STRING, _source STRUCT<topic: STRING>'
    )
    followed = Followed(spark, project, columns)
    plan = followed.plan(database.to())
    followed.sql(
        "INSERT INTO T VALUES ('x', -128, -32768, 2147483647, -9223372036854775808, float('1.5'), double('NaN'), "
        "1234567890123456789012345678.0123456789, true, DATE'1582-10-10', TIMESTAMP'0001-01-01 00:00:00.000001Z', "
        "TIMESTAMP_NTZ'2026-03-29 02:30:00.123456', X'00ff', array(1, NULL), "
        "named_struct('b', 'é', 'at', TIMESTAMP'2026-01-01 00:00:00.000001Z'), map('k', 1), '\"', "
        "named_struct('topic', 'x')), "
        "('nothing', NULL, NULL, NULL, NULL, NULL, double('-Infinity'), NULL, NULL, NULL, "
        "TIMESTAMP'9999-12-31 23:59:59.999999Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    followed.run(plan)
    found = database(
        "SELECT t, s, i, l, f, d::text, m::text, b, day::text, ts::text, wall::text, raw, list::text, one::text, "
        'many::text, "odd""Näme" FROM c ORDER BY id = \'nothing\''
    )
    assert found[0] == (
        -128,
        -32768,
        2147483647,
        -9223372036854775808,
        1.5,
        "NaN",
        "1234567890123456789012345678.0123456789",
        True,
        "1582-10-10",
        "0001-01-01 00:00:00.000001+00",
        "2026-03-29 02:30:00.123456",
        b"\x00\xff",
        "[1, null]",
        '{"b": "é", "at": "2026-01-01T00:00:00.000001Z"}',
        '{"k": 1}',
        '"',
    )
    assert found[1][5] == "-Infinity" and found[1][9] == "9999-12-31 23:59:59.999999+00"
    assert [value for i, value in enumerate(found[1]) if i not in (5, 9)] == [None] * 14
    kinds = database(
        "SELECT data_type FROM information_schema.columns WHERE table_name = 'c' ORDER BY ordinal_position"
    )
    assert [kind for (kind,) in kinds][10:14] == [
        "timestamp with time zone",
        "timestamp without time zone",
        "bytea",
        "jsonb",
    ]


def test_rows_that_the_database_refuses_are_set_aside_and_the_rest_goes_on(
    followed: Followed, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database("CREATE TABLE c (id bigint PRIMARY KEY, name varchar(5) UNIQUE, n int CHECK (n < 100))")
    plan = followed.plan(database.to())
    followed.sql("INSERT INTO T SELECT id, 'n' || id, 1 FROM range(30)")
    followed.run(plan)
    followed.sql("INSERT INTO T SELECT id, 'n' || id, 2 FROM range(30, 60)")
    followed.sql("UPDATE T SET name = 'too long' WHERE id = 7")
    followed.sql("UPDATE T SET n = 100 WHERE id IN (40, 41)")
    followed.sql("UPDATE T SET name = concat('a', chr(0), 'b') WHERE id = 50")
    followed.sql("INSERT INTO T VALUES (NULL, 'none', 1), (NULL, 'none', 1), (90, 'x', 1), (90, 'y', 1)")
    # Each takes the name that another has until the same batch: the last of the chain first.
    followed.sql("UPDATE T SET name = 'n' || (id + 1) WHERE id BETWEEN 10 AND 19")
    followed.sql("UPDATE T SET name = 'free' WHERE id = 20")
    dies(monkeypatch, "SetAside.keep", after=False)
    heard = followed.run(plan)
    assert heard.heard("killed"), "after the database had committed, before anything was in the lake"
    refused = {7: "value too long", 40: "check constraint", 41: "check constraint", 50: "0x00"}
    told = quarantined(plan)
    assert sorted((row["key"] or "", row["error_reason"]) for row in told) == sorted(
        [*((str(key), "refused") for key in refused), ("", "null_key"), ("", "null_key"), ("90", "ambiguous_key")]
    )
    for row in told:
        if row["error_reason"] == "refused":
            assert refused[int(row["key"])] in row["error_detail"], row
    assert {row["_source"]["deleted"] for row in told} == {False}
    there = dict(database("SELECT id, name FROM c"))
    table = {row["id"]: row["name"] for row in followed.rows}
    assert there.pop(7) == "n7" and {40, 41, 50, 90} & there.keys() == set()
    assert there == {key: table[key] for key in table if key is not None and key not in (7, *refused, 90)}
    assert database("SELECT count(*) FROM penstock_refused") == [(4,)]
    followed.sql("DELETE FROM T WHERE id IN (7, 40, 41, 50) OR id IS NULL")
    followed.run(plan)
    assert len(quarantined(plan)) == len(told) and database("SELECT count(*) FROM penstock_refused") == [(0,)]


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_batch_that_is_in_the_database_is_not_sent_again(
    followed: Followed, database: Database, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    database("CREATE TABLE c (id bigint PRIMARY KEY, name text, n int, times int DEFAULT 0)")
    database(
        "CREATE FUNCTION more() RETURNS trigger AS $$ BEGIN NEW.times = coalesce(OLD.times, 0) + 1; RETURN NEW; END $$ "
        "LANGUAGE plpgsql"
    )
    database("CREATE TRIGGER more BEFORE INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION more()")
    followed.sql("INSERT INTO T SELECT id, 'n', 1 FROM range(50)")
    dies(monkeypatch, "append", after=after)
    plan = followed.plan(database.to())
    assert followed.run(plan).heard("killed")
    assert agree(followed, database)
    assert database("SELECT DISTINCT times FROM c") == [(1,)] if not after else True
    assert [entry.sent for entry in whole_chain(plan, SINK)[1:]] == [50]
    followed.sql("UPDATE T SET n = 2 WHERE id < 10")
    followed.run(plan)
    assert agree(followed, database)


@pytest.mark.deep
def test_a_batch_that_is_planned_anew_after_its_checkpoint_was_lost_comes_out_right(
    followed: Followed, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    plan = followed.plan(database.to())
    followed.sql("INSERT INTO T SELECT id, 'n', 1 FROM range(20)")
    followed.run(plan)
    followed.sql("INSERT INTO T VALUES (NULL, 'first', 1), (100, 'x', 1)")
    with monkeypatch.context() as patched:
        commits_die(patched, SINK, *range(1, 100))
        assert "killed" in followed.error(plan).message
    shutil.rmtree(sink_of(plan).checkpoints)
    followed.sql("UPDATE T SET n = 2 WHERE id = 100")
    followed.sql("DELETE FROM T WHERE id = 3")
    followed.sql("INSERT INTO T VALUES (NULL, 'second', 1)")
    followed.run(plan)
    database("DELETE FROM c WHERE id IS NULL")
    followed.sql("DELETE FROM T WHERE id IS NULL")
    assert agree(followed, database)
    assert sorted(row["value"] for row in quarantined(plan)) == ['{"name":"first","n":1}', '{"name":"second","n":1}']


@pytest.mark.deep
def test_a_database_that_was_put_back_or_belongs_to_another_is_refused(
    followed: Followed, database: Database, project: Any, spark: SparkSession
) -> None:
    plan = followed.plan(database.to())
    followed.sql("INSERT INTO T VALUES (1, 'a', 1)")
    followed.run(plan)
    backup = database("SELECT batch, position_before, position_after FROM penstock_positions")[0]
    followed.sql("INSERT INTO T VALUES (2, 'b', 1)")
    followed.run(plan)
    database("UPDATE penstock_positions SET batch = %s, position_before = %s, position_after = %s", *backup)
    error = followed.error(plan)
    assert isinstance(error, TableChanged) and "put back to an older state" in error.message
    assert "reset out --to earliest" in (error.hint or "")
    database("DELETE FROM penstock_positions")
    assert "replaced or emptied" in followed.error(plan).message
    reset(spark, plan, "earliest")
    database("DELETE FROM c")
    followed.run(plan)
    assert agree(followed, database), "a person decided to send all again"
    database("UPDATE penstock_positions SET ledger = 'another'")
    assert "belongs to another sink" in followed.error(plan).message


def test_a_table_that_does_not_serve_is_refused_with_what_to_do(followed: Followed, database: Database) -> None:
    followed.sql("INSERT INTO T VALUES (1, 'a', 1)")

    def refused(said: str, hint: str, **to: Any) -> None:
        error = followed.error(followed.plan(database.to(**to)))
        assert isinstance(error, Terminal) and said in error.message and hint in (error.hint or ""), error

    refused("there is no table", 'CREATE TABLE "public"."c" ("id" BIGINT NOT NULL, "name" TEXT', create=False)
    database("CREATE TABLE c (id bigint, name text)")
    refused('has no column "n"', 'ADD COLUMN "n" INTEGER')
    database("ALTER TABLE c ADD COLUMN n int, ADD COLUMN needed int NOT NULL")
    refused('"needed" of "public"."c" takes no NULL', "SET DEFAULT")
    database("ALTER TABLE c ALTER needed SET DEFAULT 1")
    refused('two rows with the same "id"', 'ADD PRIMARY KEY ("id")')
    database("CREATE UNIQUE INDEX ON c (id) WHERE n > 0")
    refused('two rows with the same "id"', 'ADD PRIMARY KEY ("id")')
    database("CREATE UNIQUE INDEX ON c (id)")
    followed.run(followed.plan(database.to()))
    assert agree(followed, database)
    refused("does not exist (3D000)", "make the database", postgres=database.to()["postgres"] + "x")
    error = followed.error(followed.plan(database.to(), keys=["nam"]))
    assert "no column nam" in error.message and error.hint == "did you mean 'name'?"


@pytest.mark.deep
def test_a_merged_table_arrives_under_its_own_keys_and_without_its_tombstones(
    spark: SparkSession, project: Any, broker: Any, topic: Any, database: Database
) -> None:
    from confluent_kafka import Producer

    came, producer = topic(partitions=2), Producer({"bootstrap.servers": broker.bootstrap})
    schema = "id BIGINT, region STRING, name STRING, seq BIGINT, op STRING"
    tables = {
        "silver.c": {
            "from": {"kafka": came},
            "decode": {"json": "value", "schema": schema},
            "write": {
                "merge": {
                    "keys": ["id", "region"],
                    "sequence": "seq",
                    "delete_when": "op = 'd'",
                    "columns": {"except": "op"},
                },
                "change_feed": True,
            },
        }
    }
    plan = project(tables, sinks={SINK: {"from": {"changes": "silver.c"}, "to": database.to()}})
    expected: dict[tuple[int, str], tuple[str, int]] = {}
    for life in range(3):
        for number in range(40):
            key, seq = (number % 20, "eu" if number % 3 else "us"), life * 100 + number
            op = "d" if (number + life) % 4 == 0 else "u"
            value = {"id": key[0], "region": key[1], "name": f"n{seq}", "seq": seq, "op": op}
            producer.produce(came, json.dumps(value), partition=number % 2)
            expected[key] = (f"n{seq}", seq)
            if op == "d":
                del expected[key]
        assert producer.flush(30) == 0
        run_well(spark, plan)
        there = database("SELECT id, region, name, seq FROM c")
        assert {(row[0], row[1]): (row[2], row[3]) for row in there} == expected
    columns = database(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'c' ORDER BY ordinal_position"
    )
    assert [name for (name,) in columns] == ["id", "region", "name", "seq"]
