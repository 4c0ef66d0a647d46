"""What a contender has done so far, seen from outside: the commits that it left on disk.

The moment of a commit is the modification time of its log file: the one clock that all contenders share, Parquet
included, and finer than Delta's own milliseconds. Commits without rows (creation, genesis) do not count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Commit:
    number: int
    at: float
    rows: int


class Progress(Protocol):
    def commits(self) -> list[Commit]:
        """Every commit with rows so far, in order. Cheap to call again: only new files are read."""

    def first_batch(self) -> float | None:
        """When the first batch began: its range was known and nothing of it was read yet."""


def _first_offsets_file(folder: Path, lowest: int) -> float | None:
    """Spark writes offsets/N when the range of batch N is decided, just before it runs it."""
    try:
        numbers = sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())
        return next(((folder / str(n)).stat().st_mtime for n in numbers if n >= lowest), None)
    except FileNotFoundError:
        return None


class Offsets:
    """The moment of the first batch, remembered: Spark keeps only the last hundred offsets files."""

    def __init__(self, folder: Path, lowest: int = 0) -> None:
        self._folder, self._lowest = folder, lowest
        self._first: float | None = None

    def first_batch(self) -> float | None:
        if self._first is None:
            self._first = _first_offsets_file(self._folder, self._lowest)
        return self._first


class Marks:
    """Contenders that are not Spark write the moment of their first batch, and a reader its end, into a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def _read(self) -> dict[str, float]:
        try:
            marks: dict[str, float] = json.loads(self._file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return marks

    def first_batch(self) -> float | None:
        return self._read().get("first")

    def commits(self) -> list[Commit]:
        marks = self._read()
        return [Commit(0, marks["last"], int(marks["rows"]))] if "last" in marks else []


class DeltaProgress:
    def __init__(self, table: Path, first: Offsets | Marks) -> None:
        self._log = table / "_delta_log"
        self._first = first
        self._next = 0
        self._commits: list[Commit] = []

    def commits(self) -> list[Commit]:
        self._first.first_batch()  # remembered while its file is still there
        while (file := self._log / f"{self._next:020}.json").exists():
            try:
                rows = _rows([json.loads(line) for line in file.read_text().splitlines() if line])
            except json.JSONDecodeError:  # being written
                break
            if rows:
                self._commits.append(Commit(self._next, file.stat().st_mtime, rows))
            self._next += 1
        return self._commits

    def first_batch(self) -> float | None:
        return self._first.first_batch()


def _rows(actions: list[dict[str, Any]]) -> int:
    """Rows that a commit added: from the statistics of its files, else from the metrics of its commitInfo."""
    adds = [action["add"] for action in actions if "add" in action]
    if not adds:
        return 0
    counts = [json.loads(add.get("stats") or "{}").get("numRecords") for add in adds]
    if None not in counts:
        return sum(counts)
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return int(info.get("operationMetrics", {}).get("numOutputRows", 0))


class ParquetProgress:
    """Spark's own Parquet sink: one file per batch in `_spark_metadata`, every tenth of them `N.compact`.

    That log holds no row counts, so each batch is taken to be a full one; the verification counts for real.
    """

    def __init__(self, table: Path, first: Offsets, rows_per_batch: int) -> None:
        self._log = table / "_spark_metadata"
        self._first = first
        self._rows = rows_per_batch
        self._commits: list[Commit] = []

    def commits(self) -> list[Commit]:
        self._first.first_batch()  # remembered while its file is still there
        while True:
            number = len(self._commits)
            plain, compact = self._log / str(number), self._log / f"{number}.compact"
            file = plain if plain.exists() else compact
            if not file.exists():
                return self._commits
            self._commits.append(Commit(number, file.stat().st_mtime, self._rows))

    def first_batch(self) -> float | None:
        return self._first.first_batch()
