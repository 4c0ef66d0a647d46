"""What a person sees while it runs: one line that moves, and a line for every finished step. On standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Screen:
    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Gives a function that takes how much of `total` is done. Without a terminal the start is a plain line."""
        if not self.console.is_terminal:
            self.say(f"{what} …")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        quiet = not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=quiet) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)
