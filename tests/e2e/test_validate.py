from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """\
name: shop
lake: ./lake
kafka:
  bootstrap: h:9092
  security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: "${env:SECRET}", }
spark: {conf: {spark.hadoop.fs.s3a.secret.key: "${file:key}"}}
tables:
  bronze.orders: {from: {kafka: [orders, refunds]}}
  bronze.events: {from: {kafka: {pattern: "events-.*"}}}
"""
CANARY = "canary-51e07"


def penstock(*arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=folder,
        env=os.environ | {"SECRET": CANARY} | env,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "penstock.yml").write_text(GOOD)
    (tmp_path / "key").write_text(CANARY)
    return tmp_path


def test_a_valid_project_gets_a_tick_and_its_contents(folder: Path) -> None:
    done = penstock("validate", folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "✓ penstock.yml is valid: 2 tables from 2 topics and 1 pattern of 1 cluster\n"


def test_the_folder_is_named_with_the_option_of_the_verb(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = penstock("validate", "-C", str(folder), folder=tmp_path_factory.mktemp("elsewhere"))
    assert f"{folder}/penstock.yml is valid" in done.stdout


def test_the_folder_is_named_before_the_verb(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    done = penstock("-C", str(folder), "validate", folder=tmp_path_factory.mktemp("elsewhere"))
    assert f"{folder}/penstock.yml is valid" in done.stdout


def test_problems_are_told_with_their_places_and_the_exit_code_is_2(folder: Path) -> None:
    (folder / "penstock.yml").write_text(GOOD.replace("lake:", "lak:").replace("bronze.events", "bronze.orders.x"))
    done = penstock("validate", folder=folder)
    assert done.returncode == 2
    assert "penstock.yml:2:1: error: unknown key 'lak'" in done.stdout
    assert "did you mean 'lake'?" in done.stdout
    assert done.stdout.endswith("✗ penstock.yml: 3 problems\n")


def test_json_has_problems_and_warnings(folder: Path) -> None:
    (folder / "penstock.yml").write_text(GOOD.replace('"${env:SECRET}"', "hunter2").replace("name: shop", "name: 5"))
    done = penstock("validate", "--json", folder=folder)
    document = json.loads(done.stdout)
    assert done.returncode == 2
    assert document["valid"] is False
    assert [(problem["line"], problem["column"]) for problem in document["problems"]] == [(1, 7)]
    assert [warning["line"] for warning in document["warnings"]] == [5]
    assert set(document["problems"][0]) == {"file", "line", "column", "message", "hint"}


def test_a_terminal_without_unicode_gets_plain_words(folder: Path) -> None:
    assert penstock("validate", folder=folder, PYTHONIOENCODING="ascii").stdout.startswith("ok: penstock.yml is valid")


def test_a_folder_without_a_project_is_wrong_use(tmp_path: Path) -> None:
    for verb in ("validate", "plan"):
        done = penstock(verb, folder=tmp_path)
        assert done.returncode == 2
        assert "penstock init" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_plan_tells_of_every_table_and_why(folder: Path) -> None:
    done = penstock("plan", folder=folder)
    assert done.returncode == 0, done.stderr
    assert f"{folder}/lake/_penstock/checkpoints/bronze.orders/<generation>" in done.stdout
    assert "topics orders, refunds" in done.stdout
    assert "topics that match events-.*" in done.stdout
    assert "a bounded batch bounds memory" in done.stdout


def test_plan_of_one_table_leaves_the_others_out(folder: Path) -> None:
    document = json.loads(penstock("plan", "bronze.events", "--json", folder=folder).stdout)
    assert [table["name"] for table in document["tables"]] == ["bronze.events"]


def test_plan_of_an_unknown_table_says_which_was_meant(folder: Path) -> None:
    done = penstock("plan", "bronze.order", folder=folder)
    assert done.returncode == 2
    assert "did you mean 'bronze.orders'?" in done.stderr


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_plan_fits_the_terminal(width: int, folder: Path) -> None:
    done = penstock("plan", folder=folder, FORCE_COLOR="1", COLUMNS=str(width), TERM="xterm")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
    assert width - 20 < max(map(len, lines)) <= width


@pytest.mark.parametrize("arguments", [["validate"], ["validate", "--json"], ["plan"], ["plan", "--json"]])
def test_no_command_prints_a_secret(arguments: list[str], folder: Path) -> None:
    done = penstock(*arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    assert CANARY not in done.stdout + done.stderr


def test_no_error_prints_a_secret(folder: Path) -> None:
    (folder / "penstock.yml").write_text(GOOD.replace("bootstrap: h:9092", "bootstrap: ${env:SECRET}"))
    for verb in ("validate", "plan"):
        done = penstock(verb, folder=folder)
        assert done.returncode == 2
        assert "${env:SECRET}" in done.stdout + done.stderr
        assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["validate"], ["--help"]])
def test_the_quick_verbs_load_nothing_heavy_and_answer_at_once(arguments: list[str], folder: Path) -> None:
    done = penstock(*arguments, folder=folder, PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert not loaded & {"pyspark", "delta", "deltalake", "confluent_kafka", "py4j", "pyarrow"}
    if arguments == ["validate"]:
        assert "rich" not in loaded
    # The promise is 0.5 s. The time of the processor, unlike the clock, is the same beside other work; the bound leaves
    # room for packages that are not compiled yet.
    assert min(_processor_seconds(arguments, folder) for _ in range(3)) < 1.5


def _processor_seconds(arguments: list[str], folder: Path) -> float:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    penstock(*arguments, folder=folder)
    return spent() - before
