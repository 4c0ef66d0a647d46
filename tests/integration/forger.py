"""A forger of lakes: it takes rows away, adds, exchanges and changes them, in the log of a table and behind it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from penstock.ledger.entry import dump
from penstock.storage.stores import LocalStore
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.report import Report, report_document
from penstock.verify.table import verify
from tests.integration.run_plan import log, make_plan, run_well
from tests.parquet_pages import largest_chunk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.model import Plan, TablePlan

METADATA = "spark.databricks.delta.commitInfo.userMetadata"
SCHEMA = "id BIGINT, n INT, op STRING, city STRING"
DECODE = {"json": "value", "schema": SCHEMA}
BRONZE = {"from": {"table": "bronze.t"}, "decode": DECODE}
MERGE = {"keys": ["id"], "sequence": "n", "delete_when": "op = 'd'"}


def tables(topic: str, folder: str) -> dict[str, Any]:
    return {
        "bronze.t": {"from": {"kafka": topic}},
        "silver.t": {
            **BRONZE,
            "expect": [{"name": "small", "check": "n < 60"}, {"name": "no3", "check": "n % 10 <> 3", "action": "drop"}],
            "dedupe": {"keys": ["id"]},
        },
        "silver.m": {**BRONZE, "write": {"merge": MERGE, "change_feed": True}},
        "silver.h": {**BRONZE, "write": {"merge": {**MERGE, "history": "scd2"}}},
        "silver.p": {**BRONZE, "write": {"merge": {**MERGE, "ignore_null_updates": True}}},
        "silver.copy": {"from": {"changes": "silver.m"}, "write": {"merge": {"keys": ["id"]}}},
        "silver.past": {"from": {"changes": "silver.m"}, "write": {"merge": {"keys": ["id"], "history": "scd2"}}},
        "silver.sql": {**BRONZE, "sql": "SELECT id, n * 2 AS twice, _source FROM t"},
        "audit.m": {"from": {"changes": "silver.m"}, "audit": {"keys": ["id"]}},
        "gold.t": {"from": {"table": "silver.t"}, "aggregate": {"keys": ["city"], "metrics": {"rows": "count(*)"}}},
        "files.t": {"from": {"files": folder, "format": "json", "schema": "id BIGINT, city STRING"}},
        "files.q": {
            "from": {"files": folder, "format": "json", "schema": "id BIGINT, city STRING"},
            "expect": [{"name": "no3", "check": "id % 10 <> 3"}],
        },
        "gold.seen": {"from": {"table": "silver.t"}, "stream": "streams.py:seen"},
    }


def records(first: int, count: int) -> list[dict[str, Any]]:
    """Ids come again after 25, and lose their city now and then; some are deleted, and some of those come back."""
    return [
        {
            "id": n % 25,
            "n": n,
            "op": "d" if n % 11 == 0 else "u",
            **({} if n % 4 == 0 else {"city": f"city-{n % 3}"}),
        }
        for n in range(first, first + count)
    ]


@dataclass(frozen=True)
class Lake:
    """`folder` holds the project. What is forged is forged in a copy."""

    spark: SparkSession
    folder: Path
    bootstrap: str
    topic: str
    names: tuple[str, ...] = ()
    """Its tables; all if none is named."""

    @property
    def plan(self) -> Plan:
        made = tables(self.topic, "in")
        return make_plan(self.folder, self.bootstrap, {name: made[name] for name in self.names or made})

    def land(self, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for one in records(first, count):
            producer.produce(self.topic, json.dumps(one), partition=one["n"] % 2)
        assert producer.flush(30) == 0
        lines = "".join(json.dumps({"id": n, "city": f"city-{n}"}) + "\n" for n in range(first, first + count))
        (self.folder / "in").mkdir(exist_ok=True)
        (self.folder / "streams.py").write_text("def seen(input):\n    return input.where('id IS NOT NULL')\n")
        (self.folder / "in" / f"{first}.json").write_text(lines)
        run_well(self.spark, self.plan)

    def copy(self, folder: Path) -> Lake:
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return replace(self, folder=folder)

    def table(self, name: str) -> TablePlan:
        found = self.plan.table(name)
        assert found is not None
        return found

    def reports(self, *names: str, deep: bool) -> dict[str, Report]:
        plan = self.plan
        chosen = [table for table in plan.tables if not names or table.name in names]
        found = verify(chosen, LocalStore(), known=plan.tables)
        run_checks_in(self.spark, plan, tables_to_check(chosen, found, deep=deep), LocalStore(), deep=deep)
        for one in found:
            report_document(one)
        return {one.table: one for one in found}


@dataclass(frozen=True)
class Forger:
    """At work on one table of a lake: `uri` is it, or its quarantine."""

    lake: Lake
    name: str

    @property
    def spark(self) -> SparkSession:
        return self.lake.spark

    @property
    def uri(self) -> str:
        return f"{self.lake.folder}/lake/{self.name.replace('.', '/')}"

    def rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.uri)

    def files(self) -> list[Path]:
        """Those of the newest version, the largest first."""
        listed = self.spark.read.format("delta").load(self.uri).inputFiles()
        found = [Path(self.uri) / Path(one.removeprefix("file://")).name for one in listed]
        return sorted(found, key=lambda one: one.stat().st_size, reverse=True)

    # Behind the log.

    def lose_a_file(self) -> None:
        self.files()[0].unlink()

    def cut_a_file(self) -> None:
        file = self.files()[0]
        file.write_bytes(file.read_bytes()[:-12])
        _without_checksum(file)

    def spoil_a_page(self) -> None:
        """One bit of a page, so that its rows are others or cannot be read: its size and its statistics are as they
        were, and the checksum beside it is gone."""
        file = self.files()[0]
        whole = file.read_bytes()
        before = self._content(file)
        begin, end = largest_chunk(file)
        for at in range(end - 1, begin, -1):
            spoiled = bytearray(whole)
            spoiled[at] ^= 0x10
            file.write_bytes(bytes(spoiled))
            _without_checksum(file)
            if self._content(file) != before:
                return
        raise AssertionError("no bit of the file matters")

    def _content(self, file: Path) -> list[str] | None:
        """The rows of a file; None if it cannot be read."""
        try:
            return sorted(map(str, self.spark.read.parquet(str(file)).collect()))
        except Exception:
            return None

    def exchange(self, change: Callable[[DataFrame], DataFrame]) -> None:
        """A file by another of the same name; the log is told its size, so that nothing but the rows can tell."""
        for file in self.files():
            rows = self.spark.read.parquet(str(file))
            forged = change(rows).collect()
            if sorted(map(str, forged)) != sorted(map(str, rows.collect())):
                break
        else:
            raise AssertionError("no file has rows that the forgery changes")
        self.spark.createDataFrame(forged, rows.schema).coalesce(1).write.parquet(f"{self.uri}-new")
        (written,) = Path(f"{self.uri}-new").glob("*.parquet")
        was = file.stat().st_size
        shutil.copyfile(written, file)
        shutil.rmtree(f"{self.uri}-new")
        _without_checksum(file)
        for commit in Path(self.uri, "_delta_log").glob("*.json"):
            text = commit.read_text()
            if file.name in text:
                commit.write_text(text.replace(f'"size":{was}', f'"size":{file.stat().st_size}'))
                _without_checksum(commit)

    # In the log, by commits that say they are Penstock's own.

    def as_penstock(self, *texts: str, kind: str = "carry") -> None:
        table = self.lake.table(self.name)
        last = next(one.entry for one in reversed(log(table).since(-1)) if one.entry is not None)
        entry = replace(last, kind=kind)  # type: ignore[arg-type]
        if kind == "batch":  # the next one, which has read nothing
            entry = replace(entry, batch=last.batch + 1, before=last.after)
        self.spark.conf.set(METADATA, dump(entry))
        try:
            for text in texts:
                self.spark.sql(text.replace(" T ", f" delta.`{self.uri}` "))
        finally:
            self.spark.conf.unset(METADATA)

    def as_compaction(self, change: Callable[[DataFrame], DataFrame]) -> None:
        """All rows are written again by a commit that says it changes none."""
        rows = self.rows()
        forged = change(rows).collect()
        assert sorted(map(str, forged)) != sorted(map(str, rows.collect())), "the forgery changes nothing"
        kept = self.spark.createDataFrame(forged, rows.schema).coalesce(1)
        kept.write.format("delta").mode("overwrite").option("dataChange", "false").save(self.uri)

    def lose_an_add(self) -> None:
        """The newest commit that has put files in no longer does."""
        for commit in sorted(Path(self.uri, "_delta_log").glob("*.json"), reverse=True):
            lines = commit.read_text().split("\n")
            kept = [line for line in lines if not line.startswith('{"add"')]
            if kept != lines:
                commit.write_text("\n".join(kept))
                for checksum in Path(self.uri, "_delta_log").glob("*.crc"):
                    checksum.unlink()
                return
        raise AssertionError("no commit put a file in")

    def miscount(self) -> None:
        """The newest batch says that it wrote one row more."""
        for commit in sorted(Path(self.uri, "_delta_log").glob("*.json"), reverse=True):
            text = commit.read_text()
            lines = [json.loads(line) for line in text.split("\n") if line]
            info = next(one["commitInfo"] for one in lines if "commitInfo" in one)
            rows = (info.get("operationMetrics") or {}).get("numOutputRows")
            if rows and int(rows) > 0:
                info["operationMetrics"]["numOutputRows"] = str(int(rows) + 1)
                commit.write_text("\n".join(json.dumps(one) for one in lines) + "\n")
                _without_checksum(commit)
                return
        raise AssertionError("no batch wrote a row")


def without(condition: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.where(f"NOT coalesce({condition}, false)")


def twice(rows: DataFrame) -> DataFrame:
    return rows.union(rows.limit(1))


def changed(column: str, value: str) -> Callable[[DataFrame], DataFrame]:
    """In the rows that have the lowest value."""

    def change(rows: DataFrame) -> DataFrame:
        lowest = f"{column} <=> min({column}) OVER ()"
        return rows.selectExpr(
            *(f"IF({lowest}, {value}, {n}) AS {n}" if n == column else f"`{n}`" for n in rows.columns)
        )

    return change


def _without_checksum(file: Path) -> None:
    """Hadoop's own file beside it would tell."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
