"""The user's own step: SQL over the rows and the lookups, or a Python function on their DataFrames."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors import utils as pyspark_errors
from pyspark.sql import DataFrame

from penstock.engine.isolation.failure import TransformRaised, described, of_exception
from penstock.engine.stages.batch_time import with_batch_time
from penstock.errors import Terminal
from penstock.plan.stages import TransformPlan

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
        session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
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
