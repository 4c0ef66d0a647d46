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

# PySpark's own start does not expose the process until the JVM answers, so it could not be ended in the meantime.


_POLL = 0.05
_OUT_OF_MEMORY = (3, 52)
"""The JVM's exit code after an OutOfMemoryError, and Spark's."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class JvmDidNotStart(Exception):
    pass


def launch(spark_home: Path, conf: SparkConf, log: IO[bytes] | None) -> Any:
    """A gateway whose `proc` is the JVM. Whatever interrupts the start ends that process as well."""
    if _PORT in os.environ:  # spark-submit started this process, and its JVM is running
        return launch_gateway()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        info_file = Path(folder) / "gateway"
        process = _start(spark_home, conf, log, info_file)
        try:
            while not info_file.exists():
                if process.poll() is not None:
                    raise JvmDidNotStart(f"it ended with exit code {process.returncode}")
                time.sleep(_POLL)
            with info_file.open("rb") as stream:
                port = str(read_int(stream))  # type: ignore[no-untyped-call]
                secret = str(UTF8Deserializer().loads(stream))  # type: ignore[no-untyped-call]
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


def _start(spark_home: Path, conf: SparkConf, log: IO[bytes] | None, info_file: Path) -> subprocess.Popen[bytes]:
    command = [str(spark_home / "bin" / "spark-submit")]
    for name, value in conf.getAll():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # the JVM ends when this is closed, by us or because we died
        stdout=log,
        stderr=log,
        env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info_file)},
        preexec_fn=_ignore_interrupts,
    )


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal's group."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the process at once, with its children: at first it is a shell that asks a short-lived JVM for the command
    line of the real one."""
    if process.poll() is None:
        with suppress(OSError):
            process.send_signal(signal.SIGSTOP)  # it cannot start any more children
        descendants = _descendants(process.pid)
        process.kill()
        for child in descendants:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    """Without /proc none is known: they end by themselves when they notice that the JVM has died."""
    try:
        lists = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(child) for pids in lists for child in pids]
    return [descendant for child in children for descendant in (child, *_descendants(child))]


def end(gateway: Any, patience: float) -> bool:
    """Ends the JVM within `patience` seconds, or else kills it; returns whether it ended by itself. It may be dead
    already, and then every call fails: only the process counts."""
    deadline = time.monotonic() + patience
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    try:
        context = SparkContext._active_spark_context
        if context is not None and patience > 0 and (process is None or process.poll() is None):
            stopper = threading.Thread(target=_stop, args=(context,), name="end of Spark", daemon=True)
            stopper.start()
            stopper.join(patience)
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
    """How the JVM ended, if it has or does within `patience` seconds; None while it runs, or if it is not ours."""
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


# The classes of a session as a file that the next JVM maps into memory: starting takes a third less time.
#
# A JVM writes it as it ends, which takes 10 to 20 s: only sessions that are asked to do so (that of the demo) do. It is
# valid for one Java and one class path, each jar as it was then; the JVM itself refuses one that does not fit and
# starts without it, so a file name is never reused.


PATIENCE = 180.0
"""Seconds that a JVM may take to write it."""
_UNUSED_AFTER = 30 * 86_400.0
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


class ClassArchive:
    def __init__(self, java: JavaRuntime, class_path: str, spark_home: Path) -> None:
        release = java.home / "release"
        jars = [*map(Path, class_path.split(os.pathsep)), *sorted((spark_home / "jars").glob("*.jar"))]
        identity = (
            str(spark_home),
            str(java.home),
            release.read_text() if release.exists() else "",
            *map(_file_fingerprint, jars),
        )
        key = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]
        self._java = java.path
        self._folder = cache_folder() / "classes"
        self._file = self._folder / f"{key}.jsa"
        self._new_file = self._folder / f".{key}-{os.getpid()}.jsa"

    @property
    def exists(self) -> bool:
        return self._file.exists()

    def use(self) -> str:
        """The option for starting a JVM with the archive; empty without one."""
        if not self.exists:
            return ""
        with suppress(OSError):
            os.utime(self._file)
        return f"{option(f'-XX:SharedArchiveFile={self._file}')} {_QUIET}"

    def make(self) -> str:
        """The option for a JVM that is to write an archive as it ends; empty if it cannot."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        return f"{option(f'-XX:ArchiveClassesAtExit={self._new_file}')} {_QUIET}"

    def damaged(self) -> bool:
        """Called when a JVM did not start with it, which may also have been killed: whether the archive is the
        reason."""
        command = [str(self._java), f"-XX:SharedArchiveFile={self._file}", f"-XX:ErrorFile={os.devnull}", "-version"]
        return self.exists and subprocess.run(command, capture_output=True, check=False).returncode != 0

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)

    def store(self, *, whole: bool) -> None:
        """Called after the JVM's end: if that ended by itself, what it wrote becomes the archive. Archives that nobody
        has used for long are removed: each is 200 MB."""
        if whole and self._new_file.exists():
            self._new_file.replace(self._file)
        else:
            self._new_file.unlink(missing_ok=True)
        for old in self._folder.glob("*.jsa"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > _UNUSED_AFTER:
                    old.unlink()


def _file_fingerprint(jar: Path) -> str:
    try:
        status = jar.stat()
    except OSError:
        return str(jar)
    return f"{jar} {status.st_size} {status.st_mtime_ns}"
