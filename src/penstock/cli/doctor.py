"""`penstock doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, Tables, project_folder


def command(
    tables: Tables = None,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Also what is fine.")] = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Check what breaks in production, and say what to do: retention, pace, checkpoints, security, room, clocks.

    Every finding comes from evidence: the ledgers, the logs, the broker, the project file and this machine. No Spark is
    started and nothing is changed. A broker that is away is waited for a few seconds. What cannot be found out is said
    as unknown. Exit code 1 if anything is red.
    """
    from penstock.cli.console import err, out, print_json
    from penstock.cli.doctor_view import doctor_view
    from penstock.ops.doctor.check import LEVELS, document, healthy
    from penstock.ops.doctor.examine import examine
    from penstock.plan.build import build_plan
    from penstock.plan.select import choose
    from penstock.spec.load import load_project

    project = load_project(project_folder(directory))
    plan = build_plan(project)
    chosen = choose(plan, tables or [])
    with err.status("looking") as status:
        checks = examine(project, plan, chosen, lambda what: status.update(f"looking: {what}"))
    fine = healthy(checks)
    if as_json:
        counts = {level: sum(check.level == level for check in checks) for level in LEVELS}
        found = [document(check) for check in checks]
        print_json({"project": plan.name, "healthy": fine, "counts": counts, "checks": found})
    else:
        if not out.is_terminal:  # piped, there is no width to keep to: a finding stays on its line for grep
            out.width = 10_000
        out.print(doctor_view(plan.name, checks, show_all=show_all))
    raise typer.Exit(0 if fine else 1)
