"""`maintenance` as written: how often, how large, what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.plan.build import build_plan
from penstock.plan.model import TARGET_BYTES, ExternalReaderPlan, MaintenancePlan
from tests.unit.project_file import HEAD, load, one, problems

TABLES = HEAD + "tables:\n  silver.orders: {from: {kafka: orders}}\n"


def plan(folder: Path, text: str) -> MaintenancePlan:
    return build_plan(load(folder, TABLES + text)).maintenance


def test_without_it_a_runner_looks_after_nothing(tmp_path: Path) -> None:
    made = plan(tmp_path, "")
    assert (made, made.scheduled) == (MaintenancePlan(), False)


def test_the_short_form_says_how_often(tmp_path: Path) -> None:
    made = plan(tmp_path, "maintenance: {optimize: 1 hour, vacuum: {retain: 7 days}}\n")
    assert (made.optimize_seconds, made.target_bytes) == (3600.0, TARGET_BYTES)
    assert (made.vacuum_seconds, made.retain_ms, made.replay_ms) == (86400.0, 7 * 86_400_000, 0)
    assert made.scheduled


def test_everything_can_be_said(tmp_path: Path) -> None:
    text = """maintenance:
  optimize: {every: 30 minutes, target_size: 128MiB}
  vacuum:
    every: 6h
    retain: 0s
    replay_window: 14 days
    external_readers: [{name: bi, table: silver.orders, lag: 2 days}]
"""
    made = plan(tmp_path, text)
    assert made.optimize_seconds == 1800 and made.target_bytes == 128 * 1024**2
    assert (made.vacuum_seconds, made.retain_ms, made.replay_ms) == (21600, 0, 14 * 86_400_000)
    assert made.external == (ExternalReaderPlan("bi", "silver.orders", 2 * 86_400_000),)
    assert (made.lag_ms("silver.orders"), made.lag_ms("silver.other")) == (2 * 86_400_000, 0)


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("{optimize: 10s}", "'10s' is not how often", "1 minute or more"),
        ("{optimize: 60}", "60 of what?", "a number and a unit"),
        ("{optimize: {evry: 1h}}", "unknown key 'evry'", "did you mean 'every'?"),
        ("{optimize: {every: 1h, target_size: 5kB}}", "'5kB' is no size to aim at", "1MiB to 4GiB"),
        ("{vacuum: 7 days}", "is that how long files are kept, or how often", "vacuum: {retain: 7 days}"),
        ("{vacuum: {retain: 7}}", "7 of what?", ""),
        ("{vacuum: {retain: 200000 weeks}}", "longer than anything can be kept", "3650d or less"),
        ("{vacuum: {replay_window: -1 days}}", "'-1 days' is not a duration", ""),
        ("{retain: 7 days}", "'retain' does not belong here", "vacuum: {retain: 7 days}"),
        ("{vacuum: {external_readers: [{name: bi, lag: 1h}]}}", "'table' is missing", "table: silver.orders"),
        (
            "{vacuum: {external_readers: [{name: bi, table: silver.order, lag: 1h}]}}",
            "there is no table 'silver.order'",
            "did you mean 'silver.orders'?",
        ),
        (
            "{vacuum: {external_readers: [{name: b, table: silver.orders, lag: 1h}, "
            "{name: b, table: silver.orders, lag: 2h}]}}",
            "two external readers called 'b'",
            "a name of its own",
        ),
        ("always", "'always' is not what belongs here", "maintenance: {optimize: 1 hour"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_its_place(text: str, said: str, hint: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, f"{TABLES}maintenance: {text}\n"))
    assert problem.line == 6
    assert said in problem.message
    assert hint in f"{problem.message} {problem.hint}"
