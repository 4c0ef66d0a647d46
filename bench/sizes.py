"""How much is measured: the sizes of the issue's targets, and those of a smoke run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    rounds: int = 3
    warm_up: bool = True
    bronze_records: int = 2_000_000
    bronze_batch: int = 200_000
    small_records: int = 1_000_000
    small_batch: int = 20_000
    typed_records: int = 2_000_000
    typed_batch: int = 200_000
    growth_rows: int = 200_000
    """Rows of the smallest table."""
    growth_times: tuple[int, ...] = (1, 4, 16)
    growth_batch: int = 5_000
    growth_batches: int = 25
    """Measured; the first five of them do not count."""
    floor_batch: int = 1_000
    floor_warm: int = 200
    """Batches that do not count."""
    floor_measured: int = 60
    merge_rows: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    """Of the tables that changes are merged into."""
    merge_per_file: int = 500_000
    merge_batch: int = 10_000
    merge_batches: int = 9
    merge_warm: int = 4
    """The first of them, which do not count."""
    replay_records: int = 3_000_000
    replay_batch: int = 300_000
    """Records in a batch while bronze is filled: two files of it."""
    many_tables: int = 100
    many_records: int = 2_000
    """Per table and trigger."""
    many_trigger: int = 30
    many_partitions: int = 1
    many_minutes: float = 10.0
    start_records: int = 1_000
    cli_repeats: int = 5
    leave_out: frozenset[str] = frozenset()
    """Contenders that do not run."""


QUICK = Sizes(
    rounds=1,
    warm_up=False,
    bronze_records=20_000,
    bronze_batch=5_000,
    small_records=10_000,
    small_batch=2_000,
    typed_records=20_000,
    typed_batch=5_000,
    growth_rows=2_000,
    growth_times=(1, 4),
    growth_batch=200,
    growth_batches=7,
    floor_batch=100,
    floor_warm=10,
    floor_measured=10,
    merge_rows=(2_000, 8_000),
    merge_per_file=1_000,
    merge_batch=200,
    merge_batches=4,
    merge_warm=2,
    replay_records=20_000,
    replay_batch=5_000,
    many_tables=4,
    many_records=200,
    many_trigger=3,
    many_minutes=0.4,
    start_records=100,
    cli_repeats=2,
    leave_out=frozenset({"a again", "a'", "c+", "t'", "g'", "h'", "b'"}),
)
"""Small enough for a test: it shows that everything runs and verifies; its figures mean nothing."""
