"""The JVM as a process of ours: started, watched and ended.

PySpark's own start keeps the process to itself until the JVM answers, so nobody could end it in the meantime.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

_POLL = 0.05
_OUT_OF_MEMORY = (3, 52)
"""The JVM's exit code after an OutOfMemoryError, and Spark's."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class JvmDidNotStart(Exception):
    pass


def launch(spark_home: Path, conf: SparkConf, log: IO[bytes] | None) -> Any:
    """A gateway whose `proc` is the JVM. Whatever interrupts the start ends that process as well."""
    if _PORT in os.environ:  # spark-submit has started us, and its JVM is there
        return launch_gateway()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "gateway"
        process = _start(spark_home, conf, log, answer)
        try:
            while not answer.exists():
                if process.poll() is not None:
                    raise JvmDidNotStart(f"it ended with exit code {process.returncode}")
                time.sleep(_POLL)
            with answer.open("rb") as told:
                port = str(read_int(told))  # type: ignore[no-untyped-call]
                secret = str(UTF8Deserializer().loads(told))  # type: ignore[no-untyped-call]
            os.environ |= {_PORT: port, _SECRET: secret}
            try:
                gateway = launch_gateway()  # type: ignore[no-untyped-call]
            finally:
                del os.environ[_PORT], os.environ[_SECRET]
        except BaseException:
            kill(process)
            raise
    gateway.proc = process
    return gateway


def _start(spark_home: Path, conf: SparkConf, log: IO[bytes] | None, answer: Path) -> subprocess.Popen[bytes]:
    command = [str(spark_home / "bin" / "spark-submit")]
    for name, value in conf.getAll():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # the JVM ends when this is closed, by us or because we are gone
        stdout=log,
        stderr=log,
        env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)},
        preexec_fn=_leave_interrupts_to_us,
    )


def _leave_interrupts_to_us() -> None:
    """Ctrl-C reaches every process of the terminal's group."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def kill(process: subprocess.Popen[bytes]) -> None:
    """At once, with the processes that it has started: at first it is a shell that asks a short-lived JVM for the
    command line of the real one."""
    if process.poll() is None:
        with suppress(OSError):
            process.send_signal(signal.SIGSTOP)  # it starts no more
        started = _descendants(process.pid)
        process.kill()
        for child in started:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    """Of a system without /proc nothing is known: they end by themselves when they see that the JVM is gone."""
    try:
        lists = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(child) for found in lists for child in found]
    return [one for child in children for one in (child, *_descendants(child))]


def end(gateway: Any, patience: float) -> bool:
    """Ends the JVM within `patience` seconds, or else kills it; whether it came to its end by itself. It may be dead
    already, then every call fails: the process is what counts."""
    deadline = time.monotonic() + patience
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    try:
        context = SparkContext._active_spark_context
        if context is not None and patience > 0 and (process is None or process.poll() is None):
            stopping = threading.Thread(target=_stop, args=(context,), name="end of Spark", daemon=True)
            stopping.start()
            stopping.join(patience)
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None
        if process is None:
            return False
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        process.wait(timeout=max(0.0, deadline - time.monotonic()))
        return bool(process.returncode == 0)
    except BaseException as error:  # it took too long, or a signal does not wait for it
        if process is not None:
            kill(process)
        if isinstance(error, subprocess.TimeoutExpired):
            return False
        raise


def _stop(context: SparkContext) -> None:
    with suppress(Exception):
        context.stop()


def jvm_end(gateway: Any, patience: float = 0.0) -> str | None:
    """How the JVM ended, if it did, or does within `patience` seconds; None while it runs, or if it is not ours."""
    process = getattr(gateway, "proc", None)
    if process is None:
        return None
    deadline = time.monotonic() + patience
    while process.poll() is None:
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL)
    code = int(process.returncode)
    if code in _OUT_OF_MEMORY:
        return "out of memory"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (": by the system, if memory ran out" if name == "SIGKILL" else "")
