"""How the files of the tables are looked after: how often, how large they shall be, and what must be kept."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spec.maintenance import Maintenance

TARGET_BYTES = 256 * 1024 * 1024
"""Large enough for a scan, small enough for one task to write. Delta's own 1 GiB would have files written again and
again, in every run, until they are that large."""


@dataclass(frozen=True)
class ExternalReader:
    name: str
    table: str
    lag_ms: int


@dataclass(frozen=True)
class MaintenancePlan:
    optimize_seconds: float | None = None
    """How often the runner does it; None: it does not."""
    target_bytes: int = TARGET_BYTES
    vacuum_seconds: float | None = None
    retain_ms: int | None = None
    """None: as long as a table remembers what was removed from it, which is 7 days unless its properties say more."""
    replay_ms: int = 0
    """However little is asked for: so far back everything can be read again."""
    external: tuple[ExternalReader, ...] = ()

    @property
    def scheduled(self) -> bool:
        return self.optimize_seconds is not None or self.vacuum_seconds is not None

    def lag_ms(self, table: str) -> int:
        """How far behind somebody outside may be who reads the table."""
        return max((one.lag_ms for one in self.external if one.table == table), default=0)


def maintenance_plan(maintenance: Maintenance) -> MaintenancePlan:
    optimize, vacuum = maintenance.optimize, maintenance.vacuum
    return MaintenancePlan(
        optimize_seconds=optimize.every if optimize else None,
        target_bytes=(optimize.target_size if optimize else None) or TARGET_BYTES,
        vacuum_seconds=vacuum.every if vacuum else None,
        retain_ms=_ms(vacuum.retain) if vacuum and vacuum.retain is not None else None,
        replay_ms=_ms(vacuum.replay_window) if vacuum and vacuum.replay_window is not None else 0,
        external=tuple(
            ExternalReader(one.name, one.table, _ms(one.lag)) for one in (vacuum.external_readers if vacuum else ())
        ),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
