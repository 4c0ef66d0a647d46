"""Talking to a Kafka cluster: client properties for Java and librdkafka, topics and offsets, single records."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from penstock.errors import BrokerAway, PenstockError, Terminal, Transient
from penstock.ledger.position import TopicInfo
from penstock.plan.sources import KafkaSource

if TYPE_CHECKING:
    from penstock.ledger.position import Offsets
    from penstock.plan.sources import Cluster, TopicsSource
    from penstock.plan.targets import KafkaTarget, RowSink

# One description of a cluster for two client libraries: Spark's Java client, and librdkafka in this process.
#
# The only place where a Kafka secret is unwrapped. The results go into a client and nowhere else.


_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_RENAMED = {"fetch.max.wait.ms": "fetch.wait.max.ms", "request.timeout.ms": "socket.timeout.ms"}
_SHARED = {
    "client.id",
    "client.rack",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "ssl.endpoint.identification.algorithm",
    "isolation.level",
}


def java(cluster: Cluster, options: Mapping[str, str]) -> dict[str, str]:
    """Properties of the Java client, which Spark takes with the prefix `kafka.`."""
    properties = {**cluster.options, **options, "bootstrap.servers": cluster.bootstrap}
    if cluster.protocol != "PLAINTEXT":
        properties["security.protocol"] = cluster.protocol
    if cluster.mechanism and cluster.password is not None:
        properties["sasl.mechanism"] = cluster.mechanism
        properties["sasl.jaas.config"] = (
            f"{_JAAS[cluster.mechanism]} required username={_jaas_quote(cluster.username or '')} "
            f"password={_jaas_quote(cluster.password.get_secret_value())};"
        )
    if cluster.ca_file:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": cluster.ca_file}
    if cluster.cert_file and cluster.key_file:
        properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(cluster.cert_file).read_text(encoding="utf-8"),
            "ssl.keystore.key": Path(cluster.key_file).read_text(encoding="utf-8"),
        }
        if cluster.key_password is not None:
            properties["ssl.key.password"] = cluster.key_password.get_secret_value()
    return properties


def librdkafka(cluster: Cluster, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Properties for confluent-kafka. Java-only tuning is left out: it changes no result."""
    properties = {"bootstrap.servers": cluster.bootstrap, "security.protocol": cluster.protocol}
    for name, value in {**cluster.options, **(options or {})}.items():
        if name in _SHARED or name in _RENAMED:
            # Java turns the check of host names off by an empty text.
            properties[_RENAMED.get(name, name)] = value or "none"
    if cluster.mechanism and cluster.password is not None:
        properties["sasl.mechanism"] = cluster.mechanism
        properties["sasl.username"] = cluster.username or ""
        properties["sasl.password"] = cluster.password.get_secret_value()
    if cluster.ca_file:
        properties["ssl.ca.location"] = cluster.ca_file
    if cluster.cert_file and cluster.key_file:
        properties |= {"ssl.certificate.location": cluster.cert_file, "ssl.key.location": cluster.key_file}
        if cluster.key_password is not None:
            properties["ssl.key.password"] = cluster.key_password.get_secret_value()
    return properties


