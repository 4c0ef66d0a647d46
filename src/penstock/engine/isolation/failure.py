"""Why a job failed: because of the rows that it read, or because of something else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PythonException

from penstock.errors import Terminal

_RAISED = "USER_RAISED_EXCEPTION"
EXPECTATION = re.compile(rf"(?<=\[{_RAISED}\] )expectation [^\n]{{1,200}}? failed: [^\n]*?(?= SQLSTATE|\n|$)")
"""What an expectation with the action `fail` raises. A record can hold the same text, but not Spark's word before it at
the beginning of a message."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_NOT_THE_USERS = ("site-packages", "dist-packages", "pyspark.zip", "/pyspark/", "/lib/python", "/penstock/engine/")
_OWN = re.compile(rf"\[{_RAISED}\] (penstock: |expectation )")
"""What Penstock raises in a query: to be told of something, a field that is new, say; or for an expectation."""
_PACKAGE = str(Path(__file__).parents[2])
_LONGEST = 500


class TransformRaised(Terminal):
    """A Python transform raised while it made its query. `failure` says what and where."""

    def __init__(self, failure: Failure, *, where: str, hint: str | None = None) -> None:
        super().__init__(failure.full, where=where, hint=hint)
        self.failure = failure


@dataclass(frozen=True)
class Failure:
    name: str
    """DIVIDE_BY_ZERO, ValueError."""
    message: str
    """In one line; with the piece of SQL that it is about, if Spark says it."""
    frames: tuple[str, ...] = ()
    """file:line of the user's own code, innermost first."""

    @property
    def full(self) -> str:
        return f"{self.message} ({'; called from '.join(self.frames)})" if self.frames else self.message


def data_failure(error: BaseException) -> Failure | None:
    """None if the data are not to blame: the broker, the disk, another writer, the definition, a stop; or an
    expectation that says that the batch shall fail."""
    if isinstance(error, TransformRaised):
        return error.failure
    if isinstance(error, PythonException):
        return of_traceback(_text(error))
    found = _about(error)
    if found is None or found[0] != "data" or (found[1] == _RAISED and _OWN.match(found[2])):
        return None
    return Failure(found[1], found[2], tuple(found[3].splitlines()))


def described(error: BaseException) -> Failure | None:
    """The same of any error that Spark has raised, whatever is to blame."""
    if isinstance(error, TransformRaised):
        return error.failure
    if isinstance(error, PythonException):
        return of_traceback(_text(error))
    found = _about(error)
    return None if found is None else Failure(found[1], found[2], tuple(found[3].splitlines()))


def of_traceback(text: str) -> Failure:
    """Of a traceback as Python prints it: its last line, and the frames that are the user's own."""
    said, within = "", False
    for line in text.splitlines():
        if line.startswith("Traceback (most recent"):
            within = True
        elif within and line.strip() and not line.startswith(" "):  # the first line after the frames
            said, within = line.strip(), False
    frames = [f"{file}:{line}" for file, line, _ in _FRAME.findall(text) if is_users(file)]
    name = said.split(":", 1)[0] or "PythonException"
    return Failure(name.rsplit(".", 1)[-1], _shortened(said or "an error of Python"), _distinct(frames))


def of_exception(error: BaseException) -> Failure:
    """Of an exception of this process."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    name = type(error).__name__
    text = " ".join(str(error).split())
    return Failure(name, _shortened(f"{name}: {text}" if text else name), _distinct(frames))


def is_users(file: str) -> bool:
    return not file.startswith(("<", _PACKAGE)) and not any(part in file for part in _NOT_THE_USERS)


def _distinct(frames: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reversed(frames)))


def _about(error: BaseException) -> list[str] | None:
    origin: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    jvm = SparkContext._jvm
    if origin is None or jvm is None:
        return None
    try:
        return [str(one) for one in jvm.penstock.isolation.Failures.about(origin)]
    except Exception:  # the JVM has gone, or is not ours
        return None


def _text(error: BaseException) -> str:
    return str(getattr(error, "_desc", None) or getattr(error, "_message", None) or error)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
