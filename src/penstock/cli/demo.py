"""`penstock demo`: a broker, events, tables and a proof, on this machine, in a minute."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
from deltalake import DeltaTable, QueryBuilder
from rich.table import Table
from rich.text import Text

from penstock.cli.console import err, out
from penstock.cli.run import RunView
from penstock.dev.broker import Broker, count_topics
from penstock.dev.connect import Connect
from penstock.dev.generate import Faults, ensure_topic, events, produce
from penstock.dev.postgres import Postgres
from penstock.errors import PenstockError, SetupError
from penstock.operations.causes import explain
from penstock.operations.status import status
from penstock.plan.quarantine import quarantine_of
from penstock.runtime.runner import run_in
from penstock.runtime.signals import stop_on_signals
from penstock.spark.session import logs_folder, spark_session
from penstock.spec.table_kinds import OWN
from penstock.storage.stores import LocalStore
from penstock.verify.recompute.run import check_in, to_check
from penstock.verify.table import verify

if TYPE_CHECKING:
    from penstock.dev.examples import Example
    from penstock.dev.generate import ProducedEvents
    from penstock.operations.status import Status
    from penstock.plan.model import Plan, TablePlan
    from penstock.runtime.context import Result
    from penstock.verify.report import Report

# A few rows of each table, and of what was rejected, read as any other reader of Delta would.


ROWS = 4
MOST_COLUMNS = 8
WIDEST = 48
NARROWEST = 10
_RECORD = ("topic", "partition", "offset", "key", "value")
_HIDDEN = ("_source", "window_end", *OWN)
_EACH_REASON = (
    "SELECT error_reason, records, error_detail, value FROM (SELECT error_reason, error_detail, value, "
    "count(*) OVER (PARTITION BY error_reason) AS records, "
    "row_number() OVER (PARTITION BY error_reason ORDER BY batch, error_detail, value) AS number FROM t) "
    "WHERE number = 1 ORDER BY records DESC, error_reason"
)


def show_tables(plan: Plan) -> None:
    """Tables that were not made are left out: whoever made them has said why."""
    for table in plan.tables:
        for view in _views(table):
            out.print(view)


def _views(table: TablePlan) -> Iterator[Table]:
    if DeltaTable.is_deltatable(table.uri):
        yield _rows(table)
    place = quarantine_of(table.name, table.uri)
    if DeltaTable.is_deltatable(place.uri):
        if not (found := _query(place.uri, _EACH_REASON)):
            return
        many = sum(int(str(row[1])) for row in found)
        title = f"{place.table}: {many:,} records, one of each reason"
        yield _view(title, ("error_reason", "records", "error_detail", "value"), found)


def _rows(table: TablePlan) -> Table:
    names = [field.name for field in DeltaTable(table.uri).schema().fields]
    chosen = _chosen(table, names)
    columns = ", ".join(map(_quoted, chosen))
    living = "" if table.write.merge is None else "WHERE NOT _deleted"
    found = _query(table.uri, f"SELECT {columns} FROM t {living} {_order(table)} LIMIT {ROWS}")
    total = int(str(_query(table.uri, f"SELECT count(*) FROM t {living}")[0][0]))
    return _view(f"{table.name}: {len(found)} of {total:,} rows", chosen, found)


def _chosen(table: TablePlan, names: Sequence[str]) -> list[str]:
    """Of a landed table the record; of others the first and the last columns."""
    if table.columns and table.stages is None:
        return [table.columns[name] for name in _RECORD]
    shown = [name for name in names if name not in _HIDDEN]
    half = MOST_COLUMNS // 2
    return shown if len(shown) <= MOST_COLUMNS else [*shown[:half], *shown[-half:]]


def _order(table: TablePlan) -> str:
    if table.aggregate is not None:
        window = ["window_start"] if table.aggregate.time else []
        largest = list(table.aggregate.metrics)[-1]
        return "ORDER BY " + ", ".join(f"{_quoted(name)} DESC" for name in [*window, largest])
    if table.columns and table.stages is None:
        return f"ORDER BY {_quoted(table.columns['offset'])}, {_quoted(table.columns['partition'])}"
    return ""


def _view(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    view = Table(title=Text(title), title_justify="left")
    for column in columns:
        view.add_column(Text(column), no_wrap=True, overflow="ellipsis", min_width=min(len(column), NARROWEST))
    for row in rows:
        view.add_row(*(Text(_short(value)) for value in row))
    return view


def _query(uri: str, query: str) -> list[tuple[object, ...]]:
    found = QueryBuilder().register("t", DeltaTable(uri)).execute(query).read_all()
    columns = [found.column(index).to_pylist() for index in range(len(found.schema))]
    return list(zip(*columns, strict=True))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _short(value: object) -> str:
    match value:
        case None:
            text = "NULL"
        case list():
            text = ", ".join(map(str, value))
        case dict():
            text = ", ".join(map(_short, value.values()))
        case datetime():
            text = str(value)[:19]
        case _:
            text = str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


# The live part of `penstock demo`: events are sent while all tables run, until everything is carried through.


PARTITIONS = 4
SECONDS = 15.0
"""How long events are sent."""
EVENTS_BEFORE = 15_000
"""Events of a topic that others look up: enough to create every customer."""
FAULTS = Faults(malformed=0.01, late=0.02, duplicates=0.01)
BEFORE_FAULTS = Faults(malformed=0.01, duplicates=0.01)
WATCH_EVERY = 0.5
CATCH_UP_PATIENCE = 120.0
"""Seconds that the tables may take to catch up once all is sent."""


def prepare(example: Example, plan: Plan, bootstrap: str) -> list[ProducedEvents]:
    """Makes the topics, and sends what is looked up."""
    sent_to = [table.sink.topic_sent_to for table in plan.tables if table.sink is not None]
    sinks = [place[1] for place in sent_to if place is not None]
    for topic in (*example.before, *example.topics, *sinks):
        ensure_topic(bootstrap, topic, PARTITIONS)
    now = datetime.now(UTC)
    pace = EVENTS_BEFORE / example.over.total_seconds()
    return [
        produce(
            bootstrap, topic, events(kind, EVENTS_BEFORE, start=now - 2 * example.over, pace=pace, faults=BEFORE_FAULTS)
        )
        for topic, kind in example.before.items()
    ]


class Fed(Protocol):
    """What fills the topics while the tables run: it has ended when its thread has."""

    thread: threading.Thread
    sent: list[ProducedEvents]
    error: Exception | None


class Live:
    """A session in which the tables of an example are made and then run; used as a context manager."""

    def __init__(self, plan: Plan, view: RunView) -> None:
        self._plan, self._view = plan, view
        self._held = ExitStack()
        self.whole = False
        """What was asked for last was carried through to its end."""
        self.sent: list[ProducedEvents] = []
        self.reports: list[Report] = []
        """What `verify` says of the tables, once they were proven."""

    def __enter__(self) -> Live:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it reports reaches the user as an error of a table
        say = partial(self._view.said, "")
        self._spark = self._held.enter_context(spark_session(self._plan, keep_classes=True, say=say))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)
        if isinstance(error, Exception):  # the JVM can die between any two calls
            raise explain(error, self._plan.name, str(logs_folder(self._plan))) from error

    def make(self) -> Result:
        """Every table, with what is there already."""
        stop = threading.Event()
        with stop_on_signals(stop):
            result = run_in(self._spark, self._plan, self._plan.tables, self._view, once=True, stop=stop)
        self.whole = set(result.outcomes.values()) == {"finished"}
        return result

    def run(self, feed: Fed, stop: threading.Event) -> Result:
        """All tables at once while the feed works, and on until the last of them has read everything."""
        self.whole = False
        self._view.again()
        watch = threading.Thread(target=self._watch, args=(feed, stop), name="watch", daemon=True)
        feed.thread.start()
        watch.start()
        try:
            with stop_on_signals(stop):
                result = run_in(self._spark, self._plan, self._plan.tables, self._view, once=False, stop=stop)
        finally:
            stop.set()
            feed.thread.join()
            watch.join()
        self.sent = feed.sent
        if feed.error is not None:
            raise feed.error
        return result

    def prove(self) -> None:
        """`verify`, in the session that is there: another would have to be started for the numbers of gold."""
        store, tables = LocalStore(), self._plan.tables
        self._view.said("", "verifying every table")
        self.reports = verify(tables, store)
        check_in(self._spark, self._plan, to_check(tables, self.reports), store)

    def _watch(self, feed: Fed, stop: threading.Event) -> None:
        """Tells the view who is behind, and ends the run once nobody is, or if a table has failed."""
        ends: float | None = None
        try:
            while not stop.wait(WATCH_EVERY):
                fed = not feed.thread.is_alive()  # before the look: what was sent after it does not count
                found = status(self._plan, self._plan.tables, LocalStore())
                self._view.behind({one.table: self._behind(one) for one in found})
                ends = ends or (time.monotonic() + CATCH_UP_PATIENCE if fed else None)
                # Upstream tables are looked at first, so that none can hand on a row unseen.
                self.whole = fed and all(one.lag == 0 for one in found)
                failed = any(one.state == "failed" for one in found)
                if self.whole or failed or (ends is not None and time.monotonic() > ends):
                    return
        finally:
            stop.set()

    def _behind(self, one: Status) -> str:
        if not one.lag:
            return "" if one.lag is None else "0"
        table = self._plan.table(one.table)
        unit = table.source.unit if table is not None else "commit"
        return f"{one.lag:,} {unit}" + ("s" if one.lag > 1 else "")


class Feed:
    """The events of an example on their way into its topics, at a steady rate, by a thread of their own."""

    def __init__(self, example: Example, bootstrap: str, count: int, stop: threading.Event) -> None:
        self._example, self._bootstrap, self._count, self._stop = example, bootstrap, count, stop
        self.sent: list[ProducedEvents] = []
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._send, name="feed", daemon=True)

    def _send(self) -> None:
        start = datetime.now(UTC) - self._example.over
        pace = self._count / self._example.over.total_seconds()
        try:
            for topic, kind in self._example.topics.items():
                stream = events(kind, self._count, start=start, pace=pace, faults=FAULTS)
                rate = self._count / SECONDS
                self.sent.append(produce(self._bootstrap, topic, stream, rate=rate, stop=self._stop.is_set))
        except Exception as error:
            self.error = error
            self._stop.set()


# `penstock demo customers`: a database in place of a generator of events, and a copy of it as the proof.


TABLE, COPY = "customers", "customers_copy"
CUSTOMERS_BEFORE = 2_000
"""Customers that are there before the connector looks."""
CONNECTOR = {"decimal.handling.mode": "string"}
"""Without the schema part of a record a decimal in bytes could not be read: its scale is there."""
COPY_PATIENCE = 90.0
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
                script.fill(connection, CUSTOMERS_BEFORE)
        out.print(f"    a real PostgreSQL on 127.0.0.1:{postgres.port}, {CUSTOMERS_BEFORE:,} customers in it")
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
        self.sent: list[ProducedEvents] = []
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._make, name="changes", daemon=True)

    def _make(self) -> None:
        try:
            with self._parts.postgres.connect() as connection:
                made = self._parts.script.change(connection, self._count, seconds=SECONDS, stop=self._stop.is_set)
            self._wait(CUSTOMERS_BEFORE + made)
        except Exception as error:
            self.error = error
            self._stop.set()

    def _wait(self, records: int) -> None:
        until = time.monotonic() + COPY_PATIENCE
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


# `penstock demo`: a broker, events, tables and a proof, on this machine, in a minute.


PIPED_WIDTH = 140
"""Columns of the output where there is no terminal to keep to."""


def command(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which example; --list shows them.")] = "orders",
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="How many events.", show_default="30,000; customers: 3,000")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Leave the project and its lake there.", show_default=False),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="The examples there are, and no more.")] = False,
) -> None:
    """All of this in a minute: a real Kafka broker, events, the tables, and the proof.

    Starts its own broker on a free port of 127.0.0.1, sends events into it while all tables of the example run, waits
    until everything is carried through, shows the tables and what was rejected, verifies them, and stops and removes
    everything that it started.
    """
    from penstock.cli.console import out
    from penstock.dev.examples import EXAMPLES, find_example

    if listing:
        for example in EXAMPLES.values():
            out.print(f"{example.name:<12} {example.about}", markup=False, soft_wrap=True)
        return
    example = find_example(name)
    if not out.is_terminal:
        out.width = PIPED_WIDTH
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        code = _demonstrate(example, _copied(example, keep or folder), count or example.count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    out.print(
        "\nWhat was started is stopped and its data removed."
        + (f" The project stays in {keep / name}." if keep else "")
    )
    raise typer.Exit(code)


def _copied(example: Example, folder: Path) -> Path:
    from penstock.dev.examples import copy_example
    from penstock.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return copy_example(example, folder)
    except FileExistsError as error:
        raise UsageError(f"{error.filename} is there already", hint="name a new folder with --keep") from None


def _demonstrate(example: Example, project: Path, count: int) -> int:
    """The exit code."""
    from penstock.cli.console import err, out
    from penstock.dev.broker import Broker
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    if example.database:
        return _demonstrate_database(example, project, count)
    _step("1/4", "start Kafka")
    with err.status("starting a Kafka broker …"):
        broker = Broker().start()
    with broker:
        out.print(f"    a real broker on {broker.bootstrap}")
        os.environ["KAFKA_BOOTSTRAP"] = broker.bootstrap
        plan = _quick(build_plan(load_project(project)))
        code, reports = _run(example, plan, broker.bootstrap, count)
        show_tables(plan)
        _step("4/4", f"prove it: penstock -C {example.name} verify")
        return max(code, _show(reports))


def _demonstrate_database(example: Example, project: Path, count: int) -> int:
    """A database is changed, and what comes out in the end is compared with it."""
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    _step("1/4", "start Kafka, PostgreSQL and Debezium")
    with parts(project) as beside:
        plan = _quick(build_plan(load_project(project)))
        _step("2/4", f"make the tables: penstock -C {example.name} run --once")
        code, reports = run(beside, plan, count)
        show_tables(plan)
        _step("4/4", f"prove it: penstock -C {example.name} verify, and the copy against its source")
        return max(code, _show(reports), compare(beside))


def _quick(plan: Plan) -> Plan:
    """Without it a third of the CPU time of so short a run goes into compiling code for a speed that it never needs."""
    options = f"-XX:TieredStopAtLevel=1 {plan.conf.get('spark.driver.extraJavaOptions', '')}".strip()
    return replace(plan, conf={**plan.conf, "spark.driver.extraJavaOptions": options})


def _run(example: Example, plan: Plan, bootstrap: str, count: int) -> tuple[int, list[Report]]:
    """The exit code, and what `verify` says of the tables."""
    from penstock.cli.console import err, out
    from penstock.cli.run import RunView

    _step("2/4", f"make the tables: penstock -C {example.name} run --once")
    _say_sent(prepare(example, plan, bootstrap))
    with RunView(out, [table.name for table in plan.tables], lines_every=5.0) as view, Live(plan, view) as live:
        result = live.make()
        if live.whole:
            _step("3/4", f"send {count:,} events while all tables run: penstock -C {example.name} run")
            stop = threading.Event()
            result = live.run(Feed(example, bootstrap, count, stop), stop)
            live.prove()
    _say_sent(live.sent)
    view.summary(result)
    if not live.whole:
        err.print("[bold red]stopped[/bold red] before everything was carried through")
    return result.exit_code if live.whole else 3, live.reports


def _step(number: str, what: str) -> None:
    from penstock.cli.console import out

    out.print(f"\n[bold cyan]{number}[/bold cyan] [bold]{what}[/bold]")


def _say_sent(sent: Iterable[ProducedEvents]) -> None:
    from penstock.cli.console import out

    for one in sent:
        spoilt = sum(many for label, many in one.labels.items() if label.startswith("malformed"))
        faults = [
            (spoilt, "malformed"),
            (one.labels.get("late", 0), "late"),
            (one.labels.get("duplicate", 0), "copies"),
        ]
        said = ", ".join(f"{many:,} {what}" for many, what in faults if many)
        out.print(
            f"    {one.count:,} events to the topic {one.topic.name} ({one.topic.partitions} partitions), "
            f"of them on purpose {said}"
        )


def _show(reports: Sequence[Report]) -> int:
    from penstock.cli.console import out
    from penstock.cli.verify import report_view

    for report in reports:
        out.print(report_view(report))
    return 0 if all(report.ok() for report in reports) else 1
