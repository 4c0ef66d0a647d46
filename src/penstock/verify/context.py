"""The table being verified, and the step shared by every kind of table: walking its ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.ledger.delta_log import DeltaLog
from penstock.verify.data_files import count_problems, damaged_files
from penstock.verify.ledger_walk import read_chain

if TYPE_CHECKING:
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store
    from penstock.verify.ledger_walk import Chain, RowsAt
    from penstock.verify.report import Report

Progress = Callable[[str, str, float], None]
"""Called with the table, the current activity and the fraction of it that is done."""


@dataclass(frozen=True)
class VerifyContext:
    table: TablePlan
    store: Store
    head: LedgerHead
    report: Report
    progress: Progress
    tables: Mapping[str, TablePlan] = field(default_factory=dict)
    """All known tables, by name."""

    def step(self, activity: str) -> Callable[[float], None]:
        self.progress(self.table.name, activity, 0.0)
        return lambda fraction: self.progress(self.table.name, activity, fraction)

    @property
    def start_position(self) -> tuple[str, ...]:
        """Where the table began to read; () if that is no longer known. Use it after `walk`, which finds it in older
        entries."""
        chain = self.report.chain
        return self.head.entry.began or (chain.start_position if chain is not None else ())

    def walk(self, rows_at: RowsAt) -> Chain:
        """Read the ledger and check the data files. `rows_at` is called for versions where people changed the table by
        hand."""
        report, tail, table = self.report, self.head, self.table
        report.version, report.generation, report.batch = tail.version, tail.entry.generation, tail.entry.batch
        report.definition = tail.entry.pins.definition
        log = DeltaLog(self.store, table.uri, table.name)
        chain = report.chain = read_chain(log, tail.version, rows_at, self.step("reading the ledger"))
        _report_foreign_commits(chain, report)
        if tail.entry.unfinished:
            report.doubts.append(
                "a replay or rewind of it was begun and is not finished: `penstock run` finishes it; its rows are "
                "still those from before"
            )
        report.problems += count_problems(self.store, table, chain.first_version, tail.version)
        self.step("looking at its files")
        report.problems += self.damaged_files(table.uri, tail.version)
        return chain

    def damaged_files(self, uri: str, version: int | None) -> list[str]:
        """Data files that are missing or not as the log says. A log that cannot be read is reported elsewhere."""
        try:
            return [f"data file {description}" for description in damaged_files(self.store, uri, version)]
        except Exception:
            return []


def _report_foreign_commits(chain: Chain, report: Report) -> None:
    if chain.earlier_rows:
        report.doubts.append(
            f"{chain.earlier_rows:,} rows were in the table before its ledger began: they were not looked into"
        )
    for commit in chain.foreign:
        label = f"version {commit.version} ({commit.operation})"
        if commit.undecided:
            report.problems.append(f"{label} changed rows outside Penstock, and nobody has decided what follows")
            report.hint = f"`penstock checkpoints reset {report.table} --help` says how to decide"
        elif commit.accepted_in is not None:
            report.notes.append(f"{label} changed rows outside Penstock, accepted in version {commit.accepted_in}")
        else:
            report.notes.append(f"{label} added {commit.rows:,} rows that are not in the ledger")
