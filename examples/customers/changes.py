"""A shop at work: customers come, move, pay, change their number and go. `python changes.py --help` runs it by hand."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

TABLE = """
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    city text,
    credit numeric(12, 2),
    updated_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
NAMES = ("Ada", "Zoë", "Søren", "O'Hara", 'Anna "Ann"', "李雷", "emoji 🙂", "two\nlines")
CITIES = (None, "Köln", "Lyon", "São Paulo", "Łódź")
CLERKS = ("web", "desk", "batch")


def fill(connection: Any, count: int, seed: int = 1) -> None:
    """The table, with customers that are there before anybody looks."""
    chance = random.Random(seed)
    connection.execute(TABLE)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO customers VALUES (%s, %s, %s, %s, 'batch')",
            [
                (one, chance.choice(NAMES), chance.choice(CITIES), chance.randrange(100_000) / 100)
                for one in range(count)
            ],
        )


def change(
    connection: Any, count: int, *, seconds: float = 0.0, seed: int = 2, stop: Callable[[], bool] = lambda: False
) -> int:
    """Makes so many changes, spread over so long. How many records Debezium makes of them: one of an insert or an
    update, two of a delete (its tombstone), and three of another key: a delete and an insert."""
    chance, records = random.Random(seed), 0
    began = time.monotonic()
    known = [row[0] for row in connection.execute("SELECT id FROM customers ORDER BY id").fetchall()]
    newest = max(known, default=0)
    for number in range(count):
        if stop():
            break
        wait = began + seconds * number / count - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        clerk, one = chance.choice(CLERKS), chance.choice(known) if known else None
        what = chance.random()
        if one is None or what < 0.25:
            newest += 1
            values = (newest, chance.choice(NAMES), chance.choice(CITIES), chance.randrange(100_000) / 100, clerk)
            connection.execute("INSERT INTO customers VALUES (%s, %s, %s, %s, %s)", values)
            known.append(newest)
            records += 1
        elif what < 0.8:
            connection.execute(
                "UPDATE customers SET city = %s, credit = credit + %s, updated_by = %s, updated_at = clock_timestamp() "
                "WHERE id = %s",
                (chance.choice(CITIES), chance.randrange(1_000) / 100, clerk, one),
            )
            records += 1
        elif what < 0.92:
            connection.execute("DELETE FROM customers WHERE id = %s", (one,))
            known.remove(one)
            records += 2
        else:
            newest += 1
            connection.execute("UPDATE customers SET id = %s, updated_by = %s WHERE id = %s", (newest, clerk, one))
            known[known.index(one)] = newest
            records += 3
    return records


def main() -> None:
    import psycopg

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn", help="host=127.0.0.1 port=5432 user=postgres dbname=postgres")
    parser.add_argument("--fill", type=int, metavar="COUNT", help="make the table, with so many customers")
    parser.add_argument("--changes", type=int, default=0, metavar="COUNT")
    given = parser.parse_args()
    with psycopg.connect(given.dsn, autocommit=True) as connection:
        if given.fill is not None:
            fill(connection, given.fill)
        change(connection, given.changes)


if __name__ == "__main__":
    main()
