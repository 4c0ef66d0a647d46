"""How the tables of a project hang together: each reads what is there, and none reads itself."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.spec.finding import Finding, did_you_mean, shown
from penstock.spec.sink import Sink
from penstock.spec.table import Table
from penstock.spec.upstream import TableFrom


def upstream_of(table: Table) -> tuple[str, ...]:
    """The tables that this one reads as they grow."""
    return (table.source.table,) if isinstance(table.source, TableFrom) else ()


def is_place(lookup: str) -> bool:
    """A lookup that is not a table of the project but a Delta table by its path."""
    return "/" in lookup


def reads(table: Table) -> tuple[str, ...]:
    """Everything of the project that it needs: upstream tables and lookups."""
    return (*upstream_of(table), *(name for name in table.lookups.values() if not is_place(name)))


def graph_findings(tables: Mapping[str, Table]) -> list[Finding]:
    findings: list[Finding] = []
    known = list(tables)
    for name, table in tables.items():
        for upstream in upstream_of(table):
            if upstream not in tables:
                others = [other for other in known if other != name]
                message = f"there is no table {shown(upstream)} in this project"
                findings.append(Finding((name, "from", "table"), message, _other(upstream, others, "from: {delta: …}")))
        for lookup, target in table.lookups.items():
            if not is_place(target) and target not in tables:
                message = f"there is no table {shown(target)} in this project"
                hint = _other(target, known, "a path: ./dim/customers")
                findings.append(Finding((name, "lookups", lookup), message, hint))
    return findings or _cycles(tables)


def sink_findings(sinks: Mapping[str, Sink], tables: Mapping[str, Table]) -> list[Finding]:
    findings: list[Finding] = []
    for name, sink in sinks.items():
        if isinstance(sink.source, TableFrom):
            path = (name, "from", "table")
            upstream = sink.source.table
            if upstream not in tables:
                hint = _other(upstream, list(tables), "from: {delta: …}")
                findings.append(Finding(path, f"there is no table {shown(upstream)} in this project", hint))
            elif why := rewrites(tables[upstream]):
                hint = "send the rows of the table that it reads; `changes` is not in this version of Penstock yet"
                findings.append(Finding(path, f"{upstream} {why}: a sink sends what is added to a table", hint))
    return findings


def rewrites(table: Table) -> str | None:
    """What a table does to rows that are there already, if it does; a reader of what is added would miss that."""
    if table.aggregate is not None and table.aggregate.emit != "final":
        return "recomputes its groups in place"
    return None


def multiplies(table: Table, tables: Mapping[str, Table]) -> bool:
    """One record of the topic that the rows come from may have become several of them."""
    if table.transform is not None or table.sql is not None or table.aggregate is not None:
        return True
    return isinstance(table.source, TableFrom) and multiplies(tables[table.source.table], tables)


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
