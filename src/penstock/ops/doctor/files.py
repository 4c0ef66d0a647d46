"""Small files, and the log since Delta's last checkpoint."""

from __future__ import annotations

from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.layout import Layout
from penstock.ops.doctor.said import count, size

SMALL = 16 * 1024**2
"""Bytes under which opening a file costs more than reading it."""
TARGET = 256 * 1024**2
"""What `penstock optimize` makes of them, unless the project says otherwise."""
MANY, VERY_MANY = 200, 2_000
_DEFAULT_INTERVAL = 10
_LATE = 3
"""So many times the usual number of commits since the last checkpoint is no chance."""
_LARGE_LOG = 64 * 1024**2


def small_files(table: str, layout: Layout, trigger_seconds: float | None) -> Check:
    about = About("table.files", table)
    if not layout.files:
        return about.ok("no files")
    average = layout.bytes / layout.files
    said = f"{count(layout.files, 'file')}, {size(layout.bytes)}, {size(average)} each on average"
    if layout.files < MANY or average >= SMALL:
        return about.ok(said)
    daily = (
        f"; a trigger of {trigger_seconds:g} s makes up to {86_400 / trigger_seconds:,.0f} files a day"
        if (trigger_seconds)
        else ""
    )
    good = max(1, round(layout.bytes / TARGET))
    fix = (
        f"`penstock optimize {table}` makes about {count(good, 'file')} of them and changes no row; maintenance: "
        "{optimize: 1 hour} lets the runner do it. A longer trigger makes fewer files"
    )
    return about.warn(said + daily, fix) if layout.files >= VERY_MANY else about.note(said + daily, fix)


def log_size(table: str, layout: Layout) -> Check:
    about = About("table.log", table)
    text = layout.properties.get("delta.checkpointInterval", "")
    interval = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_INTERVAL
    bytes_said = f", {size(layout.log_bytes)}" if layout.log_bytes is not None else ""
    said = f"{count(layout.since_checkpoint, 'commit')} since Delta's last checkpoint{bytes_said} (one is made every "
    said += f"{interval:,})"
    if layout.since_checkpoint > _LATE * interval:
        return about.warn(
            said,
            "checkpoints are made by the process that commits, and seem to fail: look for 'checkpoint' in "
            ".penstock/logs; ALTER TABLE … SET TBLPROPERTIES makes another try",
        )
    if (layout.log_bytes or 0) > _LARGE_LOG:
        return about.note(said, f"write: {{properties: {{delta.checkpointInterval: {max(10, interval // 4)}}}}}")
    return about.ok(said)
