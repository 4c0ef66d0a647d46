"""The function of a table with `stream`, and the tables that it reads."""

from __future__ import annotations

import hashlib

from penstock.plan.definition import hashed
from penstock.plan.delta import delta_plan
from penstock.plan.model import StreamPlan
from penstock.spec.project import Project
from penstock.spec.routine import find_routine
from penstock.spec.table import Table
from penstock.spec.upstream import DeltaFrom, TableFrom


def stream_plan(project: Project, table: Table, lake: str) -> StreamPlan:
    assert table.stream is not None and isinstance(table.source, TableFrom | DeltaFrom)
    routine = find_routine(table.stream, project.root)
    sources = {table.input_name: table.source, **table.streams}
    return StreamPlan(
        file=str(routine.file),
        function=routine.name,
        digest=hashlib.sha256(routine.file.read_bytes()).hexdigest()[:16],
        inputs={name: delta_plan(project, source, lake)[0] for name, source in sources.items()},
        output=table.output or "append",
    )


def stream_definition(stream: StreamPlan) -> str:
    """Without the paths of this machine: a project that is moved is the same."""
    inputs = [
        {"name": name, "table": one.table or one.uri, "where": one.where, "options": dict(one.options)}
        for name, one in stream.inputs.items()
    ]
    return hashed({"function": stream.function, "digest": stream.digest, "inputs": inputs, "output": stream.output})
