"""`penstock generate` up to the broker: what it refuses, and which broker it would take."""

from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from penstock.cli.generate import command
from penstock.dev import standing_broker
from penstock.dev.generate import KINDS
from penstock.errors import BrokerAway, SpecError, UsageError

app = Typer()
app.command()(command)

NOWHERE = ["--bootstrap", "127.0.0.1:1"]
TWO_CLUSTERS = """
name: shop
lake: ./lake
kafka: {bootstrap: "127.0.0.1:1"}
clusters: {eu: {bootstrap: "127.0.0.1:2"}}
tables:
  bronze.orders: {from: {kafka: orders}}
  bronze.clicks: {from: {kafka: clicks, cluster: eu}}
"""


def refusal(*words: str) -> BaseException | None:
    return CliRunner().invoke(app, words).exception


@pytest.mark.parametrize(
    "words",
    [
        ["ordres"],
        ["orders", "--malformed", "5"],
        ["orders", "--malformed", "60%", "--late", "60%"],
        ["orders", "--for", "1m"],
        ["orders", "--rate", "10/s", "--for", "10"],
        ["orders", "--rate", "10/s", "--for", "1m", "--count", "5"],
        ["orders", "--rate", "quick"],
        ["orders", "--count", "0"],
        ["orders", "--start", "yesterday"],
        ["orders", "--over", "1d", "--rate", "5/s"],
        ["orders", "--partitions", "0"],
        ["orders", "--cluster", "eu"],
    ],
)
def test_wrong_use_is_refused_with_a_hint_before_any_broker_is_asked(words: list[str]) -> None:
    error = refusal(*words, *NOWHERE)
    assert isinstance(error, UsageError)
    assert error.hint


def test_the_help_names_every_kind() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(kind in shown for kind in KINDS)


def test_without_a_project_and_a_broker_it_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(standing_broker, "running", lambda: None)
    error = refusal("orders")
    assert isinstance(error, BrokerAway)
    assert "penstock kafka start" in (error.hint or "")


def test_a_folder_without_a_project_is_a_mistake_if_it_was_named(tmp_path: Path) -> None:
    assert isinstance(refusal("orders", "-C", str(tmp_path)), SpecError)


@pytest.mark.parametrize(("kind", "broker"), [("orders", "127.0.0.1:1"), ("clicks", "127.0.0.1:2")])
def test_the_cluster_is_the_one_from_which_the_topic_is_read(
    kind: str, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.dev.generate.producer.DOWN_SECONDS", 0.1)
    (tmp_path / "penstock.yml").write_text(TWO_CLUSTERS)
    error = refusal(kind, "-C", str(tmp_path))
    assert isinstance(error, BrokerAway)
    assert broker in error.message


def test_a_topic_that_no_table_reads_needs_the_name_of_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text(TWO_CLUSTERS)
    error = refusal("sensors", "-C", str(tmp_path))
    assert isinstance(error, UsageError)
    assert "--cluster" in (error.hint or "")


def test_an_unknown_cluster_is_refused(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text(TWO_CLUSTERS)
    error = refusal("sensors", "-C", str(tmp_path), "--cluster", "ue")
    assert isinstance(error, UsageError)
    assert "eu" in (error.hint or "")
