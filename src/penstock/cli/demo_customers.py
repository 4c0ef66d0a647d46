"""`penstock demo customers`: a database in place of a generator of events, and a copy of it as the proof."""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from penstock.cli.console import err, out
from penstock.cli.demo_live import SECONDS, Live
from penstock.cli.run_view import RunView
from penstock.dev.broker import Broker
from penstock.dev.connect import Connect
from penstock.dev.generate import Sent
from penstock.dev.postgres import Postgres
from penstock.dev.topics import count_topics
from penstock.errors import PenstockError, SetupError
from penstock.ops.verify.report import Report
from penstock.plan.model import Plan

TABLE, COPY = "customers", "customers_copy"
BEFORE = 2_000
"""Customers that are there before the connector looks."""
CONNECTOR = {"decimal.handling.mode": "string"}
"""Without the schema part of a record a decimal in bytes could not be read: its scale is there."""
PATIENCE = 90.0
_COLUMNS = "id, name, city, credit, updated_by, updated_at"


@dataclass(frozen=True)
class Parts:
    """What runs beside Penstock."""

    broker: Broker
    postgres: Postgres
    connect: Connect
    script: ModuleType

    @property
    def topic(self) -> str:
        return self.connect.topics[0]


@contextmanager
def parts(project: Path) -> Iterator[Parts]:
    """A broker, a PostgreSQL with customers in it, and Debezium between them; removed on the way out."""
    script = _script(project / "changes.py")
    with ExitStack() as held:
        with err.status("starting a Kafka broker …"):
            broker = held.enter_context(Broker())
        out.print(f"    a real broker on {broker.bootstrap}")
        with err.status("starting PostgreSQL …"):
            postgres = held.enter_context(Postgres())
            with postgres.connect() as connection:
                script.fill(connection, BEFORE)
        out.print(f"    a real PostgreSQL on 127.0.0.1:{postgres.port}, {BEFORE:,} customers in it")
        with err.status("starting Kafka Connect with Debezium (the first time it is fetched: a minute) …"):
            connector = Connect(broker, postgres, tables=[f"public.{TABLE}"], topic_prefix="shop", overrides=CONNECTOR)
            connect = held.enter_context(connector)
        out.print("    a real Debezium in a Connect worker, which has begun with what is there")
        os.environ |= {
            "KAFKA_BOOTSTRAP": broker.bootstrap,
            "POSTGRES": f"127.0.0.1:{postgres.port}/{postgres.database}",
            "POSTGRES_USER": postgres.user,
        }
        yield Parts(broker, postgres, connect, script)


class Changes:
    """The changes of the database, by a thread of their own; it ends when Debezium has sent all of them."""

    def __init__(self, beside: Parts, count: int, stop: threading.Event) -> None:
        self._parts, self._count, self._stop = beside, count, stop
        self.sent: list[Sent] = []
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._make, name="changes", daemon=True)

    def _make(self) -> None:
        try:
            with self._parts.postgres.connect() as connection:
                made = self._parts.script.change(connection, self._count, seconds=SECONDS, stop=self._stop.is_set)
            self._wait(BEFORE + made)
        except Exception as error:
            self.error = error
            self._stop.set()

    def _wait(self, records: int) -> None:
        until = time.monotonic() + PATIENCE
        while not self._stop.is_set():
            found = count_topics(self._parts.broker.bootstrap)
            sent = next(one.records for one in found if one.name == self._parts.topic)
            if sent >= records:
                return
            if time.monotonic() > until:
                raise PenstockError(f"Debezium sent {sent:,} of {records:,} records")
            time.sleep(0.2)


def run(beside: Parts, plan: Plan, count: int) -> tuple[int, list[Report]]:
    """The exit code, and what `verify` says of the tables."""
    with RunView(out, [table.name for table in plan.tables], lines_every=5.0) as view, Live(plan, view) as live:
        result = live.make()
        if live.whole:
            out.print(
                f"\n[bold cyan]3/4[/bold cyan] [bold]make {count:,} changes in PostgreSQL while all tables run[/bold]"
            )
            stop = threading.Event()
            result = live.run(Changes(beside, count, stop), stop)
            live.prove()
    view.summary(result)
    return result.exit_code if live.whole else 3, live.reports


def compare(beside: Parts) -> int:
    """The copy in PostgreSQL against its source, row by row, by PostgreSQL itself; the exit code."""
    rows, missing, more = beside.postgres.execute(
        f"""
        SELECT (SELECT count(*) FROM {TABLE}),
               (SELECT count(*) FROM (SELECT {_COLUMNS} FROM {TABLE} EXCEPT ALL SELECT {_COLUMNS} FROM {COPY}) a),
               (SELECT count(*) FROM (SELECT {_COLUMNS} FROM {COPY} EXCEPT ALL SELECT {_COLUMNS} FROM {TABLE}) b)
        """
    )[0]
    if missing or more:
        out.print(f"[bold red]the copy differs[/bold red]: {missing:,} rows are missing, {more:,} are too many")
        return 1
    out.print(f"[bold green]the copy equals the source[/bold green], row by row: {rows:,} customers")
    return 0


def _script(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_penstock_customers", file)
    if spec is None or spec.loader is None:
        raise SetupError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
