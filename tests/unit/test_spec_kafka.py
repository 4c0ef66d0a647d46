from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spec.kafka_cluster import allowed_options, client_options
from tests.unit.project_file import HEAD, check, load, one, place, problems, table

TABLES = "tables: {bronze.orders: {from: {kafka: orders}}}\n"


def cluster(body: str) -> str:
    return f"name: shop\nlake: ./lake\nkafka:\n  bootstrap: h:9092\n{body}\n{TABLES}"


@pytest.mark.parametrize("topic", ["orders", "a.b-c_D9", "x" * 249])
def test_a_topic_has_the_name_that_kafka_allows(topic: str, tmp_path: Path) -> None:
    assert load(tmp_path, table(f"from: {{kafka: {topic}}}")).tables["bronze.orders"].source.kafka.names == (topic,)


@pytest.mark.parametrize("topic", ["'a b'", "'..'", "''", "ö", "x" * 250, "a/b", "12", "true"])
def test_what_kafka_does_not_allow_is_not_a_topic(topic: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table(f"from: {{kafka: {topic}}}")))
    assert place(problem) == (6, 19)


def test_a_topic_that_looks_like_a_pattern_gets_the_way_to_write_one(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table("from: {kafka: 'events-.*'}")))
    assert problem.hint == 'for a pattern write {pattern: "events-.*"}'


def test_a_list_names_each_wrong_topic_where_it_stands(tmp_path: Path) -> None:
    found = problems(tmp_path, table("from:\n  kafka:\n    - a\n    - a\n    - 'b c'\n    - 7"))
    assert [place(problem) for problem in found] == [(9, 11), (10, 11), (11, 11)]


@pytest.mark.parametrize("kafka", ["[]", "{}", "{patern: a}", "{names: [a]}", "{pattern: ''}"])
def test_topics_must_be_said(kafka: str, tmp_path: Path) -> None:
    assert problems(tmp_path, table(f"from: {{kafka: {kafka}}}"))


@pytest.mark.parametrize("pattern", ["events-.*", "a{2,3}", "(?:a|b)+", "[a-z]+", "a\\.b", "(?i)x", "[{]x"])
def test_a_pattern_that_java_and_python_read_alike_is_taken(pattern: str, tmp_path: Path) -> None:
    assert load(tmp_path, table(f"from: {{kafka: {{pattern: '{pattern}'}}}}"))


@pytest.mark.parametrize(
    "pattern", ["[a", "*", "(?P<x>a)", "a{", "a{,3}", "{x}", "[[a]]", "[a&&b]", "(?#c)a", "(a)(?(1)b)", "\\p{L}", "a)"]
)
def test_a_pattern_that_one_of_them_would_not_take_is_refused(pattern: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table(f"from: {{kafka: {{pattern: '{pattern}'}}}}")))
    assert place(problem) == (6, 29)


@pytest.mark.parametrize(
    "starting",
    ["earliest", "latest", "{timestamp: 2026-01-01T00:00:00Z}", "{offsets: {orders: {0: 5, 1: -2, 2: -1}}}"],
)
def test_where_a_table_may_start(starting: str, tmp_path: Path) -> None:
    assert load(tmp_path, table(f"from: {{kafka: orders, starting: {starting}}}"))


@pytest.mark.parametrize(
    "starting",
    [
        "earlist",
        "5",
        "{}",
        "{at: earliest}",
        "{offsets: 5}",
        "{offsets: {}}",
        "{offsets: {orders: 5}}",
        "{offsets: {orders: {0: -3}}}",
        "{offsets: {orders: {x: 3}}}",
        "{offsets: {orders: {0: 1.5}}}",
        "{timestamp: tomorrow}",
        "{timestamp: 2026-01-01, offsets: {orders: {0: 1}}}",
    ],
)
def test_where_a_table_cannot_start(starting: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table(f"from: {{kafka: orders, starting: {starting}}}")))
    assert problem.hint


