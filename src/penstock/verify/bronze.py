"""A table that reads Kafka: its ledger, its rows and the broker, each against the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.operations import broker
from penstock.operations.broker import ask, places, together
from penstock.verify.coordinates import Spans, compare
from penstock.verify.gaps import explain_gaps
from penstock.verify.ledger_walk import offsets_of
from penstock.verify.report import Partition, began_in_topics
from penstock.verify.rows import read_at, rows_at
from penstock.verify.unread import unread_of_topics

if TYPE_CHECKING:
    from penstock.operations.broker import TopicOffsets
    from penstock.verify.context import VerifyContext
    from penstock.verify.coordinates import Coordinates, Key
    from penstock.verify.ledger_walk import Chain
    from penstock.verify.rows import Rows

BROKER_TIMEOUT = 10.0


def verify_landed(look: VerifyContext, rows: Rows, held: TopicOffsets) -> None:
    chain = look.walk(rows_at(rows))
    stand(look, held)
    report = look.report
    try:
        within = {key: levels[0] for key, levels in chain.expected.times.items()}
        found = read_at(rows, look.tail.version, within, look.step("reading the coordinates of every row"))
    except PenstockError as error:
        report.problems.append(error.message)
        report.hint = error.hint
        return
    report.rows, report.without = found.rows, found.without - chain.earlier_without
    before_the_log(look, chain, found)
    differences = compare(chain.expected, found)
    report.partitions = [Partition(*key, chain.expected.once(key), one) for key, one in differences.items()]
    ask_about_gaps(look, chain, held)


def stand(look: VerifyContext, held: TopicOffsets) -> None:
    report, entry = look.report, look.tail.entry
    position, source = offsets_of(entry.after), look.table.topics
    assert source is not None
    report.broker_problem, report.places = held.problem, places(position, held)
    report.unread = unread_of_topics(source, entry, report.places, held)
    report.began = began_in_topics(source, look.began, held)
    report.doubts += [report.began.doubt] if report.began.doubt else []
    report.problems += broker.problems(position, entry.topics, held)
    report.notes += [f"topic {topic} no longer exists at the broker" for topic in broker.gone(position, held)]


def ask_about_gaps(look: VerifyContext, chain: Chain, held: TopicOffsets) -> None:
    source, report = look.table.topics, look.report
    assert source is not None
    progress: Callable[[float], None] = look.step("asking Kafka about offsets that the table lacks")
    position = offsets_of(look.tail.entry.after)
    left = {one.topic for one in report.partitions if one.difference.gaps} - set(position)
    if left:  # topics that the table no longer reads
        held = together(held, ask(source, left, timeout=BROKER_TIMEOUT))
    explain_gaps(source, report, chain, held, progress)


def before_the_log(look: VerifyContext, chain: Chain, found: Coordinates) -> None:
    """Log retention takes old entries. What was read before the first one that is left is expected from where the
    table began, if its entries carry that; else from the first offset in the table, and then no more is proven. The
    ledger's running count shows whether rows are missing before that."""
    if chain.from_genesis:
        return
    report, began = look.report, offsets_of(look.tail.entry.began)
    known = f"the chain is known from version {chain.known_from} on: older commits were cleaned up"
    unclear: dict[Key, Spans] = {}
    for topic, partitions in chain.assumed.items():
        for partition, end in partitions.items():
            key, start = (topic, partition), began.get(topic, {}).get(partition)
            present = found.present.get(key)
            first = min(present.start, end) if present else end
            chain.expected.forget_before(key, first if start is None else start)
            if start is not None:
                unclear[key] = Spans([(start, end)]) if start < end else Spans()
    if began:
        report.notes.append(f"{known}. What was landed before is proven by its rows, from where the table began")
        chain.unclear.append((f"{known}: a decision to skip them would no longer be in the log", unclear))
    else:
        report.doubts.append(f"{known}. Of what was landed before, the first offset is taken from the table")
    total = look.tail.counts.total
    if found.rows < total and not chain.foreign:
        report.doubts.append(f"the ledger counted {total:,} rows, the table holds {found.rows:,}")
