"""The live part of `penstock demo`: events are sent while all tables run, until everything is carried through."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Protocol

from penstock.cli.run_view import RunView
from penstock.dev.examples import Example
from penstock.dev.generate import Faults, Sent, ensure_topic, events, produce
from penstock.engine.session import logs_folder, spark_session
from penstock.engine.store import LocalStore
from penstock.ops.status import Status, status
from penstock.ops.verify.again.run import check_in, to_check
from penstock.ops.verify.report import Report
from penstock.ops.verify.table import verify
from penstock.plan.model import KafkaSource, Plan, SinkPlan
from penstock.runtime.causes import explain
from penstock.runtime.listener import Result
from penstock.runtime.runner import run_in

PARTITIONS = 4
SECONDS = 15.0
"""How long events are sent."""
BEFORE = 15_000
"""Events of a topic that others look up: enough to create every customer."""
FAULTS = Faults(malformed=0.01, late=0.02, duplicates=0.01)
BEFORE_FAULTS = Faults(malformed=0.01, duplicates=0.01)
WATCH_EVERY = 0.5
PATIENCE = 120.0
"""Seconds that the tables may take to catch up once all is sent."""


def prepare(example: Example, plan: Plan, bootstrap: str) -> list[Sent]:
    """Makes the topics, and sends what is looked up."""
    sinks = [table.sink.topic for table in plan.tables if isinstance(table.sink, SinkPlan)]
    for topic in (*example.before, *example.topics, *sinks):
        ensure_topic(bootstrap, topic, PARTITIONS)
    now = datetime.now(UTC)
    pace = BEFORE / example.over.total_seconds()
    return [
        produce(bootstrap, topic, events(kind, BEFORE, start=now - 2 * example.over, pace=pace, faults=BEFORE_FAULTS))
        for topic, kind in example.before.items()
    ]


class Fed(Protocol):
    """What fills the topics while the tables run: it has ended when its thread has."""

    thread: threading.Thread
    sent: list[Sent]
    error: Exception | None


class Live:
    """A session in which the tables of an example are made and then run; used as a context manager."""

    def __init__(self, plan: Plan, view: RunView) -> None:
        self._plan, self._view = plan, view
        self._held = ExitStack()
        self.whole = False
        """What was asked for last was carried through to its end."""
        self.sent: list[Sent] = []
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
        result = run_in(self._spark, self._plan, self._plan.tables, self._view, once=True)
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
                ends = ends or (time.monotonic() + PATIENCE if fed else None)
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
        unit = "record" if table is not None and isinstance(table.source, KafkaSource) else "commit"
        return f"{one.lag:,} {unit}" + ("s" if one.lag > 1 else "")


class Feed:
    """The events of an example on their way into its topics, at a steady rate, by a thread of their own."""

    def __init__(self, example: Example, bootstrap: str, count: int, stop: threading.Event) -> None:
        self._example, self._bootstrap, self._count, self._stop = example, bootstrap, count, stop
        self.sent: list[Sent] = []
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