def test_offsets_of_a_topic_that_is_not_read_are_an_error_at_that_topic(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table("from: {kafka: orders, starting: {offsets: {ordrs: {0: 5}}}}")))
    assert place(problem) == (6, 48)
    assert problem.hint == "did you mean 'orders'?"


def test_offsets_of_a_topic_that_matches_the_pattern_are_taken(tmp_path: Path) -> None:
    source = "from: {kafka: {pattern: 'ev-.*'}, starting: {offsets: {%s: {0: 5}}}}"
    assert load(tmp_path, table(source % "ev-1"))
    assert "does not match" in (one(problems(tmp_path, table(source % "other"))).hint or "")


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "true"])
def test_max_per_trigger_is_a_number_of_records(value: str, tmp_path: Path) -> None:
    assert (
        "not a number of records"
        in one(problems(tmp_path, table(f"from: {{kafka: orders, max_per_trigger: {value}}}"))).message
    )


def test_a_batch_may_be_without_a_bound(tmp_path: Path) -> None:
    project = load(tmp_path, table("from: {kafka: orders, max_per_trigger: unlimited}"))
    assert project.tables["bronze.orders"].source.max_per_trigger == "unlimited"


def test_min_partitions_is_at_least_one(tmp_path: Path) -> None:
    assert "too small" in one(problems(tmp_path, table("from: {kafka: orders, min_partitions: 0}"))).message


@pytest.mark.parametrize("bootstrap", ["h:9092", "'a:1,b:2'", "'[::1]:9092'", "['a:1', 'b:2']", "10.0.0.1:9092"])
def test_brokers_are_given_by_host_and_port(bootstrap: str, tmp_path: Path) -> None:
    assert load(tmp_path, f"name: s\nlake: l\nkafka: {{bootstrap: {bootstrap}}}\n{TABLES}")


@pytest.mark.parametrize("bootstrap", ["h", "h:0", "h:99999", "PLAINTEXT://h:9092", "h:9092,", "", "h:port", "5"])
def test_what_is_not_a_broker_is_refused(bootstrap: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, f"name: s\nlake: l\nkafka: {{bootstrap: '{bootstrap}'}}\n{TABLES}"))
    assert place(problem) == (3, 20)


def test_clusters_beside_the_default_one(tmp_path: Path) -> None:
    text = HEAD + "clusters: {eu: {bootstrap: 'eu:9092'}}\ntables: {a: {from: {kafka: t, cluster: eu}}}\n"
    project = load(tmp_path, text)
    assert project.cluster("eu").bootstrap == "eu:9092"
    assert project.cluster(None).bootstrap == "127.0.0.1:9092"


def test_an_unknown_cluster_gets_the_one_that_was_meant(tmp_path: Path) -> None:
    text = HEAD + "clusters: {europe: {bootstrap: 'eu:9092'}}\ntables: {a: {from: {kafka: t, cluster: erope}}}\n"
    assert one(problems(tmp_path, text)).hint == "did you mean 'europe'?"


def test_a_table_without_any_cluster_asks_which_kafka(tmp_path: Path) -> None:
    assert "no Kafka cluster" in one(problems(tmp_path, f"name: s\nlake: l\n{TABLES}")).message


@pytest.mark.parametrize("name", ["default", "1x", "a b"])
def test_a_cluster_has_a_plain_name(name: str, tmp_path: Path) -> None:
    text = HEAD + f"clusters: {{{name}: {{bootstrap: 'eu:9092'}}}}\n{TABLES}"
    assert "cannot name a cluster" in one(problems(tmp_path, text)).message


def test_sasl_needs_mechanism_username_and_password(tmp_path: Path) -> None:
    found = problems(tmp_path, cluster("  security: {protocol: SASL_SSL}"))
    assert [problem.message.split("'")[1] for problem in found] == ["mechanism", "username", "password"]


def test_a_protocol_is_taken_in_any_case(tmp_path: Path) -> None:
    project = load(
        tmp_path,
        cluster("  security: {protocol: sasl_ssl, mechanism: scram-sha-512, username: u, password: '${env:P}'}"),
        P="x",
    )
    assert project.cluster(None).security.protocol == "SASL_SSL"


