"""A canary in every place where a secret may be: it must not sing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.plan.build import build_plan, plan_document
from tests.unit.project_file import check, load, problems

CANARY = "canary-8c1f2"
PROJECT = """\
name: shop
lake: ./lake
kafka:
  bootstrap: h:9092
  security:
    protocol: SASL_SSL
    mechanism: SCRAM-SHA-512
    username: u
    password: ${env:PASSWORD}
    cert_file: c.pem
    key_file: c.pem
    key_password: ${file:key}
spark:
  conf:
    spark.hadoop.fs.s3a.access.key: ${env:PASSWORD}
    spark.hadoop.fs.s3a.endpoint: https://${file:key}.example
    spark.hadoop.fs.azure.account.key: canary-8c1f2
tables: {bronze.orders: {from: {kafka: orders}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text(CANARY + "\n")
    (tmp_path / "c.pem").touch()
    return tmp_path


def test_the_engine_gets_the_secret(folder: Path) -> None:
    plan = build_plan(load(folder, PROJECT, PASSWORD=CANARY))
    cluster = plan.tables[0].source.cluster
    assert cluster.password is not None and cluster.password.get_secret_value() == CANARY
    assert cluster.key_password is not None and cluster.key_password.get_secret_value() == CANARY
    assert {name: value.get_secret_value() for name, value in plan.secret_conf.items()} == {
        "spark.hadoop.fs.s3a.access.key": CANARY,
        "spark.hadoop.fs.s3a.endpoint": f"https://{CANARY}.example",
        "spark.hadoop.fs.azure.account.key": CANARY,
    }
    assert not set(plan.secret_conf) & set(plan.conf)


def test_nothing_that_is_printed_has_the_secret(folder: Path) -> None:
    checked = check(folder, PROJECT, PASSWORD=CANARY)
    project = checked.project
    assert project is not None
    plan = build_plan(project)
    said = [repr(project), str(project), project.model_dump_json(), repr(plan), str(checked)]
    said += [json.dumps(plan_document(plan)), "".join(map(str, checked.warnings)), repr(plan.settings)]
    assert [text for text in said if CANARY in text] == []
    assert "**********" in json.dumps(plan_document(plan))


def test_the_view_of_a_plan_has_stars(folder: Path) -> None:
    from rich.console import Console

    from penstock.cli.plan import plan_view

    console = Console(width=100, record=True, file=(folder / "out").open("w"))
    console.print(plan_view(build_plan(load(folder, PROJECT, PASSWORD=CANARY)), ()))
    text = console.export_text()
    assert CANARY not in text
    assert "**********" in text


@pytest.mark.parametrize(
    "wrong",
    [
        "kafka: {bootstrap: '${env:PASSWORD}'}",
        "kafka: {bootstrap: 'h:1', security: {protocol: '${env:PASSWORD}'}}",
        "kafka: {bootstrap: 'h:1', security: {password: '${file:key}'}}",
        "kafka: {bootstrap: 'h:1', security: {password: [canary-8c1f2]}}",
        "kafka: {bootstrap: 'h:1', options: {request.timeout.ms: '${env:PASSWORD}'}}",
        "kafka: {bootstrap: 'h:1', options: {isolation.level: '${env:PASSWORD}'}}",
        "kafka: '${env:PASSWORD}'",
        "spark: {master: '${env:PASSWORD}'}",
        "spark: {conf: '${env:PASSWORD}'}",
        "spark: {conf: {spark.jars: '${env:PASSWORD}'}}",
        "spark: {jars: ['${file:key}']}",
        "defaults: {trigger: '${env:PASSWORD}', max_per_trigger: '${env:PASSWORD}'}",
        "lake: 's3://${env:PASSWORD}'",
        "lake: 's3a://id:${env:PASSWORD}@bucket'",
        "tables: {a: {from: {kafka: '${env:PASSWORD} x', cluster: '${env:PASSWORD}'}}}",
        "tables: {a: {from: {kafka: {pattern: '[${env:PASSWORD}'}}}}",
        "tables: {a: {from: {kafka: t, starting: '${env:PASSWORD}'}}}",
        "tables: {a: {from: {kafka: t, starting: {timestamp: '${env:PASSWORD}'}}}}",
        "tables: {a: {from: {kafka: t, starting: {offsets: {t: {0: '${env:PASSWORD}'}}}}}}",
        "tables: {a: {from: {kafka: t, min_partitions: '${env:PASSWORD}'}}}",
        "tables: {a: {from: {kafka: t}, payload: '${env:PASSWORD}', columns: {value: '${env:PASSWORD} x'}}}",
        "tables: {a: {from: {kafka: t}, write: {properties: {delta.checkpointInterval: '${env:PASSWORD}'}}}}",
        "tables: {a: '${env:PASSWORD}'}",
        "name: '${env:PASSWORD} x'",
    ],
)
def test_no_error_has_the_secret(wrong: str, folder: Path) -> None:
    keys = {"name": "name: shop", "lake": "lake: ./lake", "kafka": "kafka: {bootstrap: 'h:1'}"}
    keys |= {"tables": "tables: {a: {from: {kafka: t}}}"} | {wrong.partition(":")[0]: wrong}
    found = problems(folder, "\n".join(keys.values()), PASSWORD=CANARY)
    assert found
    assert CANARY not in "".join(map(str, found))
