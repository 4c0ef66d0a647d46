"""Where text goes: answers to standard output, everything said along the way to standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from penstock.cli.visible import visible_json
from penstock.errors import PenstockError

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def print_json(document: Any) -> None:
    """The one JSON document of `--json`. Written plainly: rich would wrap and colour it. What a terminal would obey is
    escaped, wherever it came from."""
    sys.stdout.write(visible_json(json.dumps(document, indent=2, default=str, ensure_ascii=False)) + "\n")


def shown_error(error: PenstockError, word: str = "error:", table: str | None = None) -> Text:
    """What happened stands out; what to do about it is there to be read. `table` is named if the error does not."""
    said = str(error)
    if table is not None and error.where is None:
        said = f"{table}: {said}"
    first, _, rest = said.partition("\n")
    return Text.assemble((f"{word} {first}", "bold red"), f"\n{rest}" if rest else "")


def people(as_json: bool) -> Console:
    """The console for people's text: standard error while standard output carries JSON."""
    return err if as_json else out


def print_view(view: RenderableType, *, piped: int) -> None:
    """An answer for people. Piped there is no width to keep to: a line stays a line for grep, up to `piped` columns."""
    if out.is_terminal:
        out.print(view)
        return
    out.width = piped
    with out.capture() as printed:
        out.print(view)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))
