"""Rows of a table that a replay leaves as they are: what they were made of is no longer to be had."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.covered import Covered
from penstock.engine.identifiers import quote
from penstock.engine.protocol.position import Offsets
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.decode import literal
from penstock.errors import Terminal
from penstock.plan.model import TablePlan

_IN_SOURCE = {name: f"{SOURCE}.{name}" for name in ("topic", "partition", "offset")}


def kept_rows(table: TablePlan, covered: Covered) -> str | None:
    """A condition upon its rows; None: all of them are made anew. Raises where they cannot be told apart."""
    if covered.whole:
        return None
    if table.write.merge is not None or (table.stages is not None and not table.write.source):
        raise Terminal(
            "its source no longer has everything that the table was made of, and rows of "
            + ("a merged table are made of many records" if table.write.merge else "this table do not say of which")
            + ": a replay would lose some",
            where=table.name,
            hint="land the topic in a bronze table and replay from there; or begin anew with what there is: "
            f"`penstock checkpoints reset {table.name} --to earliest`",
        )
    if covered.gone:
        return _of_files(covered.gone)
    assert covered.held is not None
    landed = {name: quote(table.columns[name]) for name in _IN_SOURCE} if table.stages is None else _IN_SOURCE
    return _before(covered.held, landed)


def kept_rejects(covered: Covered) -> str | None:
    """The same upon the rows of its quarantine."""
    if covered.whole:
        return None
    return _of_files(covered.gone) if covered.gone else _before(covered.held or {}, _IN_SOURCE)


def _of_files(names: tuple[str, ...]) -> str:
    return f"{SOURCE}.file IN ({', '.join(map(literal, names))})"


def _before(held: Offsets, columns: Mapping[str, str]) -> str:
    topic, partition, offset = (columns[name] for name in ("topic", "partition", "offset"))
    topics = ", ".join(literal(name) for name in sorted(held))
    parts = [f"{topic} IS NULL OR {topic} NOT IN ({topics})" if topics else "true"]
    parts += [
        f"{topic} = {literal(name)} AND {partition} = {number} AND {offset} < {first}"
        for name, partitions in sorted(held.items())
        for number, first in sorted(partitions.items())
        if first > 0
    ]
    return " OR ".join(f"({part})" for part in parts)
