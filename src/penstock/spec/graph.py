"""How the tables of a project hang together: each reads what is there, and none reads itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.spec.finding import Finding, did_you_mean, shown
from penstock.spec.sink import Sink
from penstock.spec.table import Table
from penstock.spec.upstream import ChangesFrom, TableFrom, is_place


def upstream_of(table: Table) -> tuple[str, ...]:
    """The tables that this one reads as they grow."""
    return tuple(dict.fromkeys(read.table for _, read in _tables_read(table)))


def _tables_read(table: Table) -> Iterator[tuple[tuple[str, ...], TableFrom]]:
    """With the path where each is written."""
    if isinstance(table.source, TableFrom):
        yield ("from",), table.source
    for name, source in table.streams.items():
        if isinstance(source, TableFrom):
            yield ("streams", name), source


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
        for path, source in _tables_read(table):
            if source.table not in tables:
                others = [other for other in known if other != name]
                message = f"there is no table {shown(source.table)} in this project"
                hint = _other(source.table, others, "from: {delta: …}")
                findings.append(Finding((name, *path, "table"), message, hint))
            elif why := rewrites(tables[source.table]):
                message = f"{source.table} {why}, and only new rows are read"
                hint = (
                    "read the table that it reads; as a lookup it can be used as it is; with emit: final it only grows"
                )
                findings.append(Finding((name, *path, "table"), message, hint))
        for lookup, target in table.lookups.items():
            if not is_place(target) and target not in tables:
                message = f"there is no table {shown(target)} in this project"
                hint = _other(target, known, "a path: ./dim/customers")
                findings.append(Finding((name, "lookups", lookup), message, hint))
    return findings or _cycles(tables)


def sink_findings(sinks: Mapping[str, Sink], tables: Mapping[str, Table]) -> list[Finding]:
    findings: list[Finding] = []
    for name, sink in sinks.items():
        if isinstance(sink.source, ChangesFrom):
            findings += [finding.below((name,)) for finding in _followed_findings(sink, sink.source, tables)]
        elif isinstance(sink.source, TableFrom):
            path = (name, "from", "table")
            upstream = sink.source.table
            if upstream not in tables:
                hint = _other(upstream, list(tables), "from: {delta: …}")
                findings.append(Finding(path, f"there is no table {shown(upstream)} in this project", hint))
            elif why := rewrites(tables[upstream]):
                hint = f"write from: {{changes: {upstream}}}, which sends what becomes of its rows"
                findings.append(Finding(path, f"{upstream} {why}: a sink sends what is added to a table", hint))
    return findings


def _followed_findings(sink: Sink, source: ChangesFrom, tables: Mapping[str, Table]) -> list[Finding]:
    upstream = tables.get(source.changes)
    if upstream is None:
        hint = did_you_mean(source.changes, list(tables))
        return [Finding(("from", "changes"), f"there is no table {shown(source.changes)} in this project", hint)]
    findings = []
    if not upstream.write.change_feed:
        hint = "write there: write: {change_feed: true}"
        findings.append(Finding(("from", "changes"), f"{source.changes} keeps no change feed", hint))
    if not sink.keys and not keys_of(upstream):
        hint = "write keys: [customer_id], the columns of which no two rows have the same values"
        findings.append(Finding((), f"which row of {source.changes} is it? 'keys' is missing", hint, at_key=True))
    return findings


def keys_of(table: Table) -> tuple[str, ...]:
    """The columns that tell the rows of a table apart, where its definition says so."""
    aggregate = table.aggregate
    if aggregate is None:
        return ()
    return (*aggregate.keys, *(("window_start",) if aggregate.window is not None else ()))


def rewrites(table: Table) -> str | None:
    """What a table does to rows that are there already, if it does; a reader of what is added would miss that."""
    if table.aggregate is not None and table.aggregate.emit != "final":
        return "recomputes its groups in place"
    if table.output == "complete":
        return "writes all its rows anew in every batch"
    return None


def multiplies(table: Table, tables: Mapping[str, Table]) -> bool:
    """One record of the topic that the rows come from may have become several of them."""
    if any(step is not None for step in (table.transform, table.sql, table.aggregate, table.stream)):
        return True
    return isinstance(table.source, TableFrom) and multiplies(tables[table.source.table], tables)


def _other(name: str, known: list[str], place: str) -> str:
    hint = did_you_mean(name, known) if known else ""
    return f"{hint}; a Delta table that is not of this project is {place}".removeprefix("; ")


def _cycles(tables: Mapping[str, Table]) -> list[Finding]:
    done: set[str] = set()

    def circle(name: str, path: tuple[str, ...]) -> tuple[str, ...] | None:
        if name in path:
            return (*path[path.index(name) :], name)
        found = (circle(one, (*path, name)) for one in upstream_of(tables[name]) if one not in done)
        around = next(filter(None, found), None)
        done.add(name)
        return around

    for start in tables:
        if start not in done and (around := circle(start, ())):
            hint = "one of them must have another source"
            return [Finding((around[0], "from", "table"), f"a circle: {' -> '.join(around)}", hint)]
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
