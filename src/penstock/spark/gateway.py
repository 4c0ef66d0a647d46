"""The JVM as a child process: started, watched and ended; and the class archive that makes its start faster."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from penstock.spark.jars import cache_folder
from penstock.spark.java import option

if TYPE_CHECKING:
    from pyspark import SparkConf

    from penstock.spark.java import JavaRuntime

# The JVM as a process of ours: started, watched and ended.
#
# PySpark's own start keeps the process to itself until the JVM answers, so nobody could end it in the meantime.


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


# The classes of a session as a file that the next JVM maps into memory: a start takes a third less time.
#
# A JVM writes it as it ends, which takes it 10 to 20 s: only sessions that are asked to do so (that of the demo) do.
# It holds for one Java and one class path, each jar as it was then; the JVM itself refuses one that does not fit and
# starts as if there were none, so a name is never given twice.


PATIENCE = 180.0
"""Seconds that a JVM may take to write it."""
_UNUSED = 30 * 86_400.0
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


class ClassArchive:
    def __init__(self, java: JavaRuntime, class_path: str, spark_home: Path) -> None:
        release = java.home / "release"
        jars = [*map(Path, class_path.split(os.pathsep)), *sorted((spark_home / "jars").glob("*.jar"))]
        about = (
            str(spark_home),
            str(java.home),
            release.read_text() if release.exists() else "",
            *map(_as_it_is, jars),
        )
        key = hashlib.sha256("\0".join(about).encode()).hexdigest()[:16]
        self._java = java.path
        self._folder = cache_folder() / "classes"
        self._file = self._folder / f"{key}.jsa"
        self._arriving = self._folder / f".{key}-{os.getpid()}.jsa"

    @property
    def exists(self) -> bool:
        return self._file.exists()

    def use(self) -> str:
        """The option for a JVM that starts; empty without an archive."""
        if not self.exists:
            return ""
        with suppress(OSError):
            os.utime(self._file)
        return f"{option(f'-XX:SharedArchiveFile={self._file}')} {_QUIET}"

    def make(self) -> str:
        """The option for a JVM that shall write one as it ends; empty where it cannot."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        return f"{option(f'-XX:ArchiveClassesAtExit={self._arriving}')} {_QUIET}"

    def damaged(self) -> bool:
        """Asked when a JVM did not start with it: it may as well have been killed."""
        command = [str(self._java), f"-XX:SharedArchiveFile={self._file}", f"-XX:ErrorFile={os.devnull}", "-version"]
        return self.exists and subprocess.run(command, capture_output=True, check=False).returncode != 0

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)

    def keep(self, *, whole: bool) -> None:
        """After the JVM's end: what it wrote is the archive from now on, if it came to its end by itself. Those that
        nobody has used for long go: each is 200 MB."""
        if whole and self._arriving.exists():
            self._arriving.replace(self._file)
        else:
            self._arriving.unlink(missing_ok=True)
        for old in self._folder.glob("*.jsa"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > _UNUSED:
                    old.unlink()


def _as_it_is(jar: Path) -> str:
    try:
        about = jar.stat()
    except OSError:
        return str(jar)
    return f"{jar} {about.st_size} {about.st_mtime_ns}"
