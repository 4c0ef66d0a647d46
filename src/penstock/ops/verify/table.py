"""`verify`: the ledger's chain, the rows' coordinates and the broker, each against the others.

A table is read at the newest version at the time of the look, so a running stream does not disturb it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.position import Offsets
from penstock.engine.store import Store
from penstock.errors import PenstockError
from penstock.ops.broker import Held, Question, ask, places, question, together
from penstock.ops.verify import standing
from penstock.ops.verify.broker_gaps import Answer, look_up
from penstock.ops.verify.chain import Chain
from penstock.ops.verify.compare import compare
from penstock.ops.verify.coordinates import Coordinates
from penstock.ops.verify.expected import Key
from penstock.ops.verify.positions import offsets_of
from penstock.ops.verify.report import Partition, Report
from penstock.ops.verify.rows import read_at, rows_at
from penstock.ops.verify.spans import Spans
from penstock.ops.verify.walk import read_chain
from penstock.plan.model import TablePlan

Progress = Callable[[str, str, float], None]
"""Table, what is being done, and which part of that is done."""
BROKER_TIMEOUT = 10.0


def verify(tables: Sequence[TablePlan], store: Store, progress: Progress = lambda *_: None) -> list[Report]:
    """One report per table, in their order. Nothing is raised because of a table or a broker: it is in the report."""
    tails: dict[str, Tail] = {}
    reports = {table.name: Report(table.name) for table in tables}
    for table in tables:
        try:
            tail = read_tail(DeltaLog(store, table.uri, table.name))
        except PenstockError as error:
            reports[table.name].problems.append(error.message)
            reports[table.name].hint = error.hint
            continue
        if tail is not None:
            tails[table.name] = tail
        else:
            reports[table.name].hint = "`penstock run` makes it"
    # After the tails: a broker asked later is never behind what a table has read.
    held = _ask_brokers([table for table in tables if table.name in tails], tails)
    for table in tables:
        if table.name in tails:
            at = held[question(table.source)]
            _verify(table, store, tails[table.name], at, reports[table.name], progress)
    return [reports[table.name] for table in tables]


def _ask_brokers(tables: Sequence[TablePlan], tails: Mapping[str, Tail]) -> dict[Question, Held]:
    topics: dict[Question, set[str]] = {}
    sources = {question(table.source): table.source for table in tables}
    for table in tables:
        topics.setdefault(question(table.source), set()).update(offsets_of(tails[table.name].entry.after))
    return {one: ask(source, topics[one], timeout=BROKER_TIMEOUT) for one, source in sources.items()}


def _verify(table: TablePlan, store: Store, tail: Tail, held: Held, report: Report, progress: Progress) -> None:
    def step(what: str) -> Callable[[float], None]:
        progress(table.name, what, 0.0)
        return lambda part: progress(table.name, what, part)

    entry, position = tail.entry, offsets_of(tail.entry.after)
    report.version, report.generation, report.batch = tail.version, entry.generation, entry.batch
    log = DeltaLog(store, table.uri, table.name)
    chain = read_chain(log, tail.version, rows_at(table), step("reading the ledger"))
    report.chain = chain
    _foreign(chain, report)
    report.broker_problem, report.places = held.problem, places(position, held)
    report.problems += standing.problems(position, entry.topics, held)
    report.notes += [f"topic {topic} no longer exists at the broker" for topic in standing.gone(position, held)]
    try:
        within = {key: levels[0] for key, levels in chain.expected.times.items()}
        found = read_at(table, tail.version, within, step("reading the coordinates of every row"))
    except PenstockError as error:
        report.problems.append(error.message)
        report.hint = error.hint
        return
    report.rows, report.without = found.rows, found.without - chain.earlier_without
    _before_the_log(chain, found, tail, report)
    differences = compare(chain.expected, found)
    report.partitions = [Partition(*key, chain.expected.once(key), one) for key, one in differences.items()]
    looking = step("asking Kafka about offsets that the table lacks")
    left = {one.topic for one in report.partitions if one.difference.gaps} - set(position)
    if left:  # topics that the table no longer reads
        held = together(held, ask(table.source, left, timeout=BROKER_TIMEOUT))
    _explain_gaps(table, report, chain, held, looking)


def _foreign(chain: Chain, report: Report) -> None:
    if chain.earlier_rows:
        report.notes.append(f"{chain.earlier_rows} rows were in the table before its ledger began: not looked into")
    for one in chain.foreign:
        what = f"version {one.version} ({one.operation})"
        if one.undecided:
            report.problems.append(f"{what} changed rows outside Penstock, and nobody has decided what follows")
            report.hint = f"`penstock checkpoints reset {report.table} --help` says how to decide"
        elif one.accepted_in is not None:
            report.notes.append(f"{what} changed rows outside Penstock, accepted in version {one.accepted_in}")
        else:
            report.notes.append(f"{what} added {one.rows:,} rows that are not in the ledger")


def _before_the_log(chain: Chain, found: Coordinates, tail: Tail, report: Report) -> None:
    """Log retention takes old entries. What was read before the first one that is left is then taken from the table
    itself, from its first offset on; the ledger's running count shows whether rows are missing before that."""
    if chain.from_genesis:
        return
    report.notes.append(
        f"the chain is known from version {chain.known_from} on: older commits were cleaned up. Of what was landed "
        "before, the first offset is taken from the table"
    )
    for topic, partitions in chain.assumed.items():
        for partition, end in partitions.items():
            present = found.present.get((topic, partition))
            chain.expected.forget_before((topic, partition), min(present.start, end) if present else end)
    if found.rows < tail.counts.total and not chain.foreign:
        report.doubts.append(f"the ledger counted {tail.counts.total} rows, the table holds {found.rows}")


