"""What a forget cannot reach, named so that somebody else can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.engine.forget.needle import Needle
from penstock.engine.forget.order import Order
from penstock.plan.files import FilesSource
from penstock.plan.holding import read_by
from penstock.plan.model import DeltaSource, KafkaSource, Plan, TablePlan

_WRITTEN = (".yml", ".yaml", ".py", ".sql", ".ddl", ".avsc", ".proto")


def outside(plan: Plan, orders: Sequence[Order]) -> list[str]:
    return list(dict.fromkeys(_outside(plan, {order.subject for order in orders})))


def _outside(plan: Plan, subjects: set[str]) -> Iterator[str]:
    for table in plan.tables:
        if not subjects & {*table.subjects, *read_by(table).subjects}:
            continue
        source = table.source
        if isinstance(source, KafkaSource):
            named = source.pattern or ", ".join(source.topics)
            yield f"topic {named}: has the records until its retention takes them; read again, they are left out"
        elif isinstance(source, FilesSource):
            yield f"the files in {source.folder}: read again, their rows are left out"
        elif isinstance(source, DeltaSource) and source.table is None:
            yield f"the table {source.uri}, which is not of this project"
        if table.sink is not None:
            yield f"what the sink {table.name} has sent, to {table.sink.said}"
    for reader in plan.maintenance.external:
        yield f"{reader.name}, which reads {reader.table} from outside the project, and loses files if it is behind"
    yield "copies that others have made of the lake, and backups"
    yield "the scratch folders of Spark processes that still run (spark.local.dir), until they end"


def in_definition(plan: Plan, needles: Sequence[Needle]) -> list[str]:
    """Files of the project that name somebody: they are written by people, and stay. Plain names are not looked for:
    numbers are everywhere in them."""
    telling = [one for one in needles if one.telling]
    root = Path(plan.root)
    found = []
    for path in sorted([*root.glob("*"), *root.glob("*/*")]) if telling else ():
        inside = str(path.resolve()).startswith((f"{plan.lake}/", str((root / ".penstock").resolve())))
        if path.suffix not in _WRITTEN or inside or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.split("\n"), 1):
            if any(one.in_text(line) for one in telling):
                found.append(f"{path.relative_to(root)}:{number} of the project has the name: it is yours to change")
                break
    return found


def undeclared(plan: Plan, orders: Sequence[Order]) -> tuple[str, ...]:
    """Tables that are made of rows that hold such names, and do not say whether they do."""
    subjects = {order.subject for order in orders}
    return tuple(table.name for table in plan.tables if _silent(table, subjects))


def _silent(table: TablePlan, subjects: set[str]) -> bool:
    missing = subjects & set(read_by(table).subjects) - set(table.subjects)
    return bool(missing) and table.sink is None
