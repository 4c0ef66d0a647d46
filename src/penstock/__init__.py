"""Kafka topics landed in Delta Lake exactly once, replayable, watched and provable.

import penstock

project = penstock.load_project(Path("shop"))      # reads shop/penstock.yml
project = penstock.Project(name="shop", lake="./lake", kafka={"bootstrap": "127.0.0.1:9092"},
                           tables={"bronze.orders": {"from": {"kafka": "orders"}}})
plan = penstock.build_plan(project)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project
    from penstock.spec.project import Project
    from penstock.spec.sink import Sink
    from penstock.spec.table import Table

__version__ = "0.1.0"
__all__ = ["PenstockError", "Project", "Sink", "Table", "__version__", "build_plan", "load_project"]

_MODULES = {
    "PenstockError": "penstock.errors",
    "Project": "penstock.spec.project",
    "Sink": "penstock.spec.sink",
    "Table": "penstock.spec.table",
    "build_plan": "penstock.plan.build",
    "load_project": "penstock.spec.load",
}


def __getattr__(name: str) -> Any:
    """Loads a name on first use, so that `import penstock` alone is fast and loads nothing."""
    if name not in _MODULES:
        raise AttributeError(f"module 'penstock' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name]), name)
