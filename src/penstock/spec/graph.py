"""How the tables of a project hang together: each reads what is there, and none reads itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.spec.base_model import Finding, did_you_mean, shown
from penstock.spec.delta_source import ChangesFrom, TableFrom, is_place
from penstock.spec.sink import Sink
from penstock.spec.table import Table


def upstream_of(table: Table) -> tuple[str, ...]:
    """The tables that this one reads as they grow."""
    followed = [table.source.table] if isinstance(table.source, ChangesFrom) and table.source.table else []
    return tuple(dict.fromkeys([*(read.table for _, read in _tables_read(table)), *followed]))


def _tables_read(table: Table) -> Iterator[tuple[tuple[str, ...], TableFrom]]:
    """As they grow, with the path where each is written."""
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
                    f"follow its changes: from: {{changes: {source.table}}}; as a lookup it can be used as it is; an "
                    "aggregate with emit: final only grows"
                )
                findings.append(Finding((name, *path, "table"), message, hint))
        findings += [
            finding.below((name,)) for finding in _followed(table.source, tables, [one for one in known if one != name])
        ]
        findings += [finding.below((name,)) for finding in _without_keys(table, tables)]
        for lookup, target in table.lookups.items():
            if not is_place(target) and target not in tables:
                message = f"there is no table {shown(target)} in this project"
                hint = _other(target, known, "a path: ./dim/customers")
                findings.append(Finding((name, "lookups", lookup), message, hint))
    return findings or _cycles(tables)


def _followed(source: object, tables: Mapping[str, Table], others: list[str]) -> list[Finding]:
    """What is wrong with a source of changes."""
    if not isinstance(source, ChangesFrom) or source.table is None:
        return []
    path = ("from", "changes")
    if source.table not in tables:
        hint = _other(source.table, others, "from: {changes: /path}")
        return [Finding(path, f"there is no table {shown(source.table)} in this project", hint)]
    if not tables[source.table].write.change_feed:
        hint = f"give {source.table} one: write: {{change_feed: true}}"
        return [Finding(path, f"{source.table} keeps no change feed", hint)]
    return []


def _without_keys(table: Table, tables: Mapping[str, Table]) -> list[Finding]:
    """A table that follows changes has the keys of the one that it follows, if that has some."""
    if not isinstance(table.source, ChangesFrom) or keys_of(table, tables):
        return []
    part = ("write", "merge") if table.write.merge is not None else ("audit",) if table.audit is not None else None
    if part is None:
        return []
    hint = "write keys: [customer_id]"
    return [Finding(part, f"'keys' is missing: {table.source.changes} has none to take them from", hint, at_key=True)]


def keys_of(table: Table, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """What tells the rows of a table apart, of one that merges or audits changes; () if nobody says."""
    own = table.write.merge or table.audit
    if own is not None and own.keys:
        return own.keys
    return keys_followed(table.source, tables) if own is not None else ()


def keys_followed(source: object, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The keys of the table whose changes are read. Of one that keeps its history they do not tell rows apart."""
    upstream = tables.get(source.table or "") if isinstance(source, ChangesFrom) else None
    if upstream is None:
        return ()
    if upstream.aggregate is not None and upstream.aggregate.emit != "final":
        window = ("window_start", "window_end") if upstream.aggregate.window else ()
        return (*window, *upstream.aggregate.keys)
    merge = upstream.write.merge
    return keys_of(upstream, tables) if merge is not None and merge.history == "scd1" else ()


def sink_findings(sinks: Mapping[str, Sink], tables: Mapping[str, Table]) -> list[Finding]:
    findings: list[Finding] = []
    for name, sink in sinks.items():
        if isinstance(sink.source, ChangesFrom):
            found = _followed(sink.source, tables, list(tables)) or _sink_keys(sink, sink.source, tables)
            findings += [finding.below((name,)) for finding in found]
        elif isinstance(sink.source, TableFrom):
            path = (name, "from", "table")
            upstream = sink.source.table
            if upstream not in tables:
                hint = _other(upstream, list(tables), "from: {delta: …}")
                findings.append(Finding(path, f"there is no table {shown(upstream)} in this project", hint))
            elif why := rewrites(tables[upstream]):
                hint = f"follow its changes: from: {{changes: {upstream}}}"
                findings.append(Finding(path, f"{upstream} {why}: a sink sends what is added to a table", hint))
    return findings


def _sink_keys(sink: Sink, source: ChangesFrom, tables: Mapping[str, Table]) -> list[Finding]:
    if sink.keys or keys_followed(source, tables):
        return []
    hint = "write keys: [customer_id], the columns of which no two rows have the same values"
    return [Finding((), f"which row of {source.changes} is it? 'keys' is missing", hint, at_key=True)]


def rewrites(table: Table) -> str | None:
    """What a table does to rows that are there already, if it does; a reader of what is added would miss that."""
    if table.aggregate is not None and table.aggregate.emit != "final":
        return "recomputes its groups in place"
    if table.output == "complete":
        return "writes all its rows anew in every batch"
    if table.write.merge is not None:
        return "changes its rows in place"
    return None


def multiplies(table: Table, tables: Mapping[str, Table]) -> bool:
    """One record of the topic that the rows come from may have become several of them."""
    if any(step is not None for step in (table.transform, table.sql, table.aggregate, table.stream)):
        return True
    if isinstance(table.source, ChangesFrom):
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
            return [Finding((around[0], "from"), f"a circle: {' -> '.join(around)}", hint)]
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
