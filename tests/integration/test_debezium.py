"""PostgreSQL through a real Debezium connector: what is decoded is what PostgreSQL itself says that it did."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import rows, rows_at, run_well, wait_for
from tests.integration.topic_records import consume

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.dev.postgres import Postgres

TABLE = """
    CREATE TABLE customers (
        id bigint PRIMARY KEY, name text NOT NULL, amount numeric(10,2) NOT NULL, balance numeric, ts timestamp,
        tz timestamptz NOT NULL, d date, ok boolean NOT NULL, j jsonb, note text, b bytea, x double precision,
        tags text[], days date[]
    );
    CREATE TABLE audit (seq bigserial PRIMARY KEY, op text NOT NULL, old_id bigint, LIKE customers);
    ALTER TABLE audit ALTER id DROP NOT NULL, ALTER name DROP NOT NULL, ALTER amount DROP NOT NULL,
        ALTER tz DROP NOT NULL, ALTER ok DROP NOT NULL;
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'TRUNCATE' THEN INSERT INTO audit(op) VALUES ('t'); RETURN NULL; END IF;
        IF TG_OP = 'DELETE' THEN INSERT INTO audit(op, old_id) VALUES ('d', OLD.id); RETURN NULL; END IF;
        INSERT INTO audit SELECT nextval('audit_seq_seq'), CASE TG_OP WHEN 'INSERT' THEN 'c' ELSE 'u' END,
            CASE TG_OP WHEN 'UPDATE' THEN OLD.id END, NEW.*;
        RETURN NULL;
    END $$;
    CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON customers FOR EACH ROW EXECUTE FUNCTION note();
    CREATE TRIGGER emptied AFTER TRUNCATE ON customers FOR EACH STATEMENT EXECUTE FUNCTION note();
