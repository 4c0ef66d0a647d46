"""Who is to be forgotten, as a person says it: KEY=VALUE, several, or a file of these. A value is never repeated in a
message: it is a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from unicodedata import normalize

from penstock.engine.upkeep.places import places
from penstock.errors import UsageError
from penstock.plan.model import Plan
from penstock.spec.finding import did_you_mean

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
