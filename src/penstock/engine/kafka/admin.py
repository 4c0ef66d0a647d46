"""What the broker knows: topics and their ids, first and next offsets. One client per cluster, shared by all tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from penstock.engine.kafka.client import librdkafka
from penstock.engine.protocol.position import Offsets
from penstock.errors import BrokerAway, PenstockError, Terminal
from penstock.plan.model import Cluster, KafkaSource


@dataclass(frozen=True)
class Topic:
    id: str
    partitions: tuple[int, ...]


class Admin:
    """`timeout` bounds every question, in seconds: a broker that is away is said, never waited for silently."""

    def __init__(self, cluster: Cluster, *, timeout: float = 15.0) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._refused: KafkaError | None = None
        conf: dict[str, Any] = {**librdkafka(_admin_only(cluster)), "logger": Silent(), "log_level": 0}
        conf["error_cb"] = self._hear
        self._client = AdminClient(conf)

    def topics(self, source: KafkaSource) -> dict[str, Topic]:
        """The topics that a source reads and that exist now."""
        return self.describe(self._matching(source) if source.pattern else source.topics)

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Ids and partitions; a topic that does not exist is left out."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        answers = self._ask(
            lambda: self._client.describe_topics(TopicCollection(wanted), request_timeout=self._timeout)
        )
        found = {}
        for name, future in answers.items():
            try:
                described = self._result(future)
            except _Unknown:
                continue
            if described.is_internal:  # Spark reads none of Kafka's own topics, whatever the pattern says
                continue
            found[name] = Topic(str(described.topic_id), tuple(sorted(p.id for p in described.partitions)))
        return found

    def earliest(self, topics: Mapping[str, Topic]) -> Offsets:
        return self._offsets({name: topic.partitions for name, topic in topics.items()}, _EARLIEST)

    def latest(self, topics: Mapping[str, Topic], *, committed: bool = True) -> Offsets:
        """The end that a consumer sees: of committed records by default, so an open transaction ends it."""
        return self._offsets({n: t.partitions for n, t in topics.items()}, _LATEST, committed=committed)

    def at_time(self, topics: Mapping[str, Topic], timestamp_ms: int) -> Offsets:
        """The first record at or after a time; the end of the partition if there is none."""
        found = self._offsets({n: t.partitions for n, t in topics.items()}, OffsetSpec.for_timestamp(timestamp_ms))
        ends = self.latest(topics)
        return {t: {p: o if o >= 0 else ends[t][p] for p, o in parts.items()} for t, parts in found.items()}

    def newest_times(self, topics: Mapping[str, Topic]) -> dict[str, dict[int, int]]:
        """Topic -> partition -> the latest time of any of its records, in ms; partitions without one are left out."""
        request = {TopicPartition(name, p): _NEWEST for name, topic in topics.items() for p in topic.partitions}
        answers = self._answers(request) if request else {}
        found: dict[str, dict[int, int]] = {}
        for partition, answer in answers.items():
            if is_time(answer.timestamp):
                found.setdefault(partition.topic, {})[partition.partition] = answer.timestamp
        return found

    def names(self) -> list[str]:
        """Every topic that this user may see, Kafka's own among them."""
        return list(self._ask(lambda: self._client.list_topics(timeout=self._timeout)).topics)

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Topic -> its settings as they are in force, those that the broker keeps secret left out. Terminal if this
        user may not see them."""
        wanted = {name: ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))}
        if not wanted:
            return {}
        answers = self._ask(lambda: self._client.describe_configs(list(wanted.values()), request_timeout=self._timeout))
        found = {resource.name: self._result(future) for resource, future in answers.items()}
        return {
            topic: {name: entry.value for name, entry in entries.items() if entry.value is not None}
            for topic, entries in found.items()
        }

    def _matching(self, source: KafkaSource) -> list[str]:
        pattern = re.compile(source.pattern or "")
        return [name for name in self.names() if pattern.fullmatch(name)]

    def _offsets(self, wanted: Mapping[str, Iterable[int]], spec: Any, *, committed: bool = True) -> Offsets:
        request = {TopicPartition(t, p): spec for t, parts in wanted.items() for p in parts}
        found: Offsets = {}
        for partition, answer in self._answers(request, committed=committed).items() if request else ():
            found.setdefault(partition.topic, {})[partition.partition] = answer.offset
        return found

    def _answers(self, request: dict[Any, Any], *, committed: bool = True) -> dict[Any, Any]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        answers = self._ask(
            lambda: self._client.list_offsets(request, isolation_level=level, request_timeout=self._timeout)
        )
        return {partition: self._result(future) for partition, future in answers.items()}

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except KafkaException as error:
            raise self._problem(error) from None

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result(timeout=self._timeout + 5)
        except KafkaException as error:
            raise self._problem(error) from None
        except TimeoutError:
            raise self._away("no answer") from None

    def _hear(self, error: KafkaError) -> None:
        """librdkafka tells a wrong password only here; to whoever asked it says no more than that time ran out."""
        if error.code() in _DENIED:
            self._refused = error

    def _problem(self, error: KafkaException) -> PenstockError:
        cause = error.args[0] if error.args else None
        code = cause.code() if isinstance(cause, KafkaError) else None
        self._client.poll(0.1)
        if code not in _DENIED and code != KafkaError.UNKNOWN_TOPIC_OR_PART and self._refused is not None:
            cause, code, self._refused = self._refused, self._refused.code(), None
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return _Unknown(str(cause))
        if code in _DENIED:
            return Terminal(
                f"Kafka at {self._cluster.bootstrap} refused: {cause.str()}",  # type: ignore[union-attr]
                hint=f"check `security` of the cluster {self._cluster.name} and the rights of its user",
            )
        return self._away(cause.str() if isinstance(cause, KafkaError) else str(error))

    def _away(self, reason: str) -> BrokerAway:
        return BrokerAway(
            f"Kafka at {self._cluster.bootstrap} does not answer ({reason})",
            hint="is it running, and is `bootstrap` right? `penstock kafka start` runs one for development",
        )


_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""


def is_time(timestamp_ms: int) -> bool:
    """A record's timestamp is a number that its producer chose; -1 is none."""
    return 0 <= timestamp_ms <= _LAST_MS


_NEWEST: Any = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}


class _Unknown(PenstockError):
    pass


class Silent:
    """librdkafka reports every lost connection as it happens; what matters reaches the user as an error."""

    def log(self, *_: Any, **__: Any) -> None:
        pass

    debug = info = warning = error = critical = log


def _admin_only(cluster: Cluster) -> Cluster:
    from dataclasses import replace

    keep = {"client.id", "client.rack", "metadata.max.age.ms", "ssl.endpoint.identification.algorithm"}
    return replace(cluster, options={k: v for k, v in cluster.options.items() if k in keep})
