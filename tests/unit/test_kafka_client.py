"""One cluster, two client libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from penstock.errors import BrokerAway, DataLoss, Transient
from penstock.kafka.client import Admin, TopicInfo, java, librdkafka
from penstock.plan.sources import Cluster, KafkaSource, StartingPlan
from penstock.sources.kafka import options
from penstock.sources.topics import refuse_recreated, require_topics

SECRET = 'p"a\\ss;word'
SECURE = Cluster(
    "main", "a:9093", protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="me", password=SecretStr(SECRET)
)


def source(**other: object) -> KafkaSource:
    fields = {"topics": ("orders",), "pattern": None, "max_per_trigger": None, "min_partitions": None, **other}
    return KafkaSource(cluster=Cluster("main", "a:9092"), starting=StartingPlan("earliest"), **fields)  # type: ignore[arg-type]


def test_a_password_is_quoted_for_the_java_client() -> None:
    found = java(SECURE, {})
    assert found["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="p\\"a\\\\ss;word";'
    )
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")


def test_the_same_credentials_reach_the_other_client() -> None:
    found = librdkafka(SECURE)
    assert (found["sasl.username"], found["sasl.password"]) == ("me", SECRET)
    assert "sasl.jaas.config" not in found


def test_a_cluster_without_security_names_none() -> None:
    found = java(Cluster("main", "a:9092"), {})
    assert found == {"bootstrap.servers": "a:9092"}


def test_certificates_are_given_as_text_to_java_and_as_files_to_the_other(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"-----{name}-----")
    cluster = Cluster(
        "main",
        "a:9093",
        protocol="SSL",
        ca_file=str(tmp_path / "ca"),
        cert_file=str(tmp_path / "cert"),
        key_file=str(tmp_path / "key"),
        key_password=SecretStr("open"),
    )
    assert java(cluster, {}) == {
        "bootstrap.servers": "a:9093",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "-----cert-----",
        "ssl.keystore.key": "-----key-----",
        "ssl.key.password": "open",
    }
    found = librdkafka(cluster)
    assert (found["ssl.ca.location"], found["ssl.key.location"]) == (str(tmp_path / "ca"), str(tmp_path / "key"))


def test_a_tables_options_win_over_the_clusters_and_the_brokers_over_both() -> None:
    cluster = Cluster("main", "a:9092", options={"client.id": "all", "fetch.min.bytes": "1"})
    found = java(cluster, {"client.id": "one", "bootstrap.servers": "evil:1"})
    assert found == {"client.id": "one", "fetch.min.bytes": "1", "bootstrap.servers": "a:9092"}


def test_java_only_tuning_is_not_given_to_the_other_client() -> None:
    found = librdkafka(Cluster("main", "a:9092"), {"max.poll.records": "5", "fetch.max.wait.ms": "7"})
    assert "max.poll.records" not in found
    assert found["fetch.wait.max.ms"] == "7"


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"client.id": "me", "client.rack": "r1", "metadata.max.age.ms": "5000"},
        {"request.timeout.ms": "500", "receive.buffer.bytes": "1048576", "isolation.level": "read_uncommitted"},
        {"ssl.endpoint.identification.algorithm": "https"},
        {"ssl.endpoint.identification.algorithm": ""},
    ],
    ids=str,
)
def test_a_client_is_made_with_every_option_that_a_project_may_set(chosen: dict[str, str]) -> None:
    Admin(Cluster("main", "127.0.0.1:1", options=chosen))


def test_a_broker_that_is_away_is_said_in_time() -> None:
    admin = Admin(Cluster("main", "127.0.0.1:1"), timeout=0.5)
    with pytest.raises(BrokerAway, match=r"127\.0\.0\.1:1 does not answer"):
        admin.topics(source())
    with pytest.raises(BrokerAway):
        admin.topics(source(topics=(), pattern="orders.*"))


def test_no_topic_is_no_question() -> None:
    admin = Admin(Cluster("main", "127.0.0.1:1"), timeout=0.5)
    assert admin.describe([]) == {}
    assert admin.earliest({}) == {}


def test_spark_is_told_to_fail_on_loss_and_to_keep_headers() -> None:
    found = options(source(topics=("a", "b"), max_per_trigger=7, min_partitions=3), "bronze.orders")
    assert found["subscribe"] == "a,b"
    assert "subscribePattern" not in found
    assert (found["failOnDataLoss"], found["includeHeaders"]) == ("true", "true")
    assert (found["maxOffsetsPerTrigger"], found["minPartitions"]) == ("7", "3")
    assert found["groupIdPrefix"] == "penstock-bronze.orders"


def test_a_pattern_is_anchored_because_spark_looks_for_it_anywhere_in_a_name() -> None:
    """Spark asks for the first match within the name: `events-.*` would read `old-events-1`, too."""
    found = options(source(topics=(), pattern="events-.*|clicks"), "bronze.orders")
    assert found["subscribePattern"] == "^(?:events-.*|clicks)$"


def test_a_named_topic_has_to_exist_and_a_pattern_may_wait() -> None:
    with pytest.raises(Transient, match="topic orders does not exist"):
        require_topics(source(), {}, "bronze.orders")
    require_topics(source(topics=(), pattern="orders"), {}, "bronze.orders")


def test_a_topic_that_is_gone_or_made_again_is_a_loss() -> None:
    position = {"orders": {0: 7}}
    with pytest.raises(DataLoss, match="no longer exists"):
        refuse_recreated("orders", {"orders": "one"}, {}, position, "bronze.orders")
    with pytest.raises(DataLoss, match="was deleted and recreated"):
        refuse_recreated("orders", {"orders": "one"}, {"orders": TopicInfo("two", (0,))}, position, "bronze.orders")
    refuse_recreated("orders", {"orders": "one"}, {"orders": TopicInfo("one", (0,))}, position, "bronze.orders")
    refuse_recreated("orders", {}, {"orders": TopicInfo("new", (0,))}, position, "bronze.orders")
