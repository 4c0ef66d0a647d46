"""Delta table properties that a user may give, and those that would break what Penstock promises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.spec.base_model import Finding, nearest, quote_value, refuse, text_values

_KNOWN = (
    "delta.appendOnly",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.checkpointRetentionDuration",
    "delta.compatibility.symlinkFormatManifest.enabled",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableChangeDataFeed",
    "delta.enableExpiredLogCleanup",
    "delta.enableFullRetentionRollback",
    "delta.enableInCommitTimestamps",
    "delta.enableRowTracking",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.parquet.compression.codec",
    "delta.randomizeFilePrefixes",
    "delta.randomPrefixLength",
    "delta.sampleRetentionDuration",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
)
_READERS = "`status` and `verify` read tables without Spark, and that reader does not know this feature"
_BREAKING: Mapping[str, str] = {
    "delta.columnMapping.mode": "the names in the files would no longer be those of the columns",
    "delta.columnMapping.maxColumnId": "Delta sets it itself",
    "delta.setTransactionRetentionDuration": "an idle table would forget its last batch, and a late retry double it",
    "delta.inCommitTimestampEnablementVersion": "Delta sets it itself",
    "delta.inCommitTimestampEnablementTimestamp": "Delta sets it itself",
    "delta.minReaderVersion": "it follows from the features that the table has",
    "delta.minWriterVersion": "it follows from the features that the table has",
    "delta.ignoreProtocolDefaults": "it follows from the features that the table has",
    "delta.enableTypeWidening": _READERS,
    "delta.enableDeletionVectors": _READERS,
    "delta.checkpointPolicy": _READERS,
    "delta.coordinatedCommits.": "the ledger is read from the table's own log",
    "delta.feature.": "features come from the properties that need them",
}
_SHORTEST_LOG_DAYS = 7
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(hour|day|week)s?", re.IGNORECASE)
_HOURS = {"hour": 1, "day": 24, "week": 168}


def table_properties(value: Any) -> dict[str, str]:
    """Checked properties: Delta's own, or the user's without the prefix delta. Raises FindingsError."""
    properties = text_values(value, "properties")
    refuse(finding for name, text in properties.items() if (finding := refusal(name, text)))
    return {name: str(text) for name, text in properties.items()}


def refusal(name: str, text: str) -> Finding | None:
    """Why this property cannot have this value, if so."""
    if not name.startswith("delta."):
        if name.casefold().startswith(("delta.", "penstock.")):
            return Finding((name,), f"the property '{name}' is reserved", "choose another prefix", at_key=True)
        return None
    for refused, why in _BREAKING.items():
        if name == refused or (refused.endswith(".") and name.startswith(refused)):
            return Finding((name,), f"the property '{name}' cannot be set: {why}", "remove it", at_key=True)
    if name not in _KNOWN:
        suggestion = nearest(name, _KNOWN)
        hint = f"did you mean '{suggestion}'?" if suggestion else "a property of your own must not begin with delta."
        return Finding((name,), f"Delta has no property '{name}'", hint, at_key=True)
    if name == "delta.enableInCommitTimestamps" and text != "true":
        message = f"{name} cannot be {quote_value(text)}: times of versions must survive a copy of the table"
        return Finding((name,), message, "remove it")
    if name == "delta.checkpointInterval" and not (text.isdecimal() and int(text) > 0):
        return Finding((name,), f"{quote_value(text)} is not a number of commits", f"write {name}: 100")
    if name == "delta.logRetentionDuration":
        return _log_retention(name, text)
    return None


def _log_retention(name: str, text: str) -> Finding | None:
    match = _INTERVAL.fullmatch(text.strip())
    if match is None:
        return Finding((name,), f"{quote_value(text)} is not an interval", f"write {name}: interval 30 days")
    if int(match[1]) * _HOURS[match[2].lower()] < _SHORTEST_LOG_DAYS * 24:
        message = f"{quote_value(text)} is too short: the log is the truth about what was landed"
        return Finding((name,), message, f"write interval {_SHORTEST_LOG_DAYS} days or more")
    return None
