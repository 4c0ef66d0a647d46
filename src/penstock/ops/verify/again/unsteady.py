"""Metrics that may rightly give another value each time they are computed."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FUNCTIONS = (
    "any_value|approx_percentile|approx_top_k|array_agg|collect_list|collect_set|current_date|current_time|"
    "current_timestamp|first|first_value|histogram_numeric|hll_sketch_agg|hll_union_agg|last|last_value|listagg|"
    "localtimestamp|max_by|min_by|mode|now|percentile_approx|rand|randn|random|string_agg|try_reflect|unix_timestamp|"
    "uuid"
)
_CALLED = re.compile(
    rf"(?<![\w`.])({_FUNCTIONS})\s*\(|(?<![\w`.])(current_date|current_timestamp)(?!\w)", re.IGNORECASE
)
"""approx_count_distinct is none of them: it gives the same for the same rows, in whatever order they come."""


def unsteady_metrics(metrics: Mapping[str, str]) -> list[str]:
    """Those that depend on the order of rows, on which of several equal ones comes first, or on the moment. Too many
    rather than too few: they are compared too, and only a difference is not held for a mistake."""
    return [name for name, expression in metrics.items() if _CALLED.search(expression)]
