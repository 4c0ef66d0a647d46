"""The Delta properties that a table is created with, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.plan.model import Setting
from penstock.plan.settings import YOURS
from penstock.spec.write import Write

_SEARCHED = ("topic", "partition", "offset", "kafka_timestamp", "ingestion_timestamp")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def property_settings(write: Write, raw: Mapping[str, str], *, one_topic: bool = False) -> tuple[Setting, ...]:
    """Penstock's choices with the user's on top. `raw` is canonical name -> column of a table that keeps records as
    they came."""
    chosen = [
        Setting(
            "delta.enableInCommitTimestamps",
            "true",
            "the times of versions are in the log, so that they survive a copy of the table",
        ),
        Setting(
            "delta.checkpointInterval",
            "100",
            "Delta's own checkpoint costs 1.7 s even for a small table, and the default makes one every 10 commits",
        ),
    ]
    if raw:
        known = {column.casefold() for column in write.partition_by}  # Delta has no statistics of these
        searched = [raw[name] for name in _SEARCHED if not (name == "topic" and one_topic)]
        searched = [column for column in searched if column.casefold() not in known]
        chosen.append(
            Setting(
                "delta.dataSkippingStatsColumns",
                ",".join(map(_quoted, searched)),
                "statistics only on what is searched for: those of whole payloads, or of a topic that is the same in "
                "every row, cost time and tell nothing",
            )
        )
    if write.auto_compact:
        chosen.append(Setting("delta.autoOptimize.autoCompact", "true", f"{YOURS}: small files become large ones"))
    if write.merge is not None:
        chosen.append(
            Setting(
                "delta.enableDeletionVectors",
                "true",
                "a changed row is marked in its file, which is not written anew for it",
            )
        )
    if write.change_feed:
        chosen.append(Setting("delta.enableChangeDataFeed", "true", f"{YOURS}: changes of rows can be followed"))
    return (
        *(setting for setting in chosen if setting.name not in write.properties),
        *(Setting(name, value, YOURS) for name, value in write.properties.items()),
    )


def _quoted(name: str) -> str:
    """Delta reads the list as SQL identifiers."""
    return name if _PLAIN.fullmatch(name) else f"`{name}`"
