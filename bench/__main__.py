"""`python -m bench`: runs the chosen scenarios and says which targets are met.

Exit code 0: all met; 1: a target is missed (not with --no-gate or --quick), a run failed or a table does not verify;
2: wrong use; 3: no Java, no jars, no broker; 130: stopped.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from bench.arena import Arena
from bench.machine import Stolen, load, machine
from bench.outcome import Outcome
from bench.report import as_json, show, write_docs
from bench.scenarios import SCENARIOS
from bench.screen import Screen
from bench.sizes import QUICK, Sizes
from penstock.dev.broker import Broker
from penstock.errors import PenstockError

DOCS = Path(__file__).resolve().parents[1] / "docs" / "bench.md"
QUICK_SCENARIOS = ("bronze", "cli")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _sizes(quick: bool, **chosen: Any) -> Sizes:
    return replace(QUICK if quick else Sizes(), **{name: value for name, value in chosen.items() if value is not None})


def _scenarios(only: list[str] | None, quick: bool) -> list[str]:
    named = [name for part in only or [] for name in part.split(",")]
    for name in named:
        if name not in SCENARIOS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(SCENARIOS)}", param_hint="--only")
    return named or list(QUICK_SCENARIOS if quick else SCENARIOS)


def _end(_: int, __: FrameType | None) -> None:
    """Every context is left, so the broker, the contenders and the folders go."""
    raise KeyboardInterrupt


@app.command()
def bench(
    only: Annotated[list[str] | None, typer.Option(help=f"Scenarios: {', '.join(SCENARIOS)}.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run of a minute: figures mean nothing.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Interleaved rounds.", show_default="3")] = None,
    records: Annotated[int | None, typer.Option(min=1, help="Records of bronze.", show_default="2,000,000")] = None,
    small_records: Annotated[
        int | None, typer.Option(min=1, help="Records of small.", show_default="1,000,000")
    ] = None,
    merge_rows: Annotated[
        list[int] | None, typer.Option(min=100, help="Rows of a table of merge.", show_default="three tables")
    ] = None,
    replay_records: Annotated[
        int | None, typer.Option(min=100, help="Records of replay.", show_default="3,000,000")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Minutes of many.", show_default="10")] = None,
    tables: Annotated[int | None, typer.Option(min=1, help="Tables of many.", show_default="100")] = None,
    leave_out: Annotated[list[str] | None, typer.Option(help="A contender that is not to run, by its name.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the order within the rounds.")] = 1,
    work: Annotated[
        Path | None, typer.Option(help="A folder for topics and tables.", show_default="a temporary one")
    ] = None,
    as_document: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    docs: Annotated[bool, typer.Option("--write-docs", help="Keep the tables in docs/bench.md.")] = False,
    gate: Annotated[bool, typer.Option(help="Exit code 1 if a target is missed.")] = True,
) -> None:
    """Penstock against hand-written jobs, all contenders in one run on a real broker."""
    if quick and docs:
        raise typer.BadParameter("a smoke run has no figures worth keeping", param_hint="--write-docs")
    names = _scenarios(only, quick)
    sizes = _sizes(
        quick,
        rounds=rounds,
        bronze_records=records,
        small_records=small_records,
        merge_rows=tuple(sorted(merge_rows)) if merge_rows else None,
        replay_records=replay_records,
        many_minutes=minutes,
        many_tables=tables,
        leave_out=frozenset(leave_out) if leave_out else None,
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT too: a shell starts what runs behind with it ignored
        signal.signal(number, _end)
    screen = Screen()
    if load() > 0.5 and not quick:
        screen.say(
            f"warning: the machine is busy already (load {load():.1f}); figures will be worse than they should be"
        )
    answers = Console(highlight=False, stderr=as_document)
    if not answers.is_terminal:
        answers.width = 140  # a file has no width; 80 columns would break every heading
    outcomes: list[Outcome] = []
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=work, ignore_cleanup_errors=True) as folder:
            screen.say("starting a broker …")
            with Broker(data_dir=Path(folder) / "broker", heap="1g") as broker:
                arena = Arena(broker.bootstrap, Path(folder), sizes, seed, screen)
                if sizes.warm_up:
                    arena.warm_up(dict.fromkeys(name for one in names for name in SCENARIOS[one].contenders))
                for name in names:
                    stolen = Stolen()
                    outcome = SCENARIOS[name].run(arena)
                    outcomes.append(replace(outcome, notes=[*outcome.notes, *stolen.notes()]))
                    show(answers, outcomes[-1], targets=not quick)
    except KeyboardInterrupt:
        screen.say("stopped; everything was cleaned up")
        raise typer.Exit(130) from None
    except PenstockError as error:
        screen.say(f"error: {error}")
        raise typer.Exit(error.exit_code) from None
    except KafkaException as error:
        screen.say(f"error: the broker of the bench failed: {error}")
        raise typer.Exit(3) from None
    facts, command = machine(), _command()
    if as_document:
        sys.stdout.write(json.dumps(as_json(outcomes, command, facts), indent=2) + "\n")
    if docs:
        write_docs(DOCS, outcomes, command, facts, datetime.now(UTC).strftime("%Y-%m-%d"))
    broken = any(outcome.problems for outcome in outcomes)
    missed = not quick and any(not target.met for outcome in outcomes for target in outcome.targets)
    if broken or (gate and missed):
        raise typer.Exit(1)


def _command() -> str:
    """As it was called, without the work folder: it is this machine's affair."""
    arguments = sys.argv[1:]
    if "--work" in arguments:
        at = arguments.index("--work")
        del arguments[at : at + 2]
    return shlex.join(["python", "-m", "bench", *(one for one in arguments if not one.startswith("--work="))])


if __name__ == "__main__":
    app()
