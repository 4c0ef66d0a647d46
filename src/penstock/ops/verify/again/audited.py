"""An audit table against the change feed that it follows: how many changes of each kind every version has."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.covered import Asked
from penstock.engine.delta.version import parse
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.replay.began import began_of
from penstock.engine.stages.audit import audit
from penstock.engine.stages.coordinates import with_source
from penstock.ops.verify.again.around import Around, Comparison, answer
from penstock.ops.verify.again.content import Content
from penstock.ops.verify.again.held import Sides, hold
from penstock.ops.verify.again.sample import Sample
from penstock.ops.verify.check import Check

_COUNT = "changes"


def check_changes(around: Around, content: Content) -> Check:
    """Cheap: rows are counted, not compared."""
    entry, stages = content.entry, around.table.stages
    assert stages is not None and stages.audit is not None
    if entry is None or parse(entry.after[0]).read_up_to < 0:
        check = around.begun("changes", f"the changes of {around.upstream}", "counts")
        check.outcome, check.said = ("not made" if around.report.rows else "same"), "nothing was read yet"
        return check
    version = parse(entry.after[0]).read_up_to
    check = around.begun("changes", f"the changes of {around.upstream} up to v{version}", "counts")
    check.of = 0
    check.remarks.append("changes are counted by version and kind; their contents are not compared")
    began = began_of(DeltaLog(around.store, around.table.uri, around.table.name), entry)
    with around.reading(version):
        read = around.reader().covered(around.spark, Asked(entry.after, began, entry.topics)).rows
        told = audit(stages.audit)(with_source(read, around.table.input), {}, 0)
        sides = Sides(_counted(around.there()), [_counted(told)], ["version", "change_type"], [_COUNT])
        return answer(around, check, Comparison(hold(sides, Sample()), Sample()), content, [])


def _counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("version", "change_type").agg(F.count(F.lit(1)).alias(_COUNT))
