"""Build the plan of a project: every default filled in, every path absolute. Also the plan as JSON, and tables by
name and by reader."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from penstock.errors import UsageError
from penstock.plan.model import EXTRA_JARS, USER_SETTING, Plan, Setting, TablePlan, maintenance_plan
from penstock.plan.sinks import sink_plan
from penstock.plan.spark_settings import session_settings
from penstock.plan.subjects import forget_plan
from penstock.plan.table import kafka_columns, table_plan
from penstock.spec.base_model import did_you_mean
from penstock.spec.graph import upstream_first
from penstock.spec.lake import lake_place
from penstock.spec.project import Project

_CLUSTER_PARALLELISM = 8
_UNSORTED_COLUMNS = ("key", "key_binary", "value", "value_binary")
_UNIQUE_COLUMNS = (*_UNSORTED_COLUMNS, "offset", "kafka_timestamp")
_LOCAL_MASTER = re.compile(r"local(?:-cluster)?\[\s*(\d+|\*)\s*(?:,\s*(\d+)\s*)?.*\]")


def build_plan(project: Project, *, cores: int | None = None) -> Plan:
    """The plan of a project. `cores` is what local[*] stands for; by default, the cores this process may use."""
    lake = lake_place(project.lake, project.root)
    parallelism = _parallelism(project, cores)
    settings, conf, secret_conf = _session_conf(project, lake, parallelism)
    return Plan(
        name=project.name,
        root=str(project.root),
        lake=lake,
        master=project.spark.master,
        parallelism=parallelism,
        conf=conf,
        settings=settings,
        tables=(
            *(table_plan(project, name, lake) for name in upstream_first(project.tables)),
            *(sink_plan(project, name, lake) for name in project.sinks),
        ),
        secret_conf=secret_conf,
        maintenance=maintenance_plan(project.maintenance),
        forget=forget_plan(project, lake),
    )


def _session_conf(
    project: Project, lake: str, parallelism: int
) -> tuple[tuple[Setting, ...], dict[str, str], dict[str, SecretStr]]:
    user_conf = {name: value for name, value in project.spark.conf.items() if isinstance(value, str)}
    secrets = {name: value for name, value in project.spark.conf.items() if isinstance(value, SecretStr)}
    defaults = session_settings(
        master=project.spark.master,
        parallelism=parallelism,
        local_lake="://" not in lake,
        tables=len(project.tables) + len(project.sinks),
        unique=_column_names(project, _UNIQUE_COLUMNS),
        opaque=_column_names(project, _UNSORTED_COLUMNS),
        memory=user_conf.get("spark.driver.memory"),
        zone=user_conf.get("spark.sql.session.timeZone"),
    )
    used_defaults = [setting for setting in defaults if setting.name not in project.spark.conf]
    conf = {setting.name: setting.value for setting in used_defaults} | user_conf
    if project.spark.jars:
        conf[EXTRA_JARS] = ",".join(
            str((project.root / Path(jar).expanduser()).absolute()) for jar in project.spark.jars
        )
    return (*used_defaults, *(Setting(name, value, USER_SETTING) for name, value in user_conf.items())), conf, secrets


def _column_names(project: Project, canonical_names: Sequence[str]) -> list[str]:
    """The names that the tables of the project give to these Kafka columns."""
    columns = [kafka_columns(table) for table in project.tables.values()]
    return sorted({names[canonical] for names in columns for canonical in canonical_names if canonical in names})


def _parallelism(project: Project, cores: int | None) -> int:
    master = project.spark.master
    if master == "local":
        return 1
    if match := _LOCAL_MASTER.fullmatch(master):
        if match[1] == "*":
            return cores or _cores()
        return int(match[1]) * (int(match[2]) if master.startswith("local-cluster") else 1)
    conf_value = project.spark.conf.get("spark.default.parallelism")
    text = conf_value.get_secret_value() if isinstance(conf_value, SecretStr) else conf_value or ""
    return int(text) if text.isdecimal() and int(text) > 0 else _CLUSTER_PARALLELISM


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def plan_document(plan: Plan, only: Collection[str] = ()) -> dict[str, Any]:
    """Everything that `run` uses as one JSON document, with secrets masked; `only` limits it to these tables."""
    document = asdict(plan)
    document["local"] = plan.local
    document["tables"] = [table for table in document["tables"] if not only or table["name"] in only]
    masked_document: dict[str, Any] = _mask_secrets(document)
    return masked_document


def _mask_secrets(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _mask_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_secrets(item) for item in value]
    return value


def select_tables(plan: Plan, names: Sequence[str]) -> list[TablePlan]:
    """The named tables in the plan's order; all if none is named."""
    table_names = [table.name for table in plan.tables]
    for name in names:
        if name not in table_names:
            raise UsageError(f"there is no table '{name}' in this project", hint=did_you_mean(name, table_names))
    return [table for table in plan.tables if not names or table.name in names]


# The readers of a table, and what happens to each when the table is rebuilt.


How = Literal["rebuilt", "recomputed", "follows", "state", "sent"]
"""rebuilt: its rows are derived from the old ones until it is rebuilt itself. recomputed: its next batch computes its
groups again. follows: it reads changes, and so receives these too. state: only Spark knows what it derived from the old
rows. sent: the old rows have left the lake."""


@dataclass(frozen=True)
class DownstreamTable:
    table: TablePlan
    effect: How


def readers_of(plan: Plan, name: str) -> list[DownstreamTable]:
    """The tables that read this one incrementally, in the plan's order."""
    return [DownstreamTable(table, rebuild_effect(table)) for table in plan.tables if name in table.upstream]


def rebuild_effect(table: TablePlan) -> How:
    if table.stream is not None:
        return "state"
    if table.source.follows_changes:
        return "follows"
    if table.sink is not None:
        return "sent"
    if table.aggregate is not None and table.aggregate.emit != "final":
        return "recomputed"
    return "rebuilt"


def tables_to_rebuild(plan: Plan, name: str) -> list[DownstreamTable]:
    """All tables to rebuild or recompute with this one, however many lie between; upstream before downstream."""
    readers: dict[str, DownstreamTable] = {}
    for table in plan.tables:
        if any(upstream == name or upstream in readers for upstream in table.upstream):
            how = rebuild_effect(table)
            if how in ("rebuilt", "recomputed"):
                readers[table.name] = DownstreamTable(table, how)
    return list(readers.values())
