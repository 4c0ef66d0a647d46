"""Where text goes: answers to standard output, progress and errors to standard error. Untrusted text is made
harmless."""

from __future__ import annotations

import json
import sys
import threading
import unicodedata
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType

    from penstock.errors import PenstockError


# Untrusted text for a terminal. A Kafka record may contain anything: characters that could move the cursor, colour the
# screen, be invisible or reverse the direction of writing are shown as escapes.


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Fillers and variation selectors: printable by their category, but invisible. U+FE0E and U+FE0F are not among them:
# they choose how an emoji is displayed.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0)))
)


def visible(text: str) -> str:
    """The text on one line, with every invisible or unsafe character escaped."""
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(char if _plain(char) else _escape(char) for char in text)


def visible_lines(text: str) -> str:
    """The same for text that may have several lines: the message of an error, with its hint."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(text: str) -> str:
    """The same for a JSON document. Its content stays the same: such characters can only be inside strings."""
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(char if char == "\n" or _plain(char) else _unicode(char) for char in text)


def shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _plain(char: str) -> bool:
    return (char.isprintable() and char not in _BLANK) or unicodedata.category(char) == "Zs"  # spaces of other scripts


def _escape(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unicode(char: str) -> str:
    """As JSON escapes it: as a surrogate pair beyond U+FFFF."""
    units = char.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


# Answers go to standard output, everything else to standard error.


class TerminalConsole(Console):
    """Reads no text as markup, and prints nothing that a terminal would obey, also where a view forgot `visible`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


out = TerminalConsole()
err = TerminalConsole(stderr=True)


def print_json(document: Any) -> None:
    """Prints the one JSON document of `--json`. Written without rich, which would wrap and colour it. What a terminal
    would obey is escaped, wherever it came from."""
    sys.stdout.write(visible_json(json.dumps(document, indent=2, default=str, ensure_ascii=False)) + "\n")


def error_text(error: PenstockError, word: str = "error:", table: str | None = None) -> Text:
    """What happened stands out, and what to do about it follows. `table` is named unless the error says where it is."""
    message = visible_lines(str(error))
    if table is not None and error.where is None:
        message = f"{table}: {message}"
    first, _, rest = message.partition("\n")
    return Text.assemble((f"{word} {first}", "bold red"), f"\n{rest}" if rest else "")


def text_console(as_json: bool, *, piped: int | None = None) -> Console:
    """The console for text that people read: standard error while standard output carries JSON. `piped` is its width
    in a pipe, which has none to fit."""
    console = err if as_json else out
    if piped is not None and not console.is_terminal:
        console.width = piped
    return console


def print_view(view: RenderableType, *, piped: int) -> None:
    """Prints an answer for people. In a pipe each row stays on one line for grep, up to `piped` columns."""
    if out.is_terminal:
        out.print(view)
        return
    out.width = piped
    with out.capture() as capture:
        out.print(view)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


# Tables without lines, whose columns are as wide as their text: `plain_table(*fold("table"), *right("rows"))`.


def plain_table(*columns: Column) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="dim")


def left(*titles: str) -> Iterable[Column]:
    return (Column(Text(title), no_wrap=True) for title in titles)


def right(*titles: str) -> Iterable[Column]:
    return (Column(Text(title), justify="right", no_wrap=True) for title in titles)


def fold(*titles: str) -> Iterable[Column]:
    """Columns of long texts: they share the space that the others leave."""
    return (Column(Text(title), overflow="fold") for title in titles)


def facts_view(rows: Iterable[tuple[str, str | Text]], *, labels: int = 10) -> Padding:
    """Labels and, beside them, texts; `labels` is the least width of the first."""
    grid = Table.grid(Column(no_wrap=True, style="dim", min_width=labels), Column(overflow="fold"), padding=(0, 2))
    for label, content in rows:
        grid.add_row(Text(visible(label)), Text(visible_lines(content)) if isinstance(content, str) else content)
    return Padding(grid, (0, 0, 0, 2))


# Progress on standard error.


BAR_DELAY_SECONDS = 2.0
"""Seconds of work before a progress bar appears."""


class Bar:
    """A progress bar that appears after a delay. A timer starts it, because the work may be one long call."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # most verbs need none of it

        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=30), TimeElapsedColumn())
        self._progress = Progress(*columns, console=err, transient=True)
        self._task = self._progress.add_task("", total=1.0)
        self._timer = threading.Timer(BAR_DELAY_SECONDS, self._progress.start)
        self._timer.daemon = True

    def step(self, table: str, activity: str, fraction: float) -> None:
        self._progress.update(self._task, description=f"{table}: {activity}" if table else activity, completed=fraction)

    def __enter__(self) -> Bar:
        if err.is_terminal:
            self._timer.start()
        return self

    def hide(self) -> None:
        """Hides the bar while something else is shown or asked."""
        self._timer.cancel()
        if err.is_terminal:  # otherwise it was never shown, and stopping it prints an empty line
            self._progress.stop()

    def show(self) -> None:
        if err.is_terminal:
            self._progress.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()


# Sizes for people.


def size_text(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:,.1f} {unit}"
