"""What ended a query, told from the text that Spark hands over."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from penstock.errors import BrokerAway, Conflict, DataLoss, PenstockError, SetupError, Terminal, Transient
from penstock.operations.causes import JvmDied, Unexplained, UpstreamChanged, explain, first_line

STACK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
=== Streaming Query ===
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: {}
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def explained(text: str) -> PenstockError:
    return explain(RuntimeError(text), "bronze.orders", "/logs")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment", BrokerAway),
        ("org.apache.kafka.common.errors.DisconnectException", BrokerAway),
        ("org.apache.kafka.common.errors.NotLeaderOrFollowerException: moved", BrokerAway),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: gone", BrokerAway),
        ("org.apache.kafka.common.KafkaException: Failed to construct kafka consumer", BrokerAway),
        ("io.delta.exceptions.ConcurrentTransactionException: [DELTA_CONCURRENT_TRANSACTION] …", Conflict),
        ("[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] ConcurrentAppendException", Conflict),
        ("org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] two queries", Conflict),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", Terminal),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", Terminal),
        ("java.io.IOException: No space left on device", Transient),
        ("java.lang.IllegalStateException: Incomplete log file in offsets/3", Transient),
        ("org.apache.hadoop.fs.ChecksumException: Checksum error: file:/lake/offsets/3 at 0", Transient),
        ("java.lang.NullPointerException", Unexplained),
    ],
)
def test_the_cause_decides_whether_trying_again_can_help(text: str, kind: type[PenstockError]) -> None:
    found = explained(STACK.replace("{}", text))
    assert isinstance(found, kind)
    assert isinstance(found, Unexplained) == (kind is Unexplained)
    assert found.where == "bronze.orders"
    assert first_line(text)[:40] in str(found)


def test_a_refused_password_is_not_tried_again_though_the_broker_hung_up_as_well() -> None:
    text = "TimeoutException: x\nCaused by: org.apache.kafka.common.errors.SaslAuthenticationException: wrong"
    assert not isinstance(explained(text), Transient)


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(),
        ConnectionResetError(),
        EOFError(),
        Py4JError("An error occurred while calling o61.awaitTermination"),
    ],
)
def test_a_dead_jvm_ends_the_whole_run(error: Exception) -> None:
    found = explain(error, "bronze.orders", "/logs")
    assert isinstance(found, JvmDied)
    assert isinstance(found, SetupError)
    assert not isinstance(found, Transient)
    assert "nothing was lost" in (found.hint or "")


def test_our_own_errors_pass_unchanged() -> None:
    loss = DataLoss("gone")
    assert explain(loss, "bronze.orders", "/logs") is loss


def test_what_nobody_knows_names_the_log() -> None:
    assert "/logs" in (explained("strange").hint or "")


def test_the_innermost_cause_is_shown_without_its_stack() -> None:
    assert first_line(STACK.replace("{}", "java.io.IOException: here")) == "java.io.IOException: here"
    assert first_line("just a line\nand another") == "just a line"
    assert first_line("") == "no message"
    assert len(first_line("x" * 1000)) <= 401


def test_what_is_too_long_ends_with_a_sentence_or_at_least_a_word() -> None:
    assert first_line(f"One. Two is version 1.5. {'long ' * 100}end.") == "One. Two is version 1.5."
    assert first_line("word " * 200).endswith("word…")


def test_a_change_upstream_tells_its_version_and_its_table() -> None:
    for text in (
        "[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data (for example a) from streaming source at version 7. "
        "This is currently not supported. If you'd like to ignore deletes, set the option 'ignoreDeletes' to 'true'. "
        "The source table can be found at path file:/data/my table.v2.",
        "[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update (for example a) in the source table at version "
        "7. This is currently not supported. The source table can be found at path file:/data/my table.v2. SQLSTATE: "
        "0A000",
    ):
        found = explained(text)
        assert isinstance(found, UpstreamChanged)
        assert (found.version, found.path) == (7, "file:/data/my table.v2")
        assert "ignore" not in (found.hint or "")


def test_an_error_of_spark_is_told_though_its_session_has_ended() -> None:
    from pyspark.errors.exceptions.captured import AnalysisException

    class Ended(AnalysisException):
        def __init__(self) -> None:
            self._desc = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `t` cannot be found."

        def __str__(self) -> str:
            raise AssertionError  # as Spark's own does without a JVM

    assert "[TABLE_OR_VIEW_NOT_FOUND]" in explain(Ended(), "silver.t", "/logs").message
