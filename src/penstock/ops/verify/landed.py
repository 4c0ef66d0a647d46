"""A table that reads Kafka: its ledger, its rows and the broker, each against the others."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.ops.broker import Held, ask, places, together
from penstock.ops.verify import standing
from penstock.ops.verify.chain import Chain
from penstock.ops.verify.compare import compare
from penstock.ops.verify.coordinates import Coordinates
from penstock.ops.verify.gaps import explain_gaps
from penstock.ops.verify.look import Look
from penstock.ops.verify.positions import offsets_of
from penstock.ops.verify.report import Partition
from penstock.ops.verify.rows import Rows, read_at, rows_at
from penstock.plan.model import KafkaSource

BROKER_TIMEOUT = 10.0


def verify_landed(look: Look, rows: Rows, held: Held) -> None:
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


def stand(look: Look, held: Held) -> None:
    report, entry = look.report, look.tail.entry
    position = offsets_of(entry.after)
    report.broker_problem, report.places = held.problem, places(position, held)
    report.problems += standing.problems(position, entry.topics, held)
    report.notes += [f"topic {topic} no longer exists at the broker" for topic in standing.gone(position, held)]


def ask_about_gaps(look: Look, chain: Chain, held: Held) -> None:
    source, report = look.table.source, look.report
    assert isinstance(source, KafkaSource)
    progress: Callable[[float], None] = look.step("asking Kafka about offsets that the table lacks")
    position = offsets_of(look.tail.entry.after)
    left = {one.topic for one in report.partitions if one.difference.gaps} - set(position)
    if left:  # topics that the table no longer reads
        held = together(held, ask(source, left, timeout=BROKER_TIMEOUT))
    explain_gaps(source, report, chain, held, progress)


def before_the_log(look: Look, chain: Chain, found: Coordinates) -> None:
    """Log retention takes old entries. What was read before the first one that is left is then taken from the table
    itself, from its first offset on; the ledger's running count shows whether rows are missing before that."""
    if chain.from_genesis:
        return
    look.report.notes.append(
        f"the chain is known from version {chain.known_from} on: older commits were cleaned up. Of what was landed "
        "before, the first offset is taken from the table"
    )
    for topic, partitions in chain.assumed.items():
        for partition, end in partitions.items():
            present = found.present.get((topic, partition))
            chain.expected.forget_before((topic, partition), min(present.start, end) if present else end)
    total = look.tail.counts.total
    if found.rows < total and not chain.foreign:
        look.report.doubts.append(f"the ledger counted {total} rows, the table holds {found.rows}")
