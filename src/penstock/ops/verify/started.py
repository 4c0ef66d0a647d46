"""Where a table began to read, and what of its source lies before that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engine.delta.version import parse
from penstock.engine.protocol.position import Offsets
from penstock.ops.broker import Held
from penstock.ops.verify.positions import offsets_of
from penstock.ops.verify.unread import rows_in
from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource, KafkaSource


@dataclass(frozen=True)
class Beginning:
    where: str | None = None
    """None: with the first that there was."""
    earlier: int | None = 0
    """Rows or records that the source holds from before it; None if that is not known."""
    unit: str = "record"
    doubt: str | None = None
    """The project declares an earlier start than the table had."""

    @property
    def said(self) -> str:
        if self.where is None:
            return ""
        how_many = "earlier ones" if self.earlier is None else f"{self.earlier:,} earlier {self.unit}s"
        return f", {self.where} as the project says ({how_many} are not part of it)"


def began_in_topics(source: KafkaSource, began: Sequence[str], held: Held) -> Beginning:
    """`began`: the position of its genesis, () if that is no longer known."""
    if not began:
        return Beginning()
    at, declared = offsets_of(tuple(began)), source.starting
    known = not held.problem
    earlier = _before(at, held.earliest) if known else None
    if declared.kind == "earliest":
        if earlier:
            doubt = (
                f"the project starts at the earliest record, the table began later: {earlier:,} records are left out"
            )
            return Beginning("from the offsets at which it began", earlier, doubt=doubt)
        return Beginning()
    if declared.kind == "offsets":
        late = {
            f"{topic}-{part}": (wanted, at[topic][part])
            for topic, parts in declared.offsets.items()
            for part, wanted in parts.items()
            if wanted >= 0 and at.get(topic, {}).get(part, wanted) > wanted
        }
        why = (
            "it began later than the project declares: "
            + ", ".join(f"{name} at {began}, declared {wanted}" for name, (wanted, began) in sorted(late.items()))
            if late
            else None
        )
        return Beginning("from the declared offsets on", earlier, doubt=why)
    word = "the end of its topics when it was created" if declared.kind == "latest" else "the declared time"
    return Beginning(f"from {word} on", earlier)


def _before(at: Offsets, earliest: Offsets) -> int:
    return sum(
        max(0, offset - earliest.get(topic, {}).get(part, offset))
        for topic, parts in at.items()
        for part, offset in parts.items()
    )


def began_in_table(source: DeltaSource, began: Sequence[str]) -> Beginning:
    unit = "row"
    if not began:
        return Beginning(unit=unit)
    at = parse(began[0])
    if isinstance(source, FilesSource):
        if source.starting.kind != "latest":
            return Beginning(unit="file")
        return Beginning("with the files that came after it was created,", rows_in(source.uri, at.version - 1), "file")
    if at.snapshot or at.version <= 0:
        return Beginning(unit=unit)
    declared, doubt = source.starting, None
    if declared.kind == "earliest":
        doubt = f"the project starts with the whole table, this one began with version {at.version}"
    elif declared.kind == "version" and declared.version is not None and at.version > declared.version:
        doubt = f"the project starts with version {declared.version}, the table began with version {at.version}"
    return Beginning(f"from version {at.version} on", rows_in(source.uri, at.version - 1), unit, doubt)
