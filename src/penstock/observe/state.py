"""What a runner says about each table it runs: one small file per table, written when the state changes."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, field
from typing import Literal

from penstock.engine.store import Store

Kind = Literal["starting", "running", "retrying", "failed", "finished", "stopped"]


@dataclass(frozen=True)
class State:
    state: Kind
    reason: str | None = None
    hint: str | None = None
    since: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    process: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)


def _path(system: str, table: str) -> str:
    return f"{system}/state/{table}.json"


def write_state(store: Store, system: str, table: str, state: State) -> None:
    store.write(_path(system, table), json.dumps(asdict(state)))


def read_state(store: Store, system: str, table: str) -> State | None:
    """None if the table never ran, or if the file is unreadable."""
    try:
        return State(**json.loads(store.read(_path(system, table)) or "null"))
    except (ValueError, TypeError):
        return None
