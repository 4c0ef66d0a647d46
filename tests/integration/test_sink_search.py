"""Changes of a table followed into a real OpenSearch, by bulk requests."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from penstock.errors import TableChanged, Terminal, Transient
from tests.integration.change_source import SINK, Followed, dies, quarantined
from tests.integration.run_plan import whole_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.search import Search


@pytest.fixture
def followed(spark: SparkSession, project: Any) -> Followed:
    return Followed(spark, project, "id STRING, name STRING, n DOUBLE, at TIMESTAMP")


def documents(search: Search, index: str) -> dict[str, tuple[int, dict[str, Any]]]:
    httpx.post(f"{search.url}/{index}/_refresh").raise_for_status()
    found = httpx.get(f"{search.url}/{index}/_search", params={"size": 10_000, "version": True}).json()
    return {hit["_id"]: (hit["_version"], hit["_source"]) for hit in found["hits"]["hits"]}


def test_an_index_holds_what_the_table_holds(
    followed: Followed, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.sinks import search as target

    monkeypatch.setattr(target, "_ACTIONS", 700)
    index = uuid.uuid4().hex
    plan = followed.plan({"search": search.url, "index": index})
    followed.sql("INSERT INTO T SELECT 'k' || id, 'n' || id, id, TIMESTAMP'2026-01-01 00:00:00Z' FROM range(2000)")
    followed.run(plan)
    found = documents(search, index)
    assert len(found) == 2000
    assert found["k7"] == (1, {"id": "k7", "name": "n7", "n": 7.0, "at": "2026-01-01T00:00:00.000000Z"})
    followed.sql("DELETE FROM T WHERE n >= 3")
    followed.sql("UPDATE T SET name = 'é\"' WHERE n = 1")
    followed.sql(
        "INSERT INTO T VALUES ('bad', 'x', double('NaN'), NULL), (NULL, 'x', 1, NULL), ('', 'x', 1, NULL), "
        "(repeat('é', 257), 'x', 1, NULL), ('good', 'x', 1, NULL)"
    )
    dies(monkeypatch, "append", after=False)
    heard = followed.run(plan)
    assert heard.heard("killed"), "the batch is sent a second time"
    assert documents(search, index) == {
        "k0": (1, found["k0"][1]),
        "k1": (3, {**found["k1"][1], "name": 'é"'}),
        "k2": (1, found["k2"][1]),
        "good": (4, {"id": "good", "name": "x", "n": 1.0}),
    }
    told = {row["key"]: (row["error_reason"], row["error_detail"]) for row in quarantined(plan)}
    assert len(quarantined(plan)) == 4 and told.keys() == {"bad", None, "", "é" * 257}
    assert told[None][0] == "null_key" and "514 bytes" in told["é" * 257][1] and "0 bytes" in told[""][1]
    assert told["bad"][0] == "refused" and "mapper_parsing_exception" in told["bad"][1]
    assert [entry.sent for entry in whole_chain(plan, SINK)[1:]] == [2000, 1999]


@pytest.mark.deep
def test_what_is_newer_stays_and_what_no_version_of_the_table_was_is_refused(
    followed: Followed, search: Search
) -> None:
    index = uuid.uuid4().hex
    plan = followed.plan({"search": search.url, "index": index}, keys=["id", "name"])
    followed.sql("INSERT INTO T VALUES ('a', 'x', 1, NULL), ('b', 'y', 1, NULL)")
    followed.run(plan)
    assert documents(search, index).keys() == {'{"id":"a","name":"x"}', '{"id":"b","name":"y"}'}
    followed.sql("UPDATE T SET n = 2 WHERE id = 'a'")
    place = f"{search.url}/{index}/_doc/%7B%22id%22:%22a%22,%22name%22:%22x%22%7D"
    httpx.put(place, params={"version": 4, "version_type": "external"}, json={"n": 9}).raise_for_status()
    error = followed.error(plan)
    assert isinstance(error, TableChanged) and "has version 4, and the table is at version 2" in error.message
    for _ in range(2):
        followed.sql("UPDATE T SET n = n + 1 WHERE id = 'b'")
    followed.run(plan)
    found = documents(search, index)
    assert found['{"id":"a","name":"x"}'] == (4, {"n": 9}) and found['{"id":"b","name":"y"}'][1]["n"] == 3


def test_a_server_that_does_not_answer_is_waited_for_and_one_that_refuses_is_not(followed: Followed) -> None:
    import http.server
    import threading

    answers = [401, 503]

    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(answers[0])
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    followed.sql("INSERT INTO T VALUES ('a', 'x', 1, NULL)")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        plan = followed.plan({"search": f"http://127.0.0.1:{server.server_port}", "index": "c"})
        error = followed.error(plan)
        assert isinstance(error, Terminal) and "401" in error.message
        answers.pop(0)
        assert isinstance(followed.error(plan), Transient)
        server.shutdown()
    assert isinstance(followed.error(plan), Transient)
