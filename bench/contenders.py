"""Who runs: Penstock (P) and the hand-written jobs. Each entry is a command and a way to see its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bench.filled import TABLE as MERGED
from bench.filled import Filled
from bench.jobs.job import FIELDS, JobFile
from bench.jobs.replay_job import ReplayFile
from bench.product import Chosen, penstock, read_plan, write_project
from bench.progress import DeltaProgress, Marks, Offsets, ParquetProgress, Progress
from bench.replayed import BRONZE, RULE_NOW, SILVER, UNIQUE, Lake, Made, check_replayed
from bench.stock import stock_conf, tuned_conf
from bench.verify import Offsets as Expected
from bench.verify import check_delta, check_merged, check_parquet, check_typed, records

TABLE = "bronze.events"
TYPED = {
    "decode": {"json": "value", "schema": ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())},
    "expect": [{"name": "has_id", "check": "order_id IS NOT NULL"}, {"name": "positive", "check": "amount > 0"}],
}


@dataclass(frozen=True)
class Task:
    """Land one topic, `per_batch` records at a time, everything below `folder`."""

    folder: Path
    bootstrap: str
    topic: str
    per_batch: int
    filled: Filled | None = None
    """The tables that a merge begins with."""
    lake: Lake | None = None
    """What a replay begins with."""


@dataclass(frozen=True)
class Entry:
    argv: list[str]
    progress: Progress
    check: Callable[[Expected], str | None]


@dataclass(frozen=True)
class Contender:
    name: str
    what: str
    enter: Callable[[Task], Entry]


def chosen_for(task: Task, stages: Mapping[str, Any] | None = None) -> Chosen:
    """The project of a task and what Penstock chose for it."""
    project = task.folder / "project"
    write_project(project, task.bootstrap, {TABLE: task.topic}, per_batch=task.per_batch, stages=stages)
    return read_plan(project)


def _penstock(task: Task) -> Entry:
    return _run(task, chosen_for(task), check_delta)


def _typed(task: Task) -> Entry:
    return _run(task, chosen_for(task, TYPED), check_typed)


def _run(task: Task, chosen: Chosen, check: Callable[[Path, Expected], str | None]) -> Entry:
    table = chosen.tables[TABLE]
    # Batch 0 is the seed of the checkpoint, not a batch that ran.
    first = Offsets(chosen.checkpoints[TABLE] / "1" / "offsets", lowest=1)
    return Entry(
        penstock(task.folder / "project", "run", "--once"),
        DeltaProgress(table, first),
        lambda expected: check(table, expected),
    )


def _job(task: Task) -> JobFile:
    return JobFile(
        bootstrap=task.bootstrap,
        topic=task.topic,
        per_batch=task.per_batch,
        table=str(task.folder / "table"),
        checkpoint=str(task.folder / "checkpoint"),
        marks=str(task.folder / "marks.json"),
    )


def _command(task: Task, script: str, job: JobFile) -> list[str]:
    file = task.folder / "job.json"
    job.write(file)
    return [sys.executable, "-m", f"bench.jobs.{script}", str(file)]


def _tuned(task: Task) -> JobFile:
    chosen = chosen_for(task)
    return replace(
        _job(task),
        master=chosen.master,
        conf=tuned_conf(dict(chosen.conf)),
        kafka=dict(chosen.kafka),
        properties=dict(chosen.properties),
    )


def _by_hand(task: Task) -> Entry:
    return _spark(task, _tuned(task))


def _stock(task: Task) -> Entry:
    return _spark(task, replace(_job(task), master=chosen_for(task).master, conf=stock_conf()))


def _spark(task: Task, job: JobFile) -> Entry:
    table = Path(job.table)
    progress = DeltaProgress(table, Offsets(Path(job.checkpoint) / "offsets"))
    return Entry(_command(task, "spark_job", job), progress, lambda expected: check_delta(table, expected))


def _typed_by_hand(task: Task) -> Entry:
    chosen = chosen_for(task, TYPED)
    job = replace(_job(task), master=chosen.master, conf=tuned_conf(dict(chosen.conf)), kafka=dict(chosen.kafka))
    return _spark(task, replace(job, properties=dict(chosen.properties), decode="from_json"))


def _typed_stock(task: Task) -> Entry:
    return _spark(task, replace(_job(task), conf=stock_conf(), decode="from_json"))


def _by_field(task: Task) -> Entry:
    return _spark(task, replace(_job(task), conf=stock_conf(), decode="get_json_object"))


def _parquet(task: Task) -> Entry:
    job = replace(_tuned(task), sink="parquet", properties=None)
    table = Path(job.table)
    progress = ParquetProgress(table, Offsets(Path(job.checkpoint) / "offsets"), task.per_batch)
    return Entry(_command(task, "spark_job", job), progress, lambda expected: check_parquet(table, expected))


def _loop(task: Task) -> Entry:
    return _python(task, _job(task))


def _tuned_loop(task: Task) -> Entry:
    return _python(task, replace(_job(task), far_ahead=True))


def _python(task: Task, job: JobFile) -> Entry:
    table = Path(job.table)
    progress = DeltaProgress(table, Marks(Path(job.marks)))
    return Entry(_command(task, "loop_job", job), progress, lambda expected: check_delta(table, expected))


def _discard(task: Task) -> Entry:
    job = _job(task)
    progress = Marks(Path(job.marks))

    def check(expected: Expected) -> str | None:
        rows = sum(commit.rows for commit in progress.commits())
        return None if rows == records(expected) else f"{rows} of {records(expected)} records"

    return Entry(_command(task, "discard_job", job), progress, check)


def _merge(task: Task) -> Entry:
    assert task.filled is not None
    project = task.folder / "project"
    task.filled.copy("project", project)
    chosen = read_plan(project)
    return _merged(task.filled, penstock(project, "run", "--once"), chosen.tables[MERGED], chosen.checkpoints[MERGED])


def _merge_by_hand(task: Task) -> Entry:
    assert task.filled is not None
    chosen = read_plan(task.filled.folder / "project")
    job = replace(_job(task), master=chosen.master, conf=tuned_conf(dict(chosen.conf)), kafka=dict(chosen.kafka))
    task.filled.copy("tuned", Path(job.table))
    return _merged(task.filled, _command(task, "merge_job", job), Path(job.table), Path(job.checkpoint))


def _merge_stock(task: Task) -> Entry:
    assert task.filled is not None
    job = replace(_job(task), conf=stock_conf())
    task.filled.copy("stock", Path(job.table))
    return _merged(task.filled, _command(task, "merge_job", job), Path(job.table), Path(job.checkpoint))


def _merged(filled: Filled, command: list[str], table: Path, checkpoint: Path) -> Entry:
    # Only the gaps between commits count here, so it does not matter which folder of offsets is looked at.
    progress = DeltaProgress(table, Offsets(checkpoint / "offsets"))
    return Entry(command, progress, lambda expected: check_merged(table, filled.rows, records(expected)))


def _replay(task: Task, name: str = SILVER) -> Entry:
    assert task.lake is not None
    lake, project = task.lake, task.folder / "project"
    table = lake.copy(project).tables[name]
    quarantine = Path(f"{table}__quarantine")
    return Entry(
        penstock(project, "replay", name, "--yes"),
        Made(table, quarantine),
        lambda _: check_replayed(lake, table, quarantine, unique=name == UNIQUE),
    )


def _replay_unique(task: Task) -> Entry:
    return _replay(task, UNIQUE)


def _replay_by_hand(
    task: Task, rejected: Literal["read again", "kept", "left out"], *, unique: bool = False, stock: bool = False
) -> Entry:
    assert task.lake is not None
    lake = task.lake
    chosen = read_plan(lake.folder / "project")
    job = ReplayFile(
        master=chosen.master,
        conf=stock_conf() if stock else tuned_conf(dict(chosen.conf)),
        bronze=str(chosen.tables[BRONZE]),
        version=lake.version,
        rule=f"parsed.order_id IS NOT NULL AND parsed.{RULE_NOW}",
        table=str(task.folder / "table"),
        quarantine=str(task.folder / "quarantine"),
        properties={} if stock else dict(chosen.properties_of[SILVER]),
        marks=str(task.folder / "marks.json"),
        rejected=rejected,
        unique=unique,
    )
    file = task.folder / "job.json"
    job.write(file)
    quarantine = None if rejected == "left out" else Path(job.quarantine)
    return Entry(
        [sys.executable, "-m", "bench.jobs.replay_job", str(file)],
        Marks(Path(job.marks)),
        lambda _: check_replayed(lake, Path(job.table), quarantine, unique=unique),
    )


def _twice(task: Task) -> Entry:
    return _replay_by_hand(task, "read again")


def _kept(task: Task) -> Entry:
    return _replay_by_hand(task, "kept")


def _good_alone(task: Task) -> Entry:
    return _replay_by_hand(task, "left out")


def _twice_stock(task: Task) -> Entry:
    return _replay_by_hand(task, "read again", stock=True)


def _twice_unique(task: Task) -> Entry:
    return _replay_by_hand(task, "read again", unique=True)


_ALL = (
    Contender("P", "penstock run --once", _penstock),
    Contender("a", "PySpark by hand, native Delta sink, Penstock's own settings", _by_hand),
    Contender("a again", "the same once more: the noise between equals", _by_hand),
    Contender("a'", "PySpark by hand, native Delta sink, stock settings", _stock),
    Contender("c", "Python loop of confluent-kafka and deltalake, offsets in the commit", _loop),
    Contender("c+", "the same with the client's fetches and queues enlarged 16 times and more", _tuned_loop),
    Contender("d", "consume and discard, the client as in c+: the limit", _discard),
    Contender("T", "penstock run --once, typed and validated, bad records in quarantine", _typed),
    Contender("t", "PySpark by hand, from_json, nothing validated, Penstock's own settings", _typed_by_hand),
    Contender("t'", "the same with stock settings", _typed_stock),
    Contender("g'", "one get_json_object per field, stock settings", _by_field),
    Contender("M", "penstock run --once, typed, merged by key into a table that is full", _merge),
    Contender("h", "PySpark by hand: foreachBatch and Delta's MERGE; Penstock's own settings", _merge_by_hand),
    Contender("h'", "the same with stock settings", _merge_stock),
    Contender("R", "penstock replay, one rule changed", _replay),
    Contender("b", "PySpark by hand: bronze read twice, good rows and rejected ones; Penstock's own settings", _twice),
    Contender("b+", "the same, what was parsed kept in memory and on disk in between", _kept),
    Contender("b0", "the same for the good rows alone: the rejected ones are lost", _good_alone),
    Contender("b'", "b with stock settings", _twice_stock),
    Contender("Rd", "penstock replay of a table with dedupe", _replay_unique),
    Contender("bd", "b, and of the rows with the same key the first", _twice_unique),
    Contender("parquet", "PySpark by hand, plain Parquet sink, Penstock's own settings", _parquet),
)
CONTENDERS: Mapping[str, Contender] = {contender.name: contender for contender in _ALL}
