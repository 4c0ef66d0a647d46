"""Scenario many: a hundred topics to a hundred tables in one process, for minutes, under a steady trickle."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.arena import Arena
from bench.load import Feed, create_topics
from bench.outcome import Outcome, Sheet, Target
from bench.process import ContenderFailed, Contestant
from bench.product import penstock, read_plan, write_project
from bench.progress import DeltaProgress, Offsets
from bench.scenarios.trickle import Trickle
from bench.scenarios.triggers import missed
from bench.verify import broker_offsets, check_delta

LOOK = 2.0
"""Seconds between two looks at all the tables."""


@dataclass(frozen=True)
class Watched:
    """One table of the run, its topic, and what has been committed to it."""

    topic: str
    table: Path
    progress: DeltaProgress

    def moments(self) -> list[float]:
        return [commit.at for commit in self.progress.commits()]

    def rows(self) -> int:
        return sum(commit.rows for commit in self.progress.commits())


def many(arena: Arena) -> Outcome:
    sizes = arena.sizes
    setting = (
        f"{sizes.many_tables} topics of {sizes.many_partitions} partition(s) to {sizes.many_tables} tables in one "
        f"process, {sizes.many_records:,} records each per trigger of {sizes.many_trigger} s, "
        f"{sizes.many_minutes:g} minutes."
    )
    folder = arena.folder / "many"
    try:
        run = _run(arena, folder)
    except ContenderFailed as failure:
        return Outcome("many", setting, [], _targets(None, None, None), {}, [str(failure)])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    served = run.due - run.missed
    return Outcome(
        scenario="many",
        setting=setting,
        sheets=[
            Sheet(
                "many: all tables in one process",
                ("table-triggers served", "cores used", "peak memory", "all tables live after", "tables verified"),
                [
                    [
                        f"{served:,} of {run.due:,}",
                        f"{run.cores:.2f}",
                        f"{run.peak_rss / 2**30:.1f} GiB",
                        f"{run.startup:.0f} s",
                        f"{sizes.many_tables - len(run.wrong)} of {sizes.many_tables}",
                    ]
                ],
            )
        ],
        targets=_targets(served / run.due, run.cores, (sizes.many_tables - len(run.wrong)) / sizes.many_tables),
        figures={
            "due": run.due,
            "missed": run.missed,
            "cores": run.cores,
            "peak_rss": run.peak_rss,
            "startup": run.startup,
            "longest_gap": run.longest_gap,
        },
        problems=run.wrong,
    )


def _targets(served: float | None, cores: float | None, verified: float | None) -> list[Target]:
    return [
        Target("tables served in every trigger", "at least", 1.0, " of 1", served),
        Target("cores used", "at most", 1.0, " cores", cores),
        Target("tables that verify", "at least", 1.0, " of 1", verified),
    ]


@dataclass(frozen=True)
class _Run:
    startup: float
    due: int
    missed: int
    cores: float
    peak_rss: int
    longest_gap: float
    wrong: list[str]


def _run(arena: Arena, folder: Path) -> _Run:
    sizes = arena.sizes
    topics = [f"many-{number:03}" for number in range(sizes.many_tables)]
    create_topics(arena.bootstrap, topics, sizes.many_partitions)
    names = {f"bronze.t{number:03}": topic for number, topic in enumerate(topics)}
    project = folder / "project"
    write_project(project, arena.bootstrap, names, trigger=f"{sizes.many_trigger}s")
    chosen = read_plan(project)
    watched = [
        Watched(topic, chosen.tables[name], DeltaProgress(chosen.tables[name], Offsets(chosen.checkpoints[name])))
        for name, topic in names.items()
    ]
    rate = sizes.many_records / sizes.many_trigger
    trickle = Trickle(Feed(arena.bootstrap), topics, rate, sizes.many_partitions)
    with Contestant(penstock(project, "run"), folder) as process:
        start = _until_all_live(arena, process, watched, trickle)
        end = start + sizes.many_minutes * 60
        with arena.screen.step("many: measuring, seconds", int(end - start)) as done:
            while time.time() < end:
                _look(process, trickle)
                done(int(time.time() - start))
        sent = trickle.finish()
        _until_all_landed(arena, process, watched, sent)
        process.stop(timeout=120)
    interval = float(sizes.many_trigger)
    due = round((end - start) / interval)
    moments = [one.moments() for one in watched]
    wrong = []
    with arena.screen.step("many: verifying", len(watched)) as done:
        for number, one in enumerate(watched, 1):
            problem = check_delta(one.table, broker_offsets(arena.bootstrap, [one.topic]))
            wrong += [f"{one.topic}: {problem}"] if problem else []
            done(number)
    gaps = [after - before for each in moments for before, after in pairwise(each)]
    return _Run(
        startup=start - process.started,
        due=due * len(watched),
        missed=sum(min(due, missed(each, start, end, interval)) for each in moments),
        cores=process.cpu_between(start, end) / (end - start),
        peak_rss=process.peak_rss,
        longest_gap=max(gaps, default=0.0),
        wrong=wrong,
    )


def _look(process: Contestant, trickle: Trickle) -> None:
    if not process.alive:
        process.ended(timeout=1)
        raise ContenderFailed(f"ended by itself\n{process.tail()}")
    trickle.catch_up()
    process.sample()
    time.sleep(LOOK / 4)


def _until_all_live(arena: Arena, process: Contestant, watched: list[Watched], trickle: Trickle) -> float:
    """Waits until every table has rows, then one trigger more: start-up is not what is measured."""
    sizes = arena.sizes
    give_up = time.time() + 300 + 3 * sizes.many_trigger
    with arena.screen.step("many: tables live", len(watched)) as done:
        while (live := sum(bool(one.moments()) for one in watched)) < len(watched):
            done(live)
            if time.time() > give_up:
                raise ContenderFailed(f"{live} of {len(watched)} tables have rows in time\n{process.tail()}")
            until = time.time() + LOOK
            while time.time() < until:
                _look(process, trickle)
    settled = time.time() + sizes.many_trigger
    while time.time() < settled:
        _look(process, trickle)
    return settled


def _until_all_landed(arena: Arena, process: Contestant, watched: list[Watched], sent: int) -> None:
    """The last records need one more trigger; a table that lacks some after three shows up in the verification."""
    give_up = time.time() + 3 * arena.sizes.many_trigger + 10
    with arena.screen.step("many: last records landed, tables", len(watched)) as done:
        while (landed := sum(one.rows() >= sent for one in watched)) < len(watched) and time.time() < give_up:
            done(landed)
            if not process.alive:
                return
            time.sleep(LOOK)
