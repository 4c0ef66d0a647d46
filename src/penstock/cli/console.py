"""Where text goes: answers to standard output, everything said along the way to standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def print_json(document: Any) -> None:
    """The one JSON document of `--json`. Written plainly: rich would wrap and colour it."""
    sys.stdout.write(json.dumps(document, indent=2, default=str, ensure_ascii=False) + "\n")


def people(as_json: bool) -> Console:
    """The console for people's text: standard error while standard output carries JSON."""
    return err if as_json else out
