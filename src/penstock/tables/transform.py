"""The user's own step: SQL or a Python function over the rows and the lookups, at the time of the batch."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors import utils as pyspark_errors
from pyspark.sql import DataFrame

from penstock.errors import Terminal, Transient
from penstock.ledger.delta_log import DeltaLog
from penstock.sources.columns import living
from penstock.spark.jvm import java_session, jvm_of
from penstock.tables.failing_rows import TransformRaised, described, of_exception
from penstock.tables.suppression import Suppression

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Pins
    from penstock.plan.model import TablePlan
    from penstock.plan.stages import TransformPlan
    from penstock.storage.stores import Store

# The time of a batch in the user's SQL: a batch that runs again must judge its rows by the same clock.
#
# If it did not, a row that was rejected as lying in the future could pass the second time, when the rows that passed
# are in the table already: it would be in neither.


_LEFT_ALONE = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/"
_WORDS = r"(?<![\w.])(current_timestamp|localtimestamp|current_date)\b(?:\s*\(\s*\))?"
_CALLS = r"(?<![\w.])(now|curdate|unix_timestamp)\s*\(\s*\)"
_FOUND = re.compile(f"({_LEFT_ALONE})|{_WORDS}|{_CALLS}", re.IGNORECASE | re.DOTALL)


def with_batch_time(sql: str, time_ms: int) -> str:
    """Every function that asks for the time gives that of the batch."""
    now = f"timestamp_millis({time_ms}L)"
    instead = {
        "current_timestamp": now,
        "now": now,
        "localtimestamp": f"CAST({now} AS TIMESTAMP_NTZ)",
        "current_date": f"CAST({now} AS DATE)",
        "curdate": f"CAST({now} AS DATE)",
        "unix_timestamp": f"{time_ms // 1000}L",
    }

    def replace(match: re.Match[str]) -> str:
        word = match[2] or match[3]
        return match[0] if word is None else instead[word.lower()]

    return _FOUND.sub(replace, sql)


# The user's own step: SQL over the rows and the lookups, or a Python function on their DataFrames.


Transform = Callable[[DataFrame, Mapping[str, DataFrame], int], DataFrame]
"""Rows, lookups, and the time of the batch in milliseconds."""


def load_transform(plan: TransformPlan, input_name: str, table: str) -> Transform:
    """Raises Terminal where the user's file cannot be loaded."""
    if plan.sql is not None:
        return _sql(plan.sql, input_name)
    assert plan.file is not None and plan.function is not None
    return _python(Path(plan.file), plan.function, table)


def _sql(query: str, input_name: str) -> Transform:
    def run(rows: DataFrame, lookups: Mapping[str, DataFrame], time_ms: int) -> DataFrame:
        rows.createOrReplaceTempView(input_name)
        for name, frame in lookups.items():
            frame.createOrReplaceTempView(name)
        return rows.sparkSession.sql(with_batch_time(query, time_ms))

    return run


def _python(file: Path, name: str, table: str) -> Transform:
    function = cast(Callable[..., DataFrame], _function(file, name, table))

    def run(rows: DataFrame, lookups: Mapping[str, DataFrame], _: int) -> DataFrame:
        try:
            with _CALL_SITES.told(rows):
                made = function(rows, **lookups)
        except AnalysisException as error:
            failure = described(error) or of_exception(error)
            frames = of_exception(error).frames or failure.frames
            raise Terminal(
                f"{name} does not fit its source: {replace(failure, frames=frames).full}",
                where=f"{table} ({_line(error, file)})",
                hint="`penstock plan` shows the definition",
            ) from error
        except PySparkException:
            raise
        except Exception as error:
            logging.getLogger("penstock.transform").error("%s of %s failed", name, table, exc_info=error)
            failure = of_exception(error)
            told = replace(failure, message=f"{name} failed: {failure.message}")
            raise TransformRaised(told, where=f"{table} ({_line(error, file)})") from error
        if not isinstance(made, DataFrame):
            raise Terminal(f"{name} gave {type(made).__name__}, not a DataFrame", where=f"{table} ({file})")
        return made

    return run


class _CallSites:
    """Spark learns file and line of each of the user's expressions, to name them if they raise. Only while a transform
    runs: it costs several calls of the JVM for each method of a DataFrame, and Penstock's own need none. The switch is
    one for the whole process, and several tables may run their transforms at once."""

    def __init__(self) -> None:
        self._lock, self._running, self._before = threading.Lock(), 0, None

    @contextmanager
    def told(self, rows: DataFrame) -> Iterator[None]:
        session: Any = rows.sparkSession
        jvm_of(session).org.apache.spark.sql.classic.SparkSession.setActiveSession(java_session(session))
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        switch: Any = pyspark_errors
        with self._lock:
            if not self._running:
                self._before = switch._enable_debugging_cache
            self._running += more
            switch._enable_debugging_cache = True if self._running else self._before


_CALL_SITES = _CallSites()


def _function(file: Path, name: str, table: str) -> object:
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # what lies beside it can be imported
    spec = importlib.util.spec_from_file_location(f"_penstock_{abs(hash(str(file)))}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Terminal(
            f"{file.name} cannot be loaded: {type(error).__name__}: {error}",
            where=f"{table} ({_line(error, file)})",
            hint="it must be importable by itself: `python " + file.name + "` shows the same",
        ) from error
    return getattr(module, name)


def _line(error: BaseException, file: Path) -> str:
    """file:line of the deepest frame within the user's file."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{file}:{line}" if line else str(file)


# The static side of joins: other tables, read in a batch as of one version each.


class Lookups:
    def __init__(self, table: TablePlan, store: Store) -> None:
        self._table = table.name
        self._places = {one.name: one.uri for one in table.stages.lookups} if table.stages else {}
        self._tables = {one.name: one.table for one in table.stages.lookups} if table.stages else {}
        self._merged = {one.name for one in table.stages.lookups if one.merged} if table.stages else set()
        self._holds = (
            {one.name: one.holds for one in table.stages.lookups if one.holds.subjects} if table.stages else {}
        )
        self._suppression = Suppression(table, store)
        self._logs = {name: DeltaLog(store, uri, name) for name, uri in self._places.items()}

    def newest(self) -> dict[str, int]:
        """Transient while one is not there."""
        found: dict[str, int] = {}
        for name, log in self._logs.items():
            versions = log.versions()
            if not versions:
                raise Transient(
                    f"the lookup {name} does not exist yet: {self._places[name]}",
                    where=self._table,
                    hint=self._made(name),
                )
            found[name] = versions[-1]
        return found

    def _made(self, name: str) -> str:
        table = self._tables[name]
        return f"fill it first: `penstock run {table} --once`" if table else "make it, or correct the path in `lookups`"

    def read(self, spark: SparkSession, pins: Pins) -> dict[str, DataFrame]:
        found = {
            name: spark.read.format("delta").option("versionAsOf", pins.lookups[name]).load(uri)
            for name, uri in self._places.items()
        }
        if self._holds:
            self._suppression.look()
        return {name: self._shown(name, rows) for name, rows in found.items()}

    def _shown(self, name: str, rows: DataFrame) -> DataFrame:
        rows = living(rows) if name in self._merged else rows
        return self._suppression.without(rows, self._holds[name]) if name in self._holds else rows
