"""The one place that builds a Spark session."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.errors import SetupError, StopRequested
from penstock.plan.model import EXTRA_JARS
from penstock.spark.gateway import PATIENCE as CLASSES_PATIENCE
from penstock.spark.gateway import ClassArchive, JvmDidNotStart, end, launch
from penstock.spark.jars import own_jar, spark_jars
from penstock.spark.java import ensure_java, option

if TYPE_CHECKING:
    from penstock.plan.model import Plan

# What decides how the JVM starts goes on its command line, which every user of the machine can read: only memory, class
# path and master. Everything else, including secrets, is passed inside, through Py4J's socket.


_JVM = "spark.driver.extraJavaOptions"
_COMMAND_LINE_CONF = ("spark.driver.memory", _JVM, "spark.driver.extraClassPath")
_LOGS_KEPT = 5
_PATIENCE = 20.0
"""Seconds that the JVM may take to end."""
_CONTEXT_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LOGGERS = (*_CONTEXT_LOGGERS, "py4j", "pyspark", "delta", "penstock.transform")
_SPARK_MODULES = ("pyspark", "py4j", "delta")


@contextmanager
def spark_session(
    plan: Plan,
    *,
    show_logs: bool = False,
    keep_classes: bool = False,
    log: str = "spark",
    say: Callable[[str], None] = lambda _: None,
    patience: Callable[[], float] = lambda: _PATIENCE,
) -> Iterator[SparkSession]:
    """A session for the plan; ended, with its JVM, on exit. Spark's own log goes to a file of the project,
    `.penstock/logs/`, or to standard error with `show_logs`; the last few that begin with `log` are kept. With
    `keep_classes` it leaves, once, an archive that makes later starts faster. `patience` is called when the session
    ends, for the seconds that the JVM has before it is killed; StopRequested kills it at once."""
    java = ensure_java(say)
    conf = dict(plan.conf)
    extra = [jar for jar in conf.pop(EXTRA_JARS, "").split(",") if jar]
    jars = [*map(str, (*spark_jars(), own_jar())), *extra]
    conf["spark.driver.extraClassPath"] = os.pathsep.join([*jars, conf.get("spark.driver.extraClassPath", "")]).strip(
        ":"
    )
    if not plan.master.startswith("local"):
        conf["spark.jars"] = ",".join(jars)
    classes = ClassArchive(java, conf["spark.driver.extraClassPath"], _pyspark_home())
    archive_option = classes.make() if keep_classes and not classes.exists else ""
    log_file = None if show_logs else _log_file(plan, log)
    _redirect_logging(log_file)
    # What a JVM writes when it crashes; otherwise it would go into whatever folder the user is in.
    conf = _with_option(conf, option(f"-XX:ErrorFile={logs_folder(plan)}/jvm-%p.log"))
    # Another Spark of the machine, or its defaults file, must not change what was planned.
    with environment(JAVA_HOME=str(java.home), SPARK_HOME=str(_pyspark_home()), SPARK_CONF_DIR=os.devnull):
        try:
            gateway = _launch(plan.master, _with_option(conf, archive_option or classes.use()), log_file)
        except SetupError:
            if not classes.damaged():
                raise
            classes.remove()  # it would keep every JVM from starting
            gateway = _launch(plan.master, conf, log_file)
    ended = False
    try:
        with environment(PYSPARK_PYTHON=_python(plan)), _handlers_kept():
            context = SparkContext(
                master=plan.master, appName=f"penstock {plan.name}", conf=_spark_conf(plan, conf), gateway=gateway
            )
        context.setLogLevel("WARN")
        yield SparkSession(context)
        if archive_option:
            say("keeping the classes that were loaded, so that later starts are quicker (only this once: 10 to 20 s)")
            ended = end(gateway, CLASSES_PATIENCE)
    except StopRequested:
        end(gateway, 0.0)
        raise
    finally:
        if not ended:
            end(gateway, patience())
        if archive_option:
            classes.store(whole=ended)
        if log_file is not None:
            _redirect_logging(None)
            log_file.close()


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """PySpark replaces the handler of Ctrl-C by one that calls the JVM on the connection that the main thread waits
    for. In the first moment of a session that breaks the connection, and the stop looks like a dead JVM."""
    module = importlib.import_module("pyspark.core.context")
    original = vars(module)["signal"]
    vars(module)["signal"] = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda *_: None)
    try:
        yield
    finally:
        vars(module)["signal"] = original


def _python(plan: Plan) -> str:
    """The Python that runs functions for Spark: on this machine that of this process, which has the user's packages;
    the first `python3` of the PATH may be another one."""
    chosen = os.environ.get("PYSPARK_PYTHON") or plan.conf.get("spark.pyspark.python")
    return chosen or (sys.executable if plan.master.startswith("local") else "python3")


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Sets variables for processes that are started within, and restores them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _LogFileHandler(logging.Handler):
    """Writes to the file that the JVM writes to: through the same open file, so that neither overwrites the other."""

    def __init__(self, log: IO[bytes] | None) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if self._log is not None and not self._log.closed:
            with suppress(OSError, ValueError):
                os.write(self._log.fileno(), f"{self.format(record)}\n".encode(errors="replace"))


def _redirect_logging(log: IO[bytes] | None) -> None:
    """Sends PySpark's messages to the log: it writes every error of a query to standard error, as JSON, before it can
    be handled. Its warnings are silenced."""
    for name in _LOGGERS:
        # PySparkLogger adds a handler for standard error when it is first used.
        logger = PySparkLogger.getLogger(name) if name in _CONTEXT_LOGGERS else logging.getLogger(name)
        logger.handlers, logger.propagate = [_LogFileHandler(log)], False
    for module in _SPARK_MODULES:
        warnings.filterwarnings("ignore", module=rf"{module}(\.|$)")


def _pyspark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _launch(master: str, conf: dict[str, str], log: IO[bytes] | None) -> object:
    command_line = SparkConf(loadDefaults=False).set("spark.master", master)
    for name in _COMMAND_LINE_CONF:
        if conf.get(name):
            command_line.set(name, conf[name])
    started = time.monotonic()
    try:
        return launch(_pyspark_home(), command_line, log)
    except (JvmDidNotStart, OSError) as error:
        where = f"; its last words are in {log.name}" if log else ""
        raise SetupError(
            f"the JVM did not start (after {time.monotonic() - started:.0f} s): {error}{where}",
            hint="check `java -version` and the free memory; `spark: {conf: {spark.driver.memory: 1g}}` asks for less",
        ) from None


def _with_option(conf: dict[str, str], jvm_options: str) -> dict[str, str]:
    return {**conf, _JVM: f"{jvm_options} {conf.get(_JVM, '')}".strip()}


def _spark_conf(plan: Plan, conf: dict[str, str]) -> SparkConf:
    spark_conf = SparkConf(loadDefaults=False)
    if os.access(plan.root, os.W_OK):  # otherwise Spark makes this folder wherever the user happens to be
        spark_conf.set("spark.sql.warehouse.dir", str(logs_folder(plan).with_name("warehouse")))
    for name, value in conf.items():
        spark_conf.set(name, value)
    for name, secret in plan.secret_conf.items():
        spark_conf.set(name, secret.get_secret_value())
    return spark_conf


def logs_folder(plan: Plan) -> Path:
    return Path(plan.root) / ".penstock" / "logs"


def current_log(plan: Plan) -> str:
    """The file to which this process last wrote Spark's log; the folder if there is none, as with `show_logs`."""
    folder = logs_folder(plan)
    logs = sorted(folder.glob(f"*-{os.getpid()}.log"), key=lambda log: log.stat().st_mtime)
    return str(logs[-1] if logs else folder)


