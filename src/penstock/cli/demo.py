"""`penstock demo`: a broker, events, tables and a proof, on this machine, in a minute."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Annotated

import typer
from deltalake import DeltaTable, QueryBuilder
from rich.table import Table
from rich.text import Text

from penstock.cli.console import err, out, shorten, visible
from penstock.cli.run import RunView
from penstock.cli.verify import report_view
from penstock.dev.broker import Broker, count_topics
from penstock.dev.connect import Connect
from penstock.dev.examples import EXAMPLES, copy_example, find_example
from penstock.dev.generate import Faults, ensure_topic, events, produce
from penstock.dev.postgres import Postgres
from penstock.errors import PenstockError, SetupError, UsageError
from penstock.operations.causes import explain
from penstock.operations.status import status
from penstock.plan.build import build_plan
from penstock.plan.quarantine import quarantine_of
from penstock.runtime.runner import run_in
from penstock.runtime.signals import stop_on_signals
from penstock.spark.session import logs_folder, spark_session
from penstock.spec.load import load_project
from penstock.spec.table_kinds import MERGE_COLUMNS
from penstock.storage.stores import LocalStore
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.table import verify

if TYPE_CHECKING:
    from penstock.dev.examples import Example
    from penstock.dev.generate import ProducedEvents
    from penstock.operations.status import Status
    from penstock.plan.model import Plan, TablePlan
    from penstock.runtime.context import Result
    from penstock.verify.report import Report

# A few rows of each table and of the rejected rows, read as any other Delta reader would.


ROWS = 4
MAX_COLUMNS = 8
WIDEST = 48
NARROWEST = 10
_RECORD = ("topic", "partition", "offset", "key", "value")
_HIDDEN = ("_source", "window_end", *MERGE_COLUMNS)
_EACH_REASON = (
    "SELECT error_reason, records, error_detail, value FROM (SELECT error_reason, error_detail, value, "
    "count(*) OVER (PARTITION BY error_reason) AS records, "
    "row_number() OVER (PARTITION BY error_reason ORDER BY batch, error_detail, value) AS number FROM t) "
    "WHERE number = 1 ORDER BY records DESC, error_reason"
)


def show_tables(plan: Plan) -> None:
    """Tables that do not exist are left out: the run that should have created them has reported why."""
    for table in plan.tables:
        for view in _views(table):
            out.print(view)


def _views(table: TablePlan) -> Iterator[Table]:
    if DeltaTable.is_deltatable(table.uri):
        yield _rows(table)
    quarantine = quarantine_of(table.name, table.uri)
    if DeltaTable.is_deltatable(quarantine.uri):
        if not (rows := _query(quarantine.uri, _EACH_REASON)):
            return
        total = sum(int(str(row[1])) for row in rows)
        title = f"{quarantine.table}: {total:,} records, one of each reason"
        yield _view(title, ("error_reason", "records", "error_detail", "value"), rows)


def _rows(table: TablePlan) -> Table:
    names = [field.name for field in DeltaTable(table.uri).schema().fields]
    columns = _select_columns(table, names)
    select_list = ", ".join(map(_quoted, columns))
    condition = "" if table.write.merge is None else "WHERE NOT _deleted"
    rows = _query(table.uri, f"SELECT {select_list} FROM t {condition} {_order(table)} LIMIT {ROWS}")
    total = int(str(_query(table.uri, f"SELECT count(*) FROM t {condition}")[0][0]))
    return _view(f"{table.name}: {len(rows)} of {total:,} rows", columns, rows)


def _select_columns(table: TablePlan, names: Sequence[str]) -> list[str]:
    """The record's columns for a landed table; the first and the last columns for others."""
    if table.columns and table.stages is None:
        return [table.columns[name] for name in _RECORD]
    columns = [name for name in names if name not in _HIDDEN]
    half = MAX_COLUMNS // 2
    return columns if len(columns) <= MAX_COLUMNS else [*columns[:half], *columns[-half:]]


def _order(table: TablePlan) -> str:
    if table.aggregate is not None:
        window = ["window_start"] if table.aggregate.time else []
        metric = list(table.aggregate.metrics)[-1]
        return "ORDER BY " + ", ".join(f"{_quoted(name)} DESC" for name in [*window, metric])
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
    result = QueryBuilder().register("t", DeltaTable(uri)).execute(query).read_all()
    columns = [result.column(index).to_pylist() for index in range(len(result.schema))]
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
    return shorten(visible(text), WIDEST)


# The live part of `penstock demo`: events are sent while all tables run, until the tables have read everything.


