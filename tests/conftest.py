"""One Spark session and one broker for all tests of a folder; each has topics, tables and a project of its own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.dev.postgres import Postgres
    from penstock.plan.model import Plan
    from tests.servers.redis import Redis
    from tests.servers.search import Search

ROOT = Path(__file__).parent
FOLDERS = ("unit", "e2e", "integration")
QUICK = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A filter that is interpreted does not wait for what it is pruned by.
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
}
ZONED = "spark.sql.session.timeZone"
ZONE = os.environ.get("PENSTOCK_TEST_ZONE", "UTC")
"""The time zone of projects and sessions: what a table holds does not depend on it."""


def started(server: Any) -> Any:
    """A server that root installs where it is missing. Nobody else can, so without root its tests are left out; with
    root they fail."""
    from penstock.errors import SetupError

    try:
        return server.start()
    except SetupError as error:
        if os.geteuid() == 0:
            raise
        pytest.skip(f"it is not there, and only root may install it: {error}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests first: what is wrong in a function should not wait for a JVM."""
    items.sort(key=lambda item: next((i for i, name in enumerate(FOLDERS) if name in item.path.parts), 0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`make test` has two processes: one for the tests that call the command, which wait half of their time, and beside
    it one for those that share a session. Whoever has finished helps with those that are left."""
    from xdist.scheduler import LoadScopeScheduling

    class Shared(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            folder = Path(file).parent.name
            return {"e2e": folder, "integration": file}.get(folder, nodeid)

    return Shared(config, log)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    from penstock.dev.broker import Broker

    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the run. Make a database of your own in it: `postgres.create_database(name)`."""
    from penstock.dev.postgres import Postgres

    server = started(Postgres())
    with server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """One server for the run: give your keys a prefix of your own."""
    from tests.servers.redis import Redis

    server = started(Redis())
    with server:
        yield server


@pytest.fixture(scope="session")
def search() -> Iterator[Search]:
    """One server for the run: give your index a name of your own."""
    from tests.servers.search import Search

    with Search().start() as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session with the settings that a project gets: in `make deep`, as in tests of the command, exactly these.
    Otherwise projections are not compiled: for a few rows that takes longer than all the rest of a task."""
    from penstock.spark.session import spark_session

    folder = tmp_path_factory.mktemp("session")
    conf = {} if request.config.option.markexpr == "deep" else QUICK
    tables = {"bronze.none": {"from": {"kafka": "none"}}}
    with spark_session(make_plan(folder, "127.0.0.1:1", tables, spark={"master": "local[2]", "conf": conf})) as session:
        yield session


@pytest.fixture
def topic(broker: Broker) -> Callable[..., str]:
    """Makes a topic with a name of its own: `topic(partitions=4)`."""

    def make(partitions: int = 2, name: str | None = None, **config: str) -> str:
        chosen = name or f"t-{uuid.uuid4().hex[:10]}"
        broker.create_topic(chosen, partitions, {key.replace("_", "."): value for key, value in config.items()})
        return chosen

    return make


@pytest.fixture
def project(tmp_path: Path, broker: Broker) -> Callable[..., Plan]:
    """A plan over the broker, with its lake in the test's folder: `project({"bronze.orders": {"from": {...}}})`."""

    def make(tables: dict[str, Any], **top: Any) -> Plan:
        return make_plan(tmp_path, broker.bootstrap, tables, **top)

    return make


def make_plan(folder: Path, bootstrap: str, tables: dict[str, Any], **top: Any) -> Plan:
    import yaml

    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    document = {"name": "test", "lake": "./lake", "kafka": {"bootstrap": bootstrap}, "tables": tables, **top}
    document.setdefault("spark", {"master": "local[2]"})
    if ZONE != "UTC":
        document["spark"] = {**document["spark"], "conf": {ZONED: ZONE, **document["spark"].get("conf", {})}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "penstock.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    return build_plan(load_project(folder))


@pytest.fixture(autouse=True)
def _quick_tries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables whose failure a test provokes are tried again a tenth of a second later, then two, then four."""
    if "integration" in request.path.parts:
        monkeypatch.setattr("penstock.runtime.context.FIRST_DELAY", 0.1)


@pytest.fixture(autouse=True)
def _no_surprises_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
