"""A copy of a table as a folder of JSON files, one for each key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from penstock.errors import Transient
from penstock.plan.model import Setting
from penstock.plan.targets import TargetPlan
from penstock.sinks.base import DELETED, REJECTION, SendResult
from penstock.spec.sink import SinkTo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry
    from penstock.plan.model import TablePlan
    from penstock.sinks.base import Shape
    from penstock.storage.stores import Store


class FolderTo(SinkTo):
    """What a user writes: `to: {folder: /data/copies}`."""

    folder: str = Field(min_length=1)

    kind: ClassVar[str] = "folder"
    shape: ClassVar[str] = "to: {folder: copies}"


@dataclass(frozen=True)
class FolderTarget(TargetPlan):
    kind = "folder"
    folder: str

    @property
    def name(self) -> str:
        return f"folder {self.folder}"

    @property
    def promise(self) -> str:
        return "each change at least once; a repeat changes nothing"

    def decides(self) -> dict[str, Any]:
        return {"folder": True}


class FolderCopies:
    def __init__(self, sink: str, plan: FolderTarget, shape: Shape) -> None:
        self._sink, self._folder, self._shape = sink, Path(plan.folder), shape

    def ready(self, last: Entry) -> None:
        if not self._folder.is_dir():
            raise Transient(f"there is no folder {self._folder}", where=self._sink, hint="make it")

    def send(self, changes: DataFrame, entry: Entry) -> SendResult:
        sent = aside = 0
        rows = changes.selectExpr(f"{self._shape.key} AS key", f"{self._shape.value} AS value", DELETED, REJECTION)
        for key, value, deleted, left_out in rows.toLocalIterator():
            if left_out is not None:
                aside += 1
                continue
            sent += 1
            file = self._folder / f"{key}.json"
            if deleted:
                file.unlink(missing_ok=True)
            else:
                part = file.with_suffix(".part")
                part.write_text(value, encoding="utf-8")
                part.replace(file)
        return SendResult(sent, aside)


class FolderKind:
    model = FolderTo

    def plan(self, written: FolderTo, *, sink: str, root: Path) -> tuple[FolderTarget, tuple[Setting, ...]]:
        return FolderTarget(str((root / written.folder).absolute())), ()

    def open(
        self, spark: SparkSession, table: TablePlan, plan: FolderTarget, shape: Shape, store: Store
    ) -> FolderCopies:
        return FolderCopies(table.name, plan, shape)
