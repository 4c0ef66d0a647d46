"""Driving a plan in this process: records with known coordinates in, what the runner said and what landed out."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PenstockError
from penstock.ledger.delta_log import Commit, DeltaLog, Origin
from penstock.ledger.entry import Entry
from penstock.ledger.position import same
from penstock.storage.stores import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.writer import Written
    from penstock.plan.model import Plan, TablePlan
    from penstock.runtime.context import Outcome

TABLE = "bronze.t"
Coordinates = Counter[tuple[str, int, int]]


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.batches: list[Written] = []
        self.errors: dict[str, PenstockError] = {}
        self.outcomes: dict[str, Outcome] = {}

    def message(self, table: str, message: str) -> None:
        self.messages.append(message)

    def batch(self, table: str, written: Written, seconds: float) -> None:
        self.batches.append(written)

    def failed(self, table: str, error: PenstockError) -> None:
        self.errors[table] = error

    def ended(self, table: str, outcome: Outcome) -> None:
        self.outcomes[table] = outcome

    def heard(self, words: str) -> bool:
        return any(words in message for message in self.messages)


def run(spark: SparkSession, plan: Plan, *names: str) -> Heard:
    """`penstock run --once` of the named tables, or all; a failure is in the answer."""
    from penstock.plan.build import select_tables
    from penstock.runtime.runner import run_in

    heard = Heard()
    run_in(spark, plan, select_tables(plan, names), heard, once=True, maintain=False)
    return heard


def run_well(spark: SparkSession, plan: Plan, *names: str) -> Heard:
    """The same, and it must end well."""
    heard = run(spark, plan, *names)
    for error in heard.errors.values():
        raise error
    return heard


def refusal(spark: SparkSession, plan: Plan, kind: type[PenstockError]) -> PenstockError:
    """The error that stops the plan's first table; it writes nothing."""
    table = plan.tables[0]
    before = log(table).versions()
    heard = run(spark, plan, table.name)
    assert isinstance(heard.errors.get(table.name), kind), (heard.errors, heard.messages)
    assert log(table).versions() == before
    return heard.errors[table.name]


@contextmanager
def running(spark: SparkSession, plan: Plan, name: str = TABLE) -> Iterator[Heard]:
    """`penstock run` of one table beside the test, with the table's own trigger; stopped cleanly on the way out."""
    from penstock.runtime.context import RunContext
    from penstock.runtime.table_runner import TableRun
    from penstock.storage.stores import open_store
    from penstock.tables.stream import Sources

    table = plan.table(name)
    assert table is not None
    heard, stopping = Heard(), threading.Event()
    around = RunContext(
        spark=spark,
        plan=plan,
        store=open_store(plan, spark),
        listener=heard,
        once=False,
        log=str(Path(plan.root) / ".penstock" / "logs"),
        starts=threading.Semaphore(1),
        stopping=stopping,
    )
    sources = Sources(partial(open_store, spark=spark), spark)
    table_run = TableRun(around, table, partial(sources.open, table), 0, 1)
    table_run.thread.start()
    looking = threading.Thread(target=_look_often, args=(table_run, stopping), daemon=True)
    looking.start()
    try:
        yield heard
    finally:
        stopping.set()
        table_run.stop()
        table_run.thread.join(timeout=60)
        assert not table_run.thread.is_alive()


def _look_often(table_run: Any, stopping: threading.Event) -> None:
    """As the runner does."""
    while not stopping.wait(0.5):
        table_run.check_generation()


def wait_for(what: Callable[[], bool], *, patience: float = 40.0) -> None:
    deadline = time.monotonic() + patience
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def produce(
    bootstrap: str, topic: str, count: int = 10, *, partitions: Sequence[int] = (0, 1), value: Any = None, **record: Any
) -> Coordinates:
    """Numbered records, round the partitions; gives where the broker put them."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "message.max.bytes": 64 << 20})
    return _produce(producer, topic, count, partitions, value, record)


def _produce(
    producer: Any, topic: str, count: int, partitions: Sequence[int], value: Any, record: dict[str, Any]
) -> Coordinates:
    landed: Coordinates = Counter()

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        landed[(message.topic(), message.partition(), message.offset())] += 1

    for number in range(count):
        fields = {"value": f"v{number}" if value is None else value, "key": f"k{number}", **record}
        producer.produce(topic, partition=partitions[number % len(partitions)], on_delivery=delivered, **fields)
    producer.flush(30)
    assert landed.total() == count
    return landed


@contextmanager
def transaction(bootstrap: str, name: str) -> Iterator[Any]:
    """A producer within an open transaction; the test ends it, by commit or abort."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer


