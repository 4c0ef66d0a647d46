"""`doctor`: everything that is checked, in one go. Nothing is changed, no JVM is started."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.engine.store import Store
from penstock.engine.stores import open_store
from penstock.errors import PenstockError
from penstock.ops.broker import Question, question
from penstock.ops.doctor import cluster as clusters
from penstock.ops.doctor import machine
from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.checkpoints import leftovers
from penstock.ops.doctor.clock import Newest, skew
from penstock.ops.doctor.cluster import Asked, ask_cluster, touched
from penstock.ops.doctor.location import durable, locks
from penstock.ops.doctor.project import project_checks
from penstock.ops.doctor.room import Place, disk_room, driver_memory
from penstock.ops.doctor.seen import Seen, see
from penstock.ops.doctor.table import Context, backlog_of, table_checks
from penstock.ops.doctor.topics import answers, consumers
from penstock.ops.place import Place as TopicPlace
from penstock.plan.model import Cluster, KafkaSource, Plan, TablePlan
from penstock.spec.project import Project

Say = Callable[[str], None]
_AT_ONCE = 8


def examine(project: Project, plan: Plan, tables: Sequence[TablePlan], say: Say = lambda _: None) -> list[Check]:
    """The checks of the project, then those of each table in the order of the plan."""
    now_ms = time.time() * 1000
    say("the project and this machine")
    found = [*project_checks(project, plan)]
    store = _open(plan)
    if isinstance(store, Check):
        return [*found, store, *_machine(plan, ())]
    found.append(About("lake.readable").ok(plan.lake))
    context = Context(plan, store, now_ms, clusters.TIMEOUT)
    say(f"the logs of {len(tables)} tables")
    with ThreadPoolExecutor(1 if plan.local else 2 * _AT_ONCE) as threads:
        seen = list(threads.map(lambda table: see(plan, table, store, now_ms), tables))
    asked = _ask(seen, say)
    found += [*_machine(plan, seen), *_lake(plan, store), *_clusters(plan, seen, asked)]
    say("what was not read yet")
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        examined = threads.map(lambda one: _table(one, asked, context), seen)
        return [*found, *(check for checks in examined for check in checks)]


def _open(plan: Plan) -> Store | Check:
    """One that cannot be read is one finding, not one for every table."""
    about = About("lake.readable")
    try:
        store = open_store(plan)
    except PenstockError as error:  # a package is missing, or only Spark can read it
        return about.unknown(error.message, error.hint or "")
    try:
        store.names(plan.system)
    except PenstockError as error:
        return about.red(error.message, error.hint or "")
    except OSError as error:
        return about.red(
            f"{plan.system} cannot be read: {error.strerror}", "give its rights to the user of this command"
        )
    return store


def _table(seen: Seen, asked: dict[Question, Asked], context: Context) -> list[Check]:
    source = touched(seen.table)
    said = asked.get(question(source)) if source is not None else None
    return list(table_checks(seen, said, backlog_of(seen, said, context), context))


def _ask(seen: Sequence[Seen], say: Say) -> dict[Question, Asked]:
    """Each cluster once, all at the same time: several that are away take no longer than one."""
    sources: dict[Question, KafkaSource] = {}
    topics: dict[Question, set[str]] = {}
    patterns: dict[Question, set[str]] = {}
    for one in seen:
        source = touched(one.table)
        if source is not None:
            key = question(source)
            sources[key] = source
            topics.setdefault(key, set()).update(source.topics, (place.topic for place in _read(one)))
            patterns.setdefault(key, set()).update([source.pattern] if source.pattern is not None else [])
    if not sources:
        return {}
    say(f"asking Kafka at {', '.join(sorted({source.cluster.bootstrap for source in sources.values()}))}")
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answered = threads.map(
            lambda key: ask_cluster(sources[key], topics[key], patterns[key], timeout=clusters.TIMEOUT), sources
        )
        return dict(zip(sources, answered, strict=True))


def _machine(plan: Plan, seen: Sequence[Seen]) -> Iterator[Check]:
    daily = [one.daily for one in seen if one.daily is not None]
    temporary = plan.conf.get("spark.local.dir", tempfile.gettempdir()).split(",")
    places = [Place("temporary files", path) for path in temporary]
    if plan.local:
        lake = Place("the lake", plan.lake, sum(daily) if daily else None)
        shared = [one for one in places if machine.device_of(one.path) != machine.device_of(plan.lake)]
        places = [lake, *shared]
    for place in places:
        yield disk_room(place, machine.disk(place.path))
    if plan.master.startswith("local"):
        yield driver_memory(plan.conf.get("spark.driver.memory", "1g"), machine.memory())


def _lake(plan: Plan, store: Store) -> Iterator[Check]:
    mount = machine.mount_of(plan.lake, machine.mounts()) if plan.local else None
    yield durable(plan.lake, mount, in_container=machine.in_container())
    yield from locks(plan.lake, mount)
    try:
        yield leftovers(plan, store)
    except (PenstockError, OSError) as error:
        yield About("lake.leftovers").unknown(str(error))


def _clusters(plan: Plan, seen: Sequence[Seen], asked: dict[Question, Asked]) -> Iterator[Check]:
    users: dict[str, list[str]] = {}
    said: dict[str, list[Asked]] = {}
    known: dict[str, Cluster] = {}
    for one in seen:
        source = touched(one.table)
        if source is not None:
            name = source.cluster.name
            known[name] = source.cluster
            users.setdefault(name, []).append(one.table.name)
            said.setdefault(name, []).append(asked[question(source)])
    for name, cluster_of in known.items():
        problem = next((answer.held.problem for answer in said[name] if answer.held.problem), None)
        yield answers(cluster_of, problem, users[name])
    everything = [answer for found in said.values() for answer in found]
    yield from consumers(plan.conf.get("spark.kafka.consumer.cache.capacity"), sum(len(_read(one)) for one in seen))
    records = {topic: newest for answer in everything for topic, newest in _newest(answer).items()}
    unknown = next((why for one in everything if (why := one.held.problem or one.newest_unknown)), None)
    yield skew({one.table.name: one.lately.newest_ms for one in seen}, records, time.time() * 1000, unknown)


def _read(seen: Seen) -> Sequence[TopicPlace]:
    """The partitions of topics that a table reads."""
    return seen.status.places if isinstance(seen.table.source, KafkaSource) else ()


def _newest(asked: Asked) -> dict[str, Newest]:
    return {
        topic: Newest(max(times.values()), topic in asked.kept and asked.kept[topic].by_broker)
        for topic, times in asked.newest_ms.items()
        if times
    }
