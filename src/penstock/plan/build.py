"""Project to Plan: every default filled in, every path absolute; the plan as JSON; tables by name and by who reads
them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from penstock.errors import UsageError
from penstock.plan.model import EXTRA_JARS, YOURS, Plan, Setting, TablePlan, maintenance_plan
from penstock.plan.sinks import sink_plan
from penstock.plan.spark_settings import session_settings
from penstock.plan.subjects import forget_plan
from penstock.plan.table import kafka_columns, table_plan
from penstock.spec.base_model import did_you_mean
from penstock.spec.graph import in_order
from penstock.spec.lake import lake_place
from penstock.spec.project import Project

# Project to Plan: every default filled in, every path absolute, every choice with its reason.


_CLUSTER_PARALLELISM = 8
_OPAQUE = ("key", "key_binary", "value", "value_binary")
_UNIQUE = (*_OPAQUE, "offset", "kafka_timestamp")
_LOCAL = re.compile(r"local(?:-cluster)?\[\s*(\d+|\*)\s*(?:,\s*(\d+)\s*)?.*\]")


def build_plan(project: Project, *, cores: int | None = None) -> Plan:
    """The plan of a project. `cores` is what local[*] means: by default what this machine has for us."""
    lake = lake_place(project.lake, project.root)
    parallelism = _parallelism(project, cores)
    settings, conf, secret_conf = _session(project, lake, parallelism)
    return Plan(
        name=project.name,
        root=str(project.root),
        lake=lake,
        master=project.spark.master,
        parallelism=parallelism,
        conf=conf,
        settings=settings,
        tables=(
            *(table_plan(project, name, lake) for name in in_order(project.tables)),
            *(sink_plan(project, name, lake) for name in project.sinks),
        ),
        secret_conf=secret_conf,
        maintenance=maintenance_plan(project.maintenance),
        forget=forget_plan(project, lake),
    )


def _session(
    project: Project, lake: str, parallelism: int
) -> tuple[tuple[Setting, ...], dict[str, str], dict[str, SecretStr]]:
    users = {name: value for name, value in project.spark.conf.items() if isinstance(value, str)}
    secrets = {name: value for name, value in project.spark.conf.items() if isinstance(value, SecretStr)}
    chosen = session_settings(
        master=project.spark.master,
        parallelism=parallelism,
        local_lake="://" not in lake,
        tables=len(project.tables) + len(project.sinks),
        unique=_named(project, _UNIQUE),
        opaque=_named(project, _OPAQUE),
        memory=users.get("spark.driver.memory"),
        zone=users.get("spark.sql.session.timeZone"),
    )
    kept = [setting for setting in chosen if setting.name not in project.spark.conf]
    conf = {setting.name: setting.value for setting in kept} | users
    if project.spark.jars:
        conf[EXTRA_JARS] = ",".join(
            str((project.root / Path(jar).expanduser()).absolute()) for jar in project.spark.jars
        )
    return (*kept, *(Setting(name, value, YOURS) for name, value in users.items())), conf, secrets


def _named(project: Project, wanted: Sequence[str]) -> list[str]:
    """What the tables call these columns of Kafka's."""
    columns = [kafka_columns(table) for table in project.tables.values()]
    return sorted({names[column] for names in columns for column in wanted if column in names})


def _parallelism(project: Project, cores: int | None) -> int:
    master = project.spark.master
    if master == "local":
        return 1
    if match := _LOCAL.fullmatch(master):
        if match[1] == "*":
            return cores or _cores()
        return int(match[1]) * (int(match[2]) if master.startswith("local-cluster") else 1)
    given = project.spark.conf.get("spark.default.parallelism")
    text = given.get_secret_value() if isinstance(given, SecretStr) else given or ""
    return int(text) if text.isdecimal() and int(text) > 0 else _CLUSTER_PARALLELISM


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# A plan as one JSON document. Secrets are stars.


def plan_document(plan: Plan, only: Collection[str] = ()) -> dict[str, Any]:
    """Everything that `run` uses; with `only`, of these tables."""
    document = asdict(plan)
    document["local"] = plan.local
    document["tables"] = [table for table in document["tables"] if not only or table["name"] in only]
    starred: dict[str, Any] = _starred(document)
    return starred


def _starred(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _starred(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_starred(item) for item in value]
    return value


# Tables by their names, as a user types them.


def choose(plan: Plan, names: Sequence[str]) -> list[TablePlan]:
    """The named tables in the plan's order; all if none is named."""
    known = [table.name for table in plan.tables]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no table '{name}' in this project", hint=did_you_mean(name, known))
    return [table for table in plan.tables if not names or table.name in names]


# Who reads a table, and what becomes of them when all of its rows are made anew.


How = Literal["rebuilt", "recomputed", "follows", "state", "sent"]
"""rebuilt: it has rows made of the old ones, until it is made anew itself. recomputed: groups, which its next batch
computes again. follows: it reads the changes, and gets these. state: only Spark knows what it made of the old rows.
sent: they have left the lake."""


@dataclass(frozen=True)
class TableReader:
    table: TablePlan
    how: How


def readers_of(plan: Plan, name: str) -> list[TableReader]:
    """Those that read it as it grows, in the plan's order."""
    return [TableReader(table, how_it_reads(table)) for table in plan.tables if name in table.upstream]


def how_it_reads(table: TablePlan) -> How:
    if table.stream is not None:
        return "state"
    if table.source.follows_changes:
        return "follows"
    if table.sink is not None:
        return "sent"
    if table.aggregate is not None and table.aggregate.emit != "final":
        return "recomputed"
    return "rebuilt"


def made_of(plan: Plan, name: str) -> list[TableReader]:
    """All that has to be made anew with it, however many tables lie between, upstream before downstream."""
    found: dict[str, TableReader] = {}
    for table in plan.tables:
        if any(one == name or one in found for one in table.upstream):
            how = how_it_reads(table)
            if how in ("rebuilt", "recomputed"):
                found[table.name] = TableReader(table, how)
    return list(found.values())
