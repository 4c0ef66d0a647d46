"""Sinks that follow changes, as written, and what becomes of them in the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.plan.build import build_plan, plan_document
from penstock.plan.targets import ChangeSink, JdbcTarget, KafkaTarget, RedisTarget, SearchTarget
from tests.unit.project_file import HEAD, check, load, problems

TABLES = """\
tables:
  bronze.orders: {from: {kafka: orders}}
  silver.c: {from: {table: bronze.orders}, decode: {json: value, schema: "id BIGINT"}, write: {change_feed: true}}
  silver.plain: {from: {table: bronze.orders}, decode: {json: value, schema: "id BIGINT"}}
  gold.daily:
    from: {table: silver.c}
    aggregate: {keys: [id], window: {time: ts, every: 1 day}, metrics: {n: count(*)}}
    write: {change_feed: true}
sinks:
"""


def written(line: str) -> str:
    """The sink is in line 13."""
    return f"{HEAD}{TABLES}  {line}\n"


def planned(folder: Path, line: str, **env: str) -> ChangeSink:
    plan = build_plan(load(folder, written(line), **env))
    sink = plan.tables[-1].sink
    assert isinstance(sink, ChangeSink)
    document = json.dumps(plan_document(plan))
    assert all(secret not in document for secret in env.values())
    return sink


def following(to: str, more: str = "keys: [id]") -> str:
    return f"out: {{from: {{changes: silver.c}}, to: {to}, {more}}}"


@pytest.mark.parametrize("address", ["h:5432/shop", "postgresql://h:5432/shop", "jdbc:postgresql://h:5432/shop"])
def test_postgresql_goes_by_its_address_however_it_is_written(address: str, tmp_path: Path) -> None:
    to = f"{{postgres: '{address}', table: public.c, user: u, password: '${{env:P}}', options: {{sslmode: require}}}}"
    sink = planned(tmp_path, following(to), P="zebra")
    target = sink.target
    assert isinstance(target, JdbcTarget) and target.password is not None
    assert (target.url, target.table, target.create) == ("jdbc:postgresql://h:5432/shop", "public.c", True)
    assert (target.user, target.password.get_secret_value()) == ("u", "zebra")
    assert (sink.keys, dict(target.options)) == (("id",), {"sslmode": "require"})


def test_each_kind_of_target_has_a_plan(tmp_path: Path) -> None:
    search = planned(
        tmp_path, following("{search: 'https://h:9200/', index: c, api_key: '${env:K}'}"), K="zebra"
    ).target
    assert isinstance(search, SearchTarget) and (search.url, search.index) == ("https://h:9200", "c")
    redis = planned(tmp_path, following("{redis: 'redis://h/0', prefix: 'c:', as: hash, ttl: 1 day}")).target
    assert redis == RedisTarget("redis://h/0", "c:", "hash", 86_400_000)
    kafka = planned(tmp_path, following("{kafka: x}", "keys: id, headers: {kind: \"'c'\"}")).target
    assert isinstance(kafka, KafkaTarget) and (kafka.topic, kafka.options["acks"]) == ("x", "all")
    jdbc = planned(
        tmp_path, following("{jdbc: 'jdbc:mysql://h/shop', table: c, create: false}", "keys: [id], columns: [id, n]")
    )
    assert isinstance(jdbc.target, JdbcTarget) and (jdbc.target.create, jdbc.columns) == (False, ("id", "n"))


def test_the_groups_of_an_aggregate_are_its_keys(tmp_path: Path) -> None:
    sink = planned(tmp_path, "out: {from: {changes: gold.daily}, to: {redis: 'redis://h'}}")
    assert sink.keys == ("window_start", "window_end", "id")


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        (
            "out: {from: {changes: silver.cc}, to: {kafka: x}, keys: id}",
            "there is no table",
            "did you mean 'silver.c'?",
        ),
        ("out: {from: {changes: silver.plain}, to: {kafka: x}, keys: id}", "keeps no change feed", "change_feed: true"),
        ("out: {from: {changes: silver.c}, to: {kafka: x}}", "'keys' is missing", "write keys"),
        ("out: {from: {table: silver.c}, to: {redis: 'redis://h'}}", "follows the changes", "from: {changes:"),
        ("out: {from: {changes: silver.c, startin: latest}, to: {kafka: x}, keys: id}", "'startin'", "'starting'"),
        (following("{kafka: x}", "key: id"), "the key of a change", "write keys"),
        (following("{kafka: x}", "keys: [id, ID]"), "'ID' is there twice", "once"),
        (following("{kafka: x}", "keys: id, value: id, columns: id"), "columns and a value", "keep one"),
        (following("{redis: 'redis://h'}", "keys: id, headers: {a: b}"), "a record of Kafka", "`columns`"),
        (following("{elasticsearch: 'http://h'}"), "unknown key 'elasticsearch'", "did you mean 'search'?"),
        (following("{kafka: x, redis: 'redis://h'}"), "one target", "a sink of each"),
        (following("{postgres: 'h:5432/shop'}"), "'table' is missing", "table: public.customers"),
        (following("{postgres: 'h:5432', table: c}"), "not the address of a database", "host:5432/shop"),
        (following("{jdbc: 'mysql://h/shop', table: c}"), "not the address of a database", "jdbc:mysql"),
        (following("{postgres: 'h/s', table: 'a.b.c'}"), "'a.b.c' is not the name of a table", "public.customers"),
        (following("{postgres: 'h/s', table: c, options: {Password: x}}"), "'Password' is not an option", "${env"),
        (following("{postgres: 'h/s', table: c, creat: true}"), "unknown key 'creat'", "did you mean 'create'?"),
        (following("{search: 'h:9200', index: c}"), "not the address of a search index", "http://"),
        (following("{search: 'http://h', index: C}"), "'C' is not the name of an index", "small letters"),
        (following("{search: 'http://h', index: c, user: u}"), "belong together", "both"),
        (following("{redis: 'h:6379'}"), "not the address of a Redis", "redis://127.0.0.1:6379/0"),
        (following("{redis: 'redis://h/x'}"), "not the address of a Redis", "redis://"),
        (following("{redis: 'redis://h', as: jso}"), "'jso' is not a form", "did you mean 'json'?"),
        ("out__quarantine: {from: {changes: silver.c}, to: {kafka: x}, keys: id}", "ends in __quarantine", "another"),
    ],
)
def test_a_sink_that_cannot_be_is_refused(line: str, said: str, hint: str, tmp_path: Path) -> None:
    found = problems(tmp_path, written(line))
    assert any(said in problem.message and hint in (problem.hint or "") for problem in found), found
    assert all(problem.line == 13 for problem in found), found


@pytest.mark.parametrize(
    "to",
    [
        "{postgres: 'postgresql://u:zebra@h/s', table: c}",
        "{jdbc: 'jdbc:mysql://h/s?user=u&password=zebra', table: c}",
        "{search: 'http://u:zebra@h', index: c}",
        "{redis: 'redis://:zebra@h/0'}",
    ],
)
def test_an_address_with_a_login_in_it_is_refused_and_not_shown(to: str, tmp_path: Path) -> None:
    found = problems(tmp_path, written(following(to)))
    assert any("has a login in it" in problem.message for problem in found), found
    assert "zebra" not in repr(found)


def test_a_password_in_clear_is_warned_about(tmp_path: Path) -> None:
    warnings = check(tmp_path, written(following("{redis: 'redis://h', password: zebra}"))).warnings
    assert [warning.line for warning in warnings] == [13] and "zebra" not in repr(warnings)


def test_where_it_goes_is_part_of_the_definition_and_the_address_is_not(tmp_path: Path) -> None:
    def definition(to: str, more: str = "keys: [id]") -> str:
        return build_plan(load(tmp_path, written(following(to, more)))).tables[-1].definition

    same = definition("{redis: 'redis://h/0', prefix: a}")
    assert definition("{redis: 'redis://other/0', prefix: a, ttl: 1h}") == same
    others = [definition("{redis: 'redis://h/0'}"), definition("{redis: 'redis://h/0', prefix: a}", "keys: [id, n]")]
    assert len({same, *others}) == 3
