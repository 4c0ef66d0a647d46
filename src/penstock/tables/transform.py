"""Transforms, the user's own step: SQL or a Python function over the rows and the lookups, at the batch's time."""

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
from penstock.sources.columns import without_tombstones
from penstock.spark.jvm import java_session, jvm_of
from penstock.tables.failing_rows import TransformRaised, failure_of_exception, spark_failure
from penstock.tables.suppression import Suppression

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Pins
    from penstock.plan.model import TablePlan
    from penstock.plan.stages import Lookup, TransformPlan
    from penstock.storage.stores import Store

# The time of a batch in the user's SQL: a batch that runs again must check its rows against the same time.
#
# Otherwise a row that was rejected because it lies in the future could pass the second time, when the rows that passed
# are in the table already: it would end up in neither.


_LITERALS_AND_COMMENTS = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/"
_WORDS = r"(?<![\w.])(current_timestamp|localtimestamp|current_date)\b(?:\s*\(\s*\))?"
_CALLS = r"(?<![\w.])(now|curdate|unix_timestamp)\s*\(\s*\)"
_TIME_FUNCTIONS = re.compile(f"({_LITERALS_AND_COMMENTS})|{_WORDS}|{_CALLS}", re.IGNORECASE | re.DOTALL)


def with_batch_time(sql: str, time_ms: int) -> str:
    """The SQL with every function for the current time replaced by the batch's time."""
    now = f"timestamp_millis({time_ms}L)"
    replacements = {
        "current_timestamp": now,
        "now": now,
        "localtimestamp": f"CAST({now} AS TIMESTAMP_NTZ)",
        "current_date": f"CAST({now} AS DATE)",
        "curdate": f"CAST({now} AS DATE)",
        "unix_timestamp": f"{time_ms // 1000}L",
    }

    def replace(match: re.Match[str]) -> str:
        word = match[2] or match[3]
        return match[0] if word is None else replacements[word.lower()]

    return _TIME_FUNCTIONS.sub(replace, sql)


# Transforms: SQL over the rows and the lookups, or a Python function on their DataFrames.


Transform = Callable[[DataFrame, Mapping[str, DataFrame], int], DataFrame]
"""Rows, lookups, and the time of the batch in milliseconds."""


def load_transform(plan: TransformPlan, input_name: str, table: str) -> Transform:
    """The transform of the plan. Raises Terminal if the user's file cannot be loaded."""
    if plan.sql is not None:
        return _sql_transform(plan.sql, input_name)
    assert plan.file is not None and plan.function is not None
    return _python_transform(Path(plan.file), plan.function, table)


def _sql_transform(query: str, input_name: str) -> Transform:
    def run(rows: DataFrame, lookups: Mapping[str, DataFrame], time_ms: int) -> DataFrame:
        rows.createOrReplaceTempView(input_name)
        for name, frame in lookups.items():
            frame.createOrReplaceTempView(name)
        return rows.sparkSession.sql(with_batch_time(query, time_ms))

    return run


def _python_transform(file: Path, name: str, table: str) -> Transform:
    function = cast(Callable[..., DataFrame], _load_function(file, name, table))

    def run(rows: DataFrame, lookups: Mapping[str, DataFrame], _: int) -> DataFrame:
        try:
            with _CALL_SITES.recorded(rows):
                result = function(rows, **lookups)
        except AnalysisException as error:
            failure = spark_failure(error) or failure_of_exception(error)
            frames = failure_of_exception(error).frames or failure.frames
            raise Terminal(
                f"{name} does not fit its source: {replace(failure, frames=frames).full}",
                where=f"{table} ({_user_line(error, file)})",
                hint="`penstock plan` shows the definition",
            ) from error
        except PySparkException:
            raise
        except Exception as error:
            logging.getLogger("penstock.transform").error("%s of %s failed", name, table, exc_info=error)
            failure = failure_of_exception(error)
            named_failure = replace(failure, message=f"{name} failed: {failure.message}")
            raise TransformRaised(named_failure, where=f"{table} ({_user_line(error, file)})") from error
        if not isinstance(result, DataFrame):
            raise Terminal(f"{name} gave {type(result).__name__}, not a DataFrame", where=f"{table} ({file})")
        return result

    return run


class _CallSites:
    """Makes Spark record file and line of each of the user's expressions, to name them if they raise. Only while a
    transform runs: it costs several JVM calls per DataFrame method, and Penstock's own code does not need it. There is
    one switch for the whole process, and several tables may run their transforms at once."""

    def __init__(self) -> None:
        self._lock, self._running, self._before = threading.Lock(), 0, None

    @contextmanager
    def recorded(self, rows: DataFrame) -> Iterator[None]:
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


def _load_function(file: Path, name: str, table: str) -> object:
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # so that it can import modules beside it
    spec = importlib.util.spec_from_file_location(f"_penstock_{abs(hash(str(file)))}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Terminal(
            f"{file.name} cannot be loaded: {type(error).__name__}: {error}",
            where=f"{table} ({_user_line(error, file)})",
            hint="it must be importable by itself: `python " + file.name + "` shows the same",
        ) from error
    return getattr(module, name)


def _user_line(error: BaseException, file: Path) -> str:
    """file:line of the deepest frame within the user's file."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{file}:{line}" if line else str(file)


# Lookups, the static side of joins: other tables, each read in a batch as of one version.


class Lookups:
    def __init__(self, table: TablePlan, store: Store) -> None:
        self._table, self._store = table.name, store
        self._lookups = table.stages.lookups if table.stages is not None else ()
        self._suppression = Suppression(table, store)

    def newest(self) -> dict[str, int]:
        """The newest version of each lookup table. Transient while one is missing."""
        newest_versions: dict[str, int] = {}
        for lookup in self._lookups:
            versions = DeltaLog(self._store, lookup.uri, lookup.name).versions()
            if not versions:
                raise Transient(
                    f"the lookup {lookup.name} does not exist yet: {lookup.uri}",
                    where=self._table,
                    hint=f"fill it first: `penstock run {lookup.table} --once`"
                    if lookup.table
                    else "make it, or correct the path in `lookups`",
                )
            newest_versions[lookup.name] = versions[-1]
        return newest_versions

    def read(self, spark: SparkSession, pins: Pins) -> dict[str, DataFrame]:
        if any(lookup.holds.subjects for lookup in self._lookups):
            self._suppression.read_list()
        return {lookup.name: self._visible_rows(spark, lookup, pins) for lookup in self._lookups}

    def _visible_rows(self, spark: SparkSession, lookup: Lookup, pins: Pins) -> DataFrame:
        rows = spark.read.format("delta").option("versionAsOf", pins.lookups[lookup.name]).load(lookup.uri)
        rows = without_tombstones(rows) if lookup.merged else rows
        return self._suppression.drop_matching(rows, lookup.holds) if lookup.holds.subjects else rows
