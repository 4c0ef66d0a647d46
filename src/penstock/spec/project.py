"""A project: the whole of penstock.yml, or the same built in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.base_model import Finding, KeyPath, SpecModel, did_you_mean, quote_value, refuse, wrong
from penstock.spec.graph import graph_findings, sink_findings
from penstock.spec.kafka_cluster import KafkaCluster
from penstock.spec.kafka_source import KafkaFrom, MaxPerTrigger
from penstock.spec.lake import lake_place, lake_uri
from penstock.spec.maintenance import Maintenance, maintenance_findings
from penstock.spec.referenced_files import cluster_file_findings, jar_findings, table_file_findings
from penstock.spec.sink import KafkaTo, Sink, sink_name_findings
from penstock.spec.spark import Spark
from penstock.spec.subjects import Forget, column_findings
from penstock.spec.table import Table, Trigger, name_findings

DEFAULT_CLUSTER = "default"
"""What the cluster under the top-level `kafka:` is called."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_CLUSTER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_LATER = "remove it for now"


def _name(value: Any) -> Any:
    if isinstance(value, str) and not _NAME.fullmatch(value):
        raise wrong(
            f"{quote_value(value)} cannot name a project", "write letters, digits, dots, dashes and underscores"
        )
    return value


class Defaults(SpecModel):
    """What tables have that do not say it themselves."""

    trigger: Trigger | None = None
    max_per_trigger: MaxPerTrigger | None = None

    shape: ClassVar[str] = "a mapping: {trigger: 30s}"


class Project(SpecModel):
    """Built in Python, values are taken as they are (no `${...}`), and a mistake is a pydantic ValidationError."""

    name: Annotated[str, BeforeValidator(_name)] = Field(examples=["shop"])
    lake: Annotated[str, BeforeValidator(lake_uri)] = Field(examples=["./lake"])
    kafka: KafkaCluster | None = None
    clusters: dict[str, KafkaCluster] = Field(default={}, examples=["{eu: {bootstrap: host:9092}}"])
    spark: Spark = Spark()
    defaults: Defaults = Defaults()
    tables: dict[str, Table] = Field(examples=["{bronze.orders: {from: {kafka: orders}}}"])
    sinks: dict[str, Sink] = Field(default={}, examples=["{out: {from: {table: gold.alerts}, to: {kafka: alerts}}}"])
    maintenance: Maintenance = Maintenance()
    forget: Forget = Forget()
    root: Path = Field(default_factory=Path.cwd)
    """The project folder: relative paths start here."""

    python_only: ClassVar[frozenset[str]] = frozenset({"root"})
    later: ClassVar[dict[str, str]] = {"alerts": _LATER}
    shape: ClassVar[str] = "a mapping: name, lake, kafka and tables"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is not None and isinstance(data, dict):
            return {**data, "root": info.context["root"]}
        return data

    @classmethod
    def look(cls, data: Mapping[str, Any]) -> list[Finding]:
        return _key_findings(data)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        clusters: dict[KeyPath, KafkaCluster] = {("clusters", key): cluster for key, cluster in self.clusters.items()}
        if self.kafka:
            clusters[("kafka",)] = self.kafka
        findings = [*cluster_file_findings(clusters, self.root), *jar_findings(self.spark.jars, self.root)]
        for name, table in self.tables.items():
            findings += table_file_findings(name, table, self.root)
            findings += [finding.below(("tables", name)) for finding in column_findings(table, self.root)]
        findings += [finding.below(("tables",)) for finding in graph_findings(self.tables)]
        findings += [finding.below(("sinks",)) for finding in sink_findings(self.sinks, self.tables)]
        findings += [
            finding.below(("maintenance",))
            for finding in maintenance_findings(self.maintenance, (*self.tables, *self.sinks))
        ]
        findings += _state_findings(self)
        refuse(findings)
        return self

    def cluster(self, name: str | None) -> KafkaCluster:
        """The cluster that a table names; without a name the one under the top-level `kafka:`."""
        cluster = self.kafka if name in (None, DEFAULT_CLUSTER) else self.clusters.get(str(name))
        assert cluster is not None, f"{name}: checked when the project was made"
        return cluster


