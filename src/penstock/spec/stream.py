"""`stream`: rows made by a Python function on streaming DataFrames, with Spark's own state behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationInfo

from penstock.spec.finding import Finding, Wrong, shown, wrong
from penstock.spec.origin import source_of
from penstock.spec.part import one_of
from penstock.spec.source import KafkaFrom
from penstock.spec.upstream import DeltaFrom, TableFrom, is_place

if TYPE_CHECKING:
    from penstock.spec.table import Table

_HERE = "do that in the table that it reads, in a table after it, or in the function"
_UPDATE = (
    "'update' gives rows that replace earlier ones, and does not say by which columns to find those",
    "write output: complete; or use aggregate, which changes its groups in place",
)


def output_mode(value: Any) -> str:
    if value == "update":
        raise wrong(*_UPDATE)
    return one_of(value, "output mode", ("append", "complete"))


def stream_inputs(value: Any, info: ValidationInfo) -> dict[str, TableFrom | DeltaFrom]:
    """Name -> a table of the project or a path, as in lookups; or a whole source: {table: …, where: …}."""
    if not isinstance(value, Mapping):
        raise wrong(f"'streams' needs a mapping, not {shown(value)}", "write streams: {payments: silver.payments}")
    findings: list[Finding] = []
    made: dict[str, TableFrom | DeltaFrom] = {}
    for name, written in value.items():
        if not str(name).isidentifier():
            message = f"'{name}' cannot name an argument of the function"
            findings.append(Finding((str(name),), message, "write letters, digits and _", at_key=True))
            continue
        try:
            made[str(name)] = _input(written, info)
        except Wrong as error:
            findings += [finding.below((str(name),)) for finding in error.findings]
    if findings:
        raise Wrong(findings)
    return made


def _input(written: Any, info: ValidationInfo) -> TableFrom | DeltaFrom:
    if isinstance(written, str) and written:
        return DeltaFrom(delta=written) if is_place(written) else TableFrom(table=written)
    found = source_of(written, info)
    if isinstance(found, TableFrom | DeltaFrom):
        return found
    raise wrong("a stream function reads tables", "land the topic in a table first, and name that", at_key=True)


def stream_findings(table: Table) -> list[Finding]:
    if table.stream is None:
        given = [("streams", bool(table.streams)), ("output", table.output is not None)]
        hint = "write stream: streams.py:function, or remove it"
        return [
            Finding((key,), f"'{key}' belongs to 'stream'", hint, at_key=True) for key, is_there in given if is_there
        ]
    findings = [
        Finding((key,), f"a table with 'stream' has no {key} of its own", _HERE, at_key=True)
        for key in ("decode", "transform", "sql", "expect", "dedupe", "aggregate", "audit", "lookups")
        if getattr(table, key)
    ]
    if table.write.merge is not None:
        hint = "read this table's rows in another one, and merge them there"
        findings.append(Finding(("write", "merge"), "a table with 'stream' appends its rows", hint, at_key=True))
    if not isinstance(table.source, TableFrom | DeltaFrom):
        what = "topics" if isinstance(table.source, KafkaFrom) else "files"
        hint = f"land the {what} in a table first, and read that: from: {{table: bronze.orders}}"
        findings.append(Finding(("stream",), "a stream function reads tables", hint, at_key=True))
        return findings
    if table.input_name in table.streams:
        message = f"'{table.input_name}' is what the rows of `from` are called"
        findings.append(Finding(("streams", table.input_name), message, "give it another name", at_key=True))
    sources: dict[tuple[str, ...], TableFrom | DeltaFrom] = {("from",): table.source}
    sources |= {("streams", name): one for name, one in table.streams.items()}
    for path, source in sources.items():
        if source.starting.at == "latest":
            message = "Spark's state begins with rows that are there: a stream function cannot start at the latest"
            findings.append(
                Finding((*path, "starting"), message, "write earliest, or {version: N} of one that is there")
            )
    return findings
