"""One description of a cluster, two client libraries: Spark's Java client and librdkafka in this process.

The only place where a Kafka secret is unwrapped. What comes out goes into a client and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.model import Cluster

_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_ONLY_JAVA = {
    "max.poll.records",
    "default.api.timeout.ms",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "client.dns.lookup",
}
_RENAMED = {
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
}
_SHARED = {
    "client.id",
    "client.rack",
    "fetch.min.bytes",
    "metadata.max.age.ms",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "ssl.endpoint.identification.algorithm",
    "isolation.level",
}


def java(cluster: Cluster, options: Mapping[str, str]) -> dict[str, str]:
    """Properties of the Java client, which Spark takes with the prefix `kafka.`."""
    found = {**cluster.options, **options, "bootstrap.servers": cluster.bootstrap}
    if cluster.protocol != "PLAINTEXT":
        found["security.protocol"] = cluster.protocol
    if cluster.mechanism and cluster.password is not None:
        found["sasl.mechanism"] = cluster.mechanism
        found["sasl.jaas.config"] = (
            f"{_JAAS[cluster.mechanism]} required username={_quoted(cluster.username or '')} "
            f"password={_quoted(cluster.password.get_secret_value())};"
        )
    if cluster.ca_file:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": cluster.ca_file}
    if cluster.cert_file and cluster.key_file:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text(cluster.cert_file),
            "ssl.keystore.key": _text(cluster.key_file),
        }
        if cluster.key_password is not None:
            found["ssl.key.password"] = cluster.key_password.get_secret_value()
    return found


def librdkafka(cluster: Cluster, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Properties for confluent-kafka. Java-only tuning is left out: it changes no answer."""
    found = {"bootstrap.servers": cluster.bootstrap, "security.protocol": cluster.protocol}
    for name, value in {**cluster.options, **(options or {})}.items():
        if name in _SHARED or name in _RENAMED:
            found[_RENAMED.get(name, name)] = value or "none"  # Java turns the check of host names off by an empty text
    if cluster.mechanism and cluster.password is not None:
        found["sasl.mechanism"] = cluster.mechanism
        found["sasl.username"] = cluster.username or ""
        found["sasl.password"] = cluster.password.get_secret_value()
    if cluster.ca_file:
        found["ssl.ca.location"] = cluster.ca_file
    if cluster.cert_file and cluster.key_file:
        found |= {"ssl.certificate.location": cluster.cert_file, "ssl.key.location": cluster.key_file}
        if cluster.key_password is not None:
            found["ssl.key.password"] = cluster.key_password.get_secret_value()
    return found


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(path: str) -> str:
    from pathlib import Path

    return Path(path).read_text(encoding="utf-8")
