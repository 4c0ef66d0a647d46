"""Who is to be forgotten, as a person says it; and what a forget cannot reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize

from penstock.errors import UsageError
from penstock.maintenance.tables import places
from penstock.plan.quarantine import read_by
from penstock.spec.base_model import did_you_mean
from penstock.spec.load import FILE
from penstock.storage.locks import holder, lock_path, owner

if TYPE_CHECKING:
    from penstock.erasure.text_search import NameSearch
    from penstock.plan.model import Plan, TablePlan
    from penstock.tables.suppression_list import Order

# Who is to be forgotten, as a person says it: KEY=VALUE, several, or a file of these. A value is never repeated in a
# message: it is a name.


_SHAPE = "write --subject customer=42"


@dataclass(frozen=True)
class Name:
    subject: str
    value: str = field(repr=False)


def names(plan: Plan, given: Sequence[str], listed: str | None, where: str) -> list[Name]:
    """Each once. `listed` is the text of a file, `where` its name. Raises UsageError."""
    known = subjects_of(plan)
    if not known:
        raise UsageError(
            "no table of this project says where it holds subjects, so nobody can be found",
            hint="write under a table in penstock.yml: subjects: {customer: customer_id}; docs/forget.md has more",
        )
    asked = [(f"--subject {index}", text) for index, text in enumerate(given, 1)]
    if listed is not None:
        lines = _lines(listed)
        if not lines:
            raise UsageError(f"{where} names nobody", hint="one KEY=VALUE a line; lines that begin with # are left out")
        asked += [(f"{where}:{number}", text) for number, text in lines]
    if not asked:
        raise UsageError("nobody is named", hint=f"{_SHAPE}, or --subjects FILE with one KEY=VALUE a line")
    found = (_name(at, text, known) for at, text in asked)
    return list(dict.fromkeys(written for name in found for written in _as_written(name)))


def _as_written(name: Name) -> list[Name]:
    """The name, and the same in the other normal form of Unicode: it looks alike, and has other bytes."""
    forms = dict.fromkeys([name.value, normalize("NFC", name.value), normalize("NFD", name.value)])
    return [Name(name.subject, value) for value in forms]


def known_places(plan: Plan, given: Sequence[str]) -> list[str]:
    """Of --not-a-name: TABLE.COLUMN, of tables of the project and their quarantines."""
    tables = [place.name for table in plan.tables for place in places(table)]
    for one in given:
        if not any(one.casefold().startswith(f"{name}.".casefold()) for name in tables):
            raise UsageError(
                f"--not-a-name {one}: this is not TABLE.COLUMN of a table of the project",
                hint="write it as the answer of the last `penstock forget` has it, silver.orders.quantity",
            )
    return list(given)


def subjects_of(plan: Plan) -> list[str]:
    return list(dict.fromkeys(subject for table in plan.tables for subject in table.subjects))


def _lines(text: str) -> list[tuple[int, str]]:
    found = ((number, line.strip()) for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1))
    return [(number, line) for number, line in found if line and not line.startswith("#")]


def _name(at: str, text: str, known: Iterable[str]) -> Name:
    subject, equals, value = text.partition("=")
    subject, value = subject.strip(), value.strip()
    if not equals:
        raise UsageError(f"{at} is not KEY=VALUE", hint=_SHAPE)
    if subject not in known:
        raise UsageError(
            f"{at}: no table has a subject '{subject}'",
            hint=did_you_mean(subject, list(known)) or f"the project knows {', '.join(known)}",
        )
    if not value:
        raise UsageError(f"{at}: there is nothing after {subject}=", hint=_SHAPE)
    return Name(subject, value)


# What a forget cannot reach, named so that somebody else can.


_WRITTEN = (".yml", ".yaml", ".py", ".sql", ".ddl", ".avsc", ".proto")


def outside(plan: Plan, orders: Sequence[Order]) -> list[str]:
    return list(dict.fromkeys(_outside(plan, {order.subject for order in orders})))


def _outside(plan: Plan, subjects: set[str]) -> Iterator[str]:
    for table in plan.tables:
        if not subjects & {*table.subjects, *read_by(table).subjects}:
            continue
        if (topics := table.topics) is not None:
            named = topics.pattern or ", ".join(topics.topics)
            yield f"topic {named}: has the records until its retention takes them; read again, they are left out"
        elif table.files is not None:
            yield f"the files in {table.files.folder}: read again, their rows are left out"
        elif table.delta is not None and table.delta.table is None:
            yield f"the table {table.delta.uri}, which is not of this project"
        if table.sink is not None:
            yield f"what the sink {table.name} has sent, to {table.sink.name}"
    for reader in plan.maintenance.external:
        yield f"{reader.name}, which reads {reader.table} from outside the project, and loses files if it is behind"
    yield "copies that others have made of the lake, and backups"
    yield "the scratch folders of Spark processes that still run (spark.local.dir), until they end"


def in_definition(plan: Plan, needles: Sequence[NameSearch]) -> list[str]:
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


# Runners that were started before the project file was last changed: they may not know where tables hold names, and
# would land again whom this command forgets.


def outdated(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, str]:
    """By table: who runs it, and since when. On an object store nobody can tell."""
    if not plan.local:
        return {}
    try:
        changed = datetime.fromtimestamp((Path(plan.root) / FILE).stat().st_mtime, tz=UTC)
    except OSError:  # a project that was made in Python
        return {}
    found = {}
    for table in tables:
        path = lock_path(plan.system, table.name, "run")
        process = holder(path)
        since = _time(owner(path).get("since")) if process is not None else None
        if since is not None and since < changed.replace(microsecond=0):
            found[table.name] = (
                f"process {process} has run it since {since:%Y-%m-%d %H:%M:%S}, and {FILE} was changed after that: "
                "it may not know of this subject. Start it again, then give this command again"
            )
    return found


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