def _jaas_quote(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Questions to the broker: topics and their ids, first and next offsets. One client per cluster, shared by all tables.


class Admin:
    """`timeout` limits every request, in seconds: an unavailable broker is reported, never waited for silently."""

    def __init__(self, cluster: Cluster, *, timeout: float = 15.0) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._denial: KafkaError | None = None
        conf: dict[str, Any] = {**librdkafka(_admin_only(cluster)), "logger": SilentLogger(), "log_level": 0}
        conf["error_cb"] = self._on_error
        self._client = AdminClient(conf)

    def topics(self, source: TopicsSource) -> dict[str, TopicInfo]:
        """The topics that a source reads and that exist now."""
        return self.describe(self._matching_topics(source) if source.pattern else source.topics)

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Ids and partitions; topics that do not exist are left out."""
        topic_names = sorted(set(names))
        if not topic_names:
            return {}
        answers = self._call(
            lambda: self._client.describe_topics(TopicCollection(topic_names), request_timeout=self._timeout)
        )
        topics = {}
        for name, future in answers.items():
            try:
                described = self._result(future)
            except _UnknownTopic:
                continue
            if described.is_internal:  # Spark reads none of Kafka's own topics, whatever the pattern says
                continue
            topics[name] = TopicInfo(str(described.topic_id), tuple(sorted(p.id for p in described.partitions)))
        return topics

    def earliest(self, topics: Mapping[str, TopicInfo]) -> Offsets:
        return self._offsets({name: topic.partitions for name, topic in topics.items()}, _EARLIEST)

    def latest(self, topics: Mapping[str, TopicInfo], *, committed: bool = True) -> Offsets:
        """The end that a consumer sees: by default that of committed records, so an open transaction ends it."""
        return self._offsets({n: t.partitions for n, t in topics.items()}, _LATEST, committed=committed)

    def at_time(self, topics: Mapping[str, TopicInfo], timestamp_ms: int) -> Offsets:
        """The offset of the first record at or after a time; the end of the partition if there is none."""
        offsets = self._offsets({n: t.partitions for n, t in topics.items()}, OffsetSpec.for_timestamp(timestamp_ms))
        ends = self.latest(topics)
        return {t: {p: o if o >= 0 else ends[t][p] for p, o in parts.items()} for t, parts in offsets.items()}

    def newest_times(self, topics: Mapping[str, TopicInfo]) -> dict[str, dict[int, int]]:
        """Topic -> partition -> the latest timestamp of its records, in ms; partitions without one are left out."""
        request = {TopicPartition(name, p): _NEWEST for name, topic in topics.items() for p in topic.partitions}
        answers = self._list_offsets(request) if request else {}
        times: dict[str, dict[int, int]] = {}
        for partition, answer in answers.items():
            if is_time(answer.timestamp):
                times.setdefault(partition.topic, {})[partition.partition] = answer.timestamp
        return times

    def first_times(self, source: TopicsSource, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """The time of the first record at or after each offset, in ms; partitions without an answer in time are left
        out."""
        records = first_records(kafka_source(source), offsets, timeout=self._timeout)
        return {place: record.timestamp_ms for place, record in records.items()}

    def names(self) -> list[str]:
        """Every topic that this user may see, including Kafka's own."""
        return list(self._call(lambda: self._client.list_topics(timeout=self._timeout)).topics)

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Topic -> its effective settings, without those that the broker keeps secret. Terminal if this user may not
        see them."""
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))}
        if not resources:
            return {}
        answers = self._call(
            lambda: self._client.describe_configs(list(resources.values()), request_timeout=self._timeout)
        )
        configs = {resource.name: self._result(future) for resource, future in answers.items()}
        return {
            topic: {name: entry.value for name, entry in entries.items() if entry.value is not None}
            for topic, entries in configs.items()
        }

    def _matching_topics(self, source: TopicsSource) -> list[str]:
        pattern = re.compile(source.pattern or "")
        return [name for name in self.names() if pattern.fullmatch(name)]

    def _offsets(self, partitions: Mapping[str, Iterable[int]], spec: Any, *, committed: bool = True) -> Offsets:
        request = {TopicPartition(t, p): spec for t, parts in partitions.items() for p in parts}
        offsets: Offsets = {}
        for partition, answer in self._list_offsets(request, committed=committed).items() if request else ():
            offsets.setdefault(partition.topic, {})[partition.partition] = answer.offset
        return offsets

    def _list_offsets(self, request: dict[Any, Any], *, committed: bool = True) -> dict[Any, Any]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        answers = self._call(
            lambda: self._client.list_offsets(request, isolation_level=level, request_timeout=self._timeout)
        )
        return {partition: self._result(future) for partition, future in answers.items()}

    def _call(self, request: Any) -> Any:
        try:
            return request()
        except KafkaException as error:
            raise self._explain(error) from None

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result(timeout=self._timeout + 5)
        except KafkaException as error:
            raise self._explain(error) from None
        except TimeoutError:
            raise self._broker_away("no answer") from None

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka reports a wrong password only here; to the caller of a request it only says that time ran out."""
        if error.code() in _DENIED:
            self._denial = error

    def _explain(self, error: KafkaException) -> PenstockError:
        cause = error.args[0] if error.args else None
        code = cause.code() if isinstance(cause, KafkaError) else None
        self._client.poll(0.1)
        if code not in _DENIED and code != KafkaError.UNKNOWN_TOPIC_OR_PART and self._denial is not None:
            cause, code, self._denial = self._denial, self._denial.code(), None
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return _UnknownTopic(str(cause))
        if code in _DENIED:
            return Terminal(
                f"Kafka at {self._cluster.bootstrap} refused: {cause.str()}",  # type: ignore[union-attr]
                hint=f"check `security` of the cluster {self._cluster.name} and the rights of its user",
            )
        return self._broker_away(cause.str() if isinstance(cause, KafkaError) else str(error))

    def _broker_away(self, reason: str) -> BrokerAway:
        return BrokerAway(
            f"Kafka at {self._cluster.bootstrap} does not answer ({reason})",
            hint="is it running, and is `bootstrap` right? `penstock kafka start` runs one for development",
        )


_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NEWEST: Any = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""


def is_time(timestamp_ms: int) -> bool:
    """Whether a record's timestamp, a number that its producer chose, is a time; -1 means that there is none."""
    return 0 <= timestamp_ms <= _LAST_MS


_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}