def _state_findings(project: Project) -> list[Finding]:
    """Without our locks each runner starts its own checkpoint, and what Spark keeps in the old one is lost."""
    if "://" not in lake_place(project.lake, project.root):
        return []
    hint = "keep that table in a project whose lake is a folder; aggregate and dedupe work on every lake"
    return [
        Finding(("tables", name, "stream"), "'stream' needs a lake on a local folder", hint, at_key=True)
        for name, table in project.tables.items()
        if table.stream is not None
    ]


def _key_findings(data: Mapping[str, Any]) -> list[Finding]:
    findings: list[Finding] = []
    tables, sinks, clusters = data.get("tables"), data.get("sinks"), data.get("clusters")
    cluster_names = [str(key) for key in clusters] if isinstance(clusters, dict) else []
    for key in cluster_names:
        if not _CLUSTER.fullmatch(key) or key == DEFAULT_CLUSTER:
            hint = "write letters, digits, - and _; 'default' is the one under kafka:"
            findings.append(Finding(("clusters", key), f"'{key}' cannot name a cluster", hint, at_key=True))
    if isinstance(sinks, dict):
        table_names = [str(name) for name in tables] if isinstance(tables, dict) else []
        findings += [finding.below(("sinks",)) for finding in sink_name_findings(list(map(str, sinks)), table_names)]
        for name, sink in sinks.items():
            findings += [finding.below(("sinks", str(name))) for finding in _target_findings(sink, data, cluster_names)]
    if not isinstance(tables, dict):
        return findings
    if not tables:
        findings.append(Finding(("tables",), "there are no tables", "write bronze.orders: {from: {kafka: orders}}"))
    findings += [finding.below(("tables",)) for finding in name_findings(list(map(str, tables)))]
    for name, table in tables.items():
        findings += [finding.below(("tables", str(name))) for finding in _cluster_findings(table, data, cluster_names)]
    return findings


def _cluster_findings(table: Any, data: Mapping[str, Any], cluster_names: list[str]) -> list[Finding]:
    if isinstance(table, Table):
        table = {"source": table.source}
    key = "from" if isinstance(table, dict) and "from" in table else "source"
    source = table.get(key) if isinstance(table, dict) else None
    if isinstance(source, KafkaFrom):
        source = {"kafka": source.kafka, "cluster": source.cluster}
    return _cluster_reference_findings(source, key, data, cluster_names)


def _target_findings(sink: Any, data: Mapping[str, Any], cluster_names: list[str]) -> list[Finding]:
    target = sink.to if isinstance(sink, Sink) else sink.get("to") if isinstance(sink, dict) else None
    if isinstance(target, KafkaTo):
        target = {"kafka": target.kafka, "cluster": target.cluster}
    return _cluster_reference_findings(target, "to", data, cluster_names)


def _cluster_reference_findings(
    section: Any, key: str, data: Mapping[str, Any], cluster_names: list[str]
) -> list[Finding]:
    """`section` is a source or a target as written; `key` is its key in the project file."""
    if not isinstance(section, dict) or "kafka" not in section:
        return []
    cluster = section.get("cluster")
    if cluster is None or cluster == DEFAULT_CLUSTER:
        if data.get("kafka") is None:
            hint = "add kafka: {bootstrap: host:9092} at the top level, or name a cluster here"
            return [Finding((key,), "no Kafka cluster is configured", hint, at_key=True)]
    elif isinstance(cluster, str) and cluster not in cluster_names:
        hint = (
            did_you_mean(cluster, cluster_names)
            if cluster_names
            else "write clusters: {NAME: {bootstrap: host:9092}} at the top"
        )
        return [Finding((key, "cluster"), f"there is no cluster {quote_value(cluster)}", hint)]
    return []
