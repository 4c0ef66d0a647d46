"""Lines typed at the prompt, put together to statements; remembered, and completed by the names of tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.ops.sql.statement import BEGINNINGS, split

_REMEMBERED = 1000
_WORDS = (*BEGINNINGS, "WHERE", "GROUP BY", "ORDER BY", "HAVING", "JOIN", "LIMIT", "count(*)")
_COMMANDS = ("\\", "tables", "help", "quit", "exit")


def statements(read: Callable[[bool], str | None]) -> Iterator[str]:
    """Each statement with its `;`, and each command, which needs none. `read` gives a line, None at the end; it is told
    whether a statement has begun. What has begun then is one too."""
    begun = ""
    while (line := read(bool(begun))) is not None:
        if not begun and line.strip().startswith(_COMMANDS) and len(line.split()) <= 2:
            yield line.strip()
            continue
        done, begun = split(f"{begun}{line.rstrip()}\n")
        yield from (one.strip() for one in done)
    if begun.strip():
        yield begun.strip()


def lines(project: str, names: Sequence[str], history: Path) -> Iterator[str]:
    """Statements from the terminal. Ctrl-C forgets what was typed, Ctrl-D ends it."""
    memory = _Memory(names, history)

    def read(begun: bool) -> str | None:
        return input(f"{'':{len(project)}}| " if begun else f"{project}> ")

    while True:
        try:
            for one in statements(read):
                memory.add(one)
                yield one
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return


class _Memory:
    """History and completion, where Python has them."""

    def __init__(self, names: Sequence[str], history: Path) -> None:
        self._history = history
        self._readline: Any = None
        with suppress(ImportError):
            import readline

            self._readline = readline
            readline.set_auto_history(False)
            readline.set_history_length(_REMEMBERED)
            with suppress(OSError):
                readline.read_history_file(history)
            candidates = [*names, *_WORDS]
            readline.set_completer(lambda text, number: _complete(candidates, text, number))
            apple = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if apple else "tab: complete")

    def add(self, statement: str) -> None:
        if self._readline is None:
            return
        # A comment to the end of its line would swallow what comes after it.
        for line in statement.splitlines() if "--" in statement else [" ".join(statement.splitlines())]:
            self._readline.add_history(line)
        with suppress(OSError):
            self._history.parent.mkdir(parents=True, exist_ok=True)
            os.close(
                os.open(self._history, os.O_CREAT | os.O_WRONLY, 0o600)
            )  # queries may hold what nobody else may see
            self._readline.write_history_file(self._history)


def _complete(candidates: Sequence[str], text: str, number: int) -> str | None:
    found = [one for one in candidates if one.casefold().startswith(text.casefold())]
    return found[number] if number < len(found) else None
