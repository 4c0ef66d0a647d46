from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spec.base_model import FindingsError, Referenced, quote_value
from penstock.spec.document import resolve


def test_a_variable_is_replaced_also_inside_a_longer_text(tmp_path: Path) -> None:
    assert resolve("${env:HOST}:${env:PORT}", env={"HOST": "broker", "PORT": "9092"}, folder=tmp_path) == "broker:9092"


def test_an_unset_variable_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FindingsError, match="KAFKA_USER is not set"):
        resolve("${env:KAFKA_USER}", env={}, folder=tmp_path)


@pytest.mark.parametrize("env", [{}, {"X": ""}])
def test_a_default_stands_for_a_variable_that_is_unset_or_empty(env: dict[str, str], tmp_path: Path) -> None:
    assert resolve("${env:X:-127.0.0.1:9092}", env=env, folder=tmp_path) == "127.0.0.1:9092"


def test_an_empty_variable_without_a_default_is_empty(tmp_path: Path) -> None:
    assert resolve("a${env:X}b", env={"X": ""}, folder=tmp_path) == "ab"


def test_a_default_may_be_empty(tmp_path: Path) -> None:
    assert resolve("${env:X:-}", env={}, folder=tmp_path) == ""


def test_a_file_is_read_from_the_project_folder_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a\nb\r\n")
    assert resolve("${file:secret}", env={}, folder=tmp_path) == "a\nb"


@pytest.mark.parametrize(
    "written", ["${file:nowhere}", "${file:/nowhere/at/all}", "${file:.}", "${file:}", "${file:\0}"]
)
def test_a_file_that_cannot_be_read_is_an_error(written: str, tmp_path: Path) -> None:
    with pytest.raises(FindingsError):
        resolve(written, env={}, folder=tmp_path)


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FindingsError, match="is not text"):
        resolve("${file:binary}", env={}, folder=tmp_path)


def test_two_dollars_make_a_plain_one(tmp_path: Path) -> None:
    resolved = resolve("$${env:X} costs $5 and $", env={}, folder=tmp_path)
    assert resolved == "${env:X} costs $5 and $"
    assert not isinstance(resolved, Referenced)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("${HOME}", r"\$\{env:HOME\}"),
        ("${evn:HOME}", "did you mean 'env'"),
        ("${vault:a}", "file:path"),
        ("${env:X", "}"),
    ],
)
def test_an_unknown_reference_says_what_to_write(written: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(FindingsError, match=hint):
        resolve(written, env={}, folder=tmp_path)


def test_what_a_reference_stands_for_is_not_resolved_again(tmp_path: Path) -> None:
    assert resolve("${env:A}", env={"A": "${env:B}", "B": "no"}, folder=tmp_path) == "${env:B}"


def test_a_referenced_value_is_shown_as_it_is_written(tmp_path: Path) -> None:
    assert quote_value(resolve("x${env:A}", env={"A": "hush"}, folder=tmp_path)) == "'x${env:A}'"
