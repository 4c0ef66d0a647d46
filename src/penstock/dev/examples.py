"""The example projects, in a checkout or in an installed package, and the events that feed them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

from penstock.errors import SetupError, UsageError
from penstock.spec.base_model import did_you_mean


@dataclass(frozen=True)
class Example:
    """A project and its topics: topic -> kind of event."""

    name: str
    description: str
    topics: dict[str, str]
    """Topics filled while the tables run."""
    time_span: timedelta
    """The span of the event times, so that a demonstration of a minute has several windows."""
    first_topics: dict[str, str] = field(default_factory=dict)
    """Topics filled and landed before the rest, because other tables look them up."""
    count: int = 30_000
    """How many events a demonstration sends."""
    database: bool = False
    """Its topics are filled by a database, which a script of the example changes."""


EXAMPLES = {
    example.name: example
    for example in (
        Example(
            "orders",
            "orders of a shop: validated, de-duplicated, daily sales per category",
            {"orders": "orders"},
            timedelta(days=3),
        ),
        Example(
            "clickstream",
            "clicks on a web shop: cleaned; views, exact users and revenue per product and hour",
            {"clicks": "clicks"},
            timedelta(hours=6),
        ),
        Example(
            "fraud",
            "card transactions joined with customers, judged by three rules; alerts to a table and a topic",
            {"transactions": "transactions"},
            timedelta(days=1),
            first_topics={"customers": "customers"},
        ),
        Example(
            "sensors",
            "sensor readings: a raw zone that takes all, strict types behind it, windows per sensor",
            {"sensors": "sensors"},
            timedelta(hours=2),
        ),
        Example(
            "customers",
            "a PostgreSQL table by Debezium: as it is, as it was, who changed what, and a copy in PostgreSQL again",
            {},
            timedelta(),
            count=3_000,
            database=True,
        ),
    )
}


def find_example(name: str) -> Example:
    if name not in EXAMPLES:
        raise UsageError(f"there is no example '{name}'", hint=did_you_mean(name, list(EXAMPLES)))
    return EXAMPLES[name]


def copy_example(example: Example, folder: Path) -> Path:
    """A copy to run in: the example itself stays as it is."""
    target = folder / example.name
    shutil.copytree(example_folder(example), target, ignore=shutil.ignore_patterns("lake", ".penstock", "__pycache__"))
    return target


def example_folder(example: Example) -> Path:
    packaged = Path(str(files("penstock"))) / "examples" / example.name
    in_checkout = Path(__file__).parents[3] / "examples" / example.name
    source = packaged if packaged.is_dir() else in_checkout
    if not source.is_dir():
        raise SetupError(f"the example {example.name} is not in this installation", hint="install penstock again")
    return source
