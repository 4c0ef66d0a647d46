"""How the tables of a project hang together: each reads what is there, and none reads itself."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.spec.finding import Finding, did_you_mean, shown
from penstock.spec.table import Table
from penstock.spec.upstream import TableFrom


def upstream_of(table: Table) -> tuple[str, ...]:
    """The tables that this one reads as they grow."""
    return (table.source.table,) if isinstance(table.source, TableFrom) else ()


def changes_rows(table: Table) -> bool:
    """Rows that are there already are replaced."""
    return table.aggregate is not None and table.aggregate.emit != "final"


def is_place(lookup: str) -> bool:
    """A lookup that is not a table of the project but a Delta table by its path."""
    return "/" in lookup


def reads(table: Table) -> tuple[str, ...]:
    """Everything of the project that it needs: upstream tables and lookups."""
    return (*upstream_of(table), *(name for name in table.lookups.values() if not is_place(name)))


def waits_for(tables: Mapping[str, Table], name: str) -> tuple[str, ...]:
    """What must be finished before a table reads what is there: all that it reads, but for a lookup that is made, by
    whatever way, of the table itself."""
    return tuple(one for one in reads(tables[name]) if name not in _behind(tables, one))


def _behind(tables: Mapping[str, Table], name: str) -> set[str]:
    found: set[str] = set()
    left = [name]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += reads(tables[one])
    return found


def graph_findings(tables: Mapping[str, Table]) -> list[Finding]:
    findings: list[Finding] = []
    known = list(tables)
    for name, table in tables.items():
        for upstream in upstream_of(table):
            if upstream not in tables:
                others = [other for other in known if other != name]
                message = f"there is no table {shown(upstream)} in this project"
                findings.append(Finding((name, "from", "table"), message, _other(upstream, others, "from: {delta: …}")))
            elif changes_rows(tables[upstream]):
                message = f"the rows of {upstream} change as its groups are computed anew, and only new rows are read"
                hint = (
                    "read the table that it reads; as a lookup it can be used as it is; with emit: final it only grows"
                )
                findings.append(Finding((name, "from", "table"), message, hint))
        for lookup, target in table.lookups.items():
            if not is_place(target) and target not in tables:
                message = f"there is no table {shown(target)} in this project"
                hint = _other(target, known, "a path: ./dim/customers")
                findings.append(Finding((name, "lookups", lookup), message, hint))
    return findings or _cycles(tables)


def _other(name: str, known: list[str], place: str) -> str:
    hint = did_you_mean(name, known) if known else ""
    return f"{hint}; a Delta table that is not of this project is {place}".removeprefix("; ")


def _cycles(tables: Mapping[str, Table]) -> list[Finding]:
    done: set[str] = set()
    for start in tables:
        path: list[str] = []
        name: str | None = start
        while name is not None and name not in done:
            if name in path:
                circle = " -> ".join([*path[path.index(name) :], name])
                return [Finding((name, "from", "table"), f"a circle: {circle}", "one of them must have another source")]
            path.append(name)
            name = next(iter(upstream_of(tables[name])), None)
        done.update(path)
    return []


def in_order(tables: Mapping[str, Table]) -> list[str]:
    """Upstream before downstream, else as written."""
    ordered: list[str] = []

    def add(name: str) -> None:
        if name not in ordered:
            for upstream in upstream_of(tables[name]):
                add(upstream)
            ordered.append(name)

    for name in tables:
        add(name)
    return ordered
