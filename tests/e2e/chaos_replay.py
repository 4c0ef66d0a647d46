"""Replays that are killed at random, beside a runner that is killed at random, while records arrive.

In every round the rule of the silver table is another, and a replay makes it anew by that rule. A reader polls: a row
is never there twice, and no row of an older rule comes after one of a newer one, so that nobody has seen a replay half
done. In the end a last replay is let through; then silver, its quarantine and gold equal what plain Python makes of
the records.

    python -m tests.e2e.chaos_replay --kills 20 --seed 7
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from deltalake.exceptions import TableNotFoundError

from tests.e2e.chaos_frame import Asked, command_line, set_up, write_project
from tests.e2e.chaos_verbs import Verb, rounds
from tests.e2e.kills import run_to_the_end
from tests.e2e.producer_and_poller import Poller, Producing
from tests.e2e.tables import ask

TOPIC = "orders"
YML = """\
tables:
  bronze.t:
    from: {{kafka: {topic}, max_per_trigger: 2000}}
  silver.t:
    from: {{table: bronze.t, max_files: 3}}
    decode: {{json: value, schema: "id BIGINT, amount BIGINT, kind STRING"}}
    sql: SELECT _source, id, kind, amount, {rule} AS rule FROM t
    expect: [{{name: enough, check: amount > {rule}}}]
    dedupe: {{keys: [id]}}
  gold.t:
    from: {{table: silver.t}}
    aggregate: {{keys: [kind], metrics: {{n: count(*), sum: sum(amount), rule: max(rule)}}}}
"""
_ONCE = "SELECT count(*), count(DISTINCT concat(_source['partition'], '/', _source['offset'])) FROM t"
_MIXED = """
SELECT count(*) FROM (
  SELECT rule, max(rule) OVER (PARTITION BY _source['partition'] ORDER BY _source['offset']) AS newest FROM t
) WHERE rule < newest
"""


class Flow(Producing):
    """Every tenth record is a copy of the one before, every thirteenth no JSON."""

    def __init__(self, bootstrap: str, rate: int, partitions: int) -> None:
        super().__init__(bootstrap, rate)
        self._partitions = partitions
        self.good: dict[int, tuple[str, int]] = {}
        self.bad = 0

    def send_one(self) -> None:
        number, self.sent = self.sent, self.sent + 1
        one = number - 1 if number % 10 == 9 else number
        kind, amount = "abc"[one % 3], one % 60
        whole = number % 13 > 0
        value = f'{{"id": {one}, "amount": {amount}, "kind": "{kind}"}}' if whole else "{"
        if whole:
            self.good[one] = (kind, amount)
        else:
            self.bad += 1
        self._producer.produce(TOPIC, value=value, partition=one % self._partitions)


class RulePoller(Poller):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"silver.t": _ONCE})

    def turn(self) -> None:
        super().turn()
        try:
            ((mixed,),) = ask(self._folder, "silver.t", _MIXED)
        except TableNotFoundError:
            return
        if mixed:
            self.problems.append(f"poll {self.polls}: {mixed} rows of an older rule after some of a newer one")


REPLAY = Verb(("replay", "silver.t", "--cascade"))


def chaos(asked: Asked) -> dict[str, object]:
    with set_up(asked, TOPIC, YML, rule=0) as bootstrap:

        def by_another_rule(number: int) -> Verb:
            write_project(asked.folder, YML, bootstrap=bootstrap, topic=TOPIC, rule=(number + 1) * 2)
            return REPLAY

        flow, poller = Flow(bootstrap, asked.rate, asked.partitions), RulePoller(asked.folder)
        counts = rounds(asked, flow, poller, by_another_rule, anew=True)
        REPLAY.let_through(asked.folder)
        run_to_the_end(asked.folder)
        poller.stop()
        assert not poller.problems, poller.problems
        rule = asked.kills * 2
        assert ask(asked.folder, "silver.t", "SELECT DISTINCT rule FROM t") == [(rule,)]
        assert ask(asked.folder, "gold.t", "SELECT DISTINCT rule FROM t") == [(rule,)]
        return {**check(asked.folder, flow, rule), "polls": poller.polls, **counts}


def check(folder: Path, flow: Flow, rule: int) -> dict[str, int]:
    """Silver, its quarantine and gold, if all rows are judged by this rule."""
    wanted = {one: row for one, row in flow.good.items() if row[1] > rule}
    silver = ask(folder, "silver.t", "SELECT id, kind, amount FROM t")
    assert Counter(silver) == Counter((one, kind, amount) for one, (kind, amount) in wanted.items())
    ((quarantined,),) = ask(folder, "silver.t__quarantine", "SELECT count(*) FROM t")
    copies = Counter(n - 1 if n % 10 == 9 else n for n in range(flow.sent) if n % 13)
    assert quarantined == flow.bad + sum(times for one, times in copies.items() if flow.good[one][1] <= rule)
    groups: dict[str, tuple[int, int]] = {}
    for kind, amount in wanted.values():
        count, total = groups.get(kind, (0, 0))
        groups[kind] = (count + 1, total + amount)
    gold = ask(folder, "gold.t", "SELECT kind, n, sum FROM t")
    assert sorted(gold) == sorted((kind, count, total) for kind, (count, total) in groups.items())
    return {"silver": len(silver), "quarantine": quarantined, "gold": len(gold)}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=20, rate=200, shortest=2.0, longest=25.0)
