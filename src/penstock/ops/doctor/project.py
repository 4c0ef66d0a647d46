"""The checks that need neither the lake nor a broker: the project file, its secrets, its connections, the set-up."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.ops.doctor import secrets, security, versions
from penstock.ops.doctor.check import About, Check
from penstock.plan.kafka import cluster_plan
from penstock.plan.model import Cluster, Plan
from penstock.plan.target import POSTGRES, ChangeSink, JdbcTarget, KafkaTarget
from penstock.spec.document import Document, parse
from penstock.spec.load import FILE
from penstock.spec.project import Project


def project_checks(project: Project, plan: Plan) -> Iterator[Check]:
    yield versions.packages(versions.wanted_packages(), versions.installed_packages())
    yield versions.java()
    yield from versions.jars(_sets(plan))
    document = _document(project.root / FILE)
    if document is None:
        yield About("secrets.plain").unknown(f"{project.root / FILE} cannot be read")
    else:
        yield secrets.plain(list(secrets.in_clear(document)), readable=_readable(project.root / FILE))
    clusters = _clusters(project)
    keys = [Path(cluster.key_file) for cluster in clusters if cluster.key_file]
    named = secrets.named_files(document, project.root) if document is not None else []
    yield from security.files([*keys, *named], _project_files(plan))
    for cluster in clusters:
        yield security.kafka(cluster)
    for table in plan.tables:
        if isinstance(table.sink, ChangeSink) and not isinstance(table.sink.target, KafkaTarget):
            yield security.target(table.name, table.sink.target)


def _clusters(project: Project) -> list[Cluster]:
    found = [cluster_plan(None, project.kafka, project.root)] if project.kafka is not None else []
    return found + [cluster_plan(name, one, project.root) for name, one in project.clusters.items()]


def _sets(plan: Plan) -> list[str]:
    """The jars that a run of this project loads."""
    sinks = [table.sink.target for table in plan.tables if isinstance(table.sink, ChangeSink)]
    postgres = any(isinstance(one, JdbcTarget) and one.url.startswith(POSTGRES) for one in sinks)
    return ["spark", "postgres"] if postgres else ["spark"]


def _project_files(plan: Plan) -> list[Path]:
    """What decides which code runs."""
    found = [Path(plan.root) / FILE]
    for table in plan.tables:
        transform = table.stages.transform if table.stages is not None else None
        found += [Path(one.file) for one in (transform, table.stream) if one is not None and one.file is not None]
    return list(dict.fromkeys(found))


def _document(file: Path) -> Document | None:
    try:
        document = parse(file.read_text(encoding="utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError):
        return None
    return None if document.problems else document


def _readable(file: Path) -> bool:
    """By every user of the machine."""
    return bool(file.stat().st_mode & stat.S_IROTH)