def coordinates(plan: Plan, name: str = TABLE) -> Coordinates:
    """The multiset of (topic, partition, offset) in a table, read without Spark."""
    table = plan.table(name)
    assert table is not None
    columns = [table.columns[column] for column in ("topic", "partition", "offset")]
    return Counter(tuple(row[column] for column in columns) for row in rows(plan, name))  # type: ignore[misc]


def rows(plan: Plan, name: str = TABLE) -> list[dict[str, Any]]:
    table = plan.table(name)
    assert table is not None
    return rows_at(table.uri)


def rows_at(uri: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(uri)).execute("SELECT * FROM t").read_all()
    columns = {field.name: found.column(field.name).to_pylist() for field in found.schema}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def log(table: TablePlan) -> DeltaLog:
    return DeltaLog(LocalStore(), table.uri, table.name)


def commits(plan: Plan, name: str = TABLE) -> list[Commit]:
    table = plan.table(name)
    assert table is not None
    return log(table).since(-1)


def whole_chain(plan: Plan, name: str = TABLE) -> list[Entry]:
    """The entries of the table, each of which must begin where the one before it ended."""
    entries = [c.entry for c in commits(plan, name) if c.origin is Origin.LEDGER and c.entry is not None]
    assert entries[0].kind == "genesis"
    for last, entry in pairwise(entries):
        if entry.kind in ("carry", "redrive"):
            assert (entry.key, entry.after) == (last.key, last.after)
            continue
        assert all(same(a, b) for a, b in zip(last.after, entry.before, strict=True)), (last, entry)
        expected = (last.generation + 1, 0) if entry.kind == "open" else (last.generation, last.batch + 1)
        assert entry.key == expected
    return entries


def checkpoint(plan: Plan, generation: int = 1, name: str = TABLE) -> Path:
    table = plan.table(name)
    assert table is not None
    return Path(table.checkpoints) / str(generation)


def newest(folder: Path) -> int:
    return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def make_plan(folder: Path, bootstrap: str, tables: dict[str, Any]) -> Plan:
    """As the fixture `project`, for a lake that several tests share."""
    import yaml

    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    document = {"name": "test", "lake": "./lake", "kafka": {"bootstrap": bootstrap}, "tables": tables}
    (folder / "penstock.yml").write_text(yaml.safe_dump({**document, "spark": {"master": "local[2]"}}, sort_keys=False))
    return build_plan(load_project(folder))


def quarantine_dies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write of rejected rows is cut off, after the good ones are in the table; the next ones go well."""
    from penstock.tables.quarantine import Quarantine

    whole, times = Quarantine.add, []

    def dies_once(self: Quarantine, *given: Any, **more: Any) -> int:
        times.append(1)
        if len(times) == 1:
            raise RuntimeError("killed between the two commits")
        return whole(self, *given, **more)

    monkeypatch.setattr(Quarantine, "add", dies_once)


class Killed(Exception):
    """Whoever was at work is dead."""


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = True) -> Iterator[None]:
    """What goes on within dies when it comes to this function: after its work, or before it."""
    whole = getattr(owner, name)

    def dies(*given: Any, **more: Any) -> None:
        if after:
            whole(*given, **more)
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(owner, name, dies)
        yield


def commits_die(monkeypatch: pytest.MonkeyPatch, table: str, *numbers: int, after: bool = False) -> None:
    """The commits of a table's rows that have these numbers, from 1 on, end in a crash: before they are made, or
    after."""
    from penstock.ledger.write_target import DeltaTableTarget

    begun: list[int] = []
    for name, does in (("append", DeltaTableTarget.append), ("overwrite", DeltaTableTarget.overwrite)):

        def dies(self: DeltaTableTarget, rows: Any, entry: Entry, whole: Any = does) -> None:
            if entry.table == table:
                begun.append(1)
            dying = entry.table == table and len(begun) in numbers
            if after or not dying:
                whole(self, rows, entry)
            if dying:
                raise RuntimeError("killed")

        monkeypatch.setattr(DeltaTableTarget, name, dies)