@pytest.mark.parametrize(
    ("security", "key"),
    [
        ("mechanism: PLAIN", "mechanism"),
        ("protocol: SSL, username: u", "username"),
        ("ca_file: ca.pem", "ca_file"),
        ("protocol: SSL, cert_file: ca.pem", "cert_file"),
        ("protocol: SSL, key_file: ca.pem", "key_file"),
        ("protocol: SSL, key_password: x", "key_password"),
        ("protocol: TLS", "TLS"),
        ("protocol: SASL_SSL, mechanism: GSSAPI, username: u, password: p", "GSSAPI"),
        ("protocol: SSL, ca_file: nowhere.pem", "nowhere.pem"),
    ],
)
def test_security_that_does_not_fit_together_is_refused(security: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    problem = one(problems(tmp_path, cluster(f"  security: {{{security}}}")))
    assert key in problem.message
    assert problem.hint


def test_certificates_are_found_in_the_project_folder(tmp_path: Path) -> None:
    for name in ("ca.pem", "c.pem", "k.pem"):
        (tmp_path / name).touch()
    assert load(tmp_path, cluster("  security: {protocol: SSL, ca_file: ca.pem, cert_file: c.pem, key_file: k.pem}"))


def test_a_password_in_clear_is_a_warning_and_by_reference_is_none(tmp_path: Path) -> None:
    login = "  security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: %s}"
    (warning,) = check(tmp_path, cluster(login % "hunter2")).warnings
    assert place(warning) == (5, 75)
    assert "hunter2" not in str(warning)
    assert check(tmp_path, cluster(login % "'${env:P}'"), P="x").warnings == ()


def test_client_options_take_sizes_and_durations_as_people_write_them() -> None:
    given = {"fetch.max.bytes": "64MB", "fetch.min.bytes": 1, "request.timeout.ms": "30s", "fetch.max.wait.ms": 500}
    assert client_options(given | {"check.crcs": True}) == {
        "fetch.max.bytes": "64000000",
        "fetch.min.bytes": "1",
        "request.timeout.ms": "30000",
        "fetch.max.wait.ms": "500",
        "check.crcs": "true",
    }


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("group.id", "ledger"),
        ("group.instance.id", "ledger"),
        ("enable.auto.commit", "ledger"),
        ("auto.offset.reset", "starting"),
        ("key.deserializer", "Spark"),
        ("sasl.jaas.config", "security"),
        ("ssl.truststore.password", "security"),
        ("ssl.keystore.key", "security"),
        ("config.providers", "load code"),
        ("config.providers.file.class", "load code"),
        ("bootstrap.servers", "bootstrap"),
        ("security.protocol", "security"),
        ("maxOffsetsPerTrigger", "max_per_trigger"),
        ("failOnDataLoss", "never silent"),
        ("kafka.fetch.min.bytes", "write fetch.min.bytes"),
        ("fetch.min.byte", "did you mean 'fetch.min.bytes'"),
        ("something.else.entirely", "docs/project-file.md"),
    ],
)
def test_a_refused_client_option_says_why(option: str, said: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, cluster(f"  options: {{{option}: 1}}")))
    assert place(problem) == (5, 13)
    assert said in str(problem)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("isolation.level", "read_all"),
        ("max.poll.records", "0"),
        ("fetch.max.bytes", "big"),
        ("request.timeout.ms", "x"),
    ],
)
def test_a_wrong_value_of_an_option_is_refused_at_the_value(option: str, value: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, cluster(f"  options: {{{option}: {value}}}")))
    assert place(problem) == (5, 13 + len(option) + 2)


def test_the_docs_name_every_option_that_can_be_set() -> None:
    page = (Path(__file__).parents[2] / "docs" / "project-file.md").read_text()
    assert [option for option in allowed_options() if f"`{option}`" not in page] == []
