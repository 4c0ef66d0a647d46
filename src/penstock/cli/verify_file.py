"""The page of `verify` as a file: there whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import UsageError


@contextmanager
def page_file(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What it gives writes the page of a document. That it can be written is known before anything is looked at."""
    if path is None:
        yield lambda _: None
        return
    if path.is_dir():
        raise UsageError(f"--report {path} is a folder", hint=f"write --report {path / 'report.html'}")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise UsageError(
            f"--report {path} cannot be written: {error.strerror}", hint="name a file in a folder that you may write to"
        ) from None
    os.close(handle)
    begun = Path(name)

    def write(document: dict[str, Any]) -> None:
        from penstock.cli.verify_page import page

        try:
            begun.write_text(page(document), encoding="utf-8", errors="backslashreplace")
            begun.chmod(0o666 & ~_umask())  # as any other file of the user: a temporary one is his alone
            begun.replace(path)
        except OSError as error:
            raise UsageError(f"--report {path} cannot be written: {error.strerror}") from None

    try:
        yield write
    finally:
        begun.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
