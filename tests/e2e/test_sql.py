"""`penstock sql` and `penstock shell` as a user calls them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.plan.build import build_plan
from penstock.spec.load import load_project
from tests.bronze_table import BronzeTable

COMMAND = [sys.executable, "-m", "penstock"]
PROJECT = """
name: shop
lake: ./lake
kafka: {bootstrap: "127.0.0.1:1"}
spark: {master: "local[2]"}
tables:
  bronze.orders: {from: {kafka: orders}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """bronze.orders has 3 rows in version 1 and 5 in version 2."""
    (tmp_path / "penstock.yml").write_text(PROJECT)
    table = BronzeTable(build_plan(load_project(tmp_path)).tables[0])
    table.genesis({"orders": {0: 0}}).batch({"orders": {0: 3}}).batch({"orders": {0: 5}})
    return tmp_path


def test_sql_prints_one_document_and_leaves_nothing_behind(project: Path) -> None:
    old = "(SELECT max(offset) FROM bronze.orders VERSION AS OF 1)"
    query = f"SELECT topic, count(*) AS n, {old} AS o FROM bronze.orders GROUP BY 1"
    done = subprocess.run(
        [*COMMAND, "sql", "-", "--json"], input=query, cwd=project, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "columns": ["topic", "n", "o"],
        "rows": [["orders", 5, 2]],
        "truncated": False,
        "read": [{"table": "bronze.orders", "version": 1}, {"table": "bronze.orders", "version": 2}],
    }
    assert not done.stderr, "Spark's noise is in its log"
    assert sorted(path.name for path in project.iterdir()) == [".penstock", "lake", "penstock.yml"]


class Terminal:
    """A terminal of 100 columns on which a command runs, alone in its session: Ctrl-C reaches it as a user's does."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, "-C", str(folder), *words],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(other)

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def until(self, word: str, patience: float = 120) -> str:
        """What is shown up to and with a word."""
        seen, deadline = "", time.monotonic() + patience
        while word not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([self._end], [], [], 0.5)[0]:
                seen += os.read(self._end, 65536).decode(errors="replace")
        return seen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._end)


@pytest.fixture
def terminal(project: Path) -> Iterator[Terminal]:
    made = Terminal(project, "shell")
    yield made
    made.close()


@pytest.mark.deep
def test_a_shell_answers_one_query_after_the_other_and_survives_what_goes_wrong(
    terminal: Terminal, project: Path
) -> None:
    terminal.until("shop> ")
    terminal.type("SELECT max(offset) AS highest\nFROM bronze.orders VERSION AS OF 1;\n")
    assert "│       2 │" in terminal.until("1 row of bronze.orders version 1")
    terminal.type("SELECT nope FROM bronze.orders;\n")
    assert "`nope` cannot be resolved" in terminal.until("^^^^")
    terminal.type("DROP TABLE bronze.orders;\n")
    terminal.until("queries only read")
    terminal.type("SELECT count(*) FROM range(1000000000000) WHERE hash(id) = 5;\n")
    terminal.until("reading")
    time.sleep(1.5)
    terminal.type("\x03")
    assert "error" not in terminal.until("ended")
    terminal.type("\\d\n")
    assert "topic, partition, offset" in terminal.until("offset")
    terminal.type("SELECT count(*) AS n FROM bronze.orders;\n")
    assert "│ 5 │" in terminal.until("1 row of bronze.orders version 2")
    terminal.type("\\q\n")
    assert terminal.process.wait(timeout=60) == 0
    history = project / ".penstock" / "shell_history"
    assert "SELECT max(offset) AS highest FROM bronze.orders VERSION AS OF 1;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