PARTITIONS = 4
SECONDS = 15.0
"""How long events are sent, in seconds."""
LOOKUP_EVENTS = 15_000
"""Events in a topic that is used for lookups: enough to create every customer."""
FAULTS = Faults(malformed=0.01, late=0.02, duplicates=0.01)
LOOKUP_FAULTS = Faults(malformed=0.01, duplicates=0.01)
WATCH_EVERY = 0.5
CATCH_UP_PATIENCE = 120.0
"""Seconds that the tables may take to catch up after the last event is sent."""


def prepare(example: Example, plan: Plan, bootstrap: str) -> list[ProducedEvents]:
    """Creates the topics, and sends the events of those that are used for lookups."""
    destinations = [table.sink.topic_sent_to for table in plan.tables if table.sink is not None]
    sink_topics = [destination[1] for destination in destinations if destination is not None]
    for topic in (*example.first_topics, *example.topics, *sink_topics):
        ensure_topic(bootstrap, topic, PARTITIONS)
    now = datetime.now(UTC)
    pace = LOOKUP_EVENTS / example.time_span.total_seconds()
    return [
        produce(
            bootstrap,
            topic,
            events(kind, LOOKUP_EVENTS, start=now - 2 * example.time_span, pace=pace, faults=LOOKUP_FAULTS),
        )
        for topic, kind in example.first_topics.items()
    ]


class TopicFeed(ABC):
    """Fills the topics while the tables run, in a thread of its own; it has ended when its thread has."""

    def __init__(self, name: str, count: int, stop: threading.Event) -> None:
        self._count, self._stop = count, stop
        self.sent: list[ProducedEvents] = []
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:
            self.error = error
            self._stop.set()

    @abstractmethod
    def _send(self) -> None: ...


class DemoSession:
    """A session that creates the tables of an example and then runs them; used as a context manager."""

    def __init__(self, plan: Plan, view: RunView) -> None:
        self._plan, self._view = plan, view
        self._stack = ExitStack()
        self.complete = False
        """Whether the last call of `make` or `run` did all of its work."""
        self.sent: list[ProducedEvents] = []
        self.reports: list[Report] = []
        """The reports of `verify`, filled by `prove`."""

    def __enter__(self) -> DemoSession:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its reports reach the user as errors of a table
        say = partial(self._view.message, "")
        self._spark = self._stack.enter_context(spark_session(self._plan, keep_classes=True, say=say))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if isinstance(error, Exception):  # the JVM can die between any two calls
            raise explain(error, self._plan.name, str(logs_folder(self._plan))) from error

    def make(self) -> Result:
        """Runs every table once, up to the data that exists already."""
        stop = threading.Event()
        with stop_on_signals(stop):
            result = run_in(self._spark, self._plan, self._plan.tables, self._view, once=True, stop=stop)
        self.complete = set(result.outcomes.values()) == {"finished"}
        return result

    def run(self, feed: TopicFeed, stop: threading.Event) -> Result:
        """Runs all tables while the feed sends, and until the last of them has read everything."""
        self.complete = False
        self._view.restart()
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
        """Verifies the tables in this session: recomputing the numbers of gold would otherwise need another one."""
        store, tables = LocalStore(), self._plan.tables
        self._view.message("", "verifying every table")
        self.reports = verify(tables, store)
        run_checks_in(self._spark, self._plan, tables_to_check(tables, self.reports), store)

    def _watch(self, feed: TopicFeed, stop: threading.Event) -> None:
        """Shows which tables are behind. Ends the run once none is, if one has failed, or when patience runs out."""
        deadline: float | None = None
        try:
            while not stop.wait(WATCH_EVERY):
                # Checked before the status is read: what is sent after that does not count.
                feed_ended = not feed.thread.is_alive()
                statuses = status(self._plan, self._plan.tables, LocalStore())
                self._view.set_lag({table_status.table: self._lag_text(table_status) for table_status in statuses})
                deadline = deadline or (time.monotonic() + CATCH_UP_PATIENCE if feed_ended else None)
                # The status of upstream tables is read first, so that none can pass on a row unnoticed.
                self.complete = feed_ended and all(table_status.lag == 0 for table_status in statuses)
                failed = any(table_status.state == "failed" for table_status in statuses)
                if self.complete or failed or (deadline is not None and time.monotonic() > deadline):
                    return
        finally:
            stop.set()

    def _lag_text(self, table_status: Status) -> str:
        if not table_status.lag:
            return "" if table_status.lag is None else "0"
        table = self._plan.table(table_status.table)
        unit = table.source.unit if table is not None else "commit"
        return f"{table_status.lag:,} {unit}" + ("s" if table_status.lag > 1 else "")


