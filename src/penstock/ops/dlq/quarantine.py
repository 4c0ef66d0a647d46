"""The quarantine of a table, read with `deltalake`. Its query engine counts, filters and sorts: what comes into this
process are the few rows that are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.engine.arrow_times import values_of
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.store import Store
from penstock.errors import Terminal, UsageError
from penstock.plan.model import Plan, TablePlan
from penstock.plan.quarantine import SUFFIX, quarantine_of
from penstock.plan.select import choose

if TYPE_CHECKING:
    from deltalake import QueryBuilder

ROWS = "quarantine"
"""What the rows are called in a query."""
REASON, DETAIL, WHEN = "error_reason", "error_detail", "error_timestamp"
_NEEDED = (REASON, DETAIL, WHEN, "generation", "batch")


@dataclass(frozen=True)
class Quarantine:
    """At one version: all that is asked of it is of the same rows."""

    table: str
    name: str
    version: int
    columns: frozenset[str]
    coordinates: tuple[str, ...]
    """The parts of `_source`: topic, partition, offset; or file, row; or version, deleted."""
    engine: QueryBuilder

    def ask(self, sql: str) -> Iterator[Mapping[str, Any]]:
        """The rows of an answer, as they come. Terminal if the files cannot be read."""
        try:
            for batch in self.engine.execute(sql):
                names = batch.schema.names
                for values in zip(*(values_of(batch.column(i)) for i in range(len(names))), strict=True):
                    yield dict(zip(names, values, strict=True))
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # the query engine raises plain Exception; a panic in it is not even that
            raise unreadable(self.name, error) from None


def tables_with_one(plan: Plan, store: Store, names: Sequence[str]) -> list[TablePlan]:
    """The tables named, by their own names or by those of their quarantines; if none is, all that have one. A table may
    have one from an earlier definition, though this one rejects nothing."""
    chosen = choose(plan, [name.removesuffix(SUFFIX) for name in names])
    return chosen if names else [table for table in chosen if table.may_reject or _there(table, store)]


def _there(table: TablePlan, store: Store) -> bool:
    place = quarantine_of(table.name, table.uri)
    return bool(DeltaLog(store, place.uri, place.table).versions())


def open_quarantine(table: TablePlan, store: Store) -> Quarantine | None:
    """None if there is none yet. UsageError if the table is not of the kind that has one, Terminal if it cannot be
    read."""
    place = quarantine_of(table.name, table.uri)
    if not _there(table, store):
        if not table.may_reject:
            raise UsageError(
                f"{table.name} has no quarantine: nothing in its definition rejects a row",
                hint="`decode`, `expect` and files that are read bring one; `penstock dlq list` names the tables",
            )
        return None
    from deltalake import DeltaTable, QueryBuilder

    from penstock.engine.object_store import storage_options

    try:
        opened = DeltaTable(place.uri, storage_options=storage_options(place.uri) or None)
        schema = {field["name"]: field["type"] for field in json.loads(opened.schema().to_json())["fields"]}
        engine = QueryBuilder().register(ROWS, opened)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise unreadable(place.table, error) from None
    missing = [name for name in _NEEDED if name not in schema]
    if missing:
        raise Terminal(
            f"it is no quarantine: it has no column {', '.join(missing)}",
            where=place.table,
            hint="somebody else made or changed the table; `penstock run` makes its own once it is moved away",
        )
    source = schema.get(SOURCE)
    parts = tuple(field["name"] for field in source["fields"]) if isinstance(source, dict) else ()
    return Quarantine(table.name, place.table, opened.version(), frozenset(schema), parts, engine)


def unreadable(name: str, error: BaseException) -> Terminal:
    """In words: deltalake draws its errors as coloured trees over several lines."""
    said = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    said = " ".join(said.partition("0: <unknown>")[0].replace("↳", " ").split())[:400]
    feature = re.search(r"[Ff]eatures? (?:required: \[(\w+)|'(\w+)' is not supported)", said)
    if feature is not None:
        return Terminal(
            f"the table has the feature {feature[1] or feature[2]}, which is read by Spark alone",
            where=name,
            hint=f'`penstock sql "SELECT * FROM {name}"` reads it, or any Spark with Delta',
        )
    return Terminal(
        f"its rows cannot be read: {said}", where=name, hint="a file of it is gone or broken; see who removed it"
    )