def _explain_gaps(
    table: TablePlan,
    report: Report,
    chain: Chain,
    held: Held,
    progress: Callable[[float], None],
) -> None:
    askable: dict[Key, Spans] = {}
    for one in report.partitions:
        if one.difference.gaps:
            askable[one.key] = _askable(one, chain, held)
    answers: Mapping[Key, Answer] = look_up(table.source, askable, progress) if any(askable.values()) else {}
    for one in report.partitions:
        answer = answers.get(one.key, Answer())
        one.lost, one.empty = answer.lost, answer.empty
        if answer.unverifiable:
            one.unverifiable = one.unverifiable | answer.unverifiable
            one.reasons.append(answer.reason or "the broker gave no answer")
    _unclear(report, chain)


def _askable(one: Partition, chain: Chain, held: Held) -> Spans:
    """The part of a partition's gaps that the broker still holds; the rest is noted as unverifiable, with why."""

    def cannot(spans: Spans, reason: str) -> None:
        if spans:
            one.unverifiable = one.unverifiable | spans
            one.reasons.append(reason)

    gaps, (topic, partition) = one.difference.gaps, one.key
    if held.problem:
        cannot(gaps, held.problem)
        return Spans()
    topics = held.topics
    if topic not in topics or partition not in topics[topic].partitions:
        cannot(gaps, f"{topic}-{partition} does not exist at the broker")
        return Spans()
    under = chain.expected.under.get(one.key, {})
    now = under.get(topics[topic].id, Spans()) | under.get("", Spans())
    cannot(gaps - now, f"they were read from an earlier topic {topic}, which was deleted")
    earliest, latest = _held(held.earliest, one.key), _held(held.latest, one.key)
    cannot(gaps & now & Spans([(0, earliest)]), f"the broker's first offset is {earliest}: retention took them")
    cannot(gaps & now & Spans([(latest, max(latest, one.expected.end))]), f"the broker's partition ends at {latest}")
    return gaps & now & Spans([(earliest, latest)])


def _held(offsets: Offsets, key: Key) -> int:
    return offsets[key[0]][key[1]]


def _unclear(report: Report, chain: Chain) -> None:
    """Offsets that an accepted change may have removed are no proof of a loss."""
    for why, among in chain.unclear:
        for one in report.partitions:
            doubtful = one.lost & among.get(one.key, Spans())
            if doubtful:
                one.lost, one.unverifiable = one.lost - doubtful, one.unverifiable | doubtful
                one.reasons.append(why)