class Feed(TopicFeed):
    """Sends the events of an example to its topics at a steady rate."""

    def __init__(self, example: Example, bootstrap: str, count: int, stop: threading.Event) -> None:
        super().__init__("feed", count, stop)
        self._example, self._bootstrap = example, bootstrap

    def _send(self) -> None:
        start = datetime.now(UTC) - self._example.time_span
        pace = self._count / self._example.time_span.total_seconds()
        for topic, kind in self._example.topics.items():
            stream = events(kind, self._count, start=start, pace=pace, faults=FAULTS)
            rate = self._count / SECONDS
            self.sent.append(produce(self._bootstrap, topic, stream, rate=rate, stop=self._stop.is_set))


# `penstock demo customers`: a database instead of generated events, and a copy of it as the proof.


TABLE, COPY = "customers", "customers_copy"
INITIAL_CUSTOMERS = 2_000
"""Customers that exist before the connector starts."""
CONNECTOR = {"decimal.handling.mode": "string"}
"""Records come without their schema part, which holds the scale of a decimal: as bytes it could not be read."""
COPY_PATIENCE = 90.0
_COLUMNS = "id, name, city, credit, updated_by, updated_at"


@dataclass(frozen=True)
class DemoServices:
    """The services that run beside Penstock."""

    broker: Broker
    postgres: Postgres
    connect: Connect
    script: ModuleType

    @property
    def topic(self) -> str:
        return self.connect.topics[0]


@contextmanager
def start_services(project: Path) -> Iterator[DemoServices]:
    """A broker, a PostgreSQL with customers in it, and Debezium between them; all removed on exit."""
    script = _script(project / "changes.py")
    with ExitStack() as stack:
        with err.status("starting a Kafka broker …"):
            broker = stack.enter_context(Broker())
        out.print(f"    a real broker on {broker.bootstrap}")
        with err.status("starting PostgreSQL …"):
            postgres = stack.enter_context(Postgres())
            with postgres.connect() as connection:
                script.fill(connection, INITIAL_CUSTOMERS)
        out.print(f"    a real PostgreSQL on 127.0.0.1:{postgres.port}, {INITIAL_CUSTOMERS:,} customers in it")
        with err.status("starting Kafka Connect with Debezium (the first time it is fetched: a minute) …"):
            connector = Connect(broker, postgres, tables=[f"public.{TABLE}"], topic_prefix="shop", overrides=CONNECTOR)
            connect = stack.enter_context(connector)
        out.print("    a real Debezium in a Connect worker, which has begun with what is there")
        os.environ |= {
            "KAFKA_BOOTSTRAP": broker.bootstrap,
            "POSTGRES": f"127.0.0.1:{postgres.port}/{postgres.database}",
            "POSTGRES_USER": postgres.user,
        }
        yield DemoServices(broker, postgres, connect, script)


class Changes(TopicFeed):
    """Changes the database; ends when Debezium has sent all changes."""

    def __init__(self, services: DemoServices, count: int, stop: threading.Event) -> None:
        super().__init__("changes", count, stop)
        self._parts = services

    def _send(self) -> None:
        with self._parts.postgres.connect() as connection:
            script = self._parts.script
            change_count = script.change(connection, self._count, seconds=SECONDS, stop=self._stop.is_set)
        self._wait(INITIAL_CUSTOMERS + change_count)

    def _wait(self, records: int) -> None:
        deadline = time.monotonic() + COPY_PATIENCE
        while not self._stop.is_set():
            topics = count_topics(self._parts.broker.bootstrap)
            sent = next(topic.records for topic in topics if topic.name == self._parts.topic)
            if sent >= records:
                return
            if time.monotonic() > deadline:
                raise PenstockError(f"Debezium sent {sent:,} of {records:,} records")
            time.sleep(0.2)


def compare(services: DemoServices) -> int:
    """Compares the copy with its source row by row, in PostgreSQL itself. Returns the exit code."""
    rows, missing, surplus = services.postgres.execute(
        f"""
        SELECT (SELECT count(*) FROM {TABLE}),
               (SELECT count(*) FROM (SELECT {_COLUMNS} FROM {TABLE} EXCEPT ALL SELECT {_COLUMNS} FROM {COPY}) a),
               (SELECT count(*) FROM (SELECT {_COLUMNS} FROM {COPY} EXCEPT ALL SELECT {_COLUMNS} FROM {TABLE}) b)
        """
    )[0]
    if missing or surplus:
        counts = f": {missing:,} rows are missing, {surplus:,} are too many"
        out.print(Text.assemble(("the copy differs", "bold red"), counts))
        return 1
    equal = ("the copy equals the source", "bold green")
    out.print(Text.assemble(equal, f", row by row: {rows:,} customers"))
    return 0


