"""What is wrong with a query, said before Spark is started, as far as it can be."""

from __future__ import annotations

from penstock.engine.store import LocalStore
from penstock.ops.sql.names import Names
from penstock.ops.sql.pointing import pointed
from penstock.ops.sql.statement import Statement
from penstock.ops.sql.versions import Versions, zone_of
from penstock.plan.model import Plan


def refuse_early(plan: Plan, statement: Statement) -> None:
    """Only a table has a version behind its name: so those are known, and on a local lake their versions too."""
    names, versions = Names(plan), Versions(LocalStore(), zone_of(plan))
    for mention in statement.mentions.values():
        table = names.find(mention.parts, pointed(statement.written, mention.start, mention.sign - 1))
        if plan.local:
            versions.of(table, mention.at)
