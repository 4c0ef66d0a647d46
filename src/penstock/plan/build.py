"""Project to Plan: every default filled in, every path absolute, every choice with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from penstock.plan.maintenance import maintenance_plan
from penstock.plan.model import EXTRA_JARS, Plan, Setting
from penstock.plan.settings import YOURS, session_settings
from penstock.plan.sink import sink_plan
from penstock.plan.subjects import forget_plan
from penstock.plan.table import kafka_columns, table_plan
from penstock.spec.graph import in_order
from penstock.spec.lake import lake_place
from penstock.spec.project import Project

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