"""
SCHEMA = (
    "id BIGINT NOT NULL, name STRING NOT NULL, amount DECIMAL(10,2) NOT NULL, balance DECIMAL(30,10), "
    "ts TIMESTAMP_NTZ, tz TIMESTAMP NOT NULL, d DATE, ok BOOLEAN NOT NULL, j STRING, note STRING, b BINARY, x DOUBLE, "
    "tags ARRAY<STRING>, days ARRAY<DATE>"
)
COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")]
ASKED = ", ".join("j::text" if name == "j" else name for name in COLUMNS)
NAMES = ["Ada", "O'Hara", 'say "hi"', "line\nbreak\ttab", "emoji 😀 中", "back\\slash", "", "{}", "NULL"]
Values = tuple[Any, ...]


class Shop:
    """Makes changes, many kinds in random order, and remembers nothing: PostgreSQL does."""

    def __init__(self, connection: Connection[Any], seed: int) -> None:
        self._connection, self._random, self._next = connection, random.Random(seed), 1

    def insert(self, count: int = 1) -> None:
        for _ in range(count):
            marks = ", ".join(["%s"] * len(COLUMNS))
            self._connection.execute(f"INSERT INTO customers VALUES ({marks})", [self._next, *self._values()])
            self._next += 1

    def change(self, count: int) -> None:
        for _ in range(count):
            match self._random.choice(["insert", "update", "update", "delete", "key", "many", "again"]):
                case "insert":
                    self.insert()
                case "update":
                    self._update(self._some())
                case "delete":
                    self._connection.execute("DELETE FROM customers WHERE id = %s", [self._some()])
                case "key":
                    self._connection.execute("UPDATE customers SET id = %s WHERE id = %s", [self._next, self._some()])
                    self._next += 1
                case "many":
                    self._connection.execute("UPDATE customers SET amount = amount + 0.01 WHERE id %% 5 = 0", [])
                case "again":
                    with self._connection.transaction():
                        key = self._some()
                        self._connection.execute("DELETE FROM customers WHERE id = %s", [key])
                        marks = ", ".join(["%s"] * len(COLUMNS))
                        self._connection.execute(f"INSERT INTO customers VALUES ({marks})", [key, *self._values()])
                        self._update(key)

    def overlap(self, other: Connection[Any]) -> None:
        """A transaction that begins first is committed last."""
        keys = [row[0] for row in self._connection.execute("SELECT id FROM customers ORDER BY id LIMIT 2")]
        with other.transaction():
            other.execute("UPDATE customers SET note = 'began first' WHERE id = %s", [keys[0]])
            self._connection.execute("UPDATE customers SET note = 'in between' WHERE id = %s", [keys[1]])
            other.execute("UPDATE customers SET note = 'ended last' WHERE id = %s", [keys[1]])
        self._connection.execute("UPDATE customers SET note = 'after both' WHERE id = %s", [keys[0]])

    def _update(self, key: int) -> None:
        marks = ", ".join(f"{name} = %s" for name in COLUMNS[1:])
        self._connection.execute(f"UPDATE customers SET {marks} WHERE id = %s", [*self._values(), key])

    def _some(self) -> int:
        found = self._connection.execute("SELECT id FROM customers ORDER BY id").fetchall()
        return self._random.choice(found)[0] if found else 0

    def _values(self) -> list[Any]:
        one = self._random
        moment = datetime(2000, 1, 1) + timedelta(microseconds=one.randrange(-(10**15), 10**15))
        given: list[Any] = [
            Decimal(one.randrange(-(10**10) + 1, 10**10)).scaleb(-2),
            Decimal(one.randrange(-(10**12), 10**12)).scaleb(-one.randrange(0, 10)),
            moment,
            moment.replace(tzinfo=UTC),
            date(1970, 1, 1) + timedelta(days=one.randrange(-20_000, 40_000)),
            one.random() < 0.5,
            f'{{"a": [1, {{"b": "{one.randrange(9)} 😀"}}], "n": 1.50}}',
            one.choice(NAMES),
            one.randbytes(one.randrange(6)),
            one.choice([0.1, -1e300, 5.0, 1e-9]),
            [one.choice(NAMES), None, "x"],
            [date(2024, 2, 29), None],
        ]
        needed = {0, 3, 5}
        return [
            one.choice(NAMES),
            *(v if i in needed or one.random() > 0.2 else None for i, v in enumerate(given)),
        ]


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Connection[Any]]:
    database = postgres.create_database("debezium")
    with postgres.connect(database) as connection:
        connection.execute(TABLE)
        yield connection


@pytest.mark.deep
def test_what_postgres_did_is_what_is_decoded_in_its_order_though_the_worker_is_killed(
    spark: SparkSession, broker: Broker, postgres: Postgres, shop: Connection[Any], project: Any
) -> None:
    from penstock.dev.connect import Connect

    made = Shop(shop, 1)
    made.insert(30)
    before = _asked(shop, f"SELECT {ASKED} FROM customers")
    shop.execute("TRUNCATE audit")
    connect = Connect(
        broker, postgres, tables=["public.customers"], topic_prefix="cdc", database="debezium", schemas=False
    )
    (topic,) = connect.topics
    plan = project(
        {
            "bronze.c": {"from": {"kafka": topic, "max_per_trigger": 100}},
            "silver.c": {
                "from": {"table": "bronze.c", "max_files": 1},
                "decode": {"debezium": "value", "schema": SCHEMA, "times": "micros", "decimals": "unscaled"},
            },
        }
    )

    def arrived(mark: str) -> None:
        """A change that carries this mark is in the topic."""
        made.insert()
        shop.execute("UPDATE customers SET name = %s WHERE id = (SELECT max(id) FROM customers)", [mark])
        wait_for(lambda: any(mark.encode() in (r.value or b"") for r in consume(broker.bootstrap, topic)), patience=90)

    with connect, postgres.connect("debezium") as other:
        made.change(80)
        made.overlap(other)
        arrived("first mark")
        run_well(spark, plan)
        made.change(60)
        connect.kill()  # Some of that was sent, and of what was sent not all is in its offsets.
        made.change(40)
        connect.schemas = True
        connect.start()
        made.change(40)
        shop.execute("TRUNCATE customers")
        made.insert(40)
        made.change(60)
        made.overlap(other)
        arrived("last mark")
    sent = consume(broker.bootstrap, topic)
    with_schema = [(r.value or b"").startswith(b'{"schema"') for r in sent if r.value]
    assert any(with_schema) and not all(with_schema)
    run_well(spark, plan)

    silver = plan.table("silver.c")
    assert silver is not None
    assert rows_at(f"{silver.uri}__quarantine") == []
    decoded = rows(plan, "silver.c")
    report = verify(plan.tables, LocalStore())[1]
    assert report.verdict == "complete" and report.conserved is not None
    assert report.conserved.dropped == sum(r.value is None for r in sent) > 0, "a tombstone is no row"
    assert len(decoded) + report.conserved.dropped == len(sent)

    # Sent again is the same again; and by their positions alone, the changes of each key are as PostgreSQL made them.
    changes = {(row["_position"], row["_op"], row["id"]): row for row in decoded}
    assert all(_values(changes[row["_position"], row["_op"], row["id"]]) == _values(row) for row in decoded)
    ordered = [changes[key] for key in sorted(changes)]
    assert sorted(_values(row) for row in ordered if row["_op"] == "r") == sorted(before)
    found: dict[int, list[tuple[str, Values | None]]] = defaultdict(list)
    for row in ordered:
        if row["_op"] in ("c", "u"):
            found[row["id"]].append((row["_op"], _values(row)))
        elif row["_op"] == "d":
            found[row["id"]].append(("d", None))
            assert set(_values(row)[1:]) == {None}, "of a deleted row the key is known, and nothing is made up"
    assert found == _noted(shop)
    assert sum(row["_op"] == "t" for row in ordered) == 1

    state: dict[int, Values] = {}
    for row in ordered:
        if row["_op"] == "t":
            state.clear()
        elif row["_op"] == "d":
            del state[row["id"]]
        else:
            state[row["id"]] = _values(row)
    assert sorted(state.values(), key=_id) == sorted(_asked(shop, f"SELECT {ASKED} FROM customers"), key=_id)
    assert len(state) > 5


def _id(values: Values) -> int:
    key: int = values[0]
    return key


def _asked(connection: Connection[Any], sql: str) -> list[Values]:
    return [tuple(_comparable(value) for value in row) for row in connection.execute(sql.encode()).fetchall()]


def _noted(connection: Connection[Any]) -> dict[int, list[tuple[str, Values | None]]]:
    """Per key, what the triggers noted. A change of the key is a delete and an insert."""
    noted: dict[int, list[tuple[str, Values | None]]] = defaultdict(list)
    for op, old, *values in _asked(connection, f"SELECT op, old_id, {ASKED} FROM audit WHERE op <> 't' ORDER BY seq"):
        row = tuple(values)
        if op == "d" or (op == "u" and old != row[0]):
            noted[old].append(("d", None))
        if op != "d":
            noted[row[0]].append(("c" if op == "u" and old != row[0] else op, row))
    return noted


def _values(row: dict[str, Any]) -> Values:
    return tuple(_comparable(row[name]) for name in COLUMNS)


def _comparable(value: Any) -> Any:
    match value:
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        case list():
            return tuple(value)
        case Decimal():
            return value.normalize()
        case memoryview() | bytearray():
            return bytes(value)
    return value
