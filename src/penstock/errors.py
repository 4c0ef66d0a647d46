"""The errors that several parts of Penstock raise or catch.

    PenstockError
    ├── UsageError            exit 2: wrong use of a command
    │   └── SpecError         exit 2: the project file is wrong (one or many problems)
    ├── SetupError            exit 3: this machine lacks something (Java, network, the right jar)
    ├── QueryFailed           exit 3: a query that started but could not be answered
    ├── Transient             retried with growing delays
    │   ├── BrokerAway        no broker answered in time
    │   ├── Conflict          another writer committed first
    │   └── Fenced            an entry of a higher generation is in the ledger
    └── Terminal              stops the table; a person decides
        ├── RowRaised         an expression of the definition raised an error on a row
        ├── DataLoss          records that can no longer be read
        ├── TableChanged      a commit that Penstock did not make removed or replaced rows
        ├── ChainBroken       the batch does not start where the last one ended
        └── LockHeld          another process works on this table

The type decides about retries; the message says what happened and where, the hint what to run next.

A special case that one module raises is a subclass beside the code that raises it: JvmDied, UpstreamChanged,
CheckpointUnreadable and Unexplained in operations/causes.py, SuppressionListChanged in operations/replay.py,
TransformRaised in tables/failing_rows.py, NoJava in spark/java.py, TryAgain in dev/process.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class PenstockError(Exception):
    """What happened (message), where (where: file:line or a table), and what to do (hint)."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head}\n  -> {self.hint}" if self.hint else head


def error_document(error: PenstockError | None) -> dict[str, Any] | None:
    """An error in the documents that `--json` prints."""
    if error is None:
        return None
    return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


class UsageError(PenstockError):
    exit_code = 2


class StopRequested(BaseException):
    """Raised in the main thread by a signal handler, to interrupt its work. Not an Exception, so that nothing
    retries."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class Problem:
    """One mistake in a project file, with its place (1-based) and a hint how to correct it."""

    file: str
    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{head}\n  -> {self.hint}" if self.hint else head


class SpecError(UsageError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SetupError(PenstockError):
    pass


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Imports a library that only some projects need; if it is missing, SetupError names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise SetupError(f"{purpose} needs the package {name}", hint=f"run: pip install 'penstock[{extra}]'") from None


class QueryFailed(PenstockError):
    pass


class Transient(PenstockError):
    pass


class BrokerAway(Transient):
    pass


class Conflict(Transient):
    pass


class Fenced(Transient):
    pass


class Terminal(PenstockError):
    pass


class RowRaised(Terminal):
    """An expression of the definition raised an error on a row."""


class DataLoss(Terminal):
    pass


class TableChanged(Terminal):
    pass


class ChainBroken(Terminal):
    pass


class LockHeld(Terminal):
    pass
