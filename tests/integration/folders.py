"""A folder of files and a table over it: what was put there must be in the table, once."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.plan.sources import FilesSource
from tests.integration.run_plan import make_plan, rows, rows_at, run_well, whole_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan
    from tests.integration.run_plan import Heard

TABLE = "bronze.t"
SCHEMA = "id BIGINT NOT NULL, name STRING"


class Folder:
    """Rows are (id, name). `there` has what the table must hold: (file, row, id)."""

    def __init__(self, spark: SparkSession, root: Path, source: dict[str, Any] | None = None, **table: Any) -> None:
        self.spark, self.root, self.path = spark, root, root / "in"
        self.path.mkdir(parents=True, exist_ok=True)
        self.source = {"files": "in", "format": "json", "schema": SCHEMA, **(source or {})}
        self.plan = self.planned(**table)
        self.there: Counter[tuple[str, int, int]] = Counter()
        self._next = 0

    def planned(self, **table: Any) -> Plan:
        tables = {TABLE: {"from": {k: v for k, v in self.source.items() if v is not None}, **table}}
        return make_plan(self.root, "127.0.0.1:1", tables)

    @property
    def uri(self) -> str:
        return str(self.plan.tables[0].uri)

    def put(self, name: str, count: int = 3, *, bad: tuple[int, ...] = ()) -> None:
        """A file of JSON lines; the lines whose number is in `bad` are cut off."""
        lines = []
        for row in range(count):
            line = json.dumps({"id": self._next, "name": f"n{self._next}"})
            if row in bad:
                line = line[:-5]
            else:
                self.there[f"in/{name}", row, self._next] += 1
            lines.append(line)
            self._next += 1
        self.write(name, "".join(f"{line}\n" for line in lines))

    def write(self, name: str, text: str) -> Path:
        """Under a name that is not data, then renamed: as a writer should."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        hidden = file.with_name(f"_{file.name}")
        hidden.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        hidden.rename(file)
        return file

    def parquet(self, name: str, columns: str, *values: tuple[Any, ...]) -> Path:
        """One file, written by Spark."""
        made = self.root / f"made-{name}"
        self.spark.createDataFrame(list(values), columns).coalesce(1).write.parquet(str(made))
        (part,) = made.glob("part-*.parquet")
        return part.rename(self.path / name)

    def run(self) -> Heard:
        return run_well(self.spark, self.plan)

    def rows(self) -> list[dict[str, Any]]:
        return rows(self.plan, TABLE)

    @property
    def quarantine(self) -> list[dict[str, Any]]:
        return rows_at(f"{self.uri}__quarantine")

    def unreadable(self) -> Counter[str]:
        return Counter(row["_source"]["file"] for row in self.quarantine if row["error_reason"] == "unreadable_file")

    def ids(self) -> Counter[int]:
        return Counter(row["id"] for row in self.rows())

    def check(self) -> None:
        found = Counter((row["_source"]["file"], row["_source"]["row"], row["id"]) for row in self.rows())
        assert found == self.there
        whole_chain(self.plan, TABLE)


def source_of(plan: Plan) -> FilesSource:
    source = plan.tables[0].source
    assert isinstance(source, FilesSource)
    return source


def manifest(folder: Folder) -> Counter[str]:
    return Counter(row["path"] for row in rows_at(source_of(folder.plan).uri))
