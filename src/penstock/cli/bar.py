"""Progress on standard error, for what can take a while."""

from __future__ import annotations

import threading
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.cli.console import err

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
