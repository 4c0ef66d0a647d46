"""A table of which only the ledger and the rows are known: no broker answers."""

from __future__ import annotations

from pathlib import Path

from penstock.storage.stores import LocalStore
from penstock.verify import table as verify_table
from penstock.verify.report import Partition, Report, report_document
from tests.bronze_table import BronzeTable, table_plan


def begun(folder: Path) -> BronzeTable:
    table = BronzeTable(table_plan(str(folder / "lake" / "orders")), {"orders": "id-1"})
    return table.genesis({"orders": {0: 0, 1: 10}})


def checked(table: BronzeTable) -> Report:
    (report,) = verify_table.verify([table.plan], LocalStore())
    report_document(report)
    return report


def only(report: Report, partition: int = 0) -> Partition:
    return next(one for one in report.partitions if one.key == ("orders", partition))


def fine(report: Report) -> bool:
    """Right, and all that is not proven is what the broker has beyond: nobody could ask it."""
    return report.verdict == "partial" and report.unproven == [str(report.unread)] and report.unread.count is None
