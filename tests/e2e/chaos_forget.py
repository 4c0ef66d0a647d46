"""Forgets that are killed at random, beside a runner that is killed at random, while records of the same people arrive.

In every round somebody else is to be forgotten, and the command is killed in the midst of it. In the end it is let
through once for all of them; then every data file of the lake is decoded, everything else is searched byte by byte:
they are nowhere; and the tables equal what plain Python makes of the records of all others.

    python -m tests.e2e.chaos_forget --kills 10 --seed 7
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.byte_search import named
from tests.e2e.chaos_frame import Asked, command_line, set_up
from tests.e2e.chaos_rewind import POLLED
from tests.e2e.chaos_verbs import Verb, rounds
from tests.e2e.kills import run_to_the_end
from tests.e2e.producer_and_poller import Poller, Producing
from tests.e2e.tables import ask

TOPIC = "orders"
PEOPLE = 40
YML = """\
tables:
  bronze.t:
    from: {{kafka: {topic}, max_per_trigger: 2000}}
    subjects: {{person: [{{json: value, path: $.who}}, key]}}
  silver.t:
    from: {{table: bronze.t, max_files: 3}}
    decode: {{json: value, schema: "id BIGINT, who STRING, amount BIGINT"}}
    expect: [{{name: enough, check: amount > 5}}]
    write: {{change_feed: true}}
    subjects: {{person: who}}
  silver.people:
    from: {{table: bronze.t}}
    decode: {{json: value, schema: "id BIGINT, who STRING, amount BIGINT"}}
    write: {{merge: {{keys: [who], sequence: id}}, change_feed: true}}
    subjects: {{person: who}}
  silver.copy:
    from: {{changes: silver.people}}
    write: {{merge: {{}}}}
    subjects: {{person: who}}
  gold.t:
    from: {{table: silver.t}}
    aggregate: {{keys: [who], metrics: {{n: count(*), sum: sum(amount)}}}}
    subjects: {{person: who}}
"""


def name_of(number: int) -> str:
    """Every other one is digits alone."""
    who = number % PEOPLE
    return f"person-{who:03d}@example.org" if who % 2 else str(471_108_000 + who)


class Flow(Producing):
    """Every eleventh record is no JSON, and names its person all the same."""

    def __init__(self, bootstrap: str, rate: int, partitions: int) -> None:
        super().__init__(bootstrap, rate)
        self._partitions = partitions
        self.good: list[tuple[int, str, int]] = []
        self.bad: list[str] = []

    def send_one(self) -> None:
        number, self.sent = self.sent, self.sent + 1
        who, amount = name_of(number * 7), number % 60
        text = json.dumps({"id": number, "who": who, "amount": amount})
        if number % 11 == 5:
            self.bad.append(who)
            text = text[:-8]
        else:
            self.good.append((number, who, amount))
        self._producer.produce(TOPIC, key=who, value=text, partition=number % self._partitions)


def forget(*people: str) -> Verb:
    return Verb(("forget", "--subjects", "-"), told="".join(f"person={one}\n" for one in people))


def chaos(asked: Asked) -> dict[str, object]:
    with set_up(asked, TOPIC, YML) as bootstrap:
        flow, poller = Flow(bootstrap, asked.rate, asked.partitions), Poller(asked.folder, POLLED)
        counts = rounds(asked, flow, poller, lambda number: forget(name_of(number)))
        gone = [name_of(number) for number in range(asked.kills)]
        forget(*gone).let_through(asked.folder)
        run_to_the_end(asked.folder)
        poller.stop()
        for log in asked.folder.glob("*.log"):
            log.unlink()  # what this very test has let the commands write
        left = named(asked.folder, gone)
        assert not left, left[:20]
        assert not poller.problems, poller.problems
        return {**_check(asked.folder, flow, set(gone)), "forgotten": len(gone), "polls": poller.polls, **counts}


def _check(folder: Path, flow: Flow, gone: set[str]) -> dict[str, int]:
    good = [one for one in flow.good if one[1] not in gone]
    wanted = [one for one in good if one[2] > 5]
    assert Counter(ask(folder, "silver.t", "SELECT id, who, amount FROM t")) == Counter(wanted)
    ((quarantined,),) = ask(folder, "silver.t__quarantine", "SELECT count(*) FROM t")
    assert quarantined == sum(who not in gone for who in flow.bad) + len(good) - len(wanted)
    ((landed, redacted),) = ask(folder, "bronze.t", "SELECT count(*), count(*) - count(value) FROM t")
    assert landed == flow.sent and redacted == flow.sent - len(good) - sum(who not in gone for who in flow.bad)
    groups: dict[str, tuple[int, int]] = {}
    for _, who, amount in wanted:
        count, total = groups.get(who, (0, 0))
        groups[who] = (count + 1, total + amount)
    assert sorted(ask(folder, "gold.t", "SELECT who, n, sum FROM t")) == sorted((k, *v) for k, v in groups.items())
    newest = {who: (number, who, amount) for number, who, amount in good}
    for table in ("silver.people", "silver.copy"):
        living = ask(folder, table, "SELECT id, who, amount FROM t WHERE NOT _deleted")
        assert sorted(living) == sorted(newest.values()), table
    return {"silver": len(wanted), "quarantine": quarantined, "redacted": redacted, "gold": len(groups)}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=10, rate=100, shortest=3.0, longest=40.0)
