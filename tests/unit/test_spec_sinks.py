"""Sinks as written, and what becomes of them in the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.ledger.delta_log import read_commit
from penstock.ledger.entry import dump, parse
from penstock.plan.build import build_plan, plan_document, select_tables
from penstock.plan.model import TablePlan
from penstock.plan.targets import RowSink
from tests.unit.project_file import HEAD, load, one, place, problems

TABLES = """\
tables:
  bronze.orders: {from: {kafka: orders}}
  silver.orders: {from: {table: bronze.orders}, decode: {json: value, schema: "id BIGINT"}}
  silver.items: {from: {table: silver.orders}, sql: "SELECT * FROM orders"}
  gold.daily: {from: {table: silver.orders}, aggregate: {keys: [id], metrics: {n: count(*)}}}
sinks:
"""


def sinks(*lines: str, head: str = HEAD) -> str:
    """The first line is line 10."""
    return head + TABLES + "".join(f"  {line}\n" for line in lines)


def planned(folder: Path, *lines: str) -> tuple[TablePlan, RowSink]:
    plan = build_plan(load(folder, sinks(*lines)))
    made = plan.tables[-1]
    assert made.sink is not None
    return made, made.sink


def test_a_sink_is_planned_after_the_tables(tmp_path: Path) -> None:
    written = (
        "out: {from: {table: silver.orders, where: id > 1, starting: latest}, to: {kafka: alerts}, key: id, "
        "value: to_json(struct(*)), headers: {kind: \"'alert'\"}, trigger: 5s}"
    )
    table, sink = planned(tmp_path, written)
    assert (table.name, table.upstream, table.trigger.seconds) == ("out", ("silver.orders",), 5)
    assert table.uri.endswith("/lake/_penstock/sinks/out")
    assert table.origin.endswith("penstock.yml:10")
    assert (sink.topic, sink.key, dict(sink.headers)) == ("alerts", "id", {"kind": "'alert'"})
    assert {"acks": "all", "enable.idempotence": "true"}.items() <= sink.options.items()


@pytest.mark.parametrize(
    ("source", "coordinates"),
    [
        ("{table: bronze.orders}", (("topic",), ("partition",), ("offset",))),
        ("{table: silver.orders}", (("_source", "topic"), ("_source", "partition"), ("_source", "offset"))),
        ("{table: silver.items}", None),  # sql may make many rows of one record
        ("{delta: ./elsewhere}", None),
    ],
)
def test_rows_are_named_by_their_record_where_that_names_one_row(
    source: str, coordinates: object, tmp_path: Path
) -> None:
    assert planned(tmp_path, f"out: {{from: {source}, to: {{kafka: x}}}}")[1].coordinates == coordinates


@pytest.mark.parametrize(
    ("written", "said", "hint"),
    [
        ("out: {from: {table: silver.ordres}, to: {kafka: x}}", "there is no table", "did you mean 'silver.orders'?"),
        ("out: {from: {kafka: orders}, to: {kafka: x}}", "a sink sends the rows of a table", "land them"),
        ("out: {from: {table: gold.daily}, to: {kafka: x}}", "recomputes its groups in place", "changes: gold.daily"),
        ("out: {from: {table: silver.orders}}", "'to' is missing", "write to: {kafka: alerts}"),
        ("out: {from: {table: silver.orders}, to: {kafka: [a, b]}}", "one topic, not to a list", "a sink for each"),
        ("out: {from: {table: silver.orders}, to: {kafka: 'a b'}}", "'a b' is not the name of a topic", "letters"),
        ("out: {from: {table: silver.orders}, to: {kafka: x, cluster: eu}}", "there is no cluster 'eu'", "clusters:"),
        ("out: {from: {table: silver.orders}, to: {topic: x}}", "unknown key 'topic'", ""),
        ("out: {from: {table: silver.orders}, to: {kafka: x}, headers: {Penstock-Id: a}}", "sends itself", "another"),
        ("out: {from: {table: silver.orders}, to: {kafka: x}, headers: [a]}", "needs a mapping", ""),
        ("out: {from: {table: silver.orders}, to: {kafka: x}, keys: a}", "'keys' is for", "did you mean 'key'?"),
        ("out: {from: {table: silver.orders}, to: {kafka: x, options: {acks: 1}}}", "at least once", "remove it"),
        ("out: {from: {table: silver.orders}, to: {kafka: x, options: {max.poll.records: 1}}}", "is not a client", ""),
        ("silver.orders: {from: {table: silver.orders}, to: {kafka: x}}", "cannot name a sink", "alerts_out"),
    ],
)
def test_a_sink_that_cannot_be_is_refused(written: str, said: str, hint: str, tmp_path: Path) -> None:
    found = problems(tmp_path, sinks(written))
    assert any(said in problem.message and hint in (problem.hint or "") for problem in found), found
    assert all(problem.line == 10 for problem in found), found


def test_a_sink_does_not_have_the_name_of_a_table(tmp_path: Path) -> None:
    tables = "tables:\n  orders: {from: {kafka: a}}\n"
    text = f"{HEAD}{tables}sinks:\n  Orders: {{from: {{table: orders}}, to: {{kafka: b}}}}\n"
    problem = one(problems(tmp_path, text))
    assert problem.message == "a table is called 'orders' already"
    assert place(problem) == (7, 3)


def test_a_sink_needs_a_cluster_to_send_to(tmp_path: Path) -> None:
    head = 'name: shop\nlake: ./lake\nclusters: {eu: {bootstrap: "h:9092"}}\n'
    tables = "tables:\n  t: {from: {kafka: a, cluster: eu}}\nsinks:\n"
    refused = problems(tmp_path, f"{head}{tables}  out: {{from: {{table: t}}, to: {{kafka: b}}}}\n")
    assert "no Kafka cluster" in one(refused).message
    project = load(tmp_path, f"{head}{tables}  out: {{from: {{table: t}}, to: {{kafka: b, cluster: eu}}}}\n")
    assert build_plan(project).tables[-1].sink.cluster.name == "eu"  # type: ignore[union-attr]


def test_options_of_the_cluster_reach_the_producer_as_far_as_it_knows_them(tmp_path: Path) -> None:
    head = HEAD.replace("}\n", ", options: {client.rack: eu-1a, max.poll.records: 10, request.timeout.ms: 40s}}\n")
    text = sinks(
        "out: {from: {table: silver.orders}, to: {kafka: x, options: {max.request.size: 2MB, linger.ms: 5}}}", head=head
    )
    sink = build_plan(load(tmp_path, text)).tables[-1].sink
    assert sink is not None
    assert dict(sink.options) == {
        "acks": "all",
        "enable.idempotence": "true",
        "client.rack": "eu-1a",
        "request.timeout.ms": "40000",
        "max.request.size": "2000000",
        "linger.ms": "5",
    }


def test_what_is_sent_is_part_of_the_definition_and_the_login_is_not_shown(tmp_path: Path) -> None:
    security = "{protocol: SASL_SSL, mechanism: PLAIN, username: u, password: '${env:P}'}"
    head = HEAD.replace("}\n", f", security: {security}}}\n")

    def definition(more: str) -> str:
        plan = build_plan(
            load(tmp_path, sinks(f"out: {{from: {{table: silver.orders}}, {more}}}", head=head), P="zebra")
        )
        assert "zebra" not in json.dumps(plan_document(plan))
        return plan.tables[-1].definition

    same = definition("to: {kafka: x}")
    assert definition("to: {kafka: x}, trigger: 1h") == same
    assert (
        len({same, *map(definition, ("to: {kafka: y}", "to: {kafka: x}, key: id", "to: {kafka: x}, value: id"))}) == 4
    )


def test_a_sink_can_be_chosen_by_its_name(tmp_path: Path) -> None:
    plan = build_plan(load(tmp_path, sinks("out: {from: {table: silver.orders}, to: {kafka: x}}")))
    assert [table.name for table in select_tables(plan, ["out"])] == ["out"]


def test_the_rows_of_a_sinks_commit_are_those_that_it_sent() -> None:
    from dataclasses import replace

    from tests.unit.hand_ledgers import at, entry

    sent = replace(entry(1, at(0), at(5), table="out"), sent=5)
    assert parse(dump(sent)) == sent
    info = {"operation": "WRITE", "userMetadata": dump(sent), "operationMetrics": {"numOutputRows": "1"}}
    assert read_commit(1, json.dumps({"commitInfo": info}), "out").rows == 5
    assert sent.carry_entry(sent.counts).sent is None
