"""The names given to `penstock forget`, and what an erasure cannot reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.erasure.text_search import normal_forms
from penstock.errors import UsageError
from penstock.maintenance.tables import all_maintained_tables
from penstock.plan.quarantine import subjects_in_input
from penstock.spec.base_model import did_you_mean
from penstock.spec.load import FILE
from penstock.storage.locks import holder, lock_path, owner

if TYPE_CHECKING:
    from penstock.erasure.text_search import NameSearch
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store
    from penstock.tables.suppression_list import ForgetOrder

# Names come as KEY=VALUE arguments or as a file of such lines. No message repeats a value: it is a name.


_EXAMPLE = "write --subject customer=42"


@dataclass(frozen=True)
class Name:
    subject: str
    value: str = field(repr=False)


def names(plan: Plan, arguments: Sequence[str], file_text: str | None, file_name: str) -> list[Name]:
    """The names without duplicates. `file_text` is the content of the file `file_name`. Raises UsageError."""
    subjects = list(dict.fromkeys(subject for table in plan.tables for subject in table.subjects))
    if not subjects:
        raise UsageError(
            "no table of this project says where it holds subjects, so no subject can be found",
            hint="write under a table in penstock.yml: subjects: {customer: customer_id}; docs/forget.md has more",
        )
    entries = [(f"--subject {index}", text) for index, text in enumerate(arguments, 1)]
    if file_text is not None:
        lines = _lines(file_text)
        if not lines:
            raise UsageError(
                f"{file_name} names no subject", hint="one KEY=VALUE a line; lines that begin with # are left out"
            )
        entries += [(f"{file_name}:{number}", text) for number, text in lines]
    if not entries:
        raise UsageError("no subject is named", hint=f"{_EXAMPLE}, or --subjects FILE with one KEY=VALUE a line")
    parsed = (_parse_name(origin, text, subjects) for origin, text in entries)
    return list(dict.fromkeys(Name(name.subject, form) for name in parsed for form in normal_forms(name.value)))


def known_places(plan: Plan, store: Store, exceptions: Sequence[str]) -> list[str]:
    """Checks the values of --not-a-name: TABLE.COLUMN, of any place that is searched (`search.lake_tables`)."""
    places = [place for table in plan.tables for place in all_maintained_tables(table, store)] if exceptions else []
    for exception in exceptions:
        if not any(exception.casefold().startswith(f"{place.name}.".casefold()) for place in places):
            raise UsageError(
                f"--not-a-name {exception}: this is not TABLE.COLUMN of a table of the project",
                hint="write it as the answer of the last `penstock forget` has it, silver.orders.quantity",
            )
    return list(exceptions)


def _lines(text: str) -> list[tuple[int, str]]:
    numbered = ((number, line.strip()) for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1))
    return [(number, line) for number, line in numbered if line and not line.startswith("#")]


def _parse_name(origin: str, text: str, subjects: Sequence[str]) -> Name:
    subject, equals, value = text.partition("=")
    subject, value = subject.strip(), value.strip()
    if not equals:
        raise UsageError(f"{origin} is not KEY=VALUE", hint=_EXAMPLE)
    if subject not in subjects:
        raise UsageError(
            f"{origin}: no table has a subject '{subject}'",
            hint=did_you_mean(subject, subjects) or f"the project knows {', '.join(subjects)}",
        )
    if not value:
        raise UsageError(f"{origin}: there is nothing after {subject}=", hint=_EXAMPLE)
    return Name(subject, value)


# What an erasure cannot reach, listed so that people can deal with it.


_DEFINITION_SUFFIXES = (".yml", ".yaml", ".py", ".sql", ".ddl", ".avsc", ".proto")


def list_unreachable(plan: Plan, orders: Sequence[ForgetOrder]) -> list[str]:
    return list(dict.fromkeys(_unreachable(plan, {order.subject for order in orders})))


def _unreachable(plan: Plan, subjects: set[str]) -> Iterator[str]:
    for table in plan.tables:
        if not subjects & {*table.subjects, *subjects_in_input(table).subjects}:
            continue
        if (topics := table.topics) is not None:
            topic_names = topics.pattern or ", ".join(topics.topics)
            yield f"topic {topic_names}: has the records until its retention takes them; read again, they are left out"
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


def in_definition(plan: Plan, name_searches: Sequence[NameSearch]) -> list[str]:
    """Project files that contain a name: people write them, so they stay. Plain names are not searched for, because
    numbers are everywhere in such files."""
    unambiguous = [search for search in name_searches if search.is_unambiguous]
    root = Path(plan.root)
    mentions = []
    for path in sorted([*root.glob("*"), *root.glob("*/*")]) if unambiguous else ():
        inside = str(path.resolve()).startswith((f"{plan.lake}/", str((root / ".penstock").resolve())))
        if path.suffix not in _DEFINITION_SUFFIXES or inside or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.split("\n"), 1):
            if any(search.in_text(line) for search in unambiguous):
                mentions.append(f"{path.relative_to(root)}:{number} of the project has the name: it is yours to change")
                break
    return mentions


def undeclared(plan: Plan, orders: Sequence[ForgetOrder]) -> tuple[str, ...]:
    """Tables that read rows with such names and do not declare where they hold them themselves."""
    subjects = {order.subject for order in orders}
    return tuple(
        table.name
        for table in plan.tables
        if table.sink is None and subjects & set(subjects_in_input(table).subjects) - set(table.subjects)
    )


# Runners that started before the project file last changed may not know where tables hold names, and would land again
# the rows that this command erases.


def outdated(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, str]:
    """By table: which process runs it and since when. On an object store this cannot be known."""
    if not plan.local:
        return {}
    try:
        changed_at = datetime.fromtimestamp((Path(plan.root) / FILE).stat().st_mtime, tz=UTC)
    except OSError:  # a project that is defined in Python
        return {}
    outdated_tables = {}
    for table in tables:
        path = lock_path(plan.system, table.name, "run")
        process = holder(path)
        started = _parse_time(owner(path).get("since")) if process is not None else None
        if started is not None and started < changed_at.replace(microsecond=0):
            outdated_tables[table.name] = (
                f"process {process} has run it since {started:%Y-%m-%d %H:%M:%S}, and {FILE} was changed after that: "
                "it may not know of this subject. Start it again, then give this command again"
            )
    return outdated_tables


def _parse_time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
