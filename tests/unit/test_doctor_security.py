"""What others can read: connections, files, and secrets in the project file. No value is ever said."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import SecretStr

from penstock.doctor.security import files, in_clear, is_loopback, kafka, named_files, plain, target
from penstock.plan.sources import Cluster
from penstock.plan.targets import JdbcTarget, RedisTarget, SearchTarget
from penstock.spec.document import Document, parse

CANARY = "hunter2-canary"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("[::1]", True),
        ("localhost", True),
        ("10.0.0.7", False),
        ("0.0.0.0", False),
        ("kafka.example.org", False),
        ("127.0.0.1.example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_loopback_is_this_machine_only(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("bootstrap", "protocol", "mechanism", "level"),
    [
        ("127.0.0.1:9092", "PLAINTEXT", None, "ok"),
        ("broker:9092", "PLAINTEXT", None, "warn"),
        ("127.0.0.1:9092,broker:9092", "PLAINTEXT", None, "warn"),
        ("broker:9092", "SASL_PLAINTEXT", "PLAIN", "red"),
        ("broker:9092", "SASL_PLAINTEXT", "SCRAM-SHA-512", "warn"),
        ("127.0.0.1:9092", "SASL_PLAINTEXT", "PLAIN", "ok"),
        ("broker:9092", "SASL_SSL", "PLAIN", "ok"),
        ("broker:9092", "SSL", None, "ok"),
    ],
)
def test_a_connection_to_another_machine_is_encrypted(
    bootstrap: str, protocol: str, mechanism: str | None, level: str
) -> None:
    cluster = Cluster("eu", bootstrap, protocol, mechanism, "me", SecretStr(CANARY))  # type: ignore[arg-type]
    check = kafka(cluster)
    assert check.level == level
    assert CANARY not in str(check)


def test_brokers_whose_names_are_not_checked_are_warned_of() -> None:
    options = {"ssl.endpoint.identification.algorithm": ""}
    assert kafka(Cluster("eu", "broker:9092", "SSL", options=options)).level == "warn"


@pytest.mark.parametrize(
    ("to", "level"),
    [
        (SearchTarget("https://search:9200", "i", "me", SecretStr(CANARY)), "ok"),
        (SearchTarget("http://search:9200", "i", "me", SecretStr(CANARY)), "red"),
        (SearchTarget("http://search:9200", "i", api_key=SecretStr(CANARY)), "red"),
        (SearchTarget("http://search:9200", "i"), "warn"),
        (SearchTarget("http://127.0.0.1:9200", "i", "me", SecretStr(CANARY)), "ok"),
        (RedisTarget("redis://cache:6379", "p", password=SecretStr(CANARY)), "red"),
        (RedisTarget("rediss://cache:6379", "p", password=SecretStr(CANARY)), "ok"),
        (JdbcTarget("jdbc:postgresql://db:5432/shop", "t", "me", SecretStr(CANARY)), "warn"),
        (JdbcTarget("jdbc:postgresql://db:5432/shop", "t", options={"sslmode": "verify-full"}), "ok"),
        (JdbcTarget("jdbc:postgresql://127.0.0.1/shop", "t", "me", SecretStr(CANARY)), "ok"),
        (JdbcTarget("jdbc:sqlite:/tmp/x", "t"), "unknown"),
    ],
)
def test_a_target_on_another_machine_is_reached_by_tls(to: SearchTarget | RedisTarget | JdbcTarget, level: str) -> None:
    check = target("customers_out", to)
    assert (check.level, check.subject) == (level, "customers_out")
    assert CANARY not in str(check)


@pytest.mark.parametrize(
    ("url", "options", "encrypted"),
    [
        ("jdbc:postgresql://db/shop", {}, None),
        ("jdbc:postgresql://db/shop?sslmode=require", {}, True),
        ("jdbc:postgresql://db/shop?loginTimeout=5&sslmode=verify-ca", {}, True),
        ("jdbc:postgresql://db/shop", {"sslmode": "verify-full"}, True),
        ("jdbc:postgresql://db/shop?ssl=true", {}, True),
        ("jdbc:postgresql://db/shop?ssl", {}, True),
        ("jdbc:postgresql://db/shop?ssl=false", {}, None),
        ("jdbc:postgresql://db/shop?sslmode=allow", {}, None),
        ("jdbc:postgresql://db/shop?ssl=true&sslmode=prefer", {}, None),
        ("jdbc:postgresql://db/shop?sslmode=disable", {}, False),
        ("jdbc:postgresql://db/shop", {"sslmode": "disable", "ssl": "true"}, False),
        ("jdbc:postgresql://db/shop?sslmode=disable", {"sslmode": "require"}, None),
        ("jdbc:postgresql://db/shop?sslMode=require", {}, None),
        ("jdbc:postgresql://ssl-proxy/ssl?sslrootcert=ca.pem", {}, None),
        ("jdbc:mysql://sslproxy/shop", {}, None),
        ("jdbc:mysql://sslproxy/shop?useSSL=false", {}, False),
        ("jdbc:mysql://db/shop?useSSL=true", {}, True),
        ("jdbc:mysql://db/shop?useSSL=false", {"sslMode": "VERIFY_IDENTITY"}, True),
        ("jdbc:mysql://db/shop?sslMode=REQUIRED", {}, True),
        ("jdbc:mysql://db/shop?sslmode=Verify_Ca", {}, True),
        ("jdbc:mysql://db/shop?sslMode=PREFERRED", {}, None),
        ("jdbc:mysql://db/shop?sslMode=DISABLED", {}, False),
        ("jdbc:mysql://db/shop?sslMode=DISABLED&useSSL=true", {}, False),
        ("jdbc:mariadb://db/shop?sslMode=verify-full", {}, True),
        ("jdbc:mariadb://db/shop?sslMode=trust", {}, True),
        ("jdbc:db2://db:50000/shop:sslConnection=true;", {}, True),
        ("jdbc:any://db/path:ssl", {}, None),
    ],
)
def test_a_database_is_reached_by_tls_only_if_an_option_of_its_driver_demands_it(
    url: str, options: dict[str, str], encrypted: bool | None
) -> None:
    to = JdbcTarget(url, "t", "me", SecretStr(CANARY), options=options)
    assert to.encrypted is encrypted
    check = target("out", to)
    assert check.level == {True: "ok", None: "warn", False: "red"}[encrypted]
    if encrypted is not True:  # the other drivers know no such option
        assert ("sslmode" in (check.fix or "")) is url.startswith("jdbc:postgresql:")


def test_files_of_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    made = {}
    for name, mode in (("open", 0o644), ("group", 0o640), ("mine", 0o600)):
        made[name] = tmp_path / name
        made[name].write_text(CANARY)
        made[name].chmod(mode)
    found = list(files([*made.values(), tmp_path / "gone"], []))
    assert [check.level for check in found] == ["unknown", "red", "note"]
    assert str(made["open"]) in found[1].found and "(0644)" in found[1].found
    assert found[1].fix == f"`chmod 600 {made['open']}`"
    assert CANARY not in str(found)
    assert [check.level for check in files([made["mine"]], [])] == ["ok"]


def test_a_project_that_anybody_can_change_is_red(tmp_path: Path) -> None:
    file = tmp_path / "penstock.yml"
    file.write_text("name: x")
    file.chmod(0o646)
    assert [check.level for check in files([], [file])] == ["red"]
    file.chmod(0o644)
    assert [check.level for check in files([], [file])] == ["ok"]


def document(text: str) -> Document:
    found = parse(dedent(text), "penstock.yml")
    assert not found.problems
    return found


def test_secrets_in_clear_are_found_with_their_lines_and_without_their_values() -> None:
    written = document(f"""\
        kafka:
          bootstrap: broker:9092
          security:
            password: {CANARY}
            key_password: "{CANARY}"
            username: me
        spark:
          conf:
            spark.hadoop.fs.s3a.secret.key: {CANARY}
            spark.hadoop.fs.s3a.aws.credentials.provider: com.example.Provider
        sinks:
          out:
            to: {{search: "https://me:{CANARY}@search:9200", api_key: {CANARY}}}
          db:
            to: {{jdbc: "jdbc:mysql://db/shop?user=me&password={CANARY}"}}
        alerts:
          webhook: https://example.org/{CANARY}
          other: https://hooks.slack.com/services/{CANARY}
        """)
    found = list(in_clear(written))
    assert [(one.place, one.key) for one in found] == [
        ("penstock.yml:4", "kafka.security.password"),
        ("penstock.yml:5", "kafka.security.key_password"),
        ("penstock.yml:9", "spark.conf.spark.hadoop.fs.s3a.secret.key"),
        ("penstock.yml:13", "sinks.out.to.search"),
        ("penstock.yml:13", "sinks.out.to.api_key"),
        ("penstock.yml:15", "sinks.db.to.jdbc"),
        ("penstock.yml:17", "alerts.webhook"),
        ("penstock.yml:18", "alerts.other"),
    ]
    check = plain(found, readable=False)
    assert check.level == "warn"
    assert plain(found, readable=True).level == "red"
    assert CANARY not in str(check) + str(found)
    assert "8 secrets in the project file in clear: penstock.yml:4 (kafka.security.password: a value)" in check.found


def test_what_comes_by_reference_or_is_no_secret_is_left_alone() -> None:
    written = document("""\
        kafka:
          security: {password: "${env:KAFKA_PASSWORD}", key_password: "${file:secrets/key}", key_file: certs/client.key}
        spark: {conf: {spark.hadoop.fs.s3a.secret.key: "${env:S3}", spark.sql.shuffle.partitions: 8}}
        tables:
          silver.tokens:
            from: {kafka: tokens, starting: earliest}
            columns: {key: token}
            write: {merge: {keys: [token_id], sequence: updated_at}}
          gold.tokens:
            aggregate: {keys: [secret], metrics: {token: count(*), password: max(changed)}}
        sinks:
          out: {from: {table: gold.tokens}, to: {kafka: out}, key: customer_id, headers: {token: "'x'"}}
        alerts: {webhook: "${env:HOOK:-}"}
        """)
    assert list(in_clear(written)) == []
    assert plain([], readable=True).level == "ok"


def test_the_default_of_a_reference_is_in_clear_too() -> None:
    written = document(f"kafka: {{security: {{password: '${{env:KAFKA_PASSWORD:-{CANARY}}}'}}}}")
    (one,) = in_clear(written)
    assert one.kind == "the default of a reference"


def test_files_that_are_named_by_reference_are_looked_at(tmp_path: Path) -> None:
    written = document("a: '${file:secrets/kafka}'\nb: ['${file:/run/secrets/x}', 'x${file:secrets/kafka}']")
    assert named_files(written, tmp_path) == [tmp_path / "secrets/kafka", Path("/run/secrets/x")]
