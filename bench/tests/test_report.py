from pathlib import Path

import pytest

from bench.measure import Figures
from bench.outcome import Outcome, Series, Sheet, Target, ratio
from bench.report import write_docs

MACHINE = {"cores": "2", "Java": "17"}


def _outcome(scenario: str, value: float | None) -> Outcome:
    sheet = Sheet("rows", ("contender", "rows/s"), [["P", "1,000"]])
    return Outcome(scenario, "A setting.", [sheet], [Target("rate", "at least", 1.0, "x", value)], {})


def _figures(rate: float, problem: str | None = None) -> Figures:
    return Figures("P", 10, 1, rate, rate, 1.0, 1.0, 1.0, 1.0, 1, problem=problem)


@pytest.mark.parametrize(("value", "met"), [(1.0, True), (0.99, False), (None, False)])
def test_a_target_without_a_value_is_missed(value: float | None, met: bool) -> None:
    assert Target("rate", "at least", 1.0, "x", value).met is met


def test_a_rate_does_not_count_if_one_run_does_not_verify() -> None:
    series = Series("P", [_figures(3.0), _figures(4.0, problem="2 doubled"), _figures(5.0)])
    assert series.median(lambda run: run.rate) is None
    assert series.verified == "NO: 2 doubled"


def test_the_median_of_the_rounds_is_the_figure() -> None:
    series = Series("P", [_figures(3.0), _figures(9.0), _figures(4.0)])
    assert series.median(lambda run: run.rate) == 4.0
    assert ratio(series.median(lambda run: run.rate), 2.0) == 2.0


def test_a_section_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "docs" / "bench.md"
    write_docs(file, [_outcome("bronze", 1.5), _outcome("cli", 2.0)], "python -m bench", MACHINE, "2026-01-01")
    write_docs(file, [_outcome("bronze", 0.5)], "python -m bench --only bronze", MACHINE, "2026-01-02")
    text = file.read_text()
    assert text.count("## bronze\n") == text.count("## cli\n") == 1
    assert "| rate | at least 1x | 0.50x | MISSED |" in text
    assert "| rate | at least 1x | 2.00x | pass |" in text
    assert "`python -m bench --only bronze`, 2026-01-02, on cores 2, Java 17." in text
    assert "`python -m bench`, 2026-01-01" in text


def test_writing_the_same_again_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bench.md"
    write_docs(file, [_outcome("bronze", 1.5), _outcome("cli", 2.0)], "python -m bench", MACHINE, "2026-01-01")
    before = file.read_text()
    write_docs(file, [_outcome("cli", 2.0)], "python -m bench", MACHINE, "2026-01-01")
    assert file.read_text() == before
