"""Where text goes: answers to standard output, progress and errors to standard error; text of strangers made
harmless."""

from __future__ import annotations

import json
import sys
import threading
import unicodedata
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.errors import PenstockError


# What strangers wrote, for a terminal. A record of Kafka may hold anything: what could move the cursor, colour the
# screen, hide itself or turn the direction of writing is shown as an escape.


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Fillers and variation selectors: printable by their category, and nothing is seen of them. Without U+FE0E and U+FE0F,
# which choose the look of an emoji.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0)))
)


def visible(text: str) -> str:
    """On one line, every character of it to be seen."""
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(one if _plain(one) else _escape(one) for one in text)


def visible_json(text: str) -> str:
    """The same of a JSON document, which stays the same document: such a character can only stand within a string."""
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(one if one == "\n" or _plain(one) else _unicode(one) for one in text)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _plain(one: str) -> bool:
    return (one.isprintable() and one not in _BLANK) or unicodedata.category(one) == "Zs"  # spaces of other scripts


def _escape(one: str) -> str:
    if one in _SHORT:
        return _SHORT[one]
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unicode(one: str) -> str:
    """As JSON writes it: in halves where it is long."""
    units = one.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


# Where text goes: answers to standard output, everything said along the way to standard error.


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


# Progress on standard error, for what can take a while.


AFTER = 2.0
"""Seconds of work before a progress bar appears."""


class Bar:
    """Shown once it has taken a while. A timer starts it: the work may be one long call."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
        self._progress = Progress(*columns, console=err, transient=True)
        self._task = self._progress.add_task("", total=1.0)
        self._timer = threading.Timer(AFTER, self._progress.start)
        self._timer.daemon = True

    def step(self, table: str, what: str, part: float) -> None:
        self._progress.update(self._task, description=f"{table}: {what}" if table else what, completed=part)

    def __enter__(self) -> Bar:
        if err.is_terminal:
            self._timer.start()
        return self

    def hide(self) -> None:
        """While something is shown, or asked."""
        self._timer.cancel()
        if err.is_terminal:  # else nothing was ever shown, and it would say so with an empty line
            self._progress.stop()

    def show(self) -> None:
        if err.is_terminal:
            self._progress.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()


# Bytes as people read them.


def size_text(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:,.1f} {unit}"
