"""A server of ours: a program, and a folder that is its own.

It ends with the Python process that started it, however that ends, and a temporary folder goes with it.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.dev.child import Child


class Server(ABC):
    """Started by `start` or by entering it."""

    def __init__(self, name: str, folder: Path | str | None = None) -> None:
        """Without `folder` it has a temporary one, which is removed in the end."""
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-") if folder is None else folder).absolute()
        self._child: Child | None = None
        if self._temporary:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.exit_code() is None

    @abstractmethod
    def start(self) -> Self:
        """Returns when it answers. SetupError says why it does not."""

    @abstractmethod
    def stop(self) -> None: ...

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        """What goes away need not close its files."""
        if self._temporary:
            self._end(0.0)
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.stop()

    def _launch(self, command: Sequence[str], output: Path) -> Child:
        gone_with_us = self.folder if self._temporary else None
        self._child = Child(command, output=output, remove_after_us=gone_with_us)
        return self._child

    def _end(self, patience: float) -> None:
        """`patience` is that of `Child.end`: 0 is a crash."""
        child, self._child = self._child, None
        if child is not None:
            child.end(patience)