def _log_file(plan: Plan, name: str) -> IO[bytes]:
    folder = logs_folder(plan)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind in (name, "jvm"):
            for old in sorted(folder.glob(f"{kind}-*.log"), key=lambda log: log.stat().st_mtime)[: -_LOGS_KEPT + 1]:
                old.unlink(missing_ok=True)
        return (folder / f"{name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log").open("wb")
    except OSError:  # a read-only project folder
        return Path(os.devnull).open("wb")


@contextmanager
def short_session(plan: Plan, *, log: str, say: Callable[[str], None] = lambda _: None) -> Iterator[SparkSession]:
    """A session for a command that runs a few queries and ends."""
    with tempfile.TemporaryDirectory(prefix=f"penstock-{log}-") as folder:
        # Most of a short session goes into compiling: the quick compiler alone takes a third less of it, and large
        # queries are not slower. The warehouse is a folder that Spark makes wherever a user is.
        conf = {
            **plan.conf,
            _JVM: f"{plan.conf.get(_JVM, '')} -XX:TieredStopAtLevel=1".strip(),
            "spark.sql.warehouse.dir": folder,
        }
        with spark_session(replace(plan, conf=conf), log=log, say=say) as spark:
            yield spark


_CANCEL_INTERVAL = 0.3


@contextmanager
def cancel_on_interrupt(context: SparkContext) -> Iterator[None]:
    """Cancels the jobs that run within, and then raises KeyboardInterrupt; the second Ctrl-C does not wait for that.

    PySpark's own handler sends the request on the connection that waits for the answer, which breaks it and cancels no
    job."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    finished, interrupted = threading.Event(), threading.Event()

    def end_jobs() -> None:
        while not finished.is_set():
            context.cancelAllJobs()
            finished.wait(_CANCEL_INTERVAL)  # and once more: the job may not have begun

    def on_interrupt(*_: Any) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        threading.Thread(target=end_jobs, daemon=True).start()

    previous_handler = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    except Exception:
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        finished.set()
        signal.signal(signal.SIGINT, previous_handler)
    if interrupted.is_set():
        raise KeyboardInterrupt
