"""What `sql` writes for programs: JSON or CSV. All of it or nothing: it is kept aside until it is whole."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from penstock.cli.visible import visible_json
from penstock.ops.sql.reader import Answer
from penstock.ops.sql.values import json_values, texts

_IN_MEMORY = 8 << 20


@contextmanager
def kept_aside() -> Iterator[IO[str]]:
    """What is written to it goes to standard output at the end, unless there was an error."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="") as aside:
        yield aside
        aside.seek(0)
        try:
            shutil.copyfileobj(aside, sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:  # who reads it has enough; Python would complain once more as it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(answer: Answer, limit: int | None, out: IO[str]) -> bool:
    """Values as Spark writes them: a decimal keeps its digits. Whether there are more rows than `limit`."""
    columns = visible_json(json.dumps(answer.frame.columns, ensure_ascii=False))
    out.write(f'{{\n  "columns": {columns},\n  "rows": [')
    truncated = False
    for number, row in enumerate(json_values(answer.frame, limit)):
        if number == limit:
            truncated = True
            break
        out.write(f"{',' if number else ''}\n    [{visible_json(', '.join(row))}]")
    read = [{"table": one.table.name, "version": one.version} for one in answer.read]
    out.write(f'\n  ],\n  "truncated": {json.dumps(truncated)},\n  "read": {json.dumps(read)}\n}}\n')
    return truncated


def write_csv(answer: Answer, limit: int | None, out: IO[str]) -> bool:
    """With a header. NULL is nothing at all, an empty text is `""`. Whether there are more rows than `limit`."""
    out.write(",".join(map(_field, answer.frame.columns)) + "\n")
    for number, row in enumerate(texts(answer.frame, limit)):
        if number == limit:
            return True
        out.write(",".join(map(_field, row)) + "\n")
    return False


def _field(value: str | None) -> str:
    if value is None:
        return ""
    if not value or any(sign in value for sign in ',"\r\n') or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value
