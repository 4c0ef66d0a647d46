"""How the tables of a project depend on each other: each reads tables that exist, and none reads itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.spec.base_model import Finding, KeyPath, did_you_mean, quote_value
from penstock.spec.delta_source import ChangesFrom, TableFrom, is_path
from penstock.spec.sink import Sink
from penstock.spec.table import Table


def upstream_of(table: Table) -> tuple[str, ...]:
    """The tables that this one reads incrementally."""
    changes_tables = [table.source.table] if isinstance(table.source, ChangesFrom) and table.source.table else []
    return tuple(dict.fromkeys([*(source.table for _, source in _added_row_sources(table)), *changes_tables]))


def _added_row_sources(table: Table) -> Iterator[tuple[tuple[str, ...], TableFrom]]:
    """The tables read incrementally for their added rows, with the path where each is written."""
    if isinstance(table.source, TableFrom):
        yield ("from",), table.source
    for name, source in table.streams.items():
        if isinstance(source, TableFrom):
            yield ("streams", name), source


def dependencies_of(table: Table) -> tuple[str, ...]:
    """All tables of the project that it needs: upstream tables and lookups."""
    return (*upstream_of(table), *(name for name in table.lookups.values() if not is_path(name)))


def waits_for(tables: Mapping[str, Table], name: str) -> tuple[str, ...]:
    """The tables to finish before this one is run once: all that it reads, except a lookup that is derived, directly
    or not, from the table itself."""
    return tuple(
        dependency for dependency in dependencies_of(tables[name]) if name not in _dependencies(tables, dependency)
    )


def _dependencies(tables: Mapping[str, Table], name: str) -> set[str]:
    dependencies: set[str] = set()
    pending = [name]
    while pending:
        dependency = pending.pop()
        if dependency not in dependencies:
            dependencies.add(dependency)
            pending += dependencies_of(tables[dependency])
    return dependencies


def graph_findings(tables: Mapping[str, Table]) -> list[Finding]:
    findings: list[Finding] = []
    for name, table in tables.items():
        other_names = [other_name for other_name in tables if other_name != name]
        for path, source in _added_row_sources(table):
            if source.table not in tables:
                findings.append(_no_table((name, *path, "table"), source.table, other_names, "from: {delta: …}"))
            elif why := rewrite_description(tables[source.table]):
                message = f"{source.table} {why}, and only new rows are read"
                hint = (
                    f"follow its changes: from: {{changes: {source.table}}}; as a lookup it can be used as it is; an "
                    "aggregate with emit: final only grows"
                )
                findings.append(Finding((name, *path, "table"), message, hint))
        own_findings = [
            *_changes_source_findings(table.source, tables, other_names),
            *_missing_key_findings(table, tables),
        ]
        findings += [finding.below((name,)) for finding in own_findings]
        findings += [
            _no_table((name, "lookups", lookup), target, list(tables), "a path: ./dim/customers")
            for lookup, target in table.lookups.items()
            if not is_path(target) and target not in tables
        ]
    return findings or _cycle_findings(tables)


def _no_table(path: KeyPath, name: str, table_names: list[str], path_form: str) -> Finding:
    hint = did_you_mean(name, table_names) if table_names else ""
    hint = f"{hint}; a Delta table that is not of this project is {path_form}".removeprefix("; ")
    return Finding(path, f"there is no table {quote_value(name)} in this project", hint)


def _changes_source_findings(source: object, tables: Mapping[str, Table], other_names: list[str]) -> list[Finding]:
    """What is wrong with a source that reads changes."""
    if not isinstance(source, ChangesFrom) or source.table is None:
        return []
    path = ("from", "changes")
    if source.table not in tables:
        return [_no_table(path, source.table, other_names, "from: {changes: /path}")]
    if not tables[source.table].write.change_feed:
        hint = f"give {source.table} one: write: {{change_feed: true}}"
        return [Finding(path, f"{source.table} keeps no change feed", hint)]
    return []


def _missing_key_findings(table: Table, tables: Mapping[str, Table]) -> list[Finding]:
    """A table that follows changes takes the keys of the table it follows; a finding if that has none."""
    if not isinstance(table.source, ChangesFrom) or keys_of(table, tables):
        return []
    section = ("write", "merge") if table.write.merge is not None else ("audit",) if table.audit is not None else None
    if section is None:
        return []
    hint = "write keys: [customer_id]"
    return [
        Finding(section, f"'keys' is missing: {table.source.changes} has none to take them from", hint, at_key=True)
    ]


def keys_of(table: Table, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The columns that identify a row of a table that merges or audits changes; () if nothing declares them."""
    stage = table.write.merge or table.audit
    if stage is not None and stage.keys:
        return stage.keys
    return upstream_keys(table.source, tables) if stage is not None else ()


def upstream_keys(source: object, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The keys of the table whose changes are read; () if it keeps its history, as keys do not identify its rows."""
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
            source_findings = _changes_source_findings(sink.source, tables, list(tables))
            findings += [finding.below((name,)) for finding in source_findings]
            if not source_findings and not sink.keys and not upstream_keys(sink.source, tables):
                message = f"which row of {sink.source.changes} is it? 'keys' is missing"
                hint = "write keys: [customer_id], the columns of which no two rows have the same values"
                findings.append(Finding((name,), message, hint, at_key=True))
        elif isinstance(sink.source, TableFrom):
            path = (name, "from", "table")
            upstream = sink.source.table
            if upstream not in tables:
                findings.append(_no_table(path, upstream, list(tables), "from: {delta: …}"))
            elif why := rewrite_description(tables[upstream]):
                hint = f"follow its changes: from: {{changes: {upstream}}}"
                findings.append(Finding(path, f"{upstream} {why}: a sink sends what is added to a table", hint))
    return findings


def rewrite_description(table: Table) -> str | None:
    """How a table changes existing rows, if it does; a reader of added rows would miss that."""
    if table.aggregate is not None and table.aggregate.emit != "final":
        return "recomputes its groups in place"
    if table.output == "complete":
        return "rewrites all its rows in every batch"
    if table.write.merge is not None:
        return "changes its rows in place"
    return None


def may_multiply_records(table: Table, tables: Mapping[str, Table]) -> bool:
    """Whether one record of the topic may have become several rows of the table."""
    steps = (table.transform, table.sql, table.aggregate, table.stream)
    if isinstance(table.source, ChangesFrom) or any(step is not None for step in steps):
        return True
    return isinstance(table.source, TableFrom) and may_multiply_records(tables[table.source.table], tables)


def _cycle_findings(tables: Mapping[str, Table]) -> list[Finding]:
    done: set[str] = set()

    def find_cycle(name: str, path: tuple[str, ...]) -> tuple[str, ...] | None:
        if name in path:
            return (*path[path.index(name) :], name)
        cycles = (find_cycle(upstream, (*path, name)) for upstream in upstream_of(tables[name]) if upstream not in done)
        cycle = next(filter(None, cycles), None)
        done.add(name)
        return cycle

    for start in tables:
        if start not in done and (cycle := find_cycle(start, ())):
            hint = "one of them must have another source"
            return [Finding((cycle[0], "from"), f"a circle: {' -> '.join(cycle)}", hint)]
    return []


def upstream_first(tables: Mapping[str, Table]) -> list[str]:
    """The names of the tables, upstream before downstream, else as written."""
    ordered: list[str] = []

    def add(name: str) -> None:
        if name not in ordered:
            for upstream in upstream_of(tables[name]):
                add(upstream)
            ordered.append(name)

    for name in tables:
        add(name)
    return ordered