class _UnknownTopic(PenstockError):
    pass


class SilentLogger:
    """A logger that discards everything: librdkafka reports every lost connection; what matters reaches the user as an
    error."""

    def log(self, *_: Any, **__: Any) -> None:
        pass

    debug = info = warning = error = critical = log


def _admin_only(cluster: Cluster) -> Cluster:
    kept_names = {"client.id", "client.rack", "metadata.max.age.ms", "ssl.endpoint.identification.algorithm"}
    return replace(cluster, options={k: v for k, v in cluster.options.items() if k in kept_names})


def kafka_source(source: TopicsSource) -> KafkaSource:
    """The source as Kafka's, which it is known to be."""
    assert isinstance(source, KafkaSource)
    return source


# Reading single records, for the time of the one at an offset. Nothing is committed and no group is joined.


Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class Record:
    """The first record at or after an offset."""

    offset: int
    timestamp_ms: int
    by_broker: bool
    """The broker's clock set the time, not the producer's."""


def first_records(source: KafkaSource, offsets: Mapping[Place, int], *, timeout: float) -> dict[Place, Record]:
    """The first record at or after each offset that the source can see. Partitions are left out that have none, whose
    records have no time, or that did not answer within `timeout` seconds: never raises because of the broker."""
    if not offsets:
        return {}
    consumer = Consumer(_consumer_settings(source))
    records: dict[Place, Record] = {}
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()])
        waiting, deadline = set(offsets), time.monotonic() + timeout
        while waiting and (remaining := deadline - time.monotonic()) > 0:
            message = consumer.poll(min(remaining, 0.2))
            if message is None or (place := _place(message)) not in waiting:
                continue
            waiting.discard(place)
            with suppress(KafkaException):  # more of it may be in flight: it need not be fetched
                consumer.incremental_unassign([TopicPartition(*place)])
            record = _record(message)
            if record is not None:
                records[place] = record
    except KafkaException:
        pass
    finally:
        consumer.close()
    return records


def _place(message: Any) -> Place:
    """Topic and partition of a message; an error that is not about one partition has none."""
    partition = message.partition()
    return message.topic() or "", -1 if partition is None else partition


def _record(message: Any) -> Record | None:
    if message.error() is not None:  # the end of the partition, or an offset that no longer exists
        return None
    kind, timestamp_ms = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or not is_time(timestamp_ms):
        return None
    return Record(message.offset(), timestamp_ms, kind == TIMESTAMP_LOG_APPEND_TIME)


def _consumer_settings(source: KafkaSource) -> dict[str, Any]:
    return {
        **librdkafka(source.cluster, source.options),
        "isolation.level": "read_committed" if source.reads_committed else "read_uncommitted",
        "group.id": "penstock-look",  # the client requires one; it is never joined
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "fetch.wait.max.ms": "50",
        "max.partition.fetch.bytes": "65536",
        "fetch.queue.backoff.ms": "5",  # by default it waits for a second before it fetches from the next partition
        "logger": SilentLogger(),
        "log_level": 0,
    }


def producer_options(target: RowSink | KafkaTarget) -> dict[str, str]:
    """The cluster's own options are already in the plan's, as far as a producer has them."""
    properties = java(replace(target.cluster, options={}), target.options)
    return {**{f"kafka.{name}": value for name, value in properties.items()}, "topic": target.topic}


def require_topic(admin: Admin, target: RowSink | KafkaTarget, sink: str) -> None:
    """Raises Transient while the topic does not exist."""
    topic, bootstrap = target.topic, target.cluster.bootstrap
    if topic not in admin.describe([topic]):
        raise Transient(
            f"topic {topic} does not exist on {bootstrap}",
            where=sink,
            hint="create it with as many partitions as its consumers need: "
            f"`kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {topic} --partitions 4`, at the "
            f"development broker `penstock kafka start --topic {topic}:4`",
        )