def _script(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_penstock_customers", file)
    if spec is None or spec.loader is None:
        raise SetupError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The command `penstock demo`.


PIPED_WIDTH = 140
"""Width of the output without a terminal."""


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
    if listing:
        for example in EXAMPLES.values():
            out.print(f"{example.name:<12} {example.description}", soft_wrap=True)
        return
    example = find_example(name)
    if not out.is_terminal:
        out.width = PIPED_WIDTH
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        exit_code = _run_demo(example, _copy_project(example, keep or folder), count or example.count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    out.print(
        "\nWhat was started is stopped and its data removed."
        + (f" The project stays in {keep / name}." if keep else "")
    )
    raise typer.Exit(exit_code)


def _copy_project(example: Example, folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return copy_example(example, folder)
    except FileExistsError as error:
        raise UsageError(f"{error.filename} is there already", hint="name a new folder with --keep") from None


def _run_demo(example: Example, project: Path, count: int) -> int:
    """The exit code."""
    if example.database:
        return _run_database_demo(example, project, count)
    _step("1/4", "start Kafka")
    with err.status("starting a Kafka broker …"):
        broker = Broker().start()
    with broker:
        out.print(f"    a real broker on {broker.bootstrap}")
        os.environ["KAFKA_BOOTSTRAP"] = broker.bootstrap
        plan = _with_quick_compiler(build_plan(load_project(project)))
        _step("2/4", f"make the tables: penstock -C {example.name} run --once")
        _print_sent(prepare(example, plan, broker.bootstrap))
        title = f"send {count:,} events while all tables run: penstock -C {example.name} run"
        exit_code, reports = _run_tables(plan, title, lambda stop: Feed(example, broker.bootstrap, count, stop))
        show_tables(plan)
        _step("4/4", f"prove it: penstock -C {example.name} verify")
        return max(exit_code, _print_reports(reports))


def _run_database_demo(example: Example, project: Path, count: int) -> int:
    """Changes a database, and compares the copy that comes out in the end with it. Returns the exit code."""
    _step("1/4", "start Kafka, PostgreSQL and Debezium")
    with start_services(project) as services:
        plan = _with_quick_compiler(build_plan(load_project(project)))
        _step("2/4", f"make the tables: penstock -C {example.name} run --once")
        title = f"make {count:,} changes in PostgreSQL while all tables run"
        exit_code, reports = _run_tables(plan, title, lambda stop: Changes(services, count, stop))
        show_tables(plan)
        _step("4/4", f"prove it: penstock -C {example.name} verify, and the copy against its source")
        return max(exit_code, _print_reports(reports), compare(services))


def _with_quick_compiler(plan: Plan) -> Plan:
    """Stops the JVM at its quick compiler: the other takes a third of the CPU time of so short a run, for a speed that
    the run never needs."""
    options = f"-XX:TieredStopAtLevel=1 {plan.conf.get('spark.driver.extraJavaOptions', '')}".strip()
    return replace(plan, conf={**plan.conf, "spark.driver.extraJavaOptions": options})


def _run_tables(plan: Plan, title: str, start_feed: Callable[[threading.Event], TopicFeed]) -> tuple[int, list[Report]]:
    """Creates the tables, then runs them while the feed sends. The exit code, and what `verify` says of the tables."""
    with RunView(out, [table.name for table in plan.tables], lines_every=5.0) as view, DemoSession(plan, view) as live:
        result = live.make()
        if live.complete:
            _step("3/4", title)
            stop = threading.Event()
            result = live.run(start_feed(stop), stop)
            live.prove()
    _print_sent(live.sent)
    view.summary(result)
    if not live.complete:
        err.print(Text.assemble(("stopped", "bold red"), " before everything was carried through"))
    return result.exit_code if live.complete else 3, live.reports


def _step(number: str, title: str) -> None:
    out.print(Text.assemble("\n", (number, "bold cyan"), " ", (title, "bold")))


def _print_sent(sent: Iterable[ProducedEvents]) -> None:
    for produced in sent:
        malformed = sum(count for label, count in produced.labels.items() if label.startswith("malformed"))
        faults = [
            (malformed, "malformed"),
            (produced.labels.get("late", 0), "late"),
            (produced.labels.get("duplicate", 0), "copies"),
        ]
        fault_list = ", ".join(f"{count:,} {fault}" for count, fault in faults if count)
        out.print(
            f"    {produced.count:,} events to the topic {produced.topic.name} "
            f"({produced.topic.partitions} partitions), of them on purpose {fault_list}"
        )


def _print_reports(reports: Sequence[Report]) -> int:
    for report in reports:
        out.print(report_view(report))
    return 0 if all(report.ok() for report in reports) else 1
