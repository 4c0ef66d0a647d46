"""Numbers as the tables show them; a dash where nothing counts."""

from __future__ import annotations

from collections.abc import Callable

from bench.measure import Figures
from bench.outcome import Series


def count(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}x"


def spread(series: Series, of: Callable[[Figures], float], digits: int = 0) -> str:
    if series.median(of) is None:
        return "–"
    values = [of(run) for run in series.runs]
    return f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"
