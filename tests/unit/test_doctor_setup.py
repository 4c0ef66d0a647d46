"""Versions, jars, Java, topics and files: rules over numbers written by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.doctor import versions
from penstock.doctor.files import log_size, small_files
from penstock.doctor.table_log import StoredLayout
from penstock.doctor.topics import Subscription, check_broker, consumers, partitions, topics
from penstock.kafka.client import TopicInfo
from penstock.operations.broker import TopicOffsets
from penstock.plan.sources import Cluster, KafkaSource, StartingPlan

MIB = 1024**2


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("4.0.4", "==4.0.4", True),
        ("4.0.4", "==4.0.5", False),
        ("4.0", "==4.0.0", True),
        ("1.6.6", "<2,>=1.6", True),
        ("2.0.0", "<2,>=1.6", False),
        ("1.10.0", ">=1.9", True),
        ("2.10.1+local", ">=2.10", True),
        ("1.6.6", "!=1.6.5,>=1.6", True),
        ("1.6.5", "!=1.6.5,>=1.6", False),
        ("1.6", "!=1.6.0", False),
        ("1.9.2", "~=1.6", True),
        ("2.0", "~=1.6", False),
        ("1.5.9", "~=1.6", False),
        ("1.6.9", "~= 1.6.2", True),
        ("1.7.0", "~=1.6.2", False),
        ("1.6", "~=1.6.0", True),
        ("4.0.4", "==4.0.*", True),
        ("4", "==4.0.*", True),
        ("4.1.0", "==4.0.*", False),
        ("4.0.4", "!=4.0.*", False),
        ("4.1.0", "!=4.0.*", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, wanted: str, fits: bool) -> None:
    assert versions.fits(version, wanted) is fits


def test_another_spark_than_the_pinned_one_is_red() -> None:
    check = versions.packages({"pyspark": "==4.0.4", "deltalake": ">=1.6"}, {"pyspark": "4.2.0"})
    assert check.level == "red"
    assert check.found == "pyspark 4.2.0 (wanted ==4.0.4), deltalake is missing (wanted >=1.6)"
    assert "'pyspark==4.0.4'" in check.fix
    assert versions.packages({}, {}).level == "unknown"


def test_this_installation_is_as_pinned() -> None:
    wanted = versions.required_packages()
    assert wanted["pyspark"] == "==4.0.4"
    assert versions.packages(wanted, versions.installed_packages()).level == "ok"


def test_jars_that_differ_from_the_list_are_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark.jars import jar_folder

    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert [check.level for check in versions.jars(["spark"])] == ["note"]
    folder = jar_folder("spark")
    folder.mkdir(parents=True)
    (folder / "unlisted.jar").write_bytes(b"x")
    (check,) = versions.jars(["spark"])
    assert check.level == "red"
    assert "is missing" in check.found
    assert not (folder / ".verified").exists()  # nothing is changed


def java_home(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")  # whoever starts it learns nothing
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\nOS_NAME="Linux"\n')
    return folder


@pytest.mark.parametrize(
    ("version", "level"), [("17.0.15", "ok"), ("21", "ok"), ("24.0.1", "note"), ("11.0.2", "red"), ("1.8.0_402", "red")]
)
def test_java_is_known_without_starting_it(
    version: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "jdk", version)))
    check = versions.java()
    assert check.level == level
    major = "8" if version.startswith("1.8") else version.partition(".")[0]
    assert check.found.startswith(f"Java {major} in {tmp_path / 'jdk'}")


def test_a_java_home_without_java_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = versions.java()
    assert (check.level, "there is no bin/java" in check.found) == ("red", True)


CLUSTER = Cluster("default", "broker:9092")


def subscribed(
    *names: str, pattern: str | None = None, sends: bool = False, **position: dict[int, int]
) -> Subscription:
    source = KafkaSource(CLUSTER, names, pattern, StartingPlan("earliest"), None, None)
    return Subscription("bronze.orders", source, dict(position), {"orders": "id-1"}, sends)


def held(**topics_ends: int) -> TopicOffsets:
    """Topics with one partition each, from 0 to an end."""
    known = {name: TopicInfo("id-1", (0,)) for name in topics_ends}
    return TopicOffsets(
        known, {name: {0: 0} for name in topics_ends}, {name: {0: end} for name, end in topics_ends.items()}
    )


def test_a_broker_that_is_away_is_one_red_finding() -> None:
    check = check_broker(
        CLUSTER.name,
        CLUSTER.bootstrap,
        "Kafka at broker:9092 does not answer (timed out)",
        ["a", "b", "c", "d", "e", "f", "g"],
    )
    assert (check.level, check.subject) == ("red", "the project")
    assert check.found.endswith("; a, b, c, d, e and 2 more depend on it")
    assert check_broker(CLUSTER.name, CLUSTER.bootstrap, None, ["a"]).level == "ok"
    assert "penstock kafka start" in check.fix
    refused = check_broker(
        CLUSTER.name, CLUSTER.bootstrap, "Kafka at broker:9092 refused: Authentication failed", ["a"]
    )
    assert "check `security`" in refused.fix


def test_a_topic_that_does_not_exist_gets_a_did_you_mean() -> None:
    check = topics(subscribed("order"), held(), ["orders", "__consumer_offsets"])
    assert check.level == "red"
    assert check.found == "order does not exist on broker:9092"
    assert check.fix.startswith("did you mean orders? correct `from: {kafka: …}` of bronze.orders")


def test_a_topic_that_a_sink_sends_to_has_to_be_there() -> None:
    missing = topics(subscribed("out", sends=True), held(), [])
    assert (missing.level, "--create --topic out" in missing.fix) == ("red", True)
    assert topics(subscribed("orders", sends=True), held(orders=5), []).level == "ok"


def test_a_topic_that_was_made_again_or_cut_short_is_red() -> None:
    again = TopicOffsets({"orders": TopicInfo("id-2", (0,))}, {"orders": {0: 0}}, {"orders": {0: 9}})
    assert "deleted and recreated" in topics(subscribed("orders", orders={0: 5}), again, []).found
    short = topics(subscribed("orders", orders={0: 12}), held(orders=9), [])
    assert (short.level, "ends at 9" in short.found) == ("red", True)
    gone = topics(subscribed(pattern="o.*", orders={0: 12}, others={0: 1}), held(orders=12), ["orders"])
    assert (gone.level, "topic others no longer exists" in gone.found) == ("red", True)


def test_a_topic_that_lost_its_head_is_told_by_retention_alone() -> None:
    later = TopicOffsets({"orders": TopicInfo("id-1", (0,))}, {"orders": {0: 7}}, {"orders": {0: 9}})
    assert topics(subscribed("orders", orders={0: 5}), later, []).level == "ok"


def test_a_pattern_that_matches_nothing_is_warned_of() -> None:
    assert topics(subscribed(pattern="events-.*"), held(orders=3), ["orders"]).level == "warn"
    assert topics(subscribed(pattern="ord.*"), held(orders=3), ["orders"]).level == "ok"


def test_idle_cores_matter_to_a_busy_table_alone() -> None:
    one = subscribed("orders")
    busy = partitions(one, held(orders=3), 4, usual_seconds=20, trigger_seconds=30)
    assert (busy.level, busy.fix.startswith("write min_partitions: 4")) == ("note", True)
    assert "3 cores idle, while a batch takes 20 s of the 30 s of its trigger" in busy.found
    assert partitions(one, held(orders=3), 4, usual_seconds=2, trigger_seconds=30).level == "ok"
    assert partitions(one, held(orders=3), 4, usual_seconds=None, trigger_seconds=None).level == "ok"


def test_many_partitions_for_few_cores_are_noted() -> None:
    many = TopicOffsets({"orders": TopicInfo("id-1", tuple(range(200)))})
    check = partitions(subscribed("orders"), many, 2, usual_seconds=1, trigger_seconds=30)
    assert (check.level, "200 partitions, 2 tasks at once" in check.found) == ("note", True)


def test_consumers_are_kept_for_all_partitions() -> None:
    (few,) = consumers("64", 100)
    (enough,) = consumers("64", 64)
    assert (few.level, enough.level) == ("warn", "ok")
    assert "spark.kafka.consumer.cache.capacity: 100" in few.fix
    assert consumers(None, 100) == [] and consumers("64", 0) == []


@pytest.mark.parametrize(
    ("number", "average", "level"),
    [(0, 0, "ok"), (50, 1, "ok"), (300, 1, "note"), (5000, 1, "warn"), (5000, 100, "ok")],
)
def test_many_small_files_are_told(number: int, average: int, level: str) -> None:
    check = small_files("bronze.orders", StoredLayout(number, number * average * MIB), 30.0)
    assert check.level == level
    if number == 5000 and average == 1:
        assert check.found == (
            "5,000 files, 4.9 GiB, 1.0 MiB each on average; a trigger of 30 s makes up to 2,880 files a day"
        )
        assert "`penstock optimize bronze.orders` makes about 20 files of them" in check.fix


@pytest.mark.parametrize(
    ("since", "log_bytes", "level"), [(99, 1, "ok"), (301, 1, "warn"), (99, 100 * MIB, "note"), (301, None, "warn")]
)
def test_a_log_without_checkpoints_is_told(since: int, log_bytes: int | None, level: str) -> None:
    layout = StoredLayout(1, 1, {"delta.checkpointInterval": "100"}, since, log_bytes)
    assert log_size("bronze.orders", layout).level == level


def test_nothing_of_doctor_loads_spark() -> None:
    import subprocess

    code = (
        "import sys; from penstock.doctor import examine; "
        "print([name for name in ('pyspark', 'delta') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
