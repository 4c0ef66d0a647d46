from pathlib import Path

from bench.filled import Filled


def test_a_copy_shares_the_rows_and_has_a_log_of_its_own(tmp_path: Path) -> None:
    table = tmp_path / "filled" / "tuned"
    (table / "_delta_log").mkdir(parents=True)
    (table / "part-0.parquet").write_text("rows")
    (table / "_delta_log" / "_last_checkpoint").write_text("1")
    copy = tmp_path / "run" / "table"
    copy.parent.mkdir()
    Filled(tmp_path / "filled", 10).copy("tuned", copy)
    (copy / "_delta_log" / "_last_checkpoint").write_text("2")
    assert (copy / "part-0.parquet").samefile(table / "part-0.parquet")
    assert (table / "_delta_log" / "_last_checkpoint").read_text() == "1"
