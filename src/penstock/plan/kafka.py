"""A table's Kafka source: cluster, topics, start, and the client settings that Penstock chooses."""

from __future__ import annotations

from pathlib import Path

from penstock.plan.model import Cluster, KafkaSource, Setting, Starting
from penstock.plan.settings import YOURS
from penstock.spec.cluster import KafkaCluster, security_files
from penstock.spec.project import DEFAULT_CLUSTER, Project
from penstock.spec.source import KafkaFrom

DEFAULT_MAX_PER_TRIGGER = 200_000

CLIENT = (
    Setting("isolation.level", "read_committed", "records of transactions that were aborted never land in a table"),
    Setting("receive.buffer.bytes", str(1024**2), "Spark sets 64 KiB, which keeps a fast broker waiting"),
    Setting("max.poll.records", "25000", "fewer calls, each of which asks the broker twice; the default is 500"),
    Setting(
        "fetch.max.wait.ms",
        "20",
        "Spark asks only for records that are there; at the end of a partition its next question would wait behind a "
        "fetch that waits for more: half a second a batch",
    ),
    Setting("max.partition.fetch.bytes", str(16 * 1024**2), "larger fetches: the default of 1 MiB is many round trips"),
)


def cluster_plan(name: str | None, cluster: KafkaCluster, root: Path) -> Cluster:
    """A cluster with the paths of its files made absolute."""
    security = cluster.security
    files = {key: str((root / Path(path).expanduser()).absolute()) for key, path in security_files(security).items()}
    return Cluster(
        name=name or DEFAULT_CLUSTER,
        bootstrap=cluster.bootstrap,
        protocol=security.protocol,
        mechanism=security.mechanism,
        username=security.username,
        password=security.password,
        ca_file=files.get("ca_file"),
        cert_file=files.get("cert_file"),
        key_file=files.get("key_file"),
        key_password=security.key_password,
        options=dict(cluster.options),
    )


def source_plan(project: Project, source: KafkaFrom) -> tuple[KafkaSource, tuple[Setting, ...]]:
    """The source, and every choice about it with its reason."""
    cluster = cluster_plan(source.cluster, project.cluster(source.cluster), project.root)
    chosen = {setting.name: setting.value for setting in CLIENT}
    users = {**cluster.options, **source.options}
    most, most_setting = _max_per_trigger(project, source)
    settings = [most_setting]
    settings += [setting for setting in CLIENT if setting.name not in users]
    settings += [Setting(name, value, YOURS) for name, value in users.items()]
    if source.min_partitions is not None:
        why = f"{YOURS}; above the number of partitions, consumers are not kept between batches"
        settings.append(Setting("min_partitions", str(source.min_partitions), why))
    made = KafkaSource(
        cluster=cluster,
        topics=source.kafka.names,
        pattern=source.kafka.pattern,
        starting=_starting(source),
        max_per_trigger=most,
        min_partitions=source.min_partitions,
        options={**chosen, **users},
    )
    return made, tuple(settings)


def _max_per_trigger(project: Project, source: KafkaFrom) -> tuple[int | None, Setting]:
    given = source.max_per_trigger if source.max_per_trigger is not None else project.defaults.max_per_trigger
    if given is None:
        why = "a bounded batch bounds memory, and what is done again after a crash"
        return DEFAULT_MAX_PER_TRIGGER, Setting("max_per_trigger", str(DEFAULT_MAX_PER_TRIGGER), why)
    return (None if given == "unlimited" else given), Setting("max_per_trigger", str(given), YOURS)


def _starting(source: KafkaFrom) -> Starting:
    starting = source.starting
    if starting.offsets is not None:
        return Starting("offsets", offsets=starting.offsets)
    if starting.timestamp is not None:
        return Starting("timestamp", timestamp_ms=round(starting.timestamp.timestamp() * 1000))
    return Starting(starting.at or "earliest")
