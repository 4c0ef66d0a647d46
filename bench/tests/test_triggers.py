from bench.scenarios.triggers import missed


def test_a_commit_in_every_interval_misses_nothing() -> None:
    assert missed([-5, 25, 55, 85, 115], start=0, end=90, interval=30) == 0


def test_a_late_batch_is_not_a_missed_trigger() -> None:
    assert missed([-5, 25, 70, 86, 115], start=0, end=90, interval=30) == 0


def test_each_interval_without_a_commit_counts() -> None:
    assert missed([-5, 25, 115], start=0, end=90, interval=30) == 2


def test_a_table_that_stopped_misses_the_rest() -> None:
    assert missed([-5, 25], start=0, end=90, interval=30) == 2


def test_a_table_without_a_commit_misses_every_trigger() -> None:
    assert missed([], start=0, end=90, interval=30) == 3
